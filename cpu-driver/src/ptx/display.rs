//! How messages show pieces of the syntax tree: as they stand in the text.

use std::fmt;

use super::ast::{Instruction, Operand, ScalarType, StateSpace};

impl fmt::Display for ScalarType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use ScalarType as T;
        f.write_str(match self {
            T::B8 => ".b8",
            T::B16 => ".b16",
            T::B32 => ".b32",
            T::B64 => ".b64",
            T::B128 => ".b128",
            T::U8 => ".u8",
            T::U16 => ".u16",
            T::U32 => ".u32",
            T::U64 => ".u64",
            T::S8 => ".s8",
            T::S16 => ".s16",
            T::S32 => ".s32",
            T::S64 => ".s64",
            T::F16 => ".f16",
            T::F16x2 => ".f16x2",
            T::BF16 => ".bf16",
            T::BF16x2 => ".bf16x2",
            T::TF32 => ".tf32",
            T::F32 => ".f32",
            T::F64 => ".f64",
            T::E4M3 => ".e4m3",
            T::E5M2 => ".e5m2",
            T::E4M3x2 => ".e4m3x2",
            T::E5M2x2 => ".e5m2x2",
            T::E2M1x2 => ".e2m1x2",
            T::Pred => ".pred",
        })
    }
}

impl fmt::Display for StateSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StateSpace::Register => ".reg",
            StateSpace::Global => ".global",
            StateSpace::Const => ".const",
            StateSpace::Shared => ".shared",
            StateSpace::Local => ".local",
            StateSpace::Param => ".param",
        })
    }
}

/// The opcode with its modifiers.
impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.opcode)?;
        self.modifiers
            .iter()
            .try_for_each(|word| write!(f, ".{word}"))
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Name(name) => f.write_str(name),
            Operand::Not(name) => write!(f, "!{name}"),
            Operand::NameOffset(name, offset) => write!(f, "{name}{offset:+}"),
            Operand::Int(value) => write!(f, "{value}"),
            Operand::F32(bits) => write!(f, "0f{bits:08X}"),
            Operand::F64(bits) => write!(f, "0d{bits:016X}"),
            Operand::Vector(items) => list(f, '{', items, '}'),
            Operand::List(items) => list(f, '(', items, ')'),
            Operand::Address {
                base,
                offset,
                coordinates,
            } => {
                write!(f, "[{base}")?;
                if *offset != 0 {
                    write!(f, "{offset:+}")?;
                }
                if !coordinates.is_empty() {
                    f.write_str(", ")?;
                    list(f, '{', coordinates, '}')?;
                }
                f.write_str("]")
            }
            Operand::Pair(first, second) => write!(f, "{first}|{second}"),
            Operand::Sink => f.write_str("_"),
        }
    }
}

fn list(f: &mut fmt::Formatter<'_>, open: char, items: &[Operand], close: char) -> fmt::Result {
    write!(f, "{open}")?;
    for (at, item) in items.iter().enumerate() {
        let comma = if at == 0 { "" } else { ", " };
        write!(f, "{comma}{item}")?;
    }
    write!(f, "{close}")
}
