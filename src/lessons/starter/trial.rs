//! The student's suite on every launch of the catalogue, for the grader.
//!
//! The launch is replaced underneath the suite: a test sees a sum and not whose it
//! is, and the rows run in an order drawn from the grader's seed. So a suite
//! cannot tell the launches apart except by testing them. Every call that a test
//! makes is recorded with the true sum of what it passed in, so that the grader
//! judges what a test did and not what it is called.
//!
//! Limit: the report is made in the student's process. A program written to forge
//! it can; this grades an exercise, it does not guard an exam.

use super::Exercise;
use crate::device::DeviceError;
use crate::harness::{Outcome, Verdict, oracle};
use crate::lessons::reduction::specimens::{RIGHT, Specimen, WRONG};
use crate::lessons::reduction::{BlockTree, Launch, LaunchError, Sum};
use crate::lessons::suite::{self, Test};
use crate::lessons::testing::structural_on_the_ladder;
use serde::{Deserialize, Serialize};

/// What the rows call the student's own launch.
pub const OWN: &str = "own";

/// Everything the grader needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// The grader's seed, to tell this run's report from another's.
    pub seed: u64,
    /// What it ran on.
    pub device: String,
    /// One row for each launch, test and size.
    pub rows: Vec<Row>,
    /// The structural test of the lesson on the student's own launch.
    pub own_structural: Vec<Row>,
}

/// One test of the student on one launch at one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Name of the launch.
    pub launch: String,
    /// Name of the test.
    pub test: String,
    /// The student's sentence about what the test rejects.
    pub rejects: String,
    /// The size it was run at.
    pub n: usize,
    /// `PASS`, `FAIL` or `SKIP`.
    pub word: String,
    /// The verdict in words.
    pub text: String,
    /// Value that failed and what was wanted, where a comparison failed.
    pub mismatch: Option<(f64, f64)>,
    /// What the test asked of the launch.
    pub calls: Vec<Call>,
}

/// One call of the launch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Elements passed in.
    pub n: usize,
    /// Their true sum; absent when it is not a finite number.
    pub truth: Option<f64>,
    /// The sum that came back; absent when none did.
    pub returned: Option<f64>,
}

impl Row {
    /// Whether the test failed.
    pub fn failed(&self) -> bool {
        self.word == "FAIL"
    }

    /// Whether the test passed.
    pub fn passed(&self) -> bool {
        self.word == "PASS"
    }
}

/// Runs the trial.
///
/// # Errors
/// [`DeviceError`] when the device fails under it.
pub fn run(exercise: &Exercise, tree: &mut dyn BlockTree, seed: u64) -> Result<Trial, DeviceError> {
    let mut cases: Vec<(Option<Specimen>, &Test, usize)> = WRONG
        .iter()
        .chain([&RIGHT])
        .map(|specimen| Some(*specimen))
        .chain([None])
        .flat_map(|launch| {
            let of_test = move |test| sizes(test).map(move |n| (launch, test, n));
            exercise.tests.iter().flat_map(of_test)
        })
        .collect();
    shuffle(&mut cases, seed);

    let mut rows = Vec::with_capacity(cases.len());
    for (launch, test, n) in cases {
        rows.push(row(exercise, tree, launch, test, n)?);
    }
    let structural = structural_on_the_ladder();
    let mut own_structural = Vec::new();
    for n in sizes(&structural) {
        own_structural.push(row(exercise, tree, None, &structural, n)?);
    }
    Ok(Trial {
        seed,
        device: tree.banner(),
        rows,
        own_structural,
    })
}

/// The sizes of a test; 0 stands for a test that has none, which fails.
fn sizes(test: &Test) -> impl Iterator<Item = usize> {
    let none = test.sizes.is_empty().then_some(0);
    test.sizes.clone().into_iter().chain(none)
}

