//! Integer arithmetic: `add` to `dp4a`, carries included.
//!
//! Division by zero gives all ones and the remainder the dividend, as the
//! hardware's division routine does.

use super::{Family, emit_lane_values, find_lane, lane as decode_lane};
use crate::lane;
use crate::machine::lanes::LaneForm;
use crate::program::code::Class;
use crate::program::lower::{Lowering, Refusal, refuse};
use crate::program::modifiers::Modifiers;
use crate::program::operation::Value;
use crate::ptx::ast::{Instruction, ScalarType};

pub const FAMILY: Family = Family {
    decoders: &[
        ("add", carrying),
        ("addc", carrying),
        ("sub", carrying),
        ("subc", carrying),
        ("mad", carrying),
        ("madc", carrying),
    ],
    lanes,
};

fn lanes(out: &mut Vec<LaneForm>) {
    arithmetic(out);
    products(out);
    bits(out);
    dot_products(out);
    carries(out);
}

/// Operations that exist for a signed and an unsigned type of each width.
macro_rules! each_width {
    ($out:ident, $s:ty, $u:ty, $width:literal) => {
        lane!($out, concat!("add.{u", $width, ",s", $width, "}"),
            (a: $u, b: $u) -> $u, a.wrapping_add(b));
        lane!($out, concat!("sub.{u", $width, ",s", $width, "}"),
            (a: $u, b: $u) -> $u, a.wrapping_sub(b));
        lane!($out, concat!("mul.lo.{u", $width, ",s", $width, "}"),
            (a: $u, b: $u) -> $u, a.wrapping_mul(b));
        lane!($out, concat!("mad.lo.{u", $width, ",s", $width, "}"),
            (a: $u, b: $u, c: $u) -> $u, a.wrapping_mul(b).wrapping_add(c));
        lane!($out, concat!("div.u", $width),
            (a: $u, b: $u) -> $u, a.checked_div(b).unwrap_or(<$u>::MAX));
        lane!($out, concat!("div.s", $width),
            (a: $s, b: $s) -> $s, if b == 0 { -1 } else { a.wrapping_div(b) });
        lane!($out, concat!("rem.u", $width),
            (a: $u, b: $u) -> $u, a.checked_rem(b).unwrap_or(a));
        lane!($out, concat!("rem.s", $width),
            (a: $s, b: $s) -> $s, if b == 0 { a } else { a.wrapping_rem(b) });
        lane!($out, concat!("min.u", $width), (a: $u, b: $u) -> $u, a.min(b));
        lane!($out, concat!("min.s", $width), (a: $s, b: $s) -> $s, a.min(b));
        lane!($out, concat!("max.u", $width), (a: $u, b: $u) -> $u, a.max(b));
        lane!($out, concat!("max.s", $width), (a: $s, b: $s) -> $s, a.max(b));
        lane!($out, concat!("abs.s", $width), (a: $s) -> $s, a.wrapping_abs());
        lane!($out, concat!("neg.s", $width), (a: $s) -> $s, a.wrapping_neg());
        lane!($out, concat!("sad.u", $width),
            (a: $u, b: $u, c: $u) -> $u, a.abs_diff(b).wrapping_add(c));
        lane!($out, concat!("sad.s", $width),
            (a: $s, b: $s, c: $u) -> $u, a.abs_diff(b).wrapping_add(c));
    };
}

fn arithmetic(out: &mut Vec<LaneForm>) {
    each_width!(out, i16, u16, "16");
    each_width!(out, i32, u32, "32");
    each_width!(out, i64, u64, "64");
    lane!(out, "add.sat.s32", (a: i32, b: i32) -> i32, a.saturating_add(b));
    lane!(out, "sub.sat.s32", (a: i32, b: i32) -> i32, a.saturating_sub(b));
    lane!(out, "min.relu.s32", (a: i32, b: i32) -> i32, a.min(b).max(0));
    lane!(out, "max.relu.s32", (a: i32, b: i32) -> i32, a.max(b).max(0));
    pairs(out);
}

