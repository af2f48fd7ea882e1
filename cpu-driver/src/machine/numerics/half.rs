//! The 16-bit floats: exact widening, one rounding, and arithmetic on top.
//!
//! Sums and products go through `f32`, whose 24 bits are enough for a second
//! rounding to do no harm (p ≥ 2q + 2); fused operations go through a value
//! rounded to odd, which never does harm (Boldo and Melquiond 2008).

use super::formats::{self, Format, Rounding};

/// A 16-bit float.
pub trait Half: Copy {
    const FORMAT: Format;
    const NAN: u16 = 0x7fff;
    fn bits(self) -> u16;
    fn of(bits: u16) -> Self;
    fn wide(self) -> f32;
    /// Rounds to nearest; NaN gives the canonical NaN.
    fn nearest(x: f32) -> Self;
}

/// IEEE binary16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct F16(pub u16);

/// The upper half of an `f32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BF16(pub u16);

impl Half for F16 {
    const FORMAT: Format = formats::F16;

    #[inline(always)]
    fn bits(self) -> u16 {
        self.0
    }
    #[inline(always)]
    fn of(bits: u16) -> Self {
        Self(bits)
    }
    #[inline(always)]
    fn wide(self) -> f32 {
        let magnitude = u32::from(self.0 & 0x7fff);
        let sign = u32::from(self.0 & 0x8000) << 16;
        // Exponents are re-biased by a multiplication, which is exact for
        // subnormals too.
        let scaled = f32::from_bits(magnitude << 13) * f32::from_bits(0x7780_0000);
        let special = magnitude << 13 | 0x7f80_0000;
        let bits = if magnitude >= 0x7c00 {
            special
        } else {
            scaled.to_bits()
        };
        f32::from_bits(sign | bits)
    }
    #[inline(always)]
    fn nearest(x: f32) -> Self {
        let bits = x.to_bits();
        let magnitude = bits & 0x7fff_ffff;
        let sign = (bits >> 16) as u16 & 0x8000;
        if magnitude > 0x7f80_0000 {
            return Self(Self::NAN);
        }
        // Below 2^-14 adding a constant aligns the subnormal's last place with
        // the end of the f32 and rounds there.
        let aligned = f32::from_bits(magnitude) + f32::from_bits(0x3f00_0000);
        let subnormal = aligned.to_bits().wrapping_sub(0x3f00_0000);
        let odd = magnitude >> 13 & 1;
        let normal = magnitude.wrapping_add(0xc800_0fff + odd) >> 13;
        let rounded = if magnitude < 0x3880_0000 {
            subnormal
        } else if magnitude >= 0x4780_0000 {
            0x7c00
        } else {
            normal
        };
        Self(sign | rounded as u16)
    }
}

impl Half for BF16 {
    const FORMAT: Format = formats::BF16;

