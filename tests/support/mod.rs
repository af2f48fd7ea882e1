//! A test runner that can skip at run time and says why.
//!
//! libtest decides at compile time what is ignored. Here each case names what it
//! needs (a device, a tool); a case whose need is not met is reported as ignored
//! and prints `skipped NAME: REASON`. `.ci/run` compares these names with
//! `tests/skips/`, so that a test that quietly stops running fails CI.

use libtest_mimic::{Arguments, Trial};
use std::process::ExitCode;

/// `Err` says why the case cannot run on this machine.
pub type Need = Result<(), String>;

pub struct Case {
    name: &'static str,
    need: Need,
    body: Box<dyn FnOnce() -> anyhow::Result<()> + Send>,
}

/// A case that runs when every need is met.
pub fn case(
    name: &'static str,
    needs: &[&Need],
    body: impl FnOnce() -> anyhow::Result<()> + Send + 'static,
) -> Case {
    Case {
        name,
        need: needs
            .iter()
            .find(|n| n.is_err())
            .map_or(Ok(()), |n| (*n).clone()),
        body: Box::new(body),
    }
}

/// Runs `cases` one after the other with libtest's arguments. Prints the names of the
/// skipped ones, which `.ci/run` reads.
#[allow(clippy::print_stdout)]
pub fn run(cases: Vec<Case>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    if !arguments.list {
        for case in &cases {
            if let Err(reason) = &case.need {
                println!("skipped {}: {}", case.name, reason.replace('\n', " "));
            }
        }
    }
    let trials = cases
        .into_iter()
        .map(|case| {
            let skipped = case.need.is_err();
            let body = case.body;
            Trial::test(case.name, move || {
                body().map_err(|error| format!("{error:#}").into())
            })
            .with_ignored_flag(skipped)
        })
        .collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}
