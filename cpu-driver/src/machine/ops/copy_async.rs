//! `cp.async`: copies from global to shared memory.
//!
//! A copy is carried out when it is issued; commits and waits have nothing
//! left to do. A program that reads too early is therefore not caught here.

use super::memory::{Place, place};
use super::{Family, mbarrier, no_lanes};
use crate::machine::access::{Access, Space, resolve, resolve_parts};
use crate::machine::context::Context;
use crate::machine::observe::AccessKind;
use crate::program::code::{ABSENT, Class, Op, Step, Variants, variants};
use crate::program::lower::{Lowering, Refusal, refuse};
use crate::program::modifiers::Modifiers;
use crate::program::operation::{Operation, Value};
use crate::ptx::ast::{Instruction, Operand, StateSpace};

pub const FAMILY: Family = Family {
    decoders: &[("cp", copy)],
    lanes: no_lanes,
};

fn copy(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    let mut modifiers = Modifiers::of(instruction);
    if !modifiers.take("async") {
        return refuse("this form is not implemented");
    }
    if modifiers.take("commit_group") || modifiers.take("wait_group") || modifiers.take("wait_all")
    {
        return modifiers.finish();
    }
    if instruction.modifiers.iter().any(|m| m == "mbarrier") {
        return mbarrier::copies_arrived(lowering, instruction);
    }
    if modifiers.take_any(&["ca", "cg"]).is_none() {
        return refuse("this form is not implemented");
    }
    modifiers.drop_prefix("L2::");
    modifiers.drop_prefix("shared");
    if !modifiers.take("global") {
        return refuse("expected a copy from global to shared memory");
    }
    modifiers.finish()?;
    let [to, from, Operand::Int(bytes), rest @ ..] = instruction.operands.as_slice() else {
        return refuse("expected a target, a source and a size");
    };
    let bytes = match bytes {
        4 | 8 | 16 => *bytes as u32,
        _ => return refuse("expected 4, 8 or 16 bytes"),
    };
    let to = place(lowering, to, Space::Shared)?;
    let from = place(lowering, from, Space::Global)?;
    let mut operation = Operation::new(COPIES[0]);
    operation.variants = Some(&COPIES);
    let first = lowering.tables.accesses.len() as u32;
    for (place, kind, report) in [
        (&to, AccessKind::Write, StateSpace::Shared),
        (&from, AccessKind::Read, StateSpace::Global),
    ] {
        lowering
            .tables
            .accesses
            .push(access(place, kind, report, bytes));
    }
    operation.a = to.base;
    operation.b = from.base;
    operation.imm = from.offset & 0xffff_ffff | to.offset << 32;
    operation.c = Value::Raw(first);
    // A source size (a word) or a predicate that drops the source.
    let (mut size, mut ignore) = (Value::None, Value::None);
    match rest.first() {
        Some(operand) if lowering.register_class(operand) == Some(Class::Predicate) => {
            ignore = lowering.source(operand, Class::Predicate)?;
        }
        Some(operand) if lowering.register_class(operand) != Some(Class::Long) => {
            size = lowering.source(operand, Class::Word)?;
        }
        _ => {}
    }
    operation.list = vec![(size, false), (ignore, false)];
    lowering.emit(operation);
    Ok(())
}

fn access(place: &Place, kind: AccessKind, report: StateSpace, bytes: u32) -> Access {
    Access {
        space: place.space,
        report,
        kind,
        element: bytes,
        count: 1,
        signed: false,
        register: Class::Word,
        address: place.class,
        polls: false,
    }
}

static COPIES: Variants = variants!(run_copy);

fn addresses_at(cx: &Context<'_>, class: Class, row: u32, offset: u32) -> [u64; 32] {
    let offset = offset as i32;
    std::array::from_fn(|lane| {
        if class == Class::Word {
            cx.words(row)[lane].wrapping_add_signed(offset).into()
        } else {
            cx.longs(row)[lane].wrapping_add_signed(offset.into())
        }
    })
}

unsafe fn run_copy<const STRICT: bool, const EVENTS: bool>(cx: &mut Context<'_>, op: &Op) -> Step {
    let accesses = &cx.grid.code.accesses;
    let (to, from) = (accesses[op.c as usize], accesses[op.c as usize + 1]);
    let list = cx.list(op, 2);
    let bytes = to.element;
    let mut sizes = [bytes; 32];
    let mut reading = 0u32;
    for lane in 0..32 {
        if list[0] != ABSENT {
            sizes[lane] = cx.words(list[0])[lane].min(bytes);
        }
        if list[1] != ABSENT && cx.predicate(list[1]) >> lane & 1 != 0 {
            sizes[lane] = 0;
        }
        reading |= u32::from(sizes[lane] != 0) << lane;
    }
    let targets = addresses_at(cx, to.address, op.a, (op.imm >> 32) as u32);
    let sources = addresses_at(cx, from.address, op.b, op.imm as u32);
    let target = match resolve::<STRICT, EVENTS>(cx, &to, &targets) {
        Ok(host) => host,
        Err(step) => return step,
    };
    let all = cx.active;
    cx.active &= reading;
    // Lanes that read nothing need no legal source.
    let source = if cx.active == 0 {
        None
    } else {
        let found = resolve_parts::<STRICT, EVENTS>(cx, &from, &sources, &sizes);
        match found {
            Ok(host) => Some(host),
            Err(step) => return step,
        }
    };
    cx.active = all;
    for lane in 0..32 {
        if all >> lane & 1 == 0 {
            continue;
        }
        let mut data = [0u8; 16];
        // SAFETY: of every lane, `bytes` bytes of the target and those that its
        // size says of the source were checked.
        unsafe {
            if let Some(source) = &source
                && sizes[lane] != 0
            {
                let at = source.at(lane, sources[lane]);
                std::ptr::copy_nonoverlapping(at, data.as_mut_ptr(), sizes[lane] as usize);
            }
            let at = target.at(lane, targets[lane]);
            std::ptr::copy_nonoverlapping(data.as_ptr(), at, bytes as usize);
        }
    }
    Step::Next
}
