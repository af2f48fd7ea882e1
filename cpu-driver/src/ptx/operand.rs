//! Operands of instructions.

use super::ParseError;
use super::ast::Operand;
use super::cursor::Cursor;
use super::lexer::Token;

/// Vectors and lists nest at most this deep: `call (r), f, (a)` is 1.
const MAX_OPERAND_DEPTH: u32 = 4;

pub fn operand(cursor: &mut Cursor<'_>, depth: u32) -> Result<Operand, ParseError> {
    if depth > MAX_OPERAND_DEPTH {
        return cursor.error("operands nest too deeply");
    }
    match cursor.peek() {
        Some(Token::OpenBrace) => {
            let items = items(cursor, Token::CloseBrace, depth)?;
            Ok(Operand::Vector(items))
        }
        Some(Token::OpenParen) => {
            let items = items(cursor, Token::CloseParen, depth)?;
            Ok(Operand::List(items))
        }
        Some(Token::OpenBracket) => address(cursor, depth),
        Some(Token::Not) => {
            cursor.advance();
            Ok(Operand::Not(dotted_name(cursor)?))
        }
        Some(Token::Word) => name_or_pair(cursor),
        _ => number(cursor),
    }
}

/// What stands between an opening token and `close`, commas between.
fn items(cursor: &mut Cursor<'_>, close: Token, depth: u32) -> Result<Vec<Operand>, ParseError> {
    cursor.advance();
    let mut found = Vec::new();
    while cursor.peek() != Some(close) {
        found.push(operand(cursor, depth + 1)?);
        if !cursor.take(Token::Comma) {
            break;
        }
    }
    cursor.expect(close)?;
    Ok(found)
}

/// `%tid.x` is one name.
fn dotted_name(cursor: &mut Cursor<'_>) -> Result<String, ParseError> {
    let mut name = cursor.name()?;
    while cursor.peek() == Some(Token::DotWord) {
        name.push_str(cursor.expect(Token::DotWord)?);
    }
    Ok(name)
}

fn single_name(cursor: &mut Cursor<'_>) -> Result<Operand, ParseError> {
    let name = dotted_name(cursor)?;
    Ok(match name.as_str() {
        "_" => Operand::Sink,
        _ => Operand::Name(name),
    })
}

fn name_or_pair(cursor: &mut Cursor<'_>) -> Result<Operand, ParseError> {
    let first = single_name(cursor)?;
    if cursor.take(Token::Pipe) {
        let second = single_name(cursor)?;
        return Ok(Operand::Pair(Box::new(first), Box::new(second)));
    }
    match (first, cursor.peek()) {
        (Operand::Name(name), Some(Token::Plus | Token::Minus)) => {
            Ok(Operand::NameOffset(name, cursor.offset()?))
        }
        (first, _) => Ok(first),
    }
}

fn number(cursor: &mut Cursor<'_>) -> Result<Operand, ParseError> {
    let mut negative = false;
    while cursor.take(Token::Minus) {
        negative = !negative;
    }
    let text = cursor.peek_text();
    let value = match cursor.peek() {
        Some(Token::Integer) => {
            let value = i128::from(cursor.unsigned()?);
            return Ok(Operand::Int(if negative { -value } else { value }));
        }
        Some(Token::HexFloat) => {
            let bits = u32::from_str_radix(&text[2..], 16).unwrap_or(0);
            Operand::F32(bits ^ (u32::from(negative) << 31))
        }
        Some(Token::HexDouble) => {
            let bits = u64::from_str_radix(&text[2..], 16).unwrap_or(0);
            Operand::F64(bits ^ (u64::from(negative) << 63))
        }
        Some(Token::Decimal | Token::DotWord) => {
            Operand::F64(cursor.decimal_bits(text)? ^ (u64::from(negative) << 63))
        }
        _ => return cursor.expected("an operand"),
    };
    cursor.advance();
    Ok(value)
}

/// `[base + offset]`, `[0x100]`, `[map, {%r1, %r2}]`
fn address(cursor: &mut Cursor<'_>, depth: u32) -> Result<Operand, ParseError> {
    cursor.advance();
    let base = match cursor.peek() {
        Some(Token::Word) => single_name(cursor)?,
        Some(Token::Integer | Token::Minus) => Operand::Int(cursor.signed()?),
        _ => return cursor.expected("a register, a variable or a number"),
    };
    let offset = cursor.offset()?;
    let mut coordinates = Vec::new();
    while cursor.take(Token::Comma) {
        match operand(cursor, depth + 1)? {
            Operand::Vector(items) => coordinates.extend(items),
            single => coordinates.push(single),
        }
    }
    cursor.expect(Token::CloseBracket)?;
    Ok(Operand::Address {
        base: Box::new(base),
        offset,
        coordinates,
    })
}
