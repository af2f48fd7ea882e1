//! `kernelgate grade` as a user runs it.

use std::path::Path;
use std::process::{Command, Output};

fn grade(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kernelgate"))
        .arg("grade")
        .args(args)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn script(folder: &Path, body: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.join("program");
    std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

#[test]
fn the_starter_as_shipped_exits_1_and_is_told_what_is_missing() {
    let starter = env!("CARGO_BIN_EXE_testing_starter");
    let output = grade(&["testing", "--stand-in", "--bin", starter]);
    let report = text(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(1),
        "{report}{}",
        text(&output.stderr)
    );
    assert!(report.starts_with("device: "), "{report}");
    for part in [
        "done  [supplied]",
        "to do [hardened]",
        "done  [only-the-snapshot]",
        "to do [fixed]",
        "to do [answers]",
        "not passed, 5 of 7 steps to do",
    ] {
        assert!(report.contains(part), "missing {part}\n{report}");
    }
}

#[test]
fn the_grade_is_json_for_a_machine() {
    let starter = env!("CARGO_BIN_EXE_testing_starter");
    let output = grade(&["testing", "--stand-in", "--json", "--bin", starter]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["passed"], false);
    assert_eq!(document["steps"].as_array().unwrap().len(), 7);
}

#[test]
fn the_starter_as_shipped_is_green_and_its_hints_are_there() {
    let starter = |args: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_testing_starter"))
            .args(args)
            .output()
            .unwrap()
    };
    let output = starter(&["--stand-in"]);
    let report = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{report}");
    assert!(report.starts_with("device: "), "{report}");
    assert!(report.contains("4 of 4 pass"), "{report}");
    for hint in ["1", "2", "3"] {
        assert_eq!(starter(&["--hint", hint]).status.code(), Some(0));
    }
    assert_eq!(starter(&["--hint", "4"]).status.code(), Some(2));
    let json = starter(&["--stand-in", "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(document["tests"].as_array().unwrap().len(), 4);
}

/// What a program does instead of reporting, the exit code, and what is said.
#[test]
fn a_program_that_does_not_report_cannot_be_graded_and_never_passes() {
    let seed_of_another = r#"echo '{"seed":1,"device":"x","rows":[],"own_structural":[]}'"#;
    let empty_report = r#"echo '{"seed":9,"device":"x","rows":[],"own_structural":[]}'"#;
    for (body, code, says) in [
        ("exit 0", 3, "printed no report"),
        ("echo hello", 3, "printed no report"),
        ("echo '{\"passed\":true}'", 3, "reading the report"),
        (
            "echo boom >&2; exit 101",
            3,
            "exit code 101 before it reported: boom",
        ),
        ("kill -9 $$", 3, "by a signal"),
        (seed_of_another, 3, "seed 1 and was asked for 9"),
        (empty_report, 1, ""),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let program = script(folder.path(), body);
        let output = grade(&["testing", "--bin", &program, "--seed", "9"]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{body}: {error}");
        assert!(error.contains(says), "{body}: {error}");
    }
}

#[test]
fn a_program_or_an_answers_file_that_is_not_there_is_said_by_name() {
    let output = grade(&["testing", "--bin", "/nowhere/starter"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("cargo build --bin testing_starter"));

    let starter = env!("CARGO_BIN_EXE_testing_starter");
    let output = grade(&[
        "testing",
        "--bin",
        starter,
        "--answers",
        "/nowhere/answers.toml",
    ]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("/nowhere/answers.toml"));
}

#[test]
fn without_a_device_the_trial_is_not_graded() {
    let output = Command::new(env!("CARGO_BIN_EXE_kernelgate"))
        .args([
            "grade",
            "testing",
            "--bin",
            env!("CARGO_BIN_EXE_testing_starter"),
        ])
        .env("KERNELGATE_DRIVER", "/nowhere/libcuda.so")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("/nowhere/libcuda.so"));
}
