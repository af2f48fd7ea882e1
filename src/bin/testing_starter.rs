//! Exercise: the suite below is green, and the reduction it certifies is wrong.
//!
//! 1. Run it: `cargo run --bin testing_starter`. Four of four pass.
//! 2. TODO 1: say in one sentence what each supplied test rejects, and fill in
//!    `exercises/testing/answers.toml`.
//! 3. TODO 2: add tests of your own until one fails. Leave the four as they are.
//! 4. From the failure alone, say which elements are missing.
//! 5. TODO 3: only then fix the one wrong expression. One supplied test breaks;
//!    leave it red and say in the answers file which one and why.
//!
//! `kernelgate grade testing` says what is still missing. `--hint 1` to `--hint 3`
//! help, one step each. Needed imports for TODO 2 are already there.
#![allow(unused_imports)]

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
    // TODO 3: one expression here is wrong. Do not touch it before a test of yours
    // has failed because of it.
    n / ELEMENTS_PER_BLOCK
}

/// The suite: name, what it rejects, the sizes, the function.
pub fn exercise() -> Exercise {
    let tests = vec![
        // TODO 1: one sentence each. Which wrong kernel fails this test?
        Test::new("golden_snapshot", "TODO", [611], golden_snapshot),
        Test::new("determinism", "TODO", [16_483], determinism),
        Test::new("loose_oracle", "TODO", [16_483], loose_oracle),
        Test::new("linearity", "TODO", [1_024], linearity),
        // TODO 2: your tests. At which sizes, against what, behind which gate?
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

pub fn main() -> ExitCode {
    starter::main(&exercise())
}