/// Two 16-bit numbers in a word.
fn pairs(out: &mut Vec<LaneForm>) {
    fn both(a: u32, b: u32, f: impl Fn(u16, u16) -> u16) -> u32 {
        u32::from(f(a as u16, b as u16)) | u32::from(f((a >> 16) as u16, (b >> 16) as u16)) << 16
    }
    lane!(out, "add.{u16x2,s16x2}", (a: u32, b: u32) -> u32, both(a, b, u16::wrapping_add));
    lane!(out, "min.u16x2", (a: u32, b: u32) -> u32, both(a, b, Ord::min));
    lane!(out, "max.u16x2", (a: u32, b: u32) -> u32, both(a, b, Ord::max));
    lane!(out, "min.s16x2", (a: u32, b: u32) -> u32,
        both(a, b, |x, y| (x as i16).min(y as i16) as u16));
    lane!(out, "max.s16x2", (a: u32, b: u32) -> u32,
        both(a, b, |x, y| (x as i16).max(y as i16) as u16));
    lane!(out, "min.relu.s16x2", (a: u32, b: u32) -> u32,
        both(a, b, |x, y| (x as i16).min(y as i16).max(0) as u16));
    lane!(out, "max.relu.s16x2", (a: u32, b: u32) -> u32,
        both(a, b, |x, y| (x as i16).max(y as i16).max(0) as u16));
}

fn products(out: &mut Vec<LaneForm>) {
    lane!(out, "mul.hi.u16", (a: u16, b: u16) -> u16, (u32::from(a) * u32::from(b) >> 16) as u16);
    lane!(out, "mul.hi.s16", (a: i16, b: i16) -> i16, (i32::from(a) * i32::from(b) >> 16) as i16);
    lane!(out, "mul.hi.u32", (a: u32, b: u32) -> u32, (u64::from(a) * u64::from(b) >> 32) as u32);
    lane!(out, "mul.hi.s32", (a: i32, b: i32) -> i32, (i64::from(a) * i64::from(b) >> 32) as i32);
    lane!(out, "mul.hi.u64", (a: u64, b: u64) -> u64,
        (u128::from(a) * u128::from(b) >> 64) as u64);
    lane!(out, "mul.hi.s64", (a: i64, b: i64) -> i64,
        (i128::from(a) * i128::from(b) >> 64) as i64);
    lane!(out, "mul.wide.u16", (a: u16, b: u16) -> u32, u32::from(a) * u32::from(b));
    lane!(out, "mul.wide.s16", (a: i16, b: i16) -> i32, i32::from(a) * i32::from(b));
    lane!(out, "mul.wide.u32", (a: u32, b: u32) -> u64, u64::from(a) * u64::from(b));
    lane!(out, "mul.wide.s32", (a: i32, b: i32) -> i64, i64::from(a) * i64::from(b));
    lane!(out, "mad.hi.u16", (a: u16, b: u16, c: u16) -> u16,
        ((u32::from(a) * u32::from(b) >> 16) as u16).wrapping_add(c));
    lane!(out, "mad.hi.s16", (a: i16, b: i16, c: i16) -> i16,
        ((i32::from(a) * i32::from(b) >> 16) as i16).wrapping_add(c));
    lane!(out, "mad.hi.u32", (a: u32, b: u32, c: u32) -> u32,
        ((u64::from(a) * u64::from(b) >> 32) as u32).wrapping_add(c));
    lane!(out, "mad.hi.s32", (a: i32, b: i32, c: i32) -> i32,
        ((i64::from(a) * i64::from(b) >> 32) as i32).wrapping_add(c));
    lane!(out, "mad.hi.sat.s32", (a: i32, b: i32, c: i32) -> i32,
        ((i64::from(a) * i64::from(b) >> 32) as i32).saturating_add(c));
    lane!(out, "mad.hi.u64", (a: u64, b: u64, c: u64) -> u64,
        ((u128::from(a) * u128::from(b) >> 64) as u64).wrapping_add(c));
    lane!(out, "mad.hi.s64", (a: i64, b: i64, c: i64) -> i64,
        ((i128::from(a) * i128::from(b) >> 64) as i64).wrapping_add(c));
    lane!(out, "mad.wide.u16", (a: u16, b: u16, c: u32) -> u32,
        (u32::from(a) * u32::from(b)).wrapping_add(c));
    lane!(out, "mad.wide.s16", (a: i16, b: i16, c: i32) -> i32,
        (i32::from(a) * i32::from(b)).wrapping_add(c));
    lane!(out, "mad.wide.u32", (a: u32, b: u32, c: u64) -> u64,
        (u64::from(a) * u64::from(b)).wrapping_add(c));
    lane!(out, "mad.wide.s32", (a: i32, b: i32, c: i64) -> i64,
        (i64::from(a) * i64::from(b)).wrapping_add(c));
    small_products(out);
}

