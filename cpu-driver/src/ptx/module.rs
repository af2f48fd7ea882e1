//! The top level of a module: header directives, functions, sections.

use super::ast::{
    Directive, Function, FunctionKind, Linkage, Module, SourceFile, Statement, Target, Variable,
};
use super::body::block;
use super::cursor::Cursor;
use super::lexer::Token;
use super::variable::{declaration, linkage, parameters};
use super::{ErrorKind, ParseError};

pub fn parse(mut cursor: Cursor<'_>) -> Result<Module, ParseError> {
    let mut module = Module {
        address_size: 64,
        ..Module::default()
    };
    if cursor.peek_text() != ".version" {
        return cursor.expected("a PTX module, which starts with `.version`");
    }
    while !cursor.at_end() {
        top_level(&mut cursor, &mut module)?;
    }
    if module.target.sm == 0 {
        return cursor.error("the module has no `.target`");
    }
    name_offset_strings(&mut module);
    Ok(module)
}

fn top_level(cursor: &mut Cursor<'_>, module: &mut Module) -> Result<(), ParseError> {
    match cursor.peek_text() {
        ".version" => {
            cursor.advance();
            module.version = version(cursor)?;
        }
        ".target" => {
            cursor.advance();
            module.target = target(cursor)?;
        }
        ".address_size" => {
            cursor.advance();
            if cursor.peek_text() == "32" {
                return cursor.error("32-bit addresses are not supported; compile with -m64");
            }
            module.address_size = cursor.unsigned32()?;
        }
        ".file" => module.files.push(file(cursor)?),
        ".section" => section(cursor, &mut module.debug_strings)?,
        ".pragma" => {
            super::body::pragma(cursor)?;
        }
        ".alias" => {
            cursor.advance();
            let new = cursor.name()?;
            cursor.expect(Token::Comma)?;
            module.aliases.push((new, cursor.name()?));
            cursor.expect(Token::Semicolon)?;
        }
        ";" => {
            cursor.advance();
        }
        _ => {
            let linkage = linkage(cursor);
            match cursor.peek_text() {
                ".entry" => function(cursor, linkage, FunctionKind::Entry, module)?,
                ".func" => function(cursor, linkage, FunctionKind::Device, module)?,
                _ => declaration(cursor, linkage, &mut module.variables)?,
            }
        }
    }
    Ok(())
}

fn version(cursor: &mut Cursor<'_>) -> Result<(u32, u32), ParseError> {
    let text = cursor.peek_text();
    let parts = text
        .split_once('.')
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    match parts {
        Some(version) if known_version(version) => {
            cursor.advance();
            Ok(version)
        }
        Some(_) => cursor
            .expected(&format!(
                "a PTX ISA version there is, up to {}.x",
                NEWEST_MAJOR
            ))
            .map_err(|error| ParseError {
                kind: ErrorKind::Version,
                ..error
            }),
        None => cursor.expected("a version like `8.0`"),
    }
}

/// The newest major version of the PTX ISA. Its minor versions are all taken:
/// a toolkit brings a new one every few months, and what it adds fails by name
/// when a kernel reaches it.
const NEWEST_MAJOR: u32 = 9;

/// Last minor version of each major one, from 1.0 on (PTX ISA, release notes).
const LAST_MINOR: [u32; NEWEST_MAJOR as usize - 1] = [5, 3, 2, 3, 0, 5, 8, 8];

fn known_version((major, minor): (u32, u32)) -> bool {
    match major {
        0 => false,
        NEWEST_MAJOR => minor <= 9,
        _ => LAST_MINOR
            .get(major as usize - 1)
            .is_some_and(|&last| minor <= last),
    }
}

/// Architectures that `.target` may name (PTX ISA 9.0). Later ones get past
/// here, for the device profile to refuse.
const ARCHITECTURES: [u32; 25] = [
    10, 11, 12, 13, 20, 21, 30, 32, 35, 37, 50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 88, 89,
    90,
];

fn target(cursor: &mut Cursor<'_>) -> Result<Target, ParseError> {
    let text = cursor.peek_text();
    let Some((sm, suffix)) = text.strip_prefix("sm_").and_then(split_target) else {
        return cursor.expected("a target there is, like `sm_75`");
    };
    cursor.advance();
    let mut options = Vec::new();
    while cursor.take(Token::Comma) {
        options.push(cursor.name()?);
    }
    Ok(Target {
        sm,
        suffix,
        options,
    })
}

fn split_target(digits: &str) -> Option<(u32, Option<char>)> {
    let (digits, suffix) = match digits.chars().last()? {
        suffix @ ('a' | 'f') => (&digits[..digits.len() - 1], Some(suffix)),
        _ => (digits, None),
    };
    let sm = digits
        .parse()
        .ok()
        .filter(|&sm| sm >= 100 || ARCHITECTURES.contains(&sm))?;
    Some((sm, suffix))
}

/// `.file 1 "path"`, with an optional time stamp and size.
pub fn file(cursor: &mut Cursor<'_>) -> Result<SourceFile, ParseError> {
    cursor.advance();
    let index = cursor.unsigned32()?;
    let path = cursor.quoted()?;
    while cursor.take(Token::Comma) {
        cursor.unsigned()?;
    }
    Ok(SourceFile { index, path })
}

