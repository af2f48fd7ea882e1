//! `printf` of device code: text is formatted as it is printed and held until
//! the host synchronises, as with CUDA's buffer.

use std::io::Write;
use std::sync::{Mutex, PoisonError};

static OUTPUT: Mutex<Vec<u8>> = Mutex::new(Vec::new());

pub fn append(text: &[u8]) {
    OUTPUT
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .extend_from_slice(text);
}

/// Takes what device code has printed since the last call.
pub fn take() -> Vec<u8> {
    std::mem::take(&mut *OUTPUT.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Writes what device code has printed to standard output.
pub fn flush() {
    let text = take();
    if !text.is_empty() {
        let mut out = std::io::stdout().lock();
        // Nobody to tell when standard output is gone.
        let _ = out.write_all(&text).and_then(|()| out.flush());
    }
}

/// Flags, width and precision of one conversion.
#[derive(Debug, Default, Clone)]
struct Directive {
    left: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    zero: bool,
    width: usize,
    precision: Option<usize>,
    long: bool,
}

/// Formats like C. `next` gives the next argument of 4 or 8 bytes (a `double`
/// is 8), `string` the text at an address. Also gives the number of arguments.
pub fn format(
    text: &[u8],
    next: &mut dyn FnMut(usize) -> u64,
    string: &mut dyn FnMut(u64) -> Vec<u8>,
) -> (Vec<u8>, u64) {
    let mut out = Vec::new();
    let mut count = 0;
    let mut rest = text;
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        if *byte != b'%' {
            out.push(*byte);
            continue;
        }
        let start = rest;
        let mut directive = flags(&mut rest);
        directive.width = match star_or_number(&mut rest, next) {
            Some(width) if width < 0 => {
                directive.left = true;
                width.unsigned_abs() as usize
            }
            width => width.unwrap_or(0) as usize,
        };
        if let [b'.', tail @ ..] = rest {
            rest = tail;
            let precision = star_or_number(&mut rest, next).unwrap_or(0);
            directive.precision = usize::try_from(precision).ok();
        }
        directive.width = directive.width.min(1 << 12);
        directive.precision = directive.precision.map(|p| p.min(1 << 12));
        while let [b'l' | b'h' | b'z' | b't' | b'j', tail @ ..] = rest {
            directive.long |= rest[0] != b'h';
            rest = tail;
        }
        let Some((conversion, tail)) = rest.split_first() else {
            out.push(b'%');
            out.extend_from_slice(start);
            break;
        };
        rest = tail;
        if *conversion == b'%' {
            out.push(b'%');
            continue;
        }
        count += 1;
        match convert(*conversion, &directive, next, string) {
            Some(piece) => pad(&mut out, &piece, &directive, *conversion),
            None => {
                out.push(b'%');
                out.extend_from_slice(&start[..start.len() - rest.len()]);
            }
        }
    }
    (out, count)
}

fn flags(rest: &mut &[u8]) -> Directive {
    let mut directive = Directive::default();
    while let Some((byte, tail)) = rest.split_first() {
        match byte {
            b'-' => directive.left = true,
            b'+' => directive.plus = true,
            b' ' => directive.space = true,
            b'#' => directive.alternate = true,
            b'0' => directive.zero = true,
            _ => break,
        }
        *rest = tail;
    }
    directive
}

fn star_or_number(rest: &mut &[u8], next: &mut dyn FnMut(usize) -> u64) -> Option<i64> {
    if let [b'*', tail @ ..] = *rest {
        *rest = tail;
        return Some(i64::from(next(4) as i32));
    }
    let mut number = None;
    while let Some((digit @ b'0'..=b'9', tail)) = rest.split_first() {
        number = Some(number.unwrap_or(0i64).saturating_mul(10) + i64::from(digit - b'0'));
        *rest = tail;
    }
    number
}

fn convert(
    conversion: u8,
    directive: &Directive,
    next: &mut dyn FnMut(usize) -> u64,
    string: &mut dyn FnMut(u64) -> Vec<u8>,
) -> Option<Vec<u8>> {
    let bytes = if directive.long { 8 } else { 4 };
    Some(match conversion {
        b'd' | b'i' => {
            let raw = next(bytes);
            let value = if directive.long {
                raw as i64
            } else {
                i64::from(raw as i32)
            };
            let digits = at_least(value.unsigned_abs().to_string(), directive);
            (sign(value < 0, directive) + &digits).into_bytes()
        }
        b'u' => at_least(next(bytes).to_string(), directive).into_bytes(),
        b'o' => at_least(format!("{:o}", next(bytes)), directive).into_bytes(),
        b'x' | b'X' => {
            let value = next(bytes);
            let mut digits = at_least(format!("{value:x}"), directive);
            if directive.alternate && value != 0 {
                digits = format!("0x{digits}");
            }
            if conversion == b'X' {
                digits = digits.to_uppercase();
            }
            digits.into_bytes()
        }
        b'p' => format!("{:#x}", next(8)).into_bytes(),
        b'c' => vec![next(4) as u8],
        b's' => {
            let mut text = string(next(8));
            text.truncate(directive.precision.unwrap_or(usize::MAX));
            text
        }
        b'f' | b'F' | b'e' | b'E' | b'g' | b'G' | b'a' | b'A' => {
            let value = f64::from_bits(next(8));
            let digits = float(conversion.to_ascii_lowercase(), value.abs(), directive);
            let mut text = sign(value.is_sign_negative(), directive) + &digits;
            if conversion.is_ascii_uppercase() {
                text = text.to_uppercase();
            }
            text.into_bytes()
        }
        _ => return None,
    })
}

fn sign(negative: bool, directive: &Directive) -> String {
    match (negative, directive.plus, directive.space) {
        (true, _, _) => "-".to_owned(),
        (_, true, _) => "+".to_owned(),
        (_, _, true) => " ".to_owned(),
        _ => String::new(),
    }
}

/// Leading zeros up to the precision.
fn at_least(digits: String, directive: &Directive) -> String {
    let digits = if directive.precision == Some(0) && digits == "0" {
        String::new()
    } else {
        digits
    };
    let wanted = directive.precision.unwrap_or(0);
    format!("{digits:0>wanted$}")
}

fn float(conversion: u8, value: f64, directive: &Directive) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return "inf".to_owned();
    }
    let precision = directive.precision.unwrap_or(6);
    match conversion {
        b'e' => exponential(value, precision),
        b'g' => general(value, precision.max(1), directive.alternate),
        b'a' => hexadecimal(value),
        _ => format!("{value:.precision$}"),
    }
}

