//! What the checks cost where they are off: the unchecked machine of this build
//! beside one that has no checks compiled in (feature `without-checks`).
//!
//!     cargo bench -p cpu-driver --bench checks_off
//!
//! Builds the benchmark `machine` both ways, the other one into
//! `target/without-checks`, and runs the two in turn, so that a change of clock
//! or of load meets both. Per kernel it prints the median of the pairs' ratios
//! with the quartiles around it. The target is 0.98: with checks off at most 2 %
//! slower than without them. Exits 1 where an upper quartile is below it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Pairs of runs; the first build goes first in even ones only.
const PAIRS: usize = 15;
const TARGET: f64 = 0.98;

fn cargo_bench(features: &[&str], target: Option<&Path>) -> PathBuf {
    let mut command = Command::new(env!("CARGO"));
    command
        .args([
            "bench",
            "-p",
            "cpu-driver",
            "--bench",
            "machine",
            "--no-run",
        ])
        .args(["--message-format", "json"])
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    if !features.is_empty() {
        command.arg("--features").arg(features.join(","));
    }
    if let Some(target) = target {
        command.arg("--target-dir").arg(target);
    }
    let output = command.output().expect("cargo starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text.lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "machine")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .expect("cargo names the benchmark's executable")
}

/// Kernel and thread-instructions a second, unchecked.
fn rates(program: &Path) -> Vec<(String, f64)> {
    let output = Command::new(program)
        .arg("--rates")
        .output()
        .expect("the benchmark starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    text.lines()
        .filter_map(|line| line.split_once('\t'))
        .map(|(kernel, rate)| (kernel.to_owned(), rate.parse().expect("a rate")))
        .collect()
}

fn main() {
    if cfg!(debug_assertions) {
        println!("skipped: measure a release build (cargo bench)");
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/without-checks");
    let with = cargo_bench(&[], None);
    let without = cargo_bench(&["without-checks"], Some(&folder));
    let mut ratios: Vec<(String, Vec<f64>)> = Vec::new();
    for pair in 0..PAIRS {
        let (with, without) = match pair % 2 {
            0 => {
                let first = rates(&with);
                (first, rates(&without))
            }
            _ => {
                let first = rates(&without);
                (rates(&with), first)
            }
        };
        assert!(!with.is_empty() && with.len() == without.len());
        for (at, ((kernel, with), (_, without))) in with.into_iter().zip(without).enumerate() {
            if ratios.len() == at {
                ratios.push((kernel, Vec::new()));
            }
            ratios[at].1.push(with / without);
        }
    }
    println!("speed with checks off over speed without checks, {PAIRS} pairs of runs in turn");
    println!(
        "{:22} {:>7} {:>8} {:>8} {:>7}",
        "kernel", "median", "lower", "upper", "target"
    );
    let mut slower = false;
    for (kernel, mut ratios) in ratios {
        ratios.sort_by(f64::total_cmp);
        let quartile = |part: usize| ratios[part * (PAIRS - 1) / 4];
        let (lower, median, upper) = (quartile(1), quartile(2), quartile(3));
        println!("{kernel:22} {median:7.3} {lower:8.3} {upper:8.3} {TARGET:7.2}");
        slower |= upper < TARGET;
    }
    if slower {
        std::process::exit(1);
    }
}
