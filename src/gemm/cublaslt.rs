//! The subject `cublaslt`: NVIDIA's library, with tensor-wide or 128-wide block
//! scales; and `cublaslt-fast`, the same with fast accumulation.
//!
//! Constraints (read on an H200): k % 16, n % 8; block scales on Hopper only, and
//! there m % 8, so A and C are padded to it. 1-D scales are k-group-major; each row
//! of 2-D scales is padded to a multiple of four k-groups. 2-D × 2-D is refused.
//!
//! `cublaslt-fast` is a specimen: it claims the arithmetic of a promoted kernel and
//! does not promote, so same-sign inputs of large k must fail it.

use anyhow::{Context, Result, bail};

use super::bound::Accumulator;
use super::problem::Problem;
use super::scratch::Scratch;
use super::subject::{DeviceOperands, Group, Subject, Unsupported};
use crate::device::{
    Argument, Buffer, Device, Fp8Gemm, Launch, Lt, LtError, LtOutput, Module, ScaleMode,
};
use crate::kernels::GEMM_PACK;
use crate::lowp::{E4M3, Granularity, OutputType};

pub struct CublasLt {
    lt: Lt,
    pack: Module,
    fast: bool,
    /// Packed scales and padded rows. Launches come in order: the next product may
    /// have the memory of the last.
    scratch: Scratch,
}

/// A product that is ready to be enqueued.
pub struct ReadyCall {
    call: Fp8Gemm,
    /// What the call points to.
    _scales: [Buffer<f32>; 2],
}

/// Where packed scales go.
struct PackedScales {
    a: u64,
    b: u64,
}

impl CublasLt {
    /// # Errors
    /// [`LtError::Absent`] on a machine without the library.
    pub fn open(device: &Device, fast: bool) -> Result<CublasLt, LtError> {
        Ok(CublasLt {
            lt: Lt::open(device)?,
            pack: device.load(&GEMM_PACK)?,
            fast,
            scratch: Scratch::default(),
        })
    }

    fn is_block_scaled(problem: &Problem) -> bool {
        problem.a.granularity != Granularity::Tensor
    }

    /// A dense block-scaled product, all but the call itself, which is what a
    /// benchmark times. The operands must live until the last [`CublasLt::run`].
    pub fn prepare(
        &self,
        device: &Device,
        problem: &Problem,
        operands: &DeviceOperands,
    ) -> Result<ReadyCall> {
        let group = match operands.groups.as_slice() {
            [group] if CublasLt::is_block_scaled(problem) && group.rows.is_multiple_of(8) => group,
            _ => bail!("one group of block-scaled rows, a multiple of 8, can be prepared"),
        };
        let call = self.tensor_call(problem, operands, group);
        let (a, b) = packed_scales(problem, &call);
        let scales = [a, b].map(|(rows, cols)| usize::try_from(rows * cols));
        let [a, b] = scales;
        let scales = [device.uninitialised(a?)?, device.uninitialised(b?)?];
        let to = PackedScales {
            a: scales[0].address(),
            b: scales[1].address(),
        };
        Ok(ReadyCall {
            call: self.block_scaled(problem, &call, &to)?,
            _scales: scales,
        })
    }

    /// Enqueues a prepared product and waits for nothing.
    pub fn run(&self, device: &Device, ready: &ReadyCall) -> Result<()> {
        self.call(device, &ready.call)
    }

    /// The call with one scale a tensor.
    fn tensor_call(&self, problem: &Problem, operands: &DeviceOperands, group: &Group) -> Fp8Gemm {
        let size = problem.output.size() as u64;
        let ldd = problem.ldc() as u64;
        Fp8Gemm {
            m: group.rows,
            n: problem.n as u64,
            k: group.depth,
            ldd,
            a: operands.a + group.a,
            b: operands.b + group.b,
            d: operands.c + group.c * size,
            a_scale: (operands.a_scale + 4 * group.a_scale, ScaleMode::Tensor),
            b_scale: (operands.b_scale + 4 * group.b_scale, ScaleMode::Tensor),
            output: match problem.output {
                OutputType::F32 => LtOutput::F32,
                OutputType::F16 => LtOutput::F16,
                OutputType::Bf16 => LtOutput::Bf16,
            },
            accumulate: problem.accumulate,
            fast: self.fast,
        }
    }

    /// The same with block scales in the library's order and rows padded to 8.
    fn block_scaled(
        &self,
        problem: &Problem,
        call: &Fp8Gemm,
        to: &PackedScales,
    ) -> Result<Fp8Gemm> {
        let (a, b) = packed_scales(problem, call);
        let k_groups = call.k.div_ceil(128);
        let n_groups = problem.n.div_ceil(128) as u64;
        let of_a = (call.m, k_groups);
        pack_into(&self.pack, call.a_scale.0, of_a, to.a, a, true)?;
        let of_b = (n_groups, k_groups);
        pack_into(&self.pack, call.b_scale.0, of_b, to.b, b, false)?;
        Ok(Fp8Gemm {
            m: call.m.div_ceil(8) * 8,
            a_scale: (to.a, ScaleMode::Vector128),
            b_scale: (to.b, ScaleMode::Block128),
            ..*call
        })
    }

