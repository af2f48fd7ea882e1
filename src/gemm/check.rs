//! One subject on one case: generate, upload, run twice, judge.

use anyhow::Result;
use serde::Serialize;

use super::bound::Accumulator;
use super::case::Case;
use super::gate::{self, Judgement, Reference};
use super::operands::Operands;
use super::problem::Problem;
use super::reference;
use super::runner::Stage;
use super::subject::{Subject, Unsupported};
use crate::device::{Device, DeviceError};

/// What may be spent on the host for one case.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Multiply-adds up to which every element is computed in f64; above it the
    /// check is sampled.
    pub full: u128,
    /// Bytes of host memory for operands and reference.
    pub memory: u128,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            full: 1 << 31,
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

    pub fn failed(&self) -> bool {
        matches!(self, Outcome::Failed(_) | Outcome::Broke { .. })
    }

    pub fn passed(&self) -> bool {
        matches!(self, Outcome::Passed(_))
    }
}

/// The reference of `problem` at the strength that `limits` pays for.
pub fn reference_for(
    problem: &Problem,
    operands: &Operands,
    accumulator: Accumulator,
    limits: &Limits,
) -> Reference {
    if problem.work() <= limits.full {
        Reference::Full(reference::compute(problem, operands, accumulator))
    } else {
        Reference::Sampled(accumulator)
    }
}

/// Runs and judges one case.
///
/// # Errors
/// When the harness itself could not judge; a failing kernel is an [`Outcome`].
pub fn run_case(
    device: &Device,
    subject: &dyn Subject,
    case: &Case,
    limits: &Limits,
) -> Result<Outcome> {
    if let Some(reason) = subject.refusal(&case.problem) {
        return Ok(Outcome::Skipped { reason });
    }
    let needed = Operands::host_bytes(&case.problem);
    if needed > limits.memory {
        return Ok(Outcome::Skipped {
            reason: format!(
                "operands and reference need {needed} bytes of host memory, {} are allowed",
                limits.memory
            ),
        });
    }
    let operands = Operands::generate(case)?;
    let run = match Stage::new(device, case, &operands).and_then(|mut s| s.execute(subject)) {
        Ok(run) => run,
        Err(error) => return Ok(broken(device, &error)),
    };
    let accumulator = subject.accumulator(&case.problem);
    let reference = reference_for(&case.problem, &operands, accumulator, limits);
    let judgement = gate::judge(case, &operands, &reference, &run)?;
    Ok(if judgement.passed() {
        Outcome::Passed(judgement)
    } else {
        Outcome::Failed(judgement)
    })
}

/// Out of memory is Skipped, with the size, and so is what nobody can run; anything
/// else is the kernel's failure.
fn broken(device: &Device, error: &anyhow::Error) -> Outcome {
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
