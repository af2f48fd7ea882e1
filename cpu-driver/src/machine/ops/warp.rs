//! `.sync` operations of a warp: `shfl`, `vote`, `match`, `redux`,
//! `bar.warp.sync`, and `activemask` and `elect`.
//!
//! Convention: `aux` is the row with the member masks. Lanes that name
//! different masks form different groups; see [`crate::machine::rendezvous`]
//! for groups whose members have not all arrived.

use super::{Family, no_lanes, written};
use crate::machine::context::Context;
use crate::machine::lanes::LANES;
use crate::program::code::{ABSENT, Class, Constant, Exec, Op, Step};
use crate::program::lower::{Lowering, Refusal, refuse};
use crate::program::modifiers::Modifiers;
use crate::program::operation::{Operation, Value};
use crate::ptx::ast::{Instruction, Operand, ScalarType};

pub const FAMILY: Family = Family {
    decoders: &[
        ("shfl", shuffle),
        ("vote", vote),
        ("match", matching),
        ("redux", reduce),
        ("activemask", active_mask),
        ("elect", elect),
    ],
    lanes: no_lanes,
};

/// An operation that waits for the members in `members`. `source` and `target`
/// are the classes of its first operand and of its result.
pub fn together(exec: Exec, members: Value, source: Class, target: Class) -> Operation {
    let mut operation = Operation::new(exec);
    operation.fourth = members;
    operation.whole = true;
    operation.imm = code_of(source) | code_of(target) << 4;
    operation
}

/// In `imm`: the operation's members must stand at one place, and their masks
/// come first in the operand list.
pub const ONE_PLACE: u64 = 1 << 63;

fn code_of(class: Class) -> u64 {
    match class {
        Class::Word => 1,
        Class::Long => 2,
        Class::Predicate => 3,
        Class::None | Class::Quad => 0,
    }
}

/// The row with the member masks: `aux`, or the first entry of the list where
/// the operation has one.
pub fn members_row(cx: &Context<'_>, op: &Op) -> u32 {
    if op.imm & ONE_PLACE != 0 {
        cx.grid.code.lists[op.aux as usize]
    } else {
        op.aux
    }
}

/// Classes of first operand and result, from `imm`.
pub fn classes_of(op: &Op) -> (Class, Class) {
    let class = |code| match code & 15 {
        1 => Class::Word,
        2 => Class::Long,
        3 => Class::Predicate,
        _ => Class::None,
    };
    (class(op.imm), class(op.imm >> 4))
}

/// `bar.warp.sync members`
pub fn barrier(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    let [members] = instruction.operands.as_slice() else {
        return refuse("expected a member mask");
    };
    let members = lowering.source(members, Class::Word)?;
    lowering.emit(together(run_barrier, members, Class::None, Class::None));
    Ok(())
}

/// `shfl.sync.mode.b32 d{|p}, a, b, c, members`
fn shuffle(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    let mut modifiers = Modifiers::of(instruction);
    let synced = modifiers.take("sync");
    let exec: Exec = match modifiers.take_any(&["up", "down", "bfly", "idx"]) {
        Some(0) => run_shuffle::<0>,
        Some(1) => run_shuffle::<1>,
        Some(2) => run_shuffle::<2>,
        Some(3) => run_shuffle::<3>,
        _ => return refuse("expected a mode of the shuffle"),
    };
    modifiers.need_type()?;
    modifiers.finish()?;
    let (target, a, b, c, members) = match (instruction.operands.as_slice(), synced) {
        ([target, a, b, c, members], true) => (target, a, b, c, Some(members)),
        ([target, a, b, c], false) => (target, a, b, c, None),
        _ => return refuse("wrong number of operands"),
    };
    let members = match members {
        Some(members) => lowering.source(members, Class::Word)?,
        None => Value::Constant(Constant::Word(u32::MAX)),
    };
    let mut operation = together(exec, members, Class::Word, Class::Word);
    let (value, predicate) = match target {
        Operand::Pair(value, predicate) => (&**value, Some(&**predicate)),
        value => (value, None),
    };
    let dst = lowering.target(value, Class::Word)?;
    operation.dst = written(lowering, dst, Class::Word);
    if let Some(predicate) = predicate {
        operation.dst2 = lowering.target(predicate, Class::Predicate)?;
    }
    operation.a = lowering.source(a, Class::Word)?;
    operation.b = lowering.source(b, Class::Word)?;
    operation.c = lowering.source(c, Class::Word)?;
    lowering.emit(operation);
    Ok(())
}

