//! `ldmatrix`, `stmatrix`, `movmatrix`: 8×8 tiles of 16-bit elements between
//! shared memory and fragments.

use super::memory::place;
use super::warp::{ONE_PLACE, in_groups};
use super::{Family, no_lanes, written};
use crate::machine::access::{Access, Host, Space, resolve};
use crate::machine::context::Context;
use crate::machine::observe::AccessKind;
use crate::program::code::{Class, Constant, Op, Step, Variants, variants};
use crate::program::lower::{Lowering, Refusal, refuse};
use crate::program::modifiers::Modifiers;
use crate::program::operation::{Operation, Value};
use crate::ptx::ast::{Instruction, Operand, StateSpace};

pub const FAMILY: Family = Family {
    decoders: &[
        ("ldmatrix", load),
        ("stmatrix", store),
        ("movmatrix", transpose),
    ],
    lanes: no_lanes,
};

struct Tiles {
    count: usize,
    transposed: bool,
    space: Space,
}

fn tiles(instruction: &Instruction) -> Result<Tiles, Refusal> {
    let mut modifiers = Modifiers::of(instruction);
    modifiers.take("sync");
    modifiers.take("aligned");
    if !modifiers.take("m8n8") {
        return refuse("this shape is not implemented");
    }
    let Some(count) = modifiers.take_any(&["x1", "x2", "x4"]) else {
        return refuse("expected a number of tiles");
    };
    let transposed = modifiers.take("trans");
    let space = modifiers.take_any(&["shared", "shared::cta"]);
    if !modifiers.take("b16") {
        return refuse("this element type is not implemented");
    }
    modifiers.finish()?;
    Ok(Tiles {
        count: 1 << count,
        transposed,
        space: if space.is_some() {
            Space::Shared
        } else {
            Space::Generic
        },
    })
}

fn registers(operand: &Operand, count: usize) -> Result<Vec<Operand>, Refusal> {
    let list = match operand {
        Operand::Vector(list) => list.clone(),
        one => vec![one.clone()],
    };
    if list.len() == count {
        Ok(list)
    } else {
        refuse(format!("expected {count} registers"))
    }
}

/// `imm`: tiles, transposition, and the offset of the address in bits 8 to 39.
fn prepare(
    lowering: &mut Lowering<'_>,
    variants: &'static Variants,
    tiles: &Tiles,
    address: &Operand,
    kind: AccessKind,
) -> Result<Operation, Refusal> {
    let place = place(lowering, address, tiles.space)?;
    let mut operation = Operation::new(variants[0]);
    operation.variants = Some(variants);
    operation.whole = true;
    operation.a = place.base;
    operation.b = Value::Raw(lowering.tables.accesses.len() as u32);
    operation.imm = ONE_PLACE
        | u64::from(place.offset as u32) << 8
        | u64::from(tiles.transposed) << 7
        | tiles.count as u64;
    lowering.tables.accesses.push(Access {
        space: place.space,
        report: StateSpace::Shared,
        kind,
        element: 16,
        count: 1,
        signed: false,
        register: Class::Word,
        address: place.class,
        polls: false,
    });
    let all = Value::Constant(Constant::Word(u32::MAX));
    operation.list.push((all, false));
    Ok(operation)
}

fn load(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    let tiles = tiles(instruction)?;
    let [target, address] = instruction.operands.as_slice() else {
        return refuse("expected a target and an address");
    };
    let mut operation = prepare(lowering, &LOADS, &tiles, address, AccessKind::Read)?;
    for operand in registers(target, tiles.count)? {
        let dst = lowering.target(&operand, Class::Word)?;
        let dst = written(lowering, dst, Class::Word);
        operation.list.push((dst, true));
    }
    lowering.emit(operation);
    Ok(())
}

fn store(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    let tiles = tiles(instruction)?;
    let [address, source] = instruction.operands.as_slice() else {
        return refuse("expected an address and a source");
    };
    let mut operation = prepare(lowering, &STORES, &tiles, address, AccessKind::Write)?;
    for operand in registers(source, tiles.count)? {
        let value = lowering.source(&operand, Class::Word)?;
        operation.list.push((value, false));
    }
    lowering.emit(operation);
    Ok(())
}

