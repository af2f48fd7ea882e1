//! Our times against Nsight Compute's.
//!
//! `launch` runs cases without the stopwatch: a profiler runs every kernel at its
//! launch, so nothing could be held back. `against-ncu` measures, then runs
//! `ncu … kernelgate bench launch …` for the same cases and compares the medians.
//! Both sides empty L2 by the same kernel and leave the clocks alone: ncu's own
//! `--cache-control all` invalidates more than L2, and a kernel of 200 us pays 2 %
//! for that. The first launches are left out on both sides.
//!
//! What ncu does between launches leaves the instruction caches in a state that it
//! does not tell. So ours is taken twice, with the kernel's code in them and with
//! other code; ncu agrees if its duration lies between the two, give or take 2 %.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use kernelgate::children::die_with_parent;
use kernelgate::exit::{Exit, UsageError};
use kernelgate::outln;
use kernelgate::perf::cases::{Built, Case};
use kernelgate::perf::stats::median_of;
use kernelgate::perf::stopwatch::{Cache, Flush, Stopwatch};

use crate::given;

use super::session::{Session, open};
use super::{Options, selected};

#[derive(Args)]
pub struct LaunchOnly {
    /// Launches of each case.
    #[arg(long, default_value_t = 10, value_parser = given::at_least_one)]
    times: usize,
    /// Empty L2 before each launch of a cold case, as the stopwatch does.
    #[arg(long)]
    empty_l2: bool,
}

/// Launches that ncu lets pass before it times.
const WARM_UP: usize = 3;

#[derive(Args)]
pub struct AgainstNcu {
    /// The profiler.
    #[arg(long, default_value = "ncu")]
    ncu: PathBuf,
    /// Largest difference of the medians, in percent.
    #[arg(long, default_value_t = 2.0)]
    within: f64,
    /// Launches that ncu times for each case.
    #[arg(long, default_value_t = 20, value_parser = given::at_least_one)]
    times: usize,
}

/// Kernels from about 15 us to about 8 ms, with little code and with much.
const NCU_CASES: [&str; 6] = [
    "vectorised-sum/stream/64MiB/cold",
    "window-sum/stream/256MiB/cold",
    "wgmma/dense/4096x4096x7168/bf16/cold",
    "vectorised-sum/stream/1GiB/cold",
    "wgmma/dense/4096x7168x16384/bf16/cold",
    "simt/dense/4096x4096x7168/f32/cold",
];

pub fn launch(only: &[String], launch: &LaunchOnly) -> Result<Exit> {
    let device = open()?;
    // What refuses the CPU driver: its launches are no profiler's business.
    drop(Stopwatch::new(&device)?);
    let flush = match launch.empty_l2 {
        true => Some(Flush::new(&device)?),
        false => None,
    };
    let mut ran = 0;
    for case in selected(only)? {
        match case.build(&device)? {
            Built::Skipped(reason) => outln!("skipped {}: {reason}", case.id())?,
            Built::Ready(mut workload) => {
                workload.refresh(1)?;
                for _ in 0..launch.times {
                    if let (Some(flush), Cache::Cold) = (&flush, case.cache) {
                        flush.enqueue()?;
                    }
                    workload.launch()?;
                }
                device.synchronize()?;
                outln!("launched {} times: {}", launch.times, case.id())?;
                ran += 1;
            }
        }
    }
    Ok(if ran == 0 {
        Exit::CouldNotRun
    } else {
        Exit::Held
    })
}

pub fn against_ncu(options: &Options, only: &[String], ncu: &AgainstNcu) -> Result<Exit> {
    let mut cases = selected(only)?;
    cases.retain(|case| match only.is_empty() {
        true => NCU_CASES.contains(&case.id().as_str()),
        false => case.cache == Cache::Cold && case.kernel().is_some(),
    });
    let device = open()?;
    let mut session = Session::new(&device, options)?;
    let version = profiler_version(&ncu.ncu)?;
    outln!("{version}")?;
    outln!(
        "{:40} {:>10} {:>10} {:>10} {:>8} {:>8}",
        "case",
        "ours us",
        "code cold",
        "ncu us",
        "differ",
        "cold"
    )?;
    let (mut compared, mut apart) = (0, 0);
    for case in cases {
        let mut workload = match case.build(&device)? {
            Built::Skipped(reason) => {
                outln!("skipped {}: {reason}", case.id())?;
                continue;
            }
            Built::Ready(workload) => workload,
        };
        let mut ours = [0.0; 2];
        for (median, cold) in ours.iter_mut().zip([false, true]) {
            session.stopwatch.empty_code(cold)?;
            let record = session.record(workload.as_mut(), case.cache)?;
            if let Some(failure) = record.failure {
                bail!("{}: {failure}", case.id());
            }
            *median = record.time.median;
        }
        session.stopwatch.empty_code(false)?;
        drop(workload);
        let theirs = median_of(durations(ncu, &case)?);
        let agrees = lies_between(ours, theirs, ncu.within / 100.0);
        let [differ, differ_cold] = ours.map(|ours| 100.0 * (ours / theirs - 1.0));
        outln!(
            "{:40} {:>10.2} {:>10.2} {theirs:>10.2} {differ:>+7.2}% {differ_cold:>+7.2}%{}",
            case.id(),
            ours[0],
            ours[1],
            if agrees { "" } else { "  APART" }
        )?;
        compared += 1;
        apart += usize::from(!agrees);
    }
    outln!(
        "{} of {compared} agree: ncu's duration is between ours with warm and with cold code, \
         give or take {} %",
        compared - apart,
        ncu.within
    )?;
    Ok(match (compared, apart) {
        (0, _) => Exit::CouldNotRun,
        (_, 0) => Exit::Held,
        _ => Exit::Failed,
    })
}