    fn one_group(
        &self,
        device: &Device,
        problem: &Problem,
        operands: &DeviceOperands,
        group: &Group,
    ) -> Result<()> {
        let size = problem.output.size() as u64;
        let ldd = problem.ldc() as u64;
        let call = self.tensor_call(problem, operands, group);
        if !CublasLt::is_block_scaled(problem) {
            return self.call(device, &call);
        }
        let take = |name, bytes| self.scratch.take(device, name, bytes);
        let ((a_rows, a_cols), (b_rows, b_cols)) = packed_scales(problem, &call);
        let to = PackedScales {
            a: take("A's scales", 4 * a_rows * a_cols)?,
            b: take("B's scales", 4 * b_rows * b_cols)?,
        };
        let mut padded = self.block_scaled(problem, &call, &to)?;
        let m = padded.m;
        if m == group.rows {
            return self.call(device, &padded);
        }
        let (a_bytes, d_bytes) = (group.depth, ldd * size);
        (padded.a, padded.d) = (take("A", m * a_bytes)?, take("C", m * d_bytes)?);
        pad_into(
            &self.pack,
            call.a,
            group.rows * a_bytes,
            padded.a,
            m * a_bytes,
        )?;
        pad_into(
            &self.pack,
            call.d,
            group.rows * d_bytes,
            padded.d,
            m * d_bytes,
        )?;
        self.call(device, &padded)?;
        // Back with the padding between rows: it must stay as it was, and was copied
        // along with the rest.
        let bytes = group.rows * d_bytes;
        pad_into(&self.pack, padded.d, bytes, call.d, bytes)
    }

    fn call(&self, device: &Device, call: &Fp8Gemm) -> Result<()> {
        match self.lt.gemm(device, call) {
            Err(LtError::Unsupported(what)) => {
                Err(Unsupported(format!("cuBLASLt has no algorithm for {what}")).into())
            }
            other => other.context("while calling cuBLASLt"),
        }
    }
}

fn blocks(threads: u64) -> Result<Launch> {
    Ok(Launch::linear(u32::try_from(threads.div_ceil(256))?, 256))
}

/// Rows and columns of the scales of A and of B as the library wants them: A's
/// k-group-major with m padded to 8, B's rows padded to a multiple of four k-groups.
fn packed_scales(problem: &Problem, call: &Fp8Gemm) -> ((u64, u64), (u64, u64)) {
    let k_groups = call.k.div_ceil(128);
    (
        (k_groups, call.m.div_ceil(8) * 8),
        (problem.n.div_ceil(128) as u64, k_groups.div_ceil(4) * 4),
    )
}

/// Copies rows × cols scales at `from` into a padded matrix at `to`, transposed or not.
pub fn pack_into(
    pack: &Module,
    from: u64,
    (rows, cols): (u64, u64),
    to: u64,
    (to_rows, to_cols): (u64, u64),
    transposed: bool,
) -> Result<()> {
    let word = |x: u64| u32::try_from(x).context("too many scales");
    let sizes = [word(rows)?, word(cols)?, word(to_rows)?, word(to_cols)?];
    let transposed = u32::from(transposed);
    let arguments: [&dyn Argument; 7] = [
        &from,
        &to,
        &sizes[0],
        &sizes[1],
        &sizes[2],
        &sizes[3],
        &transposed,
    ];
    pack.kernel("packScales")?
        .launch(blocks(to_rows * to_cols)?, &arguments)?;
    Ok(())
}

/// Copies `bytes` bytes at `from` to `to`, and zeros after them up to `total`.
pub fn pad_into(pack: &Module, from: u64, bytes: u64, to: u64, total: u64) -> Result<()> {
    let arguments: [&dyn Argument; 4] = [&from, &to, &bytes, &total];
    pack.kernel("padBytes")?
        .launch(blocks(total)?, &arguments)?;
    Ok(())
}

impl Subject for CublasLt {
    fn name(&self) -> &str {
        if self.fast {
            "cublaslt-fast"
        } else {
            "cublaslt"
        }
    }

    fn refusal(&self, problem: &Problem) -> Option<String> {
        let no = |why: &str| Some(format!("cuBLASLt: {why}"));
        if problem.a.format != E4M3 || problem.b.format != E4M3 {
            return no("E4M3 x E4M3 only here");
        }
        match (problem.a.granularity, problem.b.granularity) {
            (Granularity::Tensor, Granularity::Tensor) => {}
            (Granularity::PerToken(128), Granularity::PerBlock(128)) if !self.fast => {}
            (Granularity::PerToken(128), Granularity::PerBlock(128)) => {
                return no("block-scaled sums are always promoted");
            }
            (a, b) => return Some(format!("cuBLASLt has no scales {a} by {b}")),
        }
        if !problem.n.is_multiple_of(8) || !problem.ldc().is_multiple_of(8) {
            return no("n and the row stride must be multiples of 8");
        }
        if problem.segments().iter().any(|s| s.depth % 16 != 0) {
            return no("k must be a multiple of 16");
        }
        if problem.segments().iter().any(|s| s.depth == 0) {
            return no("a group without depth");
        }
        None
    }

    fn accumulator(&self, _problem: &Problem) -> Accumulator {
        Accumulator::PromotedThenRounded { promote: 128 }
    }

    fn tile(&self, _problem: &Problem) -> (usize, usize) {
        (128, 128)
    }

    fn launch(&self, device: &Device, problem: &Problem, operands: &DeviceOperands) -> Result<()> {
        let groups = operands.groups.iter().filter(|group| group.rows > 0);
        groups
            .into_iter()
            .try_for_each(|group| self.one_group(device, problem, operands, group))
    }
}
