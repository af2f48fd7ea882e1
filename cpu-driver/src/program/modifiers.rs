//! The modifiers of an instruction, taken one by one; what nobody takes is an
//! unknown form.

use super::lower::{Refusal, refuse};
use crate::ptx::ast::{Instruction, ScalarType};

pub struct Modifiers<'i> {
    rest: Vec<&'i str>,
}

impl<'i> Modifiers<'i> {
    pub fn of(instruction: &'i Instruction) -> Self {
        Self {
            rest: instruction.modifiers.iter().map(String::as_str).collect(),
        }
    }

    /// Takes a modifier if it is there.
    pub fn take(&mut self, name: &str) -> bool {
        match self.rest.iter().position(|m| *m == name) {
            Some(at) => {
                self.rest.remove(at);
                true
            }
            None => false,
        }
    }

    /// Takes whichever of the names is there; gives its index.
    pub fn take_any(&mut self, names: &[&str]) -> Option<usize> {
        let at = self.rest.iter().position(|m| names.contains(m))?;
        let found = self.rest.remove(at);
        names.iter().position(|name| *name == found)
    }

    /// Takes every modifier that starts so.
    pub fn drop_prefix(&mut self, prefix: &str) {
        self.rest.retain(|m| !m.starts_with(prefix));
    }

    /// Takes the first type.
    pub fn take_type(&mut self) -> Option<ScalarType> {
        let at = self.rest.iter().position(|m| scalar_type(m).is_some())?;
        scalar_type(self.rest.remove(at))
    }

    pub fn need_type(&mut self) -> Result<ScalarType, Refusal> {
        match self.take_type() {
            Some(ty) => Ok(ty),
            None => refuse("expected a type, found none"),
        }
    }

    /// Everything must have been taken.
    pub fn finish(self) -> Result<(), Refusal> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            refuse(format!("unknown modifier .{}", self.rest.join(".")))
        }
    }
}

pub fn scalar_type(word: &str) -> Option<ScalarType> {
    use ScalarType as T;
    Some(match word {
        "b8" => T::B8,
        "b16" => T::B16,
        "b32" => T::B32,
        "b64" => T::B64,
        "b128" => T::B128,
        "u8" => T::U8,
        "u16" => T::U16,
        "u32" => T::U32,
        "u64" => T::U64,
        "s8" => T::S8,
        "s16" => T::S16,
        "s32" => T::S32,
        "s64" => T::S64,
        "f16" => T::F16,
        "f16x2" => T::F16x2,
        "bf16" => T::BF16,
        "bf16x2" => T::BF16x2,
        "tf32" => T::TF32,
        "f32" => T::F32,
        "f64" => T::F64,
        "e4m3" => T::E4M3,
        "e5m2" => T::E5M2,
        "e4m3x2" => T::E4M3x2,
        "e5m2x2" => T::E5M2x2,
        "e2m1x2" => T::E2M1x2,
        "pred" => T::Pred,
        _ => return None,
    })
}

/// Bytes of one value.
pub fn bytes_of(ty: ScalarType) -> u32 {
    use ScalarType as T;
    match ty {
        T::B8 | T::U8 | T::S8 | T::E4M3 | T::E5M2 | T::E2M1x2 => 1,
        T::B16 | T::U16 | T::S16 | T::F16 | T::BF16 | T::E4M3x2 | T::E5M2x2 => 2,
        T::B64 | T::U64 | T::S64 | T::F64 => 8,
        T::B128 => 16,
        _ => 4,
    }
}

pub fn is_signed(ty: ScalarType) -> bool {
    use ScalarType as T;
    matches!(ty, T::S8 | T::S16 | T::S32 | T::S64)
}
