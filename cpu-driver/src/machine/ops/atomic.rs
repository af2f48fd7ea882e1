//! `atom` and `red`: read, combine, write, for every lane in lane order.
//!
//! Each lane's update is one compare-and-exchange of the host, so that updates
//! from kernels on other streams are not lost.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::half;
use super::memory::{Shape, ordering, place, space};
use super::{Family, no_lanes, written};
use crate::machine::access::{Access, addresses, resolve};
use crate::machine::context::Context;
use crate::machine::lanes::LANES;
use crate::machine::numerics::half::{BF16, F16};
use crate::machine::numerics::single::{canonical, flush};
use crate::machine::observe::AccessKind;
use crate::program::code::{ABSENT, Class, Op, Step, Variants, variants};
use crate::program::lower::{Lowering, Refusal, class_of, refuse};
use crate::program::modifiers::{Modifiers, bytes_of};
use crate::program::operation::{Operation, Value};
use crate::ptx::ast::{Instruction, Operand, ScalarType};

pub const FAMILY: Family = Family {
    decoders: &[("atom", atomic), ("red", atomic)],
    lanes: no_lanes,
};

/// New value from the old one and the operands, all as bits.
type Combine = fn(u128, u128, u128) -> u128;

struct Row {
    name: &'static str,
    types: &'static [&'static str],
    combine: Combine,
}

macro_rules! row {
    ($name:literal, [$($ty:literal),*], $t:ty, $f:expr) => {
        Row {
            name: $name,
            types: &[$($ty),*],
            combine: |old, b, c| {
                let f: fn($t, $t, $t) -> $t = $f;
                f(old as $t, b as $t, c as $t) as u128
            },
        }
    };
}

/// Sums of pairs of 16-bit floats.
fn pair(old: u128, b: u128, f: fn(u16, u16) -> u16) -> u128 {
    let low = f(old as u16, b as u16);
    let high = f((old >> 16) as u16, (b >> 16) as u16);
    u128::from(high) << 16 | u128::from(low)
}

fn sum32(a: u32, b: u32) -> u32 {
    canonical(f32::from_bits(a) + f32::from_bits(b)).to_bits()
}

fn sum64(a: u64, b: u64) -> u64 {
    (f64::from_bits(a) + f64::from_bits(b)).to_bits()
}

static ROWS: [Row; 29] = [
    row!("add", ["u32", "s32"], u32, |old, b, _| old.wrapping_add(b)),
    row!("add", ["u64", "s64"], u64, |old, b, _| old.wrapping_add(b)),
    row!("add", ["f32"], u32, |old, b, _| sum32(old, b)),
    row!("add", ["f64"], u64, |old, b, _| sum64(old, b)),
    row!("add", ["f16"], u16, |old, b, _| half::add::<
        F16,
        false,
        false,
    >(old, b)),
    row!("add", ["bf16"], u16, |old, b, _| half::add::<
        BF16,
        false,
        false,
    >(old, b)),
    Row {
        name: "add",
        types: &["f16x2"],
        combine: |old, b, _| pair(old, b, half::add::<F16, false, false>),
    },
    Row {
        name: "add",
        types: &["bf16x2"],
        combine: |old, b, _| pair(old, b, half::add::<BF16, false, false>),
    },
    row!("min", ["u32"], u32, |old, b, _| old.min(b)),
    row!("max", ["u32"], u32, |old, b, _| old.max(b)),
    row!("min", ["s32"], u32, |old, b, _| (old as i32).min(b as i32)
        as u32),
    row!("max", ["s32"], u32, |old, b, _| (old as i32).max(b as i32)
        as u32),
    row!("min", ["u64"], u64, |old, b, _| old.min(b)),
    row!("max", ["u64"], u64, |old, b, _| old.max(b)),
    row!("min", ["s64"], u64, |old, b, _| (old as i64).min(b as i64)
        as u64),
    row!("max", ["s64"], u64, |old, b, _| (old as i64).max(b as i64)
        as u64),
    row!("inc", ["u32"], u32, |old, b, _| if old >= b {
        0
    } else {
        old + 1
    }),
    row!("dec", ["u32"], u32, |old, b, _| if old == 0 || old > b {
        b
    } else {
        old - 1
    }),
    row!("and", ["b32"], u32, |old, b, _| old & b),
    row!("or", ["b32"], u32, |old, b, _| old | b),
    row!("xor", ["b32"], u32, |old, b, _| old ^ b),
    row!("and", ["b64"], u64, |old, b, _| old & b),
    row!("or", ["b64"], u64, |old, b, _| old | b),
    row!("xor", ["b64"], u64, |old, b, _| old ^ b),
    row!("exch", ["b32", "b64", "b128"], u128, |_, b, _| b),
    row!("cas", ["b16"], u16, |old, b, c| if old == b {
        c
    } else {
        old
    }),
    row!("cas", ["b32"], u32, |old, b, c| if old == b {
        c
    } else {
        old
    }),
    row!("cas", ["b64"], u64, |old, b, c| if old == b {
        c
    } else {
        old
    }),
    row!("cas", ["b128"], u128, |old, b, c| if old == b {
        c
    } else {
        old
    }),
];