/// `movmatrix.sync.aligned.m8n8.trans.b16 d, a`
fn transpose(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    let [target, source] = instruction.operands.as_slice() else {
        return refuse("expected a target and a source");
    };
    let mut operation = Operation::new(run_transpose);
    operation.whole = true;
    operation.imm = ONE_PLACE;
    let all = Value::Constant(Constant::Word(u32::MAX));
    let dst = lowering.target(target, Class::Word)?;
    let value = lowering.source(source, Class::Word)?;
    operation.list = vec![(all, false), (dst, true), (value, false)];
    lowering.emit(operation);
    Ok(())
}

static LOADS: Variants = variants!(run_rows, false);
static STORES: Variants = variants!(run_rows, true);

/// Row addresses come from lanes 8·tile + row.
fn rows<const STRICT: bool, const EVENTS: bool>(
    cx: &mut Context<'_>,
    op: &Op,
    count: usize,
) -> Result<(Host, [u64; 32]), Step> {
    let access = cx.grid.code.accesses[op.b as usize];
    let offset = (op.imm >> 8) as u32 as i32;
    let addresses: [u64; 32] = std::array::from_fn(|lane| {
        if access.address == Class::Word {
            cx.words(op.a)[lane].wrapping_add_signed(offset).into()
        } else {
            cx.longs(op.a)[lane].wrapping_add_signed(offset.into())
        }
    });
    let all = cx.active;
    if count < 4 {
        cx.active &= (1 << (8 * count)) - 1;
    }
    let host = resolve::<STRICT, EVENTS>(cx, &access, &addresses);
    cx.active = all;
    host.map(|host| (host, addresses))
}

/// Row and column that half `half` of a lane's register holds.
fn element(lane: usize, half: usize, transposed: bool) -> (usize, usize) {
    let (row, column) = (lane / 4, 2 * (lane % 4) + half);
    if transposed {
        (column, row)
    } else {
        (row, column)
    }
}

/// Moves 8×8 tiles between memory and one register a tile.
unsafe fn run_rows<const STRICT: bool, const EVENTS: bool, const STORE: bool>(
    cx: &mut Context<'_>,
    op: &Op,
) -> Step {
    let mut ended = Step::Next;
    let step = in_groups(cx, op, |cx: &mut Context<'_>, op: &Op| {
        let (count, transposed) = ((op.imm & 7) as usize, op.imm >> 7 & 1 != 0);
        let (host, addresses) = match rows::<STRICT, EVENTS>(cx, op, count) {
            Ok(found) => found,
            Err(step) => {
                ended = step;
                return;
            }
        };
        let registers = &cx.list(op, 1 + count)[1..];
        for (tile, register) in registers.iter().enumerate() {
            for lane in 0..32 {
                let mut word = if STORE { cx.words(*register)[lane] } else { 0 };
                for half in 0..2 {
                    let (row, column) = element(lane, half, transposed);
                    let row = 8 * tile + row;
                    let at = host.at(row, addresses[row]).wrapping_add(2 * column);
                    // SAFETY: the 16 bytes of every row were checked.
                    unsafe {
                        let at = at.cast::<u16>();
                        if STORE {
                            at.write_unaligned((word >> (16 * half)) as u16);
                        } else {
                            word |= u32::from(at.read_unaligned()) << (16 * half);
                        }
                    }
                }
                if !STORE {
                    cx.words_mut(*register)[lane] = word;
                }
            }
        }
    });
    if ended == Step::Next { step } else { ended }
}

fn run_transpose(cx: &mut Context<'_>, op: &Op) -> Step {
    in_groups(cx, op, |cx: &mut Context<'_>, op: &Op| {
        let list = cx.list(op, 3);
        let from = *cx.words(list[2]);
        let mut out = [0; 32];
        for (lane, word) in out.iter_mut().enumerate() {
            for half in 0..2 {
                let (row, column) = element(lane, half, true);
                let value = from[4 * row + column / 2] >> (16 * (column % 2)) & 0xffff;
                *word |= value << (16 * half);
            }
        }
        cx.set_words(list[1], &out);
    })
}
