//! What the tile operations do when they run: elements between memory and
//! registers, and the product.

use super::{Product, Tile};
use crate::machine::access::resolve;
use crate::machine::context::Context;
use crate::machine::numerics::dot;
use crate::machine::ops::warp::{ONE_PLACE, in_groups};
use crate::program::code::{Class, Op, Step, Variants, variants};

pub(super) static LOADS: Variants = variants!(run_transfer, false);
pub(super) static STORES: Variants = variants!(run_transfer, true);

unsafe fn run_transfer<const STRICT: bool, const EVENTS: bool, const STORE: bool>(
    cx: &mut Context<'_>,
    op: &Op,
) -> Step {
    let mut ended = Step::Next;
    let step = in_groups(cx, op, |cx: &mut Context<'_>, op: &Op| {
        let tile = cx.grid.code.tiles[(op.imm & 0xff_ffff) as usize];
        let offset = (op.imm >> 24) as u32;
        let registers = &cx.list(op, 1 + tile.registers)[1..];
        let distinct = tile.distinct();
        for sub in 0..tile.per_register() {
            for register in 0..distinct {
                if let Err(step) = move_elements::<STRICT, EVENTS, STORE>(
                    cx,
                    op,
                    &tile,
                    offset,
                    register,
                    sub,
                    registers[register],
                ) {
                    ended = step;
                    return;
                }
            }
        }
        if !STORE {
            for (at, register) in registers.iter().enumerate().skip(distinct) {
                let from = registers[at % distinct];
                if tile.class() == Class::Long {
                    let row = *cx.longs(from);
                    *cx.longs_mut(*register) = row;
                } else {
                    let row = *cx.words(from);
                    *cx.words_mut(*register) = row;
                }
            }
        }
    });
    if ended == Step::Next { step } else { ended }
}

/// One element a lane: part `sub` of a register.
#[allow(clippy::too_many_arguments)]
fn move_elements<const STRICT: bool, const EVENTS: bool, const STORE: bool>(
    cx: &mut Context<'_>,
    op: &Op,
    tile: &Tile,
    offset: u32,
    register: usize,
    sub: usize,
    row: u32,
) -> Result<(), Step> {
    let access = cx.grid.code.accesses[op.b as usize];
    let lane0 = cx.first_lane() as usize;
    let stride = u64::from(cx.words(op.c)[lane0]);
    let base = if access.address == Class::Word {
        u64::from(cx.words(op.a)[lane0].wrapping_add(offset))
    } else {
        cx.longs(op.a)[lane0].wrapping_add_signed(i64::from(offset as i32))
    };
    let bytes = u64::from(access.element);
    let addresses: [u64; 32] = std::array::from_fn(|lane| {
        let element = (register * 32 + lane) * tile.per_register() + sub;
        let (r, c) = (
            (element / tile.columns) as u64,
            (element % tile.columns) as u64,
        );
        let at = if tile.by_row {
            r * stride + c
        } else {
            c * stride + r
        };
        base.wrapping_add(at.wrapping_mul(bytes))
    });
    let host = resolve::<STRICT, EVENTS>(cx, &access, &addresses)?;
    let shift = tile.bits * sub as u32;
    for lane in 0..32 {
        if cx.active >> lane & 1 == 0 {
            continue;
        }
        let at = host.at(lane, addresses[lane]);
        let mut raw = [0u8; 8];
        // SAFETY: `resolve` checked the element of every active lane.
        unsafe {
            if STORE {
                let value = if tile.class() == Class::Long {
                    cx.longs(row)[lane]
                } else {
                    u64::from(cx.words(row)[lane] >> shift)
                };
                raw = value.to_le_bytes();
                std::ptr::copy_nonoverlapping(raw.as_ptr(), at, bytes as usize);
                continue;
            }
            std::ptr::copy_nonoverlapping(at, raw.as_mut_ptr(), bytes as usize);
        }
        let value = u64::from_le_bytes(raw);
        if tile.class() == Class::Long {
            cx.longs_mut(row)[lane] = value;
        } else {
            let mask = (((1u64 << tile.bits) - 1) as u32) << shift;
            let word = &mut cx.words_mut(row)[lane];
            *word = *word & !mask | (value as u32) << shift & mask;
        }
    }
    Ok(())
}

/// Elements of a tile, row by row.
fn gather(cx: &Context<'_>, tile: &Tile, registers: &[u32]) -> Vec<u64> {
    let per_register = tile.per_register();
    (0..tile.rows * tile.columns)
        .map(|element| {
            let slot = element / per_register;
            let (register, lane) = (registers[slot / 32], slot % 32);
            if tile.class() == Class::Long {
                return cx.longs(register)[lane];
            }
            let shift = tile.bits * (element % per_register) as u32;
            u64::from(cx.words(register)[lane] >> shift) & ((1 << tile.bits) - 1)
        })
        .collect()
}

fn scatter(cx: &mut Context<'_>, tile: &Tile, registers: &[u32], values: &[u64]) {
    let per_register = tile.per_register();
    for (at, register) in registers.iter().enumerate() {
        for lane in 0..32 {
            let first = (at % tile.distinct() * 32 + lane) * per_register;
            if tile.class() == Class::Long {
                cx.longs_mut(*register)[lane] = values[first];
                continue;
            }
            let word = (0..per_register).fold(0, |word, sub| {
                word | values[first + sub] << (tile.bits * sub as u32)
            });
            cx.words_mut(*register)[lane] = word as u32;
        }
    }
}

pub(super) fn run_multiply(cx: &mut Context<'_>, op: &Op) -> Step {
    in_groups(cx, op, |cx, op| {
        let product = cx.grid.code.products[(op.imm & !ONE_PLACE) as usize];
        let Product {
            n,
            a,
            b,
            c,
            d,
            shape,
        } = product;
        let count = 1 + d.registers + a.registers + b.registers + c.registers;
        let list = &cx.list(op, count)[1..];
        let (d_registers, rest) = list.split_at(d.registers);
        let (a_registers, rest) = rest.split_at(a.registers);
        let (b_registers, c_registers) = rest.split_at(b.registers);
        let (a, b, c) = (
            gather(cx, &a, a_registers),
            gather(cx, &b, b_registers),
            gather(cx, &c, c_registers),
        );
        let mut out = vec![0; shape.m * n];
        for first in (0..n).step_by(8) {
            // Eight columns of B with k innermost, and those of C.
            let columns: Vec<u64> = (0..8 * shape.k)
                .map(|at| b[at % shape.k * n + first + at / shape.k])
                .collect();
            let sums: Vec<u64> = (0..8 * shape.m)
                .map(|at| c[at / 8 * n + first + at % 8])
                .collect();
            let values = dot::multiply(&shape, &a, &columns, &sums);
            for (at, value) in values.into_iter().enumerate() {
                out[at / 8 * n + first + at % 8] = value;
            }
        }
        scatter(cx, &d, d_registers, &out);
    })
}
