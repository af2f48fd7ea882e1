//! The grader of the testing exercise: the starter as shipped fails it for the
//! expected reasons, the worked solution passes, and every way around the exercise
//! fails with a message that says so. All on the host-side stand-in.

#[allow(dead_code)]
#[path = "../solutions/testing/testing_starter.rs"]
mod solution;
#[allow(dead_code)]
#[path = "../src/bin/testing_starter.rs"]
mod starter;

use kernelgate::harness::check::{Gate, compare_one};
use kernelgate::harness::tolerance::SumTolerance;
use kernelgate::harness::verdict::{Comparison, Failure};
use kernelgate::harness::{Verdict, inputs, oracle};
use kernelgate::lessons::grade::answers::Answers;
use kernelgate::lessons::grade::{Grade, testing};
use kernelgate::lessons::reduction::{HostTree, Sum, drop_tail, guarded};
use kernelgate::lessons::starter::{Exercise, trial};
use kernelgate::lessons::suite::{Test, TestResult};

const SHIPPED_ANSWERS: &str = include_str!("../exercises/testing/answers.toml");
const WORKED_ANSWERS: &str = include_str!("../solutions/testing/answers.toml");

fn grade(exercise: &Exercise, answers: &str) -> Grade {
    grade_in_order(exercise, answers, 1)
}

fn grade_in_order(exercise: &Exercise, answers: &str, seed: u64) -> Grade {
    let answers = Answers::parse(answers).unwrap();
    let trial = trial::run(exercise, &mut HostTree, seed).unwrap();
    testing::judge(&trial, &answers)
}

#[test]
fn the_order_of_the_trial_does_not_show_in_the_grade() {
    for exercise in [
        starter::exercise(),
        changed(|e| add(e, &[611, 16_483], forged_failure)),
    ] {
        let first = grade_in_order(&exercise, SHIPPED_ANSWERS, 1);
        for seed in [2, 3, 4] {
            assert_eq!(grade_in_order(&exercise, SHIPPED_ANSWERS, seed), first);
        }
    }
}

#[test]
fn the_worked_solution_passes() {
    let grade = grade(&solution::exercise(), WORKED_ANSWERS);
    assert!(grade.passed, "{grade}");
}

#[test]
fn the_starter_as_shipped_fails_for_what_it_has_not_done_and_nothing_else() {
    let grade = grade(&starter::exercise(), SHIPPED_ANSWERS);
    assert_eq!(
        grade.open(),
        ["sentences", "hardened", "fixed", "answers", "after-the-fix"],
        "{grade}"
    );
    let text = grade.to_string();
    assert!(text.contains("611 and at 16,483"), "{text}");
    assert!(text.contains("still wrong at 257"), "{text}");
}

/// The solution with a change.
fn changed(change: impl FnOnce(&mut Exercise)) -> Exercise {
    let mut exercise = solution::exercise();
    change(&mut exercise);
    exercise
}

fn test<'a>(exercise: &'a mut Exercise, name: &str) -> &'a mut Test {
    let found = exercise.tests.iter_mut().find(|t| t.check.name == name);
    found.unwrap()
}

/// Only the supplied tests, and the sentences of the solution.
fn without_own_tests(exercise: &mut Exercise) {
    exercise.tests.truncate(4);
}

fn add(exercise: &mut Exercise, sizes: &[usize], run: fn(&mut dyn Sum, usize) -> TestResult) {
    let rejects = "a kernel that drops the tail";
    exercise.tests.push(Test::new("mine", rejects, sizes, run));
}

fn always_passes(_: &mut dyn Sum, _: usize) -> TestResult {
    Ok(compare_one(1.0, 1.0, Gate::Exact))
}

fn scaled_oracle(sum: &mut dyn Sum, n: usize) -> TestResult {
    let input = inputs::halves(n);
    let got = sum.sum(&input)?;
    let gate = SumTolerance::for_terms(n).as_gate();
    Ok(compare_one(got, oracle::sum(&input), gate))
}

/// Fails whatever it is given, with the figures of the lesson.
fn forged_failure(_: &mut dyn Sum, n: usize) -> TestResult {
    Ok(Verdict::Fail(Failure::Mismatch(Comparison {
        index: 0,
        len: 1,
        got: 11_815.5,
        want: 14_171.0,
        error: 0.1662,
        gate: Gate::Relative(n as f64 * 1e-8),
    })))
}

