//! The testing lesson and both exercises on a device: NVIDIA's or the CPU driver's.

mod support;

use anyhow::{Context, ensure};
use kernelgate::device::Device;
use kernelgate::kernels::PTX_ORIGIN;
use kernelgate::lessons::grade::process::{Finished, LIMIT, run};
use kernelgate::lessons::reduction::DeviceTree;
use kernelgate::lessons::testing;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;
use support::{Need, case};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const KERNELGATE: &str = env!("CARGO_BIN_EXE_kernelgate");
const TESTING: &str = env!("CARGO_BIN_EXE_testing");
const STARTER: &str = env!("CARGO_BIN_EXE_testing_starter");
const MEMORY_BUGS: &str = env!("CARGO_BIN_EXE_memory_bugs");

/// A build from nothing, on a slow machine.
const BUILD_LIMIT: Duration = Duration::from_secs(1_800);

fn main() -> ExitCode {
    let device: Need = Device::open().map(|_| ()).map_err(|e| e.to_string());
    let sanitizer = device.clone().and_then(|()| sanitizer());
    let nvcc = compiled_by_nvcc();
    let git = git();
    support::run(vec![
        case(
            "the_testing_lesson_holds_on_a_device",
            &[&device],
            lesson_holds,
        ),
        case(
            "each_flipped_claim_exits_1_on_a_device",
            &[&device],
            flipped_claims_fail,
        ),
        case(
            "the_starter_as_shipped_fails_the_grade_on_a_device",
            &[&device],
            starter_fails,
        ),
        case(
            "memory_bugs_as_shipped_fails_the_grade_for_its_first_bug",
            &[&sanitizer],
            memory_bugs_fails,
        ),
        case(
            "the_worked_memory_bugs_patch_applies_and_touches_three_lines",
            &[&git],
            patch_applies,
        ),
        case(
            "the_worked_memory_bugs_passes_the_grade",
            &[&sanitizer, &nvcc, &git],
            worked_memory_bugs_passes,
        ),
    ])
}

fn output(program: &str, args: &[&str]) -> anyhow::Result<Finished> {
    run(Command::new(program).args(args), LIMIT)
}

/// Whether a sanitized run of a clean program is really checked here.
fn sanitizer() -> Need {
    let args = ["sanitize", TESTING, "--n", "256"];
    let finished = output(KERNELGATE, &args).map_err(|e| e.to_string())?;
    let said = format!("{}{}", finished.stdout, finished.stderr);
    match said.contains("ERROR SUMMARY: 0 errors") {
        true => Ok(()),
        false => Err(format!(
            "kernelgate sanitize does not check here: {}",
            said.lines().last().unwrap_or("it said nothing")
        )),
    }
}

fn compiled_by_nvcc() -> Need {
    match PTX_ORIGIN.starts_with("compiled by nvcc") {
        true => Ok(()),
        false => Err(format!(
            "the PTX of this build was {PTX_ORIGIN}; it needs nvcc"
        )),
    }
}

fn git() -> Need {
    let listed = checkout_files().map_err(|e| format!("{e:#}"))?;
    match listed.is_empty() {
        true => Err("this is not a git checkout".to_owned()),
        false => Ok(()),
    }
}

fn lesson_holds() -> anyhow::Result<()> {
    let finished = output(TESTING, &[])?;
    let text = &finished.stdout;
    ensure!(finished.code == Some(0), "{text}{}", finished.stderr);
    ensure!(!text.contains("GATE:"), "{text}");
    for figures in [
        "got 11,815.5, want 14,171, relative error 1.662e-1, gate 1.179e-5",
        "got 393,018, want 395,434.5, relative error 6.111e-3, gate 6.122e-5",
        "got 393,106, want 393,018, relative error 2.239e-4, gate 6.122e-5",
    ] {
        ensure!(text.contains(figures), "missing: {figures}\n{text}");
    }
    Ok(())
}

/// One run on the device, each claim of it flipped in turn; then one flip through
/// the program. (The table through the program is in `testing_lesson`, where a run
/// costs nothing.)
fn flipped_claims_fail() -> anyhow::Result<()> {
    let report = testing::run(&mut DeviceTree::open()?)?;
    let ids = report.claims.ids();
    ensure!(ids.len() >= 10, "{ids:?}");
    for id in &ids {
        let mut flipped = report.clone();
        flipped.flip(id)?;
        ensure!(flipped.exit == 1, "{id}: {flipped}");
        one_gate_line(&flipped.to_string(), id)?;
    }
    let finished = output(TESTING, &["--flip", ids[0]])?;
    ensure!(finished.code == Some(1), "{finished:?}");
    one_gate_line(&finished.stdout, ids[0])
}

