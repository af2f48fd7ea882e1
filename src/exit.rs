//! Exit codes: one table for every binary of the project.
//!
//! Two exceptions. A program under `kernelgate sanitize`: there the exit code follows
//! `--error-exitcode`, as it does under compute-sanitizer. And a program whose reader
//! left ([`READER_LEFT`]). A standard output that is full or closed is no exception: a
//! result that nobody can read is one that could not be told, 3.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::device::DeviceError;
use crate::output::{self, OutputError};
use crate::{errln, outln};

/// How a run ended, as a process tells its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Every claim holds.
    Held = 0,
    /// A claim or test failed, the device faulted under us, or a regression is
    /// confirmed.
    Failed = 1,
    /// Wrong usage, including a tool that is not there yet. clap uses the same
    /// code for a bad command line.
    Usage = 2,
    /// Could not run, or could not tell: no device, PTX rejected, out of memory,
    /// every case skipped, inconclusive.
    CouldNotRun = 3,
}

impl Exit {
    /// Every code, in order.
    pub const ALL: [Exit; 4] = [Exit::Held, Exit::Failed, Exit::Usage, Exit::CouldNotRun];

    /// The number that the process returns.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// What the code means, in the words of `--help`.
    pub const fn meaning(self) -> &'static str {
        match self {
            Exit::Held => "every claim holds",
            Exit::Failed => "a claim or test failed, or the device faulted under it",
            Exit::Usage => "wrong usage, or a tool that is not there yet",
            Exit::CouldNotRun => {
                "could not run or could not tell: no device, PTX rejected, out of memory, all skipped"
            }
        }
    }

    /// The code for an error that reached `main`.
    ///
    /// A [`DeviceError`] or [`UsageError`] anywhere in the chain decides. Any
    /// other error means that the program could not do its work.
    pub fn of(error: &anyhow::Error) -> Exit {
        for cause in error.chain() {
            if let Some(device) = cause.downcast_ref::<DeviceError>() {
                return device.exit();
            }
            if cause.downcast_ref::<UsageError>().is_some() {
                return Exit::Usage;
            }
        }
        Exit::CouldNotRun
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// The command line asks for something that is wrong or not there yet.
#[derive(Debug)]
pub struct UsageError(pub String);

impl std::fmt::Display for UsageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// Text for the foot of `--help`.
pub const HELP: &str = "Exit codes:
  0  every claim holds
  1  a claim or test failed, or the device faulted under it
  2  wrong usage, or a tool that is not there yet
  3  could not run or could not tell: no device, PTX rejected, out of memory, all skipped";

/// What a program returns whose reader left (`… | head -1`): 128 and the number of
/// SIGPIPE, as a shell shows it for any Unix tool. It is none of the codes above, so a
/// lesson that nobody read to its end is not one that held. The program says nothing
/// more, and it ends by returning: what it holds on the device is freed, and a
/// sanitizer's report is finished.
pub const READER_LEFT: u8 = 128 + libc::SIGPIPE as u8;

/// The body of every `main`: read the command line, run, print an error with its
/// causes, return the code.
///
/// `json` says whether the program was asked for JSON: then an error is also one JSON
/// document on stdout, `{"error": …, "exit": …}`, so that a machine never reads
/// nothing. The text goes to stderr either way.
pub fn program<A: clap::Parser>(
    json: impl FnOnce(&A) -> bool,
    body: impl FnOnce(&A) -> anyhow::Result<Exit>,
) -> ExitCode {
    match arguments::<A>(std::env::args_os()) {
        Ok(arguments) => run_reporting(json(&arguments), || body(&arguments)),
        Err(code) => code,
    }
}

/// Reads a command line. What clap prints instead (help, version, wrong usage) is
/// printed, and the code returned.
pub fn arguments<A: clap::Parser>(
    words: impl IntoIterator<Item = OsString>,
) -> Result<A, ExitCode> {
    let words: Vec<OsString> = words.into_iter().collect();
    let mut command = with_exit_codes(A::command());
    let read = command
        .try_get_matches_from_mut(&words)
        .and_then(|matches| A::from_arg_matches(&matches))
        .map_err(|error| error.format(&mut command));
    read.map_err(|instead| match instead.use_stderr() {
        true => wrong_usage(&instead, &words),
        false => run(|| {
            output::require_open()?;
            instead.print().map_err(OutputError::from)?;
            Ok(Exit::Held)
        }),
    })
}

/// Where the line could not be read, the word `--json` in it stands for the wish.
fn wrong_usage(error: &clap::Error, words: &[OsString]) -> ExitCode {
    let _ = error.print();
    let mut own = words.iter().take_while(|word| *word != "--");
    if !own.any(|word| word == "--json") {
        return Exit::Usage.into();
    }
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    with_document(Exit::Usage.code(), first.trim_start_matches("error: "))
}

/// Each `--help` ends with the table, unless the command has another one.
fn with_exit_codes(command: clap::Command) -> clap::Command {
    let command = match command.get_after_help() {
        Some(_) => command,
        None => command.after_help(HELP),
    };
    command.mut_subcommands(with_exit_codes)
}

/// [`run_reporting`] without JSON.
pub fn run(body: impl FnOnce() -> anyhow::Result<Exit>) -> ExitCode {
    run_reporting(false, body)
}

/// Runs `body`, prints an error with its causes, and returns the code. A standard
/// output that is closed, or that does not take what is left to print, is an error.
pub fn run_reporting(json: bool, body: impl FnOnce() -> anyhow::Result<Exit>) -> ExitCode {
    let ended = output::require_open()
        .map_err(anyhow::Error::from)
        .and_then(|()| body())
        .and_then(|exit| {
            output::flush()?;
            Ok(exit)
        });
    match ended {
        Ok(exit) => exit.into(),
        Err(error) => report(&error, json),
    }
}

/// Prints an error that reached `main` and returns its code.
pub fn report(error: &anyhow::Error, json: bool) -> ExitCode {
    let of_output = error.downcast_ref::<OutputError>();
    if let Some(OutputError::ReaderLeft) = of_output {
        return READER_LEFT.into();
    }
    let exit = Exit::of(error);
    let text = format!("{error:#}");
    errln!("error: {text}");
    match json && of_output.is_none() {
        true => with_document(exit.code(), &text),
        false => exit.into(),
    }
}

/// Prints the JSON document of an error and returns its code. The error counts already:
/// a second one, that the document cannot be printed, changes nothing.
pub fn with_document(code: u8, error: &str) -> ExitCode {
    let document = serde_json::json!({"error": error, "exit": code});
    let _ = outln!("{document}");
    code.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn help_lists_each_code_with_its_meaning() {
        for exit in Exit::ALL {
            let line = format!("  {}  {}", exit.code(), exit.meaning());
            assert!(HELP.contains(&line), "--help lacks {line:?}");
        }
    }

    #[test]
    fn an_error_keeps_its_code_under_added_context() {
        let fault = DeviceError::Faulted {
            call: "cuCtxSynchronize",
            code: 719,
            name: "CUDA_ERROR_LAUNCH_FAILED".into(),
        };
        let cases: Vec<(anyhow::Error, Exit)> = vec![
            (anyhow::Error::new(fault), Exit::Failed),
            (
                anyhow::Error::new(DeviceError::NoDevice {
                    message: String::new(),
                }),
                Exit::CouldNotRun,
            ),
            (anyhow::Error::new(UsageError("x".into())), Exit::Usage),
            (anyhow::anyhow!("a file is missing"), Exit::CouldNotRun),
        ];
        for (error, want) in cases {
            let wrapped = Err::<(), _>(error).context("while testing").unwrap_err();
            assert_eq!(Exit::of(&wrapped), want, "{wrapped:#}");
        }
    }
}
