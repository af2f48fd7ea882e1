//! `call` and `ret`.
//!
//! Parameters and results lie in the caller's and the callee's part of local
//! memory; a call copies arguments over, a return copies results back. The
//! lanes of one call meet again behind it.

use super::{Family, no_lanes};
use crate::machine::access;
use crate::machine::builtin::{self, Builtin};
use crate::machine::context::{Context, Stop};
use crate::machine::fill;
use crate::machine::launch::Fault;
use crate::machine::observe::Reaction;
use crate::machine::warp::{Activation, Join};
use crate::program::code::{ABSENT, CallSite, Callee, Class, LocalSlot, Op, Step};
use crate::program::lower::{Lowering, Refusal, refuse};
use crate::program::modifiers::Modifiers;
use crate::program::operation::Operation;
use crate::ptx::ast::{Instruction, Operand};

pub const FAMILY: Family = Family {
    decoders: &[("call", call)],
    lanes: no_lanes,
};

/// `call{.uni} (results), function, (arguments){, prototype}`
fn call(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    let mut modifiers = Modifiers::of(instruction);
    modifiers.take("uni");
    modifiers.finish()?;
    let (results, rest) = match instruction.operands.as_slice() {
        [Operand::List(results), rest @ ..] => (results.as_slice(), rest),
        rest => (&[][..], rest),
    };
    let (target, arguments) = match rest {
        [target, Operand::List(arguments), ..] => (target, arguments.as_slice()),
        [target, ..] => (target, &[][..]),
        [] => return refuse("expected a function"),
    };
    let slots = |lowering: &Lowering<'_>, list: &[Operand]| -> Result<Vec<LocalSlot>, Refusal> {
        list.iter()
            .map(|operand| {
                lowering.local(operand).ok_or_else(|| {
                    Refusal("arguments must be variables in parameter space".to_owned())
                })
            })
            .collect()
    };
    let arguments = slots(lowering, arguments)?;
    let results = slots(lowering, results)?;
    let mut operation = Operation::new(run_call);
    operation.whole = true;
    let callee = callee(lowering, target, &mut operation)?;
    operation.imm = lowering.tables.calls.len() as u64;
    lowering.tables.calls.push(CallSite {
        callee,
        arguments,
        results,
    });
    lowering.emit(operation);
    Ok(())
}

fn callee(
    lowering: &mut Lowering<'_>,
    target: &Operand,
    operation: &mut Operation,
) -> Result<Callee, Refusal> {
    if lowering.register_class(target) == Some(Class::Long) {
        operation.a = lowering.source(target, Class::Long)?;
        return Ok(Callee::Indirect);
    }
    let Operand::Name(name) = target else {
        return refuse("expected the name of a function");
    };
    if let Some(id) = lowering
        .linked
        .symbols
        .function_named(lowering.module, name)
        && let Some(index) = lowering.layout.index_of(id)
    {
        return Ok(Callee::Function(index));
    }
    match Builtin::named(name) {
        Some(builtin) => Ok(Callee::Builtin(builtin)),
        None => refuse(format!("the function {name} is not defined")),
    }
}

fn run_call(cx: &mut Context<'_>, op: &Op) -> Step {
    let site = &cx.grid.code.calls[op.imm as usize];
    match site.callee {
        Callee::Builtin(function) => builtin::call(cx, function, site),
        Callee::Function(function) => {
            let mask = cx.mask;
            enter(cx, op, &[(function, mask)])
        }
        Callee::Indirect => {
            let targets = *cx.longs(op.a);
            let mut groups: Vec<(u32, u32)> = Vec::new();
            for (lane, address) in targets.iter().enumerate() {
                if cx.mask >> lane & 1 == 0 {
                    continue;
                }
                let Some(function) = cx.grid.code.by_address.get(address) else {
                    let site = (cx.grid.sites)(cx.pc);
                    return cx.fault(Fault::Trap { site });
                };
                match groups.iter_mut().find(|(known, _)| known == function) {
                    Some((_, mask)) => *mask |= 1 << lane,
                    None => groups.push((*function, 1 << lane)),
                }
            }
            enter(cx, op, &groups)
        }
    }
}

