//! The subject `wgmma`: Hopper's tensor cores, `kernels/gemm_wgmma.cu`.
//!
//! Dense, m-grouped contiguous and masked; E4M3 × E4M3 with one scale for 128 of k
//! or coarser; FP32 and BF16 results. A launch of the kernel needs descriptors of
//! A and B and scales in the kernel's own order: [`Wgmma::prepare`] makes them,
//! [`Wgmma::run`] is the kernel alone, which is what a benchmark times (the vendor's
//! and DeepGEMM's kernels take prepared scales as well).

use std::cell::RefCell;

use anyhow::{Context, Result, ensure};

use super::bound::Accumulator;
use super::problem::{Form, Problem};
use super::subject::{DeviceOperands, Subject};
use crate::device::choice::Driver;
use crate::device::{Buffer, Device, DeviceError, Launch, Module, TensorMap};
use crate::kernels::GEMM_WGMMA;
use crate::lowp::{E4M3, Granularity, OutputType, Recipe};

/// Tile of C that one block computes, and k between two promotions.
pub const TILE: (usize, usize) = (256, 128);
pub const PROMOTE: usize = 128;
/// Bulk copies in flight.
pub const STAGES: usize = 3;
/// Warps of a block: four fetch (one thread does), eight multiply.
pub const WARPS: usize = 12;
const THREADS: u32 = 384;
/// Rows of a bulk copy.
const BOX_ROWS: u32 = 128;
/// `kSharedBytes` of the kernel, which asserts the same number.
const SHARED_BYTES: u32 = 152_576;
/// log2 of a group that covers everything.
const WHOLE: i32 = 31;

/// What a launch needs beyond the operands.
struct Prepared {
    maps: (TensorMap, TensorMap),
    scales: (Buffer<f32>, Buffer<f32>),
    tiles: Buffer<u32>,
    c: u64,
    kernel: String,
    /// rows of the only group, groups, n, ldc, blocks along k, stride of A's scales
    numbers: [i32; 6],
}

/// Our Hopper kernel.
pub struct Wgmma {
    module: Module,
    promoted: bool,
    blocks: u32,
    prepared: RefCell<Option<Prepared>>,
}

impl Wgmma {
    /// Why this device cannot run it; `None` when it can.
    pub fn unavailable(device: &Device) -> Option<String> {
        let info = device.info();
        if info.driver == Driver::Cpu {
            return Some("wgmma needs a Hopper GPU; the CPU driver does not execute it".to_owned());
        }
        let (major, minor) = info.compute_capability;
        ((major, minor) != (9, 0)).then(|| {
            format!(
                "wgmma exists on sm_90a only; {} is sm_{major}{minor}",
                info.name
            )
        })
    }

    /// # Errors
    /// [`DeviceError::PtxRejected`] on anything but Hopper.
    pub fn load(device: &Device) -> Result<Wgmma, DeviceError> {
        Wgmma::load_variant(device, GEMM_WGMMA.ptx, true)
    }

    /// Another build of the kernel file.
    pub fn load_ptx(device: &Device, ptx: &str) -> Result<Wgmma, DeviceError> {
        Wgmma::load_variant(device, ptx, true)
    }

    /// The planted fault: one truncating sum over all of k, for recipes with one
    /// scale a tensor.
    pub fn load_unpromoted(device: &Device) -> Result<Wgmma, DeviceError> {
        Wgmma::load_variant(device, GEMM_WGMMA.ptx, false)
    }

    fn load_variant(device: &Device, ptx: &str, promoted: bool) -> Result<Wgmma, DeviceError> {
        Ok(Wgmma {
            module: device.load_ptx(GEMM_WGMMA.name, ptx)?,
            promoted,
            // Clusters of two, one block a multiprocessor.
            blocks: (device.hardware()?.multiprocessors / 2 * 2).max(2),
            prepared: RefCell::new(None),
        })
    }

