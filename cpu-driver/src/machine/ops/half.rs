//! Arithmetic of `f16` and `bf16`, single and in pairs.

use super::{Family, emit_lane_values, find_lane, written};
use crate::machine::lanes::LaneForm;
use crate::machine::numerics::approximate as approx;
use crate::machine::numerics::half::{BF16, F16, Half, finish, flush, fused_odd};
use crate::machine::numerics::single::{max32, min32};
use crate::program::code::Class;
use crate::program::lower::{Lowering, Refusal, refuse};
use crate::program::operation::Value;
use crate::ptx::ast::{Instruction, Operand};
use crate::{float_comparisons, lane};

pub const FAMILY: Family = Family {
    decoders: &[],
    lanes,
};

#[inline(always)]
fn pair1(a: u32, f: impl Fn(u16) -> u16) -> u32 {
    u32::from(f(a as u16)) | u32::from(f((a >> 16) as u16)) << 16
}

#[inline(always)]
fn pair2(a: u32, b: u32, f: impl Fn(u16, u16) -> u16) -> u32 {
    u32::from(f(a as u16, b as u16)) | u32::from(f((a >> 16) as u16, (b >> 16) as u16)) << 16
}

#[inline(always)]
fn pair3(a: u32, b: u32, c: u32, f: impl Fn(u16, u16, u16) -> u16) -> u32 {
    u32::from(f(a as u16, b as u16, c as u16))
        | u32::from(f((a >> 16) as u16, (b >> 16) as u16, (c >> 16) as u16)) << 16
}

macro_rules! half1 {
    ($out:ident, $name:expr, $ty:literal, $f:expr) => {
        lane!($out, concat!($name, ".", $ty), (a: u16) -> u16, $f(a));
        lane!($out, concat!($name, ".", $ty, "x2"), (a: u32) -> u32, pair1(a, $f));
    };
}

macro_rules! half2 {
    ($out:ident, $name:expr, $ty:literal, $f:expr) => {
        lane!($out, concat!($name, ".", $ty), (a: u16, b: u16) -> u16, $f(a, b));
        lane!($out, concat!($name, ".", $ty, "x2"), (a: u32, b: u32) -> u32, pair2(a, b, $f));
    };
}

macro_rules! half3 {
    ($out:ident, $name:expr, $ty:literal, $f:expr) => {
        lane!($out, concat!($name, ".", $ty), (a: u16, b: u16, c: u16) -> u16, $f(a, b, c));
        lane!($out, concat!($name, ".", $ty, "x2"), (a: u32, b: u32, c: u32) -> u32,
            pair3(a, b, c, $f));
    };
}

#[inline(always)]
fn wide<H: Half, const FTZ: bool>(x: u16) -> f32 {
    flush::<H, FTZ>(H::of(x)).wide()
}

#[inline(always)]
pub fn add<H: Half, const FTZ: bool, const SAT: bool>(a: u16, b: u16) -> u16 {
    finish::<H, FTZ, SAT, false>(wide::<H, FTZ>(a) + wide::<H, FTZ>(b)).bits()
}

#[inline(always)]
fn subtract<H: Half, const FTZ: bool, const SAT: bool>(a: u16, b: u16) -> u16 {
    finish::<H, FTZ, SAT, false>(wide::<H, FTZ>(a) - wide::<H, FTZ>(b)).bits()
}

#[inline(always)]
fn multiply<H: Half, const FTZ: bool, const SAT: bool>(a: u16, b: u16) -> u16 {
    finish::<H, FTZ, SAT, false>(wide::<H, FTZ>(a) * wide::<H, FTZ>(b)).bits()
}

#[inline(always)]
fn fused<H: Half, const FTZ: bool, const SAT: bool, const RELU: bool>(
    a: u16,
    b: u16,
    c: u16,
) -> u16 {
    let x = fused_odd(wide::<H, FTZ>(a), wide::<H, FTZ>(b), wide::<H, FTZ>(c));
    finish::<H, FTZ, SAT, RELU>(x).bits()
}

macro_rules! arithmetic {
    ($out:ident, $h:ident, $ty:literal, $mods:literal, $ftz:literal, $sat:literal) => {
        half2!(
            $out,
            concat!("add{,.rn}", $mods),
            $ty,
            add::<$h, $ftz, $sat>
        );
        half2!(
            $out,
            concat!("sub{,.rn}", $mods),
            $ty,
            subtract::<$h, $ftz, $sat>
        );
        half2!(
            $out,
            concat!("mul{,.rn}", $mods),
            $ty,
            multiply::<$h, $ftz, $sat>
        );
        half3!(
            $out,
            concat!("fma.rn", $mods),
            $ty,
            fused::<$h, $ftz, $sat, false>
        );
    };
}

