//! `mov`, packing and unpacking of registers, and address conversions.

use super::{Family, emit_lane_values, find_lane, written};
use crate::lane;
use crate::machine::context::Context;
use crate::machine::lanes::LaneForm;
use crate::program::code::{Class, Constant, Exec, Op, Step};
use crate::program::lower::{Lowering, Refusal, class_of, refuse};
use crate::program::modifiers::{Modifiers, bytes_of};
use crate::program::operation::{Operation, Value};
use crate::ptx::ast::{Instruction, Operand};

pub const FAMILY: Family = Family {
    decoders: &[
        ("mov", mov),
        ("cvta", cvta),
        ("isspacep", isspacep),
        ("mapa", mapa),
    ],
    lanes,
};

const NONE: Value = Value::None;

fn lanes(out: &mut Vec<LaneForm>) {
    lane!(out, "%mov.b32", (a: u32) -> u32, a);
    lane!(out, "%mov.b64", (a: u64) -> u64, a);
    lane!(out, "%mov.b128", (a: u128) -> u128, a);
    lane!(out, "%mov.pred", (a: bool) -> bool, a);
    lane!(out, "%zext.b32", (a: u32) -> u64, a.into());
    lane!(out, "%trunc.b64", (a: u64) -> u32, a as u32);
    lane!(out, "%pack.b16x2", (a: u16, b: u16) -> u32, u32::from(b) << 16 | u32::from(a));
    lane!(out, "%pack.b8x2", (a: u8, b: u8) -> u32, u32::from(b) << 8 | u32::from(a));
    lane!(out, "%pack.b8x4", (a: u8, b: u8, c: u8, d: u8) -> u32,
        u32::from_le_bytes([a, b, c, d]));
    lane!(out, "%pack.b32x2", (a: u32, b: u32) -> u64, u64::from(b) << 32 | u64::from(a));
    lane!(out, "%pack.b16x4", (a: u16, b: u16, c: u16, d: u16) -> u64,
        u64::from(d) << 48 | u64::from(c) << 32 | u64::from(b) << 16 | u64::from(a));
    lane!(out, "%pack.b64x2", (a: u64, b: u64) -> u128, u128::from(b) << 64 | u128::from(a));
    lane!(out, "%pack.b32x4", (a: u32, b: u32, c: u32, d: u32) -> u128,
        u128::from(d) << 96 | u128::from(c) << 64 | u128::from(b) << 32 | u128::from(a));
    // Parts of a value; the second operand is a shift in bits.
    lane!(out, "%part.b8.b32", (a: u32, n: u32) -> u8, (a >> (n & 31)) as u8);
    lane!(out, "%part.b16.b32", (a: u32, n: u32) -> u16, (a >> (n & 31)) as u16);
    lane!(out, "%part.b16.b64", (a: u64, n: u32) -> u16, (a >> (n & 63)) as u16);
    lane!(out, "%part.b32.b64", (a: u64, n: u32) -> u32, (a >> (n & 63)) as u32);
    lane!(out, "%part.b32.b128", (a: u128, n: u32) -> u32, (a >> (n & 127)) as u32);
    lane!(out, "%part.b64.b128", (a: u128, n: u32) -> u64, (a >> (n & 127)) as u64);
    lane!(out, "%add.b64", (a: u64, b: u64) -> u64, a.wrapping_add(b));
}

fn form(name: &str, words: &[&str]) -> Result<LaneForm, Refusal> {
    find_lane(name, words).ok_or_else(|| Refusal(format!("no form {name}.{}", words.join("."))))
}

fn word_of(class: Class) -> &'static str {
    match class {
        Class::Predicate => "pred",
        Class::Quad => "b128",
        Class::Long => "b64",
        _ => "b32",
    }
}

