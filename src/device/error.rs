//! What can go wrong between a host program and a device, and its exit code.

use super::environment;
use crate::exit::Exit;

/// An error from the driver or from the choice of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceError {
    /// No driver with a usable device. The message says what was looked for and
    /// what to do.
    NoDevice {
        /// Complete text for the user.
        message: String,
    },
    /// The driver refused a module.
    PtxRejected {
        /// Module name, such as `reduce`.
        module: String,
        /// The driver's code.
        code: u32,
        /// The driver's name for the code.
        name: String,
        /// The JIT log; empty where the driver wrote none.
        log: String,
    },
    /// The launch, buffer or copy that the host asked for cannot be right.
    BadRequest {
        /// What was expected, what was found.
        message: String,
    },
    /// Not enough device memory.
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
    },
    /// A kernel faulted. The context is lost: every later call fails with the
    /// same code, so no further call is made.
    Faulted {
        /// The driver call that reported it.
        call: &'static str,
        /// The driver's code, such as 719.
        code: u32,
        /// The driver's name for the code.
        name: String,
    },
    /// A call was asked for after the context was lost.
    Lost,
    /// Any other failed driver call.
    Driver {
        /// The driver call.
        call: &'static str,
        /// The driver's code.
        code: u32,
        /// The driver's name for the code.
        name: String,
    },
}

impl DeviceError {
    /// The exit code of a program that ends with this error.
    pub fn exit(&self) -> Exit {
        match self {
            DeviceError::Faulted { .. } | DeviceError::Lost => Exit::Failed,
            DeviceError::BadRequest { .. } => Exit::Usage,
            DeviceError::NoDevice { .. }
            | DeviceError::PtxRejected { .. }
            | DeviceError::OutOfMemory { .. }
            | DeviceError::Driver { .. } => Exit::CouldNotRun,
        }
    }
}

/// Codes after which a context answers nothing but the same code.
///
/// From the driver's documentation of CUresult: illegal address, launch timeout,
/// assert, hardware stack error, illegal instruction, misaligned address, invalid
/// address space, invalid program counter, launch failed, and unknown.
pub(crate) fn is_fault(code: u32) -> bool {
    matches!(code, 700 | 702 | 710 | 714..=719 | 999)
}

impl std::fmt::Display for DeviceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DeviceError::NoDevice { message } => f.write_str(message),
            DeviceError::PtxRejected {
                module,
                code,
                name,
                log,
            } => {
                write!(f, "the driver rejected module `{module}`: {name} ({code})")?;
                match log.trim() {
                    "" => f.write_str("; it wrote no log"),
                    log => write!(f, "; its log: {log}"),
                }
            }
            DeviceError::BadRequest { message } => f.write_str(message),
            DeviceError::OutOfMemory { bytes } => write!(
                f,
                "the device has no room for another {bytes} bytes; close other programs or use smaller sizes"
            ),
            DeviceError::Faulted { call, code, name } => {
                write!(
                    f,
                    "the device faulted: {call} returned {name} ({code}); the context is lost"
                )?;
                match environment::advice(*code) {
                    Some(advice) => write!(f, ". {advice}"),
                    None => Ok(()),
                }
            }
            DeviceError::Lost => f.write_str("the context was lost to an earlier fault"),
            DeviceError::Driver { call, code, name } => {
                write!(f, "{call} returned {name} ({code})")
            }
        }
    }
}

impl std::error::Error for DeviceError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sticky_codes_are_faults_and_ordinary_refusals_are_not() {
        for code in [700, 702, 710, 715, 716, 719, 999] {
            assert!(is_fault(code), "{code}");
        }
        // invalid value, out of memory, no device, invalid PTX, not found,
        // launch out of resources, cooperative launch too large, not supported
        for code in [1, 2, 100, 218, 500, 701, 720, 801] {
            assert!(!is_fault(code), "{code}");
        }
    }
}
