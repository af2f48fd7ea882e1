//! A run against the plan.

use super::kept::Kept;
use super::plan::{Compare, Step};
use super::report::Report;
use super::run::Ran;

/// Everything that is wrong with a run; empty when it did what the plan says.
pub fn problems(step: &Step, ran: &Ran) -> Vec<String> {
    let mut problems = match step.compare {
        Compare::Lines(patterns) => uncompared(patterns, &ran.output),
        Compare::Whole => Vec::new(),
    };
    let mut differ = |what: &str, want: String, got: String| {
        if want != got {
            problems.push(format!("{what}: expected {want}, found {got}"));
        }
    };
    differ("exit code", step.exit.to_string(), ran.exit.to_string());
    let Some(expected) = step.report else {
        return problems;
    };
    let report = Report::parse(&ran.output);
    let Some(errors) = report.errors else {
        problems.push("there is no SUMMARY line, so the run proves nothing".into());
        return problems;
    };
    let counts = [
        ("errors in the SUMMARY", expected.errors, errors),
        (
            "invalid __global__ reads",
            expected.global_reads,
            report.count("global", "read"),
        ),
        (
            "invalid __global__ writes",
            expected.global_writes,
            report.count("global", "write"),
        ),
        (
            "invalid __shared__ writes",
            expected.shared_writes,
            report.count("shared", "write"),
        ),
        (
            "invalid accesses",
            expected.global_reads + expected.global_writes + expected.shared_writes,
            report.accesses.len() as u64,
        ),
        (
            "failed driver calls",
            expected.api_errors,
            report.api_errors.len() as u64,
        ),
        (
            "leaked allocations",
            expected.leaks.map_or(0, |(count, _)| count),
            report.leaks.len() as u64,
        ),
        (
            "bytes in leaked allocations",
            expected.leaks.map_or(0, |(_, bytes)| bytes),
            report.leaks.iter().sum(),
        ),
        ("findings of another kind", 0, report.others.len() as u64),
    ];
    for (what, want, got) in counts {
        differ(what, want.to_string(), got.to_string());
    }
    differ(
        "LEAK SUMMARY (allocations, bytes)",
        format!("{:?}", expected.leaks),
        format!("{:?}", report.leak_summary),
    );
    for access in &report.accesses {
        let in_cuda_source = matches!(&access.source, Some((file, _)) if file.ends_with(".cu"));
        if !in_cuda_source {
            problems.push(format!(
                "the access of {} {} names no line of a .cu file",
                access.thread, access.block
            ));
        }
    }
    problems
}

/// Patterns that no line of the output matches: nothing could be compared.
fn uncompared(patterns: &'static [&'static str], output: &str) -> Vec<String> {
    match Kept::of(patterns, output) {
        Ok(kept) => kept
            .unmatched
            .iter()
            .map(|pattern| format!("no line matches `{pattern}`, so the run proves nothing"))
            .collect(),
        Err(error) => vec![format!("{error:#}")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::lessons::STEPS;
    use crate::evidence::plan::Expected;
    use crate::evidence::report::tests::SAMPLE;

    fn step() -> Step {
        Step {
            exit: 1,
            report: Some(Expected {
                errors: 4,
                global_reads: 1,
                shared_writes: 1,
                api_errors: 1,
                leaks: Some((1, 24_604)),
                global_writes: 0,
            }),
            ..STEPS[1]
        }
    }

    fn ran(output: &str) -> Ran {
        Ran {
            exit: 1,
            output: output.into(),
        }
    }

    #[test]
    fn the_planned_run_has_no_problems() {
        assert_eq!(problems(&step(), &ran(SAMPLE)), Vec::<String>::new());
    }

    /// Each edit of the output must be noticed.
    #[test]
    fn any_other_report_is_a_problem() {
        let edits: &[(&str, &str)] = &[
            ("ERROR SUMMARY: 4 errors", "ERROR SUMMARY: 3 errors"),
            ("========= ERROR SUMMARY: 4 errors\n", ""),
            ("__global__ read", "__global__ write"),
            ("__shared__ write", "__shared__ read"),
            ("Leaked 24,604", "Leaked 24,608"),
            ("24604 bytes leaked in 1", "0 bytes leaked in 0"),
            (" in adjacent_difference.cu:36", ""),
            ("adjacent_difference.cu:36", "main.rs:36"),
            ("Program hit", "Nothing hit"),
            ("Invalid __shared__", "Invalid __local__"),
        ];
        for (from, to) in edits {
            assert!(SAMPLE.contains(from), "{from}");
            let output = SAMPLE.replace(from, to);
            assert!(
                !problems(&step(), &ran(&output)).is_empty(),
                "{from} -> {to}"
            );
        }
        let other_exit = Ran {
            exit: 0,
            ..ran(SAMPLE)
        };
        assert!(!problems(&step(), &other_exit).is_empty());
        assert!(!problems(&step(), &ran("")).is_empty());
    }
}
