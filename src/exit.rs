//! Exit codes: one table for every binary of the project.
//!
//! A program under `kernelgate sanitize` is the one exception: there the exit
//! code follows `--error-exitcode`, as it does under compute-sanitizer.

use std::process::ExitCode;

use crate::device::DeviceError;

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

/// Lets a closed pipe (`… | head`) end the program quietly, as it ends any Unix
/// tool. Rust ignores SIGPIPE at start, and then the next line printed panics.
pub fn end_quietly_on_a_closed_pipe() {
    // SAFETY: SIG_DFL is a valid disposition, and no other thread runs yet.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// The body of every `main`: run, print an error with its causes, return the code.
pub fn run(body: impl FnOnce() -> anyhow::Result<Exit>) -> ExitCode {
    run_reporting(false, body)
}

/// [`run`] for a program with `--json`: an error is also one JSON document on
/// stdout, `{"error": …, "exit": …}`, so that a machine never reads nothing. The
/// text goes to stderr either way.
pub fn run_reporting(json: bool, body: impl FnOnce() -> anyhow::Result<Exit>) -> ExitCode {
    end_quietly_on_a_closed_pipe();
    match body() {
        Ok(exit) => exit.into(),
        Err(error) => {
            let exit = Exit::of(&error);
            let text = format!("{error:#}");
            eprintln!("error: {text}");
            if json {
                println!(
                    "{}",
                    serde_json::json!({"error": text, "exit": exit.code()})
                );
            }
            exit.into()
        }
    }
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
