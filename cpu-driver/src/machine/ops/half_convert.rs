//! `cvt` to and from the 16-, 8- and 4-bit floats and `tf32`.

use super::Family;
use super::convert::{Real, ToInteger, integral, rounded};
use crate::lane;
use crate::machine::lanes::{LaneForm, form1};
use crate::machine::numerics::formats::{self, Format, RM, RN, RP, RZ, Rounding};
use crate::machine::numerics::half::{BF16, F16, FP8_AS_F16, Half, flush, round};
use crate::machine::numerics::single::{canonical, flush_if, saturate};

pub const FAMILY: Family = Family {
    decoders: &[],
    lanes,
};

fn lanes(out: &mut Vec<LaneForm>) {
    widening(out);
    narrowing(out);
    pairs(out);
    tensor(out);
    bytes(out);
    with_integers(out);
}

impl Real for F16 {
    const DOUBLE: bool = false;
    #[inline(always)]
    fn wide<const FTZ: bool>(self) -> f64 {
        Half::wide(flush::<F16, FTZ>(self)).into()
    }
}

impl Real for BF16 {
    const DOUBLE: bool = false;
    #[inline(always)]
    fn wide<const FTZ: bool>(self) -> f64 {
        Half::wide(self).into()
    }
}

fn widening(out: &mut Vec<LaneForm>) {
    lane!(out, "cvt.f32.f16", (a: F16) -> f32, canonical(Half::wide(a)));
    lane!(out, "cvt.ftz.f32.f16", (a: F16) -> f32, canonical(Half::wide(a)));
    lane!(out, "cvt.sat.f32.f16", (a: F16) -> f32, saturate(Half::wide(a)));
    lane!(out, "cvt.ftz.sat.f32.f16", (a: F16) -> f32, saturate(Half::wide(a)));
    lane!(out, "cvt.f64.f16", (a: F16) -> f64, Half::wide(a).into());
    lane!(out, "cvt.f32.bf16", (a: BF16) -> f32, Half::wide(a));
    lane!(out, "cvt.ftz.f32.bf16", (a: BF16) -> f32,
        canonical(flush_if::<true>(Half::wide(a))));
    lane!(out, "cvt.f64.bf16", (a: BF16) -> f64, Half::wide(a).into());
}

/// Rounds to a 16-bit float; `.relu` turns negatives (and −0) into +0,
/// `.satfinite` limits to the largest number.
#[inline(always)]
fn narrow<H: Half, const R: Rounding, const RELU: bool>(x: f64) -> H {
    if x.is_nan() {
        return H::of(H::NAN);
    }
    if RELU && x <= 0.0 {
        return H::of(0);
    }
    round::<H>(x, R)
}

/// From `f64` a NaN keeps its sign and the top of its payload.
fn from_double<H: Half, const R: Rounding>(x: f64) -> H {
    if x.is_nan() {
        return H::of(H::FORMAT.cut_nan(x.to_bits()) as u16);
    }
    round::<H>(x, R)
}

fn finite<H: Half, const RELU: bool>(x: f64) -> H {
    if x.is_nan() {
        return H::of(H::NAN);
    }
    if RELU && x <= 0.0 {
        return H::of(0);
    }
    H::of(H::FORMAT.from_f64(x, RN, true) as u16)
}

macro_rules! to_half {
    ($out:ident, $h:ident, $to:literal, $rounding:ident, $r:literal) => {
        lane!($out, concat!("cvt.", $r, ".", $to, ".f32"), (a: f32) -> $h,
            narrow::<$h, $rounding, false>(a.into()));
        lane!($out, concat!("cvt.", $r, ".relu.", $to, ".f32"), (a: f32) -> $h,
            narrow::<$h, $rounding, true>(a.into()));
        lane!($out, concat!("cvt.", $r, ".", $to, ".f64"), (a: f64) -> $h,
            from_double::<$h, $rounding>(a));
        // `.ftz` does not touch the operand of a narrowing conversion.
        lane!($out, concat!("cvt.", $r, ".ftz.", $to, ".f32"), (a: f32) -> $h,
            narrow::<$h, $rounding, false>(a.into()));
        lane!($out, concat!("cvt.", $r, "{,.ftz}.sat.", $to, ".f32"), (a: f32) -> $h,
            narrow::<$h, $rounding, false>(saturate(a).into()));
    };
}

