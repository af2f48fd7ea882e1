//! The child process: runs one form after the other until one of them costs
//! the context.
//!
//! It reads the path of a form a line and answers with one line of JSON. The
//! first line it writes describes the device.

use super::inputs;
use super::signature::SLOT;
use super::spec::Spec;
use crate::device::choice::Driver;
use crate::device::{Device, DeviceError, Launch};
use crate::output::OutputError;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};
use std::path::Path;

/// `CUDA_ERROR_ILLEGAL_INSTRUCTION`
const ILLEGAL_INSTRUCTION: u32 = 715;
/// `CUDA_ERROR_NOT_SUPPORTED`
const NOT_SUPPORTED: u32 = 801;

/// What the driver is, once a child.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct Hello {
    pub name: String,
    /// 90 for compute capability 9.0.
    pub sm: u32,
    pub banner: String,
    pub driver: String,
}

/// One form's answer.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Packed outputs in hexadecimal.
    Outputs(String),
    /// The driver refused the module, or does not have the instruction.
    Unsupported(String),
    /// The kernel faulted; the child ends after this line.
    Fault(String),
    /// The form itself cannot be run.
    Error(String),
}

/// Body of the hidden `forms worker` command.
///
/// # Errors
/// No device, or a closed pipe.
pub fn work() -> Result<()> {
    let device = Device::open()?;
    let mut out = std::io::stdout().lock();
    let mut say = |line: String| {
        writeln!(out, "{line}")
            .and_then(|()| out.flush())
            .map_err(OutputError::from)
    };
    say(serde_json::to_string(&hello(&device))?)?;
    for line in std::io::stdin().lock().lines() {
        let answer = answer(&device, Path::new(&line?));
        say(serde_json::to_string(&answer)?)?;
        if device.is_lost() {
            break;
        }
    }
    Ok(())
}

fn hello(device: &Device) -> Hello {
    let info = device.info();
    let (major, minor) = info.compute_capability;
    let kernel_module = std::fs::read_to_string("/proc/driver/nvidia/version").ok();
    let nvidia = kernel_module
        .filter(|_| info.driver == Driver::Nvidia)
        .and_then(|text| text.lines().next().map(str::to_owned));
    Hello {
        name: info.name.clone(),
        sm: u32::try_from(major * 10 + minor).unwrap_or(0),
        banner: device.banner(),
        driver: format!(
            "{}, CUDA {}.{}",
            nvidia.unwrap_or_else(|| info.driver.words().to_owned()),
            info.driver_cuda.0,
            info.driver_cuda.1
        ),
    }
}

fn answer(device: &Device, path: &Path) -> Answer {
    let spec = match Spec::load(path) {
        Ok(spec) => spec,
        Err(error) => return Answer::Error(format!("{error:#}")),
    };
    match execute(device, &spec) {
        Ok(outputs) => Answer::Outputs(outputs.iter().map(|b| format!("{b:02x}")).collect()),
        Err(error) => refusal(&error, device.info().driver),
    }
}

/// How a form that gave no outputs ended. A GPU meets an illegal instruction
/// (715) only in a broken module; our driver also says so of an instruction
/// that it does not have, once a kernel reaches it.
fn refusal(error: &anyhow::Error, driver: Driver) -> Answer {
    let why = format!("{error:#}");
    match error.downcast_ref::<DeviceError>() {
        Some(
            DeviceError::PtxRejected { .. }
            | DeviceError::Driver {
                code: NOT_SUPPORTED,
                ..
            },
        ) => Answer::Unsupported(why),
        Some(DeviceError::Faulted {
            code: ILLEGAL_INSTRUCTION,
            ..
        }) if driver == Driver::Cpu => Answer::Unsupported(why),
        Some(DeviceError::Faulted { .. } | DeviceError::Lost) => Answer::Fault(why),
        _ => Answer::Error(why),
    }
}

/// Runs the form once and returns its packed outputs.
fn execute(device: &Device, spec: &Spec) -> Result<Vec<u8>> {
    let cases = inputs::cases(&spec.name, &spec.signature, spec.inputs, spec.block);
    let blocks = u32::try_from(cases.len())? / spec.block;
    let module = device.load_ptx(&spec.name, &spec.ptx)?;
    let kernel = module.kernel("form")?;
    let input = device.upload(&inputs::buffer(&cases))?;
    let output = device.poisoned::<u8>(cases.len() * spec.signature.outputs.len() * SLOT)?;
    kernel.launch(Launch::linear(blocks, spec.block), &[&input, &output])?;
    device.synchronize()?;
    pack(spec, &output.download()?)
}

/// Drops the padding of each slot.
fn pack(spec: &Spec, slots: &[u8]) -> Result<Vec<u8>> {
    let outputs = &spec.signature.outputs;
    let mut packed = Vec::new();
    for case in slots.chunks(outputs.len() * SLOT) {
        for (slot, operand) in case.chunks(SLOT).zip(outputs) {
            let value = slot.get(..operand.ty.bytes()).context("a short slot")?;
            packed.extend_from_slice(value);
        }
    }
    Ok(packed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_illegal_instruction_is_a_missing_one_on_our_driver_and_a_fault_on_a_gpu() {
        let ended = |code, driver| {
            let error = DeviceError::Faulted {
                call: "cuCtxSynchronize",
                code,
                name: String::new(),
            };
            refusal(&error.into(), driver)
        };
        assert!(matches!(ended(715, Driver::Cpu), Answer::Unsupported(_)));
        assert!(matches!(ended(715, Driver::Nvidia), Answer::Fault(_)));
        assert!(matches!(ended(700, Driver::Cpu), Answer::Fault(_)));
    }
}
