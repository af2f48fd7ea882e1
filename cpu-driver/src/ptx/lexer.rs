//! The tokens of PTX.

use logos::Logos;

/// Tokens borrow their text through the lexer's slice.
#[derive(Logos, Debug, Clone, Copy, PartialEq, Eq)]
#[logos(skip r"[ \t\r\n\f\v]+")]
#[logos(skip(r"//[^\n]*", allow_greedy = true))]
#[logos(skip r"/\*(?:[^*]|\*+[^*/])*\*+/")]
pub enum Token {
    /// Identifiers and the sink `_`; `%` stands only in front.
    #[regex(r"[A-Za-z_$%][A-Za-z0-9_$]*")]
    Word,
    /// `.global`, `.v4`, `.shared::cta`, `.2d`; also a decimal like `.5`.
    #[regex(r"\.[A-Za-z0-9_]+(?:::[A-Za-z0-9_]+)*")]
    DotWord,
    #[regex(r"[0-9]+U?", priority = 3)]
    #[regex(r"0[xX][0-9a-fA-F]+U?")]
    #[regex(r"0[bB][01]+U?")]
    Integer,
    #[regex(r"0[fF][0-9a-fA-F]{8}")]
    HexFloat,
    #[regex(r"0[dD][0-9a-fA-F]{16}")]
    HexDouble,
    #[regex(r"[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?")]
    #[regex(r"[0-9]+[eE][+-]?[0-9]+")]
    Decimal,
    #[regex(r#""(?:[^"\\]|\\.)*""#)]
    Text,
    #[token("{")]
    OpenBrace,
    #[token("}")]
    CloseBrace,
    #[token("[")]
    OpenBracket,
    #[token("]")]
    CloseBracket,
    #[token("(")]
    OpenParen,
    #[token(")")]
    CloseParen,
    #[token("<")]
    Less,
    #[token(">")]
    Greater,
    #[token(",")]
    Comma,
    #[token(";")]
    Semicolon,
    #[token(":")]
    Colon,
    #[token("=")]
    Equals,
    #[token("+")]
    Plus,
    #[token("-")]
    Minus,
    #[token("|")]
    Pipe,
    #[token("!")]
    Not,
    #[token("@")]
    At,
}

impl Token {
    /// How a message names the token that was expected.
    pub fn describe(self) -> &'static str {
        match self {
            Token::Word => "a name",
            Token::DotWord => "a word that starts with a dot",
            Token::Integer => "an integer",
            Token::HexFloat | Token::HexDouble | Token::Decimal => "a number",
            Token::Text => "a quoted string",
            Token::OpenBrace => "`{`",
            Token::CloseBrace => "`}`",
            Token::OpenBracket => "`[`",
            Token::CloseBracket => "`]`",
            Token::OpenParen => "`(`",
            Token::CloseParen => "`)`",
            Token::Less => "`<`",
            Token::Greater => "`>`",
            Token::Comma => "`,`",
            Token::Semicolon => "`;`",
            Token::Colon => "`:`",
            Token::Equals => "`=`",
            Token::Plus => "`+`",
            Token::Minus => "`-`",
            Token::Pipe => "`|`",
            Token::Not => "`!`",
            Token::At => "`@`",
        }
    }
}
