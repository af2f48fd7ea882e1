//! Cases too large for the host: operands made and quantised on the device, C
//! checked there at sampled strength, by `kernels/gemm_reference.cu`.
//!
//! Same generator, recipes, signs and places as the host's: a case means the same
//! wherever it is made. Memory: the operands, C, 8 · k · n/128 bytes for the signed
//! columns and 24 · m · n/128 for the windows; nothing unquantised is stored.

mod check;
mod device_matrix;
#[cfg(test)]
mod tests;

use std::time::Instant;

use anyhow::{Context, Result};

use self::check::CheckedGroup;
use self::device_matrix::{DeviceMatrix, Maker};
use super::bound::{Accumulator, Arithmetic};
use super::case::Case;
use super::check::{Outcome, broken};
use super::gate::{Check, Finding, Judgement};
use super::inputs::{Stream, mixed_seed};
use super::operands::{c_unit, group_seed};
use super::problem::{Problem, Segment};
use super::runner::GUARD;
use super::simt::shifts;
use super::subject::{DeviceOperands, Group, Subject};
use crate::device::{Argument, Buffer, Device, DeviceError, Launch, Module};
use crate::kernels::GEMM_REFERENCE;
use crate::lowp::OutputType;

const GUARD_WORD: u32 = 0xa5a5_a5a5;
const NAN_CODES: u32 = 0x7f7f_7f7f;
const NAN_SCALE: u32 = 0x7fc0_0000;

/// The harness's kernels, loaded.
pub struct Workshop {
    module: Module,
}

impl Workshop {
    pub fn load(device: &Device) -> Result<Workshop, DeviceError> {
        Ok(Workshop {
            module: device.load(&GEMM_REFERENCE)?,
        })
    }

    fn launch(&self, kernel: &str, launch: Launch, arguments: &[&dyn Argument]) -> Result<()> {
        self.module
            .kernel(kernel)?
            .launch(launch, arguments)
            .with_context(|| format!("while launching the harness's {kernel}"))
    }

    /// One thread an element.
    fn linear(&self, kernel: &str, threads: u64, arguments: &[&dyn Argument]) -> Result<()> {
        if threads == 0 {
            return Ok(());
        }
        let blocks = u32::try_from(threads.div_ceil(256)).context("too many elements")?;
        self.launch(kernel, Launch::linear(blocks, 256), arguments)
    }

    fn fill(&self, to: u64, pattern: u32, bytes: u64) -> Result<()> {
        let words = bytes / 4;
        self.linear("fillWords", words, &[&to, &pattern, &words])
    }

    fn digest(&self, device: &Device, from: u64, bytes: u64) -> Result<u64> {
        let sum = device.upload(&[0u64])?;
        let words = bytes / 4;
        if words > 0 {
            let blocks = u32::try_from(words.div_ceil(256).min(4096))?;
            self.launch(
                "digest",
                Launch::linear(blocks, 256),
                &[&from, &words, &sum],
            )?;
        }
        Ok(sum.download()?[0])
    }
}

/// Bytes between guard bands, a multiple of four.
struct Region {
    name: &'static str,
    buffer: Buffer<u8>,
    bytes: u64,
}

impl Region {
    fn new(device: &Device, shop: &Workshop, name: &'static str, bytes: u64) -> Result<Region> {
        // Kernels here work in words: up to three bytes past an odd end count as data.
        let bytes = bytes.div_ceil(4).max(1) * 4;
        let whole = usize::try_from(bytes)? + 2 * GUARD;
        let region = Region {
            name,
            buffer: device.uninitialised(whole)?,
            bytes,
        };
        shop.fill(region.buffer.address(), GUARD_WORD, whole as u64)?;
        Ok(region)
    }

    fn address(&self) -> u64 {
        self.buffer.address() + GUARD as u64
    }

