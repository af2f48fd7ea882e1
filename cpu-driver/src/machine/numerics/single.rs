//! Details of `f32` and `f64` arithmetic that PTX modifiers ask for: flush to
//! zero, saturation, canonical NaNs, the NaN rules of min and max.

use super::formats::{self, RN, Rounding};
use super::soft;

/// NVIDIA's `f32` operations never pass a NaN's payload on.
#[inline(always)]
pub fn canonical(x: f32) -> f32 {
    if x.is_nan() {
        f32::from_bits(0x7fff_ffff)
    } else {
        x
    }
}

/// Subnormals become zero of the same sign.
#[inline(always)]
pub fn flush(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits(if bits & 0x7f80_0000 == 0 {
        bits & 0x8000_0000
    } else {
        bits
    })
}

#[inline(always)]
pub fn flush_if<const FTZ: bool>(x: f32) -> f32 {
    if FTZ { flush(x) } else { x }
}

/// `.sat`: into [0, 1], NaN to +0.
#[inline(always)]
pub fn saturate(x: f32) -> f32 {
    if x > 0.0 {
        if x < 1.0 { x } else { 1.0 }
    } else {
        0.0
    }
}

/// What every `f32` result goes through.
#[inline(always)]
pub fn finish<const FTZ: bool, const SAT: bool>(x: f32) -> f32 {
    let x = flush_if::<FTZ>(x);
    if SAT { saturate(x) } else { canonical(x) }
}

#[inline(always)]
pub fn add32<const R: Rounding>(a: f32, b: f32) -> f32 {
    if R == RN {
        return a + b;
    }
    f32::from_bits(soft::add(formats::F32, a.to_bits().into(), b.to_bits().into(), R) as u32)
}

#[inline(always)]
pub fn multiply32<const R: Rounding>(a: f32, b: f32) -> f32 {
    if R == RN {
        return a * b;
    }
    f32::from_bits(soft::multiply(formats::F32, a.to_bits().into(), b.to_bits().into(), R) as u32)
}

#[inline(always)]
pub fn fused32<const R: Rounding>(a: f32, b: f32, c: f32) -> f32 {
    if R == RN {
        return a.mul_add(b, c);
    }
    f32::from_bits(soft::fused(
        formats::F32,
        a.to_bits().into(),
        b.to_bits().into(),
        c.to_bits().into(),
        R,
    ) as u32)
}

#[inline(always)]
pub fn divide32<const R: Rounding>(a: f32, b: f32) -> f32 {
    if R == RN {
        return a / b;
    }
    f32::from_bits(soft::divide(formats::F32, a.to_bits().into(), b.to_bits().into(), R) as u32)
}

#[inline(always)]
pub fn root32<const R: Rounding>(a: f32) -> f32 {
    if R == RN {
        return a.sqrt();
    }
    f32::from_bits(soft::square_root(formats::F32, a.to_bits().into(), R) as u32)
}

#[inline(always)]
pub fn add64<const R: Rounding>(a: f64, b: f64) -> f64 {
    if R == RN {
        return a + b;
    }
    f64::from_bits(soft::add(formats::F64, a.to_bits(), b.to_bits(), R))
}

#[inline(always)]
pub fn multiply64<const R: Rounding>(a: f64, b: f64) -> f64 {
    if R == RN {
        return a * b;
    }
    f64::from_bits(soft::multiply(formats::F64, a.to_bits(), b.to_bits(), R))
}

#[inline(always)]
pub fn fused64<const R: Rounding>(a: f64, b: f64, c: f64) -> f64 {
    if R == RN {
        return a.mul_add(b, c);
    }
    f64::from_bits(soft::fused(
        formats::F64,
        a.to_bits(),
        b.to_bits(),
        c.to_bits(),
        R,
    ))
}

#[inline(always)]
pub fn divide64<const R: Rounding>(a: f64, b: f64) -> f64 {
    if R == RN {
        return a / b;
    }
    f64::from_bits(soft::divide(formats::F64, a.to_bits(), b.to_bits(), R))
}

#[inline(always)]
pub fn root64<const R: Rounding>(a: f64) -> f64 {
    if R == RN {
        return a.sqrt();
    }
    f64::from_bits(soft::square_root(formats::F64, a.to_bits(), R))
}

/// `min`: a number wins over a NaN, −0 is below +0.
#[inline(always)]
pub fn min32<const NAN: bool>(a: f32, b: f32) -> f32 {
    if NAN && (a.is_nan() || b.is_nan()) {
        return f32::NAN;
    }
    if a.is_nan() {
        return b;
    }
    let less = a < b || (a == b && a.is_sign_negative());
    if less || b.is_nan() { a } else { b }
}

#[inline(always)]
pub fn max32<const NAN: bool>(a: f32, b: f32) -> f32 {
    if NAN && (a.is_nan() || b.is_nan()) {
        return f32::NAN;
    }
    if a.is_nan() {
        return b;
    }
    let greater = a > b || (a == b && a.is_sign_positive());
    if greater || b.is_nan() { a } else { b }
}

#[inline(always)]
pub fn min64(a: f64, b: f64) -> f64 {
    if a.is_nan() {
        return b;
    }
    let less = a < b || (a == b && a.is_sign_negative());
    if less || b.is_nan() { a } else { b }
}

#[inline(always)]
pub fn max64(a: f64, b: f64) -> f64 {
    if a.is_nan() {
        return b;
    }
    let greater = a > b || (a == b && a.is_sign_positive());
    if greater || b.is_nan() { a } else { b }
}