fn one_gate_line(text: &str, id: &str) -> anyhow::Result<()> {
    let gates: Vec<&str> = text.lines().filter(|l| l.starts_with("GATE:")).collect();
    ensure!(gates.len() == 1 && gates[0].contains(id), "{id}: {text}");
    Ok(())
}

fn starter_fails() -> anyhow::Result<()> {
    let finished = output(KERNELGATE, &["grade", "testing", "--bin", STARTER])?;
    ensure!(finished.code == Some(1), "{finished:?}");
    for part in [
        "done  [only-the-snapshot]",
        "to do [hardened]",
        "to do [fixed]",
    ] {
        ensure!(finished.stdout.contains(part), "{}", finished.stdout);
    }
    Ok(())
}

fn memory_bugs_fails() -> anyhow::Result<()> {
    let finished = output(KERNELGATE, &["grade", "memory_bugs", "--bin", MEMORY_BUGS])?;
    ensure!(finished.code == Some(1), "{finished:?}");
    for part in ["to do [clean]", "1 x Invalid __global__ read of size 4"] {
        ensure!(finished.stdout.contains(part), "{}", finished.stdout);
    }
    Ok(())
}

/// The worked solution does what a student does: three lines in a copy of the
/// sources, a build, a grade.
fn worked_memory_bugs_passes() -> anyhow::Result<()> {
    let copy = patched_copy()?;
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("memory_bugs_target");
    let built = run(
        Command::new(env!("CARGO"))
            .args(["build", "--offline", "--locked", "--bin", "memory_bugs"])
            .env("CARGO_TARGET_DIR", &target)
            .env("KERNELGATE_PTX", "auto")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .current_dir(&copy),
        BUILD_LIMIT,
    )?;
    ensure!(built.code == Some(0), "{}", built.stderr);
    let program = target.join("debug/memory_bugs");
    let program = program.to_str().context("a path that is not UTF-8")?;
    let finished = output(KERNELGATE, &["grade", "memory_bugs", "--bin", program])?;
    ensure!(finished.code == Some(0), "{finished:?}");
    Ok(())
}

fn patch_applies() -> anyhow::Result<()> {
    patched_copy()?;
    let patch = std::fs::read_to_string(patch())?;
    let removed = patch
        .lines()
        .filter(|l| l.starts_with('-') && !l.starts_with("---"));
    let touched: Vec<&str> = removed.collect();
    ensure!(touched.len() == 3, "{touched:?}");
    ensure!(!patch.contains("RUN_BUGGY_PASS"), "the constant is touched");
    Ok(())
}

fn patch() -> PathBuf {
    Path::new(ROOT).join("solutions/memory_bugs/fix.patch")
}

/// A copy of the checkout with the three lines changed.
fn patched_copy() -> anyhow::Result<PathBuf> {
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("memory_bugs_solution");
    if copy.exists() {
        std::fs::remove_dir_all(&copy)?;
    }
    for file in checkout_files()? {
        let (from, to) = (Path::new(ROOT).join(&file), copy.join(&file));
        if !from.is_file() {
            continue;
        }
        let folder = to.parent().context("a file without a folder")?;
        std::fs::create_dir_all(folder)?;
        std::fs::copy(&from, &to).with_context(|| format!("copying {file}"))?;
    }
    // A toolkit that lies in the checkout is not tracked; the build looks for it.
    let toolkit = Path::new(ROOT).join(".cuda");
    if toolkit.exists() {
        std::os::unix::fs::symlink(&toolkit, copy.join(".cuda"))?;
    }
    let applied = run(
        Command::new("git")
            .args(["apply", "--verbose"])
            .arg(patch())
            // The copy lies below the checkout; git must not take it for a part of it.
            .env("GIT_CEILING_DIRECTORIES", env!("CARGO_TARGET_TMPDIR"))
            .current_dir(&copy),
        LIMIT,
    )?;
    ensure!(
        applied.code == Some(0) && applied.stderr.matches("Applied patch").count() == 3,
        "{applied:?}"
    );
    Ok(copy)
}

fn checkout_files() -> anyhow::Result<Vec<String>> {
    let listed = run(
        Command::new("git")
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .current_dir(ROOT),
        LIMIT,
    )?;
    let files = listed.stdout.split('\0').filter(|name| !name.is_empty());
    Ok(files.map(str::to_owned).collect())
}
