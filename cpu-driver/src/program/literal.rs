//! Literals and register classes of types.

use super::code::{Class, Constant};
use super::modifiers::bytes_of;
use crate::ptx::ast::{Operand, ScalarType};

/// The constant that a literal means in an operand of this class.
pub fn literal(operand: &Operand, class: Class) -> Option<Constant> {
    match (operand, class) {
        (Operand::Int(value), Class::Word) => Some(Constant::Word(*value as u32)),
        (Operand::Int(value), Class::Long) => Some(Constant::Long(*value as u64)),
        (Operand::Int(value), Class::Quad) => Some(Constant::Quad(*value as u128)),
        (Operand::Int(value), Class::Predicate) => Some(Constant::Truth(*value != 0)),
        (Operand::F32(bits), Class::Word) => Some(Constant::Word(*bits)),
        (Operand::F32(bits), Class::Long) => {
            Some(Constant::Long(f64::from(f32::from_bits(*bits)).to_bits()))
        }
        (Operand::F64(bits), Class::Word) => {
            Some(Constant::Word((f64::from_bits(*bits) as f32).to_bits()))
        }
        (Operand::F64(bits), Class::Long) => Some(Constant::Long(*bits)),
        _ => None,
    }
}

/// Class of the registers of a type.
pub fn class_of(ty: ScalarType) -> Class {
    match ty {
        ScalarType::Pred => Class::Predicate,
        _ => match bytes_of(ty) {
            8 => Class::Long,
            16 => Class::Quad,
            _ => Class::Word,
        },
    }
}