/// `mul24` and `mad24`: the operands are 24 bits wide.
fn small_products(out: &mut Vec<LaneForm>) {
    fn unsigned(a: u32, b: u32) -> u64 {
        u64::from(a & 0xff_ffff) * u64::from(b & 0xff_ffff)
    }
    fn signed(a: u32, b: u32) -> i64 {
        i64::from((a << 8) as i32 >> 8) * i64::from((b << 8) as i32 >> 8)
    }
    lane!(out, "mul24.lo.u32", (a: u32, b: u32) -> u32, unsigned(a, b) as u32);
    lane!(out, "mul24.lo.s32", (a: u32, b: u32) -> u32, signed(a, b) as u32);
    lane!(out, "mul24.hi.u32", (a: u32, b: u32) -> u32, (unsigned(a, b) >> 16) as u32);
    lane!(out, "mul24.hi.s32", (a: u32, b: u32) -> u32, (signed(a, b) >> 16) as u32);
    lane!(out, "mad24.lo.u32", (a: u32, b: u32, c: u32) -> u32,
        (unsigned(a, b) as u32).wrapping_add(c));
    lane!(out, "mad24.lo.s32", (a: u32, b: u32, c: u32) -> u32,
        (signed(a, b) as u32).wrapping_add(c));
    lane!(out, "mad24.hi.sat.s32", (a: u32, b: u32, c: i32) -> i32,
        ((signed(a, b) >> 16) as i32).saturating_add(c));
    lane!(out, "mad24.hi.u32", (a: u32, b: u32, c: u32) -> u32,
        ((unsigned(a, b) >> 16) as u32).wrapping_add(c));
    lane!(out, "mad24.hi.s32", (a: u32, b: u32, c: u32) -> u32,
        ((signed(a, b) >> 16) as u32).wrapping_add(c));
}

