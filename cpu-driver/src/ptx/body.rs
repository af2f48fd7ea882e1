//! Function bodies: blocks, labels, `.loc`, tables and instructions.

use super::ast::{Guard, Instruction, Linkage, Loc, Module, Statement};
use super::cursor::Cursor;
use super::lexer::Token;
use super::operand::operand;
use super::variable::{declaration, linkage, parameters, space_of};
use super::{MAX_DEPTH, ParseError};

/// `{ … }`. `module` takes the `.file` entries that may stand inside.
pub fn block(
    cursor: &mut Cursor<'_>,
    module: &mut Module,
    depth: u32,
) -> Result<Vec<Statement>, ParseError> {
    if depth > MAX_DEPTH {
        return cursor.error("blocks nest too deeply");
    }
    cursor.expect(Token::OpenBrace)?;
    let mut body = Vec::new();
    loop {
        match cursor.peek() {
            Some(Token::CloseBrace) => {
                cursor.advance();
                return Ok(body);
            }
            // Inline assembly leaves empty statements behind.
            Some(Token::Semicolon) => {
                cursor.advance();
            }
            Some(Token::OpenBrace) => {
                body.push(Statement::Block(block(cursor, module, depth + 1)?));
            }
            Some(Token::DotWord) => directive(cursor, module, &mut body)?,
            Some(Token::Word) if cursor.peek_second() == Some(Token::Colon) => {
                labelled(cursor, &mut body)?;
            }
            Some(Token::Word | Token::At) => {
                body.push(Statement::Instruction(instruction(cursor)?));
            }
            _ => return cursor.expected("an instruction, a directive or `}`"),
        }
    }
}

fn directive(
    cursor: &mut Cursor<'_>,
    module: &mut Module,
    body: &mut Vec<Statement>,
) -> Result<(), ParseError> {
    match cursor.peek_text() {
        ".loc" => body.push(Statement::Loc(loc(cursor)?)),
        ".pragma" => {
            let texts = pragma(cursor)?;
            body.extend(texts.into_iter().map(Statement::Pragma));
        }
        ".file" => module.files.push(super::module::file(cursor)?),
        ".section" => super::module::section(cursor, &mut module.debug_strings)?,
        _ => {
            let linkage = match linkage(cursor) {
                found if space_of(cursor.peek_text()).is_some() => found,
                Linkage::Internal => {
                    return cursor.expected("a directive that belongs in a function's body");
                }
                _ => return cursor.expected("a state space after the linkage"),
            };
            let mut variables = Vec::new();
            declaration(cursor, linkage, &mut variables)?;
            body.extend(variables.into_iter().map(Statement::Variable));
        }
    }
    Ok(())
}

/// `.pragma "nounroll", "…";`
pub fn pragma(cursor: &mut Cursor<'_>) -> Result<Vec<String>, ParseError> {
    cursor.advance();
    let mut texts = vec![cursor.quoted()?];
    while cursor.take(Token::Comma) {
        texts.push(cursor.quoted()?);
    }
    cursor.expect(Token::Semicolon)?;
    Ok(texts)
}

/// `.loc 1 42 9, function_name $L__info_string0+8, inlined_at 1 50 3`
fn loc(cursor: &mut Cursor<'_>) -> Result<Loc, ParseError> {
    cursor.advance();
    let mut found = Loc {
        file: cursor.unsigned32()?,
        line: cursor.unsigned32()?,
        column: cursor.unsigned32()?,
        function: None,
        inlined_at: None,
    };
    while cursor.take(Token::Comma) {
        if cursor.take_text("function_name") {
            let label = cursor.name()?;
            found.function = Some(match cursor.offset()? {
                0 => label,
                offset => format!("{label}+{offset}"),
            });
        } else if cursor.take_text("inlined_at") {
            found.inlined_at = Some((
                cursor.unsigned32()?,
                cursor.unsigned32()?,
                cursor.unsigned32()?,
            ));
        } else {
            return cursor.expected("`function_name` or `inlined_at`");
        }
    }
    Ok(found)
}

/// A label, or a table or prototype that bears its name.
fn labelled(cursor: &mut Cursor<'_>, body: &mut Vec<Statement>) -> Result<(), ParseError> {
    let line = cursor.line();
    let name = cursor.name()?;
    cursor.expect(Token::Colon)?;
    body.push(match cursor.peek_text() {
        ".branchtargets" => Statement::BranchTargets {
            name,
            labels: name_list(cursor)?,
            line,
        },
        ".calltargets" => Statement::CallTargets {
            name,
            functions: name_list(cursor)?,
            line,
        },
        ".callprototype" => call_prototype(cursor, name, line)?,
        _ => Statement::Label { name, line },
    });
    Ok(())
}

fn name_list(cursor: &mut Cursor<'_>) -> Result<Vec<String>, ParseError> {
    cursor.advance();
    let mut names = vec![cursor.name()?];
    while cursor.take(Token::Comma) {
        names.push(cursor.name()?);
    }
    cursor.expect(Token::Semicolon)?;
    Ok(names)
}

/// `.callprototype (.param .b32 _) _ (.param .b32 _) .noreturn;`
fn call_prototype(
    cursor: &mut Cursor<'_>,
    name: String,
    line: u32,
) -> Result<Statement, ParseError> {
    cursor.advance();
    let mut returns = Vec::new();
    if cursor.peek() == Some(Token::OpenParen) {
        returns = parameters(cursor)?;
    }
    cursor.expect(Token::Word)?;
    let mut params = Vec::new();
    if cursor.peek() == Some(Token::OpenParen) {
        params = parameters(cursor)?;
    }
    while matches!(cursor.peek(), Some(Token::DotWord | Token::Integer)) {
        cursor.advance();
    }
    cursor.expect(Token::Semicolon)?;
    Ok(Statement::CallPrototype {
        name,
        returns,
        params,
        line,
    })
}

fn instruction(cursor: &mut Cursor<'_>) -> Result<Instruction, ParseError> {
    let line = cursor.line();
    let mut guard = None;
    if cursor.take(Token::At) {
        let negated = cursor.take(Token::Not);
        guard = Some(Guard {
            register: cursor.name()?,
            negated,
        });
    }
    if !cursor
        .peek_text()
        .starts_with(|c: char| c.is_ascii_alphabetic())
    {
        return cursor.expected("an instruction");
    }
    let opcode = cursor.name()?;
    let mut modifiers = Vec::new();
    while cursor.peek() == Some(Token::DotWord) {
        modifiers.push(cursor.expect(Token::DotWord)?[1..].to_owned());
    }
    let mut operands = Vec::new();
    if cursor.peek() != Some(Token::Semicolon) {
        operands.push(operand(cursor, 0)?);
        while cursor.take(Token::Comma) {
            operands.push(operand(cursor, 0)?);
        }
    }
    cursor.expect(Token::Semicolon)?;
    Ok(Instruction {
        guard,
        opcode,
        modifiers,
        operands,
        line,
    })
}
