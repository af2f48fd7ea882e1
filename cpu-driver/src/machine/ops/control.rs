//! Branches, exits, traps, guards, and operations that are not implemented.

use super::{Family, no_lanes};
use crate::machine::context::Context;
use crate::machine::launch::Fault;
use crate::program::code::{Class, Exec, Op, Step};
use crate::program::lower::{Lowering, Refusal, refuse, with_flow};
use crate::program::modifiers::Modifiers;
use crate::program::operation::{Flow, Label, Operation, Value};
use crate::ptx::ast::{Guard, Instruction, Operand};

pub const FAMILY: Family = Family {
    decoders: &[
        ("exit", exit),
        ("ret", ret),
        ("trap", trap),
        ("brkpt", trap),
        ("brx", table_branch),
        ("nanosleep", pause),
        ("pmevent", nothing),
        ("setmaxnreg", nothing),
    ],
    lanes: no_lanes,
};

// Decoding -------------------------------------------------------------------

/// `bra`, with or without a guard.
pub fn branch(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    let mut modifiers = Modifiers::of(instruction);
    modifiers.take("uni");
    modifiers.finish()?;
    let [target] = instruction.operands.as_slice() else {
        return refuse("expected one label");
    };
    let label = lowering.label(target)?;
    let Some(guard) = &instruction.guard else {
        jump(lowering, label);
        return Ok(());
    };
    let predicate = lowering.source(&Operand::Name(guard.register.clone()), Class::Predicate)?;
    branch_if(lowering, predicate, guard.negated, label);
    Ok(())
}

pub fn jump(lowering: &mut Lowering<'_>, label: Label) {
    lowering.emit(with_flow(Operation::new(run_jump), Flow::Jump(label)));
}

/// Branches where `predicate` (or its negation) holds.
pub fn branch_if(lowering: &mut Lowering<'_>, predicate: Value, negated: bool, label: Label) {
    let mut operation = with_flow(Operation::new(run_branch), Flow::Branch(label));
    operation.a = predicate;
    operation.imm = if negated { u64::MAX } else { 0 };
    lowering.emit(operation);
}

/// The next operation runs only where `predicate` (or its negation) holds.
pub fn guard(lowering: &mut Lowering<'_>, predicate: Value, negated: bool) {
    let mut operation = Operation::new(run_guard);
    operation.a = predicate;
    operation.imm = if negated { u64::MAX } else { 0 };
    lowering.emit(operation);
}

/// A temporary with the opposite of a predicate.
pub fn negated(lowering: &mut Lowering<'_>, value: Value) -> Value {
    let register = Value::Register(lowering.new_register(Class::Predicate));
    let mut operation = Operation::new(run_not);
    operation.dst = register;
    operation.a = value;
    lowering.emit(operation);
    register
}

/// An operation that fails when reached.
pub fn refused(lowering: &mut Lowering<'_>, guard: Option<&Guard>, message: String) {
    let number = lowering.tables.refusals.len() as u64;
    lowering.tables.refusals.push(message);
    let mut operation = Operation::new(run_refused);
    operation.imm = number;
    if let Some(guard) = guard
        && let Ok(predicate) =
            lowering.source(&Operand::Name(guard.register.clone()), Class::Predicate)
    {
        self::guard(lowering, predicate, guard.negated);
        operation.partial = true;
    }
    lowering.emit(operation);
}

/// The end of a kernel or function.
pub fn leave(lowering: &mut Lowering<'_>) {
    let exec: Exec = if lowering.is_kernel {
        run_exit
    } else {
        super::call::run_ret
    };
    let mut operation = with_flow(Operation::new(exec), Flow::Leave);
    operation.whole = true;
    lowering.emit(operation);
}

fn exit(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    Modifiers::of(instruction).finish()?;
    let mut operation = with_flow(Operation::new(run_exit), Flow::Leave);
    operation.whole = true;
    lowering.emit(operation);
    Ok(())
}

fn ret(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    let mut modifiers = Modifiers::of(instruction);
    modifiers.take("uni");
    modifiers.finish()?;
    leave(lowering);
    Ok(())
}

fn trap(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    Modifiers::of(instruction).finish()?;
    let mut operation = with_flow(Operation::new(run_trap), Flow::Leave);
    operation.whole = true;
    lowering.emit(operation);
    Ok(())
}

/// `brx.idx index, table`
fn table_branch(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    let mut modifiers = Modifiers::of(instruction);
    modifiers.take("uni");
    if !modifiers.take("idx") {
        return refuse("expected brx.idx");
    }
    modifiers.finish()?;
    let [index, table] = instruction.operands.as_slice() else {
        return refuse("expected an index and a table of labels");
    };
    let labels = lowering.table(table)?;
    let mut operation = Operation::new(run_table);
    operation.a = lowering.source(index, Class::Word)?;
    operation.flow = Flow::Table(labels);
    operation.whole = true;
    lowering.emit(operation);
    Ok(())
}

