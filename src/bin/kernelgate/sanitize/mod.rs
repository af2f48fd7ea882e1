//! `kernelgate sanitize [flags] PROGRAM [arguments]`.
//!
//! The flags are compute-sanitizer's. On a machine with a GPU and NVIDIA's tool the
//! tool runs; otherwise PROGRAM runs on our driver, with the checks in the driver
//! ([`cuda::check::config`] is the contract). The exit rules are the same
//! ([`outcome`]).

mod flags;
mod ours;
mod outcome;
mod target;
mod vendor;

use std::path::PathBuf;
use std::process::ExitCode;

use kernelgate::device::choice::{Driver, Request};
use kernelgate::device::{DeviceError, choose, environment};
use kernelgate::errln;
use kernelgate::exit::{self, UsageError};
use kernelgate::output;

use crate::driver_path;
use crate::programs::COMPUTE_SANITIZER;
use outcome::Outcome;

pub use flags::{Arguments, joined_xml};

/// Which sanitizer runs.
pub enum Backend {
    /// NVIDIA's, this file.
    Vendor(PathBuf),
    /// The checkers of our driver in this library, and why.
    Ours { library: PathBuf, why: String },
}

impl Backend {
    /// For the head of a transcript.
    pub fn describe(&self) -> String {
        match self {
            Backend::Vendor(file) => format!(
                "NVIDIA compute-sanitizer, {}",
                COMPUTE_SANITIZER.version(file)
            ),
            Backend::Ours { .. } => {
                format!("kernelgate's CPU driver {}", env!("CARGO_PKG_VERSION"))
            }
        }
    }

    /// Whether it has the tool of this name.
    pub fn has(&self, tool: &str) -> bool {
        match self {
            Backend::Vendor(_) => true,
            Backend::Ours { .. } => flags::our_tool(tool).is_ok(),
        }
    }
}

pub fn main(arguments: &Arguments) -> ExitCode {
    match sanitize(arguments) {
        Ok(outcome) => {
            let (code, note) = outcome.exit(arguments.rules());
            if let Some(note) = &note {
                errln!("kernelgate sanitize: {note}");
            }
            if arguments.json && !outcome.document {
                return exit::with_document(code, &note.unwrap_or_default());
            }
            ExitCode::from(code)
        }
        Err(error) => exit::report(&error, arguments.json),
    }
}

fn sanitize(arguments: &Arguments) -> anyhow::Result<Outcome> {
    output::require_open()?;
    arguments.tool()?;
    let backend = backend()?;
    target::check(arguments.program().0)?;
    match backend {
        Backend::Vendor(file) => {
            if arguments.json {
                return Err(usage(
                    "--json needs the CPU driver's checkers (KERNELGATE_DRIVER=cpu): \
                     NVIDIA's tool prints text or, with --save, its own file"
                        .into(),
                ));
            }
            errln!("kernelgate sanitize: running NVIDIA's {}", file.display());
            vendor::run(&file, arguments)
        }
        Backend::Ours { library, why } => ours::run(&library, &why, arguments),
    }
}

fn usage(message: String) -> anyhow::Error {
    UsageError(message).into()
}

/// Decides as every program of the project does, and then between the two sanitizers.
/// NVIDIA's tool needs a driver with a device that is not ours.
///
/// # Errors
/// What a program under the same environment would end with; no compute-sanitizer where
/// `KERNELGATE_DRIVER` asks for a driver that only it can watch.
pub fn backend() -> anyhow::Result<Backend> {
    let request = environment::check()?;
    let choice = choose(&request)?;
    if choice.driver == Driver::Cpu {
        let why = match request {
            Request::Auto => "this machine has no usable GPU".to_owned(),
            Request::Cuda | Request::Cpu | Request::Path(_) => choice.why,
        };
        let library = choice.file;
        return Ok(Backend::Ours { library, why });
    }
    if let Some(missing) = COMPUTE_SANITIZER.misnamed() {
        return Err(usage(format!(
            "{}={}: there is no such file; expected NVIDIA's compute-sanitizer",
            COMPUTE_SANITIZER.variable,
            missing.display()
        )));
    }
    match (COMPUTE_SANITIZER.find(), request) {
        (Some(file), _) => Ok(Backend::Vendor(file)),
        (None, Request::Auto) => Ok(Backend::Ours {
            library: driver_path::library()?,
            why: "this machine has a GPU but no compute-sanitizer".into(),
        }),
        (None, _) => Err(DeviceError::NoDevice {
            message: format!(
                "KERNELGATE_DRIVER asks for {}, which only NVIDIA's compute-sanitizer can watch, \
                 and there is none. Looked in: {}. To do: install the CUDA toolkit, or set \
                 KERNELGATE_DRIVER=cpu",
                choice.file.display(),
                COMPUTE_SANITIZER.places()
            ),
        }
        .into()),
    }
}
