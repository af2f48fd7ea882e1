//! `kernelgate sanitize` around NVIDIA's tool, without it: a script in its place, and in
//! the place of NVIDIA's driver a copy of ours that does not say whose it is. So what is
//! tested is what our side makes of a tool that does this or that.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const KERNELGATE: &str = env!("CARGO_BIN_EXE_kernelgate");
const MARKER: &[u8] = b"kernelgate_cpu_driver\0";

/// A folder with a driver that is not ours and a tool.
struct Stage {
    folder: tempfile::TempDir,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn ours() -> PathBuf {
    let output = Command::new(KERNELGATE)
        .arg("driver-path")
        .output()
        .expect("the binary starts");
    Path::new(text(&output.stdout).trim()).join("libcuda.so")
}

/// Our driver without the symbol that says whose it is.
fn nobodys_driver() -> &'static [u8] {
    static BYTES: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    BYTES.get_or_init(|| {
        let mut driver = std::fs::read(ours()).unwrap();
        let at: Vec<usize> = (0..driver.len() - MARKER.len())
            .filter(|&at| driver[at] == MARKER[0] && driver[at..].starts_with(MARKER))
            .collect();
        assert!(!at.is_empty(), "our driver has its marker");
        for at in at {
            driver[at] = b'x';
        }
        driver
    })
}

impl Stage {
    /// `tool` is what the script does; its arguments are those of compute-sanitizer.
    fn new(tool: &str) -> Stage {
        use std::os::unix::fs::PermissionsExt;
        let stage = Stage {
            folder: tempfile::tempdir().unwrap(),
        };
        std::fs::write(stage.driver(), nobodys_driver()).unwrap();
        std::fs::write(stage.tool(), format!("#!/bin/sh\n{tool}\n")).unwrap();
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(stage.tool(), executable).unwrap();
        stage
    }

    fn driver(&self) -> PathBuf {
        self.folder.path().join("libcuda.so")
    }

    fn tool(&self) -> PathBuf {
        self.folder.path().join("compute-sanitizer")
    }

    fn command(&self, flags: &[&str]) -> Command {
        let mut command = Command::new(KERNELGATE);
        command
            .arg("sanitize")
            .args(flags)
            .args(["--", "true"])
            .env("KERNELGATE_DRIVER", self.driver())
            .env("COMPUTE_SANITIZER", self.tool());
        command
    }

    fn run(&self, flags: &[&str]) -> Output {
        self.command(flags).output().expect("the binary starts")
    }
}

const SUMMARY: &str = "echo '========= ERROR SUMMARY: 0 errors'";

/// Rows: what the tool does, our flags, exit code, a part of what is said.
#[test]
fn what_the_tool_did_decides_the_exit_code() {
    let silent = "echo '========= COMPUTE-SANITIZER'";
    let never = "echo '========= Error: Target application terminated before first \
                 instrumented API call'";
    let summary_and = |code: u8| format!("{SUMMARY}; exit {code}");
    let rows: &[(String, &[&str], i32, &str)] = &[
        (summary_and(0), &[], 0, "running NVIDIA's"),
        (summary_and(7), &["--error-exitcode", "7"], 7, "running"),
        (silent.to_owned(), &[], 3, "no SUMMARY line"),
        (
            silent.to_owned(),
            &["--error-exitcode", "9"],
            9,
            "no SUMMARY",
        ),
        (format!("{never}; exit 255"), &[], 255, "never initialised"),
        (
            never.to_owned(),
            &["--require-cuda-init", "no"],
            3,
            "never initialised",
        ),
        ("kill -9 $$".to_owned(), &[], 137, "signal 9 (SIGKILL"),
        // It does not say how many launches it checked: its word is taken.
        (summary_and(0), &["--kernel-name", "nothing"], 0, "running"),
        (
            summary_and(0),
            &["--json"],
            2,
            "--json needs the CPU driver",
        ),
    ];
    for (tool, flags, code, part) in rows {
        let output = Stage::new(tool).run(flags);
        let stderr = text(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(*code),
            "{tool} {flags:?}: {stderr}"
        );
        assert!(stderr.contains(part), "{tool} {flags:?}: {stderr}");
    }
}

#[test]
fn the_tools_output_is_passed_on_or_its_loss_is_an_error() {
    let stage = Stage::new(SUMMARY);
    let output = stage.run(&[]);
    assert_eq!(text(&output.stdout), "========= ERROR SUMMARY: 0 errors\n");
    let full = std::fs::File::options().write(true).open("/dev/full");
    let output = stage
        .command(&[])
        .stdout(full.unwrap())
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("No space left"));
}

#[test]
fn a_tool_that_is_named_and_not_there_is_wrong_usage() {
    let stage = Stage::new(SUMMARY);
    std::fs::remove_file(stage.tool()).unwrap();
    let output = stage.run(&[]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("COMPUTE_SANITIZER="), "{stderr}");
    assert_eq!(text(&output.stdout), "");
}