/// Fails by knowing the buggy sum, not the true one.
fn remembers_the_bug(sum: &mut dyn Sum, n: usize) -> TestResult {
    let got = sum.sum(&inputs::halves(n))?;
    let bug = if n == 611 { 11_815.5 } else { 393_018.0 };
    let want = if f64::from(got) == bug {
        -1.0
    } else {
        f64::from(got)
    };
    Ok(compare_one(got, want, Gate::Exact))
}

fn exact_on_the_lesson_input(sum: &mut dyn Sum, n: usize) -> TestResult {
    let input = inputs::halves(n);
    Ok(compare_one(
        sum.sum(&input)?,
        oracle::sum(&input),
        Gate::Exact,
    ))
}

#[test]
fn every_way_around_the_exercise_fails_and_is_told_why() {
    let cases: Vec<(&str, Exercise, Vec<&str>, &str)> = vec![
        (
            "fixed without hardening",
            changed(without_own_tests),
            vec!["hardened"],
            "nothing in your suite would have noticed",
        ),
        (
            "hardened without fixing",
            changed(|e| e.blocks_for = drop_tail),
            vec!["fixed"],
            "still wrong at 257",
        ),
        (
            "a supplied test deleted",
            changed(|e| e.tests.retain(|t| t.check.name != "determinism")),
            vec!["supplied", "answers"],
            "determinism is gone",
        ),
        (
            "the snapshot deleted",
            changed(|e| e.tests.retain(|t| t.check.name != "golden_snapshot")),
            vec!["supplied", "only-the-snapshot", "answers", "after-the-fix"],
            "golden_snapshot is gone",
        ),
        (
            "all tests deleted",
            changed(|e| e.tests.clear()),
            vec![
                "supplied",
                "hardened",
                "only-the-snapshot",
                "answers",
                "after-the-fix",
            ],
            "linearity is gone",
        ),
        (
            "a supplied test gutted, its launch still called",
            changed(|e| {
                test(e, "loose_oracle").run = |sum, n| {
                    sum.sum(&inputs::halves(n))?;
                    always_passes(sum, n)
                }
            }),
            vec!["supplied", "answers"],
            "loose_oracle no longer rejects first-half",
        ),
        (
            "a supplied test gutted altogether",
            changed(|e| test(e, "linearity").run = always_passes),
            vec!["supplied", "answers"],
            "linearity no longer runs the launch at 1,024",
        ),
        (
            "a supplied test without sizes",
            changed(|e| test(e, "linearity").sizes.clear()),
            vec!["supplied", "only-the-snapshot", "fixed"],
            "linearity no longer runs the launch",
        ),
        (
            "the snapshot captured again from the fix",
            changed(|e| {
                test(e, "golden_snapshot").run = |sum, n| {
                    let got = sum.sum(&inputs::halves(n))?;
                    Ok(compare_one(got, 14_171.0, Gate::Exact))
                }
            }),
            vec!["supplied", "only-the-snapshot", "after-the-fix"],
            "updating its constant is not",
        ),
        (
            "a supplied test hardened in place",
            changed(|e| test(e, "loose_oracle").run = scaled_oracle),
            vec!["supplied"],
            "add one of your own beside it",
        ),
        (
            "a supplied test hardened in place and nothing beside it",
            changed(|e| {
                without_own_tests(e);
                let loose = test(e, "loose_oracle");
                loose.run = scaled_oracle;
                loose.sizes = vec![611, 16_483];
            }),
            vec!["supplied", "hardened"],
            "611 and at 16,483",
        ),
        (
            "hardened at one of the two sizes",
            changed(|e| {
                without_own_tests(e);
                add(e, &[611], scaled_oracle);
            }),
            vec!["hardened"],
            "fails at 16,483 by",
        ),
        (
            "hardened at sizes that 256 divides",
            changed(|e| {
                without_own_tests(e);
                add(e, &[512, 1_024, 16_384], scaled_oracle);
            }),
            vec!["hardened"],
            "611 and at 16,483",
        ),
        (
            "a second loose gate",
            changed(|e| {
                without_own_tests(e);
                add(e, &[611, 16_483], |sum, n| {
                    let input = inputs::halves(n);
                    let got = sum.sum(&input)?;
                    Ok(compare_one(got, oracle::sum(&input), Gate::Relative(1e-2)))
                });
            }),
            vec!["hardened"],
            "fails at 16,483 by",
        ),
        (
            "a test that always fails",
            changed(|e| {
                without_own_tests(e);
                add(e, &[611, 16_483], forged_failure);
            }),
            vec!["hardened", "only-the-snapshot", "fixed"],
            "mine at 611 rejects the right kernel",
        ),
        (
            "a test that remembers the bug",
            changed(|e| {
                without_own_tests(e);
                add(e, &[611, 16_483], remembers_the_bug);
            }),
            vec!["hardened"],
            "611 and at 16,483",
        ),
        (
            "a hardened test that a right kernel fails",
            changed(|e| {
                add(e, &[611], |sum, n| {
                    let got = sum.sum(&inputs::halves(n))?;
                    Ok(compare_one(got, 14_170.5, Gate::Exact))
                })
            }),
            vec!["only-the-snapshot", "fixed"],
            "mine at 611 rejects the right kernel",
        ),
        (
            "the launch fixed for the sizes of the suite only",
            changed(|e| {
                e.blocks_for = |n| match n {
                    611 | 16_483 => guarded(n),
                    _ => drop_tail(n),
                }
            }),
            vec!["fixed"],
            "still wrong at 257",
        ),
        (
            "one block too many at every size",
            changed(|e| e.blocks_for = |n| n / 256 + 1),
            vec![],
            "passed",
        ),
        (
            "a launch that asks for an absurd grid",
            changed(|e| e.blocks_for = |_| usize::MAX),
            vec!["fixed"],
            "blocks for 256 elements",
        ),
        (
            "sentences left as they were",
            changed(|e| test(e, "determinism").check.rejects = "TODO"),
            vec!["sentences"],
            "determinism: which wrong kernel",
        ),
        (
            "another honest way to harden",
            changed(|e| {
                without_own_tests(e);
                add(e, &[611, 16_483], exact_on_the_lesson_input);
            }),
            vec![],
            "passed",
        ),
    ];
    for (name, exercise, open, says) in cases {
        let grade = grade(&exercise, WORKED_ANSWERS);
        assert_eq!(grade.open(), open, "{name}: {grade}");
        assert!(grade.to_string().contains(says), "{name}: {grade}");
    }
}

