//! Outputs are filled with poison before each launch.
//!
//! Device memory keeps what the last run left in it, which is often the right
//! answer: a kernel that never ran would then pass. Poison is the byte 0xFF
//! throughout. As a float that is a NaN, so an element that was not written fails
//! every gate; its bits are not those of a NaN that NVIDIA's or x86 arithmetic
//! produces (0x7fffffff, 0xffc00000), so the two can be told apart.

/// The bits of a poisoned `f32`.
pub const F32_BITS: u32 = u32::MAX;

/// A poisoned `u32`.
pub const U32: u32 = u32::MAX;

/// `n` poisoned floats.
pub fn floats(n: usize) -> Vec<f32> {
    vec![f32::from_bits(F32_BITS); n]
}

/// The first float that still holds poison.
pub fn untouched_float(values: &[f32]) -> Option<usize> {
    values.iter().position(|value| value.to_bits() == F32_BITS)
}

/// `n` poisoned words.
pub fn words(n: usize) -> Vec<u32> {
    vec![U32; n]
}

/// The first word that still holds poison.
pub fn untouched_word(values: &[u32]) -> Option<usize> {
    values.iter().position(|&value| value == U32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::check::{Gate, compare};

    #[test]
    fn a_poisoned_output_fails_every_gate() {
        let want = [1.0; 4];
        for gate in [Gate::Exact, Gate::Relative(1.0), Gate::Absolute(f64::MAX)] {
            assert!(compare(&floats(4), &want, gate).failed(), "{gate:?}");
        }
    }

    #[test]
    fn poison_is_told_from_values_and_from_other_nans() {
        let mut values = floats(3);
        values[0] = 1.0;
        values[1] = f32::NAN;
        assert_eq!(untouched_float(&values), Some(2));
        values[2] = 0.0;
        assert_eq!(untouched_float(&values), None);

        let mut values = words(2);
        values[0] = 0;
        assert_eq!(untouched_word(&values), Some(1));
    }
}
