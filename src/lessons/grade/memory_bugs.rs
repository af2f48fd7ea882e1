//! The grade of the memory_bugs exercise, from one sanitized run.
//!
//! The student's program runs under `kernelgate sanitize --leak-check full
//! --error-exitcode 1` and prints one JSON line among the tool's own. A clean
//! report alone proves little: a program that never launched its broken kernels is
//! clean as well. So all four kernels must have run and matched, with the constant
//! as shipped.

use super::process::Finished;
use super::{Grade, Step};
use crate::exit::Exit;
use crate::harness::figures;
use serde::Deserialize;

/// The kernels that must have run, the two broken ones included.
pub const KERNELS: [&str; 4] = [
    "diffNext",
    "windowSum",
    "diffNextPastEnd",
    "windowSumPastTile",
];

/// How many elements each of them has.
pub const ELEMENTS: usize = 6_151;

/// The flags of the graded run.
pub const FLAGS: [&str; 4] = ["--leak-check", "full", "--error-exitcode", "1"];

/// The part of the program's JSON that is graded.
#[derive(Debug, Deserialize)]
struct Report {
    runs_buggy_pass: bool,
    elements: usize,
    passes: Vec<Pass>,
}

#[derive(Debug, Deserialize)]
struct Pass {
    kernel: String,
    verdict: String,
    #[serde(default)]
    compared: usize,
}

/// Grades a run of the program under the sanitizer on `device`.
pub fn judge(run: &Finished, device: String) -> Grade {
    let report = report(&run.stdout);
    let steps = vec![
        Step::new(
            "constant",
            "RUN_BUGGY_PASS is as shipped: the two broken kernels are launched",
            match &report {
                Ok(report) => constant_missing(report),
                Err(missing) => vec![missing.clone()],
            },
        ),
        Step::new(
            "four-matches",
            "all four kernels match their reference in every element",
            match &report {
                Ok(report) => matches_missing(report),
                Err(missing) => vec![missing.clone()],
            },
        ),
        Step::new(
            "clean",
            "the sanitizer reports no error and no leak, and exits 0",
            findings(run),
        ),
    ];
    Grade::new("memory_bugs", device, steps)
}

/// What a program prints instead of a report when it ends with an error.
#[derive(Debug, Deserialize)]
struct Ended {
    error: String,
    exit: u8,
}

fn json_lines<'a, T: Deserialize<'a>>(stdout: &'a str) -> impl Iterator<Item = T> {
    stdout
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
}

/// Why the program could not run at all, such as for want of a device.
pub fn could_not_run(run: &Finished) -> Option<String> {
    json_lines::<Ended>(&run.stdout)
        .find(|ended| ended.exit == Exit::CouldNotRun.code())
        .map(|ended| ended.error)
}

/// The lesson that the program's report is of, if that is another one.
pub fn other_lesson(run: &Finished) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        lesson: String,
    }
    json_lines::<Named>(&run.stdout)
        .map(|named| named.lesson)
        .find(|lesson| lesson != "memory_bugs")
}

/// Neither a report nor an error.
pub fn printed_nothing(run: &Finished) -> bool {
    json_lines::<serde_json::Value>(&run.stdout)
        .next()
        .is_none()
}

/// The program's own line among those of the tool.
fn report(stdout: &str) -> Result<Report, String> {
    json_lines(stdout).next().ok_or_else(|| {
        let error = json_lines::<Ended>(stdout).next().map(|ended| ended.error);
        format!(
            "not known: the program ended before its report: {}",
            error.as_deref().unwrap_or("it printed no error either")
        )
    })
}

fn constant_missing(report: &Report) -> Vec<String> {
    if report.runs_buggy_pass {
        return Vec::new();
    }
    vec![
        "RUN_BUGGY_PASS is false in this program: it leaves the broken kernels out instead of \
         repairing them; put the constant back, and grade memory_bugs and not memory_bugs_clean"
            .to_owned(),
    ]
}