fn bits(out: &mut Vec<LaneForm>) {
    lane!(out, "popc.b32", (a: u32) -> u32, a.count_ones());
    lane!(out, "popc.b64", (a: u64) -> u32, a.count_ones());
    lane!(out, "clz.b32", (a: u32) -> u32, a.leading_zeros());
    lane!(out, "clz.b64", (a: u64) -> u32, a.leading_zeros());
    lane!(out, "brev.b32", (a: u32) -> u32, a.reverse_bits());
    lane!(out, "brev.b64", (a: u64) -> u64, a.reverse_bits());
    lane!(out, "bfind.u32", (a: u32) -> u32, 31u32.wrapping_sub(a.leading_zeros()));
    lane!(out, "bfind.u64", (a: u64) -> u32, 63u32.wrapping_sub(a.leading_zeros()));
    lane!(out, "bfind.s32", (a: i32) -> u32,
        31u32.wrapping_sub((a ^ a >> 31).leading_zeros()));
    lane!(out, "bfind.s64", (a: i64) -> u32,
        63u32.wrapping_sub((a ^ a >> 63).leading_zeros()));
    lane!(out, "bfind.shiftamt.u32", (a: u32) -> u32,
        if a == 0 { u32::MAX } else { a.leading_zeros() });
    lane!(out, "bfind.shiftamt.u64", (a: u64) -> u32,
        if a == 0 { u32::MAX } else { a.leading_zeros() });
    lane!(out, "bfind.shiftamt.s32", (a: i32) -> u32, {
        let a = a ^ a >> 31;
        if a == 0 { u32::MAX } else { a.leading_zeros() }
    });
    lane!(out, "bfind.shiftamt.s64", (a: i64) -> u32, {
        let a = a ^ a >> 63;
        if a == 0 { u32::MAX } else { a.leading_zeros() }
    });
    lane!(out, "fns.b32", (mask: u32, base: u32, offset: i32) -> u32,
        nth_set(mask, base, offset));
    lane!(out, "bmsk.clamp.b32", (a: u32, b: u32) -> u32, bit_mask(a.min(32), b.min(32)));
    lane!(out, "bmsk.wrap.b32", (a: u32, b: u32) -> u32, bit_mask(a & 31, b & 31));
    lane!(out, "szext.clamp.u32", (a: u32, n: u32) -> u32, extended(a.into(), n.min(32)) as u32);
    lane!(out, "szext.wrap.u32", (a: u32, n: u32) -> u32, extended(a.into(), n & 31) as u32);
    lane!(out, "szext.clamp.s32", (a: u32, n: u32) -> u32, sign_extended(a, n.min(32)));
    lane!(out, "szext.wrap.s32", (a: u32, n: u32) -> u32, sign_extended(a, n & 31));
    fields(out);
}

fn bit_mask(at: u32, width: u32) -> u32 {
    ((((1u64 << width) - 1) << at) & 0xffff_ffff) as u32
}

fn extended(value: u64, bits: u32) -> u64 {
    value & ((1 << bits) - 1)
}

fn sign_extended(value: u32, bits: u32) -> u32 {
    match bits {
        0 => 0,
        _ => ((value << (32 - bits)) as i32 >> (32 - bits)) as u32,
    }
}

/// Position of the n-th set bit from `base` on, upwards or downwards.
fn nth_set(mask: u32, base: u32, offset: i32) -> u32 {
    if base > 31 {
        return u32::MAX;
    }
    if offset == 0 {
        return if mask >> base & 1 != 0 {
            base
        } else {
            u32::MAX
        };
    }
    let mut left = offset.unsigned_abs();
    let mut at = i64::from(base);
    while (0..32).contains(&at) {
        left -= mask >> at & 1;
        if left == 0 {
            return at as u32;
        }
        at += if offset > 0 { 1 } else { -1 };
    }
    u32::MAX
}

/// `bfe` and `bfi`: in the 32-bit forms position and length are the low bytes
/// of their operands, in the 64-bit forms all of them.
fn fields(out: &mut Vec<LaneForm>) {
    fn signed(a: u64, position: u32, length: u32, width: u32) -> u64 {
        let top = width - 1;
        let sign_at = position.saturating_add(length).saturating_sub(1).min(top);
        let sign = length != 0 && a >> sign_at & 1 != 0;
        let mut value = 0u64;
        for bit in 0..width {
            let from = position.saturating_add(bit);
            let set = if bit < length && from <= top {
                a >> from & 1 != 0
            } else {
                sign
            };
            value |= u64::from(set) << bit;
        }
        value
    }
    fn unsigned(a: u64, position: u32, length: u32) -> u64 {
        let moved = a.checked_shr(position).unwrap_or(0);
        if length >= 64 {
            moved
        } else {
            extended(moved, length)
        }
    }
    fn insert(a: u64, b: u64, position: u32, length: u32) -> u64 {
        let ones = if length >= 64 {
            u64::MAX
        } else {
            (1 << length) - 1
        };
        let mask = ones.checked_shl(position).unwrap_or(0);
        b & !mask | a.checked_shl(position).unwrap_or(0) & mask
    }
    lane!(out, "bfe.u32", (a: u32, p: u32, n: u32) -> u32, unsigned(a.into(), p & 0xff, n & 0xff) as u32);
    lane!(out, "bfe.u64", (a: u64, p: u32, n: u32) -> u64, unsigned(a, p, n));
    lane!(out, "bfe.s32", (a: u32, p: u32, n: u32) -> u32, signed(a.into(), p & 0xff, n & 0xff, 32) as u32);
    lane!(out, "bfe.s64", (a: u64, p: u32, n: u32) -> u64, signed(a, p, n, 64));
    lane!(out, "bfi.b32", (a: u32, b: u32, p: u32, n: u32) -> u32,
        insert(a.into(), b.into(), p & 0xff, n & 0xff) as u32);
    lane!(out, "bfi.b64", (a: u64, b: u64, p: u32, n: u32) -> u64, insert(a, b, p, n));
}