#[test]
fn wrong_answers_fail_and_are_told_which_and_why() {
    for (from, to, open, says) in [
        (
            "golden_snapshot = \"first-half\"",
            "golden_snapshot = \"drop-tail\"",
            "answers",
            "golden_snapshot: you answered drop-tail, but this test passes it",
        ),
        (
            "determinism = \"racy\"",
            "determinism = \"none\"",
            "answers",
            "determinism: you answered none, but",
        ),
        (
            "linearity = \"offset\"",
            "linearity = \"first-half\"",
            "answers",
            "linearity: you answered first-half, but this test passes it",
        ),
        (
            "linearity = \"offset\"",
            "linearity = \"guarded\"",
            "answers",
            "guarded is the right kernel",
        ),
        (
            "linearity = \"offset\"",
            "linearity = \"ofset\"",
            "answers",
            "there is no kernel `ofset`",
        ),
        (
            "linearity = \"offset\"\n",
            "",
            "answers",
            "linearity: no answer yet",
        ),
        (
            "linearity = \"offset\"",
            "linearity = \"offset\"\nlinear = \"offset\"",
            "answers",
            "linear: there is no supplied test",
        ),
        (
            "breaks = \"golden_snapshot\"",
            "breaks = \"loose_oracle\"",
            "after-the-fix",
            "loose_oracle passes the guarded launch",
        ),
        (
            "breaks = \"golden_snapshot\"",
            "breaks = \"scaled_oracle\"",
            "after-the-fix",
            "is not a supplied test",
        ),
        (
            "why = \"Its",
            "why = \"\" # ",
            "after-the-fix",
            "one sentence",
        ),
    ] {
        let answers = WORKED_ANSWERS.replace(from, to);
        assert_ne!(answers, WORKED_ANSWERS, "{from} is not in the file");
        let grade = grade(&solution::exercise(), &answers);
        assert_eq!(grade.open(), [open], "{to}: {grade}");
        assert!(grade.to_string().contains(says), "{to}: {grade}");
    }
}

#[test]
fn another_true_answer_is_accepted() {
    let answers = WORKED_ANSWERS.replace(
        "golden_snapshot = \"first-half\"",
        "golden_snapshot = \"offset\"",
    );
    let grade = grade(&solution::exercise(), &answers);
    assert!(grade.passed, "{grade}");
}
