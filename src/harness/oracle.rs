//! Reference answers that share nothing with a kernel.
//!
//! A plain loop from the first element to the last, in `f64`, with Kahan's
//! compensation (W. Kahan, "Further remarks on reducing truncation errors",
//! CACM 8(1), 1965). No block, no tree, no helper that a kernel or its host code
//! also calls: two copies of one mistake agree.
//!
//! Limits: the error of a compensated sum is about 2u·Σ|x| with u = 2^-53, far
//! below any `f32` gate. It does not survive `-ffast-math` style re-association,
//! which Rust does not do.

/// A running sum in `f64` that carries the low part each addition would lose.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kahan {
    total: f64,
    carry: f64,
}

impl Kahan {
    /// Adds one term.
    pub fn add(&mut self, term: f64) {
        let corrected = term - self.carry;
        let next = self.total + corrected;
        // What the addition rounded away, with the sign turned.
        self.carry = (next - self.total) - corrected;
        self.total = next;
    }

    /// The sum so far.
    pub fn total(&self) -> f64 {
        self.total
    }
}

/// The sum of `values`, first to last.
pub fn sum(values: &[f32]) -> f64 {
    let mut total = Kahan::default();
    for &value in values {
        total.add(f64::from(value));
    }
    total.total()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lesson_input_sums_to_the_hand_derived_totals() {
        for (n, want) in [(611, 14_171.0), (1_024, 23_995.5), (16_483, 395_434.5)] {
            let input: Vec<f32> = (0..n).map(|i| (i % 97) as f32 * 0.5).collect();
            assert_eq!(sum(&input), want, "n = {n}");
        }
    }

    #[test]
    fn a_term_below_the_spacing_of_the_total_is_not_lost() {
        // 2^53 + 1 + 1 + ... : a plain f64 loop never leaves 2^53.
        let mut compensated = Kahan::default();
        let mut plain = 0.0_f64;
        for term in std::iter::once(2f64.powi(53)).chain(std::iter::repeat_n(1.0, 1_000)) {
            compensated.add(term);
            plain += term;
        }
        assert_eq!(
            plain,
            2f64.powi(53),
            "the case no longer needs compensation"
        );
        assert_eq!(compensated.total(), 2f64.powi(53) + 1_000.0);
    }

    #[test]
    fn nan_in_the_input_reaches_the_answer() {
        assert!(sum(&[1.0, f32::NAN, 2.0]).is_nan());
    }
}
