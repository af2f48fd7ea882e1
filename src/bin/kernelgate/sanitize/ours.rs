//! PROGRAM on our driver, with its checks on.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use anyhow::Context;
use cuda::check::config;
use cuda::check::report::Status;
use kernelgate::device::choice;
use kernelgate::out;

use super::flags::Arguments;
use super::outcome::{Outcome, code_of};
use crate::driver_path;

/// Runs PROGRAM and reads what the driver left behind.
///
/// Two ways lead PROGRAM to our driver: `KERNELGATE_DRIVER` for programs that use
/// kernelgate's device layer, `LD_LIBRARY_PATH` for any other.
pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let library = driver_path::library()?;
    let folder = driver_path::folder()?;
    let exchange = tempfile::tempdir().context("no temporary folder for the driver's status")?;
    let status_file = exchange.path().join("status");
    let json_file = exchange.path().join("findings-%p.json");
    let config = arguments.config(&text(&status_file)?, &text(&json_file)?)?;

    let (program, rest) = arguments.program();
    let status = Command::new(program)
        .args(rest)
        .env(choice::VARIABLE, &library)
        .env(config::VARIABLE, config.to_variable())
        .env("LD_LIBRARY_PATH", library_path(folder.into_os_string()))
        .status()
        .with_context(|| format!("cannot start {}", program.to_string_lossy()))?;

    if arguments.json {
        let pattern = config.save.context("--json always saves")?;
        print_findings(&pattern, exchange.path())?;
    }
    let processes = statuses(&status_file)?;
    Ok(Outcome {
        code: code_of(status),
        reached_cuda: processes.iter().any(|p| p.reached_cuda),
        summary: processes.iter().all(|p| p.summary_printed),
        errors: processes.iter().map(|p| p.errors).sum(),
    })
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

/// One document a process, in the order of their ids.
fn print_findings(saved: &str, exchange: &Path) -> anyhow::Result<()> {
    let mut files: Vec<_> = std::fs::read_dir(exchange)?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .collect();
    files.sort();
    if !saved.contains("%p") {
        files.push(saved.into());
    }
    for file in files {
        out!("{}", std::fs::read_to_string(&file).unwrap_or_default())?;
    }
    Ok(())
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
