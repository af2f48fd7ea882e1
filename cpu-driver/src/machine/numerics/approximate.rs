//! The approximate functions of PTX (`.approx`), computed in `f64` and rounded
//! once to `f32`.
//!
//! The hardware's tables are not public. These results are within half an ulp
//! of the true value; the hardware's are within the bounds of the PTX manual
//! (`ex2` 2 ulp, `lg2` 2^-22, `sin`/`cos` 2^-20.9, `rcp` 1 ulp, `rsqrt` 2^-22.9
//! relative, `sqrt` 2^-23 relative, `div` 2 ulp, `tanh` 2^-11 relative). What
//! was seen against an H200 is in the driver's README. Special values follow the
//! manual exactly.

use super::single::{canonical, flush_if};

#[inline(always)]
fn narrow<const FTZ: bool>(x: f64) -> f32 {
    flush_if::<FTZ>(canonical(x as f32))
}

pub fn exp2<const FTZ: bool>(x: f32) -> f32 {
    narrow::<FTZ>(f64::from(flush_if::<FTZ>(x)).exp2())
}

pub fn log2<const FTZ: bool>(x: f32) -> f32 {
    narrow::<FTZ>(f64::from(flush_if::<FTZ>(x)).log2())
}

pub fn sine<const FTZ: bool>(x: f32) -> f32 {
    narrow::<FTZ>(f64::from(flush_if::<FTZ>(x)).sin())
}

pub fn cosine<const FTZ: bool>(x: f32) -> f32 {
    narrow::<FTZ>(f64::from(flush_if::<FTZ>(x)).cos())
}

pub fn tangent_hyperbolic(x: f32) -> f32 {
    narrow::<false>(f64::from(x).tanh())
}

#[inline(always)]
pub fn reciprocal<const FTZ: bool>(x: f32) -> f32 {
    narrow::<FTZ>(1.0 / f64::from(flush_if::<FTZ>(x)))
}

#[inline(always)]
pub fn reciprocal_root<const FTZ: bool>(x: f32) -> f32 {
    narrow::<FTZ>(1.0 / f64::from(flush_if::<FTZ>(x)).sqrt())
}

#[inline(always)]
pub fn root<const FTZ: bool>(x: f32) -> f32 {
    narrow::<FTZ>(f64::from(flush_if::<FTZ>(x)).sqrt())
}

/// `div.approx`: for a divisor beyond 2^126 the manual asks for 0 (or NaN for
/// an infinite dividend).
#[inline(always)]
pub fn quotient<const FTZ: bool>(a: f32, b: f32) -> f32 {
    let (a, b) = (flush_if::<FTZ>(a), flush_if::<FTZ>(b));
    let huge = b.abs() > f32::from_bits(0x7e80_0000) && b.is_finite();
    if huge {
        if a.is_infinite() || a.is_nan() {
            return f32::from_bits(0x7fff_ffff);
        }
        return if a.is_sign_negative() != b.is_sign_negative() {
            -0.0
        } else {
            0.0
        };
    }
    narrow::<FTZ>(f64::from(a) / f64::from(b))
}

/// `div.full`: the full range, 2 ulp on hardware.
#[inline(always)]
pub fn quotient_full<const FTZ: bool>(a: f32, b: f32) -> f32 {
    narrow::<FTZ>(f64::from(flush_if::<FTZ>(a)) / f64::from(flush_if::<FTZ>(b)))
}

/// `rcp.approx.ftz.f64` and its kin work on the upper word only: 20 mantissa
/// bits in, 20 out.
#[inline(always)]
pub fn upper_word(x: f64) -> f64 {
    f64::from_bits(x.to_bits() & 0xffff_ffff_0000_0000)
}