const NAMES: [&str; 10] = [
    "add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas",
];

/// `atom{.sem}{.scope}{.space}.op{.vec}.type d, [a], b{, c}` and `red`.
fn atomic(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    let mut modifiers = Modifiers::of(instruction);
    let (space, report) = space(&mut modifiers);
    ordering(&mut modifiers);
    modifiers.take("noftz");
    let Some(name) = modifiers.take_any(&NAMES).map(|at| NAMES[at]) else {
        return refuse("expected an atomic operation");
    };
    let count = match modifiers.take_any(&["v2", "v4", "v8"]) {
        Some(at) => 2u32 << at,
        None => 1,
    };
    let ty = modifiers.need_type()?;
    let word = instruction
        .modifiers
        .iter()
        .rfind(|m| crate::program::modifiers::scalar_type(m) == Some(ty));
    modifiers.finish()?;
    let row = ROWS.iter().position(|row| {
        row.name == name && word.is_some_and(|word| row.types.contains(&word.as_str()))
    });
    let Some(row) = row else {
        return refuse("this form is not implemented");
    };
    let (target, operands) = if instruction.opcode == "red" {
        (None, instruction.operands.as_slice())
    } else {
        match instruction.operands.split_first() {
            Some((target, rest)) => (Some(target), rest),
            None => return refuse("no operands"),
        }
    };
    let Some((address, sources)) = operands.split_first() else {
        return refuse("expected an address");
    };
    let shape = Shape {
        space,
        report,
        count,
        ty,
        polls: false,
    };
    let place = place(lowering, address, space)?;
    let class = class_of(ty);
    let mut operation = Operation::new(ATOMICS[0]);
    operation.variants = Some(&ATOMICS);
    operation.a = place.base;
    operation.imm = place.offset;
    operation.b = Value::Raw(lowering.tables.accesses.len() as u32);
    operation.c = Value::Raw(row as u32);
    lowering.tables.accesses.push(Access {
        space: place.space,
        report: shape.report,
        kind: AccessKind::Atomic,
        element: bytes_of(ty),
        count,
        signed: false,
        register: class,
        address: place.class,
        polls: false,
    });
    operands_of(lowering, &mut operation, target, sources, count, class, ty)?;
    lowering.emit(operation);
    Ok(())
}

/// The list: targets (or nothing), then for each element its two sources.
fn operands_of(
    lowering: &mut Lowering<'_>,
    operation: &mut Operation,
    target: Option<&Operand>,
    sources: &[Operand],
    count: u32,
    class: Class,
    ty: ScalarType,
) -> Result<(), Refusal> {
    let parts = |operand: &Operand| match operand {
        Operand::Vector(list) => list.clone(),
        one => vec![one.clone()],
    };
    let targets = target.map(parts).unwrap_or_default();
    for element in 0..count as usize {
        let dst = match targets.get(element) {
            Some(operand) => {
                let dst = lowering.target(operand, class)?;
                written(lowering, dst, class)
            }
            None => Value::None,
        };
        operation.list.push((dst, true));
    }
    let Some(first) = sources.first() else {
        return refuse(format!("expected a source of type {ty}"));
    };
    let first = parts(first);
    if first.len() != count as usize {
        return refuse(format!("expected {count} sources"));
    }
    for operand in &first {
        let b = lowering.source(operand, class)?;
        // A second source only where the operation compares; a third operand
        // of another kind would be a cache policy.
        let c = match sources.get(1) {
            Some(second) if count == 1 && operation.c == Value::Raw(row_of_cas(ty)) => {
                lowering.source(second, class)?
            }
            _ => Value::None,
        };
        operation.list.push((b, false));
        operation.list.push((c, false));
    }
    Ok(())
}