fn pause(lowering: &mut Lowering<'_>, _: &Instruction) -> Result<(), Refusal> {
    lowering.emit(Operation::new(run_pause));
    Ok(())
}

fn nothing(_: &mut Lowering<'_>, _: &Instruction) -> Result<(), Refusal> {
    Ok(())
}

/// Code of the operation at a meeting place of divergent lanes.
pub fn join_exec() -> Exec {
    run_join
}

/// The code of a jump or branch whose target lies before it. Told by the flow: the address
/// of a function is not unique in an optimised build.
pub fn backward(flow: &Flow) -> Option<Exec> {
    match flow {
        Flow::Jump(_) => Some(run_jump_back),
        Flow::Branch(_) => Some(run_branch_back),
        _ => None,
    }
}

// Execution ------------------------------------------------------------------

fn run_join(cx: &mut Context<'_>, _: &Op) -> Step {
    cx.arrive_at_join()
}

fn run_jump(cx: &mut Context<'_>, op: &Op) -> Step {
    cx.pc = op.b;
    Step::Jump
}

fn run_jump_back(cx: &mut Context<'_>, op: &Op) -> Step {
    cx.jump_back(op.b)
}

fn run_branch(cx: &mut Context<'_>, op: &Op) -> Step {
    let taken = (cx.predicate(op.a) ^ op.imm as u32) & cx.mask;
    if taken == 0 {
        return Step::Next;
    }
    if taken == cx.mask {
        cx.pc = op.b;
        return Step::Jump;
    }
    split(cx, op, taken)
}

fn run_branch_back(cx: &mut Context<'_>, op: &Op) -> Step {
    let taken = (cx.predicate(op.a) ^ op.imm as u32) & cx.mask;
    if taken == 0 {
        return Step::Next;
    }
    if taken == cx.mask {
        return cx.jump_back(op.b);
    }
    split(cx, op, taken)
}

#[inline(never)]
fn split(cx: &mut Context<'_>, op: &Op, taken: u32) -> Step {
    let rest = cx.mask & !taken;
    let next = cx.pc + 1;
    if op.b == next {
        return Step::Next;
    }
    cx.diverge(&[(op.b, taken), (next, rest)], op.c)
}

fn run_table(cx: &mut Context<'_>, op: &Op) -> Step {
    let targets = cx.list(op, op.imm as usize);
    let indices = *cx.words(op.a);
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for (lane, index) in indices.iter().enumerate() {
        if cx.mask >> lane & 1 == 0 {
            continue;
        }
        let Some(pc) = targets.get(*index as usize) else {
            let site = (cx.grid.sites)(cx.pc);
            return cx.fault(Fault::Trap { site });
        };
        match parts.iter_mut().find(|(known, _)| known == pc) {
            Some((_, mask)) => *mask |= 1 << lane,
            None => parts.push((*pc, 1 << lane)),
        }
    }
    if let [(pc, _)] = parts[..] {
        if pc <= cx.pc {
            return cx.jump_back(pc);
        }
        cx.pc = pc;
        return Step::Jump;
    }
    cx.diverge(&parts, op.c)
}

/// Masks the next operation. Where the predicate holds for all lanes, or for
/// none, there is nothing to mask.
fn run_guard(cx: &mut Context<'_>, op: &Op) -> Step {
    let chosen = (cx.predicate(op.a) ^ op.imm as u32) & cx.mask;
    if chosen == cx.mask {
        return Step::Next;
    }
    cx.pc += 1;
    if chosen != 0 {
        let next = &cx.grid.ops[cx.pc as usize];
        cx.active = chosen;
        // SAFETY: as in `Context::execute`; a guard stands before an operation
        // of the same frame.
        let step = unsafe { (next.exec)(cx, next) };
        cx.active = cx.mask;
        if step != Step::Next {
            return step;
        }
    }
    cx.pc += 1;
    Step::Jump
}

fn run_not(cx: &mut Context<'_>, op: &Op) -> Step {
    let value = !cx.predicate(op.a);
    cx.set_predicate(op.dst, value);
    Step::Next
}

fn run_exit(cx: &mut Context<'_>, _: &Op) -> Step {
    cx.exit_active()
}

fn run_trap(cx: &mut Context<'_>, _: &Op) -> Step {
    let site = (cx.grid.sites)(cx.pc);
    cx.fault(Fault::Trap { site })
}

fn run_pause(cx: &mut Context<'_>, _: &Op) -> Step {
    cx.polled = true;
    Step::Next
}

#[cold]
fn run_refused(cx: &mut Context<'_>, op: &Op) -> Step {
    let site = (cx.grid.sites)(cx.pc);
    let place = site
        .frames
        .first()
        .map_or_else(String::new, |f| format!(" at {}:{}", f.file, f.line));
    let message = format!(
        "{}: {} (PTX line {}){place}: {}",
        cx.grid.kernel, site.instruction, site.ptx_line, cx.grid.code.refusals[op.imm as usize]
    );
    cx.fault(Fault::Unsupported { site, message })
}
