//! Tests as a table: a name, what it rejects, the sizes, and a function.
//!
//! The sizes stand in the table because they are part of the test: a sound
//! property at the wrong size sees nothing.

use super::reduction::{LaunchError, Sum};
use crate::device::DeviceError;
use crate::harness::verdict::Failure;
use crate::harness::{Check, Outcome, Verdict};

/// What a test function returns. An error of the launch fails the test; an error
/// of the device ends the run.
pub type TestResult = Result<Verdict, LaunchError>;

/// One test of a suite.
#[derive(Clone)]
pub struct Test {
    /// Name, and the wrong kernel that it turns away.
    pub check: Check,
    /// The sizes to run it at.
    pub sizes: Vec<usize>,
    /// The test at one size.
    pub run: fn(&mut dyn Sum, usize) -> TestResult,
}

impl Test {
    /// A test by name. `rejects` is one sentence: a wrong kernel that fails it.
    pub fn new(
        name: &'static str,
        rejects: &'static str,
        sizes: impl Into<Vec<usize>>,
        run: fn(&mut dyn Sum, usize) -> TestResult,
    ) -> Self {
        Self {
            check: Check { name, rejects },
            sizes: sizes.into(),
            run,
        }
    }

    /// The test at size `n`.
    pub fn at(&self, n: usize, sum: &mut dyn Sum) -> Result<Outcome, DeviceError> {
        let verdict = match (self.run)(sum, n) {
            Ok(verdict) => verdict,
            Err(LaunchError::Device(error)) => return Err(error),
            Err(error) => Verdict::Fail(Failure::Launch {
                message: error.to_string(),
            }),
        };
        Ok(Outcome {
            check: self.check,
            n,
            verdict,
        })
    }
}

/// Runs every test at every size. A test without sizes fails: it has no cases.
///
/// # Errors
/// The first failure of the device.
pub fn run(tests: &[Test], sum: &mut dyn Sum) -> Result<Vec<Outcome>, DeviceError> {
    let mut outcomes = Vec::new();
    for test in tests {
        if test.sizes.is_empty() {
            outcomes.push(Outcome {
                check: test.check,
                n: 0,
                verdict: Verdict::Fail(Failure::NoCases),
            });
        }
        for &n in &test.sizes {
            outcomes.push(test.at(n, sum)?);
        }
    }
    Ok(outcomes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;
    use crate::harness::verdict;
    use crate::lessons::reduction::{HostTree, Launch, guarded};

    #[test]
    fn a_test_without_sizes_fails_and_a_suite_without_tests_cannot_tell() {
        let mut tree = HostTree;
        let mut sum = Launch::new(&mut tree, guarded);
        let empty = Test::new("empty", "nothing", [], |_, _| unreachable!());
        let outcomes = run(&[empty], &mut sum).unwrap();
        assert!(outcomes[0].verdict.failed());
        let none = run(&[], &mut sum).unwrap();
        let verdicts = none.iter().map(|outcome| &outcome.verdict);
        assert_eq!(verdict::exit(verdicts), Exit::CouldNotRun);
    }

    #[test]
    fn a_refused_launch_fails_the_test_and_a_device_error_ends_the_run() {
        let mut tree = HostTree;
        let mut sum = Launch::new(&mut tree, |_| 0);
        let test = Test::new("t", "r", [8], |sum, n| {
            let got = sum.sum(&vec![1.0; n])?;
            Ok(crate::harness::check::compare_one(
                got,
                8.0,
                crate::harness::Gate::Exact,
            ))
        });
        let outcomes = run(std::slice::from_ref(&test), &mut sum).unwrap();
        assert!(outcomes[0].verdict.to_string().contains("zero blocks"));

        struct Broken;
        impl Sum for Broken {
            fn sum(&mut self, _: &[f32]) -> Result<f32, LaunchError> {
                Err(LaunchError::Device(DeviceError::OutOfMemory { bytes: 4 }))
            }
        }
        assert!(run(&[test], &mut Broken).is_err());
    }
}
