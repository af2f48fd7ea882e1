//! `wmma.load`, `wmma.mma`, `wmma.store`: whole tiles of a warp, as the
//! `nvcuda::wmma` classes use them.
//!
//! Which element a lane's register holds is unspecified in the manual. Here
//! element `e` of a tile (row by row) lies in register `e / (32·E)` of lane
//! `e / E mod 32`, with E elements a register; fragments with more registers
//! than that repeat. The arithmetic is that of [`super::mma`], eight columns
//! at a time; unmeasured.

mod run;

use self::run::{LOADS, STORES, run_multiply};
use super::memory::place;
use super::mma::Shape;
use super::warp::ONE_PLACE;
use super::{Family, no_lanes, written};
use crate::machine::access::{Access, Space};
use crate::machine::numerics::dot::{Element, Kind};
use crate::machine::observe::AccessKind;
use crate::program::code::{Class, Constant, Variants};
use crate::program::lower::{Lowering, Refusal, refuse};
use crate::program::modifiers::Modifiers;
use crate::program::operation::{Operation, Value};
use crate::ptx::ast::{Instruction, Operand, ScalarType, StateSpace};

pub const FAMILY: Family = Family {
    decoders: &[("wmma", wmma)],
    lanes: no_lanes,
};

/// One tile in memory or registers.
#[derive(Debug, Clone, Copy)]
pub struct Tile {
    rows: usize,
    columns: usize,
    /// Bits of an element.
    bits: u32,
    /// Rows lie one after the other (otherwise columns).
    by_row: bool,
    registers: usize,
}

impl Tile {
    fn class(&self) -> Class {
        if self.bits == 64 {
            Class::Long
        } else {
            Class::Word
        }
    }

    fn per_register(&self) -> usize {
        (32 / self.bits as usize).max(1)
    }

    /// Registers that hold the tile once.
    fn distinct(&self) -> usize {
        (self.rows * self.columns / 32 / self.per_register()).max(1)
    }
}

/// What a `wmma.mma` multiplies.
#[derive(Debug, Clone, Copy)]
pub struct Product {
    n: usize,
    a: Tile,
    b: Tile,
    c: Tile,
    d: Tile,
    shape: Shape,
}

const SHAPES: [(&str, [usize; 3]); 5] = [
    ("m16n16k16", [16, 16, 16]),
    ("m32n8k16", [32, 8, 16]),
    ("m8n32k16", [8, 32, 16]),
    ("m16n16k8", [16, 16, 8]),
    ("m8n8k4", [8, 8, 4]),
];

const ELEMENTS: [(&str, Element, u32); 6] = [
    ("f16", Element::F16, 16),
    ("bf16", Element::BF16, 16),
    ("tf32", Element::TF32, 32),
    ("f64", Element::F64, 64),
    ("s8", Element::S8, 8),
    ("u8", Element::U8, 8),
];

fn wmma(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    let mut modifiers = Modifiers::of(instruction);
    modifiers.take("sync");
    modifiers.take("aligned");
    match modifiers.take_any(&["load", "store", "mma"]) {
        Some(0) => transfer(lowering, instruction, modifiers, false),
        Some(1) => transfer(lowering, instruction, modifiers, true),
        Some(2) => multiply(lowering, instruction, modifiers),
        _ => refuse("this form is not implemented"),
    }
}

fn shape(modifiers: &mut Modifiers<'_>) -> Result<[usize; 3], Refusal> {
    let names = SHAPES.map(|(name, _)| name);
    match modifiers.take_any(&names) {
        Some(at) => Ok(SHAPES[at].1),
        None => refuse("this shape is not implemented"),
    }
}

/// Tile of operand 0 (A), 1 (B) or 2 (C and D).
fn tile([m, n, k]: [usize; 3], operand: usize, bits: u32, by_row: bool) -> Tile {
    let (rows, columns) = [(m, k), (k, n), (m, n)][operand];
    let mut tile = Tile {
        rows,
        columns,
        bits,
        by_row,
        registers: 0,
    };
    tile.registers = tile.distinct();
    tile
}

fn bits_of(ty: ScalarType) -> Result<u32, Refusal> {
    match ty {
        ScalarType::F16 | ScalarType::BF16 => Ok(16),
        ScalarType::S8 | ScalarType::U8 => Ok(8),
        ScalarType::F32 | ScalarType::S32 | ScalarType::TF32 => Ok(32),
        ScalarType::F64 => Ok(64),
        _ => refuse("this element type is not implemented"),
    }
}

fn parts(operand: &Operand) -> Vec<Operand> {
    match operand {
        Operand::Vector(list) => list.clone(),
        one => vec![one.clone()],
    }
}

const ALL: Value = Value::Constant(Constant::Word(u32::MAX));

