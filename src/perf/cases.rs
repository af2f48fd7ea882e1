//! The cases that `kernelgate bench` runs unless told otherwise.

use std::cell::RefCell;

use anyhow::Result;

use super::gemm::{GemmWorkload, Timed, shape_name, wgmma_workload};
use super::inputs::slot;
use super::peaks::Unit;
use super::stopwatch::Cache;
use super::stream::{StreamWorkload, size_name, stream};
use super::workload::{Config, Workload};
use crate::device::{Device, DeviceError, LtError};
use crate::gemm::cublaslt::CublasLt;
use crate::gemm::mma::Mma;
use crate::gemm::problem::{Form, Problem};
use crate::gemm::simt::Simt;
use crate::gemm::subject::Subject;
use crate::gemm::wgmma::Wgmma;
use crate::lowp::OutputType;

/// What a case runs.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// A memory-bound kernel on so many bytes.
    Stream { name: &'static str, bytes: u64 },
    /// A subject on a problem.
    Gemm {
        subject: &'static str,
        shape: Shape,
        output: OutputType,
    },
}

/// Form and sizes of a GEMM case.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Shape {
    /// m, n, k.
    Dense(usize, usize, usize),
    /// Groups of up to `most` rows one after the other, n, k.
    Contiguous {
        groups: usize,
        most: usize,
        nk: (usize, usize),
    },
    /// Groups that own `most` rows each and use some, n, k.
    Masked {
        groups: usize,
        most: usize,
        nk: (usize, usize),
    },
}

impl Shape {
    /// The problem under the FP8 block recipe.
    pub fn problem(self, output: OutputType) -> Problem {
        match self {
            Shape::Dense(m, n, k) => Problem::dense(m, n, k, output),
            Shape::Contiguous {
                groups,
                most,
                nk: (n, k),
            } => Problem::dense(0, n, k, output).with_form(Form::Contiguous {
                rows: uneven(groups, most, most / 2),
            }),
            Shape::Masked {
                groups,
                most,
                nk: (n, k),
            } => Problem::dense(0, n, k, output).with_form(Form::Masked {
                max_rows: most,
                rows: uneven(groups, most, 0),
            }),
        }
    }
}

/// Rows of each group: one full, one with the least, the others spread between, ragged
/// as a router leaves them. The same on every run.
fn uneven(groups: usize, most: usize, least: usize) -> Vec<usize> {
    (0..groups)
        .map(|group| match group {
            0 => most,
            1 => least,
            _ => least + slot(5, group as u64, 1 << 20) % (most - least + 1),
        })
        .collect()
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
            What::Gemm {
                subject,
                shape,
                output,
            } => {
                let (form, sizes) = shape_name(&shape.problem(*output));
                format!("{subject}/{form}/{sizes}/{}", output.name())
            }
        };
        format!("{case}/{}", self.cache.name())
    }

    /// Name of the kernel that is timed, for a profiler's filter; `None` where it is
    /// not ours.
    pub fn kernel(&self) -> Option<&'static str> {
        match &self.what {
            What::Stream { name, .. } => stream(name)?.kernel,
            What::Gemm {
                subject,
                shape,
                output,
            } => match (*subject, shape, output) {
                ("simt", ..) => Some("simtFp8Large"),
                ("mma", ..) => Some("mmaFp8Widened"),
                ("wgmma", Shape::Dense(..), OutputType::F32) => Some("wgmmaDenseF32"),
                ("wgmma", Shape::Dense(..), _) => Some("wgmmaDenseBf16"),
                ("wgmma", _, OutputType::F32) => Some("wgmmaF32"),
                ("wgmma", ..) => Some("wgmmaBf16"),
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
            What::Gemm {
                subject,
                shape,
                output,
            } => gemm(device, subject, shape.problem(*output), ptx),
        }
    }
}

fn gemm<'d>(
    device: &'d Device,
    subject: &str,
    problem: Problem,
    ptx: Option<&str>,
) -> Result<Built<'d>> {
    match subject {
        "simt" => {
            let simt = Simt::load(device)?;
            let tile = simt.tile(&problem);
            let config = Config {
                block_m: Some(tile.0),
                block_n: Some(tile.1),
                warps: Some(8),
                split: Some(1),
                ..Config::default()
            };
            whole(device, Box::new(simt), config, problem)
        }
        "mma" => {
            let mma = match Mma::load(device) {
                Ok(mma) => mma,
                Err(error @ DeviceError::PtxRejected { .. }) => {
                    return Ok(Built::Skipped(error.to_string()));
                }
                Err(error) => return Err(error.into()),
            };
            let variant = mma.variant(&problem);
            let config = Config {
                block_m: Some(variant.tile.0),
                block_n: Some(variant.tile.1),
                block_k: Some(variant.step),
                stages: Some(variant.stages),
                warps: Some(variant.warps),
                split: Some(1),
            };
            whole(device, Box::new(mma), config, problem)
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

/// A subject of ours that is launched for every run.
fn whole<'d>(
    device: &'d Device,
    subject: Box<dyn Subject>,
    config: Config,
    problem: Problem,
) -> Result<Built<'d>> {
    Ok(Built::Ready(Box::new(GemmWorkload::new(
        device,
        Timed::Whole(subject),
        config,
        problem,
    )?)))
}

