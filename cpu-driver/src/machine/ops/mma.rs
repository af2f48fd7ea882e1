//! `mma.sync`: decoding and fragment layouts. The arithmetic is in
//! [`crate::machine::numerics::dot`].
//!
//! Layout of all shapes but the Volta ones (PTX manual, "Matrix fragments"):
//! lane = 4·group + t. With E elements a 32-bit register, register r of A
//! holds row `group + 8·(r mod 2)`, columns `E·t + 4·E·(r / 2)` on; register r
//! of B holds column `group`, rows `E·t + 4·E·r` on; D and C have columns
//! `2t, 2t+1` of rows `group` and `group + 8`. Matrices of 8 rows lack the
//! second row.

use super::warp::{ONE_PLACE, in_groups};
use super::{Family, no_lanes, written};
use crate::machine::context::Context;
use crate::machine::numerics::dot::{self, Element, Kind};
use crate::program::code::{Class, Constant, Op, Step};
use crate::program::lower::{Lowering, Refusal, refuse};
use crate::program::modifiers::Modifiers;
use crate::program::operation::{Operation, Value};
use crate::ptx::ast::{Instruction, Operand, ScalarType};

pub const FAMILY: Family = Family {
    decoders: &[("mma", mma)],
    lanes: no_lanes,
};

/// Shape and types of one `mma`.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub m: usize,
    pub k: usize,
    pub a: Element,
    pub b: Element,
    /// Type of accumulator and result.
    pub c: ScalarType,
    pub d: ScalarType,
    pub kind: Kind,
    pub saturate: bool,
    /// Registers of D, A, B, C.
    pub registers: [usize; 4],
}

const SHAPES: [(&str, usize, usize); 14] = [
    ("m8n8k4", 8, 4),
    ("m8n8k16", 8, 16),
    ("m8n8k32", 8, 32),
    ("m8n8k128", 8, 128),
    ("m16n8k4", 16, 4),
    ("m16n8k8", 16, 8),
    ("m16n8k16", 16, 16),
    ("m16n8k32", 16, 32),
    ("m16n8k64", 16, 64),
    ("m16n8k128", 16, 128),
    ("m16n8k256", 16, 256),
    ("m8n8k8", 8, 8),
    ("m8n8k64", 8, 64),
    ("m8n8k256", 8, 256),
];

const ELEMENTS: [(&str, Element); 12] = [
    ("f16", Element::F16),
    ("bf16", Element::BF16),
    ("tf32", Element::TF32),
    ("f64", Element::F64),
    ("e4m3", Element::E4M3),
    ("e5m2", Element::E5M2),
    ("s8", Element::S8),
    ("u8", Element::U8),
    ("s4", Element::S4),
    ("u4", Element::U4),
    ("b1", Element::B1),
    ("f32", Element::F32),
];

fn mma(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    let shape = shape(instruction)?;
    let [d, a, b, c] = instruction.operands.as_slice() else {
        return refuse("expected four fragments");
    };
    let fragments = [d, a, b, c].map(parts);
    let classes = [
        class_of(shape.d),
        shape.a.class(),
        shape.b.class(),
        class_of(shape.c),
    ];
    for (at, fragment) in fragments.iter().enumerate() {
        if fragment.len() != shape.registers[at] {
            return refuse(format!(
                "expected fragments of {:?} registers",
                shape.registers
            ));
        }
    }
    let mut operation = Operation::new(run_mma);
    operation.whole = true;
    operation.imm = ONE_PLACE | lowering.tables.matrices.len() as u64;
    let all = Value::Constant(Constant::Word(u32::MAX));
    operation.list.push((all, false));
    for operand in &fragments[0] {
        let dst = lowering.target(operand, classes[0])?;
        let dst = written(lowering, dst, classes[0]);
        operation.list.push((dst, true));
    }
    for at in 1..4 {
        for operand in &fragments[at] {
            let value = lowering.source(operand, classes[at])?;
            operation.list.push((value, false));
        }
    }
    lowering.tables.matrices.push(shape);
    lowering.emit(operation);
    Ok(())
}

fn class_of(ty: ScalarType) -> Class {
    if ty == ScalarType::F64 {
        Class::Long
    } else {
        Class::Word
    }
}

fn parts(operand: &Operand) -> Vec<Operand> {
    match operand {
        Operand::Vector(list) => list.clone(),
        one => vec![one.clone()],
    }
}

