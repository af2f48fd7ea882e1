//! The inputs, outputs and scratch registers of a form.
//!
//! One line of text, the same in the table and in the header of a form's file:
//! `a:f32 b:f32/angle -> d:f32 | p:pred`. An operand is `name:type`, an input
//! may add `/set`, the pool its values are drawn from (see [`super::inputs`]).
//! What follows `|` are scratch registers; the runner ignores them.

use anyhow::{Context, Result, bail};

/// Bytes between two operands of a case in the input and output buffers.
pub const SLOT: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operand {
    pub name: String,
    pub ty: Type,
    /// Pool of input values; empty for the type's own edge values.
    pub set: String,
}

/// Element types as the PTX text spells them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    Pred,
    /// Integers and untyped bits: width, and whether negative values are edges.
    Int {
        bits: u32,
        signed: bool,
        untyped: bool,
    },
    F16,
    F16x2,
    BF16,
    BF16x2,
    F32,
    F64,
    /// Two 8-bit floats in 16 bits.
    E4M3x2,
    E5M2x2,
    /// Four 8-bit floats in 32 bits.
    E4M3x4,
    E5M2x4,
}

impl Type {
    /// # Errors
    /// A name that is no type of the table.
    pub fn parse(text: &str) -> Result<Type> {
        let int = |signed, untyped| -> Result<Type> {
            let bits = text[1..].parse().context("integer width")?;
            if !matches!(bits, 8 | 16 | 32 | 64) {
                bail!("integer width {bits}: expected 8, 16, 32 or 64");
            }
            Ok(Type::Int {
                bits,
                signed,
                untyped,
            })
        };
        Ok(match text {
            "pred" => Type::Pred,
            "f16" => Type::F16,
            "f16x2" => Type::F16x2,
            "bf16" => Type::BF16,
            "bf16x2" => Type::BF16x2,
            "f32" => Type::F32,
            "f64" => Type::F64,
            "e4m3x2" => Type::E4M3x2,
            "e5m2x2" => Type::E5M2x2,
            "e4m3x4" => Type::E4M3x4,
            "e5m2x4" => Type::E5M2x4,
            _ if text.starts_with('u') => int(false, false)?,
            _ if text.starts_with('s') => int(true, false)?,
            _ if text.starts_with('b') => int(false, true)?,
            _ => bail!("unknown operand type `{text}`"),
        })
    }

    /// Bytes a value takes in a register and in a recording.
    pub fn bytes(self) -> usize {
        match self {
            Type::Pred => 0,
            Type::Int { bits, .. } => bits as usize / 8,
            Type::F16 | Type::BF16 | Type::E4M3x2 | Type::E5M2x2 => 2,
            Type::F16x2 | Type::BF16x2 | Type::F32 | Type::E4M3x4 | Type::E5M2x4 => 4,
            Type::F64 => 8,
        }
    }

    /// The type of the register that holds it.
    pub fn register(self) -> &'static str {
        match self {
            Type::Pred => "pred",
            Type::F32 => "f32",
            Type::F64 => "f64",
            _ => match self.bytes() {
                1 | 2 => "b16",
                4 => "b32",
                _ => "b64",
            },
        }
    }

    /// The type of the `ld` or `st` that moves it between memory and register.
    pub fn memory(self) -> &'static str {
        match self {
            Type::Int {
                bits: 8,
                signed: true,
                ..
            } => "s8",
            Type::Int { bits: 8, .. } => "u8",
            _ => self.register(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Signature {
    pub inputs: Vec<Operand>,
    pub outputs: Vec<Operand>,
    pub scratch: Vec<Operand>,
}

impl Signature {
    /// # Errors
    /// A missing arrow, an operand without a type, no output at all.
    pub fn parse(text: &str) -> Result<Signature> {
        let (inputs, rest) = text
            .split_once("->")
            .with_context(|| format!("no `->` in signature `{text}`"))?;
        let (outputs, scratch) = rest.split_once('|').unwrap_or((rest, ""));
        let signature = Signature {
            inputs: operands(inputs)?,
            outputs: operands(outputs)?,
            scratch: operands(scratch)?,
        };
        if signature.outputs.is_empty() {
            bail!("signature `{text}` has no output: nothing could be compared");
        }
        Ok(signature)
    }

    /// Bytes of one case in a recording: its outputs without padding.
    pub fn packed_bytes(&self) -> usize {
        self.outputs.iter().map(|o| o.ty.bytes()).sum()
    }
}

fn operands(text: &str) -> Result<Vec<Operand>> {
    text.split_whitespace().map(operand).collect()
}

fn operand(text: &str) -> Result<Operand> {
    let (name, ty) = text
        .split_once(':')
        .with_context(|| format!("operand `{text}`: expected name:type"))?;
    let (ty, set) = ty.split_once('/').unwrap_or((ty, ""));
    Ok(Operand {
        name: name.to_owned(),
        ty: Type::parse(ty).with_context(|| format!("operand `{text}`"))?,
        set: set.to_owned(),
    })
}
