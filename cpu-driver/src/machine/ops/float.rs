//! `f32` and `f64` arithmetic, every rounding direction, `.ftz` and `.sat`;
//! minimum and maximum; the approximate functions.

use super::Family;
use crate::lane;
use crate::machine::lanes::{LaneForm, Map1, Map2, Map3, form1, form2, form3};
use crate::machine::numerics::approximate as approx;
use crate::machine::numerics::formats::{RM, RN, RP, RZ, Rounding};
use crate::machine::numerics::single::*;

pub const FAMILY: Family = Family {
    decoders: &[],
    lanes,
};

macro_rules! single2 {
    ($name:ident, $f:ident) => {
        struct $name<const R: Rounding, const FTZ: bool, const SAT: bool>;
        impl<const R: Rounding, const FTZ: bool, const SAT: bool> Map2 for $name<R, FTZ, SAT> {
            type A = f32;
            type B = f32;
            type D = f32;
            #[inline(always)]
            fn f(a: f32, b: f32) -> f32 {
                finish::<FTZ, SAT>($f::<R, FTZ>(flush_if::<FTZ>(a), flush_if::<FTZ>(b)))
            }
        }
    };
}

// Sums below the smallest normal number are exact: flushing them late is right.
#[inline(always)]
fn sum32<const R: Rounding, const FTZ: bool>(a: f32, b: f32) -> f32 {
    add32::<R>(a, b)
}

#[inline(always)]
fn subtract32<const R: Rounding, const FTZ: bool>(a: f32, b: f32) -> f32 {
    add32::<R>(a, -b)
}

single2!(Add32, sum32);
single2!(Subtract32, subtract32);
single2!(Multiply32, multiply32_ftz);
single2!(Divide32, divide32_ftz);

struct Fused32<const R: Rounding, const FTZ: bool, const SAT: bool>;
impl<const R: Rounding, const FTZ: bool, const SAT: bool> Map3 for Fused32<R, FTZ, SAT> {
    type A = f32;
    type B = f32;
    type C = f32;
    type D = f32;
    #[inline(always)]
    fn f(a: f32, b: f32, c: f32) -> f32 {
        finish::<FTZ, SAT>(fused32_ftz::<R, FTZ>(
            flush_if::<FTZ>(a),
            flush_if::<FTZ>(b),
            flush_if::<FTZ>(c),
        ))
    }
}

macro_rules! single1 {
    ($name:ident, $f:expr) => {
        struct $name<const R: Rounding, const FTZ: bool, const SAT: bool>;
        impl<const R: Rounding, const FTZ: bool, const SAT: bool> Map1 for $name<R, FTZ, SAT> {
            type A = f32;
            type D = f32;
            #[inline(always)]
            fn f(a: f32) -> f32 {
                let f: fn(f32) -> f32 = $f;
                finish::<FTZ, SAT>(f(flush_if::<FTZ>(a)))
            }
        }
    };
}

single1!(Reciprocal32, |a| divide32::<R>(1.0, a));
single1!(Root32, root32::<R>);

macro_rules! double {
    ($name:ident, $map:ident, ($($arg:ident : $assoc:ident),*), $body:expr) => {
        struct $name<const R: Rounding>;
        impl<const R: Rounding> $map for $name<R> {
            $(type $assoc = f64;)*
            type D = f64;
            #[inline(always)]
            fn f($($arg: f64),*) -> f64 {
                $body
            }
        }
    };
}

double!(Add64, Map2, (a: A, b: B), add64::<R>(a, b));
double!(Subtract64, Map2, (a: A, b: B), add64::<R>(a, negated64(b)));
double!(Multiply64, Map2, (a: A, b: B), multiply64::<R>(a, b));
double!(Divide64, Map2, (a: A, b: B), divide64::<R>(a, b));
double!(Fused64, Map3, (a: A, b: B, c: C), fused64::<R>(a, b, c));
double!(Reciprocal64, Map1, (a: A), divide64::<R>(1.0, a));
double!(Root64, Map1, (a: A), root64::<R>(a));

/// Negation that leaves NaNs alone.
#[inline(always)]
fn negated64(x: f64) -> f64 {
    if x.is_nan() { x } else { -x }
}