/// `vote.sync.{all,any,uni}.pred p, {!}a, members`; `.ballot.b32 d, {!}a, members`
fn vote(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    let mut modifiers = Modifiers::of(instruction);
    let synced = modifiers.take("sync");
    let (exec, class): (Exec, Class) = match modifiers.take_any(&["all", "any", "uni", "ballot"]) {
        Some(0) => (run_vote::<0>, Class::Predicate),
        Some(1) => (run_vote::<1>, Class::Predicate),
        Some(2) => (run_vote::<2>, Class::Predicate),
        Some(3) => (run_ballot, Class::Word),
        _ => return refuse("expected a mode of the vote"),
    };
    modifiers.need_type()?;
    modifiers.finish()?;
    let (target, source, members) = match (instruction.operands.as_slice(), synced) {
        ([target, source, members], true) => (target, source, Some(members)),
        ([target, source], false) => (target, source, None),
        _ => return refuse("wrong number of operands"),
    };
    let members = match members {
        Some(members) => lowering.source(members, Class::Word)?,
        None => Value::Constant(Constant::Word(u32::MAX)),
    };
    let mut operation = together(exec, members, Class::Predicate, class);
    operation.a = lowering.source(source, Class::Predicate)?;
    let dst = lowering.target(target, class)?;
    operation.dst = written(lowering, dst, class);
    lowering.emit(operation);
    Ok(())
}

/// `match.any.sync.b32 d, a, members`; `match.all.sync.b32 d{|p}, a, members`
fn matching(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    let mut modifiers = Modifiers::of(instruction);
    modifiers.take("sync");
    let all = modifiers.take_any(&["any", "all"]) == Some(1);
    let wide = modifiers.need_type()? == ScalarType::B64;
    modifiers.finish()?;
    let [target, source, members] = instruction.operands.as_slice() else {
        return refuse("wrong number of operands");
    };
    let exec: Exec = match (all, wide) {
        (false, false) => run_match::<false, false>,
        (false, true) => run_match::<false, true>,
        (true, false) => run_match::<true, false>,
        (true, true) => run_match::<true, true>,
    };
    let members = lowering.source(members, Class::Word)?;
    let source_class = if wide { Class::Long } else { Class::Word };
    let mut operation = together(exec, members, source_class, Class::Word);
    let (mask, predicate) = match target {
        Operand::Pair(mask, predicate) => (&**mask, Some(&**predicate)),
        mask => (mask, None),
    };
    let dst = lowering.target(mask, Class::Word)?;
    operation.dst = written(lowering, dst, Class::Word);
    if let Some(predicate) = predicate {
        operation.dst2 = lowering.target(predicate, Class::Predicate)?;
    }
    operation.a = lowering.source(source, source_class)?;
    lowering.emit(operation);
    Ok(())
}

/// `redux.sync.op.type d, a, members`
fn reduce(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    let mut modifiers = Modifiers::of(instruction);
    modifiers.take("sync");
    let operator = modifiers.take_any(&["add", "min", "max", "and", "or", "xor"]);
    let signed = modifiers.need_type()? == ScalarType::S32;
    modifiers.finish()?;
    let exec: Exec = match (operator, signed) {
        (Some(0), _) => run_reduce::<0>,
        (Some(1), false) => run_reduce::<1>,
        (Some(2), false) => run_reduce::<2>,
        (Some(1), true) => run_reduce::<3>,
        (Some(2), true) => run_reduce::<4>,
        (Some(3), _) => run_reduce::<5>,
        (Some(4), _) => run_reduce::<6>,
        (Some(5), _) => run_reduce::<7>,
        _ => return refuse("this form is not implemented"),
    };
    let [target, source, members] = instruction.operands.as_slice() else {
        return refuse("wrong number of operands");
    };
    let members = lowering.source(members, Class::Word)?;
    let mut operation = together(exec, members, Class::Word, Class::Word);
    operation.a = lowering.source(source, Class::Word)?;
    let dst = lowering.target(target, Class::Word)?;
    operation.dst = written(lowering, dst, Class::Word);
    lowering.emit(operation);
    Ok(())
}

fn active_mask(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    let [target] = instruction.operands.as_slice() else {
        return refuse("wrong number of operands");
    };
    let mut operation = Operation::new(run_active_mask);
    operation.whole = true;
    operation.dst = lowering.target(target, Class::Word)?;
    lowering.emit(operation);
    Ok(())
}

/// `elect.sync d|p, members`
fn elect(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    let [Operand::Pair(leader, predicate), members] = instruction.operands.as_slice() else {
        return refuse("expected d|p and a member mask");
    };
    let members = lowering.source(members, Class::Word)?;
    let mut operation = together(run_elect, members, Class::None, Class::Word);
    let dst = lowering.target(leader, Class::Word)?;
    operation.dst = written(lowering, dst, Class::Word);
    operation.dst2 = lowering.target(predicate, Class::Predicate)?;
    lowering.emit(operation);
    Ok(())
}

// Execution ------------------------------------------------------------------