/// One test on a launch that starts afresh.
fn row(
    exercise: &Exercise,
    tree: &mut dyn BlockTree,
    launch: Option<Specimen>,
    test: &Test,
    n: usize,
) -> Result<Row, DeviceError> {
    let mut specimen;
    let mut own;
    let (name, sum): (_, &mut dyn Sum) = match launch {
        Some(of_catalogue) => {
            specimen = of_catalogue.on(tree);
            (of_catalogue.name, &mut specimen)
        }
        None => {
            own = Launch::new(tree, exercise.blocks_for);
            (OWN, &mut own)
        }
    };
    let mut recorder = Recorder {
        sum,
        calls: Vec::new(),
    };
    let outcome = one_size(test, n, &mut recorder)?;
    Ok(Row {
        launch: name.to_owned(),
        test: outcome.check.name.to_owned(),
        rejects: outcome.check.rejects.to_owned(),
        n,
        word: outcome.verdict.word().to_owned(),
        text: outcome.verdict.to_string(),
        mismatch: mismatch(&outcome.verdict),
        calls: recorder.calls,
    })
}

fn one_size(test: &Test, n: usize, sum: &mut dyn Sum) -> Result<Outcome, DeviceError> {
    if test.sizes.is_empty() {
        let mut outcomes = suite::run(std::slice::from_ref(test), sum)?;
        return Ok(outcomes.remove(0));
    }
    test.at(n, sum)
}

/// Got and want as JSON can carry them: a NaN would arrive as null.
fn mismatch(verdict: &Verdict) -> Option<(f64, f64)> {
    let comparison = verdict.mismatch()?;
    (comparison.got.is_finite() && comparison.want.is_finite())
        .then_some((comparison.got, comparison.want))
}

/// Writes down what a test asks and what it is told.
struct Recorder<'a> {
    sum: &'a mut dyn Sum,
    calls: Vec<Call>,
}

impl Sum for Recorder<'_> {
    fn sum(&mut self, input: &[f32]) -> Result<f32, LaunchError> {
        let result = self.sum.sum(input);
        let finite = |value: f64| value.is_finite().then_some(value);
        self.calls.push(Call {
            n: input.len(),
            truth: finite(oracle::sum(input)),
            returned: result.as_ref().ok().and_then(|&sum| finite(f64::from(sum))),
        });
        result
    }
}

/// Fisher-Yates with splitmix64 (Steele, Lea & Flood, OOPSLA 2014).
fn shuffle<T>(items: &mut [T], seed: u64) {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    for last in (1..items.len()).rev() {
        let other = (next() % (last as u64 + 1)) as usize;
        items.swap(last, other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lessons::reduction::{HostTree, drop_tail};
    use crate::lessons::testing;

    fn shipped() -> Exercise {
        Exercise {
            tests: testing::supplied(),
            blocks_for: drop_tail,
        }
    }

    #[test]
    fn every_launch_meets_every_test_once_in_an_order_that_the_seed_decides() {
        let trial = |seed| run(&shipped(), &mut HostTree, seed).unwrap();
        let (first, second) = (trial(1), trial(2));
        assert_eq!(first.rows.len(), 6 * 4);
        assert_ne!(first.rows, second.rows);
        assert_eq!(first, trial(1));
        let sorted = |trial: &Trial| {
            let mut keys: Vec<(String, String, usize)> = trial
                .rows
                .iter()
                .map(|row| (row.launch.clone(), row.test.clone(), row.n))
                .collect();
            keys.sort();
            keys.dedup();
            keys
        };
        assert_eq!(sorted(&first), sorted(&second));
        assert_eq!(sorted(&first).len(), 24);
    }

    #[test]
    fn calls_are_recorded_with_the_truth_and_survive_json() {
        let trial = run(&shipped(), &mut HostTree, 7).unwrap();
        let golden = trial
            .rows
            .iter()
            .find(|row| row.launch == "drop-tail" && row.test == "golden_snapshot")
            .unwrap();
        let call = golden.calls[0];
        assert_eq!(call.truth, Some(14_171.0));
        assert_eq!(call.returned, Some(11_815.5));
        let text = serde_json::to_string(&trial).unwrap();
        assert_eq!(serde_json::from_str::<Trial>(&text).unwrap(), trial);
    }

    #[test]
    fn a_test_without_sizes_has_a_failing_row() {
        let mut exercise = shipped();
        exercise.tests[0].sizes.clear();
        let trial = run(&exercise, &mut HostTree, 3).unwrap();
        let rows = trial
            .rows
            .iter()
            .filter(|row| row.test == "golden_snapshot");
        assert!(rows.clone().count() == 6 && rows.clone().all(Row::failed));
    }
}
