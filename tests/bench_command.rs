//! `kernelgate bench` on the CPU driver, and what it refuses before it measures.

use std::path::Path;
use std::process::{Command, Output};

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kernelgate"));
    command.arg("bench").args(arguments);
    command.env("KERNELGATE_DRIVER", "cpu").output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const FEW: [&str; 4] = ["--runs", "2", "--warmup", "1"];

#[test]
fn the_cpu_driver_reports_thread_instructions_and_no_rate_of_a_gpu() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("speed.jsonl");
    let file = json.to_str().unwrap();
    let output = bench(&[&FEW[..], &["--json", file]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    let lines = text
        .lines()
        .filter(|line| line.contains("thread-instructions a second ("));
    assert!(lines.count() >= 6, "{text}");
    for rate in ["GB/s", "MFU", "TFLOP/s"] {
        assert!(!text.contains(rate), "{rate}: {text}");
    }
    // The word stands once, where it is said that there are none.
    assert_eq!(text.matches("TFLOPS").count(), 1, "{text}");
    for line in std::fs::read_to_string(&json).unwrap().lines() {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(
            record["thread_instructions"].as_u64().unwrap() > 100_000,
            "{line}"
        );
        assert!(record["rate"].as_f64().unwrap() > 1e5, "{line}");
        assert_eq!(record["failure"], serde_json::Value::Null, "{line}");
        assert!(record.get("tflops").is_none(), "{line}");
    }
}

#[test]
fn what_needs_times_of_a_gpu_could_not_run_here() {
    let folder = tempfile::tempdir().unwrap();
    let baselines = folder.path().to_str().unwrap();
    for arguments in [
        &["--save", "x", "--baselines", baselines][..],
        &["--compare", "x", "--baselines", baselines],
        &["aa"],
        &["inject"],
        &["launch"],
        &["against-ncu"],
    ] {
        let output = bench(arguments);
        assert_eq!(
            output.status.code(),
            Some(3),
            "{arguments:?}: {}",
            stderr(&output)
        );
        assert!(
            stderr(&output).contains("needs a GPU"),
            "{}",
            stderr(&output)
        );
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn names_files_and_cases_that_cannot_be_meant_are_refused_first() {
    let folder = tempfile::tempdir().unwrap();
    let baselines = folder.path().to_str().unwrap();
    let kept = folder.path().join("mine.json");
    std::fs::write(&kept, "not a baseline").unwrap();
    for (arguments, exit, words) in [
        (&["--save", "../x"][..], 2, "expected letters"),
        (&["--save", "mine"], 2, "corrupted"),
        (&["--only", "no-such-case"], 2, "--only"),
        (&["--rounds", "0"], 2, "at least 1"),
        (&["--json", "/no/such/folder/x"], 3, "cannot write"),
        (&["--html", "/no/such/folder/x"], 3, "cannot write"),
    ] {
        let output = bench(&[arguments, &["--baselines", baselines]].concat());
        assert_eq!(
            output.status.code(),
            Some(exit),
            "{arguments:?}: {}",
            stderr(&output)
        );
        assert!(
            stderr(&output).contains(words),
            "{arguments:?}: {}",
            stderr(&output)
        );
    }
    assert_eq!(read(&kept), "not a baseline");
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn a_device_older_than_a_kernel_skips_it_and_the_mixture_of_experts_has_no_rate_here() {
    let on = |profile: &str, arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kernelgate"));
        command.args(arguments).env("KERNELGATE_DRIVER", "cpu");
        command.env("KERNELGATE_PROFILE", profile).output().unwrap()
    };
    let old = on("t4", &[&["bench"], &FEW[..]].concat());
    assert_eq!(old.status.code(), Some(0), "{}", stderr(&old));
    assert!(stdout(&old).contains("skipped mma/"), "{}", stdout(&old));
    let moe = on("h200", &["moe", "bench", "--ranks", "5"]);
    let text = stdout(&moe);
    assert_eq!(moe.status.code(), Some(0), "{}", stderr(&moe));
    assert!(text.contains("no rate of a GPU"), "{text}");
    for rate in ["GB/s", "TFLOP", "of link"] {
        assert!(!text.contains(rate), "{rate}: {text}");
    }
}
