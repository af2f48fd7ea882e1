//! When two devices' answers to a form count as the same.

use super::signature::{Signature, Type};
use anyhow::{Context, Result, bail};

/// The header's `// check` line. Integers, bits and predicates are always
/// compared exactly; a tolerance is for floats that PTX does not fix.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Check {
    /// Distance in units in the last place of the output's own type.
    pub ulp: u64,
    /// Absolute distance; either bound suffices.
    pub abs: f64,
}

impl Check {
    /// # Errors
    /// Anything but `exact`, `ulp N`, `abs E` or the two together.
    pub fn parse(text: &str) -> Result<Check> {
        let mut check = Check::default();
        let words: Vec<&str> = text.split_whitespace().collect();
        if words == ["exact"] {
            return Ok(check);
        }
        for pair in words.chunks(2) {
            match pair {
                ["ulp", n] => check.ulp = n.parse().with_context(|| format!("ulp `{n}`"))?,
                ["abs", e] => check.abs = e.parse().with_context(|| format!("abs `{e}`"))?,
                _ => bail!("unknown check `{text}`: expected exact, ulp N, abs E"),
            }
        }
        if check == Check::default() || !check.abs.is_finite() {
            bail!("check `{text}` bounds nothing; write exact");
        }
        Ok(check)
    }

    fn is_exact(self) -> bool {
        self == Check::default()
    }
}

/// The first place where two answers differ by more than the check allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    pub case: usize,
    pub output: usize,
    pub got: u64,
    pub want: u64,
    /// Number of cases that differ, this one included.
    pub cases: usize,
}

/// Compares packed outputs of the same number of cases.
///
/// # Errors
/// The first difference, or lengths that do not match.
pub fn compare(
    signature: &Signature,
    check: Check,
    got: &[u8],
    want: &[u8],
) -> Result<Option<Difference>> {
    let width = signature.packed_bytes();
    if got.len() != want.len() || got.is_empty() || !got.len().is_multiple_of(width) {
        bail!(
            "expected {} bytes of outputs, {width} a case; found {}",
            want.len(),
            got.len()
        );
    }
    let mut first: Option<Difference> = None;
    for (case, (g, w)) in got.chunks(width).zip(want.chunks(width)).enumerate() {
        let Some((output, got, want)) = case_differs(signature, check, g, w) else {
            continue;
        };
        first
            .get_or_insert(Difference {
                case,
                output,
                got,
                want,
                cases: 0,
            })
            .cases += 1;
    }
    Ok(first)
}

fn case_differs(
    signature: &Signature,
    check: Check,
    got: &[u8],
    want: &[u8],
) -> Option<(usize, u64, u64)> {
    let mut at = 0;
    for (index, output) in signature.outputs.iter().enumerate() {
        let end = at + output.ty.bytes();
        let (g, w) = (word(&got[at..end]), word(&want[at..end]));
        if !same(output.ty, check, g, w) {
            return Some((index, g, w));
        }
        at = end;
    }
    None
}

/// Little-endian bytes as a number.
pub(super) fn word(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |value, b| value << 8 | u64::from(*b))
}

fn same(ty: Type, check: Check, got: u64, want: u64) -> bool {
    if got == want || check.is_exact() {
        return got == want;
    }
    let near = |element, shift: u32| {
        let low = |v: u64| v >> shift & 0xffff;
        close(element, check, low(got), low(want))
    };
    match ty {
        Type::F16x2 => near(Type::F16, 0) && near(Type::F16, 16),
        Type::BF16x2 => near(Type::BF16, 0) && near(Type::BF16, 16),
        Type::F16 | Type::BF16 | Type::F32 | Type::F64 => close(ty, check, got, want),
        _ => false,
    }
}

fn close(ty: Type, check: Check, got: u64, want: u64) -> bool {
    let (g, w) = (value(ty, got), value(ty, want));
    if g.is_nan() || w.is_nan() {
        return g.is_nan() && w.is_nan();
    }
    if ulps(ty, got, want) <= check.ulp {
        return true;
    }
    // Not `> abs`: an infinity minus itself is NaN and must not pass.
    (g - w).abs() <= check.abs
}

/// Steps between two values of a type, through zero.
fn ulps(ty: Type, a: u64, b: u64) -> u64 {
    let sign = 1u64 << (ty.bytes() * 8 - 1);
    let ordered = |bits: u64| {
        let magnitude = (bits & (sign - 1)) as i128;
        if bits & sign == 0 {
            magnitude
        } else {
            -magnitude
        }
    };
    u64::try_from((ordered(a) - ordered(b)).unsigned_abs()).unwrap_or(u64::MAX)
}

fn value(ty: Type, bits: u64) -> f64 {
    match ty {
        Type::F16 => half::f16::from_bits(bits as u16).to_f64(),
        Type::BF16 => half::bf16::from_bits(bits as u16).to_f64(),
        Type::F32 => f64::from(f32::from_bits(bits as u32)),
        _ => f64::from_bits(bits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f32s(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    fn differs(check: &str, got: &[f32], want: &[f32]) -> bool {
        let signature = Signature::parse("a:f32 -> d:f32").expect("signature");
        let check = Check::parse(check).expect("check");
        compare(&signature, check, &f32s(got), &f32s(want))
            .expect("lengths")
            .is_some()
    }

    #[test]
    fn exact_tells_the_zeros_and_the_nans_apart() {
        assert!(differs("exact", &[0.0], &[-0.0]));
        assert!(differs(
            "exact",
            &[f32::NAN],
            &[f32::from_bits(0x7fff_ffff)]
        ));
        assert!(!differs("exact", &[f32::NAN], &[f32::NAN]));
    }

    #[test]
    fn a_tolerance_never_accepts_nan_or_infinity_for_a_number() {
        for bad in [f32::NAN, f32::INFINITY, -f32::INFINITY] {
            assert!(differs("ulp 4 abs 1e9", &[bad], &[1.0]), "{bad}");
            assert!(differs("ulp 4 abs 1e9", &[1.0], &[bad]), "{bad}");
        }
    }

    #[test]
    fn ulps_are_counted_and_one_too_many_differs() {
        let next = f32::from_bits(1.0f32.to_bits() + 2);
        assert!(!differs("ulp 2", &[next], &[1.0]));
        assert!(differs("ulp 1", &[next], &[1.0]));
    }

    #[test]
    fn outputs_that_are_missing_are_an_error() {
        let signature = Signature::parse("a:f32 -> d:f32").expect("signature");
        let bytes = f32s(&[1.0, 2.0]);
        assert!(compare(&signature, Check::default(), &bytes[..4], &bytes).is_err());
        assert!(compare(&signature, Check::default(), &[], &[]).is_err());
    }
}
