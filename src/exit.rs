//! The exit codes of every program in this repository.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | all claims hold |
//! | 1 | a claim or test failed, the device faulted under us, or a regression is confirmed |
//! | 2 | wrong usage, including a tool that is not there yet |
//! | 3 | could not run or could not tell: no device, PTX rejected, every case skipped |
//!
//! A run under `kernelgate sanitize` follows `--error-exitcode` instead.

use std::process::ExitCode;

/// What a program tells its caller; the numbers are a contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// All claims hold.
    Held = 0,
    /// A claim or a test failed, or the device faulted.
    Failed = 1,
    /// The command line asks for something that does not exist.
    Usage = 2,
    /// Nothing was learnt: the program could not run, or saw no case.
    CouldNotRun = 3,
}

impl Exit {
    /// The number the shell sees.
    pub fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}
