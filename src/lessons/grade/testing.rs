//! The grade of the testing exercise, from a trial run and an answers file.
//!
//! Nothing here reads the student's source. A deleted test has no rows. A gutted
//! test no longer rejects the wrong kernel that it rejected as supplied. A test
//! that only claims to look at 611 elements made no call with 611. A test that
//! fails on everything fails on the guarded launch too.

use super::answers::{Answers, NONE};
use super::{Grade, Step};
use crate::harness::figures;
use crate::harness::tolerance::SumTolerance;
use crate::lessons::reduction::specimens::{DROP_TAIL, GUARDED, WRONG};
use crate::lessons::starter::trial::{Call, OWN, Row, Trial};

/// A supplied test, the size it came with, and a wrong launch that it rejects.
struct Supplied {
    test: &'static str,
    n: usize,
    rejects: &'static str,
}

const SUPPLIED: [Supplied; 4] = [
    Supplied {
        test: SNAPSHOT,
        n: 611,
        rejects: "first-half",
    },
    Supplied {
        test: "determinism",
        n: 16_483,
        rejects: "racy",
    },
    Supplied {
        test: "loose_oracle",
        n: 16_483,
        rejects: "first-half",
    },
    Supplied {
        test: "linearity",
        n: 1_024,
        rejects: "offset",
    },
];

const SNAPSHOT: &str = "golden_snapshot";

/// Sizes at which the hardened suite must name the missing tail.
const MUST_NAME: [usize; 2] = [611, 16_483];

/// Grades a trial. The order in which it ran does not show in the grade.
pub fn judge(trial: &Trial, answers: &Answers) -> Grade {
    let mut trial = trial.clone();
    trial
        .rows
        .sort_by(|a, b| (&a.launch, &a.test, a.n).cmp(&(&b.launch, &b.test, b.n)));
    let trial = &trial;
    let steps = vec![
        Step::new(
            "supplied",
            "the four supplied tests are there, unchanged",
            supplied_missing(trial),
        ),
        Step::new(
            "sentences",
            "every test says in a sentence what it rejects",
            sentences_missing(trial),
        ),
        Step::new(
            "hardened",
            "the suite fails the launch that drops the tail, naming 611 and 16,483",
            hardening_missing(trial),
        ),
        Step::new(
            "only-the-snapshot",
            "on the guarded launch the suite fails the snapshot and nothing else",
            false_alarms(trial),
        ),
        Step::new(
            "fixed",
            "your own launch reaches every element",
            fix_missing(trial),
        ),
        Step::new(
            "answers",
            "the answers file names a wrong kernel for each supplied test",
            wrong_answers(trial, answers),
        ),
        Step::new(
            "after-the-fix",
            "the answers file names the supplied test that breaks after the fix, and why",
            wrong_break(trial, answers),
        ),
    ];
    Grade::new("testing", trial.device.clone(), steps)
}

fn rows<'a>(trial: &'a Trial, launch: &'a str, test: &'a str) -> impl Iterator<Item = &'a Row> {
    trial
        .rows
        .iter()
        .filter(move |row| row.launch == launch && row.test == test)
}

fn is_supplied(test: &str) -> bool {
    SUPPLIED.iter().any(|supplied| supplied.test == test)
}

/// Whether a test fails a launch; none when it has no rows.
fn rejects(trial: &Trial, test: &str, launch: &str) -> bool {
    rows(trial, launch, test).any(Row::failed)
}

fn supplied_missing(trial: &Trial) -> Vec<String> {
    let mut missing = Vec::new();
    for Supplied {
        test,
        n,
        rejects: wrong,
    } in SUPPLIED
    {
        let called = |row: &Row| row.calls.iter().any(|call| call.n == n);
        if rows(trial, DROP_TAIL, test).next().is_none() {
            missing.push(format!(
                "{test} is gone; put it back as supplied: it is part of the exercise"
            ));
        } else if !rows(trial, DROP_TAIL, test).any(called) {
            missing.push(format!(
                "{test} no longer runs the launch at {}; put it back as supplied",
                figures::count(n)
            ));
        } else if let Some(row) = rows(trial, DROP_TAIL, test).find(|row| !row.passed()) {
            missing.push(format!(
                "{test} now fails the launch that drops the tail ({}); leave the supplied test \
                 as it was and add one of your own beside it",
                row.text
            ));
        } else if !rejects(trial, test, wrong) {
            missing.push(format!(
                "{test} no longer rejects {wrong}, which it rejected as supplied; put it back"
            ));
        }
    }
    missing
}

fn sentences_missing(trial: &Trial) -> Vec<String> {
    let mut missing: Vec<String> = trial
        .rows
        .iter()
        .filter(|row| {
            let sentence = row.rejects.trim();
            sentence.starts_with("TODO") || sentence.split_whitespace().count() < 3
        })
        .map(|row| {
            format!(
                "{}: which wrong kernel does it turn away? Its sentence is {:?}",
                row.test, row.rejects
            )
        })
        .collect();
    missing.sort();
    missing.dedup();
    missing
}