macro_rules! between {
    ($out:ident, $from:ident, $from_name:literal, $to:ident, $to_name:literal,
     $rounding:ident, $r:literal) => {
        lane!($out, concat!("cvt.", $r, ".", $to_name, ".", $from_name), (a: $from) -> $to,
            narrow::<$to, $rounding, false>(Half::wide(a).into()));
    };
}

macro_rules! integral_half {
    ($out:ident, $h:ident, $ty:literal, $rounding:ident, $r:literal) => {
        lane!($out, concat!("cvt.", $r, ".", $ty, ".", $ty), (a: $h) -> $h,
            <$h as Half>::nearest(integral::<$rounding>(Half::wide(a).into()) as f32));
    };
}

fn narrowing(out: &mut Vec<LaneForm>) {
    // The most frequent form, without the detour over `f64`.
    lane!(out, "cvt.rn.f16.f32", (a: f32) -> F16, F16::nearest(a));
    lane!(out, "cvt.rn.bf16.f32", (a: f32) -> BF16, BF16::nearest(a));
    lane!(out, "cvt.rn.ftz.f16.f32", (a: f32) -> F16, F16::nearest(a));
    lane!(out, "cvt.rn.sat.f16.f32", (a: f32) -> F16, F16::nearest(saturate(a)));
    lane!(out, "cvt.rn.ftz.sat.f16.f32", (a: f32) -> F16,
        F16::nearest(saturate(a)));
    lane!(out, "cvt.rn.satfinite.f16.f32", (a: f32) -> F16, finite::<F16, false>(a.into()));
    lane!(out, "cvt.rn.satfinite.bf16.f32", (a: f32) -> BF16, finite::<BF16, false>(a.into()));
    lane!(out, "cvt.rn.relu.satfinite.f16.f32", (a: f32) -> F16, finite::<F16, true>(a.into()));
    lane!(out, "cvt.rn.relu.satfinite.bf16.f32", (a: f32) -> BF16,
        finite::<BF16, true>(a.into()));
    to_half!(out, F16, "f16", RZ, "rz");
    to_half!(out, F16, "f16", RM, "rm");
    to_half!(out, F16, "f16", RP, "rp");
    to_half!(out, BF16, "bf16", RZ, "rz");
    to_half!(out, BF16, "bf16", RM, "rm");
    to_half!(out, BF16, "bf16", RP, "rp");
    lane!(out, "cvt.rn.relu.f16.f32", (a: f32) -> F16, narrow::<F16, RN, true>(a.into()));
    lane!(out, "cvt.rn.relu.bf16.f32", (a: f32) -> BF16, narrow::<BF16, RN, true>(a.into()));
    lane!(out, "cvt.rn.f16.f64", (a: f64) -> F16, from_double::<F16, RN>(a));
    lane!(out, "cvt.rn.bf16.f64", (a: f64) -> BF16, from_double::<BF16, RN>(a));
    lane!(out, "cvt.f16.f16", (a: F16) -> F16, a);
    lane!(out, "cvt.sat.f16.f16", (a: F16) -> F16, F16::nearest(saturate(Half::wide(a))));
    between!(out, F16, "f16", BF16, "bf16", RN, "rn");
    between!(out, F16, "f16", BF16, "bf16", RZ, "rz");
    between!(out, F16, "f16", BF16, "bf16", RM, "rm");
    between!(out, F16, "f16", BF16, "bf16", RP, "rp");
    between!(out, BF16, "bf16", F16, "f16", RN, "rn");
    between!(out, BF16, "bf16", F16, "f16", RZ, "rz");
    between!(out, BF16, "bf16", F16, "f16", RM, "rm");
    between!(out, BF16, "bf16", F16, "f16", RP, "rp");
    integral_half!(out, F16, "f16", RN, "rni");
    integral_half!(out, F16, "f16", RZ, "rzi");
    integral_half!(out, F16, "f16", RM, "rmi");
    integral_half!(out, F16, "f16", RP, "rpi");
    integral_half!(out, BF16, "bf16", RN, "rni");
    integral_half!(out, BF16, "bf16", RZ, "rzi");
    integral_half!(out, BF16, "bf16", RM, "rmi");
    integral_half!(out, BF16, "bf16", RP, "rpi");
}

/// Two numbers in one word: the first operand is the upper half.
fn joined<H: Half>(high: H, low: H) -> u32 {
    u32::from(high.bits()) << 16 | u32::from(low.bits())
}

