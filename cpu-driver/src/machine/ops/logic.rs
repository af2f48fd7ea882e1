//! Logic, shifts, selection, permutation.

use super::{Family, lane as decode_lane};
use crate::lane;
use crate::machine::lanes::LaneForm;
use crate::machine::numerics::single::flush;
use crate::program::code::{Class, Constant};
use crate::program::lower::{Lowering, Refusal, refuse};
use crate::program::operation::Value;
use crate::ptx::ast::{Instruction, Operand};

pub const FAMILY: Family = Family {
    decoders: &[("lop3", lop3), ("not", decode_lane)],
    lanes,
};

macro_rules! bitwise {
    ($out:ident, $t:ty, $name:literal) => {
        lane!($out, concat!("and.", $name), (a: $t, b: $t) -> $t, a & b);
        lane!($out, concat!("or.", $name), (a: $t, b: $t) -> $t, a | b);
        lane!($out, concat!("xor.", $name), (a: $t, b: $t) -> $t, a ^ b);
        lane!($out, concat!("not.", $name), (a: $t) -> $t, !a);
    };
}

macro_rules! selection {
    ($out:ident, $t:ty, $names:literal) => {
        lane!($out, concat!("selp.", $names), (a: $t, b: $t, p: bool) -> $t,
            if p { a } else { b });
        lane!($out, concat!("slct.", $names, ".s32"), (a: $t, b: $t, c: i32) -> $t,
            if c >= 0 { a } else { b });
        // A NaN selects the second operand.
        lane!($out, concat!("slct.", $names, ".f32"), (a: $t, b: $t, c: f32) -> $t,
            if c >= 0.0 { a } else { b });
        lane!($out, concat!("slct.ftz.", $names, ".f32"), (a: $t, b: $t, c: f32) -> $t,
            if flush(c) >= 0.0 { a } else { b });
    };
}

fn lanes(out: &mut Vec<LaneForm>) {
    bitwise!(out, bool, "pred");
    bitwise!(out, u16, "b16");
    bitwise!(out, u32, "b32");
    bitwise!(out, u64, "b64");
    selection!(out, u16, "{b16,u16,s16,f16,bf16}");
    selection!(out, u32, "{b32,u32,s32,f32}");
    selection!(out, u64, "{b64,u64,s64,f64}");
    lane!(out, "selp.pred", (a: bool, b: bool, p: bool) -> bool, if p { a } else { b });
    lane!(out, "cnot.b16", (a: u16) -> u16, u16::from(a == 0));
    lane!(out, "cnot.b32", (a: u32) -> u32, u32::from(a == 0));
    lane!(out, "cnot.b64", (a: u64) -> u64, u64::from(a == 0));
    shifts(out);
    lane!(out, "%lop3.b32", (a: u32, b: u32, c: u32, table: u32) -> u32,
        look_up(a, b, c, table));
    lane!(out, "%lop3.nonzero.b32", (a: u32, b: u32, c: u32, table: u32) -> bool,
        look_up(a, b, c, table) != 0);
    permutations(out);
}

fn shifts(out: &mut Vec<LaneForm>) {
    lane!(out, "shl.b16", (a: u16, n: u32) -> u16, if n > 15 { 0 } else { a << n });
    lane!(out, "shl.b32", (a: u32, n: u32) -> u32, if n > 31 { 0 } else { a << (n & 31) });
    lane!(out, "shl.b64", (a: u64, n: u32) -> u64, if n > 63 { 0 } else { a << (n & 63) });
    lane!(out, "shr.{u16,b16}", (a: u16, n: u32) -> u16, if n > 15 { 0 } else { a >> n });
    lane!(out, "shr.{u32,b32}", (a: u32, n: u32) -> u32, if n > 31 { 0 } else { a >> (n & 31) });
    lane!(out, "shr.{u64,b64}", (a: u64, n: u32) -> u64, if n > 63 { 0 } else { a >> (n & 63) });
    lane!(out, "shr.s16", (a: i16, n: u32) -> i16, a >> n.min(15));
    lane!(out, "shr.s32", (a: i32, n: u32) -> i32, a >> n.min(31));
    lane!(out, "shr.s64", (a: i64, n: u32) -> i64, a >> n.min(63));
    lane!(out, "shf.l.wrap.b32", (low: u32, high: u32, n: u32) -> u32,
        (both(low, high) << (n & 31) >> 32) as u32);
    lane!(out, "shf.r.wrap.b32", (low: u32, high: u32, n: u32) -> u32,
        (both(low, high) >> (n & 31)) as u32);
    lane!(out, "shf.l.clamp.b32", (low: u32, high: u32, n: u32) -> u32,
        (both(low, high) << n.min(32) >> 32) as u32);
    lane!(out, "shf.r.clamp.b32", (low: u32, high: u32, n: u32) -> u32,
        (both(low, high) >> n.min(32)) as u32);
}

