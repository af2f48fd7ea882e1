//! Comparisons that can fail, and the sentence that says on what.
//!
//! A comparison passes only when every element is a finite number inside its
//! gate. The relative comparison is `approx`'s: the error counts against the
//! larger of the two magnitudes, so it is symmetric and defined at zero. Around
//! it stands what `approx` leaves to the caller: lengths must match, the
//! reference must be finite and not all zeros, the gate must be a number, and
//! there must be something to compare. `diff > tolerance` is never written: it
//! is false for NaN, and so passes it.

use super::tolerance::SumTolerance;
use super::verdict::{Comparison, Failure, Passed, Verdict};
use approx::{AbsDiffEq, RelativeEq};
use serde::Serialize;

/// A check by name, with the wrong kernel that it turns away.
///
/// A check without such a kernel is not worth running; the tests hold one for
/// every check of the lessons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Identifier, stable across releases: it stands in reports and answers.
    pub name: &'static str,
    /// One sentence: a wrong kernel that fails this check.
    pub rejects: &'static str,
}

/// One check at one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// What was checked.
    #[serde(flatten)]
    pub check: Check,
    /// Elements the kernel was given.
    pub n: usize,
    /// What was found.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// How far an element may be from its reference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// Equal as numbers.
    Exact,
    /// The same bits, after both are known to be finite: -0 is not +0.
    Bitwise,
    /// `|got - want|` at most this times the larger magnitude.
    Relative(f64),
    /// Relative, with the limit computed for a sum of `f32` terms.
    Sum(SumTolerance),
    /// `|got - want|` at most this.
    Absolute(f64),
}

impl Gate {
    /// The limit as a number; zero for the exact gates.
    pub fn limit(self) -> f64 {
        match self {
            Gate::Exact | Gate::Bitwise => 0.0,
            Gate::Relative(limit) | Gate::Absolute(limit) => limit,
            Gate::Sum(tolerance) => tolerance.gate,
        }
    }

    /// The error in this gate's unit. NaN where either value is NaN.
    pub fn error(self, got: f64, want: f64) -> f64 {
        let distance = (got - want).abs();
        match self {
            Gate::Exact | Gate::Bitwise | Gate::Absolute(_) => distance,
            Gate::Relative(_) | Gate::Sum(_) if distance == 0.0 => 0.0,
            Gate::Relative(_) | Gate::Sum(_) => distance / got.abs().max(want.abs()),
        }
    }

    /// Whether `got` is inside the gate around `want`; never for NaN or infinity.
    pub fn admits(self, got: f64, want: f64) -> bool {
        if !got.is_finite() || !want.is_finite() {
            return false;
        }
        match self {
            Gate::Exact => got == want,
            Gate::Bitwise => got.to_bits() == want.to_bits(),
            Gate::Relative(_) | Gate::Sum(_) => got.relative_eq(&want, 0.0, self.limit()),
            Gate::Absolute(limit) => got.abs_diff_eq(&want, limit),
        }
    }

    pub(super) fn describe(self, error: f64) -> String {
        match self {
            Gate::Exact => format!("difference {}, gate 0", super::figures::value(error)),
            Gate::Bitwise => format!("difference {}, bits equal", super::figures::value(error)),
            Gate::Relative(limit) => format!("relative error {}, gate {limit:.3e}", short(error)),
            Gate::Sum(tolerance) => format!("relative error {}, gate {tolerance}", short(error)),
            Gate::Absolute(limit) => format!("error {}, gate {limit:.3e}", short(error)),
        }
    }

    fn is_sound(self) -> bool {
        self.limit().is_finite() && self.limit() >= 0.0
    }
}

fn short(error: f64) -> String {
    if error == 0.0 {
        "0".to_owned()
    } else {
        format!("{error:.3e}")
    }
}

/// Compares a result with its reference, one gate for all elements.
pub fn compare<T: Copy + Into<f64>>(got: &[T], want: &[f64], gate: Gate) -> Verdict {
    compare_with(got, want, |_| gate)
}

/// Compares a result with its reference, each element against its own gate.
///
/// Fails on the first element outside its gate. Lengths that differ, nothing to
/// compare, a reference that is not finite or is all zeros, and a gate that is
/// not a number at or above zero fail too.
pub fn compare_with<T: Copy + Into<f64>>(
    got: &[T],
    want: &[f64],
    gate_of: impl Fn(usize) -> Gate,
) -> Verdict {
    if let Some(failure) = unusable(got.len(), want) {
        return Verdict::Fail(failure);
    }
    let mut worst: Option<Comparison> = None;
    for (index, (&got, &want_here)) in got.iter().zip(want).enumerate() {
        let gate = gate_of(index);
        if !gate.is_sound() {
            return Verdict::Fail(Failure::BrokenGate { index, gate });
        }
        let got = got.into();
        let comparison = Comparison {
            index,
            len: want.len(),
            got,
            want: want_here,
            error: gate.error(got, want_here),
            gate,
        };
        if !gate.admits(got, want_here) {
            return Verdict::Fail(Failure::Mismatch(comparison));
        }
        if worst.is_none_or(|worst| comparison.error > worst.error) {
            worst = Some(comparison);
        }
    }
    match worst {
        Some(worst) => Verdict::Pass(Passed {
            compared: want.len(),
            worst,
        }),
        None => Verdict::Fail(Failure::NoCases),
    }
}

/// Compares one value with its reference.
pub fn compare_one(got: f32, want: f64, gate: Gate) -> Verdict {
    compare(&[got], &[want], gate)
}

