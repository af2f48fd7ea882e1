//! The worked solution of `src/bin/testing_starter.rs`. Try the exercise first.

use kernelgate::harness::check::{Gate, compare_one};
use kernelgate::harness::tolerance::SumTolerance;
use kernelgate::harness::{inputs, oracle, property};
use kernelgate::lessons::reduction::Sum;
use kernelgate::lessons::starter::{self, Exercise};
use kernelgate::lessons::suite::{Test, TestResult};
use std::process::ExitCode;

/// Each block of the kernel adds this many elements.
const ELEMENTS_PER_BLOCK: usize = 256;

/// How many blocks to launch for `n` elements.
fn blocks_for(n: usize) -> usize {
    n.div_ceil(ELEMENTS_PER_BLOCK)
}

/// The suite: name, what it rejects, the sizes, the function.
pub fn exercise() -> Exercise {
    let tests = vec![
        Test::new(
            "golden_snapshot",
            "Any kernel whose sum at 611 is not the captured one, the right kernel included.",
            [611],
            golden_snapshot,
        ),
        Test::new(
            "determinism",
            "A kernel whose answer depends on timing.",
            [16_483],
            determinism,
        ),
        Test::new(
            "loose_oracle",
            "A kernel that is off by more than one percent.",
            [16_483],
            loose_oracle,
        ),
        Test::new(
            "linearity",
            "A kernel that does not start from zero.",
            [1_024],
            linearity,
        ),
        Test::new(
            "exact_oracle",
            "A kernel that misses a single element, at sizes that leave a tail and at one that \
             does not.",
            [611, 1_024, 16_483],
            exact_oracle,
        ),
        Test::new(
            "scaled_oracle",
            "A kernel further from the true sum than rounding explains.",
            [611, 1_024, 16_483],
            scaled_oracle,
        ),
        Test::new(
            "swap_ends",
            "A kernel that treats the tail of its input differently from the head.",
            [16_483],
            swap_ends,
        ),
    ];
    Exercise { tests, blocks_for }
}

/// A value captured from this kernel.
fn golden_snapshot(sum: &mut dyn Sum, n: usize) -> TestResult {
    let got = sum.sum(&inputs::halves(n))?;
    Ok(compare_one(got, 11_815.5, Gate::Exact))
}

/// Two runs agree bit for bit.
fn determinism(sum: &mut dyn Sum, n: usize) -> TestResult {
    property::determinism(&inputs::halves(n), |input| Ok(vec![sum.sum(input)?]))
}

/// Within one percent of the true sum.
fn loose_oracle(sum: &mut dyn Sum, n: usize) -> TestResult {
    let input = inputs::halves(n);
    let got = sum.sum(&input)?;
    Ok(compare_one(got, oracle::sum(&input), Gate::Relative(1e-2)))
}

/// Twice the input gives twice the sum.
fn linearity(sum: &mut dyn Sum, n: usize) -> TestResult {
    property::linearity(&inputs::halves(n), |input| Ok(vec![sum.sum(input)?]))
}

/// No element is zero and every sum is exact: a difference is a missing element.
fn exact_oracle(sum: &mut dyn Sum, n: usize) -> TestResult {
    let input = inputs::structural(n)?;
    let got = sum.sum(&input)?;
    Ok(compare_one(got, oracle::sum(&input), Gate::Exact))
}

/// As far from the true sum as rounding explains, and no further.
fn scaled_oracle(sum: &mut dyn Sum, n: usize) -> TestResult {
    let input = inputs::halves(n);
    let got = sum.sum(&input)?;
    let gate = SumTolerance::for_terms(n).as_gate();
    Ok(compare_one(got, oracle::sum(&input), gate))
}

/// A sum does not care where its elements sit.
fn swap_ends(sum: &mut dyn Sum, n: usize) -> TestResult {
    let gate = SumTolerance::for_terms(n).as_gate();
    let input = inputs::halves(n);
    property::swap_ends(&input, 99, gate, |input| Ok(vec![sum.sum(input)?]))
}

pub fn main() -> ExitCode {
    starter::main(&exercise())
}