    fn broken(&self) -> Result<Option<Finding>> {
        let end = GUARD + usize::try_from(self.bytes)?;
        let guard = GUARD_WORD.to_le_bytes()[0];
        for (range, side) in [(0..GUARD, "before"), (end..end + GUARD, "after")] {
            let band = self.buffer.download_range(range)?;
            if let Some(at) = band.iter().position(|&byte| byte != guard) {
                return Ok(Some(Finding::sentence(
                    Check::Guards,
                    format!(
                        "the guard band {side} {} was overwritten at byte {at}",
                        self.name
                    ),
                )));
            }
        }
        Ok(None)
    }
}

/// All operands of a case on the device.
struct Large {
    regions: [Region; 5],
    c: Region,
    groups: Vec<Group>,
    matrices: Vec<(DeviceMatrix, DeviceMatrix)>,
}

impl Large {
    fn make(device: &Device, shop: &Workshop, case: &Case) -> Result<Large> {
        let problem = &case.problem;
        let layout = layout(problem);
        let region = |name, bytes| Region::new(device, shop, name, bytes);
        let regions = [
            region("A", layout.a)?,
            region("B", layout.b)?,
            region("A's scales", layout.a_scale * 4)?,
            region("B's scales", layout.b_scale * 4)?,
            region("the group table", layout.groups.len() as u64 * 64)?,
        ];
        let c = region("C", layout.c * problem.output.size() as u64)?;
        // Rows that masking leaves over are NaN in codes and scales.
        shop.fill(regions[0].address(), NAN_CODES, regions[0].bytes)?;
        shop.fill(regions[2].address(), NAN_SCALE, regions[2].bytes)?;
        let mut large = Large {
            regions,
            c,
            groups: layout.groups,
            matrices: Vec::new(),
        };
        let words: Vec<u8> = large
            .groups
            .iter()
            .flat_map(Group::words)
            .flat_map(u64::to_le_bytes)
            .collect();
        large.regions[4].buffer.upload_range(GUARD, &words)?;
        let maker = Maker::new(device, shop, case)?;
        for (index, (segment, group)) in problem.segments().iter().zip(&large.groups).enumerate() {
            let seed = group_seed(case.seed, index);
            let [a, b, a_scale, b_scale, _] = &large.regions;
            let a_at = (a.address() + group.a, a_scale.address() + 4 * group.a_scale);
            let b_at = (b.address() + group.b, b_scale.address() + 4 * group.b_scale);
            let (rows, n, k) = (segment.rows as u64, problem.n as u64, segment.depth as u64);
            large.matrices.push((
                maker.make(
                    &problem.a,
                    (seed, Stream::A, Stream::AScale),
                    (rows, k),
                    a_at,
                )?,
                maker.make(&problem.b, (seed, Stream::B, Stream::BScale), (n, k), b_at)?,
            ));
        }
        device.synchronize()?;
        Ok(large)
    }

    fn operands(&self) -> DeviceOperands {
        let [a, b, a_scale, b_scale, table] = &self.regions;
        DeviceOperands {
            a: a.address(),
            b: b.address(),
            a_scale: a_scale.address(),
            b_scale: b_scale.address(),
            c: self.c.address(),
            table: table.address(),
            groups: self.groups.clone(),
        }
    }

    /// C as it is before a run.
    fn reset(&self, shop: &Workshop, case: &Case) -> Result<()> {
        let problem = &case.problem;
        let poison = problem.output.poison();
        let pattern: Vec<u8> = poison.iter().cycle().take(4).copied().collect();
        let pattern = u32::from_le_bytes([pattern[0], pattern[1], pattern[2], pattern[3]]);
        shop.fill(self.c.address(), pattern, self.c.bytes)?;
        if !problem.accumulate {
            return Ok(());
        }
        let (kind, n, ldc) = (
            output_word(problem.output),
            problem.n as u64,
            problem.ldc() as u64,
        );
        for (index, group) in self.groups.iter().enumerate() {
            let to = self.c.address() + group.c * problem.output.size() as u64;
            let seed = mixed_seed(group_seed(case.seed, index), Stream::C);
            let unit = f64::from(c_unit(case.input));
            let arguments: [&dyn Argument; 7] = [&to, &kind, &n, &ldc, &group.rows, &seed, &unit];
            shop.linear("fillC", group.rows * n, &arguments)?;
        }
        Ok(())
    }

