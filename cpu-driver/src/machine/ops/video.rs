//! The video instructions: scalar (`vadd` …) on selected bytes and halves, and
//! SIMD (`vadd2`, `vadd4` …). No chip since Kepler has all of them; code uses
//! them rarely, so they are interpreted from a description.

use super::{Family, no_lanes, written};
use crate::machine::context::Context;
use crate::machine::lanes::LANES;
use crate::program::code::{ABSENT, Class, Op, Step};
use crate::program::lower::{Lowering, Refusal, refuse};
use crate::program::modifiers::{Modifiers, is_signed};
use crate::program::operation::{Operation, Value};
use crate::ptx::ast::{Instruction, Operand};

pub const FAMILY: Family = Family {
    decoders: &[
        ("vadd", video),
        ("vsub", video),
        ("vabsdiff", video),
        ("vmin", video),
        ("vmax", video),
        ("vshl", video),
        ("vshr", video),
        ("vmad", video),
        ("vset", video),
        ("vadd2", video),
        ("vsub2", video),
        ("vavrg2", video),
        ("vabsdiff2", video),
        ("vmin2", video),
        ("vmax2", video),
        ("vset2", video),
        ("vadd4", video),
        ("vsub4", video),
        ("vavrg4", video),
        ("vabsdiff4", video),
        ("vmin4", video),
        ("vmax4", video),
        ("vset4", video),
    ],
    lanes: no_lanes,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Add,
    Sub,
    AbsDiff,
    Min,
    Max,
    Shl { clamp: bool },
    Shr { clamp: bool },
    Mad { shift: u32 },
    Average,
    Set(Comparison),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Second {
    None,
    Add,
    Min,
    Max,
}

/// First bit and width of a selection.
type Selection = (u32, u32);

const WHOLE: Selection = (0, 32);

/// One video instruction.
#[derive(Debug, Clone, Copy)]
pub struct Video {
    verb: Verb,
    signed: [bool; 3],
    saturate: bool,
    second: Second,
    /// Of result, first and second source.
    select: [Selection; 3],
    /// 1, 2 or 4 parts.
    parts: u32,
    /// Parts that are written (SIMD).
    mask: u32,
}

fn video(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    let mut modifiers = Modifiers::of(instruction);
    let name = instruction.opcode.trim_end_matches(['2', '4']);
    let parts = match instruction.opcode.strip_prefix(name) {
        Some("2") => 2,
        Some("4") => 4,
        _ => 1,
    };
    let mut signed = [false; 3];
    let first = usize::from(name == "vset");
    for flag in &mut signed[first..] {
        *flag = is_signed(modifiers.need_type()?);
    }
    let saturate = modifiers.take("sat");
    let verb = verb(name, &mut modifiers)?;
    let second = match modifiers.take_any(&["add", "min", "max"]) {
        Some(0) => Second::Add,
        Some(1) => Second::Min,
        Some(2) => Second::Max,
        _ => Second::None,
    };
    modifiers.finish()?;
    let [d, a, b, rest @ ..] = instruction.operands.as_slice() else {
        return refuse("expected a target and two sources");
    };
    let (d, d_select, mask) = selected(d, parts)?;
    let (a, a_select, _) = selected(a, 1)?;
    let (b, b_select, _) = selected(b, 1)?;
    let mut operation = Operation::new(run_video);
    operation.imm = lowering.tables.videos.len() as u64;
    let dst = lowering.target(&d, Class::Word)?;
    operation.dst = written(lowering, dst, Class::Word);
    operation.a = lowering.source(&a, Class::Word)?;
    operation.b = lowering.source(&b, Class::Word)?;
    if let [c] = rest {
        operation.c = lowering.source(c, Class::Word)?;
    } else {
        operation.c = Value::None;
    }
    lowering.tables.videos.push(Video {
        verb,
        signed,
        saturate,
        second,
        select: [d_select, a_select, b_select],
        parts,
        mask,
    });
    lowering.emit(operation);
    Ok(())
}

fn verb(name: &str, modifiers: &mut Modifiers<'_>) -> Result<Verb, Refusal> {
    Ok(match name {
        "vadd" => Verb::Add,
        "vsub" => Verb::Sub,
        "vabsdiff" => Verb::AbsDiff,
        "vmin" => Verb::Min,
        "vmax" => Verb::Max,
        "vavrg" => Verb::Average,
        "vshl" | "vshr" => {
            let clamp = modifiers.take("clamp");
            if !clamp && !modifiers.take("wrap") {
                return refuse("expected .clamp or .wrap");
            }
            if name == "vshl" {
                Verb::Shl { clamp }
            } else {
                Verb::Shr { clamp }
            }
        }
        "vmad" => Verb::Mad {
            shift: match modifiers.take_any(&["shr7", "shr15"]) {
                Some(0) => 7,
                Some(_) => 15,
                None => 0,
            },
        },
        _ => match modifiers.take_any(&["eq", "ne", "lt", "le", "gt", "ge"]) {
            Some(0) => Verb::Set(Comparison::Eq),
            Some(1) => Verb::Set(Comparison::Ne),
            Some(2) => Verb::Set(Comparison::Lt),
            Some(3) => Verb::Set(Comparison::Le),
            Some(4) => Verb::Set(Comparison::Gt),
            Some(_) => Verb::Set(Comparison::Ge),
            None => return refuse("expected a comparison"),
        },
    })
}

/// The register, the selected bits, and the mask of parts of `d.b1`, `d.h0`
/// or, for SIMD results, `d.b210`.
fn selected(operand: &Operand, parts: u32) -> Result<(Operand, Selection, u32), Refusal> {
    let all = (1 << parts) - 1;
    let Operand::Name(name) = operand else {
        return Ok((operand.clone(), WHOLE, all));
    };
    let Some((register, suffix)) = name.rsplit_once('.') else {
        return Ok((operand.clone(), WHOLE, all));
    };
    let register = Operand::Name(register.to_owned());
    let digits: Vec<u32> = suffix
        .get(1..)
        .unwrap_or("")
        .chars()
        .filter_map(|c| c.to_digit(4))
        .collect();
    if parts > 1 {
        let mask = digits.iter().fold(0, |mask, digit| mask | 1 << digit);
        return Ok((register, WHOLE, mask));
    }
    match (suffix.as_bytes().first(), digits.as_slice()) {
        (Some(b'b'), [n]) => Ok((register, (8 * n, 8), 1)),
        (Some(b'h'), [n @ (0 | 1)]) => Ok((register, (16 * n, 16), 1)),
        _ => refuse(format!("the selection .{suffix} is not implemented")),
    }
}

fn extract(value: u32, (at, width): Selection, signed: bool) -> i64 {
    let moved = i64::from(value) << (64 - at - width);
    if signed {
        moved >> (64 - width)
    } else {
        ((moved as u64) >> (64 - width)) as i64
    }
}

fn clamp(value: i64, width: u32, signed: bool) -> i64 {
    if signed {
        value.clamp(-(1 << (width - 1)), (1 << (width - 1)) - 1)
    } else {
        value.clamp(0, (1 << width) - 1)
    }
}

impl Video {
    fn combine(&self, a: i64, b: i64, c: u32) -> i64 {
        let amount = |clamp: bool| {
            let b = b as u32;
            if clamp { b.min(32) } else { b & 31 }
        };
        match self.verb {
            Verb::Add => a + b,
            Verb::Sub => a - b,
            Verb::AbsDiff => (a - b).abs(),
            Verb::Min => a.min(b),
            Verb::Max => a.max(b),
            Verb::Average => {
                // Halves go away from zero.
                let sum = a + b;
                (sum + i64::from(sum >= 0)) >> 1
            }
            Verb::Shl { clamp } => a << amount(clamp),
            Verb::Shr { clamp } => a >> amount(clamp),
            Verb::Mad { shift } => {
                let signed = self.signed[1] || self.signed[2];
                (a * b + extract(c, WHOLE, signed)) >> shift
            }
            Verb::Set(comparison) => i64::from(match comparison {
                Comparison::Eq => a == b,
                Comparison::Ne => a != b,
                Comparison::Lt => a < b,
                Comparison::Le => a <= b,
                Comparison::Gt => a > b,
                Comparison::Ge => a >= b,
            }),
        }
    }

    fn scalar(&self, a: u32, b: u32, c: u32) -> u32 {
        let a = extract(a, self.select[1], self.signed[1]);
        let b = extract(b, self.select[2], self.signed[2]);
        let (at, width) = self.select[0];
        let mut value = self.combine(a, b, c);
        if self.saturate {
            // A part of the target saturates without regard to sign: what is
            // negative counts as too large (ptxas for sm_90; bits of an H200).
            value = if width < 32 && value < 0 {
                clamp(i64::MAX, width, self.signed[0])
            } else {
                clamp(value, width, self.signed[0])
            };
        }
        if width < 32 {
            let mask = ((1u32 << width) - 1) << at;
            return c & !mask | (value as u32) << at & mask;
        }
        let (value, c) = if self.signed[0] {
            (i64::from(value as i32), i64::from(c as i32))
        } else {
            (i64::from(value as u32), i64::from(c))
        };
        match self.second {
            Second::None => value as u32,
            Second::Add => (value + c) as u32,
            Second::Min => value.min(c) as u32,
            Second::Max => value.max(c) as u32,
        }
    }

    fn simd(&self, a: u32, b: u32, c: u32) -> u32 {
        let width = 32 / self.parts;
        let mut total = c;
        let mut merged = c;
        for part in 0..self.parts {
            if self.mask >> part & 1 == 0 {
                continue;
            }
            let at = (part * width, width);
            let x = extract(a, at, self.signed[1]);
            let y = extract(b, at, self.signed[2]);
            let mut value = self.combine(x, y, 0);
            if self.saturate {
                value = clamp(value, width, self.signed[0]);
            }
            total = total.wrapping_add(value as u32);
            let mask = (((1u64 << width) - 1) as u32) << at.0;
            merged = merged & !mask | (value as u32) << at.0 & mask;
        }
        if self.second == Second::Add {
            total
        } else {
            merged
        }
    }
}

fn run_video(cx: &mut Context<'_>, op: &Op) -> Step {
    let video = cx.grid.code.videos[op.imm as usize];
    let (a, b) = (*cx.words(op.a), *cx.words(op.b));
    let c = if op.c == ABSENT {
        [0; LANES]
    } else {
        *cx.words(op.c)
    };
    let out: [u32; LANES] = std::array::from_fn(|lane| {
        if video.parts == 1 {
            video.scalar(a[lane], b[lane], c[lane])
        } else {
            video.simd(a[lane], b[lane], c[lane])
        }
    });
    cx.set_words(op.dst, &out);
    Step::Next
}
