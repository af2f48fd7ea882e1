//! `kernelgate sanitize [flags] PROGRAM [arguments]`.
//!
//! The flags are compute-sanitizer's. On a machine with a GPU and NVIDIA's tool the
//! tool runs; otherwise PROGRAM runs on our driver, with the checks in the driver
//! ([`cuda::check::config`] is the contract). The exit rules are the same
//! ([`outcome`]).

mod flags;
mod ours;
mod outcome;
mod vendor;

use std::path::PathBuf;
use std::process::ExitCode;

use kernelgate::device::choice::Request;
use kernelgate::device::{DeviceError, probe_nvidia};
use kernelgate::errln;
use kernelgate::exit::{self, UsageError};
use kernelgate::output;

use crate::programs::COMPUTE_SANITIZER;
use outcome::Outcome;

pub use flags::{Arguments, joined_xml};

/// Which sanitizer runs.
pub enum Backend {
    /// NVIDIA's, this file.
    Vendor(PathBuf),
    /// The checkers of our driver, and why.
    Ours(&'static str),
}

impl Backend {
    /// For the head of a transcript.
    pub fn describe(&self) -> String {
        match self {
            Backend::Vendor(file) => format!(
                "NVIDIA compute-sanitizer, {}",
                COMPUTE_SANITIZER.version(file)
            ),
            Backend::Ours(_) => format!("kernelgate's CPU driver {}", env!("CARGO_PKG_VERSION")),
        }
    }

    /// Whether it has the tool of this name.
    pub fn has(&self, tool: &str) -> bool {
        match self {
            Backend::Vendor(_) => true,
            Backend::Ours(_) => flags::our_tool(tool).is_ok(),
        }
    }
}

pub fn main(arguments: &Arguments) -> ExitCode {
    match sanitize(arguments) {
        Ok(outcome) => {
            let (code, note) = outcome.exit(arguments.rules());
            if let Some(note) = note {
                errln!("kernelgate sanitize: {note}");
            }
            ExitCode::from(code)
        }
        Err(error) => exit::report(&error, arguments.json),
    }
}

fn sanitize(arguments: &Arguments) -> anyhow::Result<Outcome> {
    output::require_open()?;
    let tool = arguments.tool()?;
    match backend()? {
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
        Backend::Ours(why) => {
            errln!("kernelgate sanitize: {tool} by kernelgate's CPU driver, {why}");
            ours::run(arguments)
        }
    }
}

fn usage(message: String) -> anyhow::Error {
    UsageError(message).into()
}

/// NVIDIA's tool needs NVIDIA's driver with a device. `KERNELGATE_DRIVER` decides
/// as it does for every program.
pub fn backend() -> anyhow::Result<Backend> {
    let request = Request::from_env()?;
    match request {
        Request::Cpu => return Ok(Backend::Ours("because KERNELGATE_DRIVER=cpu")),
        Request::Path(_) => return Ok(Backend::Ours("because KERNELGATE_DRIVER names a file")),
        Request::Auto | Request::Cuda => {}
    }
    let nvidia = probe_nvidia();
    let gpu = nvidia.usable() && !nvidia.ours;
    let tool = COMPUTE_SANITIZER.find();
    match (gpu, tool, request) {
        (true, Some(file), _) => Ok(Backend::Vendor(file)),
        (_, _, Request::Cuda) => Err(DeviceError::NoDevice {
            message: format!(
                "KERNELGATE_DRIVER=cuda asks for NVIDIA's compute-sanitizer, which needs NVIDIA's \
                 driver with a device ({}) and the tool itself (looked in {})",
                nvidia.describe(),
                COMPUTE_SANITIZER.places()
            ),
        }
        .into()),
        (true, None, _) => Ok(Backend::Ours(
            "because this machine has a GPU but no compute-sanitizer",
        )),
        (false, _, _) => Ok(Backend::Ours("because this machine has no usable GPU")),
    }
}
