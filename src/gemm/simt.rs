//! The subjects `simt` and `mma`: our kernels from `kernels/gemm_simt.cu` and
//! `kernels/gemm_mma.cu`.

use anyhow::{Context, Result};

use super::bound::Accumulator;
use super::problem::Problem;
use super::subject::{DeviceOperands, Subject};
use crate::device::{Argument, Device, DeviceError, Kernel, Launch, Module};
use crate::kernels::{GEMM_MMA, GEMM_SIMT};
use crate::lowp::{E2M1, E4M3, Granularity, OutputType, Recipe};

/// log2 of a recipe's group along (rows, k); 31 where one scale serves all.
/// `None` for groups the kernels do not read.
pub fn shifts(recipe: &Recipe) -> Option<(u32, u32)> {
    match recipe.granularity {
        Granularity::PerToken(g) => Some((0, g.ilog2())),
        Granularity::PerBlock(g) => Some((g.ilog2(), g.ilog2())),
        Granularity::Tensor => Some((31, 31)),
        Granularity::PerChannel(_) => None,
    }
}

/// Launches a kernel of the contract in `gemm_simt.cuh`.
pub fn launch_contract(
    kernel: &Kernel<'_>,
    tile: (usize, usize),
    threads: u32,
    problem: &Problem,
    operands: &DeviceOperands,
    severity: f32,
) -> Result<()> {
    let unread = "the recipe was refused before the launch";
    let (a_shift_m, a_shift_k) = shifts(&problem.a).context(unread)?;
    let (b_shift_n, b_shift_k) = shifts(&problem.b).context(unread)?;
    // Masked kernels get blocks for every row that a group owns: the ones past its
    // count must leave by themselves.
    let rows = operands
        .groups
        .iter()
        .map(|g| g.allocated.max(g.rows))
        .max()
        .unwrap_or(0);
    if rows == 0 {
        return Ok(());
    }
    let blocks = |extent: u64, tile: usize| u32::try_from(extent.div_ceil(tile as u64));
    let launch = Launch {
        grid: (
            blocks(problem.n as u64, tile.1).context("n has too many tiles")?,
            blocks(rows, tile.0).context("m has too many tiles")?,
            u32::try_from(operands.groups.len()).context("too many groups")?,
        ),
        block: (threads, 1, 1),
        shared_bytes: 0,
    };
    let output: u32 = match problem.output {
        OutputType::F32 => 0,
        OutputType::F16 => 1,
        OutputType::Bf16 => 2,
    };
    let (n, ldc) = (u32::try_from(problem.n)?, u32::try_from(problem.ldc())?);
    let accumulate = u32::from(problem.accumulate);
    let arguments: [&dyn Argument; 15] = [
        &operands.a,
        &operands.b,
        &operands.a_scale,
        &operands.b_scale,
        &operands.c,
        &operands.table,
        &n,
        &ldc,
        &a_shift_k,
        &b_shift_k,
        &b_shift_n,
        &a_shift_m,
        &output,
        &accumulate,
        &severity,
    ];
    kernel.launch(launch, &arguments)?;
    Ok(())
}

fn scales_are_read(problem: &Problem) -> Option<String> {
    [("a", &problem.a), ("b", &problem.b)]
        .into_iter()
        .find(|(_, recipe)| shifts(recipe).is_none())
        .map(|(name, recipe)| format!("{name} is scaled {}: not along k", recipe.granularity))
}

/// The portable kernel: FP8 × FP8 and FP8 × FP4, any size, sm_75 and up.
pub struct Simt {
    module: Module,
}

impl Simt {
    pub fn load(device: &Device) -> Result<Simt, DeviceError> {
        Ok(Simt {
            module: device.load(&GEMM_SIMT)?,
        })
    }
}

/// The 128 × 128 tile pays off when it is mostly full and there is enough work.
fn is_large(problem: &Problem) -> bool {
    let rows = problem.segments().iter().map(|s| s.rows).max().unwrap_or(0);
    rows >= 96 && problem.n >= 96 && problem.work() >= 1 << 20
}

impl Subject for Simt {
    fn name(&self) -> &str {
        "simt"
    }

    fn refusal(&self, problem: &Problem) -> Option<String> {
        if problem.a.format != E4M3 || ![E4M3, E2M1].contains(&problem.b.format) {
            return Some("simt reads E4M3 x E4M3 and E4M3 x E2M1".to_owned());
        }
        scales_are_read(problem)
    }

    fn accumulator(&self, _problem: &Problem) -> Accumulator {
        Accumulator::Fp32
    }

    fn tile(&self, problem: &Problem) -> (usize, usize) {
        if is_large(problem) {
            (128, 128)
        } else {
            (32, 32)
        }
    }

    fn launch(&self, _: &Device, problem: &Problem, operands: &DeviceOperands) -> Result<()> {
        let (name, threads) = match (problem.b.format == E2M1, is_large(problem)) {
            (false, false) => ("simtFp8Small", 64),
            (false, true) => ("simtFp8Large", 256),
            (true, false) => ("simtFp4Small", 64),
            (true, true) => ("simtFp4Large", 256),
        };
        let kernel = self.module.kernel(name)?;
        launch_contract(&kernel, self.tile(problem), threads, problem, operands, 0.0)
    }
}

/// The tensor-core kernel through `mma.sync`: FP8 × FP8, k a multiple of 16.
pub struct Mma {
    module: Module,
}

impl Mma {
    /// # Errors
    /// [`DeviceError::PtxRejected`] on a device below sm_89.
    pub fn load(device: &Device) -> Result<Mma, DeviceError> {
        Ok(Mma {
            module: device.load(&GEMM_MMA)?,
        })
    }
}

impl Subject for Mma {
    fn name(&self) -> &str {
        "mma"
    }

    fn refusal(&self, problem: &Problem) -> Option<String> {
        if problem.a.format != E4M3 || problem.b.format != E4M3 {
            return Some("mma reads E4M3 x E4M3".to_owned());
        }
        for recipe in [&problem.a, &problem.b] {
            if shifts(recipe).is_some_and(|(_, k)| k < 5) {
                return Some("mma multiplies 32 of k at once: groups of 16 do not fit".to_owned());
            }
        }
        if let Some(s) = problem.segments().iter().find(|s| s.depth % 16 != 0) {
            return Some(format!(
                "mma copies 16 bytes at a time: k = {} is no multiple",
                s.depth
            ));
        }
        scales_are_read(problem)
    }

    /// On sm_90 this instruction unpacks to FP16 and accumulates in FP32.
    fn accumulator(&self, _problem: &Problem) -> Accumulator {
        Accumulator::Fp32
    }

    fn tile(&self, problem: &Problem) -> (usize, usize) {
        if is_large(problem) {
            (128, 128)
        } else {
            (64, 64)
        }
    }

    fn launch(&self, _: &Device, problem: &Problem, operands: &DeviceOperands) -> Result<()> {
        let (name, threads) = match is_large(problem) {
            true => ("mmaFp8Large", 256),
            false => ("mmaFp8", 128),
        };
        let kernel = self.module.kernel(name)?;
        launch_contract(&kernel, self.tile(problem), threads, problem, operands, 0.0)
    }
}