fn extreme<H: Half, const FTZ: bool, const CROSS: bool>(
    a: u16,
    b: u16,
    f: fn(f32, f32) -> f32,
) -> u16 {
    let (x, y) = (wide::<H, FTZ>(a), wide::<H, FTZ>(b));
    if !CROSS {
        return H::nearest(f(x, y)).bits();
    }
    let found = H::nearest(f(x.abs(), y.abs())).bits();
    if found == H::NAN {
        return found;
    }
    found & 0x7fff | (a ^ b) & 0x8000
}

macro_rules! extremes {
    ($out:ident, $h:ident, $ty:literal, $ftz_name:literal, $ftz:literal) => {
        half2!($out, concat!("min", $ftz_name), $ty, |a, b| extreme::<
            $h,
            $ftz,
            false,
        >(
            a,
            b,
            min32::<false>
        ));
        half2!($out, concat!("max", $ftz_name), $ty, |a, b| extreme::<
            $h,
            $ftz,
            false,
        >(
            a,
            b,
            max32::<false>
        ));
        half2!($out, concat!("min.NaN", $ftz_name), $ty, |a, b| extreme::<
            $h,
            $ftz,
            false,
        >(
            a,
            b,
            min32::<true>
        ));
        half2!($out, concat!("max.NaN", $ftz_name), $ty, |a, b| extreme::<
            $h,
            $ftz,
            false,
        >(
            a,
            b,
            max32::<true>
        ));
        half2!($out, concat!("min.xorsign.abs", $ftz_name), $ty, |a, b| {
            extreme::<$h, $ftz, true>(a, b, min32::<false>)
        });
        half2!($out, concat!("max.xorsign.abs", $ftz_name), $ty, |a, b| {
            extreme::<$h, $ftz, true>(a, b, max32::<false>)
        });
        half2!(
            $out,
            concat!("min.NaN.xorsign.abs", $ftz_name),
            $ty,
            |a, b| extreme::<$h, $ftz, true>(a, b, min32::<true>)
        );
        half2!(
            $out,
            concat!("max.NaN.xorsign.abs", $ftz_name),
            $ty,
            |a, b| extreme::<$h, $ftz, true>(a, b, max32::<true>)
        );
    };
}

fn lanes(out: &mut Vec<LaneForm>) {
    arithmetic!(out, F16, "f16", "", false, false);
    arithmetic!(out, F16, "f16", ".ftz", true, false);
    arithmetic!(out, F16, "f16", ".sat", false, true);
    arithmetic!(out, F16, "f16", ".ftz.sat", true, true);
    arithmetic!(out, BF16, "bf16", "", false, false);
    half3!(out, "fma.rn.relu", "f16", fused::<F16, false, false, true>);
    half3!(
        out,
        "fma.rn.ftz.relu",
        "f16",
        fused::<F16, true, false, true>
    );
    half3!(
        out,
        "fma.rn.relu",
        "bf16",
        fused::<BF16, false, false, true>
    );
    extremes!(out, F16, "f16", "", false);
    extremes!(out, F16, "f16", ".ftz", true);
    extremes!(out, BF16, "bf16", "", false);
    signs(out);
    approximate(out);
    comparisons(out);
}

/// NaNs become the canonical one.
#[inline(always)]
fn canonical<H: Half>(bits: u16) -> u16 {
    if bits & 0x7fff > H::FORMAT.infinity() as u16 {
        H::NAN
    } else {
        bits
    }
}

#[inline(always)]
fn negated<H: Half, const FTZ: bool>(a: u16) -> u16 {
    canonical::<H>(flush::<H, FTZ>(H::of(a)).bits() ^ 0x8000)
}

#[inline(always)]
fn magnitude<H: Half, const FTZ: bool>(a: u16) -> u16 {
    canonical::<H>(flush::<H, FTZ>(H::of(a)).bits() & 0x7fff)
}

fn signs(out: &mut Vec<LaneForm>) {
    half1!(out, "neg", "f16", negated::<F16, false>);
    half1!(out, "neg", "bf16", negated::<BF16, false>);
    half1!(out, "abs", "f16", magnitude::<F16, false>);
    half1!(out, "abs", "bf16", magnitude::<BF16, false>);
    half1!(out, "neg.ftz", "f16", negated::<F16, true>);
    half1!(out, "abs.ftz", "f16", magnitude::<F16, true>);
}

