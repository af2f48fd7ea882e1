//! The cases that `kernelgate bench` runs unless told otherwise.

use std::cell::RefCell;

use anyhow::Result;

use super::gemm::{GemmWorkload, Timed, wgmma_workload};
use super::stopwatch::Cache;
use super::stream::{StreamWorkload, size_name, stream};
use super::workload::{Config, Workload};
use crate::device::{Device, DeviceError, LtError};
use crate::gemm::cublaslt::CublasLt;
use crate::gemm::problem::Problem;
use crate::gemm::simt::{Mma, Simt};
use crate::gemm::subject::Subject;
use crate::gemm::wgmma::Wgmma;
use crate::lowp::OutputType;

/// What a case runs.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// A memory-bound kernel on so many bytes.
    Stream { name: &'static str, bytes: u64 },
    /// A subject on a dense m × n × k problem.
    Dense {
        subject: &'static str,
        mnk: (usize, usize, usize),
        output: OutputType,
    },
}

/// A case by name.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    pub what: What,
    pub cache: Cache,
}

/// A case on a device: ready, or the reason why it cannot run there.
pub enum Built<'d> {
    Ready(Box<dyn Workload + 'd>),
    Skipped(String),
}

impl Case {
    /// The id of its record.
    pub fn id(&self) -> String {
        let case = match &self.what {
            What::Stream { name, bytes } => format!("{name}/stream/{}", size_name(*bytes)),
            What::Dense {
                subject,
                mnk: (m, n, k),
                output,
            } => format!("{subject}/dense/{m}x{n}x{k}/{}", output.name()),
        };
        format!("{case}/{}", self.cache.name())
    }

    /// Name of the kernel that is timed, for a profiler's filter; `None` where it is
    /// not ours.
    pub fn kernel(&self) -> Option<&'static str> {
        match &self.what {
            What::Stream { name, .. } => stream(name)?.kernel,
            What::Dense {
                subject, output, ..
            } => match (*subject, output) {
                ("simt", _) => Some("simtFp8Large"),
                ("mma", _) => Some("mmaFp8Large"),
                ("wgmma", OutputType::F32) => Some("wgmmaDenseF32"),
                ("wgmma", _) => Some("wgmmaDenseBf16"),
                _ => None,
            },
        }
    }

    /// Makes the workload.
    ///
    /// # Errors
    /// When it should run here and does not.
    pub fn build<'d>(&self, device: &'d Device) -> Result<Built<'d>> {
        self.build_with(device, None)
    }

    /// The same from another build of its kernel file, given as PTX.
    pub fn build_with<'d>(&self, device: &'d Device, ptx: Option<&str>) -> Result<Built<'d>> {
        match &self.what {
            What::Stream { name, bytes } => {
                let stream = stream(name).expect("the list names streams that exist");
                let memory = device.hardware()?.memory_bytes;
                if 3 * bytes > memory {
                    return Ok(Built::Skipped(format!(
                        "{} twice does not fit {} of memory",
                        size_name(*bytes),
                        size_name(memory)
                    )));
                }
                Ok(Built::Ready(Box::new(StreamWorkload::new(
                    device, stream, *bytes, ptx,
                )?)))
            }
            What::Dense {
                subject,
                mnk: (m, n, k),
                output,
            } => dense(device, subject, Problem::dense(*m, *n, *k, *output), ptx),
        }
    }
}

fn dense<'d>(
    device: &'d Device,
    subject: &str,
    problem: Problem,
    ptx: Option<&str>,
) -> Result<Built<'d>> {
    match subject {
        "simt" | "mma" => {
            let subject: Box<dyn Subject> = match subject {
                "simt" => Box::new(Simt::load(device)?),
                _ => match Mma::load(device) {
                    Ok(mma) => Box::new(mma),
                    Err(error @ DeviceError::PtxRejected { .. }) => {
                        return Ok(Built::Skipped(error.to_string()));
                    }
                    Err(error) => return Err(error.into()),
                },
            };
            let tile = subject.tile(&problem);
            let (mma, large) = (subject.name() == "mma", tile.0 == 128);
            let config = Config {
                block_m: Some(tile.0),
                block_n: Some(tile.1),
                block_k: mma.then_some(64),
                stages: mma.then_some(if large { 3 } else { 2 }),
                warps: Some(if mma && !large { 4 } else { 8 }),
                split: Some(1),
            };
            Ok(Built::Ready(Box::new(GemmWorkload::new(
                device,
                Timed::Whole(subject),
                config,
                problem,
            )?)))
        }
        "wgmma" => match Wgmma::unavailable(device) {
            Some(reason) => Ok(Built::Skipped(reason)),
            None => Ok(Built::Ready(Box::new(wgmma_workload(
                device, problem, ptx,
            )?))),
        },
        "cublaslt" => match CublasLt::open(device, false) {
            Ok(library) => Ok(Built::Ready(Box::new(GemmWorkload::new(
                device,
                Timed::Library(Box::new(library), RefCell::new(None)),
                Config::default(),
                problem,
            )?))),
            Err(error @ LtError::Absent(_)) => Ok(Built::Skipped(error.to_string())),
            Err(error) => Err(error.into()),
        },
        other => anyhow::bail!("no subject is called `{other}`"),
    }
}

/// The shapes of facts.md §5 and a few of §8.
const SHAPES: [(usize, usize, usize); 7] = [
    (4096, 7168, 16384),
    (4096, 4096, 7168),
    (4096, 24576, 1536),
    (4096, 2112, 7168),
    (4096, 7168, 2048),
    (128, 4096, 7168),
    (1, 7168, 16384),
];

/// All cases, in the order in which they run.
pub fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    let stream = |name, bytes, cache| Case {
        what: What::Stream { name, bytes },
        cache,
    };
    for name in ["memcpy", "copy", "vectorised-sum", "block-tree-sum"] {
        cases.push(stream(name, 1 << 30, Cache::Cold));
    }
    for name in ["memcpy", "copy", "vectorised-sum", "block-tree-sum"] {
        cases.push(stream(name, 64 << 20, Cache::Cold));
    }
    for cache in [Cache::Cold, Cache::Warm] {
        cases.push(stream("vectorised-sum", 16 << 20, cache));
    }
    for name in ["square", "adjacent-difference", "window-sum"] {
        cases.push(stream(name, 256 << 20, Cache::Cold));
    }
    let dense = |subject, mnk, output, cache| Case {
        what: What::Dense {
            subject,
            mnk,
            output,
        },
        cache,
    };
    for mnk in SHAPES {
        cases.push(dense("wgmma", mnk, OutputType::Bf16, Cache::Cold));
    }
    cases.push(dense("wgmma", SHAPES[1], OutputType::Bf16, Cache::Warm));
    cases.push(dense("wgmma", SHAPES[1], OutputType::F32, Cache::Cold));
    for subject in ["cublaslt", "mma"] {
        for mnk in [SHAPES[0], SHAPES[1]] {
            cases.push(dense(subject, mnk, OutputType::Bf16, Cache::Cold));
        }
    }
    cases.push(dense("simt", SHAPES[1], OutputType::F32, Cache::Cold));
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_every_stream_exists() {
        let cases = all();
        let mut ids: Vec<String> = cases.iter().map(Case::id).collect();
        let count = ids.len();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), count);
        for case in &cases {
            if let What::Stream { name, .. } = &case.what {
                assert!(stream(name).is_some(), "{name}");
            }
        }
    }
}
