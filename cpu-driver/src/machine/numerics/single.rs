//! Details of `f32` and `f64` arithmetic that PTX modifiers ask for: flush to
//! zero, saturation, canonical NaNs, the NaN rules of min and max.

use super::formats::{self, RN, Rounding};
use super::soft;

/// NVIDIA's `f32` operations never pass a NaN's payload on.
#[inline(always)]
pub fn canonical(x: f32) -> f32 {
    // On the bits: a compiler may take any NaN for any other.
    let bits = x.to_bits();
    f32::from_bits(if bits & 0x7fff_ffff > 0x7f80_0000 {
        0x7fff_ffff
    } else {
        bits
    })
}

/// What an `f64` operation gives where one of its operands is a NaN: the last
/// NaN in the order given, made quiet.
#[inline(always)]
pub fn propagate64<const N: usize>(result: f64, operands: [f64; N]) -> f64 {
    let mut bits = result.to_bits();
    for operand in operands {
        if operand.is_nan() {
            bits = operand.to_bits() | 1 << 51;
        }
    }
    f64::from_bits(bits)
}

/// `.ftz` looks at the result before it is rounded: an exact value below the
/// smallest normal number is flushed even where rounding would reach it.
#[inline(always)]
fn flush_tiny<const FTZ: bool>(rounded: f32, exact: f64) -> f32 {
    if FTZ && exact.abs() < f64::from(f32::MIN_POSITIVE) {
        f32::from_bits(rounded.to_bits() & 0x8000_0000)
    } else {
        rounded
    }
}

/// `a * b` of flushed operands.
#[inline(always)]
pub fn multiply32_ftz<const R: Rounding, const FTZ: bool>(a: f32, b: f32) -> f32 {
    flush_tiny::<FTZ>(multiply32::<R>(a, b), f64::from(a) * f64::from(b))
}

/// `a * b + c` of flushed operands.
#[inline(always)]
pub fn fused32_ftz<const R: Rounding, const FTZ: bool>(a: f32, b: f32, c: f32) -> f32 {
    let exact = f64::from(a) * f64::from(b) + f64::from(c);
    flush_tiny::<FTZ>(fused32::<R>(a, b, c), exact)
}

/// `a / b` of flushed operands.
#[inline(always)]
pub fn divide32_ftz<const R: Rounding, const FTZ: bool>(a: f32, b: f32) -> f32 {
    flush_tiny::<FTZ>(divide32::<R>(a, b), f64::from(a) / f64::from(b))
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
    let sum = if R == RN {
        a + b
    } else {
        f64::from_bits(soft::add(formats::F64, a.to_bits(), b.to_bits(), R))
    };
    propagate64(sum, [a, b])
}

#[inline(always)]
pub fn multiply64<const R: Rounding>(a: f64, b: f64) -> f64 {
    let product = if R == RN {
        a * b
    } else {
        f64::from_bits(soft::multiply(formats::F64, a.to_bits(), b.to_bits(), R))
    };
    propagate64(product, [a, b])
}

#[inline(always)]
pub fn fused64<const R: Rounding>(a: f64, b: f64, c: f64) -> f64 {
    let sum = if R == RN {
        a.mul_add(b, c)
    } else {
        f64::from_bits(soft::fused(
            formats::F64,
            a.to_bits(),
            b.to_bits(),
            c.to_bits(),
            R,
        ))
    };
    propagate64(sum, [a, b, c])
}

#[inline(always)]
pub fn divide64<const R: Rounding>(a: f64, b: f64) -> f64 {
    let quotient = if R == RN {
        a / b
    } else {
        f64::from_bits(soft::divide(formats::F64, a.to_bits(), b.to_bits(), R))
    };
    // The division routine looks at the dividend first.
    propagate64(quotient, [b, a])
}

#[inline(always)]
pub fn root64<const R: Rounding>(a: f64) -> f64 {
    let root = if R == RN {
        a.sqrt()
    } else {
        f64::from_bits(soft::square_root(formats::F64, a.to_bits(), R))
    };
    propagate64(root, [a])
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
        return quiet(b);
    }
    let less = a < b || (a == b && a.is_sign_negative());
    if less || b.is_nan() { a } else { b }
}

#[inline(always)]
fn quiet(x: f64) -> f64 {
    propagate64(x, [x])
}

#[inline(always)]
pub fn max64(a: f64, b: f64) -> f64 {
    if a.is_nan() {
        return quiet(b);
    }
    let greater = a > b || (a == b && a.is_sign_positive());
    if greater || b.is_nan() { a } else { b }
}