/// Copies a value into a register.
pub fn copy(
    lowering: &mut Lowering<'_>,
    class: Class,
    dst: Value,
    from: Value,
) -> Result<(), Refusal> {
    let form = form("%mov", &[word_of(class)])?;
    let mut operation = Operation::new(form.exec());
    operation.dst = written(lowering, dst, class);
    operation.a = from;
    operation.copies = true;
    lowering.emit(operation);
    Ok(())
}

fn mov(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    let mut modifiers = Modifiers::of(instruction);
    let ty = modifiers.need_type()?;
    modifiers.finish()?;
    let [target, source] = instruction.operands.as_slice() else {
        return refuse("expected a target and a source");
    };
    match (target, source) {
        (Operand::Vector(parts), _) => unpack(lowering, bytes_of(ty), parts, source),
        (_, Operand::Vector(parts)) => pack(lowering, bytes_of(ty), target, parts),
        _ => {
            let class = class_of(ty);
            // A move of 32 bits may name a 64-bit register's class wrongly
            // only by mistake: `target` and `source` refuse that.
            let from = lowering.source(source, class)?;
            let dst = lowering.target(target, class)?;
            copy(lowering, class, dst, from)
        }
    }
}

/// `mov.b64 d, {a, b}`
fn pack(
    lowering: &mut Lowering<'_>,
    bytes: u32,
    target: &Operand,
    parts: &[Operand],
) -> Result<(), Refusal> {
    let count = parts.len() as u32;
    if count == 0 || !bytes.is_multiple_of(count) {
        return refuse("the parts do not fill the register");
    }
    let part = bytes / count;
    let word = format!("b{}x{count}", 8 * part);
    let form = form("%pack", &[&word])?;
    let mut values = [NONE; 4];
    for (at, operand) in parts.iter().enumerate() {
        values[at] = lowering.source(operand, form.src[at])?;
    }
    let dst = lowering.target(target, form.dst)?;
    emit_lane_values(lowering, &form, dst, values)?;
    Ok(())
}

/// `mov.b64 {a, b}, s`: `s` may be one of the targets.
fn unpack(
    lowering: &mut Lowering<'_>,
    bytes: u32,
    parts: &[Operand],
    source: &Operand,
) -> Result<(), Refusal> {
    let count = parts.len() as u32;
    if count == 0 || !bytes.is_multiple_of(count) {
        return refuse("the parts do not fill the register");
    }
    let part = 8 * bytes / count;
    let whole = match bytes {
        8 => "b64",
        16 => "b128",
        _ => "b32",
    };
    let form = form("%part", &[&format!("b{part}"), whole])?;
    let from = lowering.source(source, form.src[0])?;
    let mut found = Vec::new();
    for at in 0..count {
        let shift = Value::Constant(Constant::Word(at * part));
        let temporary = written(lowering, NONE, form.dst);
        emit_lane_values(lowering, &form, temporary, [from, shift, NONE, NONE])?;
        found.push(temporary);
    }
    for (operand, value) in parts.iter().zip(found) {
        if let dst @ Value::Register(_) = lowering.target(operand, form.dst)? {
            copy(lowering, form.dst, dst, value)?;
        }
    }
    Ok(())
}

/// `cvta{.to}.space.size d, a`: only shared, local and parameter addresses
/// differ from generic ones, by the start of their window.
fn cvta(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    let mut modifiers = Modifiers::of(instruction);
    let to = modifiers.take("to");
    let space = modifiers.take_any(&[
        "global",
        "const",
        "shared",
        "shared::cta",
        "shared::cluster",
        "local",
        "param",
        "param::entry",
    ]);
    let class = class_of(modifiers.need_type()?);
    modifiers.finish()?;
    let [target, source] = instruction.operands.as_slice() else {
        return refuse("expected a target and a source");
    };
    let Some(space) = space else {
        return refuse("expected a state space");
    };
    let from = lowering.source(source, class)?;
    let dst = lowering.target(target, class)?;
    if space < 2 {
        return copy(lowering, class, dst, from);
    }
    if class != Class::Long {
        return refuse("expected 64-bit addresses");
    }
    let shared = space < 5;
    let param = space > 5 && lowering.is_kernel;
    let exec: Exec = match (shared, param) {
        (true, _) => run_window::<0>,
        (_, true) => run_window::<2>,
        _ => run_window::<1>,
    };
    let mut operation = Operation::new(exec);
    operation.dst = written(lowering, dst, class);
    operation.a = from;
    operation.imm = u64::from(to);
    lowering.emit(operation);
    Ok(())
}