/// Runs `perform` for each group of lanes once its members are all here.
#[inline(always)]
pub fn in_groups(
    cx: &mut Context<'_>,
    op: &Op,
    perform: impl FnOnce(&mut Context<'_>, &Op),
) -> Step {
    if !cx.gathered {
        let members = *cx.words(members_row(cx, op));
        let first = members[cx.first_lane() as usize];
        let mut same = true;
        for lane in 0..LANES {
            same &= cx.active >> lane & 1 == 0 || members[lane] == first;
        }
        if !same || first & cx.warp.live & !cx.active != 0 {
            return cx.rendezvous(op);
        }
    }
    perform(cx, op);
    Step::Next
}

fn run_barrier(cx: &mut Context<'_>, op: &Op) -> Step {
    in_groups(cx, op, |_, _| {})
}

/// Up (0), down (1), butterfly (2), by index (3). `c` holds the segment mask
/// in bits 8 to 12 and the clamp in bits 0 to 4.
fn run_shuffle<const MODE: u8>(cx: &mut Context<'_>, op: &Op) -> Step {
    in_groups(cx, op, |cx, op| {
        let (a, b, c) = (*cx.words(op.a), *cx.words(op.b), *cx.words(op.c));
        let mut out = [0; LANES];
        let mut valid = 0u32;
        for lane in 0..LANES as u32 {
            let l = lane as usize;
            let (by, clamp, segment) = (b[l] & 31, c[l] & 31, c[l] >> 8 & 31);
            let last = lane & segment | clamp & !segment;
            let first = lane & segment;
            let (from, inside) = match MODE {
                0 => {
                    let from = lane as i32 - by as i32;
                    (from as u32, from >= last as i32)
                }
                1 => (lane + by, lane + by <= last),
                2 => (lane ^ by, lane ^ by <= last),
                _ => {
                    let from = first | by & !segment;
                    (from, from <= last)
                }
            };
            let from = if inside { from } else { lane };
            out[l] = a[from as usize & 31];
            valid |= u32::from(inside) << lane;
        }
        cx.set_words(op.dst, &out);
        if op.dst2 != ABSENT {
            cx.set_predicate(op.dst2, valid);
        }
    })
}

/// All (0), any (1), the same for all (2).
fn run_vote<const MODE: u8>(cx: &mut Context<'_>, op: &Op) -> Step {
    in_groups(cx, op, |cx, op| {
        let votes = cx.predicate(op.a) & cx.active;
        let truth = match MODE {
            0 => votes == cx.active,
            1 => votes != 0,
            _ => votes == 0 || votes == cx.active,
        };
        cx.set_predicate(op.dst, if truth { u32::MAX } else { 0 });
    })
}

fn run_ballot(cx: &mut Context<'_>, op: &Op) -> Step {
    in_groups(cx, op, |cx, op| {
        let votes = cx.predicate(op.a) & cx.active;
        cx.set_words(op.dst, &[votes; LANES]);
    })
}

fn run_match<const ALL: bool, const WIDE: bool>(cx: &mut Context<'_>, op: &Op) -> Step {
    in_groups(cx, op, |cx, op| {
        let mut values = [0u64; LANES];
        for lane in 0..LANES {
            values[lane] = if WIDE {
                cx.longs(op.a)[lane]
            } else {
                cx.words(op.a)[lane].into()
            };
        }
        let active = cx.active;
        let mut out = [0; LANES];
        for lane in 0..LANES {
            for other in 0..LANES {
                let same = active >> other & 1 != 0 && values[lane] == values[other];
                out[lane] |= u32::from(same) << other;
            }
        }
        if ALL {
            let all = out[cx.first_lane() as usize] == active;
            out = [if all { active } else { 0 }; LANES];
            if op.dst2 != ABSENT {
                cx.set_predicate(op.dst2, if all { u32::MAX } else { 0 });
            }
        }
        cx.set_words(op.dst, &out);
    })
}

/// Add (0), unsigned min, max (1, 2), signed min, max (3, 4), and, or, xor.
fn run_reduce<const OPERATOR: u8>(cx: &mut Context<'_>, op: &Op) -> Step {
    in_groups(cx, op, |cx, op| {
        let values = *cx.words(op.a);
        let active = cx.active;
        let result = (0..LANES)
            .filter(|lane| active >> lane & 1 != 0)
            .map(|lane| values[lane])
            .reduce(|x, y| match OPERATOR {
                0 => x.wrapping_add(y),
                1 => x.min(y),
                2 => x.max(y),
                3 => (x as i32).min(y as i32) as u32,
                4 => (x as i32).max(y as i32) as u32,
                5 => x & y,
                6 => x | y,
                _ => x ^ y,
            });
        cx.set_words(op.dst, &[result.unwrap_or(0); LANES]);
    })
}

fn run_active_mask(cx: &mut Context<'_>, op: &Op) -> Step {
    cx.set_words(op.dst, &[cx.mask; LANES]);
    Step::Next
}

fn run_elect(cx: &mut Context<'_>, op: &Op) -> Step {
    in_groups(cx, op, |cx, op| {
        let leader = cx.first_lane();
        cx.set_words(op.dst, &[leader; LANES]);
        cx.set_predicate(op.dst2, 1 << leader);
    })
}
