//! `cvt` between integers, `f32` and `f64`.
//!
//! A NaN becomes 0 in an integer, but the smallest signed value where either
//! side has 64 bits (PTX manual, `cvt`).

use super::{Family, emit_lane_values, find_lane, written};
use crate::lane;
use crate::machine::lanes::{Lane, LaneForm, Map1, form1};
use crate::machine::numerics::formats::{self, RM, RN, RP, RZ, Rounding};
use crate::machine::numerics::single::{canonical, finish, flush_if, propagate64, saturate};
use crate::program::code::Class;
use crate::program::lower::{Lowering, Refusal, refuse};
use crate::program::modifiers::{bytes_of, is_signed, scalar_type};
use crate::program::operation::Value;
use crate::ptx::ast::{Instruction, ScalarType};

pub const FAMILY: Family = Family {
    decoders: &[("cvt", cvt)],
    lanes,
};

fn lanes(out: &mut Vec<LaneForm>) {
    integers(out);
    to_integers(out);
    from_integers(out);
    floats(out);
    packs(out);
}

/// `cvt.pack.sat`: two integers limited and put side by side, above those of a
/// third operand where the type is small.
fn packs(out: &mut Vec<LaneForm>) {
    fn limit(a: i32, bits: u32, signed: bool) -> u32 {
        let (low, high) = if signed {
            (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
        } else {
            (0, (1 << bits) - 1)
        };
        a.clamp(low, high) as u32 & ((1 << bits) - 1)
    }
    fn pack(a: i32, b: i32, c: u32, bits: u32, signed: bool) -> u32 {
        c.checked_shl(2 * bits).unwrap_or(0)
            | limit(a, bits, signed) << bits
            | limit(b, bits, signed)
    }
    lane!(out, "cvt.pack.sat.s16.s32", (a: i32, b: i32) -> u32, pack(a, b, 0, 16, true));
    lane!(out, "cvt.pack.sat.u16.s32", (a: i32, b: i32) -> u32, pack(a, b, 0, 16, false));
    lane!(out, "cvt.pack.sat.s8.s32.b32", (a: i32, b: i32, c: u32) -> u32,
        pack(a, b, c, 8, true));
    lane!(out, "cvt.pack.sat.u8.s32.b32", (a: i32, b: i32, c: u32) -> u32,
        pack(a, b, c, 8, false));
    lane!(out, "cvt.pack.sat.s4.s32.b32", (a: i32, b: i32, c: u32) -> u32,
        pack(a, b, c, 4, true));
    lane!(out, "cvt.pack.sat.u4.s32.b32", (a: i32, b: i32, c: u32) -> u32,
        pack(a, b, c, 4, false));
    lane!(out, "cvt.pack.sat.s2.s32.b32", (a: i32, b: i32, c: u32) -> u32,
        pack(a, b, c, 2, true));
    lane!(out, "cvt.pack.sat.u2.s32.b32", (a: i32, b: i32, c: u32) -> u32,
        pack(a, b, c, 2, false));
}

macro_rules! between {
    ($out:ident, $from:ty, $name:literal: $($to:ty, $to_name:literal);*) => {
        $(
            lane!($out, concat!("cvt.", $to_name, ".", $name), (a: $from) -> $to, a as $to);
            lane!($out, concat!("cvt.sat.", $to_name, ".", $name), (a: $from) -> $to,
                (a as i128).clamp(<$to>::MIN as i128, <$to>::MAX as i128) as $to);
        )*
    };
}

macro_rules! all_integers {
    ($macro:ident, $out:ident, $from:ty, $name:literal) => {
        $macro!($out, $from, $name:
            u8, "u8"; i8, "s8"; u16, "u16"; i16, "s16";
            u32, "u32"; i32, "s32"; u64, "u64"; i64, "s64");
    };
}

fn integers(out: &mut Vec<LaneForm>) {
    all_integers!(between, out, u8, "u8");
    all_integers!(between, out, i8, "s8");
    all_integers!(between, out, u16, "u16");
    all_integers!(between, out, i16, "s16");
    all_integers!(between, out, u32, "u32");
    all_integers!(between, out, i32, "s32");
    all_integers!(between, out, u64, "u64");
    all_integers!(between, out, i64, "s64");
}

/// A float as integer conversions see it.
pub trait Real: Lane {
    const DOUBLE: bool;
    fn wide<const FTZ: bool>(self) -> f64;
}

impl Real for f32 {
    const DOUBLE: bool = false;
    #[inline(always)]
    fn wide<const FTZ: bool>(self) -> f64 {
        flush_if::<FTZ>(self).into()
    }
}

impl Real for f64 {
    const DOUBLE: bool = true;
    #[inline(always)]
    fn wide<const FTZ: bool>(self) -> f64 {
        self
    }
}

/// An integer as conversions from floats see it.
pub trait Whole: Lane {
    const LONG: bool;
    const SMALLEST: Self;
    fn clamped(x: f64) -> Self;
}

macro_rules! whole {
    ($($t:ty, $long:literal, $smallest:expr);*) => {
        $(impl Whole for $t {
            const LONG: bool = $long;
            const SMALLEST: Self = $smallest;
            #[inline(always)]
            fn clamped(x: f64) -> Self {
                x as $t
            }
        })*
    };
}

whole!(u8, false, 0x80; i8, false, i8::MIN; u16, false, 0x8000; i16, false, i16::MIN;
    u32, false, 0x8000_0000; i32, false, i32::MIN; u64, true, 1 << 63; i64, true, i64::MIN);

#[inline(always)]
pub fn integral<const R: Rounding>(x: f64) -> f64 {
    match R {
        RN => x.round_ties_even(),
        RM => x.floor(),
        RP => x.ceil(),
        _ => x.trunc(),
    }
}

pub struct ToInteger<F, T, const R: Rounding, const FTZ: bool>(std::marker::PhantomData<(F, T)>);
impl<F: Real, T: Whole, const R: Rounding, const FTZ: bool> Map1 for ToInteger<F, T, R, FTZ> {
    type A = F;
    type D = T;
    #[inline(always)]
    fn f(a: F) -> T {
        let x = a.wide::<FTZ>();
        if x.is_nan() && (F::DOUBLE || T::LONG) {
            return T::SMALLEST;
        }
        T::clamped(integral::<R>(x))
    }
}

macro_rules! float_to_integer {
    ($out:ident, $from:ty, $name:literal, $ftz:literal, $flag:literal:
     $($to:ty, $to_name:literal);*) => {
        $(
            // Saturation is what these conversions do anyway.
            $out.push(form1::<ToInteger<$from, $to, RN, $flag>>(
                concat!("cvt.rni", $ftz, "{,.sat}.", $to_name, ".", $name)));
            $out.push(form1::<ToInteger<$from, $to, RZ, $flag>>(
                concat!("cvt.rzi", $ftz, "{,.sat}.", $to_name, ".", $name)));
            $out.push(form1::<ToInteger<$from, $to, RM, $flag>>(
                concat!("cvt.rmi", $ftz, "{,.sat}.", $to_name, ".", $name)));
            $out.push(form1::<ToInteger<$from, $to, RP, $flag>>(
                concat!("cvt.rpi", $ftz, "{,.sat}.", $to_name, ".", $name)));
        )*
    };
}

fn to_integers(out: &mut Vec<LaneForm>) {
    float_to_integer!(out, f32, "f32", "", false:
        u8, "u8"; i8, "s8"; u16, "u16"; i16, "s16";
        u32, "u32"; i32, "s32"; u64, "u64"; i64, "s64");
    float_to_integer!(out, f32, "f32", ".ftz", true:
        u8, "u8"; i8, "s8"; u16, "u16"; i16, "s16";
        u32, "u32"; i32, "s32"; u64, "u64"; i64, "s64");
    float_to_integer!(out, f64, "f64", "", false:
        u8, "u8"; i8, "s8"; u16, "u16"; i16, "s16";
        u32, "u32"; i32, "s32"; u64, "u64"; i64, "s64");
}

/// An integer rounded to a format.
pub fn rounded(value: i128, format: formats::Format, rounding: Rounding) -> u64 {
    format.round(value < 0, value.unsigned_abs(), 0, false, rounding, false)
}

macro_rules! integer_to_float {
    ($out:ident, $from:ty, $name:literal) => {
        lane!($out, concat!("cvt.rn.f32.", $name), (a: $from) -> f32, a as f32);
        lane!($out, concat!("cvt.rz.f32.", $name), (a: $from) -> f32,
            f32::from_bits(rounded(a as i128, formats::F32, RZ) as u32));
        lane!($out, concat!("cvt.rm.f32.", $name), (a: $from) -> f32,
            f32::from_bits(rounded(a as i128, formats::F32, RM) as u32));
        lane!($out, concat!("cvt.rp.f32.", $name), (a: $from) -> f32,
            f32::from_bits(rounded(a as i128, formats::F32, RP) as u32));
        lane!($out, concat!("cvt.rn.sat.f32.", $name), (a: $from) -> f32, saturate(a as f32));
        lane!($out, concat!("cvt.rn.f64.", $name), (a: $from) -> f64, a as f64);
        lane!($out, concat!("cvt.rz.f64.", $name), (a: $from) -> f64,
            f64::from_bits(rounded(a as i128, formats::F64, RZ)));
        lane!($out, concat!("cvt.rm.f64.", $name), (a: $from) -> f64,
            f64::from_bits(rounded(a as i128, formats::F64, RM)));
        lane!($out, concat!("cvt.rp.f64.", $name), (a: $from) -> f64,
            f64::from_bits(rounded(a as i128, formats::F64, RP)));
    };
}

fn from_integers(out: &mut Vec<LaneForm>) {
    integer_to_float!(out, u8, "u8");
    integer_to_float!(out, i8, "s8");
    integer_to_float!(out, u16, "u16");
    integer_to_float!(out, i16, "s16");
    integer_to_float!(out, u32, "u32");
    integer_to_float!(out, i32, "s32");
    integer_to_float!(out, u64, "u64");
    integer_to_float!(out, i64, "s64");
}

#[inline(always)]
fn narrow<const R: Rounding, const FTZ: bool, const SAT: bool>(a: f64) -> f32 {
    if a.is_nan() && !SAT {
        return f32::from_bits(formats::F32.cut_nan(a.to_bits()) as u32);
    }
    let x = if R == RN {
        a as f32
    } else {
        f32::from_bits(formats::F32.from_f64(a, R, false) as u32)
    };
    finish::<FTZ, SAT>(x)
}

macro_rules! narrowing {
    ($out:ident, $rounding:ident, $name:literal) => {
        lane!($out, concat!("cvt.", $name, ".f32.f64"), (a: f64) -> f32,
            narrow::<$rounding, false, false>(a));
        lane!($out, concat!("cvt.", $name, ".ftz.f32.f64"), (a: f64) -> f32,
            narrow::<$rounding, true, false>(a));
        lane!($out, concat!("cvt.", $name, ".sat.f32.f64"), (a: f64) -> f32,
            narrow::<$rounding, false, true>(a));
        lane!($out, concat!("cvt.", $name, ".ftz.sat.f32.f64"), (a: f64) -> f32,
            narrow::<$rounding, true, true>(a));
    };
}

macro_rules! to_integral {
    ($out:ident, $rounding:ident, $name:literal) => {
        lane!($out, concat!("cvt.", $name, ".f32.f32"), (a: f32) -> f32,
            finish::<false, false>(integral::<$rounding>(a.into()) as f32));
        lane!($out, concat!("cvt.", $name, ".ftz.f32.f32"), (a: f32) -> f32,
            finish::<true, false>(integral::<$rounding>(flush_if::<true>(a).into()) as f32));
        lane!($out, concat!("cvt.", $name, ".sat.f32.f32"), (a: f32) -> f32,
            finish::<false, true>(integral::<$rounding>(a.into()) as f32));
        lane!($out, concat!("cvt.", $name, ".ftz.sat.f32.f32"), (a: f32) -> f32,
            finish::<true, true>(integral::<$rounding>(flush_if::<true>(a).into()) as f32));
        lane!($out, concat!("cvt.", $name, ".f64.f64"), (a: f64) -> f64,
            propagate64(integral::<$rounding>(a), [a]));
        lane!($out, concat!("cvt.", $name, ".sat.f64.f64"), (a: f64) -> f64,
            saturate64(integral::<$rounding>(a)));
    };
}

fn floats(out: &mut Vec<LaneForm>) {
    narrowing!(out, RN, "rn");
    narrowing!(out, RZ, "rz");
    narrowing!(out, RM, "rm");
    narrowing!(out, RP, "rp");
    to_integral!(out, RN, "rni");
    to_integral!(out, RZ, "rzi");
    to_integral!(out, RM, "rmi");
    to_integral!(out, RP, "rpi");
    lane!(out, "cvt.f64.f32", (a: f32) -> f64, a.into());
    lane!(out, "cvt.ftz.f64.f32", (a: f32) -> f64, canonical(flush_if::<true>(a)).into());
    lane!(out, "cvt.sat.f64.f32", (a: f32) -> f64, saturate(a).into());
    lane!(out, "cvt.ftz.sat.f64.f32", (a: f32) -> f64, saturate(flush_if::<true>(a)).into());
    lane!(out, "cvt.f32.f32", (a: f32) -> f32, a);
    lane!(out, "cvt.ftz.f32.f32", (a: f32) -> f32, canonical(flush_if::<true>(a)));
    lane!(out, "cvt.sat.f32.f32", (a: f32) -> f32, saturate(a));
    lane!(out, "cvt.ftz.sat.f32.f32", (a: f32) -> f32, saturate(flush_if::<true>(a)));
    lane!(out, "cvt.f64.f64", (a: f64) -> f64, a);
    lane!(out, "cvt.sat.f64.f64", (a: f64) -> f64, saturate64(a));
}

/// Into [0, 1], NaN to +0.
fn saturate64(x: f64) -> f64 {
    if x > 0.0 { x.min(1.0) } else { 0.0 }
}

/// `cvt` by the tables; an integer target register may be wider than its type,
/// and a source register wider than its.
fn cvt(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    let words: Vec<&str> = instruction.modifiers.iter().map(String::as_str).collect();
    let Some(form) = find_lane("cvt", &words) else {
        return refuse("this conversion is not implemented");
    };
    let Some((target, sources)) = instruction.operands.split_first() else {
        return refuse("no operands");
    };
    let types: Vec<ScalarType> = words.iter().filter_map(|w| scalar_type(w)).collect();
    let mut values = [Value::None; 4];
    for (at, operand) in sources.iter().enumerate().take(4) {
        values[at] = match (lowering.register_class(operand), form.src[at]) {
            (Some(Class::Long), Class::Word) => {
                let wide = lowering.source(operand, Class::Long)?;
                resized(lowering, "%trunc", "b64", wide, Class::Word)?
            }
            _ => lowering.source(operand, form.src[at])?,
        };
    }
    // A pack fills its register.
    let narrow_type = types.first().copied().filter(|_| !words.contains(&"pack"));
    match (lowering.register_class(target), form.dst, narrow_type) {
        (Some(Class::Long), Class::Word, Some(ty)) => {
            let dst = lowering.target(target, Class::Long)?;
            let part = written(lowering, Value::None, Class::Word);
            emit_lane_values(lowering, &form, part, values)?;
            extend(lowering, ty, Class::Long, part, dst)
        }
        (_, _, Some(ty)) if form.dst == Class::Word && bytes_of(ty) < 4 && is_signed(ty) => {
            // Words hold small numbers zero-extended; a wider register asks
            // for the sign.
            let dst = lowering.target(target, Class::Word)?;
            emit_lane_values(lowering, &form, dst, values)?;
            extend(lowering, ty, Class::Word, dst, dst)
        }
        _ => {
            let dst = lowering.target(target, form.dst)?;
            emit_lane_values(lowering, &form, dst, values)?;
            Ok(())
        }
    }
}

fn resized(
    lowering: &mut Lowering<'_>,
    name: &str,
    word: &str,
    from: Value,
    class: Class,
) -> Result<Value, Refusal> {
    let form = find_lane(name, &[word]).ok_or_else(|| Refusal(format!("no form {name}.{word}")))?;
    let dst = written(lowering, Value::None, class);
    emit_lane_values(
        lowering,
        &form,
        dst,
        [from, Value::None, Value::None, Value::None],
    )?;
    Ok(dst)
}

/// Extends a word that holds a value of type `ty`, by its sign or by zeros.
pub fn extend(
    lowering: &mut Lowering<'_>,
    ty: ScalarType,
    to: Class,
    from: Value,
    dst: Value,
) -> Result<(), Refusal> {
    let source = match (is_signed(ty), bytes_of(ty)) {
        (true, 1) => "s8",
        (true, 2) => "s16",
        (true, _) => "s32",
        (false, 1) => "u8",
        (false, 2) => "u16",
        (false, _) => "u32",
    };
    let target = if to == Class::Long { "s64" } else { "s32" };
    let form = find_lane("cvt", &[target, source])
        .ok_or_else(|| Refusal(format!("no form cvt.{target}.{source}")))?;
    emit_lane_values(
        lowering,
        &form,
        dst,
        [from, Value::None, Value::None, Value::None],
    )?;
    Ok(())
}
