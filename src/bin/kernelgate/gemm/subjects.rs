//! From `--subject` to subjects.

use anyhow::{Context, Result};
use kernelgate::device::{Device, DeviceError, LtError};
use kernelgate::exit::UsageError;
use kernelgate::gemm::cublaslt::CublasLt;
use kernelgate::gemm::faults::CATALOGUE;
use kernelgate::gemm::mma::Mma;
use kernelgate::gemm::planted::Plant;
use kernelgate::gemm::simt::Simt;
use kernelgate::gemm::subject::Subject;
use kernelgate::gemm::wgmma::Wgmma;

/// Names that `--subject all` stands for.
pub const BUILT_IN: [&str; 4] = ["simt", "mma", "wgmma", "cublaslt"];

/// A subject, or why this machine cannot run it.
pub enum Found<'p> {
    Subject(Box<dyn Subject + 'p>),
    Skipped { name: String, reason: String },
}

/// The subjects that `names` (separated by commas) ask for.
pub fn find<'p>(device: &Device, plant: &'p Plant, names: &str) -> Result<Vec<Found<'p>>> {
    let names: Vec<&str> = match names {
        "all" => BUILT_IN.to_vec(),
        names => names.split(',').map(str::trim).collect(),
    };
    names
        .into_iter()
        .map(|name| find_one(device, plant, name))
        .collect()
}

fn find_one<'p>(device: &Device, plant: &'p Plant, name: &str) -> Result<Found<'p>> {
    if let Some(fault) = name.strip_prefix("fault:") {
        let fault = CATALOGUE.iter().find(|f| f.name == fault).ok_or_else(|| {
            let known: Vec<&str> = CATALOGUE.iter().map(|f| f.name).collect();
            UsageError(format!(
                "no fault `{fault}`; there are: {}",
                known.join(", ")
            ))
        })?;
        return Ok(match plant.unavailable(device, fault)? {
            None => Found::Subject(Box::new(plant.fault(fault))),
            Some(reason) => Found::Skipped {
                name: name.to_owned(),
                reason,
            },
        });
    }
    if name.starts_with("wgmma")
        && let Some(reason) = Wgmma::unavailable(device)
    {
        return Ok(Found::Skipped {
            name: name.to_owned(),
            reason,
        });
    }
    let loaded: Result<Box<dyn Subject>, DeviceError> = match name {
        "simt" => Simt::load(device).map(|s| Box::new(s) as _),
        "mma" => Mma::load(device).map(|s| Box::new(s) as _),
        // Not one of `all`: what `mma` is where the device multiplies FP8.
        "mma-native" => Mma::native(device).map(|s| Box::new(s) as _),
        "cublaslt" | "cublaslt-fast" => return cublaslt(device, name),
        "wgmma" => Wgmma::load(device).map(|s| Box::new(s) as _),
        // Not one of `all`: it is wrong on purpose.
        "wgmma-unpromoted" => Wgmma::load_unpromoted(device).map(|s| Box::new(s) as _),
        other => {
            return Err(UsageError(format!(
                "no subject `{other}`; expected {}, mma-native, wgmma-unpromoted, cublaslt-fast, fault:NAME or all",
                BUILT_IN.join(", ")
            ))
            .into());
        }
    };
    match loaded {
        Ok(subject) => Ok(Found::Subject(subject)),
        // A kernel for a newer device is no failure of this one.
        Err(error @ DeviceError::PtxRejected { .. }) => Ok(Found::Skipped {
            name: name.to_owned(),
            reason: error.to_string(),
        }),
        Err(error) => Err(error).with_context(|| format!("while loading `{name}`")),
    }
}

fn cublaslt<'p>(device: &Device, name: &str) -> Result<Found<'p>> {
    match CublasLt::open(device, name == "cublaslt-fast") {
        Ok(subject) => Ok(Found::Subject(Box::new(subject))),
        Err(error @ LtError::Absent(_)) => Ok(Found::Skipped {
            name: name.to_owned(),
            reason: error.to_string(),
        }),
        Err(error) => Err(error).context("while opening cuBLASLt"),
    }
}
