//! One subject on one case: generate, upload, run twice, judge.

use anyhow::Result;
use serde::Serialize;

use std::cell::OnceCell;

use super::case::Case;
use super::gate::{self, Judgement, Reference};
use super::large::{self, Depth, Workshop};
use super::operands::Operands;
use super::reference;
use super::runner::Stage;
use super::subject::{Subject, Unsupported};
use crate::device::{Device, DeviceError};
use crate::exit::Exit;

/// Where and how strongly a case is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strength {
    /// Full up to [`Limits::full`], sampled on the device above it.
    Auto,
    /// Every element in f64: on the host up to [`Limits::full`], above it through an
    /// FP64 product on the device where a library for it is, else on the host.
    Full,
    /// Sampled, on the host.
    Sampled,
    /// Operands made on the device, sampled there.
    Device,
    /// Operands made on the device, every element compared there in FP64.
    DeviceFull,
}

impl Strength {
    pub const ALL: [Strength; 5] = [
        Strength::Auto,
        Strength::Full,
        Strength::Sampled,
        Strength::Device,
        Strength::DeviceFull,
    ];

    /// As `--strength` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Strength::Auto => "auto",
            Strength::Full => "full",
            Strength::Sampled => "sampled",
            Strength::Device => "device",
            Strength::DeviceFull => "device-full",
        }
    }
}

impl std::str::FromStr for Strength {
    type Err = String;

    fn from_str(text: &str) -> Result<Strength, String> {
        Strength::ALL
            .into_iter()
            .find(|strength| strength.name() == text)
            .ok_or_else(|| {
                let names = Strength::ALL.map(Strength::name);
                format!("`{text}`: expected one of {}", names.join(", "))
            })
    }
}

/// What may be spent on one case.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub strength: Strength,
    /// Multiply-adds up to which [`Strength::Auto`] computes every element.
    pub full: u128,
    /// Bytes of host memory for operands and reference.
    pub memory: u128,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            strength: Strength::Auto,
            full: 1 << 26,
            memory: 16 << 30,
        }
    }
}

/// How a case ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "outcome", rename_all = "lowercase")]
pub enum Outcome {
    Passed(Judgement),
    Failed(Judgement),
    /// The launch was refused or the device faulted.
    Broke {
        message: String,
        /// No later case can run in this process.
        lost: bool,
    },
    Skipped {
        reason: String,
    },
}

impl Outcome {
    pub fn word(&self) -> &'static str {
        match self {
            Outcome::Passed(_) => "PASS",
            Outcome::Failed(_) | Outcome::Broke { .. } => "FAIL",
            Outcome::Skipped { .. } => "SKIP",
        }
    }

    /// The exit code of a program that ran this case alone.
    pub fn exit(&self) -> Exit {
        match self {
            Outcome::Passed(_) => Exit::Held,
            Outcome::Failed(_) | Outcome::Broke { .. } => Exit::Failed,
            Outcome::Skipped { .. } => Exit::CouldNotRun,
        }
    }

    pub fn failed(&self) -> bool {
        matches!(self, Outcome::Failed(_) | Outcome::Broke { .. })
    }

    pub fn passed(&self) -> bool {
        matches!(self, Outcome::Passed(_))
    }
}

/// Runs cases on one device.
pub struct Checker<'d> {
    device: &'d Device,
    limits: Limits,
    /// Loaded for the first case that needs it.
    shop: OnceCell<Workshop>,
}

impl<'d> Checker<'d> {
    pub fn new(device: &'d Device, limits: Limits) -> Checker<'d> {
        Checker {
            device,
            limits,
            shop: OnceCell::new(),
        }
    }

    /// Runs and judges one case.
    ///
    /// # Errors
    /// When the harness itself could not judge; a failing kernel is an [`Outcome`].
    pub fn run(&self, subject: &dyn Subject, case: &Case) -> Result<Outcome> {
        if let Some(reason) = subject.refusal(&case.problem) {
            return Ok(Outcome::Skipped { reason });
        }
        match self.strength(case)? {
            Strength::Device => self.on_device(subject, case, Depth::Sampled),
            Strength::DeviceFull => self.on_device(subject, case, Depth::Full),
            Strength::Sampled => self.on_host(subject, case, false),
            Strength::Auto | Strength::Full => self.on_host(subject, case, true),
        }
    }

    /// What the strength asked for comes to for `case`: never [`Strength::Auto`].
    ///
    /// # Errors
    /// When the library that this depends on is there and cannot be opened.
    pub fn strength(&self, case: &Case) -> Result<Strength> {
        let small = case.problem.work() <= self.limits.full;
        Ok(match self.limits.strength {
            Strength::Auto if small => Strength::Full,
            Strength::Auto => Strength::Device,
            Strength::Full if !small && self.shop()?.library(self.device)?.is_some() => {
                Strength::DeviceFull
            }
            named => named,
        })
    }

    fn shop(&self) -> Result<&Workshop> {
        if let Some(shop) = self.shop.get() {
            return Ok(shop);
        }
        let loaded = Workshop::load(self.device)?;
        Ok(self.shop.get_or_init(|| loaded))
    }

    fn on_device(&self, subject: &dyn Subject, case: &Case, depth: Depth) -> Result<Outcome> {
        large::run(self.device, self.shop()?, subject, case, depth)
    }

    fn on_host(&self, subject: &dyn Subject, case: &Case, full: bool) -> Result<Outcome> {
        let needed = Operands::host_bytes(&case.problem);
        if needed > self.limits.memory {
            return Ok(Outcome::Skipped {
                reason: format!(
                    "operands and reference need {needed} bytes of host memory, {} are allowed",
                    self.limits.memory
                ),
            });
        }
        let operands = Operands::generate(case)?;
        let staged = Stage::new(self.device, case, &operands);
        let run = match staged.and_then(|mut stage| stage.execute(subject)) {
            Ok(run) => run,
            Err(error) => return Ok(broken(self.device, &error)),
        };
        let accumulator = subject.accumulator(&case.problem);
        let reference = if full {
            Reference::Full(reference::compute(&case.problem, &operands, accumulator))
        } else {
            Reference::Sampled(accumulator)
        };
        let judgement = gate::judge(case, &operands, &reference, &run)?;
        Ok(if judgement.passed() {
            Outcome::Passed(judgement)
        } else {
            Outcome::Failed(judgement)
        })
    }
}

/// [`Checker::run`] for a single case.
///
/// # Errors
/// As there.
pub fn run_case(
    device: &Device,
    subject: &dyn Subject,
    case: &Case,
    limits: &Limits,
) -> Result<Outcome> {
    Checker::new(device, *limits).run(subject, case)
}

/// Out of memory is Skipped, with the size, and so is what nobody can run; anything
/// else is the kernel's failure.
pub(super) fn broken(device: &Device, error: &anyhow::Error) -> Outcome {
    if let Some(Unsupported(reason)) = error.downcast_ref() {
        return Outcome::Skipped {
            reason: reason.clone(),
        };
    }
    let memory = error.chain().find_map(|cause| match cause.downcast_ref() {
        Some(DeviceError::OutOfMemory { bytes }) => Some(*bytes),
        _ => None,
    });
    match memory {
        Some(bytes) => Outcome::Skipped {
            reason: format!("the device has no room for a buffer of {bytes} bytes"),
        },
        None => Outcome::Broke {
            message: format!("{error:#}"),
            lost: device.is_lost(),
        },
    }
}