/// Whether `theirs` is between the two of ours, give or take a share of either.
fn lies_between(ours: [f64; 2], theirs: f64, within: f64) -> bool {
    let (low, high) = (ours[0].min(ours[1]), ours[0].max(ours[1]));
    low <= theirs * (1.0 + within) && theirs * (1.0 - within) <= high
}

/// The line of `ncu --version` that names the version.
fn profiler_version(ncu: &Path) -> Result<String> {
    let output = die_with_parent(Command::new(ncu).arg("--version"))
        .output()
        .ok();
    let text = output
        .filter(|output| output.status.success())
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let Some(text) = text else {
        return Err(UsageError(format!(
            "{} does not start: Nsight Compute comes with the CUDA toolkit; name it with --ncu",
            ncu.display()
        ))
        .into());
    };
    let version = text.lines().find(|line| line.starts_with("Version"));
    Ok(format!(
        "Nsight Compute, {}, clocks left alone",
        version.unwrap_or("version unknown")
    ))
}

/// Durations of the case's kernel in microseconds, as ncu measures them.
fn durations(ncu: &AgainstNcu, case: &Case) -> Result<Vec<f64>> {
    let kernel = case
        .kernel()
        .with_context(|| format!("{} has no kernel of ours to look for", case.id()))?;
    let this = std::env::current_exe().context("no path to this program")?;
    let mut command = Command::new(&ncu.ncu);
    command
        .args([
            "--clock-control",
            "none",
            "--cache-control",
            "none",
            "--csv",
        ])
        .args(["--metrics", "gpu__time_duration.sum"])
        .arg("--kernel-name")
        .arg(kernel)
        .args(["--launch-skip", &WARM_UP.to_string()])
        .arg(this)
        .args([
            "bench",
            "launch",
            "--times",
            &(ncu.times + WARM_UP).to_string(),
            "--empty-l2",
            "--only",
        ])
        .arg(case.id());
    let output = die_with_parent(&mut command)
        .output()
        .with_context(|| format!("cannot start {}", ncu.ncu.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "{} failed ({}): {text}{}",
        ncu.ncu.display(),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    let found = parse(&text)?;
    ensure!(
        found.len() == ncu.times,
        "ncu timed {} launches of {}, expected {}:\n{text}",
        found.len(),
        kernel,
        ncu.times
    );
    Ok(found)
}

/// Reads the durations out of ncu's CSV, in microseconds.
fn parse(text: &str) -> Result<Vec<f64>> {
    let cells = |line: &str| -> Vec<String> {
        line.trim()
            .trim_matches('"')
            .split("\",\"")
            .map(str::to_owned)
            .collect()
    };
    let mut lines = text.lines().skip_while(|line| !line.starts_with("\"ID\""));
    let header = cells(lines.next().context("ncu printed no table")?);
    let column = |name: &str| {
        header
            .iter()
            .position(|cell| cell == name)
            .with_context(|| format!("ncu's table has no column `{name}`"))
    };
    let (metric, unit, value) = (
        column("Metric Name")?,
        column("Metric Unit")?,
        column("Metric Value")?,
    );
    let mut found = Vec::new();
    for line in lines {
        let cells = cells(line);
        if cells.get(metric).map(String::as_str) != Some("gpu__time_duration.sum") {
            continue;
        }
        let number: f64 = cells
            .get(value)
            .and_then(|text| text.replace(',', "").parse().ok())
            .with_context(|| format!("ncu's value in {line}"))?;
        let scale = match cells.get(unit).map(String::as_str) {
            Some("ns" | "nsecond") => 1e-3,
            Some("us" | "usecond") => 1.0,
            Some("ms" | "msecond") => 1e3,
            other => bail!("ncu's unit {other:?}: expected ns, us or ms"),
        };
        found.push(number * scale);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "==PROF== Connected\n\
        \"ID\",\"Process ID\",\"Kernel Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n\
        \"0\",\"7\",\"k(float*, int)\",\"gpu__time_duration.sum\",\"ns\",\"1,234\"\n\
        \"1\",\"7\",\"k(float*, int)\",\"gpu__time_duration.sum\",\"us\",\"1.5\"\n\
        \"1\",\"7\",\"k(float*, int)\",\"other\",\"us\",\"9\"\n";

    #[test]
    fn durations_are_read_in_any_unit_and_other_metrics_left_out() {
        assert_eq!(parse(TABLE).unwrap(), [1.234, 1.5]);
    }

    /// Within 2 % of the nearer state; a figure outside of both is apart.
    #[test]
    fn a_duration_between_our_two_states_agrees_and_one_outside_does_not() {
        for (ours, theirs, agrees) in [
            ([200.0, 204.5], 204.9, true),
            ([200.0, 204.5], 202.0, true),
            ([200.0, 200.1], 204.9, false),
            ([200.0, 204.5], 195.0, false),
            ([200.0, 204.5], 209.0, false),
            ([100.0, 100.0], 98.1, true),
            ([100.0, 100.0], 97.9, false),
            ([f64::NAN, f64::NAN], 100.0, false),
        ] {
            assert_eq!(
                lies_between(ours, theirs, 0.02),
                agrees,
                "{ours:?} {theirs}"
            );
        }
    }

    #[test]
    fn a_table_that_is_not_understood_is_an_error() {
        assert!(parse("nothing").is_err());
        assert!(parse(&TABLE.replace("Metric Unit", "Unit")).is_err());
        assert!(parse(&TABLE.replace("\"ns\"", "\"cycle\"")).is_err());
        assert!(parse(&TABLE.replace("1,234", "n/a")).is_err());
    }
}
