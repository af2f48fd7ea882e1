//! Documented commands and what each of them must do.
//!
//! The same tables drive `record`, which refuses to keep a run that does something
//! else, and `verify`.

use clap::ValueEnum;

use super::{lessons, measured};

/// Seconds that a command of the lessons may take: none needs a tenth of it.
const LIMIT_S: u64 = 300;

/// A set of documented commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Plan {
    /// The lesson programs, bare and under a sanitizer.
    Lessons,
    /// GEMM: correct kernels, planted faults, promotion.
    Gemm,
    /// Times, A/A runs, planted slowdowns, Nsight Compute.
    Bench,
    /// Mixture of experts on two ranks.
    Moe,
}

impl Plan {
    pub const ALL: [Plan; 4] = [Plan::Lessons, Plan::Gemm, Plan::Bench, Plan::Moe];

    /// The commands, in the order in which they run.
    pub const fn steps(self) -> &'static [Step] {
        match self {
            Plan::Lessons => lessons::STEPS,
            Plan::Gemm => measured::GEMM,
            Plan::Bench => measured::BENCH,
            Plan::Moe => measured::MOE,
        }
    }

    /// The folder of its transcripts below a device's; the lessons lie in the
    /// device's own.
    pub const fn folder(self) -> Option<&'static str> {
        match self {
            Plan::Lessons => None,
            Plan::Gemm => Some("gemm"),
            Plan::Bench => Some("bench"),
            Plan::Moe => Some("moe"),
        }
    }
}

/// One documented command.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// File name of the transcript, without its extension.
    pub name: &'static str,
    /// A binary of this repository.
    pub program: &'static str,
    /// Its arguments.
    pub arguments: &'static [&'static str],
    /// Flags for `kernelgate sanitize`; `None` for a bare run.
    pub sanitizer: Option<&'static [&'static str]>,
    /// The exit code.
    pub exit: u8,
    /// What the sanitizer must report; required exactly where `sanitizer` is given.
    pub report: Option<Expected>,
    /// The exit code is a claim of the lesson: `--repeat` runs this one many times.
    pub repeated: bool,
    /// What another run must print again.
    pub compare: Compare,
    /// Where the command can run.
    pub needs: Needs,
    /// Seconds after which it is ended, and has failed.
    pub limit_s: u64,
    /// Files that it writes, kept beside the transcript.
    pub files: &'static [&'static str],
    /// Started once for each set of variables, all at the same time, as torchrun,
    /// mpirun or srun would; empty: once, with none. `$TOKEN` and `$PORT` stand for
    /// a secret and a free port of the run.
    pub ranks: &'static [&'static [(&'static str, &'static str)]],
}

/// What of an output another run must print again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compare {
    /// Every line, addresses and times apart.
    Whole,
    /// The lines that one of these patterns matches, by what its groups capture: the
    /// verdicts and counts of a command that also prints times. Each pattern must
    /// match at least one line, or the run proves nothing.
    Lines(&'static [&'static str]),
}

/// Where a command can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    Anything,
    Gpu,
    CpuDriver,
}

/// Counts in a sanitizer's report. A count that is not named must be zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Expected {
    /// The number in the SUMMARY line.
    pub errors: u64,
    /// Invalid `__global__` reads.
    pub global_reads: u64,
    /// Invalid `__global__` writes.
    pub global_writes: u64,
    /// Invalid `__shared__` writes.
    pub shared_writes: u64,
    /// Driver calls that failed.
    pub api_errors: u64,
    /// Leaked allocations and their bytes; `None` where no leak check was asked
    /// for.
    pub leaks: Option<(u64, u64)>,
}

impl Step {
    /// A program without a sanitizer that must end with 0 and print the same again.
    pub const fn bare(
        name: &'static str,
        program: &'static str,
        arguments: &'static [&'static str],
    ) -> Step {
        Step {
            name,
            program,
            arguments,
            sanitizer: None,
            exit: 0,
            report: None,
            repeated: false,
            compare: Compare::Whole,
            needs: Needs::Anything,
            limit_s: LIMIT_S,
            files: &[],
            ranks: &[],
        }
    }

    /// The command as the documentation writes it. `--bin-dir` stands in for
    /// `target/release` when it is run.
    pub fn command(&self) -> String {
        let program = format!("target/release/{}", self.program);
        let mut words: Vec<&str> = Vec::new();
        if let Some(flags) = self.sanitizer {
            words.extend(["target/release/kernelgate", "sanitize"]);
            words.extend(flags);
            words.push("--");
        }
        words.push(&program);
        words.extend(self.arguments);
        let command = words.join(" ");
        let started: Vec<String> = self
            .ranks
            .iter()
            .map(|variables| {
                let set: Vec<String> = variables
                    .iter()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect();
                format!("{} {command} & ", set.join(" "))
            })
            .collect();
        match started.as_slice() {
            [] => command,
            _ => started.concat() + "wait",
        }
    }

    /// The sanitizer's tool, for a sanitized run.
    pub fn tool(&self) -> Option<&'static str> {
        let flags = self.sanitizer?;
        let after = flags.iter().position(|flag| *flag == "--tool");
        Some(after.map_or("memcheck", |at| flags[at + 1]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn all() -> impl Iterator<Item = &'static Step> {
        Plan::ALL.into_iter().flat_map(Plan::steps)
    }

    #[test]
    fn names_and_commands_are_unique_in_a_plan() {
        for plan in Plan::ALL {
            let steps = plan.steps();
            let names: BTreeSet<_> = steps.iter().map(|s| s.name).collect();
            let commands: BTreeSet<_> = steps.iter().map(Step::command).collect();
            assert_eq!(names.len(), steps.len(), "{plan:?}");
            assert_eq!(commands.len(), steps.len(), "{plan:?}");
        }
    }

    #[test]
    fn a_step_with_ranks_shows_each_of_them() {
        let step = Step {
            ranks: &[&[("RANK", "0")], &[("RANK", "1"), ("MASTER_PORT", "$PORT")]],
            ..Step::bare("x", "kernelgate", &["moe", "check"])
        };
        assert_eq!(
            step.command(),
            "RANK=0 target/release/kernelgate moe check & \
             RANK=1 MASTER_PORT=$PORT target/release/kernelgate moe check & wait"
        );
    }

    #[test]
    fn every_pattern_is_a_regular_expression() {
        for step in all() {
            if let Compare::Lines(patterns) = step.compare {
                assert!(!patterns.is_empty(), "{}", step.name);
                for pattern in patterns {
                    assert!(regex_lite::Regex::new(pattern).is_ok(), "{pattern}");
                }
            }
        }
    }
}
