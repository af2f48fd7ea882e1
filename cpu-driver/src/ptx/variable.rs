//! Variable declarations and their initialisers, in every state space.

use super::ast::{InitValue, Linkage, ScalarType, StateSpace, Variable};
use super::cursor::{Cursor, parse_unsigned};
use super::lexer::Token;
use super::{MAX_DEPTH, ParseError};

pub fn linkage(cursor: &mut Cursor<'_>) -> Linkage {
    let found = match cursor.peek_text() {
        ".visible" => Linkage::Visible,
        ".extern" => Linkage::Extern,
        ".weak" => Linkage::Weak,
        ".common" => Linkage::Common,
        _ => return Linkage::Internal,
    };
    cursor.advance();
    found
}

pub fn space_of(word: &str) -> Option<StateSpace> {
    Some(match word {
        ".reg" => StateSpace::Register,
        ".global" | ".tex" => StateSpace::Global,
        ".const" => StateSpace::Const,
        ".shared" | ".shared::cta" => StateSpace::Shared,
        ".local" => StateSpace::Local,
        ".param" => StateSpace::Param,
        _ => return None,
    })
}

/// `.u32` and the like.
pub fn type_of(word: &str) -> Option<ScalarType> {
    use ScalarType as T;
    Some(match word {
        ".b8" => T::B8,
        ".b16" => T::B16,
        ".b32" => T::B32,
        ".b64" => T::B64,
        ".b128" => T::B128,
        ".u8" => T::U8,
        ".u16" => T::U16,
        ".u32" => T::U32,
        ".u64" => T::U64,
        ".s8" => T::S8,
        ".s16" => T::S16,
        ".s32" => T::S32,
        ".s64" => T::S64,
        ".f16" => T::F16,
        ".f16x2" => T::F16x2,
        ".bf16" => T::BF16,
        ".bf16x2" => T::BF16x2,
        ".tf32" => T::TF32,
        ".f32" => T::F32,
        ".f64" => T::F64,
        ".e4m3" => T::E4M3,
        ".e5m2" => T::E5M2,
        ".e4m3x2" => T::E4M3x2,
        ".e5m2x2" => T::E5M2x2,
        ".e2m1x2" => T::E2M1x2,
        ".pred" => T::Pred,
        // Opaque handles; an instruction that uses one fails when reached.
        ".texref" | ".samplerref" | ".surfref" => T::B64,
        _ => return None,
    })
}

impl ScalarType {
    /// Bytes in memory; predicates have no place there and count as 1.
    pub fn bytes(self) -> u32 {
        use ScalarType as T;
        match self {
            T::B8 | T::U8 | T::S8 | T::E4M3 | T::E5M2 | T::E2M1x2 | T::Pred => 1,
            T::B16 | T::U16 | T::S16 | T::F16 | T::BF16 | T::E4M3x2 | T::E5M2x2 => 2,
            T::B32 | T::U32 | T::S32 | T::F32 | T::F16x2 | T::BF16x2 | T::TF32 => 4,
            T::B64 | T::U64 | T::S64 | T::F64 => 8,
            T::B128 => 16,
        }
    }
}

/// What stands before the name: shared by all names of one declaration.
struct Prefix {
    space: StateSpace,
    align: Option<u32>,
    ty: ScalarType,
    vector: u32,
    managed: bool,
}

/// `.space qualifiers name, name = …;`
pub fn declaration(
    cursor: &mut Cursor<'_>,
    linkage: Linkage,
    into: &mut Vec<Variable>,
) -> Result<(), ParseError> {
    let prefix = prefix(cursor)?;
    loop {
        into.push(declarator(cursor, linkage, &prefix)?);
        if !cursor.take(Token::Comma) {
            break;
        }
    }
    cursor.expect(Token::Semicolon)?;
    Ok(())
}