fn both(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// Bit `4a+2b+c` of the table is the result for these input bits.
#[inline(always)]
fn look_up(a: u32, b: u32, c: u32, table: u32) -> u32 {
    let mut value = 0;
    for entry in 0..8 {
        let chosen = if table >> entry & 1 != 0 { u32::MAX } else { 0 };
        let a = if entry & 4 != 0 { a } else { !a };
        let b = if entry & 2 != 0 { b } else { !b };
        let c = if entry & 1 != 0 { c } else { !c };
        value |= a & b & c & chosen;
    }
    value
}

fn permutations(out: &mut Vec<LaneForm>) {
    fn byte(a: u32, b: u32, selector: u32) -> u32 {
        let value = (both(a, b) >> (8 * (selector & 7))) as u8;
        // Bit 3 replicates the byte's sign.
        if selector & 8 != 0 {
            if value & 0x80 != 0 { 0xff } else { 0 }
        } else {
            value.into()
        }
    }
    fn four(a: u32, b: u32, selectors: [u32; 4]) -> u32 {
        (0..4).fold(0, |value, i| value | byte(a, b, selectors[i]) << (8 * i))
    }
    lane!(out, "prmt.b32", (a: u32, b: u32, s: u32) -> u32,
        four(a, b, [s & 15, s >> 4 & 15, s >> 8 & 15, s >> 12 & 15]));
    lane!(out, "prmt.f4e.b32", (a: u32, b: u32, s: u32) -> u32, {
        let s = s & 3;
        four(a, b, [s, s + 1, s + 2, s + 3])
    });
    lane!(out, "prmt.b4e.b32", (a: u32, b: u32, s: u32) -> u32, {
        let s = s & 3;
        four(a, b, [s, (s + 7) & 7, (s + 6) & 7, (s + 5) & 7])
    });
    lane!(out, "prmt.rc8.b32", (a: u32, b: u32, s: u32) -> u32, four(a, b, [s & 3; 4]));
    lane!(out, "prmt.ecl.b32", (a: u32, b: u32, s: u32) -> u32, {
        let s = s & 3;
        four(a, b, [s, s.max(1), s.max(2), 3])
    });
    lane!(out, "prmt.ecr.b32", (a: u32, b: u32, s: u32) -> u32, {
        let s = s & 3;
        four(a, b, [0, s.min(1), s.min(2), s])
    });
    lane!(out, "prmt.rc16.b32", (a: u32, b: u32, s: u32) -> u32, {
        let s = 2 * (s & 1);
        four(a, b, [s, s + 1, s, s + 1])
    });
}

/// `lop3{.or,.and}.b32 d{|p}, a, b, c, table{, q}`
fn lop3(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    let words: Vec<&str> = instruction.modifiers.iter().map(String::as_str).collect();
    let combine = match words.as_slice() {
        ["b32"] => None,
        ["or", "b32"] => Some("or"),
        ["and", "b32"] => Some("and"),
        _ => return refuse("this form is not implemented"),
    };
    let (target, predicate, sources) = match (instruction.operands.as_slice(), combine) {
        ([target, sources @ ..], None) if sources.len() == 4 => (target, None, sources),
        ([Operand::Pair(target, predicate), sources @ ..], Some(_)) if sources.len() == 5 => {
            (&**target, Some(&**predicate), sources)
        }
        _ => return refuse("wrong number of operands"),
    };
    let Operand::Int(table) = &sources[3] else {
        return refuse("expected a constant table");
    };
    let mut values = [Value::None; 4];
    for at in 0..3 {
        values[at] = lowering.source(&sources[at], Class::Word)?;
    }
    values[3] = Value::Constant(Constant::Word(*table as u32));
    let find = |name: &str, words: &[&str]| {
        super::find_lane(name, words).ok_or_else(|| Refusal(format!("no form {name}")))
    };
    if let (Some(predicate), Some(combine)) = (predicate, combine) {
        let other = lowering.source(&sources[4], Class::Predicate)?;
        let dst = lowering.target(predicate, Class::Predicate)?;
        let found = Value::Register(lowering.new_register(Class::Predicate));
        let form = find("%lop3", &["nonzero", "b32"])?;
        super::emit_lane_values(lowering, &form, found, values)?;
        // The data result reads the sources too: write it before `p`.
        let target = lowering.target(target, Class::Word)?;
        let form = find("%lop3", &["b32"])?;
        super::emit_lane_values(lowering, &form, target, values)?;
        let form = find(combine, &["pred"])?;
        let operands = [found, other, Value::None, Value::None];
        super::emit_lane_values(lowering, &form, dst, operands)?;
        return Ok(());
    }
    let target = lowering.target(target, Class::Word)?;
    let form = find("%lop3", &["b32"])?;
    super::emit_lane_values(lowering, &form, target, values)?;
    Ok(())
}
