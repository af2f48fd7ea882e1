//! Element types of the matrices that tensor cores multiply.

use super::formats::{self, Format};
use crate::program::code::Class;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    F16,
    BF16,
    TF32,
    F32,
    F64,
    E4M3,
    E5M2,
    S8,
    U8,
    S4,
    U4,
    B1,
}

impl Element {
    pub fn bits(self) -> u32 {
        match self {
            Element::F16 | Element::BF16 => 16,
            Element::TF32 | Element::F32 => 32,
            Element::F64 => 64,
            Element::E4M3 | Element::E5M2 | Element::S8 | Element::U8 => 8,
            Element::S4 | Element::U4 => 4,
            Element::B1 => 1,
        }
    }

    pub fn class(self) -> Class {
        if self == Element::F64 {
            Class::Long
        } else {
            Class::Word
        }
    }

    pub fn per_register(self) -> usize {
        (32 / self.bits()).max(1) as usize
    }

    pub fn format(self) -> Format {
        match self {
            Element::BF16 => formats::BF16,
            Element::TF32 => formats::TF32,
            Element::F32 => formats::F32,
            // FP8 operands are widened first.
            _ => formats::F16,
        }
    }

    pub fn integer(self, bits: u64) -> i64 {
        match self {
            Element::S8 => i64::from(bits as i8),
            Element::S4 => (bits as i64) << 60 >> 60,
            _ => bits as i64,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Float,
    Double,
    Integer,
    XorCount,
    AndCount,
}