/// Starts one activation a group of lanes; all meet behind the call.
fn enter(cx: &mut Context<'_>, op: &Op, groups: &[(u32, u32)]) -> Step {
    let return_pc = cx.pc + 1;
    let (caller, whole) = (cx.activation, cx.mask);
    let join = cx.warp.add_join(Join {
        pc: return_pc,
        activation: caller,
        expected: whole,
        arrived: 0,
        parent: cx.join,
    });
    cx.join = join;
    for (at, (function, mask)) in groups.iter().enumerate() {
        cx.set_mask(*mask);
        if let Err(step) = activate(cx, caller, *function, op.imm as u32, return_pc) {
            return step;
        }
        if at + 1 < groups.len() {
            let split = cx.leave(cx.pc, crate::machine::warp::State::Ready);
            cx.warp.splits.push(split);
        }
    }
    // Deep recursion counts as going round in circles.
    let entry = cx.pc;
    cx.jump_back(entry)
}

fn activate(
    cx: &mut Context<'_>,
    caller: u32,
    function: u32,
    call: u32,
    return_pc: u32,
) -> Result<(), Step> {
    let code = cx.grid.code;
    let outer = cx.warp.activations[caller as usize];
    let callee = &code.functions[function as usize];
    let local_base = outer.local_base + code.functions[outer.function as usize].local_bytes;
    let end = u64::from(local_base) + u64::from(callee.local_bytes);
    if end > cx.shared.local_stride() {
        return Err(overflow(cx, &callee.name, end));
    }
    let site = &code.calls[call as usize];
    for (from, to) in site.arguments.iter().zip(&callee.params) {
        copy_locals(cx, *from, outer.local_base, *to, local_base);
    }
    let mask = cx.mask;
    let activation = cx.warp.activate(Activation {
        function,
        frame: 0,
        frame_bytes: callee.frame_bytes,
        return_pc,
        parent: caller,
        call,
        local_base,
        lanes: mask,
    });
    fill::fill_frame(cx.warp, activation, cx.shared, cx.grid, true);
    cx.set_activation(activation);
    cx.pc = callee.entry;
    Ok(())
}

/// A call that needs more local memory than a thread has: an access beyond it,
/// as on hardware, where the callee's frame would be written.
#[cold]
fn overflow(cx: &mut Context<'_>, callee: &str, end: u64) -> Step {
    let site = (cx.grid.sites)(cx.pc);
    let message = format!(
        "stack overflow in a call of {callee}: {end} bytes of local memory are needed, a thread \
         has {}; raise CU_LIMIT_STACK_SIZE where the recursion is meant to go so deep",
        cx.shared.local_stride()
    );
    match access::local_overflow(cx, end.saturating_sub(4), &site) {
        Reaction::EndLaunch => cx.fault(Fault::StackOverflow { site, message }),
        Reaction::KillWarp => cx.stop(Stop::WarpKilled),
    }
}

/// Copies a variable of the current lanes between two activations.
fn copy_locals(cx: &mut Context<'_>, from: LocalSlot, from_base: u32, to: LocalSlot, to_base: u32) {
    let bytes = from.bytes.min(to.bytes);
    for lane in 0..32 {
        if cx.mask >> lane & 1 != 0 {
            let thread = cx.thread_of(lane);
            let from = u64::from(from_base + from.offset);
            let to = u64::from(to_base + to.offset);
            cx.shared.copy_local(thread, from, to, u64::from(bytes));
        }
    }
}

pub fn run_ret(cx: &mut Context<'_>, _: &Op) -> Step {
    let inner = cx.warp.activations[cx.activation as usize];
    if inner.call == ABSENT {
        return cx.exit_active();
    }
    let code = cx.grid.code;
    let callee = &code.functions[inner.function as usize];
    let outer = cx.warp.activations[inner.parent as usize];
    let site = &code.calls[inner.call as usize];
    for (from, to) in callee.returns.iter().zip(&site.results) {
        copy_locals(cx, *from, inner.local_base, *to, outer.local_base);
    }
    let mask = cx.mask;
    cx.warp.finish(cx.activation, mask);
    cx.set_activation(inner.parent);
    cx.pc = inner.return_pc;
    match cx.arrive_at_join() {
        Step::Next => Step::Jump,
        other => other,
    }
}
