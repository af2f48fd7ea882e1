//! The binaries from outside: help, wrong usage, no device, and `kernelgate
//! sanitize` around programs that never reach CUDA. No test here needs a device, and
//! each gives the same answer on a machine that has one.

use std::path::Path;
use std::process::{Command, Output};

const NO_DRIVER: &str = "/no/such/folder/libcuda.so";

const LESSONS: [(&str, &str); 4] = [
    ("testing", env!("CARGO_BIN_EXE_testing")),
    ("testing_starter", env!("CARGO_BIN_EXE_testing_starter")),
    ("ci_gate", env!("CARGO_BIN_EXE_ci_gate")),
    ("memory_bugs", env!("CARGO_BIN_EXE_memory_bugs")),
];
const KERNELGATE: &str = env!("CARGO_BIN_EXE_kernelgate");

fn run(program: &str, driver: &str, arguments: &[&str]) -> Output {
    Command::new(program)
        .args(arguments)
        .env("KERNELGATE_DRIVER", driver)
        .output()
        .expect("the binary starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn every_lesson_has_help_with_the_exit_codes() {
    for (name, program) in LESSONS {
        let output = run(program, NO_DRIVER, &["--help"]);
        assert_eq!(output.status.code(), Some(0), "{name}");
        let help = text(&output.stdout);
        for part in ["--json", kernelgate::exit::HELP.lines().nth(4).unwrap()] {
            assert!(help.contains(part), "{name}: {part:?} is not in\n{help}");
        }
    }
}

#[test]
fn a_closed_pipe_is_no_panic() {
    for (name, program) in LESSONS {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = Command::new(program)
            .arg("--json")
            .env("KERNELGATE_DRIVER", NO_DRIVER)
            .stdout(writer)
            .output()
            .expect("the binary starts");
        assert!(!text(&output.stderr).contains("panicked"), "{name}");
    }
}

#[test]
fn wrong_usage_exits_two() {
    for (name, program) in LESSONS {
        let flag = run(program, NO_DRIVER, &["--no-such-flag"]);
        assert_eq!(flag.status.code(), Some(2), "{name}");
        let driver = run(program, "gpu", &[]);
        assert_eq!(driver.status.code(), Some(2), "{name}");
        assert!(
            text(&driver.stderr).contains("KERNELGATE_DRIVER=gpu"),
            "{name}"
        );
    }
}

#[test]
fn without_a_device_a_lesson_exits_three_and_says_what_it_looked_for() {
    for (name, program) in LESSONS {
        let output = run(program, NO_DRIVER, &[]);
        assert_eq!(output.status.code(), Some(3), "{name}");
        assert_eq!(
            text(&output.stdout),
            "",
            "{name}: nothing looks like a result"
        );
        let message = text(&output.stderr);
        for part in [NO_DRIVER, "Looked for", "To do"] {
            assert!(
                message.contains(part),
                "{name}: {part:?} is not in {message}"
            );
        }
        assert!(!message.contains("panicked"), "{name}: {message}");
    }
}

#[test]
fn without_a_device_json_is_still_one_document() {
    for (name, program) in LESSONS {
        let output = run(program, NO_DRIVER, &["--json"]);
        assert_eq!(output.status.code(), Some(3), "{name}");
        let document: serde_json::Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(document["exit"], 3, "{name}");
        assert!(document["error"].is_string(), "{name}");
    }
}

/// Rows: flags and program, exit code, what the message names.
#[test]
fn a_target_that_never_reaches_cuda_is_no_pass() {
    let rows: &[(&[&str], i32, &str)] = &[
        (&["true"], 255, "never initialised CUDA"),
        (
            &["--error-exitcode", "9", "true"],
            255,
            "never initialised CUDA",
        ),
        (
            &["--require-cuda-init", "no", "true"],
            3,
            "nothing was checked",
        ),
        (
            &[
                "--require-cuda-init",
                "no",
                "--error-exitcode",
                "9",
                "false",
            ],
            1,
            "nothing was checked",
        ),
        (&["no-such-program-anywhere"], 3, "no-such-program-anywhere"),
        (&["--tool", "leakcheck", "true"], 2, "leakcheck"),
        (&["--xml", "true"], 2, "--save"),
        (&["--kernel-name", "mod=x", "true"], 2, "mod"),
        (&["--no-such-flag", "true"], 2, "--no-such-flag"),
        (&[], 2, "PROGRAM"),
    ];
    for (arguments, code, names) in rows {
        let mut all = vec!["sanitize"];
        all.extend(*arguments);
        let output = run(KERNELGATE, "cpu", &all);
        let message = text(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(*code),
            "{arguments:?}: {message}"
        );
        assert!(message.contains(names), "{arguments:?}: {message}");
    }
}

#[test]
fn driver_path_serves_both_names_from_one_file() {
    let output = run(KERNELGATE, "cpu", &["driver-path"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let folder = text(&output.stdout);
    let folder = Path::new(folder.trim());
    let file = |name: &str| folder.join(name).canonicalize().expect(name);
    assert_eq!(file("libcuda.so"), file("libcuda.so.1"));
}

#[test]
fn doctor_without_a_device_exits_three_and_names_each_thing() {
    let output = run(KERNELGATE, NO_DRIVER, &["doctor", "--json"]);
    assert_eq!(output.status.code(), Some(3));
    let findings: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    let named: Vec<&str> = findings.iter().filter_map(|f| f["what"].as_str()).collect();
    for what in [
        "chosen device",
        "NVIDIA's driver",
        "CPU driver",
        "nvcc",
        "compute-sanitizer",
    ] {
        assert!(named.contains(&what), "{what} is not in {named:?}");
    }
}

#[test]
fn doctor_calls_a_wrong_setting_wrong_usage_and_still_lists_what_there_is() {
    let output = run(KERNELGATE, "gpu", &["doctor", "--json"]);
    assert_eq!(output.status.code(), Some(2));
    let findings: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert!(findings.len() > 1, "{findings:?}");
    let chosen = findings[0]["detail"].as_str().unwrap();
    assert!(chosen.contains("KERNELGATE_DRIVER=gpu"), "{chosen}");
}

#[test]
fn doctor_says_which_variable_names_a_program_that_is_not_there() {
    let output = Command::new(KERNELGATE)
        .args(["doctor", "--json"])
        .env("KERNELGATE_DRIVER", "cpu")
        .env("NVCC", "/no/such/nvcc")
        .output()
        .expect("the binary starts");
    let findings: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    let nvcc = findings.iter().find(|f| f["what"] == "nvcc").unwrap();
    assert_eq!(nvcc["found"], false);
    assert_eq!(nvcc["detail"], "NVCC=/no/such/nvcc: there is no such file");
}

#[test]
fn every_help_tells_the_exit_codes() {
    let commands: &[&[&str]] = &[
        &[],
        &["sanitize"],
        &["doctor"],
        &["driver-path"],
        &["gemm", "check"],
        &["moe", "check"],
        &["bench"],
        &["bench", "aa"],
        &["grade", "testing"],
        &["forms", "verify"],
        &["evidence", "record"],
    ];
    for words in commands {
        let mut all = words.to_vec();
        all.push("--help");
        let output = run(KERNELGATE, NO_DRIVER, &all);
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        let help = text(&output.stdout);
        assert!(help.contains("Exit code"), "{words:?}: {help}");
    }
}

#[test]
fn evidence_of_nothing_is_no_pass() {
    let empty = tempfile::tempdir().unwrap();
    let folder = empty.path().to_str().unwrap();
    for arguments in [
        vec!["evidence", "diff", folder],
        vec![
            "evidence",
            "verify",
            "--bin-dir",
            folder,
            "--evidence",
            folder,
        ],
        vec![
            "evidence",
            "record",
            "--bin-dir",
            folder,
            "--commit",
            "x",
            "--out",
            folder,
        ],
    ] {
        let output = run(KERNELGATE, "cpu", &arguments);
        assert_eq!(output.status.code(), Some(3), "{arguments:?}");
    }
}

#[test]
fn each_case_that_did_not_run_is_a_line_of_json_too() {
    let only = ["gemm", "check", "--only", "32,32,100", "--json"];
    let output = run(KERNELGATE, "cpu", &only);
    let lines: Vec<serde_json::Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let outcome = |subject: &str| {
        let line = lines.iter().find(|line| line["subject"] == subject);
        line.unwrap_or_else(|| panic!("{subject} is missing"))["outcome"].clone()
    };
    assert_eq!(outcome("simt"), "passed");
    for skipped in ["mma", "wgmma", "cublaslt"] {
        assert_eq!(outcome(skipped), "skipped", "{skipped}");
    }
}
