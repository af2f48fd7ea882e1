//! Values that the machine itself puts into rows: constants, special
//! registers, parameters, results of barriers.

use super::access::PARAM_WINDOW;
use super::block::{Shared, barrier_kind};
use super::context::Grid;
use super::lanes::LANES;
use super::warp::{Split, Warp};
use crate::program::code::{ABSENT, Class, Constant, Op, Special};

/// Fills the constant rows of an activation. With `all` false only those that
/// differ from block to block.
pub fn fill_frame(warp: &mut Warp, activation: u32, shared: &Shared, grid: &Grid<'_>, all: bool) {
    let which = warp.activations[activation as usize];
    let frame = warp.frame(activation);
    let function = &grid.code.functions[which.function as usize];
    for fill in &function.fills {
        if !all && !matches!(fill.constant, Constant::Special(Special::BlockId(_))) {
            continue;
        }
        for lane in 0..LANES {
            let value = value_of(
                fill.constant,
                lane as u32,
                which.local_base,
                warp,
                shared,
                grid,
            );
            // SAFETY: the offset is a row of the constant's class in this frame.
            unsafe {
                let row = frame.add(fill.offset as usize);
                match fill.constant.class() {
                    Class::Predicate => row.cast::<u32>().write(value as u32),
                    Class::Long => row.cast::<u64>().add(lane).write(value as u64),
                    Class::Quad => row.cast::<u128>().add(lane).write(value),
                    _ => row.cast::<u32>().add(lane).write(value as u32),
                }
            }
        }
    }
}

fn value_of(
    constant: Constant,
    lane: u32,
    local_base: u32,
    warp: &Warp,
    shared: &Shared,
    grid: &Grid<'_>,
) -> u128 {
    match constant {
        Constant::Truth(value) => u128::from(if value { u32::MAX } else { 0 }),
        Constant::Word(value) => value.into(),
        Constant::Long(value) => value.into(),
        Constant::Quad(value) => value,
        Constant::Special(special) => special_value(special, lane, warp, shared, grid).into(),
        Constant::ParamWord(offset) => param(grid.params, offset, 4).into(),
        Constant::ParamLong(offset) => param(grid.params, offset, 8).into(),
        Constant::LocalWord(offset) | Constant::LocalLong(offset) => {
            u128::from(local_base.wrapping_add(offset))
        }
    }
}

/// Little-endian value of `bytes` parameter bytes; missing ones are zero.
fn param(params: &[u8], offset: u32, bytes: usize) -> u64 {
    let mut value = [0; 8];
    for (at, byte) in value.iter_mut().enumerate().take(bytes) {
        *byte = params.get(offset as usize + at).copied().unwrap_or(0);
    }
    u64::from_le_bytes(value)
}

fn special_value(
    special: Special,
    lane: u32,
    warp: &Warp,
    shared: &Shared,
    grid: &Grid<'_>,
) -> u64 {
    let thread = warp.index * 32 + lane;
    let [bx, by, _] = grid.block;
    let below = (1u64 << lane) - 1;
    let value = match special {
        Special::ThreadId(0) => thread % bx,
        Special::ThreadId(1) => thread / bx % by,
        Special::ThreadId(_) => thread / (bx * by),
        Special::BlockSize(axis) => grid.block[usize::from(axis)],
        Special::BlockId(axis) => shared.coordinates[usize::from(axis)],
        Special::GridSize(axis) => grid.grid[usize::from(axis)],
        Special::Lane => lane,
        Special::WarpId => warp.index,
        Special::WarpCount => grid.block.iter().product::<u32>().div_ceil(32),
        Special::SmId | Special::Zero => 0,
        Special::SmCount | Special::One => 1,
        Special::GridId => return 1,
        Special::LaneMaskEq => 1 << lane,
        Special::LaneMaskLt => below as u32,
        Special::LaneMaskLe => (below << 1 | 1) as u32,
        Special::LaneMaskGt => !(below << 1 | 1) as u32,
        Special::LaneMaskGe => !below as u32,
        Special::WorkspaceHigh => (grid.workspace >> 32) as u32,
        Special::WorkspaceLow => grid.workspace as u32,
        Special::DynamicShared => grid.dynamic_shared,
        Special::TotalShared => grid.shared_bytes,
    };
    value.into()
}

/// Writes what a `bar.red` gives to the lanes of a woken split.
pub fn barrier_result(warp: &mut Warp, split: &Split, op: &Op, ones: u32, threads: u32) {
    if op.dst == ABSENT {
        return;
    }
    let frame = warp.frame(split.activation);
    let truth = match op.imm {
        barrier_kind::COUNT => {
            for lane in 0..LANES {
                if split.mask >> lane & 1 != 0 {
                    // SAFETY: `dst` of a counting barrier is a 32-bit row.
                    unsafe {
                        let row = frame.add(op.dst as usize).cast::<u32>();
                        row.add(lane).write(ones);
                    }
                }
            }
            return;
        }
        barrier_kind::AND => ones == threads,
        barrier_kind::OR => ones != 0,
        _ => return,
    };
    // SAFETY: `dst` of these kinds is a predicate.
    unsafe {
        let mask = frame.add(op.dst as usize).cast::<u32>();
        let value = if truth { u32::MAX } else { 0 };
        *mask = (*mask & !split.mask) | (value & split.mask);
    }
}

/// Generic address of the parameter at `offset`.
pub fn param_address(local_window: u64, offset: u64) -> u64 {
    local_window + PARAM_WINDOW + offset
}
