//! PROGRAM on our driver, with its checks on.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use cuda::check::config::{self, Config};
use cuda::check::report::Status;
use kernelgate::children::{adopt_orphans, all_ended, die_with_parent};
use kernelgate::device::choice;
use kernelgate::{errln, out};

use super::flags::Arguments;
use super::outcome::{Ended, Launches, Outcome};
use crate::{driver_path, given};

/// Time that processes have to end which PROGRAM left behind.
const GRACE: Duration = Duration::from_secs(10);

/// Runs PROGRAM on `library` and reads what the driver left behind.
///
/// Two ways lead PROGRAM to our driver: `KERNELGATE_DRIVER` for programs that use
/// kernelgate's device layer, `LD_LIBRARY_PATH` for any other.
pub fn run(library: &Path, why: &str, arguments: &Arguments) -> anyhow::Result<Outcome> {
    let folder = driver_path::folder_of(library)?;
    let exchange = tempfile::tempdir().context("no temporary folder for the driver's status")?;
    let status_file = exchange.path().join("status");
    let json_file = exchange.path().join("findings-%p.json");
    let mut config = arguments.config(&text(&status_file)?, &text(&json_file)?)?;
    for file in [&mut config.log_file, &mut config.save]
        .into_iter()
        .flatten()
    {
        // PROGRAM may have moved to another folder by the time that the driver looks.
        *file = text(&std::path::absolute(&*file)?)?;
    }
    check_files(&config)?;
    errln!(
        "kernelgate sanitize: {} by kernelgate's CPU driver, because {why}",
        arguments.tool()?
    );

    adopt_orphans().context("no way to see what PROGRAM leaves behind")?;
    let (program, rest) = arguments.program();
    let mut command = Command::new(program);
    command
        .args(rest)
        .env(choice::VARIABLE, library)
        .env(config::VARIABLE, config.to_variable())
        .env("LD_LIBRARY_PATH", library_path(folder.into_os_string()));
    let status = die_with_parent(&mut command)
        .status()
        .with_context(|| format!("cannot start {}", program.to_string_lossy()))?;

    // They write their statuses into a folder that goes with this process.
    let outlived = !all_ended(GRACE);
    let processes = statuses(&status_file)?;
    let document = arguments.json && print_findings(&config, &processes)?;
    Ok(Outcome {
        ended: Ended::from(status),
        reached_cuda: processes.iter().any(|p| p.reached_cuda),
        summary: processes.iter().all(|p| p.summary_printed),
        errors: processes.iter().map(|p| p.errors).sum(),
        problem: processes.iter().find_map(|p| p.problem.clone()),
        launches: Some(launches(&processes)),
        document,
        outlived,
    })
}

fn launches(processes: &[Status]) -> Launches {
    let mut unchecked: Vec<String> = processes
        .iter()
        .flat_map(|p| p.unchecked_kernels.iter().cloned())
        .collect();
    unchecked.sort();
    unchecked.dedup();
    Launches {
        all: processes.iter().map(|p| p.launches).sum(),
        checked: processes.iter().map(|p| p.launches_checked).sum(),
        unchecked,
    }
}

fn text(path: &Path) -> anyhow::Result<String> {
    path.to_str()
        .map(str::to_string)
        .with_context(|| format!("{} is not UTF-8", path.display()))
}

fn library_path(mut first: OsString) -> OsString {
    if let Some(rest) = std::env::var_os("LD_LIBRARY_PATH").filter(|v| !v.is_empty()) {
        first.push(":");
        first.push(rest);
    }
    first
}

/// Tries the files that the driver is to write, before PROGRAM runs for nothing.
fn check_files(config: &Config) -> anyhow::Result<()> {
    for (flag, pattern) in [("--log-file", &config.log_file), ("--save", &config.save)] {
        let Some(pattern) = pattern else { continue };
        let path = config::expand(pattern)?;
        given::writable(Path::new(&path)).context(flag)?;
    }
    Ok(())
}

/// The last line of each process: the driver appends one when it is first used and
/// one when its report is complete.
fn statuses(file: &Path) -> anyhow::Result<Vec<Status>> {
    if !file.exists() {
        return Ok(Vec::new());
    }
    let lines = std::fs::read_to_string(file)?;
    let mut by_process = BTreeMap::new();
    for line in lines.lines() {
        let status: Status = serde_json::from_str(line)
            .with_context(|| format!("the driver left a status that cannot be read: {line}"))?;
        by_process.insert(status.process, status);
    }
    Ok(by_process.into_values().collect())
}

/// One document a process that finished its report, in the order of their ids; true
/// where there is one. A saved file of an earlier run is none.
fn print_findings(config: &Config, processes: &[Status]) -> anyhow::Result<bool> {
    let pattern = config.save.as_ref().context("--json always saves")?;
    let mut files = Vec::new();
    for process in processes.iter().filter(|p| p.summary_printed) {
        files.push(config::expand_for(pattern, process.process)?);
    }
    files.dedup();
    for file in &files {
        let document = std::fs::read_to_string(file)
            .with_context(|| format!("while reading the findings in {file}"))?;
        out!("{document}")?;
    }
    Ok(!files.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_status_of_each_process_counts() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("status");
        assert!(statuses(&file).unwrap().is_empty(), "never reached CUDA");
        let line = |process, errors, summary_printed| {
            serde_json::to_string(&Status {
                process,
                reached_cuda: true,
                errors,
                summary_printed,
                ..Status::default()
            })
            .unwrap()
        };
        let lines = [line(1, 0, false), line(2, 0, false), line(1, 3, true)];
        std::fs::write(&file, lines.join("\n")).unwrap();
        let got = statuses(&file).unwrap();
        assert_eq!(got.len(), 2);
        assert_eq!((got[0].errors, got[0].summary_printed), (3, true));
        assert!(!got[1].summary_printed, "process 2 was cut short");
        std::fs::write(&file, "{half a li").unwrap();
        assert!(statuses(&file).is_err());
    }
}