fn matches_missing(report: &Report) -> Vec<String> {
    let mut missing = Vec::new();
    if report.elements != ELEMENTS {
        missing.push(format!(
            "the program runs over {} elements, the exercise over {}",
            figures::count(report.elements),
            figures::count(ELEMENTS)
        ));
    }
    for kernel in KERNELS {
        let of_kernel: Vec<&Pass> = report
            .passes
            .iter()
            .filter(|pass| pass.kernel == kernel)
            .collect();
        let matched = |pass: &&Pass| pass.verdict == "pass" && pass.compared == ELEMENTS;
        if of_kernel.is_empty() {
            missing.push(format!("{kernel} was not launched"));
        } else if !of_kernel.iter().all(matched) {
            missing.push(format!(
                "{kernel} does not match its reference in all {} elements",
                figures::count(ELEMENTS)
            ));
        }
    }
    missing
}

fn findings(run: &Finished) -> Vec<String> {
    let all = || run.stdout.lines().chain(run.stderr.lines());
    let summary = all().find(|line| line.contains("ERROR SUMMARY:"));
    let mut missing = Vec::new();
    match summary {
        None => missing.push(
            "the sanitizer printed no ERROR SUMMARY line: it did not check this run".to_owned(),
        ),
        Some(line) if !line.contains("ERROR SUMMARY: 0 errors") => {
            missing.push(line.trim_start_matches(['=', ' ']).to_owned());
            missing.extend(kinds(all()));
        }
        Some(_) if run.code != Some(0) => missing.push(match run.code {
            Some(code) => format!("the run exited with {code} and not with 0"),
            None => "the run was ended by a signal".to_owned(),
        }),
        Some(_) => {}
    }
    missing
}