/// `.section .debug_str { label: .b8 …  }`. Other sections hold DWARF, which
/// nothing here reads; they are skipped.
pub fn section(
    cursor: &mut Cursor<'_>,
    strings: &mut Vec<(String, String)>,
) -> Result<(), ParseError> {
    cursor.advance();
    let keep = cursor.expect(Token::DotWord)? == ".debug_str";
    cursor.expect(Token::OpenBrace)?;
    let mut label: Option<String> = None;
    let mut bytes: Vec<u8> = Vec::new();
    loop {
        match cursor.peek() {
            Some(Token::CloseBrace) => break,
            Some(Token::OpenBrace) | None => return cursor.expected("`}` at the section's end"),
            Some(Token::Word) if cursor.peek_second() == Some(Token::Colon) => {
                close_string(&mut label, &mut bytes, strings);
                label = keep.then(|| cursor.peek_text().to_owned());
                cursor.advance();
                cursor.advance();
            }
            Some(Token::Integer) if keep => bytes.push(cursor.unsigned()? as u8),
            Some(_) => {
                cursor.advance();
            }
        }
    }
    close_string(&mut label, &mut bytes, strings);
    cursor.expect(Token::CloseBrace)?;
    Ok(())
}

fn close_string(
    label: &mut Option<String>,
    bytes: &mut Vec<u8>,
    strings: &mut Vec<(String, String)>,
) {
    let text = std::mem::take(bytes);
    if let Some(label) = label.take() {
        // The terminating zero goes; inner zeros stay for `label+offset`.
        let text = text.strip_suffix(&[0]).unwrap_or(&text);
        strings.push((label, String::from_utf8_lossy(text).into_owned()));
    }
}

/// `.loc` may name `label+8`: gives each such name an entry of its own, and
/// cuts every other one at its first zero.
fn name_offset_strings(module: &mut Module) {
    let mut wanted = Vec::new();
    for function in &module.functions {
        collect_offset_names(function.body.as_deref().unwrap_or(&[]), &mut wanted);
    }
    wanted.sort();
    wanted.dedup();
    let mut extra = Vec::new();
    for name in wanted {
        let Some((label, offset)) = name.rsplit_once('+') else {
            continue;
        };
        let whole = module.debug_strings.iter().find(|(key, _)| key == label);
        let tail = whole.and_then(|(_, text)| text.get(offset.parse().unwrap_or(usize::MAX)..));
        if let Some(tail) = tail {
            extra.push((name.clone(), tail.to_owned()));
        }
    }
    module.debug_strings.append(&mut extra);
    for (_, text) in &mut module.debug_strings {
        if let Some(end) = text.find('\0') {
            text.truncate(end);
        }
    }
}

fn collect_offset_names(body: &[Statement], wanted: &mut Vec<String>) {
    for statement in body {
        match statement {
            Statement::Loc(loc) => {
                wanted.extend(loc.function.iter().filter(|n| n.contains('+')).cloned())
            }
            Statement::Block(inner) => collect_offset_names(inner, wanted),
            _ => {}
        }
    }
}

fn function(
    cursor: &mut Cursor<'_>,
    linkage: Linkage,
    kind: FunctionKind,
    module: &mut Module,
) -> Result<(), ParseError> {
    let line = cursor.line();
    cursor.advance();
    let mut directives = Vec::new();
    if cursor.take_text(".attribute") {
        directives.push(attribute(cursor)?);
    }
    let returns = optional_parameters(cursor)?;
    let name = cursor.name()?;
    let params = optional_parameters(cursor)?;
    while cursor.peek() == Some(Token::DotWord) {
        directives.push(directive(cursor)?);
    }
    let body = match cursor.peek() {
        Some(Token::OpenBrace) => Some(block(cursor, module, 0)?),
        Some(Token::Semicolon) => {
            cursor.advance();
            None
        }
        _ => return cursor.expected("`{` or `;` after the function's head"),
    };
    module.functions.push(Function {
        kind,
        linkage,
        name,
        returns,
        params,
        directives,
        body,
        line,
    });
    Ok(())
}

fn optional_parameters(cursor: &mut Cursor<'_>) -> Result<Vec<Variable>, ParseError> {
    match cursor.peek() {
        Some(Token::OpenParen) => parameters(cursor),
        _ => Ok(Vec::new()),
    }
}

/// `.attribute(.unified(19, 95))`: kept by name and numbers.
fn attribute(cursor: &mut Cursor<'_>) -> Result<Directive, ParseError> {
    cursor.expect(Token::OpenParen)?;
    let mut found = Directive {
        name: "attribute".to_owned(),
        values: Vec::new(),
    };
    let mut depth = 1;
    while depth > 0 {
        match cursor.peek() {
            Some(Token::OpenParen) => depth += 1,
            Some(Token::CloseParen) => depth -= 1,
            Some(Token::Integer) => {
                found.values.push(cursor.unsigned()? as i64);
                continue;
            }
            Some(Token::Comma | Token::DotWord) => {}
            _ => return cursor.expected("`)` at the attribute's end"),
        }
        cursor.advance();
    }
    Ok(found)
}

/// `.maxntid 256, 1, 1`, `.noreturn`, `.pragma "…";`
fn directive(cursor: &mut Cursor<'_>) -> Result<Directive, ParseError> {
    if cursor.peek_text() == ".pragma" {
        super::body::pragma(cursor)?;
        return Ok(Directive {
            name: "pragma".to_owned(),
            values: Vec::new(),
        });
    }
    let name = cursor.expect(Token::DotWord)?[1..].to_owned();
    let mut values = Vec::new();
    if matches!(cursor.peek(), Some(Token::Integer | Token::Minus)) {
        values.push(cursor.signed()? as i64);
        while cursor.take(Token::Comma) {
            values.push(cursor.signed()? as i64);
        }
    }
    Ok(Directive { name, values })
}