/// All roundings; the plain name (where there is one) means to nearest.
macro_rules! roundings {
    ($out:ident, $form:ident, $op:ident, $start:literal, $nearest:literal, $end:literal, [$($m:tt),*]) => {
        $out.push($form::<$op<RN $(, $m)*>>(concat!($start, $nearest, $end)));
        $out.push($form::<$op<RZ $(, $m)*>>(concat!($start, ".rz", $end)));
        $out.push($form::<$op<RM $(, $m)*>>(concat!($start, ".rm", $end)));
        $out.push($form::<$op<RP $(, $m)*>>(concat!($start, ".rp", $end)));
    };
}

macro_rules! single_modes {
    ($out:ident, $form:ident, $op:ident, $start:literal, $nearest:literal) => {
        roundings!($out, $form, $op, $start, $nearest, ".f32", [false, false]);
        roundings!(
            $out,
            $form,
            $op,
            $start,
            $nearest,
            ".ftz.f32",
            [true, false]
        );
    };
    ($out:ident, $form:ident, $op:ident, $start:literal, $nearest:literal, sat) => {
        single_modes!($out, $form, $op, $start, $nearest);
        roundings!(
            $out,
            $form,
            $op,
            $start,
            $nearest,
            ".sat.f32",
            [false, true]
        );
        roundings!(
            $out,
            $form,
            $op,
            $start,
            $nearest,
            ".ftz.sat.f32",
            [true, true]
        );
    };
}

fn lanes(out: &mut Vec<LaneForm>) {
    single_modes!(out, form2, Add32, "add", "{,.rn}", sat);
    single_modes!(out, form2, Subtract32, "sub", "{,.rn}", sat);
    single_modes!(out, form2, Multiply32, "mul", "{,.rn}", sat);
    single_modes!(out, form3, Fused32, "{fma,mad}", ".rn", sat);
    single_modes!(out, form2, Divide32, "div", ".rn");
    single_modes!(out, form1, Reciprocal32, "rcp", ".rn");
    single_modes!(out, form1, Root32, "sqrt", ".rn");
    roundings!(out, form2, Add64, "add", "{,.rn}", ".f64", []);
    roundings!(out, form2, Subtract64, "sub", "{,.rn}", ".f64", []);
    roundings!(out, form2, Multiply64, "mul", "{,.rn}", ".f64", []);
    roundings!(out, form3, Fused64, "{fma,mad}", ".rn", ".f64", []);
    roundings!(out, form2, Divide64, "div", ".rn", ".f64", []);
    roundings!(out, form1, Reciprocal64, "rcp", ".rn", ".f64", []);
    roundings!(out, form1, Root64, "sqrt", ".rn", ".f64", []);
    signs(out);
    extremes(out);
    approximate(out);
}

fn signs(out: &mut Vec<LaneForm>) {
    lane!(out, "neg.f32", (a: f32) -> f32, canonical(-a));
    lane!(out, "abs.f32", (a: f32) -> f32, canonical(a.abs()));
    lane!(out, "neg.ftz.f32", (a: f32) -> f32, canonical(-flush(a)));
    lane!(out, "abs.ftz.f32", (a: f32) -> f32, canonical(flush(a).abs()));
    // A NaN keeps its sign and becomes quiet.
    lane!(out, "neg.f64", (a: f64) -> f64, propagate64(-a, [a]));
    lane!(out, "abs.f64", (a: f64) -> f64, propagate64(a.abs(), [a]));
    lane!(out, "copysign.f32", (a: u32, b: u32) -> u32, a & 0x8000_0000 | b & 0x7fff_ffff);
    lane!(out, "copysign.f64", (a: u64, b: u64) -> u64, a & 1 << 63 | b & !(1 << 63));
    lane!(out, "testp.finite.f32", (a: f32) -> bool, a.is_finite());
    lane!(out, "testp.infinite.f32", (a: f32) -> bool, a.is_infinite());
    lane!(out, "testp.number.f32", (a: f32) -> bool, !a.is_nan());
    lane!(out, "testp.notanumber.f32", (a: f32) -> bool, a.is_nan());
    lane!(out, "testp.normal.f32", (a: f32) -> bool, ordinary(a.into()) && !a.is_subnormal());
    lane!(out, "testp.subnormal.f32", (a: f32) -> bool, a.is_subnormal());
    lane!(out, "testp.finite.f64", (a: f64) -> bool, a.is_finite());
    lane!(out, "testp.infinite.f64", (a: f64) -> bool, a.is_infinite());
    lane!(out, "testp.number.f64", (a: f64) -> bool, !a.is_nan());
    lane!(out, "testp.notanumber.f64", (a: f64) -> bool, a.is_nan());
    lane!(out, "testp.normal.f64", (a: f64) -> bool, ordinary(a) && !a.is_subnormal());
    lane!(out, "testp.subnormal.f64", (a: f64) -> bool, a.is_subnormal());
}

