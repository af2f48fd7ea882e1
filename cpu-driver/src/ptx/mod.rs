//! PTX text to a syntax tree.
//!
//! Lenient in what it keeps (unknown instructions, directives and modifiers
//! survive as text and fail only when a launched kernel reaches them), strict
//! in what it rejects (a malformed module is an error with line and column).
//! [`parse`] knows the grammar, [`check`] the names and types.
//!
//! A logos lexer feeds a recursive-descent parser with two tokens of look-ahead.
//! Nesting is bounded ([`MAX_DEPTH`]), so no input can exhaust the stack.

pub mod ast;
pub mod check;

mod body;
mod cursor;
mod display;
mod lexer;
mod module;
mod operand;
mod variable;

#[cfg(test)]
mod tests;

/// Deepest nesting of blocks or of initialiser braces.
pub const MAX_DEPTH: u32 = 64;

/// Why a text is not a PTX module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// From 1.
    pub line: u32,
    /// In characters, from 1.
    pub column: u32,
    pub message: String,
    pub kind: ErrorKind,
}

/// What sort of mistake it is: callers answer with different codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The text departs from the grammar.
    Syntax,
    /// `.version` names an ISA that there never was.
    Version,
}

impl std::fmt::Display for ParseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "line {}, column {}: {}",
            self.line, self.column, self.message
        )
    }
}

impl std::error::Error for ParseError {}

/// Parses one PTX module.
///
/// # Errors
/// The first place where the text departs from PTX's grammar. Unknown opcodes,
/// modifiers and function directives are kept, not refused.
pub fn parse(text: &str) -> Result<ast::Module, ParseError> {
    module::parse(cursor::Cursor::new(text))
}