fn hardening_missing(trial: &Trial) -> Vec<String> {
    let unnamed: Vec<String> = MUST_NAME
        .into_iter()
        .filter(|&n| !names_the_tail(trial, n))
        .map(figures::count)
        .collect();
    if unnamed.is_empty() {
        return Vec::new();
    }
    let mut text = format!(
        "no test of yours fails at {} by comparing the kernel's sum with the true one",
        unnamed.join(" and at ")
    );
    if fix_missing(trial).is_empty() {
        text.push_str(
            ". You fixed the launch, but nothing in your suite would have noticed the bug: \
             harden it, so that the bug cannot come back unseen",
        );
    }
    vec![text]
}

/// A test of the student's own that fails the buggy launch at `n` because the sum
/// it was given is not the true sum of what it passed in.
fn names_the_tail(trial: &Trial, n: usize) -> bool {
    trial
        .rows
        .iter()
        .filter(|row| row.launch == DROP_TAIL && !is_supplied(&row.test) && row.failed())
        .any(|row| row.calls.iter().any(|call| call.n == n && shows(row, call)))
}

fn shows(row: &Row, call: &Call) -> bool {
    let (Some((got, want)), Some(truth), Some(returned)) =
        (row.mismatch, call.truth, call.returned)
    else {
        return false;
    };
    let gate = SumTolerance::for_terms(call.n).as_gate();
    got == returned && gate.admits(want, truth) && !gate.admits(got, truth)
}

fn false_alarms(trial: &Trial) -> Vec<String> {
    let mut missing = Vec::new();
    if !rejects(trial, SNAPSHOT, GUARDED) {
        missing.push(format!(
            "{SNAPSHOT} accepts the guarded launch. As supplied it holds the buggy sum and must \
             fail here: saying why is part of the exercise, updating its constant is not"
        ));
    }
    for row in &trial.rows {
        if row.launch == GUARDED && row.test != SNAPSHOT && !row.passed() {
            missing.push(format!(
                "{} at {} rejects the right kernel: {}",
                row.test,
                figures::count(row.n),
                row.text
            ));
        }
    }
    missing.sort();
    missing
}

fn fix_missing(trial: &Trial) -> Vec<String> {
    if trial.own_structural.is_empty() {
        return vec!["the report holds no run of your own launch".to_owned()];
    }
    let first = trial.own_structural.iter().find(|row| !row.passed());
    let open = first.map(|row| {
        format!(
            "your launch is still wrong at {}: {}. Once a test of yours fails because of it, \
             correct the one expression",
            figures::count(row.n),
            row.text
        )
    });
    let regressed = trial
        .rows
        .iter()
        .find(|row| row.launch == OWN && row.test != SNAPSHOT && !row.passed())
        .filter(|_| first.is_none())
        .map(|row| format!("your own launch fails {}: {}", row.test, row.text));
    open.into_iter().chain(regressed).collect()
}

fn wrong_answers(trial: &Trial, answers: &Answers) -> Vec<String> {
    let mut missing = Vec::new();
    for Supplied { test, .. } in SUPPLIED {
        let answer = answers.rejects.get(test).map_or("", |answer| answer.trim());
        if let Some(text) = wrong_answer(trial, test, answer) {
            missing.push(format!("{test}: {text}"));
        }
    }
    for unknown in answers.rejects.keys().filter(|test| !is_supplied(test)) {
        missing.push(format!("{unknown}: there is no supplied test of that name"));
    }
    missing
}

fn wrong_answer(trial: &Trial, test: &str, answer: &str) -> Option<String> {
    let names = WRONG.map(|specimen| specimen.name);
    let rejected = names.into_iter().find(|name| rejects(trial, test, name));
    match answer {
        "" => Some(format!(
            "no answer yet; one of {} or {NONE}",
            names.join(", ")
        )),
        NONE => rejected.map(|name| {
            format!("you answered {NONE}, but there is a wrong kernel among the four that it fails; look at {name}")
        }),
        GUARDED => Some(format!("{GUARDED} is the right kernel, not a wrong one")),
        name if !names.contains(&name) => Some(format!(
            "there is no kernel `{name}`; one of {} or {NONE}",
            names.join(", ")
        )),
        name if !rejects(trial, test, name) => {
            Some(format!("you answered {name}, but this test passes it"))
        }
        _ => None,
    }
}

fn wrong_break(trial: &Trial, answers: &Answers) -> Vec<String> {
    let breaks = answers.after_the_fix.breaks.trim();
    let mut missing = Vec::new();
    if breaks.is_empty() {
        missing.push("breaks: no answer yet; the name of one supplied test".to_owned());
    } else if !is_supplied(breaks) {
        missing.push(format!("breaks: `{breaks}` is not a supplied test"));
    } else if !rejects(trial, breaks, GUARDED) {
        missing.push(format!("breaks: {breaks} passes the guarded launch"));
    }
    if answers.after_the_fix.why.split_whitespace().count() < 3 {
        missing.push("why: one sentence is asked for".to_owned());
    }
    missing
}