/// Dense shapes of models in use.
const DENSE: [Shape; 7] = [
    Shape::Dense(4096, 7168, 16384),
    Shape::Dense(4096, 4096, 7168),
    Shape::Dense(4096, 24576, 1536),
    Shape::Dense(4096, 2112, 7168),
    Shape::Dense(4096, 7168, 2048),
    Shape::Dense(128, 4096, 7168),
    Shape::Dense(1, 7168, 16384),
];

/// Grouped shapes: training and prefill, then decoding, where weights are most of the
/// traffic.
const GROUPED: [Shape; 4] = [
    Shape::Contiguous {
        groups: 4,
        most: 8192,
        nk: (4096, 4096),
    },
    Shape::Contiguous {
        groups: 8,
        most: 1024,
        nk: (7168, 3072),
    },
    Shape::Masked {
        groups: 6,
        most: 1024,
        nk: (4096, 4096),
    },
    Shape::Masked {
        groups: 32,
        most: 192,
        nk: (6144, 7168),
    },
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
    let gemm = |subject, shape, output, cache| Case {
        what: What::Gemm {
            subject,
            shape,
            output,
        },
        cache,
    };
    for shape in DENSE.into_iter().chain(GROUPED) {
        cases.push(gemm("wgmma", shape, OutputType::Bf16, Cache::Cold));
    }
    cases.push(gemm("wgmma", DENSE[1], OutputType::Bf16, Cache::Warm));
    cases.push(gemm("wgmma", DENSE[1], OutputType::F32, Cache::Cold));
    for subject in ["cublaslt", "mma"] {
        for shape in [DENSE[0], DENSE[1]] {
            cases.push(gemm(subject, shape, OutputType::Bf16, Cache::Cold));
        }
    }
    for shape in [GROUPED[1], GROUPED[2]] {
        cases.push(gemm("mma", shape, OutputType::Bf16, Cache::Cold));
    }
    cases.push(gemm("simt", DENSE[1], OutputType::F32, Cache::Cold));
    cases
}

/// Cases small enough for the CPU driver.
pub fn small() -> Vec<Case> {
    let streams = [
        "vectorised-sum",
        "block-tree-sum",
        "square",
        "adjacent-difference",
        "window-sum",
    ];
    let streams = streams.map(|name| What::Stream {
        name,
        bytes: 4 << 20,
    });
    let gemms = ["simt", "mma"].map(|subject| What::Gemm {
        subject,
        shape: Shape::Dense(128, 128, 512),
        output: OutputType::F32,
    });
    let cache = Cache::Warm;
    let whats = streams.into_iter().chain(gemms);
    whats.map(|what| Case { what, cache }).collect()
}

/// Cases whose rates stand for what a device can do where no datasheet is known: what
/// multiplies with, and who; of several the fastest counts.
pub fn ceilings() -> Vec<(Unit, Case)> {
    let square = |subject, output| Case {
        what: What::Gemm {
            subject,
            shape: DENSE[1],
            output,
        },
        cache: Cache::Warm,
    };
    vec![
        (Unit::Fp8, square("cublaslt", OutputType::Bf16)),
        (Unit::Fp8, square("wgmma", OutputType::Bf16)),
        (Unit::Fp8, square("mma", OutputType::Bf16)),
        (Unit::Fp32, square("simt", OutputType::F32)),
    ]
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

    #[test]
    fn grouped_cases_are_uneven_and_leave_a_group_empty_where_masked() {
        for case in all() {
            let What::Gemm { shape, output, .. } = &case.what else {
                continue;
            };
            let problem = shape.problem(*output);
            problem.check().unwrap();
            let rows: Vec<usize> = problem.segments().iter().map(|s| s.rows).collect();
            match shape {
                Shape::Dense(..) => assert_eq!(rows.len(), 1),
                Shape::Contiguous { most, groups, .. } | Shape::Masked { most, groups, .. } => {
                    assert_eq!((rows.len(), rows[0]), (*groups, *most));
                    let odd = rows.iter().any(|rows| rows % 128 != 0);
                    assert!(odd, "{}: {rows:?}", case.id());
                }
            }
            if let Shape::Masked { .. } = shape {
                assert_eq!(rows[1], 0);
            }
        }
    }
}