fn approximate(out: &mut Vec<LaneForm>) {
    half1!(out, "ex2.approx", "f16", |a| F16::nearest(approx::exp2::<
        false,
    >(
        F16(a).wide()
    ))
    .0);
    half1!(out, "ex2.approx.ftz", "bf16", |a| finish::<
        BF16,
        true,
        false,
        false,
    >(approx::exp2::<
        false,
    >(wide::<
        BF16,
        true,
    >(a)))
    .0);
    half1!(out, "tanh.approx", "f16", |a| F16::nearest(
        approx::tangent_hyperbolic(F16(a).wide())
    )
    .0);
    half1!(out, "tanh.approx", "bf16", |a| BF16::nearest(
        approx::tangent_hyperbolic(BF16(a).wide())
    )
    .0);
}

#[allow(clippy::neg_cmp_op_on_partial_ord)]
fn comparisons(out: &mut Vec<LaneForm>) {
    float_comparisons!(out, F16, ".f16", Half::wide);
    float_comparisons!(out, F16, ".ftz.f16", flushed);
    float_comparisons!(out, BF16, ".bf16", Half::wide);
    lane!(out, "%high.b32", (a: u32) -> u16, (a >> 16) as u16);
}

#[inline(always)]
fn flushed(x: F16) -> f32 {
    flush::<F16, true>(x).wide()
}

/// `setp.cmp{.bool}{.ftz}.{f16x2,bf16x2} p|q, a, b{, c}`: one result a half.
pub fn compare_pairs(
    lowering: &mut Lowering<'_>,
    instruction: &Instruction,
) -> Result<(), Refusal> {
    let combine = ["and", "or", "xor"]
        .into_iter()
        .find(|name| instruction.modifiers.iter().any(|m| m == name));
    let words: Vec<&str> = instruction
        .modifiers
        .iter()
        .map(String::as_str)
        .filter(|word| Some(*word) != combine)
        .collect();
    let [Operand::Pair(p, q), sources @ ..] = instruction.operands.as_slice() else {
        return refuse("expected p|q and two sources");
    };
    if sources.len() != 2 + usize::from(combine.is_some()) {
        return refuse("wrong number of operands");
    }
    let (low, high) = compared_halves(lowering, &words, sources)?;
    let (name, third) = match combine {
        Some(name) => (name, lowering.source(&sources[2], Class::Predicate)?),
        None => ("%copy", Value::None),
    };
    let Some(form) = find_lane(name, &["pred"]) else {
        return refuse(format!("no form {name}"));
    };
    let none = Value::None;
    let p = lowering.target(p, Class::Predicate)?;
    let q = lowering.target(q, Class::Predicate)?;
    // The third operand may be `p`: keep the second result apart first.
    let second = written(lowering, none, Class::Predicate);
    emit_lane_values(lowering, &form, second, [high, third, none, none])?;
    emit_lane_values(lowering, &form, p, [low, third, none, none])?;
    if let Some(copy) = find_lane("%copy", &["pred"]) {
        emit_lane_values(lowering, &copy, q, [second, none, none, none])?;
    }
    Ok(())
}

/// Results of a comparison of pairs, lower half first, in predicates.
pub fn compared_halves(
    lowering: &mut Lowering<'_>,
    words: &[&str],
    sources: &[Operand],
) -> Result<(Value, Value), Refusal> {
    let words: Vec<&str> = words
        .iter()
        .map(|word| word.trim_end_matches("x2"))
        .collect();
    let (Some(form), Some(upper)) = (find_lane("setp", &words), find_lane("%high", &["b32"]))
    else {
        return refuse("this comparison of pairs is not implemented");
    };
    let none = Value::None;
    let a = lowering.source(&sources[0], Class::Word)?;
    let b = lowering.source(&sources[1], Class::Word)?;
    let mut both = [none; 2];
    let mut operands = [a, b, none, none];
    for found in &mut both {
        *found = written(lowering, none, Class::Predicate);
        emit_lane_values(lowering, &form, *found, operands)?;
        for operand in &mut operands[..2] {
            let from = *operand;
            *operand = written(lowering, none, Class::Word);
            emit_lane_values(lowering, &upper, *operand, [from, none, none, none])?;
        }
    }
    Ok((both[0], both[1]))
}