fn dot_products(out: &mut Vec<LaneForm>) {
    fn four<const A: bool, const B: bool>(a: u32, b: u32, c: u32) -> u32 {
        let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
        (0..4).fold(c, |sum, i| {
            sum.wrapping_add((byte::<A>(a[i]) * byte::<B>(b[i])) as u32)
        })
    }
    fn two<const A: bool, const B: bool>(a: u32, b: u32, c: u32, high: usize) -> u32 {
        let b = b.to_le_bytes();
        (0..2).fold(c, |sum, i| {
            let half = (a >> (16 * i)) as u16;
            let half = if A {
                i32::from(half as i16)
            } else {
                i32::from(half)
            };
            sum.wrapping_add(half.wrapping_mul(byte::<B>(b[2 * high + i])) as u32)
        })
    }
    fn byte<const SIGNED: bool>(b: u8) -> i32 {
        if SIGNED {
            i32::from(b as i8)
        } else {
            i32::from(b)
        }
    }
    lane!(out, "dp4a.u32.u32", (a: u32, b: u32, c: u32) -> u32, four::<false, false>(a, b, c));
    lane!(out, "dp4a.u32.s32", (a: u32, b: u32, c: u32) -> u32, four::<false, true>(a, b, c));
    lane!(out, "dp4a.s32.u32", (a: u32, b: u32, c: u32) -> u32, four::<true, false>(a, b, c));
    lane!(out, "dp4a.s32.s32", (a: u32, b: u32, c: u32) -> u32, four::<true, true>(a, b, c));
    lane!(out, "dp2a.lo.u32.u32", (a: u32, b: u32, c: u32) -> u32, two::<false, false>(a, b, c, 0));
    lane!(out, "dp2a.lo.u32.s32", (a: u32, b: u32, c: u32) -> u32, two::<false, true>(a, b, c, 0));
    lane!(out, "dp2a.lo.s32.u32", (a: u32, b: u32, c: u32) -> u32, two::<true, false>(a, b, c, 0));
    lane!(out, "dp2a.lo.s32.s32", (a: u32, b: u32, c: u32) -> u32, two::<true, true>(a, b, c, 0));
    lane!(out, "dp2a.hi.u32.u32", (a: u32, b: u32, c: u32) -> u32, two::<false, false>(a, b, c, 1));
    lane!(out, "dp2a.hi.u32.s32", (a: u32, b: u32, c: u32) -> u32, two::<false, true>(a, b, c, 1));
    lane!(out, "dp2a.hi.s32.u32", (a: u32, b: u32, c: u32) -> u32, two::<true, false>(a, b, c, 1));
    lane!(out, "dp2a.hi.s32.s32", (a: u32, b: u32, c: u32) -> u32, two::<true, true>(a, b, c, 1));
}