/// C writes at least two exponent digits and always a sign.
fn exponential(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

fn general(value: f64, precision: usize, keep_zeros: bool) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let scientific = exponential(value, precision - 1);
    let exponent: i32 = scientific
        .split_once('e')
        .and_then(|(_, e)| e.parse().ok())
        .unwrap_or(0);
    let (mut digits, tail) = if exponent < -4 || exponent >= precision as i32 {
        let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "+00"));
        (digits.to_owned(), format!("e{exponent}"))
    } else {
        let places = (precision as i32 - 1 - exponent).max(0) as usize;
        (format!("{value:.places$}"), String::new())
    };
    if !keep_zeros && digits.contains('.') {
        digits.truncate(digits.trim_end_matches('0').trim_end_matches('.').len());
    }
    digits + &tail
}

fn hexadecimal(value: f64) -> String {
    let bits = value.to_bits();
    let (fraction, field) = (bits & ((1 << 52) - 1), (bits >> 52) as i32);
    let (lead, exponent) = match field {
        0 if fraction == 0 => (0, 0),
        0 => (0, -1022),
        _ => (1, field - 1023),
    };
    let digits = format!("{fraction:013x}");
    let digits = digits.trim_end_matches('0');
    let point = if digits.is_empty() { "" } else { "." };
    format!("0x{lead}{point}{digits}p{exponent:+}")
}

fn pad(out: &mut Vec<u8>, piece: &[u8], directive: &Directive, conversion: u8) {
    let missing = directive.width.saturating_sub(piece.len());
    let integer = matches!(conversion, b'd' | b'i' | b'u' | b'x' | b'X' | b'o');
    let zeros = directive.zero
        && !directive.left
        && (!integer || directive.precision.is_none())
        && !matches!(conversion, b's' | b'c' | b'p');
    if directive.left {
        out.extend_from_slice(piece);
        out.extend(std::iter::repeat_n(b' ', missing));
    } else if zeros {
        let signs = piece
            .iter()
            .take_while(|b| matches!(b, b'-' | b'+' | b' '))
            .count();
        out.extend_from_slice(&piece[..signs]);
        out.extend(std::iter::repeat_n(b'0', missing));
        out.extend_from_slice(&piece[signs..]);
    } else {
        out.extend(std::iter::repeat_n(b' ', missing));
        out.extend_from_slice(piece);
    }
}
