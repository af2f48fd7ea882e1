//! `bar`, `barrier`, fences.
//!
//! A barrier operation only notes who has arrived; the block opens barriers
//! after each round of its warps (see [`crate::machine::block`]).

use super::{Family, no_lanes};
use crate::machine::block::{BARRIERS, barrier_kind};
use crate::machine::context::{Context, Stop};
use crate::machine::launch::Fault;
use crate::machine::warp::State;
use crate::program::code::{ABSENT, Class, Constant, Op, Step};
use crate::program::lower::{Lowering, Refusal, refuse};
use crate::program::modifiers::Modifiers;
use crate::program::operation::{Operation, Value};
use crate::ptx::ast::Instruction;

pub const FAMILY: Family = Family {
    decoders: &[
        ("bar", bar),
        ("barrier", bar),
        ("membar", fence),
        ("fence", fence),
        ("griddepcontrol", nothing),
    ],
    lanes: no_lanes,
};

/// `bar{.cta}.sync a{, b}`, `.arrive a, b`, `.red.op d, a{, b}, {!}c`
fn bar(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    let mut modifiers = Modifiers::of(instruction);
    if instruction.modifiers.first().is_some_and(|m| m == "warp") {
        return super::warp::barrier(lowering, instruction);
    }
    if modifiers.take("cluster") {
        return cluster(lowering, instruction);
    }
    modifiers.take("cta");
    modifiers.take("aligned");
    let verb = modifiers.take_any(&["sync", "arrive", "red"]);
    let kind = match (verb, modifiers.take_any(&["popc", "and", "or"])) {
        (Some(0), None) => barrier_kind::SYNC,
        (Some(1), None) => barrier_kind::ARRIVE,
        (Some(2), Some(0)) => barrier_kind::COUNT,
        (Some(2), Some(1)) => barrier_kind::AND,
        (Some(2), Some(2)) => barrier_kind::OR,
        _ => return refuse("this form is not implemented"),
    };
    while modifiers.take_type().is_some() {}
    modifiers.finish()?;
    let mut operands = instruction.operands.as_slice();
    let mut operation = Operation::new(run_barrier);
    operation.whole = true;
    operation.imm = kind;
    if kind >= barrier_kind::COUNT {
        let ([target, inner @ .., source], true) = (operands, operands.len() >= 3) else {
            return refuse("expected a target, a barrier and a predicate");
        };
        let class = if kind == barrier_kind::COUNT {
            Class::Word
        } else {
            Class::Predicate
        };
        operation.dst = lowering.target(target, class)?;
        operation.c = lowering.source(source, Class::Predicate)?;
        operands = inner;
    }
    operation.a = match operands.first() {
        Some(id) => lowering.source(id, Class::Word)?,
        None => Value::Constant(Constant::Word(0)),
    };
    if let Some(count) = operands.get(1) {
        operation.b = lowering.source(count, Class::Word)?;
    } else if kind == barrier_kind::ARRIVE {
        return refuse("expected a thread count");
    }
    lowering.emit(operation);
    Ok(())
}

/// A cluster has one block: its barrier is one more barrier of the block.
fn cluster(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    if instruction.modifiers.iter().any(|m| m == "arrive") {
        return Ok(());
    }
    let mut operation = Operation::new(run_barrier);
    operation.whole = true;
    operation.imm = barrier_kind::SYNC;
    operation.a = Value::Constant(Constant::Word(BARRIERS as u32 - 1));
    lowering.emit(operation);
    Ok(())
}

/// Every thread's accesses happen in order and at once: fences have nothing to
/// do but to mark code that waits for others.
fn fence(lowering: &mut Lowering<'_>, _: &Instruction) -> Result<(), Refusal> {
    lowering.emit(Operation::new(run_fence));
    Ok(())
}

fn nothing(_: &mut Lowering<'_>, _: &Instruction) -> Result<(), Refusal> {
    Ok(())
}

fn run_fence(_: &mut Context<'_>, _: &Op) -> Step {
    Step::Next
}

fn run_barrier(cx: &mut Context<'_>, op: &Op) -> Step {
    let lane = cx.first_lane() as usize;
    let id = cx.words(op.a)[lane];
    let count = (op.b != ABSENT).then(|| cx.words(op.b)[lane]);
    let valid = (id as usize) < BARRIERS && count.is_none_or(|n| n != 0 && n % 32 == 0);
    if !valid {
        let site = (cx.grid.sites)(cx.pc);
        return cx.fault(Fault::Trap { site });
    }
    let mask = cx.mask;
    let truth = if op.c == ABSENT {
        0
    } else {
        cx.predicate(op.c) & mask
    };
    let warp = cx.warp.index as usize;
    let barrier = &mut cx.shared.barriers[id as usize];
    if barrier.arrived[warp] & mask != 0 {
        // Some of these lanes have arrived (`bar.arrive`) in this phase: they
        // may only come again in the next one.
        let split = cx.leave(cx.pc, State::Ready);
        cx.warp.splits.push(split);
        cx.polled = true;
        cx.stop = Stop::Held;
        return Step::Stop;
    }
    barrier.arrived[warp] |= mask;
    barrier.threads += mask.count_ones();
    barrier.ones += truth.count_ones();
    if count.is_some() {
        barrier.count = count;
    }
    if op.imm == barrier_kind::ARRIVE {
        return Step::Next;
    }
    let split = cx.leave(cx.pc, State::Barrier(id));
    cx.warp.splits.push(split);
    cx.stop(Stop::Gone)
}