    fn digests(&self, device: &Device, shop: &Workshop) -> Result<Vec<u64>> {
        self.regions
            .iter()
            .map(|region| shop.digest(device, region.address(), region.bytes))
            .collect()
    }
}

fn output_word(output: OutputType) -> u32 {
    match output {
        OutputType::F32 => 0,
        OutputType::F16 => 1,
        OutputType::Bf16 => 2,
    }
}

/// Sizes in bytes (codes) and elements (scales, C), and the group table.
struct Layout {
    a: u64,
    b: u64,
    a_scale: u64,
    b_scale: u64,
    c: u64,
    groups: Vec<Group>,
}

fn layout(problem: &Problem) -> Layout {
    let mut layout = Layout {
        a: 0,
        b: 0,
        a_scale: 0,
        b_scale: 0,
        c: 0,
        groups: Vec::new(),
    };
    let scales = |recipe, rows: u64, cols: u64| {
        let (row, col) = shifts(recipe).unwrap_or((0, 0));
        rows.div_ceil(1 << row) * cols.div_ceil(1 << col)
    };
    for Segment {
        rows,
        allocated,
        depth,
    } in problem.segments()
    {
        let (rows, allocated, depth) = (rows as u64, allocated as u64, depth as u64);
        let n = problem.n as u64;
        layout.groups.push(Group {
            a: layout.a,
            b: layout.b,
            a_scale: layout.a_scale,
            b_scale: layout.b_scale,
            c: layout.c,
            rows,
            depth,
            allocated,
        });
        layout.a += allocated * depth;
        layout.b += n * if problem.b.format.bits == 4 {
            depth.div_ceil(2)
        } else {
            depth
        };
        layout.a_scale += scales(&problem.a, allocated, depth);
        layout.b_scale += scales(&problem.b, n, depth);
        layout.c += allocated * problem.ldc() as u64;
    }
    layout
}

/// The operands of `case` as the device makes them, in the order of
/// [`super::runner::images`] (which may be up to three bytes shorter each).
///
/// # Errors
/// Those of the device.
pub fn images(device: &Device, shop: &Workshop, case: &Case) -> Result<[Vec<u8>; 5]> {
    let large = Large::make(device, shop, case)?;
    let get = |i: usize| {
        let end = GUARD + usize::try_from(large.regions[i].bytes)?;
        anyhow::Ok(large.regions[i].buffer.download_range(GUARD..end)?)
    };
    Ok([get(0)?, get(1)?, get(2)?, get(3)?, get(4)?])
}

/// Bytes of device memory that [`run`] takes for `problem`.
pub fn device_bytes(problem: &Problem) -> u64 {
    let sizes = layout(problem);
    let windows = problem.n.div_ceil(128) as u64;
    let largest =
        |f: &dyn Fn(&Segment) -> usize| problem.segments().iter().map(f).max().unwrap_or(0) as u64;
    sizes.a
        + sizes.b
        + 4 * (sizes.a_scale + sizes.b_scale)
        + sizes.c * problem.output.size() as u64
        + 8 * windows * largest(&|s| s.depth)
        + 24 * windows * largest(&|s| s.rows)
}

/// Runs and judges `case` on the device at sampled strength.
///
/// # Errors
/// When the harness itself could not judge; a failing kernel is an [`Outcome`].
pub fn run(
    device: &Device,
    shop: &Workshop,
    subject: &dyn Subject,
    case: &Case,
) -> Result<Outcome> {
    if let Some(reason) = subject.refusal(&case.problem) {
        return Ok(Outcome::Skipped { reason });
    }
    case.problem.check()?;
    match judge(device, shop, subject, case) {
        Ok(outcome) => Ok(outcome),
        Err(error) => Ok(broken(device, &error)),
    }
}

