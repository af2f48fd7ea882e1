//! How much rounding a sum of `n` `f32` terms explains.
//!
//! The gate is `max(base, 4 · 2^-23 · sqrt(n))`, relative. 2^-23 is the spacing
//! of `f32` at 1.0. For a tree, or for any order that the data does not conspire
//! with, rounding errors have no common sign and their sum grows like `sqrt(n)`
//! (Higham & Mary, "A new approach to probabilistic rounding error analysis",
//! 2019); the factor 4 is room for another valid order.
//!
//! # Where this gate goes blind
//!
//! A gate that grows with `n` while the bug does not grow will cover the bug.
//! On the lesson's input, dropping 99 elements fits inside this gate from
//! n ≈ 350,600 on. So it only ever answers "is the rounding within reason?".
//! Whether elements are missing is asked first, with exact inputs and gate zero
//! ([`crate::harness::inputs::structural`]).

use super::check::Gate;
use serde::Serialize;
use std::fmt;

/// The floor under the scaled gate. It must stay at or below 1.17e-5, or the
/// floor, not the arithmetic, would decide at n = 611.
pub const BASE: f64 = 1e-5;

/// Distance between neighbouring `f32` values at 1.0.
pub const F32_SPACING: f64 = 1.0 / 8_388_608.0;

const SLACK: f64 = 4.0;

/// A relative gate for a sum of `terms` terms, with its arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SumTolerance {
    /// How many `f32` terms are added.
    pub terms: usize,
    /// `4 · 2^-23 · sqrt(terms)`.
    pub grown: f64,
    /// The gate: `max(BASE, grown)`.
    pub gate: f64,
}

impl SumTolerance {
    /// The gate for a sum of `terms` values.
    pub fn for_terms(terms: usize) -> Self {
        let grown = SLACK * F32_SPACING * (terms as f64).sqrt();
        Self {
            terms,
            grown,
            gate: grown.max(BASE),
        }
    }

    /// The same as a gate for [`super::check::compare`].
    pub fn as_gate(self) -> Gate {
        Gate::Sum(self)
    }
}

impl fmt::Display for SumTolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.3e} = max({BASE:e}, 4 x 2^-23 x sqrt({}))",
            self.gate,
            super::figures::count(self.terms)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gates_of_the_lesson_are_reproduced_to_the_digit() {
        for (n, want) in [(611, "1.179e-5"), (1_024, "1.526e-5"), (16_483, "6.122e-5")] {
            assert_eq!(format!("{:.3e}", SumTolerance::for_terms(n).gate), want);
        }
    }

    #[test]
    fn the_floor_decides_only_below_the_smallest_lesson_size() {
        assert_eq!(SumTolerance::for_terms(256).gate, BASE);
        let at_611 = SumTolerance::for_terms(611);
        assert_eq!(at_611.gate, at_611.grown);
    }

    #[test]
    fn the_text_shows_the_arithmetic() {
        let text = SumTolerance::for_terms(16_483).to_string();
        assert_eq!(text, "6.122e-5 = max(1e-5, 4 x 2^-23 x sqrt(16,483))");
    }
}