/// `(.param .u64 a, .reg .b32 b)`
pub fn parameters(cursor: &mut Cursor<'_>) -> Result<Vec<Variable>, ParseError> {
    cursor.expect(Token::OpenParen)?;
    let mut found = Vec::new();
    while cursor.peek() != Some(Token::CloseParen) {
        let prefix = prefix(cursor)?;
        found.push(declarator(cursor, Linkage::Internal, &prefix)?);
        if !cursor.take(Token::Comma) {
            break;
        }
    }
    cursor.expect(Token::CloseParen)?;
    Ok(found)
}

fn prefix(cursor: &mut Cursor<'_>) -> Result<Prefix, ParseError> {
    let Some(space) = space_of(cursor.peek_text()) else {
        return cursor.expected("a directive or a state space (`.global`, `.reg`, …)");
    };
    cursor.advance();
    if cursor.take(Token::OpenBracket) {
        // `.const[2]`: banks went away with PTX 2.2.
        cursor.unsigned()?;
        cursor.expect(Token::CloseBracket)?;
    }
    let mut align = None;
    let mut ty = None;
    let mut vector = 1;
    let mut managed = false;
    let mut pointer = false;
    while cursor.peek() == Some(Token::DotWord) {
        let word = cursor.peek_text();
        match word {
            ".align" => {
                cursor.advance();
                let given = alignment(cursor)?;
                // After `.ptr` it describes what is pointed at.
                if !pointer {
                    align = Some(given);
                }
                continue;
            }
            ".attribute" => {
                cursor.advance();
                managed |= attribute(cursor)?;
                continue;
            }
            ".v2" => vector = 2,
            ".v4" => vector = 4,
            ".v8" => vector = 8,
            ".ptr" => pointer = true,
            _ if type_of(word).is_some() && ty.is_none() => ty = type_of(word),
            // Address space of a `.ptr`.
            _ if pointer && space_of(word).is_some() => {}
            _ => return cursor.expected("a type (`.u32`, `.f64`, …) or a name"),
        }
        cursor.advance();
    }
    let Some(ty) = ty else {
        return cursor.expected("a type (`.u32`, `.f64`, …)");
    };
    Ok(Prefix {
        space,
        align,
        ty,
        vector,
        managed,
    })
}

fn alignment(cursor: &mut Cursor<'_>) -> Result<u32, ParseError> {
    let text = cursor.peek_text();
    let value = parse_unsigned(text).unwrap_or(0);
    if !value.is_power_of_two() || value > 1 << 20 {
        return cursor.error(format!(
            "alignment must be a power of two up to 2^20, found `{text}`"
        ));
    }
    cursor.unsigned32()
}

/// `(.managed)`, `(.unified(1, 2))`; true for managed.
fn attribute(cursor: &mut Cursor<'_>) -> Result<bool, ParseError> {
    cursor.expect(Token::OpenParen)?;
    let mut managed = false;
    let mut depth = 1_u32;
    while depth > 0 {
        match cursor.peek() {
            Some(Token::OpenParen) => depth += 1,
            Some(Token::CloseParen) => depth -= 1,
            Some(Token::DotWord) => managed |= cursor.peek_text() == ".managed",
            Some(Token::Comma | Token::Integer) => {}
            _ => return cursor.expected("`)` at the attribute's end"),
        }
        cursor.advance();
    }
    Ok(managed)
}