/// The kinds of finding, each once with its count, so that a student sees which of
/// the bugs is left.
fn kinds<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut kinds: Vec<(String, usize)> = Vec::new();
    for line in lines {
        let text = line.trim_start_matches(['=', ' ']);
        let is_finding = text.starts_with("Invalid ")
            || text.starts_with("Leaked ")
            || text.starts_with("Program hit ");
        if !is_finding {
            continue;
        }
        let kind = text.split(" at 0x").next().unwrap_or(text).to_owned();
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, count)) => *count += 1,
            None => kinds.push((kind, 1)),
        }
    }
    let line = |(kind, count)| format!("{count} x {kind}");
    kinds.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(kernels: &[&str]) -> String {
        let passes: Vec<String> = kernels
            .iter()
            .map(|kernel| {
                format!(r#"{{"kernel":"{kernel}","verdict":"pass","compared":6151,"worst":{{}}}}"#)
            })
            .collect();
        passes.join(",")
    }

    fn json(buggy: bool, elements: usize, passes: &str) -> String {
        format!(
            r#"{{"device":{{"name":"made up"}},"lesson":"memory_bugs","runs_buggy_pass":{buggy},"elements":{elements},"passes":[{passes}],"claims":[],"exit":0}}"#
        )
    }

    fn run(report: &str, tool: &str, code: Option<i32>) -> Finished {
        Finished {
            code,
            stdout: format!("========= COMPUTE-SANITIZER\n{report}\n{tool}\n"),
            stderr: String::new(),
        }
    }

    const CLEAN: &str = "========= LEAK SUMMARY: 0 bytes leaked in 0 allocations\n\
                         ========= ERROR SUMMARY: 0 errors";

    #[test]
    fn four_matches_and_a_clean_report_pass() {
        let finished = run(&json(true, 6_151, &passes(&KERNELS)), CLEAN, Some(0));
        let grade = judge(&finished, "device: made up".into());
        assert_eq!(grade.exit(), Exit::Held, "{grade}");
        assert!(grade.to_string().starts_with("device: made up"), "{grade}");
    }

    #[test]
    fn every_way_around_the_exercise_fails_with_a_message_that_says_so() {
        let all = json(true, 6_151, &passes(&KERNELS));
        let wrong = passes(&KERNELS).replacen("pass", "fail", 1);
        let partly = passes(&KERNELS).replacen("6151", "6144", 1);
        let buggy = "========= Invalid __global__ read of size 4 bytes\n\
                     =========     at diffNextPastEnd+0x160 in adjacent_difference.cu:40\n\
                     ========= Leaked 24,604 bytes at 0x7f00\n\
                     ========= ERROR SUMMARY: 2 errors";
        for (name, finished, open, says) in [
            (
                "the constant was turned off",
                run(&json(false, 6_151, &passes(&KERNELS[..2])), CLEAN, Some(0)),
                vec!["constant", "four-matches"],
                "RUN_BUGGY_PASS",
            ),
            (
                "a broken kernel is no longer launched",
                run(&json(true, 6_151, &passes(&KERNELS[..3])), CLEAN, Some(0)),
                vec!["four-matches"],
                "windowSumPastTile was not launched",
            ),
            (
                "an output is wrong",
                run(&json(true, 6_151, &wrong), CLEAN, Some(0)),
                vec!["four-matches"],
                "diffNext does not match",
            ),
            (
                "part of an output was compared",
                run(&json(true, 6_151, &partly), CLEAN, Some(0)),
                vec!["four-matches"],
                "diffNext does not match",
            ),
            (
                "the size was changed",
                run(&json(true, 256, &passes(&KERNELS)), CLEAN, Some(0)),
                vec!["four-matches"],
                "256 elements",
            ),
            (
                "two bugs are left",
                run(&all, buggy, Some(1)),
                vec!["clean"],
                "1 x Leaked 24,604 bytes",
            ),
            (
                "findings behind exit code 0",
                run(&all, buggy, Some(0)),
                vec!["clean"],
                "2 errors",
            ),
            (
                "the tool never ran",
                run(&all, "", Some(0)),
                vec!["clean"],
                "no ERROR SUMMARY",
            ),
            (
                "the program failed by itself",
                run(&all, CLEAN, Some(3)),
                vec!["clean"],
                "exited with 3",
            ),
            (
                "the program was killed",
                run(&all, CLEAN, None),
                vec!["clean"],
                "signal",
            ),
            (
                "no report",
                run("error: no usable device", CLEAN, Some(0)),
                vec!["constant", "four-matches"],
                "it printed no error either",
            ),
            (
                "as shipped: the first bug ends the program",
                run(
                    r#"{"error":"the device faulted: 719","exit":1}"#,
                    buggy,
                    Some(1),
                ),
                vec!["constant", "four-matches", "clean"],
                "ended before its report: the device faulted: 719",
            ),
        ] {
            let grade = judge(&finished, String::new());
            assert_eq!(grade.exit(), Exit::Failed, "{name}");
            assert_eq!(grade.open(), open, "{name}: {grade}");
            assert!(grade.to_string().contains(says), "{name}: {grade}");
        }
    }

    #[test]
    fn want_of_a_device_is_told_from_a_fault() {
        let ended = |exit| {
            run(
                &format!(r#"{{"error":"why","exit":{exit}}}"#),
                "",
                Some(exit),
            )
        };
        assert_eq!(could_not_run(&ended(3)).as_deref(), Some("why"));
        assert_eq!(could_not_run(&ended(1)), None);
        let report = json(true, 6_151, &passes(&KERNELS));
        assert_eq!(could_not_run(&run(&report, CLEAN, Some(0))), None);
    }

    #[test]
    fn ten_errors_are_not_taken_for_none() {
        let report = json(true, 6_151, &passes(&KERNELS));
        let finished = run(&report, "========= ERROR SUMMARY: 10 errors", Some(0));
        let grade = judge(&finished, String::new());
        assert_eq!(grade.open(), ["clean"]);
    }
}
