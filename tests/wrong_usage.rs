//! The command line as somebody meets it who types something wrong: each message names
//! what was given and what was expected, in one line, and nothing runs for nothing. And
//! as a machine reads it: `--json` prints JSON. On the CPU driver, so that the answer is
//! the same on a machine with a GPU.

use std::process::{Command, Output};

const KERNELGATE: &str = env!("CARGO_BIN_EXE_kernelgate");
const TESTING: &str = env!("CARGO_BIN_EXE_testing");
const STARTER: &str = env!("CARGO_BIN_EXE_testing_starter");
const CI_GATE: &str = env!("CARGO_BIN_EXE_ci_gate");
const MEMORY_BUGS: &str = env!("CARGO_BIN_EXE_memory_bugs");

fn run(words: &[&str]) -> Output {
    Command::new(words[0])
        .args(&words[1..])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("KERNELGATE_DRIVER", "cpu")
        .output()
        .expect("the binary starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The command after `kernelgate`, exit code, parts of the message.
type Row<'a> = (&'a [&'a str], i32, &'a [&'a str]);

#[test]
fn a_wrong_command_line_is_refused_in_words_that_help() {
    let bins = env!("CARGO_MANIFEST_DIR");
    let rows: &[Row] = &[
        // A step, a label or a form that there is not: the ones that there are.
        (
            &[
                "evidence",
                "record",
                "--only",
                "nosuchstep",
                "--bin-dir",
                "/nodir",
                "--commit",
                "x",
            ],
            2,
            &["nosuchstep", "memory_bugs-exercise"],
        ),
        (
            &[
                "evidence",
                "verify",
                "--only",
                "nosuchstep",
                "--bin-dir",
                "/nodir",
            ],
            2,
            &["nosuchstep", "memory_bugs-exercise"],
        ),
        (
            &["evidence", "verify", "--repeat", "0", "--bin-dir", bins],
            2,
            &["--repeat", "1.."],
        ),
        (
            &["evidence", "verify", "--bin-dir", "/nodir"],
            3,
            &["/nodir/ci_gate is not there", "--bin-dir"],
        ),
        (&["evidence", "diff", "/nodir"], 3, &["/nodir"]),
        (
            &["forms", "verify", "--against", "nope"],
            2,
            &["--against nope", "h200"],
        ),
        (
            &["forms", "verify", "--recordings", "/nodir"],
            2,
            &["/nodir", "none at all"],
        ),
        (
            &["forms", "verify", "--only", "zzz"],
            2,
            &["zzz", "forms list"],
        ),
        (
            &["forms", "run", "--only", "integer/add", "--only", "zzz"],
            2,
            &["--only zzz"],
        ),
        (
            &["forms", "list", "--forms-dir", "/nodir"],
            2,
            &["/nodir", "--forms-dir"],
        ),
        (
            &["forms", "run", "--jobs", "0"],
            2,
            &["--jobs", "at least 1"],
        ),
        (
            &["forms", "run", "--timeout", "0"],
            2,
            &["--timeout", "at least 1"],
        ),
        (
            &[
                "forms", "record", "--label", "a/b", "--commit", "x", "--date", "y",
            ],
            2,
            &["--label", "letters"],
        ),
        (
            &[
                "forms",
                "record",
                "--label",
                "h200",
                "--commit",
                "a b",
                "--date",
                "2026-01-01",
            ],
            2,
            &["--commit", "one word"],
        ),
        (
            &[
                "forms",
                "record",
                "--label",
                "h200",
                "--commit",
                "x",
                "--date",
                "2026-13-41",
            ],
            2,
            &["--date", "YYYY-MM-DD"],
        ),
        (
            &["evidence", "record", "--bin-dir", "/nodir", "--commit", ""],
            2,
            &["--commit", "one word"],
        ),
        (
            &["bench", "--peaks", "/nonexistent"],
            2,
            &["--peaks", "/nonexistent"],
        ),
        (
            &["moe", "check", "--timeout", "18446744073709551615"],
            2,
            &["--timeout", "at most 86400"],
        ),
        (
            &["gemm", "check", "--only", "1,1,1", "--b", "e4m3,0x0,f32"],
            2,
            &["--b", "must be 16, 32, 64 or 128"],
        ),
        (
            &["forms", "generate", "--forms-dir", "/proc/x"],
            3,
            &["/proc/x"],
        ),
        // Programs that are not the exercise's.
        (
            &["grade", "testing", "--bin", TESTING],
            2,
            &["no build of the exercise", "testing_starter.rs", "--bin"],
        ),
        (
            &["grade", "testing", "--bin", "/bin/true"],
            3,
            &["printed no report", "testing_starter.rs"],
        ),
        (
            &["grade", "memory_bugs", "--bin", "/bin/true"],
            3,
            &["never reached CUDA", "memory_bugs.rs"],
        ),
        (
            &[
                "grade",
                "testing",
                "--bin",
                STARTER,
                "--answers",
                "/nodir/a.toml",
            ],
            2,
            &["/nodir/a.toml"],
        ),
        // Numbers that would check nothing.
        (
            &["gemm", "check", "--cases", "0"],
            2,
            &["--cases", "at least 1"],
        ),
        (
            &["moe", "check", "--sweep", "0"],
            2,
            &["--sweep", "at least 1"],
        ),
        (
            &["moe", "check", "--sweep", "1", "--largest", "0"],
            2,
            &["--largest", "at least 1"],
        ),
        (
            &["moe", "check", "--tokens", "0"],
            2,
            &["--tokens", "at least 1"],
        ),
        (&["moe", "check", "--nccl", "/nodir"], 2, &["--nccl /nodir"]),
        (
            &["bench", "launch", "--times", "0"],
            2,
            &["--times", "at least 1"],
        ),
        (&["bench", "aa", "--comparisons", "0"], 2, &["at least 1"]),
        (&["bench", "--floor", "-1"], 2, &["--floor", "positive"]),
        (&["bench", "--save", "a/b"], 2, &["a/b", "letters"]),
        // Numbers that no machine could work through, and that would overflow.
        (
            &["gemm", "check", "--only", "18446744073709551615,1,1"],
            2,
            &["--only"],
        ),
        (
            &["gemm", "check", "--only", "4294967296,4294967296,4"],
            2,
            &["--only"],
        ),
        (
            &[
                "gemm",
                "check",
                "--only",
                "1,16,32",
                "--pad",
                "18446744073709551615",
            ],
            2,
            &["--pad", "at most"],
        ),
        (
            &[
                "gemm",
                "check",
                "--only",
                "1,16,32",
                "--contiguous",
                "18446744073709551615,1",
            ],
            2,
            &["--contiguous", "at most"],
        ),
        (
            &[
                "gemm",
                "check",
                "--only",
                "1,16,32",
                "--k-grouped",
                "18446744073709551615,1",
            ],
            2,
            &["--k-grouped", "at most"],
        ),
        (
            &[
                "gemm",
                "check",
                "--only",
                "1,16,32",
                "--masked",
                "1",
                "--max-rows",
                "18446744073709551615",
            ],
            2,
            &["--max-rows", "at most"],
        ),
        (
            &["gemm", "check", "--cases", "18446744073709551615"],
            2,
            &["--cases"],
        ),
        (
            &["gemm", "check", "--repeat", "0"],
            2,
            &["--repeat", "at least 1"],
        ),
        (
            &["gemm", "limits", "--shape", "0,0,0"],
            2,
            &["--shape 0,0,0"],
        ),
        (
            &["gemm", "limits", "--shape", "1,1,18446744073709551615"],
            2,
            &["--shape", "at most"],
        ),
        (
            &["moe", "check", "--tokens", "18446744073709551615"],
            2,
            &["--tokens"],
        ),
        (
            &["moe", "check", "--sweep", "18446744073709551615"],
            2,
            &["--sweep"],
        ),
        (
            &[
                "moe",
                "check",
                "--sweep",
                "1",
                "--largest",
                "18446744073709551615",
            ],
            2,
            &["--largest", "at most"],
        ),
        (
            &["moe", "check", "--ranks", "65535"],
            2,
            &["--ranks", "1024"],
        ),
        (&["bench", "--rounds", "0"], 2, &["--rounds", "at least 1"]),
        // Files that are written after a long run.
        (
            &["bench", "--json", "/nodir/x"],
            3,
            &["cannot write /nodir/x"],
        ),
        (
            &["bench", "--html", "/nodir/x"],
            3,
            &["cannot write /nodir/x"],
        ),
        (
            &["gemm", "faults", "--out", "/nodir/x"],
            3,
            &["cannot write /nodir/x"],
        ),
    ];
    for (words, code, parts) in rows {
        let mut all = vec![KERNELGATE];
        all.extend(*words);
        let output = run(&all);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(*code), "{words:?}: {stderr}");
        for part in *parts {
            assert!(
                stderr.contains(part),
                "{words:?}: {part:?} is not in {stderr}"
            );
        }
        assert_eq!(text(&output.stdout), "", "{words:?}: something ran");
        let errors = stderr.lines().filter(|l| l.starts_with("error: ")).count();
        assert_eq!(errors, 1, "{words:?}: {stderr}");
    }
}

#[test]
fn another_lesson_is_not_graded_as_the_exercise() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("gate");
    std::fs::write(
        &program,
        format!("#!/bin/sh\nexec '{CI_GATE}' --fixed --json\n"),
    )
    .unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = program.to_str().unwrap();
    let output = run(&[KERNELGATE, "grade", "memory_bugs", "--bin", program]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("of the lesson ci_gate"), "{stderr}");
    assert!(stderr.contains("memory_bugs.rs"), "{stderr}");
}

#[test]
fn an_unknown_case_is_answered_with_each_name_once() {
    let output = run(&[KERNELGATE, "moe", "check", "--case", "nope"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(text(&output.stderr).matches("reused-buffers").count(), 1);
}

#[test]
fn a_device_without_evidence_is_said_once() {
    let empty = tempfile::tempdir().unwrap();
    let bins = std::path::Path::new(KERNELGATE).parent().unwrap();
    let output = run(&[
        KERNELGATE,
        "evidence",
        "verify",
        "--bin-dir",
        bins.to_str().unwrap(),
        "--evidence",
        empty.path().to_str().unwrap(),
        "--only",
        "testing",
    ]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(text(&output.stdout), "", "no step was tried");
    assert!(text(&output.stderr).contains("evidence record"));
}

#[test]
fn a_binary_that_a_later_step_needs_is_missed_before_the_first() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["testing", "ci_gate", "kernelgate"] {
        let of = std::path::Path::new(KERNELGATE).with_file_name(name);
        std::os::unix::fs::symlink(of, folder.path().join(name)).unwrap();
    }
    let bins = folder.path().to_str().unwrap();
    let output = run(&[
        KERNELGATE,
        "evidence",
        "verify",
        "--bin-dir",
        bins,
        "--only",
        "testing",
        "--only",
        "memory_bugs",
    ]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(text(&output.stdout), "", "no step was tried");
    assert!(text(&output.stderr).contains("memory_bugs is not there"));
}

#[test]
fn a_negative_size_is_a_wrong_value_and_no_unknown_flag() {
    let output = run(&[TESTING, "--n", "-5"]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("invalid value '-5' for '--n"), "{stderr}");
}

/// What helps against a fault depends on the fault.
#[test]
fn advice_after_a_fault_is_only_given_where_it_helps() {
    let output = Command::new(TESTING)
        .env("KERNELGATE_DRIVER", "cpu")
        .env("KERNELGATE_BUDGET", "1")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let timeout = text(&output.stderr);
    assert!(timeout.contains("(702)"), "{timeout}");
    assert!(timeout.contains("KERNELGATE_BUDGET"), "{timeout}");
    assert!(!timeout.contains("kernelgate sanitize"), "{timeout}");
    let watched = run(&[KERNELGATE, "sanitize", "--", CI_GATE]);
    let watched = text(&watched.stderr);
    let error = watched.lines().find(|l| l.starts_with("error: "));
    let error = error.unwrap_or_else(|| panic!("{watched}"));
    assert!(error.contains("(719)"), "{error}");
    assert!(!error.contains("kernelgate sanitize"), "{error}");
}

/// Commands with `--json`, and whether they print one document or one a line.
#[test]
fn json_output_is_json_whatever_the_exit_code() {
    let nothing = "/no/such/program";
    let documents: &[&[&str]] = &[
        &[TESTING, "--json"],
        &[TESTING, "--json", "--n", "611"],
        &[TESTING, "--json", "--n", "100"],
        &[TESTING, "--json", "--flip", "nope"],
        &[TESTING, "--json", "--n", "x"],
        &[CI_GATE, "--no-such-flag", "--json"],
        &[KERNELGATE, "grade", "testing", "--json", "--seed", "x"],
        &[KERNELGATE, "moe", "check", "--tokens", "0", "--json"],
        &[TESTING, "--json", "--flip", "golden-rejects-fix"],
        &[STARTER, "--json"],
        &[CI_GATE, "--json"],
        &[CI_GATE, "--json", "--flip", "nope"],
        &[MEMORY_BUGS, "--json"],
        &[KERNELGATE, "doctor", "--json"],
        &[KERNELGATE, "sanitize", "--json", "--", nothing],
        &[
            KERNELGATE, "sanitize", "--json", "--tool", "nope", "--", nothing,
        ],
        &[KERNELGATE, "sanitize", "--json", "--", "true"],
        &[KERNELGATE, "grade", "testing", "--json", "--stand-in"],
        &[KERNELGATE, "grade", "testing", "--json", "--bin", nothing],
        &[
            KERNELGATE,
            "grade",
            "memory_bugs",
            "--json",
            "--bin",
            MEMORY_BUGS,
        ],
        &[
            KERNELGATE,
            "gemm",
            "check",
            "--json",
            "--subject",
            "simt",
            "--only",
            "1,16,32",
        ],
        &[KERNELGATE, "gemm", "check", "--json", "--subject", "nope"],
        &[
            KERNELGATE, "moe", "check", "--json", "--case", "softmax", "--layout", "masked",
        ],
        &[KERNELGATE, "moe", "check", "--json", "--case", "nope"],
    ];
    for words in documents {
        let output = run(words);
        let stdout = text(&output.stdout);
        let document: Result<serde_json::Value, _> = serde_json::from_str(&stdout);
        assert!(document.is_ok(), "{words:?}: {document:?} in {stdout}");
        if let Some(exit) = document.unwrap().get("exit") {
            let code = output.status.code().map(i64::from);
            assert_eq!(exit.as_i64(), code, "{words:?}");
        }
    }
}
