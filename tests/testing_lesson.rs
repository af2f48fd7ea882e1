//! The `testing` program as a user runs it, on the host-side stand-in.

use serde_json::Value;
use std::process::{Command, Output};

fn testing(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_testing"))
        .args(args)
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&stdout(&testing(args))).unwrap()
}

fn claim_ids() -> Vec<String> {
    let document = json(&["--stand-in", "--json"]);
    let claims = document["claims"].as_array().unwrap();
    claims
        .iter()
        .map(|claim| claim["id"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn the_lesson_exits_0_and_its_first_line_names_the_device() {
    let output = testing(&["--stand-in"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.starts_with("device: "), "{text}");
    assert!(!text.contains("GATE:"), "{text}");
}

#[test]
fn flipping_each_claim_in_turn_exits_1_with_one_gate_line_that_names_it() {
    let ids = claim_ids();
    assert!(ids.len() >= 10, "{ids:?}");
    for id in ids {
        let output = testing(&["--stand-in", "--flip", &id]);
        let text = stdout(&output);
        assert_eq!(output.status.code(), Some(1), "{id}\n{text}");
        let gates: Vec<&str> = text.lines().filter(|l| l.starts_with("GATE:")).collect();
        assert_eq!(gates.len(), 1, "{id}\n{text}");
        assert!(gates[0].contains(&id), "{id}\n{text}");

        let document = json(&["--stand-in", "--json", "--flip", &id]);
        assert_eq!(document["exit"], 1, "{id}");
    }
}

#[test]
fn flipping_an_unknown_claim_is_wrong_usage_and_lists_the_claims() {
    let output = testing(&["--stand-in", "--flip", "no-such-claim"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    for id in claim_ids() {
        assert!(error.contains(&id), "{error}");
    }
}

#[test]
fn every_check_in_the_json_says_what_it_rejects() {
    let document = json(&["--stand-in", "--json"]);
    for variant in ["drop_tail", "guarded"] {
        for suite in ["supplied", "hardened"] {
            let outcomes = document[variant][suite].as_array().unwrap();
            assert!(!outcomes.is_empty());
            for outcome in outcomes {
                let rejects = outcome["rejects"].as_str().unwrap();
                assert!(rejects.len() > 20, "{outcome}");
                assert!(outcome["verdict"].is_string(), "{outcome}");
            }
        }
    }
}

#[test]
fn the_figures_of_the_lesson_are_printed_to_the_digit() {
    let text = stdout(&testing(&["--stand-in"]));
    for figures in [
        "got 11,815.5, want 14,171, relative error 1.662e-1, gate 1.179e-5",
        "got 393,018, want 395,434.5, relative error 6.111e-3, gate 6.122e-5",
        "got 23,995.5, want 23,995.5, relative error 0, gate 1.526e-5",
        "got 393,106, want 393,018, relative error 2.239e-4, gate 6.122e-5",
    ] {
        assert!(text.contains(figures), "missing: {figures}\n{text}");
    }
}

#[test]
fn a_size_below_one_block_is_a_clear_error_and_not_a_crash() {
    let output = testing(&["--stand-in", "--n", "200"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("zero blocks for 200 elements"), "{text}");
    assert_eq!(
        testing(&["--stand-in", "--n", "611"]).status.code(),
        Some(0)
    );
    assert_eq!(testing(&["--stand-in", "--n", "0"]).status.code(), Some(2));
}

#[test]
fn without_a_device_the_exit_code_is_3_with_one_message_and_nothing_on_stdout() {
    let output = Command::new(env!("CARGO_BIN_EXE_testing"))
        .env("KERNELGATE_DRIVER", "/nowhere/libcuda.so")
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{error}");
    assert!(output.stdout.is_empty());
    assert!(error.contains("/nowhere/libcuda.so"), "{error}");
    assert_eq!(error.trim_end().lines().count(), 1, "{error}");
}

/// `debug_assert!` is gone under `--release`: see the docs of `kernelgate::harness`.
#[test]
fn no_check_of_the_harness_or_the_lessons_vanishes_in_a_release_build() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = vec![root.join("harness"), root.join("lessons")];
    let mut read = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let mut code = text.lines().filter(|line| !line.trim().starts_with("//"));
            let vanishes = |line: &str| line.contains("debug_assert");
            assert!(!code.any(vanishes), "{}", path.display());
            read += 1;
        }
    }
    assert!(read > 20, "{read} files");
}