fn shape(instruction: &Instruction) -> Result<Shape, Refusal> {
    let mut modifiers = Modifiers::of(instruction);
    for word in ["sync", "aligned", "row", "col"] {
        if !modifiers.take(word) {
            return refuse(format!("expected .{word}"));
        }
    }
    let names = SHAPES.map(|(name, _, _)| name);
    let Some((_, m, k)) = modifiers.take_any(&names).map(|at| SHAPES[at]) else {
        return refuse("this shape is not implemented");
    };
    let saturate = modifiers.take("satfinite");
    let popcount = modifiers.take("popc");
    let combine = modifiers.take_any(&["xor", "and"]);
    modifiers.drop_prefix("kind::");
    let types: Vec<&str> = instruction
        .modifiers
        .iter()
        .map(String::as_str)
        .filter(|word| ELEMENTS.iter().any(|(name, _)| name == word) || *word == "s32")
        .collect();
    let [d, a, b, c] = types.as_slice() else {
        return refuse("expected four types");
    };
    let element = |word: &str| {
        ELEMENTS
            .iter()
            .find(|(name, _)| *name == word)
            .map(|(_, element)| *element)
    };
    let (Some(a), Some(b)) = (element(a), element(b)) else {
        return refuse("these types are not implemented");
    };
    let accumulator = |word: &str| match word {
        "f16" => Some(ScalarType::F16),
        "f32" => Some(ScalarType::F32),
        "f64" => Some(ScalarType::F64),
        "s32" => Some(ScalarType::S32),
        _ => None,
    };
    let (Some(d), Some(c)) = (accumulator(d), accumulator(c)) else {
        return refuse("this accumulator is not implemented");
    };
    let kind = match (a, popcount, combine) {
        (Element::B1, true, Some(0)) => Kind::XorCount,
        (Element::B1, true, Some(1)) => Kind::AndCount,
        (Element::F64, false, None) => Kind::Double,
        (Element::S8 | Element::U8 | Element::S4 | Element::U4, false, None) => Kind::Integer,
        (Element::F32 | Element::B1, _, _) => return refuse("these types are not implemented"),
        (_, false, None) => Kind::Float,
        _ => return refuse("this form is not implemented"),
    };
    if m == 8 && k == 4 && kind != Kind::Double {
        return refuse("the shapes of sm_70 are not implemented");
    }
    let of_c = |ty: ScalarType| if ty == ScalarType::F16 { m / 8 } else { m / 4 };
    let per_register = a.per_register();
    Ok(Shape {
        m,
        k,
        a,
        b,
        c,
        d,
        kind,
        saturate,
        registers: [
            of_c(d),
            m * k / 32 / per_register,
            8 * k / 32 / per_register,
            of_c(c),
        ],
    })
}

/// Bits of the elements of A (`m × k`, row by row) or B (`8 × k`, column by
/// column: both have k innermost).
fn gather(cx: &Context<'_>, rows: usize, k: usize, element: Element, list: &[u32]) -> Vec<u64> {
    let per_register = element.per_register();
    let bits = element.bits();
    let halves = rows / 8;
    let mut out = vec![0; rows * k];
    for (r, offset) in list.iter().enumerate() {
        for lane in 0..32 {
            let raw = if element.class() == Class::Long {
                cx.longs(*offset)[lane]
            } else {
                cx.words(*offset)[lane].into()
            };
            let row = lane / 4 + 8 * (r % halves);
            let first = per_register * (lane % 4) + 4 * per_register * (r / halves);
            for i in 0..per_register {
                let value = raw >> (bits * i as u32);
                out[row * k + first + i] = if bits == 64 {
                    value
                } else {
                    value & ((1 << bits) - 1)
                };
            }
        }
    }
    out
}

/// Bits of C, `m × 8`.
fn gather_accumulator(cx: &Context<'_>, m: usize, ty: ScalarType, list: &[u32]) -> Vec<u64> {
    let mut out = vec![0; m * 8];
    for lane in 0..32 {
        for half in 0..m / 8 {
            let at = (lane / 4 + 8 * half) * 8 + 2 * (lane % 4);
            match ty {
                ScalarType::F16 => {
                    let pair = cx.words(list[half])[lane];
                    out[at] = u64::from(pair & 0xffff);
                    out[at + 1] = u64::from(pair >> 16);
                }
                ScalarType::F64 => {
                    out[at] = cx.longs(list[2 * half])[lane];
                    out[at + 1] = cx.longs(list[2 * half + 1])[lane];
                }
                _ => {
                    out[at] = cx.words(list[2 * half])[lane].into();
                    out[at + 1] = cx.words(list[2 * half + 1])[lane].into();
                }
            }
        }
    }
    out
}

fn scatter(cx: &mut Context<'_>, m: usize, ty: ScalarType, list: &[u32], values: &[u64]) {
    for lane in 0..32 {
        for half in 0..m / 8 {
            let at = (lane / 4 + 8 * half) * 8 + 2 * (lane % 4);
            let (x, y) = (values[at], values[at + 1]);
            match ty {
                ScalarType::F16 => {
                    cx.words_mut(list[half])[lane] = (y << 16 | x) as u32;
                }
                ScalarType::F64 => {
                    cx.longs_mut(list[2 * half])[lane] = x;
                    cx.longs_mut(list[2 * half + 1])[lane] = y;
                }
                _ => {
                    cx.words_mut(list[2 * half])[lane] = x as u32;
                    cx.words_mut(list[2 * half + 1])[lane] = y as u32;
                }
            }
        }
    }
}

fn run_mma(cx: &mut Context<'_>, op: &Op) -> Step {
    in_groups(cx, op, |cx, op| {
        let shape = cx.grid.code.matrices[(op.imm & !ONE_PLACE) as usize];
        let [nd, na, nb, nc] = shape.registers;
        let list = &cx.list(op, 1 + nd + na + nb + nc)[1..];
        let (d, rest) = list.split_at(nd);
        let (a, rest) = rest.split_at(na);
        let (b, c) = rest.split_at(nb);
        let a = gather(cx, shape.m, shape.k, shape.a, a);
        let b = gather(cx, 8, shape.k, shape.b, b);
        let c = gather_accumulator(cx, shape.m, shape.c, c);
        let values = dot::multiply(&shape, &a, &b, &c);
        scatter(cx, shape.m, shape.d, d, &values);
    })
}
