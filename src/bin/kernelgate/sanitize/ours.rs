//! PROGRAM on our driver, with its checks on.

use std::ffi::OsString;
use std::process::Command;

use anyhow::Context;
use cuda::check::config::{self, Status, Tool};
use kernelgate::device::choice;

use super::flags::Arguments;
use super::outcome::{Outcome, code_of};
use crate::driver_path;

/// Runs PROGRAM and reads what the driver left behind.
///
/// Three ways lead PROGRAM to our driver: `KERNELGATE_DRIVER` for programs that use
/// kernelgate's device layer, `LD_LIBRARY_PATH` for any other.
pub fn run(tool: Tool, arguments: &Arguments) -> anyhow::Result<Outcome> {
    let library = driver_path::library()?;
    let folder = driver_path::folder()?;
    let statuses = tempfile::tempdir().context("no temporary folder for the driver's status")?;
    let config = arguments.config(tool, statuses.path())?;

    let (program, rest) = arguments.program();
    let status = Command::new(program)
        .args(rest)
        .env(choice::VARIABLE, &library)
        .env(config::VARIABLE, serde_json::to_string(&config)?)
        .env("LD_LIBRARY_PATH", library_path(folder.into_os_string()))
        .status()
        .with_context(|| format!("cannot start {}", program.to_string_lossy()))?;

    let reports = Status::read_all(statuses.path())
        .context("the driver left a status that cannot be read")?;
    Ok(Outcome {
        code: code_of(status),
        reached_cuda: !reports.is_empty(),
        summary: reports.iter().all(|report| report.summary_printed),
        errors: reports.iter().map(|report| report.errors).sum(),
    })
}

fn library_path(mut first: OsString) -> OsString {
    if let Some(rest) = std::env::var_os("LD_LIBRARY_PATH").filter(|v| !v.is_empty()) {
        first.push(":");
        first.push(rest);
    }
    first
}