/// Sums with a carry in, and their carry out, under names of our own.
fn carries(out: &mut Vec<LaneForm>) {
    lane!(out, "%sum.u32", (a: u32, b: u32, c: bool) -> u32,
        a.wrapping_add(b).wrapping_add(c.into()));
    lane!(out, "%carry.u32", (a: u32, b: u32, c: bool) -> bool,
        u64::from(a) + u64::from(b) + u64::from(c) > u64::from(u32::MAX));
    lane!(out, "%sum.u64", (a: u64, b: u64, c: bool) -> u64,
        a.wrapping_add(b).wrapping_add(c.into()));
    lane!(out, "%carry.u64", (a: u64, b: u64, c: bool) -> bool,
        u128::from(a) + u128::from(b) + u128::from(c) > u128::from(u64::MAX));
    lane!(out, "%copy.pred", (a: bool) -> bool, a);
}

/// `add` and its kin, with `.cc` and carries in or without.
fn carrying(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    let takes = instruction.opcode.ends_with('c');
    let gives = instruction.modifiers.iter().any(|m| m == "cc");
    if !takes && !gives {
        return decode_lane(lowering, instruction);
    }
    let mut modifiers = Modifiers::of(instruction);
    modifiers.take("cc");
    let half = modifiers.take_any(&["lo", "hi"]);
    let ty = modifiers.need_type()?;
    modifiers.finish()?;
    let wide = matches!(ty, ScalarType::U64 | ScalarType::S64 | ScalarType::B64);
    let (class, suffix) = if wide {
        (Class::Long, "u64")
    } else {
        (Class::Word, "u32")
    };
    let form = |name: &str, modifiers: &[&str]| {
        find_lane(name, modifiers).ok_or_else(|| Refusal(format!("no form {name}")))
    };
    let Some((target, given)) = instruction.operands.split_first() else {
        return refuse("no operands");
    };
    let dst = lowering.target(target, class)?;
    let mut values = Vec::new();
    for operand in given {
        values.push(lowering.source(operand, class)?);
    }
    let temporary =
        |lowering: &mut Lowering<'_>, class| Value::Register(lowering.new_register(class));
    let subtracts = instruction.opcode.starts_with("sub");
    let (left, right) = match (values.as_slice(), half) {
        ([a, b], None) if subtracts => {
            // a - b - borrow = a + !b + (1 - borrow); the flag keeps the
            // carry of that sum, as the hardware does.
            let inverted = temporary(lowering, class);
            let not = form("not", &[if wide { "b64" } else { "b32" }])?;
            emit_lane_values(
                lowering,
                &not,
                inverted,
                [*b, Value::None, Value::None, Value::None],
            )?;
            (*a, inverted)
        }
        ([a, b], None) => (*a, *b),
        ([a, b, c], Some(half)) => {
            let signed = matches!(ty, ScalarType::S32 | ScalarType::S64);
            let name = match (signed, wide) {
                (true, true) => "s64",
                (true, false) => "s32",
                (false, true) => "u64",
                (false, false) => "u32",
            };
            let product = temporary(lowering, class);
            let mul = form("mul", &[["lo", "hi"][half], name])?;
            emit_lane_values(lowering, &mul, product, [*a, *b, Value::None, Value::None])?;
            (product, *c)
        }
        _ => return refuse("wrong number of operands"),
    };
    let carry_in = if takes {
        Value::Register(lowering.carry())
    } else {
        Value::Constant(crate::program::code::Constant::Truth(subtracts))
    };
    let operands = [left, right, carry_in, Value::None];
    let carry_out = temporary(lowering, Class::Predicate);
    if gives {
        let carry = form("%carry", &[suffix])?;
        emit_lane_values(lowering, &carry, carry_out, operands)?;
    }
    let sum = form("%sum", &[suffix])?;
    emit_lane_values(lowering, &sum, dst, operands)?;
    if gives {
        let copy = form("%copy", &["pred"])?;
        let flag = Value::Register(lowering.carry());
        emit_lane_values(
            lowering,
            &copy,
            flag,
            [carry_out, Value::None, Value::None, Value::None],
        )?;
    }
    Ok(())
}