/// Zero counts as normal.
fn ordinary(x: f64) -> bool {
    x.is_finite()
}

/// With `.xorsign.abs` the magnitudes are compared and the result takes the
/// exclusive or of the signs.
#[inline(always)]
fn crossed(a: f32, b: f32, f: fn(f32, f32) -> f32) -> f32 {
    let sign = (a.to_bits() ^ b.to_bits()) & 0x8000_0000;
    let magnitude = f(a.abs(), b.abs());
    if magnitude.is_nan() {
        return canonical(magnitude);
    }
    f32::from_bits(magnitude.to_bits() & 0x7fff_ffff | sign)
}

macro_rules! extreme {
    ($out:ident, $name:literal, $f:ident, $f64:ident) => {
        lane!($out, concat!($name, ".f32"), (a: f32, b: f32) -> f32,
            canonical($f::<false>(a, b)));
        lane!($out, concat!($name, ".ftz.f32"), (a: f32, b: f32) -> f32,
            canonical($f::<false>(flush(a), flush(b))));
        lane!($out, concat!($name, ".NaN.f32"), (a: f32, b: f32) -> f32,
            canonical($f::<true>(a, b)));
        lane!($out, concat!($name, ".ftz.NaN.f32"), (a: f32, b: f32) -> f32,
            canonical($f::<true>(flush(a), flush(b))));
        lane!($out, concat!($name, ".xorsign.abs.f32"), (a: f32, b: f32) -> f32,
            crossed(a, b, $f::<false>));
        lane!($out, concat!($name, ".ftz.xorsign.abs.f32"), (a: f32, b: f32) -> f32,
            crossed(flush(a), flush(b), $f::<false>));
        lane!($out, concat!($name, ".NaN.xorsign.abs.f32"), (a: f32, b: f32) -> f32,
            crossed(a, b, $f::<true>));
        lane!($out, concat!($name, ".ftz.NaN.xorsign.abs.f32"), (a: f32, b: f32) -> f32,
            crossed(flush(a), flush(b), $f::<true>));
        lane!($out, concat!($name, ".f64"), (a: f64, b: f64) -> f64, $f64(a, b));
    };
}

fn extremes(out: &mut Vec<LaneForm>) {
    extreme!(out, "min", min32, min64);
    extreme!(out, "max", max32, max64);
}

macro_rules! approximation {
    ($out:ident, $name:literal, $f:ident) => {
        lane!($out, concat!($name, ".approx.f32"), (a: f32) -> f32, approx::$f::<false>(a));
        lane!($out, concat!($name, ".approx.ftz.f32"), (a: f32) -> f32, approx::$f::<true>(a));
    };
}

/// Subnormals become zero of the same sign.
fn flush64(x: f64) -> f64 {
    if x.is_subnormal() {
        0f64.copysign(x)
    } else {
        x
    }
}

fn approximate(out: &mut Vec<LaneForm>) {
    approximation!(out, "ex2", exp2);
    approximation!(out, "lg2", log2);
    approximation!(out, "sin", sine);
    approximation!(out, "cos", cosine);
    approximation!(out, "rcp", reciprocal);
    approximation!(out, "rsqrt", reciprocal_root);
    approximation!(out, "sqrt", root);
    lane!(out, "tanh.approx.f32", (a: f32) -> f32, approx::tangent_hyperbolic(a));
    lane!(out, "div.approx.f32", (a: f32, b: f32) -> f32, approx::quotient::<false>(a, b));
    lane!(out, "div.approx.ftz.f32", (a: f32, b: f32) -> f32, approx::quotient::<true>(a, b));
    lane!(out, "div.full.f32", (a: f32, b: f32) -> f32, approx::quotient_full::<false>(a, b));
    lane!(out, "div.full.ftz.f32", (a: f32, b: f32) -> f32, approx::quotient_full::<true>(a, b));
    lane!(out, "rcp.approx.ftz.f64", (a: f64) -> f64,
        approx::upper_word(flush64(1.0 / flush64(approx::upper_word(a)))));
    lane!(out, "rsqrt.approx.ftz.f64", (a: f64) -> f64,
        approx::upper_word(1.0 / flush64(approx::upper_word(a)).sqrt()));
    lane!(out, "rsqrt.approx.f64", (a: f64) -> f64, 1.0 / a.sqrt());
}