fn judge(device: &Device, shop: &Workshop, subject: &dyn Subject, case: &Case) -> Result<Outcome> {
    let started = Instant::now();
    let large = Large::make(device, shop, case)?;
    let before = large.digests(device, shop)?;
    let made = started.elapsed();

    let mut kernel = std::time::Duration::MAX;
    let mut results = Vec::new();
    for _ in 0..2 {
        large.reset(shop, case)?;
        device.synchronize()?;
        let launched = Instant::now();
        subject.launch(device, &case.problem, &large.operands())?;
        device.synchronize()?;
        kernel = kernel.min(launched.elapsed());
        results.push(shop.digest(device, large.c.address(), large.c.bytes)?);
    }

    let checking = Instant::now();
    let mut findings = Vec::new();
    for region in large.regions.iter().chain([&large.c]) {
        findings.extend(region.broken()?);
    }
    let after = large.digests(device, shop)?;
    for ((region, before), after) in large.regions.iter().zip(before).zip(after) {
        if before != after {
            let message = format!("the kernel changed its operand {}", region.name);
            findings.push(Finding::sentence(Check::Inputs, message));
        }
    }
    if results[0] != results[1] {
        let message = "the second run gave other bits".to_owned();
        findings.push(Finding::sentence(Check::Rerun, message));
    }
    let mut checked = CheckedGroup::default();
    for (index, (a, b)) in large.matrices.iter().enumerate() {
        let group = &large.groups[index];
        if group.rows > 0 {
            let accumulator = subject.accumulator(&case.problem);
            let place = check::Group {
                case,
                index,
                group,
                c: large.c.address(),
                accumulator,
            };
            checked.merge(check::group(device, shop, &place, a, b)?);
        }
    }
    findings.extend(checked.findings);
    let judgement = Judgement {
        findings,
        strength: format!(
            "sampled on the device: {} Freivalds windows, {} exact dots; a single element off by \
             {:.3e} is seen; made in {:.2} ms, kernel {:.3} ms, checked in {:.2} ms",
            checked.windows,
            checked.dots,
            checked.smallest_fault,
            made.as_secs_f64() * 1e3,
            kernel.as_secs_f64() * 1e3,
            checking.elapsed().as_secs_f64() * 1e3,
        ),
        compared: checked.elements,
        worst: None,
        global: None,
    };
    Ok(verdict(judgement, checked.telling))
}

/// A failure is one whatever was sampled. Without a single sampled reference that is
/// not zero there is no verdict: a kernel that writes zeros would pass too.
fn verdict(judgement: Judgement, telling: usize) -> Outcome {
    if !judgement.findings.is_empty() || judgement.compared == 0 {
        Outcome::Failed(judgement)
    } else if telling == 0 {
        Outcome::Skipped {
            reason: "every sampled reference is zero: a kernel that writes zeros would pass".into(),
        }
    } else {
        Outcome::Passed(judgement)
    }
}

/// Factor and constant of the error before output rounding.
fn error_model(case: &Case, depth: usize, accumulator: Accumulator) -> (Arithmetic, f64, f64, f64) {
    let arithmetic = Arithmetic::of(&case.problem, depth, accumulator);
    if case.input.is_exact() && arithmetic.is_exact_on_integers() {
        return (arithmetic, 0.0, 0.0, 0.0);
    }
    let weight = arithmetic
        .truncation_weights()
        .and_then(|weights| weights.into_iter().reduce(f64::max))
        .unwrap_or(0.0);
    let constant = arithmetic.accumulation(0.0, 0.0);
    let factor = arithmetic.accumulation(1.0, weight) - constant;
    (arithmetic, weight, factor, constant)
}