    /// Makes descriptors and reorders the scales; waits for nothing. The operands
    /// must live until the last [`Wgmma::run`].
    pub fn prepare(
        &self,
        device: &Device,
        problem: &Problem,
        operands: &DeviceOperands,
    ) -> Result<()> {
        if let Some(reason) = self.refusal(problem) {
            anyhow::bail!("{reason}");
        }
        let depth = problem.k;
        let blocks_k = depth.div_ceil(PROMOTE);
        let blocks_n = problem.n.div_ceil(TILE.1);
        let groups = &operands.groups;
        let rows: u64 = groups.iter().map(|g| g.allocated.max(g.rows)).sum();
        // The maps begin where the first group does: it need not be the operands' first.
        let first = *groups.first().context("a problem has at least one group")?;
        for (index, group) in groups.iter().enumerate() {
            ensure!(
                group.a >= first.a && group.b == first.b + (index * problem.n * depth) as u64,
                "the groups of B must lie one after the other, those of A in order"
            );
        }
        let mut words = Vec::with_capacity(groups.len() * 6);
        let mut scale_row = 0u64;
        for group in groups {
            let numbers = [group.rows, (group.a - first.a) / depth as u64, scale_row];
            for number in numbers {
                words.push(u32::try_from(number).context("more rows than 32 bits count")?);
            }
            words.push(0);
            words.extend([group.c as u32, (group.c >> 32) as u32]);
            scale_row += group.rows.next_multiple_of(4);
        }
        let stride = usize::try_from(scale_row)?.max(4);
        let dense = self.promoted && groups.len() == 1;
        let size = problem.output.size() as u64;
        let prepared = Prepared {
            maps: (
                device.tensor_map(operands.a + first.a, rows, depth as u64, BOX_ROWS)?,
                device.tensor_map(
                    operands.b + first.b,
                    (groups.len() * problem.n) as u64,
                    depth as u64,
                    BOX_ROWS,
                )?,
            ),
            scales: (
                device.poisoned(blocks_k * stride)?,
                device.poisoned(groups.len() * blocks_n * blocks_k)?,
            ),
            tiles: device.upload(&words)?,
            // The dense kernels start at the first element, the others read where.
            c: operands.c + if dense { first.c * size } else { 0 },
            kernel: self.kernel_name(problem.output, dense),
            numbers: [
                i32::try_from(if dense { first.rows } else { 0 })?,
                i32::try_from(groups.len())?,
                i32::try_from(problem.n)?,
                i32::try_from(problem.ldc())?,
                i32::try_from(blocks_k)?,
                i32::try_from(stride)?,
            ],
        };
        self.spread_scales(problem, operands, &prepared)?;
        *self.prepared.borrow_mut() = Some(prepared);
        Ok(())
    }

    fn spread_scales(
        &self,
        problem: &Problem,
        operands: &DeviceOperands,
        prepared: &Prepared,
    ) -> Result<()> {
        let (of_a, of_b) = (
            self.module.kernel("spreadScalesA")?,
            self.module.kernel("spreadScalesB")?,
        );
        let [_, _, _, _, blocks_k, stride] = prepared.numbers;
        let blocks_n = i32::try_from(problem.n.div_ceil(TILE.1))?;
        let (a_rows, a_k) = shifts(&problem.a).context("the recipe of A was refused")?;
        let (b_rows, b_k) = shifts(&problem.b).context("the recipe of B was refused")?;
        let columns = |shift: i32| if shift == WHOLE { 1 } else { blocks_k };
        let grid = |rows: i32| Launch {
            grid: (
                rows.unsigned_abs().div_ceil(128),
                blocks_k.unsigned_abs(),
                1,
            ),
            block: (128, 1, 1),
            shared_bytes: 0,
        };
        let (mut to_a, mut to_b) = (prepared.scales.0.address(), prepared.scales.1.address());
        for group in &operands.groups {
            let rows = i32::try_from(group.rows)?;
            let padded = (rows + 3) / 4 * 4;
            if rows > 0 {
                let from = operands.a_scale + 4 * group.a_scale;
                of_a.launch(
                    grid(padded),
                    &[
                        &from,
                        &to_a,
                        &rows,
                        &padded,
                        &stride,
                        &columns(a_k),
                        &a_rows,
                        &a_k,
                    ],
                )?;
            }
            let from = operands.b_scale + 4 * group.b_scale;
            of_b.launch(
                grid(blocks_n),
                &[
                    &from,
                    &to_b,
                    &blocks_n,
                    &blocks_k,
                    &columns(b_k),
                    &b_rows,
                    &b_k,
                ],
            )?;
            to_a += 4 * padded.unsigned_abs() as u64;
            to_b += 4 * (blocks_n * blocks_k).unsigned_abs() as u64;
        }
        Ok(())
    }

