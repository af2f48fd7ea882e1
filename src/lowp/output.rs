//! The types a GEMM may write: FP32, FP16 and BF16 (the crate `half`).

use half::{bf16, f16};

use super::minifloat::{exponent_of, power_of_two};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OutputType {
    F32,
    F16,
    Bf16,
}

impl OutputType {
    pub const ALL: [OutputType; 3] = [OutputType::F32, OutputType::F16, OutputType::Bf16];

    pub fn name(self) -> &'static str {
        match self {
            OutputType::F32 => "f32",
            OutputType::F16 => "f16",
            OutputType::Bf16 => "bf16",
        }
    }

    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            OutputType::F32 => 4,
            OutputType::F16 | OutputType::Bf16 => 2,
        }
    }

    /// Bits of significand, the implicit one included.
    pub fn precision(self) -> i32 {
        match self {
            OutputType::F32 => 24,
            OutputType::F16 => 11,
            OutputType::Bf16 => 8,
        }
    }

    /// Exponent of the smallest normal number.
    fn smallest_normal(self) -> i32 {
        match self {
            OutputType::F32 | OutputType::Bf16 => -126,
            OutputType::F16 => -14,
        }
    }

    /// Largest finite value.
    pub fn max(self) -> f64 {
        match self {
            OutputType::F32 => f64::from(f32::MAX),
            OutputType::F16 => f16::MAX.to_f64(),
            OutputType::Bf16 => bf16::MAX.to_f64(),
        }
    }

    /// Half the spacing of the type around |x|: what rounding `x` to nearest
    /// can cost. NaN and infinity give NaN.
    pub fn half_ulp(self, x: f64) -> f64 {
        if !x.is_finite() {
            return f64::NAN;
        }
        let lowest = self.smallest_normal();
        let exponent = if x == 0.0 {
            lowest
        } else {
            exponent_of(x).max(lowest)
        };
        power_of_two(exponent - self.precision())
    }

    /// Rounds an f32 to the type (nearest even) and widens it again.
    pub fn round(self, x: f32) -> f64 {
        match self {
            OutputType::F32 => f64::from(x),
            OutputType::F16 => f16::from_f32(x).to_f64(),
            OutputType::Bf16 => bf16::from_f32(x).to_f64(),
        }
    }

    /// Rounds an f64 to the type in one step; past the largest value, infinity.
    ///
    /// Not by the crate `half`: its `from_f64` looks at the upper 32 bits only, and
    /// so takes a value just above a tie for the tie.
    pub fn round_wide(self, x: f64) -> f64 {
        if self == OutputType::F32 {
            return f64::from(x as f32);
        }
        if !x.is_finite() {
            return x;
        }
        // Exact: a power of two apart from the rounding itself.
        let spacing = 2.0 * self.half_ulp(x);
        let rounded = (x / spacing).round_ties_even() * spacing;
        if rounded.abs() > self.max() {
            f64::INFINITY.copysign(x)
        } else {
            rounded
        }
    }

    /// Widens little-endian bytes; a ragged tail is an error of the caller.
    pub fn widen(self, bytes: &[u8]) -> Vec<f64> {
        assert_eq!(
            bytes.len() % self.size(),
            0,
            "whole elements of {}",
            self.name()
        );
        match self {
            OutputType::F32 => bytes
                .chunks_exact(4)
                .map(|b| f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]])))
                .collect(),
            OutputType::F16 => bytes
                .chunks_exact(2)
                .map(|b| f16::from_le_bytes([b[0], b[1]]).to_f64())
                .collect(),
            OutputType::Bf16 => bytes
                .chunks_exact(2)
                .map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f64())
                .collect(),
        }
    }

    /// The bytes of `x` rounded to the type.
    pub fn bytes_of(self, x: f32) -> Vec<u8> {
        match self {
            OutputType::F32 => x.to_le_bytes().to_vec(),
            OutputType::F16 => f16::from_f32(x).to_le_bytes().to_vec(),
            OutputType::Bf16 => bf16::from_f32(x).to_le_bytes().to_vec(),
        }
    }

    /// A NaN no arithmetic produces (its payload is ours): the poison that an
    /// output holds before the kernel runs.
    pub fn poison(self) -> Vec<u8> {
        match self {
            OutputType::F32 => 0x7fed_cafe_u32.to_le_bytes().to_vec(),
            OutputType::F16 => 0x7eda_u16.to_le_bytes().to_vec(),
            OutputType::Bf16 => 0x7fda_u16.to_le_bytes().to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_ulp_is_half_the_distance_to_the_next_value_at_every_bf16_and_f16() {
        for bits in 1..0x7f7f_u16 {
            let x = bf16::from_bits(bits).to_f64();
            let next = bf16::from_bits(bits + 1).to_f64();
            assert_eq!(OutputType::Bf16.half_ulp(x), (next - x) / 2.0);
        }
        for bits in 1..0x7bff_u16 {
            let x = f16::from_bits(bits).to_f64();
            let next = f16::from_bits(bits + 1).to_f64();
            assert_eq!(OutputType::F16.half_ulp(-x), (next - x) / 2.0);
        }
        assert_eq!(OutputType::F32.half_ulp(1.0), 2f64.powi(-24));
        assert!(OutputType::F32.half_ulp(f64::NAN).is_nan());
    }

    #[test]
    fn rounding_never_moves_a_value_by_more_than_half_ulp() {
        for output in OutputType::ALL {
            for step in 0..20_000 {
                let x = (step as f32 - 10_000.0) * 0.37 + 1e-3;
                let moved = (output.round(x) - f64::from(x)).abs();
                assert!(
                    moved <= output.half_ulp(f64::from(x)),
                    "{} {x}",
                    output.name()
                );
            }
        }
    }

    #[test]
    fn rounding_from_f64_agrees_with_half_on_every_float_of_a_sample() {
        for output in [OutputType::F16, OutputType::Bf16] {
            for bits in (0..0x7f80_0000u32).step_by(65_521) {
                let x = f32::from_bits(bits);
                for x in [x, -x] {
                    assert_eq!(output.round_wide(f64::from(x)), output.round(x), "{x:e}");
                }
            }
        }
        assert!(OutputType::Bf16.round_wide(f64::NAN).is_nan());
    }

    #[test]
    fn rounding_from_f64_does_not_round_twice() {
        let just_above_half = 1.0 + 2f64.powi(-8) + 2f64.powi(-40);
        assert_eq!(
            OutputType::Bf16.round_wide(just_above_half),
            1.0 + 2f64.powi(-7)
        );
        let just_above_half = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
        assert_eq!(
            OutputType::F16.round_wide(just_above_half),
            1.0 + 2f64.powi(-10)
        );
        assert_eq!(OutputType::Bf16.round_wide(1.0 + 2f64.powi(-8)), 1.0);
        assert_eq!(OutputType::F16.round_wide(1e6), f64::INFINITY);
    }

    #[test]
    fn poison_is_nan_and_bytes_widen_back() {
        for output in OutputType::ALL {
            assert!(output.widen(&output.poison())[0].is_nan());
            assert_eq!(output.widen(&output.bytes_of(-1.5)), [-1.5]);
        }
    }
}