macro_rules! pair {
    ($out:ident, $h:ident, $to:literal, $mods:literal, $f:expr) => {
        lane!($out, concat!("cvt.", $mods, ".", $to, ".f32"), (a: f32, b: f32) -> u32,
            joined::<$h>($f(a.into()), $f(b.into())));
    };
}

fn pairs(out: &mut Vec<LaneForm>) {
    lane!(out, "cvt.rn.f16x2.f32", (a: f32, b: f32) -> u32,
        joined(F16::nearest(a), F16::nearest(b)));
    lane!(out, "cvt.rn.bf16x2.f32", (a: f32, b: f32) -> u32,
        joined(BF16::nearest(a), BF16::nearest(b)));
    pair!(out, F16, "f16x2", "rz", narrow::<F16, RZ, false>);
    pair!(out, F16, "f16x2", "rn.relu", narrow::<F16, RN, true>);
    pair!(out, F16, "f16x2", "rz.relu", narrow::<F16, RZ, true>);
    pair!(out, F16, "f16x2", "rn.satfinite", finite::<F16, false>);
    pair!(out, F16, "f16x2", "rn.relu.satfinite", finite::<F16, true>);
    pair!(out, BF16, "bf16x2", "rz", narrow::<BF16, RZ, false>);
    pair!(out, BF16, "bf16x2", "rn.relu", narrow::<BF16, RN, true>);
    pair!(out, BF16, "bf16x2", "rz.relu", narrow::<BF16, RZ, true>);
    pair!(out, BF16, "bf16x2", "rn.satfinite", finite::<BF16, false>);
    pair!(
        out,
        BF16,
        "bf16x2",
        "rn.relu.satfinite",
        finite::<BF16, true>
    );
}

/// `tf32`: an `f32` whose last 13 bits are zero.
fn tf32<const R: Rounding, const RELU: bool, const FINITE: bool>(a: f32) -> u32 {
    if a.is_nan() {
        return 0x7fff_e000;
    }
    if RELU && a <= 0.0 {
        return 0;
    }
    (formats::TF32.from_f64(a.into(), R, FINITE) as u32) << 13
}

/// Ties away from zero is an addition to the bits, of NaNs too. `.satfinite`
/// takes one unit off whatever then has the largest exponent.
fn tf32_away<const FINITE: bool>(a: u32) -> u32 {
    let rounded = (a & 0x7fff_ffff).wrapping_add(0x1000) & 0x7fff_e000;
    let limited = if FINITE && rounded >= 0x7f80_0000 {
        rounded - 0x2000
    } else {
        rounded
    };
    a & 0x8000_0000 | limited
}

fn tensor(out: &mut Vec<LaneForm>) {
    lane!(out, "cvt.rna.tf32.f32", (a: u32) -> u32, tf32_away::<false>(a));
    lane!(out, "cvt.rna.satfinite.tf32.f32", (a: u32) -> u32, tf32_away::<true>(a));
    lane!(out, "cvt.rn.tf32.f32", (a: f32) -> u32, tf32::<RN, false, false>(a));
    lane!(out, "cvt.rz.tf32.f32", (a: f32) -> u32, tf32::<RZ, false, false>(a));
    lane!(out, "cvt.rn.relu.tf32.f32", (a: f32) -> u32, tf32::<RN, true, false>(a));
    lane!(out, "cvt.rz.relu.tf32.f32", (a: f32) -> u32, tf32::<RZ, true, false>(a));
    lane!(out, "cvt.rn.satfinite.tf32.f32", (a: f32) -> u32, tf32::<RN, false, true>(a));
    lane!(out, "cvt.rn.relu.satfinite.tf32.f32", (a: f32) -> u32, tf32::<RN, true, true>(a));
}

/// One 8- or 4-bit number, always limited to the largest.
fn small<const RELU: bool>(format: Format, x: f64) -> u32 {
    if RELU && x <= 0.0 {
        return 0;
    }
    format.from_f64(x, RN, true) as u32
}

fn two<const RELU: bool>(format: Format, bits: u32, high: f64, low: f64) -> u32 {
    small::<RELU>(format, high) << bits | small::<RELU>(format, low)
}

/// Both halves of a pair widened.
fn halves<H: Half>(a: u32) -> (f64, f64) {
    (
        H::of((a >> 16) as u16).wide().into(),
        H::of(a as u16).wide().into(),
    )
}

/// One small number as `f16`, which holds all of them exactly.
#[inline(always)]
fn widened(format: Format, code: u32) -> F16 {
    match format {
        formats::E4M3 => F16(FP8_AS_F16[0][code as usize & 255]),
        formats::E5M2 => F16(FP8_AS_F16[1][code as usize & 255]),
        _ => F16::nearest(format.to_f64(code.into()) as f32),
    }
}

