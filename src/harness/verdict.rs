//! Pass, fail and skipped as values, and how they become an exit code.
//!
//! Skipped is not pass: a run in which every case was skipped could not tell,
//! and says so with exit code 3.

use super::check::Gate;
use super::figures;
use crate::exit::Exit;
use serde::Serialize;
use std::fmt;

/// What one check found.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// Every element was inside its gate.
    Pass(Passed),
    /// Something was wrong, and this is the first of it.
    Fail(Failure),
    /// The check did not run.
    Skipped {
        /// Why, and what would make it run.
        reason: String,
    },
}

/// What a pass rests on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Passed {
    /// How many elements were compared; never zero.
    pub compared: usize,
    /// The element with the largest error.
    pub worst: Comparison,
}

/// One element against its reference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Index of the element, counted from 0.
    pub index: usize,
    /// How many elements there are.
    pub len: usize,
    /// What the kernel computed.
    pub got: f64,
    /// What the reference says.
    pub want: f64,
    /// The error, in the unit of the gate.
    pub error: f64,
    /// What the error may be at most.
    pub gate: Gate,
}

/// Why a check failed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "failure", rename_all = "snake_case")]
pub enum Failure {
    /// The first element outside its gate; an element that is not a finite
    /// number is always outside.
    Mismatch(Comparison),
    /// Result and reference have different lengths.
    Length {
        /// Elements in the result.
        got: usize,
        /// Elements in the reference.
        want: usize,
    },
    /// Every element of the reference is zero: a kernel that does nothing, and
    /// most that do the wrong thing, would pass.
    TrivialReference {
        /// Elements in the reference.
        len: usize,
    },
    /// The reference holds something that is not a finite number.
    BrokenReference {
        /// First such element.
        index: usize,
        /// Its value.
        want: f64,
    },
    /// There was nothing to compare.
    NoCases,
    /// The gate is not a number at or above zero.
    BrokenGate {
        /// The element it belongs to.
        index: usize,
        /// The gate as given.
        gate: Gate,
    },
    /// The launch was refused before the kernel could run, or left its output
    /// unwritten.
    Launch {
        /// What was refused and why.
        message: String,
    },
}

impl Verdict {
    /// Whether this is a pass. A skipped check is not.
    pub fn passed(&self) -> bool {
        matches!(self, Verdict::Pass(_))
    }

    /// Whether this is a failure. A skipped check is not.
    pub fn failed(&self) -> bool {
        matches!(self, Verdict::Fail(_))
    }

    /// The element that failed, where one did.
    pub fn mismatch(&self) -> Option<&Comparison> {
        match self {
            Verdict::Fail(Failure::Mismatch(comparison)) => Some(comparison),
            _ => None,
        }
    }

    /// `PASS`, `FAIL` or `SKIP`.
    pub fn word(&self) -> &'static str {
        match self {
            Verdict::Pass(_) => "PASS",
            Verdict::Fail(_) => "FAIL",
            Verdict::Skipped { .. } => "SKIP",
        }
    }
}

/// One verdict for many: the first failure; else a pass if one passed; else
/// skipped. No verdicts at all is a failure.
pub fn overall<'a>(verdicts: impl IntoIterator<Item = &'a Verdict>) -> Verdict {
    let mut best: Option<&Verdict> = None;
    for verdict in verdicts {
        match (verdict, best) {
            (Verdict::Fail(_), _) => return verdict.clone(),
            (Verdict::Pass(_), _) | (Verdict::Skipped { .. }, None) => best = Some(verdict),
            (Verdict::Skipped { .. }, Some(_)) => {}
        }
    }
    best.cloned().unwrap_or(Verdict::Fail(Failure::NoCases))
}

/// The exit code of a run: 1 if anything failed, 3 if nothing ran or everything
/// was skipped, 0 otherwise.
pub fn exit<'a>(verdicts: impl IntoIterator<Item = &'a Verdict>) -> Exit {
    match overall(verdicts) {
        Verdict::Pass(_) => Exit::Held,
        Verdict::Fail(Failure::NoCases) | Verdict::Skipped { .. } => Exit::CouldNotRun,
        Verdict::Fail(_) => Exit::Failed,
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Pass(passed) => write!(f, "{}", passed.worst),
            Verdict::Fail(failure) => write!(f, "{failure}"),
            Verdict::Skipped { reason } => write!(f, "skipped: {reason}"),
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.len != 1 {
            write!(f, "element {}: ", figures::count(self.index))?;
        }
        write!(
            f,
            "got {}, want {}, {}",
            figures::value(self.got),
            figures::value(self.want),
            self.gate.describe(self.error)
        )
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Mismatch(comparison) => write!(f, "{comparison}"),
            Failure::Length { got, want } => write!(
                f,
                "the result has {} elements, the reference {}",
                figures::count(*got),
                figures::count(*want)
            ),
            Failure::TrivialReference { len } => write!(
                f,
                "all {} elements of the reference are zero; give the kernel an input whose answer \
                 is not",
                figures::count(*len)
            ),
            Failure::BrokenReference { index, want } => {
                write!(f, "element {index} of the reference is {want}")
            }
            Failure::NoCases => write!(f, "there was nothing to compare"),
            Failure::BrokenGate { index, gate } => write!(
                f,
                "the gate of element {index} is {gate:?}; it must be a number at or above zero"
            ),
            Failure::Launch { message } => write!(f, "{message}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::check::compare;

    fn pass() -> Verdict {
        compare(&[1.0_f32], &[1.0], Gate::Exact)
    }

    fn fail() -> Verdict {
        compare(&[2.0_f32], &[1.0], Gate::Exact)
    }

    fn skip() -> Verdict {
        Verdict::Skipped {
            reason: "no device".into(),
        }
    }

    #[test]
    fn skipped_is_not_a_pass_and_nothing_is_not_a_pass() {
        for (verdicts, want) in [
            (vec![], Exit::CouldNotRun),
            (vec![skip()], Exit::CouldNotRun),
            (vec![skip(), skip()], Exit::CouldNotRun),
            (vec![pass()], Exit::Held),
            (vec![skip(), pass()], Exit::Held),
            (vec![pass(), skip()], Exit::Held),
            (vec![skip(), fail()], Exit::Failed),
            (vec![pass(), fail(), skip()], Exit::Failed),
        ] {
            assert_eq!(exit(&verdicts), want, "{verdicts:?}");
        }
    }

    #[test]
    fn a_mismatch_in_an_array_names_its_element() {
        let verdict = compare(&[1.0_f32, 5.0], &[1.0, 4.0], Gate::Relative(1e-2));
        assert_eq!(
            verdict.to_string(),
            "element 1: got 5, want 4, relative error 2.000e-1, gate 1.000e-2"
        );
    }
}
