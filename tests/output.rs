//! What every binary does when nobody can read its result: a full disk, a reader that
//! left, a standard output or standard error that is closed. On the CPU driver, so that
//! the answer is the same on a machine with a GPU.

use std::fs::File;
use std::process::{Command, Output, Stdio};

const KERNELGATE: &str = env!("CARGO_BIN_EXE_kernelgate");
const TESTING: &str = env!("CARGO_BIN_EXE_testing");
const STARTER: &str = env!("CARGO_BIN_EXE_testing_starter");
const CI_GATE: &str = env!("CARGO_BIN_EXE_ci_gate");
const MEMORY_BUGS: &str = env!("CARGO_BIN_EXE_memory_bugs");

/// Every command that prints and is done in seconds. `kernelgate` has each of its
/// subcommands here that needs no GPU.
const COMMANDS: &[&[&str]] = &[
    &[TESTING],
    &[TESTING, "--json"],
    &[TESTING, "--n", "611"],
    &[TESTING, "--stand-in"],
    &[TESTING, "--help"],
    &[TESTING, "--version"],
    &[STARTER],
    &[STARTER, "--json"],
    &[STARTER, "--hint", "1"],
    &[STARTER, "--help"],
    &[CI_GATE],
    &[CI_GATE, "--fixed", "--json"],
    &[CI_GATE, "--help"],
    &[MEMORY_BUGS],
    &[MEMORY_BUGS, "--json"],
    &[MEMORY_BUGS, "--help"],
    &[KERNELGATE, "--help"],
    &[KERNELGATE, "--version"],
    &[KERNELGATE, "doctor"],
    &[KERNELGATE, "doctor", "--json"],
    &[KERNELGATE, "driver-path"],
    &[KERNELGATE, "sanitize", "--help"],
    &[KERNELGATE, "sanitize", "--", CI_GATE, "--fixed"],
    &[KERNELGATE, "sanitize", "--json", "--", CI_GATE, "--fixed"],
    &[KERNELGATE, "forms", "list"],
    &[KERNELGATE, "forms", "run", "--only", "integer/add"],
    &[KERNELGATE, "forms", "verify", "--only", "integer/add"],
    &[
        KERNELGATE,
        "gemm",
        "check",
        "--subject",
        "simt",
        "--only",
        "1,16,32",
    ],
    &[
        KERNELGATE,
        "gemm",
        "check",
        "--subject",
        "simt",
        "--only",
        "1,16,32",
        "--json",
    ],
    &[
        KERNELGATE,
        "moe",
        "check",
        "--case",
        "reused-buffers",
        "--layout",
        "masked",
    ],
    &[
        KERNELGATE,
        "moe",
        "check",
        "--ranks",
        "2",
        "--case",
        "reused-buffers",
        "--layout",
        "masked",
    ],
    &[
        KERNELGATE,
        "moe",
        "check",
        "--ranks",
        "2",
        "--processes",
        "--case",
        "reused-buffers",
        "--layout",
        "masked",
        "--json",
    ],
    &[KERNELGATE, "bench", "--list"],
    &[KERNELGATE, "grade", "testing", "--stand-in"],
    &[KERNELGATE, "grade", "testing", "--stand-in", "--json"],
    &[KERNELGATE, "evidence", "diff", "evidence/cpu-driver"],
];

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command
        .args(&words[1..])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("KERNELGATE_DRIVER", "cpu")
        .stdin(Stdio::null());
    command
}

/// The command with standard output closed, which only a shell can do.
fn closed(words: &[&str]) -> Command {
    let mut shell = command(&["/bin/sh", "-c", r#"exec "$0" "$@" >&-"#]);
    shell.args(words);
    shell
}

fn full() -> File {
    File::options()
        .write(true)
        .open("/dev/full")
        .expect("/dev/full is there on Linux")
}

fn ended(mut command: Command) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command.output().expect("the binary starts");
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

#[test]
fn a_full_disk_exits_three_and_says_so_in_one_line() {
    for words in COMMANDS {
        let mut run = command(words);
        run.stdout(full());
        let (code, stderr) = ended(run);
        assert_eq!(code, Some(3), "{words:?}: {stderr}");
        let said = stderr
            .lines()
            .filter(|line| line.contains("cannot write to standard output: No space left"))
            .count();
        // Under sanitize the program prints, and then the tool.
        let printers = 1 + usize::from(words.contains(&"sanitize") && words.contains(&"--"));
        assert_eq!(said, printers, "{words:?}: {stderr}");
        assert!(!stderr.contains("panicked"), "{words:?}: {stderr}");
    }
}

#[test]
fn a_reader_that_left_ends_every_command_quietly_with_141() {
    for words in COMMANDS {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut run = command(words);
        run.stdout(writer);
        let (code, stderr) = ended(run);
        if words.contains(&"--processes") {
            // The other rank says that the one which prints has left.
            assert_eq!(code, Some(141), "{words:?}: {stderr}");
            assert!(!stderr.contains("panicked"), "{words:?}: {stderr}");
            continue;
        }
        assert_eq!(code, Some(141), "{words:?}: {stderr}");
        for word in ["panicked", "error", "pipe"] {
            assert!(!stderr.contains(word), "{words:?}: {stderr}");
        }
    }
}

#[test]
fn a_closed_standard_output_exits_three_before_any_work() {
    for words in COMMANDS {
        let (code, stderr) = ended(closed(words));
        assert_eq!(code, Some(3), "{words:?}: {stderr}");
        assert!(
            stderr.contains("cannot write to standard output: it is closed"),
            "{words:?}: {stderr}"
        );
    }
}

/// An exit code that a full standard error changes would hide what happened.
#[test]
fn a_full_standard_error_leaves_the_exit_code() {
    let rows: &[(&[&str], &str, i32)] = &[
        (&[TESTING, "--no-such-flag"], "cpu", 2),
        (&[CI_GATE], "/no/such/libcuda.so", 3),
        (&[CI_GATE], "gpu", 2),
        (
            &[KERNELGATE, "sanitize", "--", CI_GATE, "--fixed"],
            "cpu",
            0,
        ),
        (&[KERNELGATE, "sanitize", "--", "true"], "cpu", 255),
    ];
    for (words, driver, want) in rows {
        let mut run = command(words);
        run.env("KERNELGATE_DRIVER", driver).stderr(full());
        let (code, _) = ended(run);
        assert_eq!(code, Some(*want), "{words:?} on {driver}");
    }
}
