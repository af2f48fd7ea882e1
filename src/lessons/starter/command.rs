//! The command line of the starter.

use super::{Exercise, trial};
use crate::exit::{self, Exit};
use crate::harness::{Outcome, figures, verdict};
use crate::lessons::reduction::{self, BlockTree, Launch};
use crate::lessons::suite;
use crate::outln;
use clap::Parser;
use serde::Serialize;
use std::process::ExitCode;

/// Exercise: four green tests and a wrong kernel.
///
/// Edit src/bin/testing_starter.rs: harden the suite until a test fails, then fix
/// the launch. `kernelgate grade testing` says what is still missing.
#[derive(Parser)]
#[command(name = "testing_starter", version, after_help = exit::HELP)]
struct Args {
    /// Print one JSON document instead of text.
    #[arg(long)]
    json: bool,

    /// Simulate the kernel on the host instead of running it on a device.
    #[arg(long)]
    stand_in: bool,

    /// Print a hint, 1 to 3, and stop.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=3))]
    hint: Option<u8>,

    /// Used by `kernelgate grade`: run the suite on every launch of the catalogue
    /// in an order drawn from this seed, and report in JSON.
    #[arg(long, value_name = "SEED", conflicts_with_all = ["json", "hint"])]
    trial: Option<u64>,
}

const HINTS: [&str; 3] = [
    "A test is worth the wrong kernels that it turns away. For each supplied test, look for a \
     kernel that is wrong and passes it: what does the test compare with, how wide is the gate, \
     and does 256 divide the size?",
    "The sum of what a kernel should have read is known without the kernel: `oracle::sum`. \
     How much rounding may separate the two is known too: `SumTolerance::for_terms`. A size that \
     256 divides never asks what happens to the rest.",
    "The size and the difference in the first failure say which elements are missing: at 611 the \
     kernel's sum is that of elements 0 to 511. 611 / 256 is 2, and 2 blocks cover 512.",
];

#[derive(Serialize)]
struct Report {
    device: String,
    tests: Vec<Outcome>,
    exit: u8,
}

/// The body of the starter's `main`.
pub fn main(exercise: &Exercise) -> ExitCode {
    exit::program(
        |args: &Args| args.json || args.trial.is_some(),
        |args| run(exercise, args),
    )
}

fn run(exercise: &Exercise, args: &Args) -> anyhow::Result<Exit> {
    if let Some(number) = args.hint {
        outln!("{}", HINTS[usize::from(number) - 1])?;
        return Ok(Exit::Held);
    }
    let mut tree = reduction::open(args.stand_in)?;
    if let Some(seed) = args.trial {
        let trial = trial::run(exercise, tree.as_mut(), seed)?;
        outln!("{}", serde_json::to_string(&trial)?)?;
        return Ok(Exit::Held);
    }
    own_launch(exercise, tree.as_mut(), args.json)
}

fn own_launch(exercise: &Exercise, tree: &mut dyn BlockTree, json: bool) -> anyhow::Result<Exit> {
    let device = tree.banner();
    let outcomes = suite::run(&exercise.tests, &mut Launch::new(tree, exercise.blocks_for))?;
    let exit = verdict::exit(outcomes.iter().map(|outcome| &outcome.verdict));
    if json {
        let report = Report {
            device,
            tests: outcomes,
            exit: exit.code(),
        };
        outln!("{}", serde_json::to_string_pretty(&report)?)?;
        return Ok(exit);
    }
    outln!("{device}")?;
    for outcome in &outcomes {
        outln!(
            "{} {:<16} n = {:>9}: {}",
            outcome.verdict.word(),
            outcome.check.name,
            figures::count(outcome.n),
            outcome.verdict
        )?;
    }
    let passed = outcomes.iter().filter(|o| o.verdict.passed()).count();
    outln!("{passed} of {} pass", outcomes.len())?;
    Ok(exit)
}