/// Two small numbers as a pair of `f16`.
#[inline(always)]
fn unpacked<const RELU: bool>(format: Format, bits: u32, a: u32) -> u32 {
    let one = |code: u32| {
        let x = widened(format, code & ((1 << bits) - 1));
        if RELU && (x.0 >> 15 != 0 || x.0 == 0) && x.0 != F16::NAN {
            F16(0)
        } else {
            x
        }
    };
    joined(one(a >> bits), one(a))
}

macro_rules! byte_format {
    ($out:ident, $format:expr, $ty:literal, $bits:literal, $reg:ty) => {
        lane!($out, concat!("cvt.rn.satfinite.", $ty, ".f32"), (a: f32, b: f32) -> $reg,
            two::<false>($format, $bits, a.into(), b.into()) as $reg);
        lane!($out, concat!("cvt.rn.satfinite.relu.", $ty, ".f32"), (a: f32, b: f32) -> $reg,
            two::<true>($format, $bits, a.into(), b.into()) as $reg);
        lane!($out, concat!("cvt.rn.satfinite.", $ty, ".f16x2"), (a: u32) -> $reg, {
            let (high, low) = halves::<F16>(a);
            two::<false>($format, $bits, high, low) as $reg
        });
        lane!($out, concat!("cvt.rn.satfinite.relu.", $ty, ".f16x2"), (a: u32) -> $reg, {
            let (high, low) = halves::<F16>(a);
            two::<true>($format, $bits, high, low) as $reg
        });
        lane!($out, concat!("cvt.rn.f16x2.", $ty), (a: $reg) -> u32,
            unpacked::<false>($format, $bits, a.into()));
        lane!($out, concat!("cvt.rn.relu.f16x2.", $ty), (a: $reg) -> u32,
            unpacked::<true>($format, $bits, a.into()));
    };
}

fn bytes(out: &mut Vec<LaneForm>) {
    byte_format!(out, formats::E4M3, "e4m3x2", 8, u16);
    byte_format!(out, formats::E5M2, "e5m2x2", 8, u16);
    byte_format!(out, formats::E2M1, "e2m1x2", 4, u8);
}

macro_rules! integers {
    ($out:ident, $h:ident, $name:literal: $($t:ty, $int:literal);*) => {
        $(
            $out.push(form1::<ToInteger<$h, $t, RN, false>>(
                concat!("cvt.rni{,.sat,.ftz,.ftz.sat}.", $int, ".", $name)));
            $out.push(form1::<ToInteger<$h, $t, RZ, false>>(
                concat!("cvt.rzi{,.sat,.ftz,.ftz.sat}.", $int, ".", $name)));
            $out.push(form1::<ToInteger<$h, $t, RM, false>>(
                concat!("cvt.rmi{,.sat,.ftz,.ftz.sat}.", $int, ".", $name)));
            $out.push(form1::<ToInteger<$h, $t, RP, false>>(
                concat!("cvt.rpi{,.sat,.ftz,.ftz.sat}.", $int, ".", $name)));
            lane!($out, concat!("cvt.rn.", $name, ".", $int), (a: $t) -> $h,
                $h(rounded(a as i128, <$h as Half>::FORMAT, RN) as u16));
            lane!($out, concat!("cvt.rz.", $name, ".", $int), (a: $t) -> $h,
                $h(rounded(a as i128, <$h as Half>::FORMAT, RZ) as u16));
            lane!($out, concat!("cvt.rm.", $name, ".", $int), (a: $t) -> $h,
                $h(rounded(a as i128, <$h as Half>::FORMAT, RM) as u16));
            lane!($out, concat!("cvt.rp.", $name, ".", $int), (a: $t) -> $h,
                $h(rounded(a as i128, <$h as Half>::FORMAT, RP) as u16));
        )*
    };
}

fn with_integers(out: &mut Vec<LaneForm>) {
    integers!(out, F16, "f16": u8, "u8"; i8, "s8"; u16, "u16"; i16, "s16";
        u32, "u32"; i32, "s32"; u64, "u64"; i64, "s64");
    integers!(out, BF16, "bf16": u8, "u8"; i8, "s8"; u16, "u16"; i16, "s16";
        u32, "u32"; i32, "s32"; u64, "u64"; i64, "s64");
}