/// Adds (or, `cvta.to`, subtracts) the start of the shared (0), local (1) or
/// parameter (2) window.
fn run_window<const WINDOW: u8>(cx: &mut Context<'_>, op: &Op) -> Step {
    let start = window_start::<WINDOW>(cx);
    let mut value = *cx.longs(op.a);
    for address in &mut value {
        *address = if op.imm == 0 {
            address.wrapping_add(start)
        } else {
            address.wrapping_sub(start)
        };
    }
    cx.set_longs(op.dst, &value);
    Step::Next
}

fn window_start<const WINDOW: u8>(cx: &Context<'_>) -> u64 {
    match WINDOW {
        0 => cx.grid.view.shared_window().start,
        1 => cx.grid.view.local_window().start,
        _ => cx.grid.view.local_window().start + crate::machine::access::PARAM_WINDOW,
    }
}

/// `isspacep.space p, a`
fn isspacep(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    let mut modifiers = Modifiers::of(instruction);
    let space = modifiers.take_any(&[
        "global",
        "shared",
        "shared::cta",
        "shared::cluster",
        "local",
        "param",
        "param::entry",
        "const",
    ]);
    modifiers.finish()?;
    let [target, source] = instruction.operands.as_slice() else {
        return refuse("expected a target and a source");
    };
    let exec: Exec = match space {
        Some(0) => run_is_space::<0>,
        Some(1..=3) => run_is_space::<1>,
        Some(4) => run_is_space::<2>,
        Some(5 | 6) => run_is_space::<3>,
        Some(7) => run_is_space::<4>,
        _ => return refuse("this form is not implemented"),
    };
    let mut operation = Operation::new(exec);
    operation.dst = lowering.target(target, Class::Predicate)?;
    operation.a = lowering.source(source, Class::Long)?;
    lowering.emit(operation);
    Ok(())
}

fn run_is_space<const SPACE: u8>(cx: &mut Context<'_>, op: &Op) -> Step {
    use crate::machine::access::{Space, place};
    let mut found = 0;
    for (lane, address) in cx.longs(op.a).iter().enumerate() {
        let space = match place(cx, Space::Generic, *address).0 {
            Space::Shared => 1,
            Space::Local => 2,
            Space::Param => 3,
            Space::Global | Space::Generic if is_constant(cx, *address) => 4,
            Space::Global | Space::Generic => 0,
        };
        found |= u32::from(space == SPACE) << lane;
    }
    cx.set_predicate(op.dst, found);
    Step::Next
}

/// Constants of modules lie among the other allocations and are read-only.
fn is_constant(cx: &Context<'_>, address: u64) -> bool {
    cx.grid.memory.find(address).is_some_and(|found| {
        found.read_only && found.kind == crate::machine::memory::AllocationKind::Module
    })
}

/// `mapa`: a cluster has one block, so the address stays what it is.
fn mapa(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    let mut modifiers = Modifiers::of(instruction);
    modifiers.take_any(&["shared::cluster"]);
    let class = class_of(modifiers.need_type()?);
    modifiers.finish()?;
    let [target, source, _] = instruction.operands.as_slice() else {
        return refuse("expected a target, an address and a rank");
    };
    let from = lowering.source(source, class)?;
    let dst = lowering.target(target, class)?;
    copy(lowering, class, dst, from)
}
