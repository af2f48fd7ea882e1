//! PTX text to a syntax tree.
//!
//! Lenient in what it keeps (unknown instructions, directives and modifiers
//! survive as text and fail only when a launched kernel reaches them), strict
//! in what it rejects (a malformed module is an error with line and column).

pub mod ast;