fn declarator(
    cursor: &mut Cursor<'_>,
    linkage: Linkage,
    prefix: &Prefix,
) -> Result<Variable, ParseError> {
    let line = cursor.line();
    let name = cursor.name()?;
    let mut range = None;
    if cursor.take(Token::Less) {
        range = Some(cursor.unsigned32()?);
        cursor.expect(Token::Greater)?;
    }
    let mut dims = Vec::new();
    let mut total = u64::from(prefix.ty.bytes()) * u64::from(prefix.vector);
    while cursor.peek() == Some(Token::OpenBracket) {
        cursor.advance();
        if cursor.take(Token::CloseBracket) {
            dims.push(None);
            continue;
        }
        let extent = cursor.unsigned()?;
        total = total.saturating_mul(extent);
        if total >= 1 << 47 {
            return cursor.error("the array is larger than an address space");
        }
        cursor.expect(Token::CloseBracket)?;
        dims.push(Some(extent));
    }
    let mut init = Vec::new();
    if cursor.take(Token::Equals) {
        initialiser(cursor, &mut init, 0)?;
    }
    // An unsized array takes its extent from its initialiser.
    if let ([None], false) = (dims.as_slice(), init.is_empty()) {
        dims[0] = Some((init.len() as u64).div_ceil(u64::from(prefix.vector)));
    }
    Ok(Variable {
        linkage,
        space: prefix.space,
        align: prefix.align.unwrap_or(prefix.ty.bytes() * prefix.vector),
        ty: prefix.ty,
        vector: prefix.vector,
        name,
        range,
        dims,
        init,
        managed: prefix.managed,
        line,
    })
}

fn initialiser(
    cursor: &mut Cursor<'_>,
    into: &mut Vec<InitValue>,
    depth: u32,
) -> Result<(), ParseError> {
    if depth > MAX_DEPTH {
        return cursor.error("initialiser braces nest too deeply");
    }
    if !cursor.take(Token::OpenBrace) {
        into.push(init_value(cursor)?);
        return Ok(());
    }
    while cursor.peek() != Some(Token::CloseBrace) {
        initialiser(cursor, into, depth + 1)?;
        if !cursor.take(Token::Comma) {
            break;
        }
    }
    cursor.expect(Token::CloseBrace)?;
    Ok(())
}

fn init_value(cursor: &mut Cursor<'_>) -> Result<InitValue, ParseError> {
    let mut negative = false;
    while cursor.take(Token::Minus) {
        negative = !negative;
    }
    let text = cursor.peek_text();
    match cursor.peek() {
        Some(Token::Integer) if cursor.peek_second() == Some(Token::OpenParen) => {
            let mask = cursor.unsigned()?;
            cursor.expect(Token::OpenParen)?;
            let symbol = symbol(cursor, Some(mask))?;
            cursor.expect(Token::CloseParen)?;
            Ok(symbol)
        }
        Some(Token::Integer) => {
            let value = i128::from(cursor.unsigned()?);
            Ok(InitValue::Int(if negative { -value } else { value }))
        }
        Some(Token::HexFloat | Token::HexDouble | Token::Decimal | Token::DotWord) => {
            float(cursor, text, negative)
        }
        Some(Token::Word) => symbol(cursor, None),
        _ => cursor.expected("an initial value"),
    }
}

fn float(cursor: &mut Cursor<'_>, text: &str, negative: bool) -> Result<InitValue, ParseError> {
    let value = match cursor.peek() {
        Some(Token::HexFloat) => {
            let bits = u32::from_str_radix(&text[2..], 16).unwrap_or(0);
            InitValue::F32(bits ^ (u32::from(negative) << 31))
        }
        Some(Token::HexDouble) => {
            let bits = u64::from_str_radix(&text[2..], 16).unwrap_or(0);
            InitValue::F64(bits ^ (u64::from(negative) << 63))
        }
        _ => InitValue::F64(cursor.decimal_bits(text)? ^ (u64::from(negative) << 63)),
    };
    cursor.advance();
    Ok(value)
}

/// `foo`, `foo+8`, `generic(foo)`, `generic(foo)+8`
fn symbol(cursor: &mut Cursor<'_>, mask: Option<u64>) -> Result<InitValue, ParseError> {
    let mut name = cursor.name()?;
    let generic = name == "generic" && cursor.take(Token::OpenParen);
    let mut offset = 0_i64;
    if generic {
        name = cursor.name()?;
        offset = cursor.offset()?;
        cursor.expect(Token::CloseParen)?;
    }
    offset = offset.wrapping_add(cursor.offset()?);
    Ok(InitValue::Symbol {
        name,
        offset,
        generic,
        mask,
    })
}