    #[inline(always)]
    fn bits(self) -> u16 {
        self.0
    }
    #[inline(always)]
    fn of(bits: u16) -> Self {
        Self(bits)
    }
    #[inline(always)]
    fn wide(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
    #[inline(always)]
    fn nearest(x: f32) -> Self {
        let bits = x.to_bits();
        if x.is_nan() {
            return Self(Self::NAN);
        }
        Self((bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16)
    }
}

/// `x` cut to `f32`, its last bit set where anything was lost: rounding that
/// again gives what rounding `x` once would have given.
#[inline(always)]
pub fn to_odd(x: f64) -> f32 {
    let near = x as f32;
    let back = f64::from(near);
    if back == x || x.is_nan() {
        return near;
    }
    let bits = near.to_bits();
    // Towards zero: one step back where rounding went away from zero.
    let cut = if back.abs() > x.abs() { bits - 1 } else { bits };
    f32::from_bits(cut | 1)
}

/// `a * b + c` for factors of at most 12 bits, cut to `f32` with a sticky bit.
#[inline(always)]
pub fn fused_odd(a: f32, b: f32, c: f32) -> f32 {
    let product = f64::from(a) * f64::from(b);
    let c = f64::from(c);
    let sum = product + c;
    if !sum.is_finite() {
        return sum as f32;
    }
    // Knuth's two-sum: the exact error of the addition.
    let virtual_c = sum - product;
    let error = (product - (sum - virtual_c)) + (c - virtual_c);
    if error == 0.0 {
        return to_odd(sum);
    }
    let towards_zero = (error < 0.0) == (sum > 0.0);
    let bits = if towards_zero {
        sum.to_bits() - 1
    } else {
        sum.to_bits()
    };
    to_odd(f64::from_bits(bits | 1))
}

#[inline(always)]
pub fn flush<H: Half, const FTZ: bool>(x: H) -> H {
    let infinity = H::FORMAT.infinity() as u16;
    if FTZ && x.bits() & infinity == 0 {
        H::of(x.bits() & 0x8000)
    } else {
        x
    }
}

/// What results go through: `.ftz`, `.sat` (into [0, 1], NaN to 0), `.relu`
/// (negative to 0, NaN stays).
#[inline(always)]
pub fn finish<H: Half, const FTZ: bool, const SAT: bool, const RELU: bool>(x: f32) -> H {
    let x = if SAT {
        super::single::saturate(x)
    } else if RELU && x <= 0.0 {
        0.0
    } else {
        x
    };
    // What is below the smallest normal number before it is rounded is flushed.
    let smallest = f32::from_bits(H::FORMAT.smallest_normal_f32());
    if FTZ && x.abs() < smallest {
        return H::of((x.to_bits() >> 16) as u16 & 0x8000);
    }
    H::nearest(x)
}

/// Rounds an exact `f64` in any direction.
pub fn round<H: Half>(x: f64, rounding: Rounding) -> H {
    H::of(H::FORMAT.from_f64(x, rounding, false) as u16)
}

/// Every E4M3 code and every E5M2 code as `f16`, which holds them exactly.
pub static FP8_AS_F16: [[u16; 256]; 2] = [table(true), table(false)];

const fn table(e4m3: bool) -> [u16; 256] {
    let mut out = [0; 256];
    let mut code = 0;
    while code < 256 {
        out[code] = if e4m3 {
            widened_e4m3(code as u16)
        } else {
            widened_e5m2(code as u16)
        };
        code += 1;
    }
    out
}

/// E5M2 is the upper half of `f16`; NaNs become canonical.
const fn widened_e5m2(code: u16) -> u16 {
    if code & 0x7f > 0x7c {
        0x7fff
    } else {
        code << 8
    }
}

const fn widened_e4m3(code: u16) -> u16 {
    let sign = (code & 0x80) << 8;
    let (exponent, mut mantissa) = (code >> 3 & 15, code & 7);
    if code & 0x7f == 0x7f {
        return 0x7fff;
    }
    if exponent > 0 {
        // Biases are 7 and 15.
        return sign | (exponent + 8) << 10 | mantissa << 7;
    }
    if mantissa == 0 {
        return sign;
    }
    // Subnormals are normal in `f16`.
    let mut exponent = 9;
    while mantissa & 8 == 0 {
        mantissa <<= 1;
        exponent -= 1;
    }
    sign | exponent << 10 | (mantissa & 7) << 7
}

#[cfg(test)]
mod tests {
    use super::{F16, FP8_AS_F16, Half};
    use crate::machine::numerics::formats::{E4M3, E5M2};

    #[test]
    fn the_table_of_8_bit_floats_has_their_values() {
        for (format, table) in [(E4M3, &FP8_AS_F16[0]), (E5M2, &FP8_AS_F16[1])] {
            for (code, bits) in table.iter().enumerate() {
                let exact = format.to_f64(code as u64);
                let rounded = F16::nearest(exact as f32).bits();
                assert_eq!(*bits, rounded, "{format:?} code {code:#x}");
            }
        }
    }
}