/// Compares two results of the same kernel bit for bit.
pub fn same_bits(got: &[f32], want: &[f32]) -> Verdict {
    let want: Vec<f64> = want.iter().copied().map(f64::from).collect();
    compare(got, &want, Gate::Bitwise)
}

fn unusable(got: usize, want: &[f64]) -> Option<Failure> {
    if got != want.len() {
        return Some(Failure::Length {
            got,
            want: want.len(),
        });
    }
    if want.is_empty() {
        return Some(Failure::NoCases);
    }
    if let Some(index) = want.iter().position(|value| !value.is_finite()) {
        return Some(Failure::BrokenReference {
            index,
            want: want[index],
        });
    }
    if want.iter().all(|&value| value == 0.0) {
        return Some(Failure::TrivialReference { len: want.len() });
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const GATES: [Gate; 5] = [
        Gate::Exact,
        Gate::Sum(SumTolerance {
            terms: 1,
            grown: 0.9,
            gate: 0.9,
        }),
        Gate::Bitwise,
        Gate::Relative(0.9),
        Gate::Absolute(1e30),
    ];

    #[test]
    fn a_result_that_is_not_a_number_fails_every_gate() {
        for gate in GATES {
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let verdict = compare(&[1.0, bad, 3.0], &[1.0, 2.0, 3.0], gate);
                let seen = verdict.mismatch().map(|m| m.index);
                assert_eq!(seen, Some(1), "{gate:?} {bad}: {verdict:?}");
            }
        }
    }

    #[test]
    fn a_reference_that_is_not_a_number_fails_even_when_the_result_agrees() {
        for gate in GATES {
            for bad in [f64::NAN, f64::INFINITY] {
                let verdict = compare(&[1.0, bad as f32], &[1.0, bad], gate);
                assert!(
                    matches!(
                        verdict,
                        Verdict::Fail(Failure::BrokenReference { index: 1, .. })
                    ),
                    "{gate:?} {bad}: {verdict:?}"
                );
            }
        }
    }

    #[test]
    fn a_length_mismatch_fails_whichever_side_is_longer() {
        for gate in GATES {
            for (got, want) in [(1, 2), (2, 1), (0, 1), (1, 0)] {
                let verdict = compare(&vec![1.0_f32; got], &vec![1.0; want], gate);
                assert_eq!(verdict, Verdict::Fail(Failure::Length { got, want }));
            }
        }
    }

    #[test]
    fn an_all_zero_reference_fails_even_when_the_result_is_zero() {
        for gate in GATES {
            let verdict = compare(&[0.0_f32; 3], &[0.0; 3], gate);
            assert_eq!(verdict, Verdict::Fail(Failure::TrivialReference { len: 3 }));
        }
    }

    #[test]
    fn nothing_to_compare_fails() {
        for gate in GATES {
            assert_eq!(
                compare::<f32>(&[], &[], gate),
                Verdict::Fail(Failure::NoCases)
            );
        }
    }

    #[test]
    fn a_gate_that_is_not_a_number_admits_nothing() {
        for limit in [f64::NAN, f64::INFINITY, -1.0] {
            for gate in [Gate::Relative(limit), Gate::Absolute(limit)] {
                let verdict = compare(&[1.0_f32], &[1.0], gate);
                assert!(
                    matches!(verdict, Verdict::Fail(Failure::BrokenGate { .. })),
                    "{gate:?}: {verdict:?}"
                );
            }
        }
    }

    #[test]
    fn the_first_bad_element_is_named_with_its_own_gate() {
        let verdict = compare_with(&[1.0_f32, 2.5, 9.0], &[1.0, 2.0, 3.0], |i| {
            Gate::Absolute(if i == 1 { 0.5 } else { 0.25 })
        });
        assert_eq!(
            verdict,
            Verdict::Fail(Failure::Mismatch(Comparison {
                index: 2,
                len: 3,
                got: 9.0,
                want: 3.0,
                error: 6.0,
                gate: Gate::Absolute(0.25),
            }))
        );
    }

    #[test]
    fn a_relative_gate_counts_against_the_larger_magnitude_and_has_no_floor() {
        let gate = Gate::Relative(1e-2);
        assert!(gate.admits(100.0, 99.0));
        assert!(!gate.admits(100.0, 98.9));
        // approx's default epsilon would admit this pair.
        assert!(!gate.admits(1e-20, 0.0));
        assert_eq!(gate.error(1e-20, 0.0), 1.0);
    }

    #[test]
    fn no_gate_admits_two_equal_things_that_are_not_numbers() {
        for gate in GATES {
            for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                assert!(!gate.admits(bad, bad), "{gate:?} {bad}");
            }
        }
    }

    #[test]
    fn bits_tell_the_two_zeros_apart_and_numbers_do_not() {
        assert!(Gate::Exact.admits(-0.0, 0.0));
        assert!(!Gate::Bitwise.admits(-0.0, 0.0));
        assert!(same_bits(&[1.0, -0.0], &[1.0, 0.0]).failed());
        assert!(same_bits(&[1.0, f32::NAN], &[1.0, f32::NAN]).failed());
    }

    #[test]
    fn a_pass_says_how_many_were_compared_and_which_was_worst() {
        let verdict = compare(
            &[1.0_f32, 2.125, 3.0],
            &[1.0, 2.0, 3.0],
            Gate::Absolute(0.5),
        );
        let Verdict::Pass(passed) = verdict else {
            panic!("{verdict:?}");
        };
        assert_eq!((passed.compared, passed.worst.index), (3, 1));
        assert_eq!(passed.worst.error, 0.125);
    }
}
