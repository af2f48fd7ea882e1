//! `mbarrier`: arrival counts with phases in shared memory.
//!
//! The 64 bits are opaque to programs. Here: pending arrivals (bits 0 to 19),
//! arrivals of the next phase (20 to 39), pending transaction bytes (40 to 62,
//! signed), phase (63). A phase ends when both pending counts are 0.

use super::memory::{ordering, place, space};
use super::{Family, no_lanes, written};
use crate::machine::access::{Access, Space, addresses, resolve};
use crate::machine::context::Context;
use crate::machine::observe::AccessKind;
use crate::program::code::{ABSENT, Class, Op, Step, Variants, variants};
use crate::program::lower::{Lowering, Refusal, refuse};
use crate::program::modifiers::Modifiers;
use crate::program::operation::{Operation, Value};
use crate::ptx::ast::{Instruction, Operand, StateSpace};

pub const FAMILY: Family = Family {
    decoders: &[("mbarrier", decode)],
    lanes: no_lanes,
};

const INIT: u32 = 0;
const INVALIDATE: u32 = 1;
const ARRIVE: u32 = 2;
const ARRIVE_DROP: u32 = 3;
const EXPECT: u32 = 4;
const ARRIVE_EXPECT: u32 = 5;
const COMPLETE: u32 = 6;
const TEST: u32 = 7;
const TEST_PARITY: u32 = 8;

fn decode(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    let mut modifiers = Modifiers::of(instruction);
    if modifiers.take("pending_count") {
        return refuse("this form is not implemented");
    }
    let verb = modifiers.take_any(&[
        "init",
        "inval",
        "arrive",
        "arrive_drop",
        "expect_tx",
        "complete_tx",
        "test_wait",
        "try_wait",
    ]);
    let expecting = verb == Some(2) && modifiers.take("expect_tx");
    let parity = modifiers.take("parity");
    modifiers.take("noComplete");
    let kind = match (verb, expecting, parity) {
        (Some(0), ..) => INIT,
        (Some(1), ..) => INVALIDATE,
        (Some(2), false, _) => ARRIVE,
        (Some(2), true, _) => ARRIVE_EXPECT,
        (Some(3), ..) => ARRIVE_DROP,
        (Some(4), ..) => EXPECT,
        (Some(5), ..) => COMPLETE,
        (Some(6 | 7), _, false) => TEST,
        (Some(6 | 7), _, true) => TEST_PARITY,
        _ => return refuse("this form is not implemented"),
    };
    let (space, _) = space(&mut modifiers);
    ordering(&mut modifiers);
    while modifiers.take_type().is_some() {}
    modifiers.finish()?;
    let operands = instruction.operands.as_slice();
    let gives = matches!(
        kind,
        ARRIVE | ARRIVE_EXPECT | ARRIVE_DROP | TEST | TEST_PARITY
    );
    let has_target = gives && !matches!(operands.first(), Some(Operand::Address { .. }));
    let (target, rest) = match operands.split_first() {
        Some((target, rest)) if has_target => (Some(target), rest),
        _ => (None, operands),
    };
    let Some((address, sources)) = rest.split_first() else {
        return refuse("expected an address");
    };
    let class = if kind == TEST {
        Class::Long
    } else {
        Class::Word
    };
    let mut operation = prepare(lowering, kind, space, address)?;
    if let Some(source) = sources.first() {
        operation.c = lowering.source(source, class)?;
    }
    if let Some(target) = target {
        let class = if kind >= TEST {
            Class::Predicate
        } else {
            Class::Long
        };
        let dst = lowering.target(target, class)?;
        operation.dst = written(lowering, dst, class);
    }
    lowering.emit(operation);
    Ok(())
}

/// `cp.async.mbarrier.arrive{.noinc}`: the copies are done, so it arrives.
pub fn copies_arrived(
    lowering: &mut Lowering<'_>,
    instruction: &Instruction,
) -> Result<(), Refusal> {
    let [address] = instruction.operands.as_slice() else {
        return refuse("expected an address");
    };
    if !instruction.modifiers.iter().any(|m| m == "noinc") {
        // The pending count goes up and down by one.
        return Ok(());
    }
    let space = if instruction
        .modifiers
        .iter()
        .any(|m| m.starts_with("shared"))
    {
        Space::Shared
    } else {
        Space::Generic
    };
    let operation = prepare(lowering, ARRIVE, space, address)?;
    lowering.emit(operation);
    Ok(())
}