    fn kernel_name(&self, output: OutputType, dense: bool) -> String {
        let variant = match (self.promoted, dense) {
            (false, _) => "Unpromoted",
            (true, true) => "Dense",
            (true, false) => "",
        };
        let output = match output {
            OutputType::F32 => "F32",
            _ => "Bf16",
        };
        format!("wgmma{variant}{output}")
    }

    /// The kernel alone, on what [`Wgmma::prepare`] was given last.
    pub fn run(&self) -> Result<()> {
        let prepared = self.prepared.borrow();
        let p = prepared.as_ref().context("run before prepare")?;
        let kernel = self.module.kernel(&p.kernel)?;
        kernel.allow_shared_bytes(SHARED_BYTES)?;
        let launch = Launch {
            grid: (self.blocks, 1, 1),
            block: (THREADS, 1, 1),
            shared_bytes: SHARED_BYTES,
        };
        let [rows, groups, n, ldc, blocks_k, stride] = &p.numbers;
        kernel.launch(
            launch,
            &[
                &p.maps.0,
                &p.maps.1,
                &p.scales.0,
                &p.scales.1,
                &p.c,
                &p.tiles,
                rows,
                groups,
                n,
                ldc,
                blocks_k,
                stride,
            ],
        )?;
        Ok(())
    }
}

/// log2 of a recipe's group along (rows, k), as the kernel reads them: 128 of k or
/// everything.
fn shifts(recipe: &Recipe) -> Option<(i32, i32)> {
    match recipe.granularity {
        Granularity::PerToken(PROMOTE) => Some((0, 7)),
        Granularity::PerBlock(PROMOTE) => Some((7, 7)),
        Granularity::Tensor => Some((WHOLE, WHOLE)),
        _ => None,
    }
}

impl Subject for Wgmma {
    fn name(&self) -> &str {
        if self.promoted {
            "wgmma"
        } else {
            "wgmma-unpromoted"
        }
    }

    fn refusal(&self, problem: &Problem) -> Option<String> {
        let refuse = |reason: &str| Some(format!("{} {reason}", self.name()));
        if problem.a.format != E4M3 || problem.b.format != E4M3 {
            return refuse("reads E4M3 x E4M3");
        }
        if matches!(problem.form, Form::KGrouped { .. }) {
            return refuse("does dense, contiguous and masked forms");
        }
        if problem.accumulate {
            return refuse("stores C and does not add to it");
        }
        if problem.output == OutputType::F16 {
            return refuse("writes FP32 and BF16");
        }
        if !problem.k.is_multiple_of(16) {
            return Some(format!(
                "{}: a bulk copy needs rows of whole 16 bytes, k = {} is no multiple; \
                 pad k with zeros",
                self.name(),
                problem.k
            ));
        }
        if shifts(&problem.a).is_none() || shifts(&problem.b).is_none() {
            return refuse("reads scales 1x128 or 128x128 or one a tensor");
        }
        // One column of B's scales serves 128 columns of a tile.
        if matches!(problem.b.granularity, Granularity::PerToken(_)) {
            return refuse("reads B's scales 128x128 or one a tensor");
        }
        let whole = |recipe: &Recipe| matches!(recipe.granularity, Granularity::Tensor);
        let once = whole(&problem.a) && whole(&problem.b);
        if !(self.promoted || once) {
            return refuse("applies one scale a tensor");
        }
        None
    }

    fn accumulator(&self, _problem: &Problem) -> Accumulator {
        // The variant without promotion claims what it should do, so that the gate
        // can turn it away.
        Accumulator::TruncatingPromoted { promote: PROMOTE }
    }

    fn tile(&self, _problem: &Problem) -> (usize, usize) {
        TILE
    }

    fn launch(&self, device: &Device, problem: &Problem, operands: &DeviceOperands) -> Result<()> {
        self.prepare(device, problem, operands)?;
        self.run()
    }
}
