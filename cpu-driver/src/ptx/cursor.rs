//! A token stream with two tokens of look-ahead, and the small parsers that
//! every level of the grammar uses.

use logos::{Lexer, Logos};

use super::lexer::Token;
use super::{ErrorKind, ParseError};

/// A token with its text and place.
#[derive(Debug, Clone, Copy)]
pub struct Lexeme<'a> {
    pub token: Token,
    pub text: &'a str,
    pub line: u32,
    start: usize,
}

pub struct Cursor<'a> {
    source: &'a str,
    lexer: Lexer<'a, Token>,
    /// Up to two tokens read but not taken.
    ahead: [Option<Lexeme<'a>>; 2],
    /// Line of byte `counted` of the source.
    line: u32,
    counted: usize,
    /// The first thing that is no token; every later read reports it.
    broken: Option<ParseError>,
}

impl<'a> Cursor<'a> {
    pub fn new(source: &'a str) -> Self {
        let mut cursor = Cursor {
            source,
            lexer: Token::lexer(source),
            ahead: [None; 2],
            line: 1,
            counted: 0,
            broken: None,
        };
        cursor.ahead = [cursor.lex(), cursor.lex()];
        cursor
    }

    fn lex(&mut self) -> Option<Lexeme<'a>> {
        if self.broken.is_some() {
            return None;
        }
        let read = self.lexer.next()?;
        let start = self.lexer.span().start;
        let newlines = self.source.as_bytes()[self.counted..start]
            .iter()
            .filter(|&&b| b == b'\n')
            .count();
        self.line = self.line.saturating_add(newlines as u32);
        self.counted = start;
        match read {
            Ok(token) => Some(Lexeme {
                token,
                text: self.lexer.slice(),
                line: self.line,
                start,
            }),
            Err(()) => {
                let found: String = self.source[start..].chars().take(12).collect();
                self.broken = Some(self.error_at(start, self.line, unreadable(&found)));
                None
            }
        }
    }

    fn error_at(&self, start: usize, line: u32, message: String) -> ParseError {
        let line_start = self.source[..start].rfind('\n').map_or(0, |at| at + 1);
        ParseError {
            line,
            column: self.source[line_start..start].chars().count() as u32 + 1,
            message,
            kind: ErrorKind::Syntax,
        }
    }

    /// An error at the next token, or at the end of the text.
    pub fn error<T>(&self, message: impl Into<String>) -> Result<T, ParseError> {
        let message = message.into();
        Err(match (&self.ahead[0], &self.broken) {
            (Some(next), _) => self.error_at(next.start, next.line, message),
            (None, Some(broken)) => broken.clone(),
            (None, None) => {
                let newlines = self.source.bytes().filter(|&b| b == b'\n').count() as u32;
                let message = format!("{message}; the text ends here (truncated module?)");
                self.error_at(self.source.len(), newlines + 1, message)
            }
        })
    }

    pub fn expected<T>(&self, what: &str) -> Result<T, ParseError> {
        match self.ahead[0] {
            Some(next) => {
                let found: String = next.text.chars().take(40).collect();
                self.error(format!("expected {what}, found `{found}`"))
            }
            None => self.error(format!("expected {what}")),
        }
    }

    pub fn peek(&self) -> Option<Token> {
        self.ahead[0].map(|next| next.token)
    }

    pub fn peek_second(&self) -> Option<Token> {
        self.ahead[1].map(|next| next.token)
    }

    pub fn peek_text(&self) -> &'a str {
        self.ahead[0].map_or("", |next| next.text)
    }

    pub fn line(&self) -> u32 {
        self.ahead[0].map_or(self.line, |next| next.line)
    }

    /// True at the end of a readable text.
    pub fn at_end(&self) -> bool {
        self.ahead[0].is_none() && self.broken.is_none()
    }

    pub fn advance(&mut self) -> Option<Lexeme<'a>> {
        let taken = self.ahead[0];
        self.ahead = [self.ahead[1], None];
        self.ahead[1] = self.lex();
        taken
    }

    /// Takes the next token if it is `token`.
    pub fn take(&mut self, token: Token) -> bool {
        let found = self.peek() == Some(token);
        if found {
            self.advance();
        }
        found
    }

    /// Takes the next token if it reads `text`.
    pub fn take_text(&mut self, text: &str) -> bool {
        let found = self.peek_text() == text;
        if found {
            self.advance();
        }
        found
    }

    pub fn expect(&mut self, token: Token) -> Result<&'a str, ParseError> {
        match self.ahead[0] {
            Some(next) if next.token == token => {
                self.advance();
                Ok(next.text)
            }
            _ => self.expected(token.describe()),
        }
    }

    pub fn name(&mut self) -> Result<String, ParseError> {
        Ok(self.expect(Token::Word)?.to_owned())
    }

    /// An integer without sign.
    pub fn unsigned(&mut self) -> Result<u64, ParseError> {
        if self.peek() != Some(Token::Integer) {
            return self.expected("an integer");
        }
        match parse_unsigned(self.peek_text()) {
            Some(value) => {
                self.advance();
                Ok(value)
            }
            None => self.error(format!(
                "`{}` is no 64-bit integer",
                self.peek_text().chars().take(40).collect::<String>()
            )),
        }
    }

    pub fn unsigned32(&mut self) -> Result<u32, ParseError> {
        let value = parse_unsigned(self.peek_text());
        if value.is_some_and(|value| u32::try_from(value).is_err()) {
            return self.error("this number does not fit 32 bits");
        }
        Ok(self.unsigned()? as u32)
    }

    /// An integer with any number of leading minus signs.
    pub fn signed(&mut self) -> Result<i128, ParseError> {
        let mut negative = false;
        while self.take(Token::Minus) {
            negative = !negative;
        }
        let value = i128::from(self.unsigned()?);
        Ok(if negative { -value } else { value })
    }

    /// `+ 8 - 4 …` after a symbol; 0 where there is none.
    pub fn offset(&mut self) -> Result<i64, ParseError> {
        let mut sum = 0_i64;
        loop {
            let term = match self.peek() {
                Some(Token::Plus) => {
                    self.advance();
                    self.signed()?
                }
                Some(Token::Minus) => self.signed()?,
                _ => return Ok(sum),
            };
            // Offsets wrap as the 64-bit addresses they are added to do.
            sum = sum.wrapping_add(term as i64);
        }
    }

    /// The text between the quotes, escapes left as they are.
    pub fn quoted(&mut self) -> Result<String, ParseError> {
        let text = self.expect(Token::Text)?;
        Ok(text[1..text.len() - 1].to_owned())
    }

    /// The bits of a decimal literal as f64.
    pub fn decimal_bits(&self, text: &str) -> Result<u64, ParseError> {
        match text.parse::<f64>() {
            Ok(value) => Ok(value.to_bits()),
            Err(_) => self.error(format!("`{text}` is no number")),
        }
    }
}

fn unreadable(found: &str) -> String {
    match found.as_bytes() {
        [b'/', b'*', ..] => "this comment never ends".to_owned(),
        [b'"', ..] => "this string never ends".to_owned(),
        _ => {
            let first: String = found.chars().take(1).collect();
            format!("`{}` does not belong in PTX", first.escape_debug())
        }
    }
}

/// Decimal, `0x`, `0b` and leading-zero octal, with an optional `U`.
pub fn parse_unsigned(text: &str) -> Option<u64> {
    let digits = text.strip_suffix('U').unwrap_or(text);
    let (digits, radix) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&digits[2..], 16),
        [b'0', b'b' | b'B', ..] => (&digits[2..], 2),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (digits, 10),
    };
    u64::from_str_radix(digits, radix).ok()
}