fn row_of_cas(ty: ScalarType) -> u32 {
    let word = match bytes_of(ty) {
        2 => "b16",
        4 => "b32",
        8 => "b64",
        _ => "b128",
    };
    ROWS.iter()
        .position(|row| row.name == "cas" && row.types.contains(&word))
        .map_or(ABSENT, |at| at as u32)
}

static ATOMICS: Variants = variants!(run_atomic);

unsafe fn run_atomic<const STRICT: bool, const EVENTS: bool>(
    cx: &mut Context<'_>,
    op: &Op,
) -> Step {
    let access = cx.grid.code.accesses[op.b as usize];
    let row = &ROWS[op.c as usize];
    let combine = if row.types == ["f32"] && in_global(&access) {
        // Sums of floats in global memory flush subnormals.
        |old: u128, b: u128, _: u128| {
            let (old, b) = (
                flush(f32::from_bits(old as u32)),
                flush(f32::from_bits(b as u32)),
            );
            u128::from(flush(canonical(old + b)).to_bits())
        }
    } else {
        row.combine
    };
    let addresses = addresses(cx, &access, op);
    let host = match resolve::<STRICT, EVENTS>(cx, &access, &addresses) {
        Ok(host) => host,
        Err(step) => return step,
    };
    let count = access.count as usize;
    let list = cx.list(op, 3 * count);
    let mut changed = false;
    for lane in 0..LANES {
        if cx.active >> lane & 1 == 0 {
            continue;
        }
        for element in 0..count {
            let (b, c) = (list[count + 2 * element], list[count + 2 * element + 1]);
            let b = value(cx, access.register, b, lane);
            let c = value(cx, access.register, c, lane);
            let at = host
                .at(lane, addresses[lane])
                .wrapping_add(element * access.element as usize);
            // SAFETY: `resolve` found the lane's bytes writable and aligned.
            let old = unsafe { update(at, access.element, &|old| combine(old, b, c)) };
            changed |= combine(old, b, c) != old;
            set_value(cx, access.register, list[element], lane, old);
        }
    }
    // Code that waits for others asks again and again and changes nothing.
    cx.polled |= !changed;
    Step::Next
}

fn in_global(access: &Access) -> bool {
    access.space == crate::machine::access::Space::Global
}

fn value(cx: &Context<'_>, class: Class, offset: u32, lane: usize) -> u128 {
    if offset == ABSENT {
        return 0;
    }
    match class {
        Class::Long => cx.longs(offset)[lane].into(),
        Class::Quad => cx.quads(offset)[lane],
        _ => cx.words(offset)[lane].into(),
    }
}

fn set_value(cx: &mut Context<'_>, class: Class, offset: u32, lane: usize, value: u128) {
    if offset == ABSENT {
        return;
    }
    match class {
        Class::Long => cx.longs_mut(offset)[lane] = value as u64,
        Class::Quad => cx.quads_mut(offset)[lane] = value,
        _ => cx.words_mut(offset)[lane] = value as u32,
    }
}

/// Replaces the value at `at` by `f` of it; gives the old one.
///
/// # Safety
/// `bytes` bytes at `at` are readable, writable and aligned.
unsafe fn update(at: *mut u8, bytes: u32, f: &dyn Fn(u128) -> u128) -> u128 {
    macro_rules! swap {
        ($atomic:ty, $t:ty) => {{
            // SAFETY: the caller's promise.
            let cell = unsafe { <$atomic>::from_ptr(at.cast()) };
            let mut old = cell.load(Ordering::Relaxed);
            loop {
                let new = f(old.into()) as $t;
                match cell.compare_exchange_weak(old, new, Ordering::SeqCst, Ordering::Relaxed) {
                    Ok(_) => return old.into(),
                    Err(now) => old = now,
                }
            }
        }};
    }
    match bytes {
        2 => swap!(AtomicU16, u16),
        4 => swap!(AtomicU32, u32),
        8 => swap!(AtomicU64, u64),
        _ => {
            // No 16-byte exchange on every host: two kernels that do this to
            // one place at once are not supported.
            // SAFETY: the caller's promise.
            unsafe {
                let old = at.cast::<u128>().read_unaligned();
                at.cast::<u128>().write_unaligned(f(old));
                old
            }
        }
    }
}