fn transfer(
    lowering: &mut Lowering<'_>,
    instruction: &Instruction,
    mut modifiers: Modifiers<'_>,
    stores: bool,
) -> Result<(), Refusal> {
    let Some(operand) = modifiers.take_any(&["a", "b", "c", "d"]) else {
        return refuse("expected a fragment kind");
    };
    let by_row = match modifiers.take_any(&["row", "col"]) {
        Some(at) => at == 0,
        None => return refuse("expected a layout"),
    };
    let shape = shape(&mut modifiers)?;
    let (space, _) = super::memory::space(&mut modifiers);
    let ty = modifiers.need_type()?;
    modifiers.finish()?;
    let mut tile = tile(shape, operand.min(2), bits_of(ty)?, by_row);
    let (fragment, address, rest) = match (instruction.operands.as_slice(), stores) {
        ([fragment, address, rest @ ..], false) => (fragment, address, rest),
        ([address, fragment, rest @ ..], true) => (fragment, address, rest),
        _ => return refuse("expected a fragment and an address"),
    };
    let fragment = parts(fragment);
    if fragment.is_empty() || !fragment.len().is_multiple_of(tile.distinct()) {
        return refuse(format!("expected {} registers", tile.distinct()));
    }
    tile.registers = fragment.len();
    let stride = match rest.first() {
        Some(stride) => lowering.source(stride, Class::Word)?,
        None => {
            let tight = if by_row { tile.columns } else { tile.rows };
            Value::Constant(Constant::Word(tight as u32))
        }
    };
    let place = place(lowering, address, space)?;
    let variants: &'static Variants = if stores { &STORES } else { &LOADS };
    let mut operation = Operation::new(variants[0]);
    operation.variants = Some(variants);
    operation.whole = true;
    operation.imm =
        ONE_PLACE | lowering.tables.tiles.len() as u64 | (place.offset & 0xffff_ffff) << 24;
    operation.a = place.base;
    operation.b = Value::Raw(lowering.tables.accesses.len() as u32);
    operation.c = stride;
    operation.list.push((ALL, false));
    for register in &fragment {
        let value = if stores {
            lowering.source(register, tile.class())?
        } else {
            let dst = lowering.target(register, tile.class())?;
            written(lowering, dst, tile.class())
        };
        operation.list.push((value, !stores));
    }
    lowering.tables.accesses.push(Access {
        space: if place.space == Space::Local {
            Space::Generic
        } else {
            place.space
        },
        report: StateSpace::Global,
        kind: if stores {
            AccessKind::Write
        } else {
            AccessKind::Read
        },
        element: tile.bits / 8,
        count: 1,
        signed: false,
        register: tile.class(),
        address: place.class,
        polls: false,
    });
    lowering.tables.tiles.push(tile);
    lowering.emit(operation);
    Ok(())
}

fn multiply(
    lowering: &mut Lowering<'_>,
    instruction: &Instruction,
    mut modifiers: Modifiers<'_>,
) -> Result<(), Refusal> {
    let shape = shape(&mut modifiers)?;
    let saturate = modifiers.take("satfinite");
    let words: Vec<&str> = instruction
        .modifiers
        .iter()
        .map(String::as_str)
        .filter(|w| crate::program::modifiers::scalar_type(w).is_some())
        .collect();
    // With two types (D and C) the factors are f16.
    let (d, a, b, c) = match words.as_slice() {
        [d, c] => (*d, "f16", "f16", *c),
        [d, a, b, c] => (*d, *a, *b, *c),
        _ => return refuse("expected two or four types"),
    };
    let element = |word: &str| ELEMENTS.iter().find(|(name, ..)| *name == word);
    let (Some((_, a, bits)), Some((_, b, _))) = (element(a), element(b)) else {
        return refuse("these types are not implemented");
    };
    let accumulator = |word: &str| match crate::program::modifiers::scalar_type(word) {
        Some(ty @ (ScalarType::F16 | ScalarType::F32 | ScalarType::F64 | ScalarType::S32)) => {
            Ok(ty)
        }
        _ => refuse("this accumulator is not implemented"),
    };
    let (c, d) = (accumulator(c)?, accumulator(d)?);
    let [m, n, k] = shape;
    let mut product = Product {
        n,
        a: tile(shape, 0, *bits, true),
        b: tile(shape, 1, *bits, true),
        c: tile(shape, 2, bits_of(c)?, true),
        d: tile(shape, 2, bits_of(d)?, true),
        shape: Shape {
            m,
            k,
            a: *a,
            b: *b,
            c,
            d,
            kind: match a {
                Element::F64 => Kind::Double,
                Element::S8 | Element::U8 => Kind::Integer,
                _ => Kind::Float,
            },
            saturate,
            registers: [0; 4],
        },
    };
    let [d, a, b, c] = instruction.operands.as_slice() else {
        return refuse("expected four fragments");
    };
    let mut operation = Operation::new(run_multiply);
    operation.whole = true;
    operation.imm = ONE_PLACE | lowering.tables.products.len() as u64;
    operation.list.push((ALL, false));
    for (at, operand) in [d, a, b, c].into_iter().enumerate() {
        let registers = parts(operand);
        let tile = [
            &mut product.d,
            &mut product.a,
            &mut product.b,
            &mut product.c,
        ]
        .into_iter()
        .nth(at);
        let Some(tile) = tile else { continue };
        if !registers.len().is_multiple_of(tile.distinct()) || registers.is_empty() {
            return refuse(format!("expected {} registers", tile.distinct()));
        }
        tile.registers = registers.len();
        let class = tile.class();
        for register in &registers {
            let value = if at == 0 {
                let dst = lowering.target(register, class)?;
                written(lowering, dst, class)
            } else {
                lowering.source(register, class)?
            };
            operation.list.push((value, at == 0));
        }
    }
    lowering.tables.products.push(product);
    lowering.emit(operation);
    Ok(())
}