fn prepare(
    lowering: &mut Lowering<'_>,
    kind: u32,
    space: Space,
    address: &Operand,
) -> Result<Operation, Refusal> {
    let place = place(lowering, address, space)?;
    let mut operation = Operation::new(RUNS[0]);
    operation.variants = Some(&RUNS);
    operation.a = place.base;
    operation.imm = place.offset;
    operation.b = Value::Raw(lowering.tables.accesses.len() as u32);
    operation.fourth = Value::Raw(kind);
    lowering.tables.accesses.push(Access {
        space: place.space,
        report: StateSpace::Shared,
        kind: AccessKind::Atomic,
        element: 8,
        count: 1,
        signed: false,
        register: Class::Long,
        address: place.class,
        polls: true,
    });
    Ok(operation)
}

static RUNS: Variants = variants!(run);

/// The state taken apart.
#[derive(Clone, Copy)]
struct State {
    pending: u64,
    next: u64,
    bytes: i64,
    phase: u64,
}

const COUNT: u64 = (1 << 20) - 1;

impl State {
    fn of(raw: u64) -> Self {
        Self {
            pending: raw & COUNT,
            next: raw >> 20 & COUNT,
            bytes: (raw << 1) as i64 >> 41,
            phase: raw >> 63,
        }
    }

    fn raw(self) -> u64 {
        self.pending & COUNT
            | (self.next & COUNT) << 20
            | (self.bytes as u64 & ((1 << 23) - 1)) << 40
            | self.phase << 63
    }

    fn arrive(&mut self, count: u64) {
        self.pending = self.pending.saturating_sub(count);
        self.settle();
    }

    fn settle(&mut self) {
        if self.pending == 0 && self.bytes == 0 {
            self.phase ^= 1;
            self.pending = self.next;
        }
    }
}

unsafe fn run<const STRICT: bool, const EVENTS: bool>(cx: &mut Context<'_>, op: &Op) -> Step {
    let access = cx.grid.code.accesses[op.b as usize];
    let addresses = addresses(cx, &access, op);
    let host = match resolve::<STRICT, EVENTS>(cx, &access, &addresses) {
        Ok(host) => host,
        Err(step) => return step,
    };
    let mut truth = 0u32;
    for lane in 0..32 {
        if cx.active >> lane & 1 == 0 {
            continue;
        }
        let operand = match (op.c, op.aux) {
            (ABSENT, _) => None,
            (row, TEST) => Some(cx.longs(row)[lane]),
            (row, _) => Some(u64::from(cx.words(row)[lane])),
        };
        let at = host.at(lane, addresses[lane]).cast::<u64>();
        // SAFETY: `resolve` found the 8 bytes writable.
        let before = unsafe { at.read_unaligned() };
        let mut state = State::of(before);
        match op.aux {
            INIT => {
                let count = operand.unwrap_or(1);
                state = State {
                    pending: count,
                    next: count,
                    bytes: 0,
                    phase: 0,
                };
            }
            INVALIDATE => state = State::of(0),
            ARRIVE => state.arrive(operand.unwrap_or(1)),
            ARRIVE_DROP => {
                state.next = state.next.saturating_sub(operand.unwrap_or(1));
                state.arrive(operand.unwrap_or(1));
            }
            EXPECT => state.bytes += operand.unwrap_or(0) as i64,
            ARRIVE_EXPECT => {
                state.bytes += operand.unwrap_or(0) as i64;
                state.arrive(1);
            }
            COMPLETE => {
                state.bytes -= operand.unwrap_or(0) as i64;
                state.settle();
            }
            TEST => truth |= u32::from(operand.unwrap_or(0) >> 63 != state.phase) << lane,
            _ => truth |= u32::from(operand.unwrap_or(0) & 1 != state.phase) << lane,
        }
        if op.aux < TEST {
            // SAFETY: as above.
            unsafe { at.write_unaligned(state.raw()) };
            if op.dst != ABSENT {
                cx.longs_mut(op.dst)[lane] = before;
            }
        }
    }
    if op.aux >= TEST {
        cx.set_predicate(op.dst, truth);
    }
    Step::Next
}
