//! The subject `simt`: our portable kernel from `kernels/gemm_simt.cu`, and the launch
//! that the kernels of its contract share.

use anyhow::{Context, Result};

use super::bound::Accumulator;
use super::problem::Problem;
use super::subject::{DeviceOperands, Subject};
use crate::device::{Argument, Device, DeviceError, Kernel, Launch, Module};
use crate::kernels::GEMM_SIMT;
use crate::lowp::{E2M1, E4M3, Granularity, OutputType, Recipe};

/// log2 of a recipe's group along (rows, k); 31 where one scale serves all.
/// `None` for groups the kernels do not read.
pub fn shifts(recipe: &Recipe) -> Option<(u32, u32)> {
    recipe.granularity.check().ok()?;
    match recipe.granularity {
        Granularity::PerToken(g) => Some((0, g.ilog2())),
        Granularity::PerBlock(g) => Some((g.ilog2(), g.ilog2())),
        Granularity::Tensor => Some((31, 31)),
        Granularity::PerChannel(_) => None,
    }
}

/// What a block of a kernel of the contract needs.
#[derive(Debug, Clone, Copy)]
pub struct Block {
    /// Rows and columns of C.
    pub tile: (usize, usize),
    pub threads: u32,
    /// Dynamic shared memory in bytes.
    pub shared_bytes: u32,
}

/// Launches a kernel of the contract in `gemm_simt.cuh`.
pub fn launch_contract(
    kernel: &Kernel<'_>,
    block: Block,
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
            blocks(problem.n as u64, block.tile.1).context("n has too many tiles")?,
            blocks(rows, block.tile.0).context("m has too many tiles")?,
            u32::try_from(operands.groups.len()).context("too many groups")?,
        ),
        block: (block.threads, 1, 1),
        shared_bytes: block.shared_bytes,
    };
    if block.shared_bytes > 48 << 10 {
        kernel.allow_shared_bytes(block.shared_bytes)?;
    }
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

/// Why a kernel of the contract cannot read a problem's scales.
pub fn unread_scales(problem: &Problem) -> Option<String> {
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
pub fn is_large(problem: &Problem) -> bool {
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
        unread_scales(problem)
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
        let block = Block {
            tile: self.tile(problem),
            threads,
            shared_bytes: 0,
        };
        launch_contract(&kernel, block, problem, operands, 0.0)
    }
}
