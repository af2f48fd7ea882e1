//! GEMM workloads: a subject of the GEMM harness, on operands made on the device.
//!
//! The check after timing: every element of C must be finite (C starts as NaN), and
//! one element of each 128 × 128 tile must lie within the bound of its exact f64
//! dot product. That turns away every tile that is wrong as a whole, at any size; the
//! full gate is `kernelgate gemm check`.

use std::cell::RefCell;

use anyhow::{Context, Result};

use super::inputs::{Filler, in_parallel, normal_codes, scales, slot};
use super::peaks::Unit;
use super::roofline::Work;
use super::workload::{About, Checked, Config, Workload};
use crate::device::{Buffer, Device};
use crate::gemm::bound::Arithmetic;
use crate::gemm::cublaslt::{CublasLt, ReadyCall};
use crate::gemm::problem::Problem;
use crate::gemm::subject::{DeviceOperands, Group, Subject};
use crate::gemm::wgmma::Wgmma;
use crate::lowp::{E4M3, OutputType};

/// Rows and columns of C that share one exact dot.
const TILE: usize = 128;
/// k of one scale.
const GROUP: usize = 128;

/// What is launched: a subject as it is, or one whose preparation is not timed.
pub enum Timed {
    Whole(Box<dyn Subject>),
    Prepared(Box<Wgmma>),
    /// cuBLASLt, with the call that the last refresh made ready.
    Library(Box<CublasLt>, RefCell<Option<ReadyCall>>),
}

impl Timed {
    fn subject(&self) -> &dyn Subject {
        match self {
            Timed::Whole(subject) => subject.as_ref(),
            Timed::Prepared(wgmma) => wgmma.as_ref(),
            Timed::Library(library, _) => library.as_ref(),
        }
    }
}

/// A dense GEMM under the FP8 block recipe.
pub struct GemmWorkload<'d> {
    device: &'d Device,
    timed: Timed,
    problem: Problem,
    about: About,
    filler: Filler,
    seed: u64,
    a: Buffer<u8>,
    b: Buffer<u8>,
    a_scale: Buffer<f32>,
    b_scale: Buffer<f32>,
    c: Buffer<u8>,
    group_table: Buffer<u64>,
    group: Group,
    code_table: (Buffer<u8>, Vec<f64>),
    scale_table: (Buffer<f32>, Vec<f64>),
}

impl<'d> GemmWorkload<'d> {
    /// # Errors
    /// When the subject refuses the problem, or memory does not suffice.
    pub fn new(
        device: &'d Device,
        timed: Timed,
        config: Config,
        problem: Problem,
    ) -> Result<GemmWorkload<'d>> {
        if let Some(reason) = timed.subject().refusal(&problem) {
            anyhow::bail!("{reason}");
        }
        let (m, n, k) = (problem.m, problem.n, problem.k);
        let groups_k = k.div_ceil(GROUP);
        let group = Group {
            a: 0,
            b: 0,
            a_scale: 0,
            b_scale: 0,
            c: 0,
            rows: m as u64,
            depth: k as u64,
            allocated: m as u64,
        };
        let (codes, factors) = (normal_codes(), scales());
        Ok(GemmWorkload {
            device,
            about: about(timed.subject().name(), config, &problem),
            timed,
            filler: Filler::new(device)?,
            seed: 0,
            a: device.uninitialised(m * k)?,
            b: device.uninitialised(n * k)?,
            a_scale: device.uninitialised(m * groups_k)?,
            b_scale: device.uninitialised(n.div_ceil(GROUP) * groups_k)?,
            c: device.uninitialised(m * n * problem.output.size())?,
            group_table: device.upload(&group.words())?,
            group,
            code_table: (
                device.upload(&codes)?,
                codes
                    .iter()
                    .map(|&code| f64::from(E4M3.decode(code)))
                    .collect(),
            ),
            scale_table: (
                device.upload(&factors)?,
                factors.iter().map(|&x| f64::from(x)).collect(),
            ),
            problem,
        })
    }

    fn operands(&self) -> DeviceOperands {
        DeviceOperands {
            a: self.a.address(),
            b: self.b.address(),
            a_scale: self.a_scale.address(),
            b_scale: self.b_scale.address(),
            c: self.c.address(),
            table: self.group_table.address(),
            groups: vec![self.group],
        }
    }

    /// Seeds of A, B, their scales.
    fn seeds(&self) -> [u64; 4] {
        [1, 2, 3, 4].map(|stream| self.seed.wrapping_mul(8).wrapping_add(stream) << 40)
    }

    /// The first element of the sample that is outside its bound.
    fn check_tiles(&self, c: &[u8]) -> (usize, Option<String>) {
        let (m, n) = (self.problem.m, self.problem.n);
        let accumulator = self.timed.subject().accumulator(&self.problem);
        let arithmetic = Arithmetic::of(&self.problem, self.problem.k, accumulator);
        let weights = arithmetic.truncation_weights();
        let (down, across) = (m.div_ceil(TILE), n.div_ceil(TILE));
        let output = self.problem.output;
        let (size, seed) = (output.size(), self.seed);
        let expected = Expected {
            k: self.problem.k,
            seeds: self.seeds(),
            codes: &self.code_table.1,
            scales: &self.scale_table.1,
            weights: weights.as_deref(),
        };
        let failures = in_parallel((down * across) as u64, |tiles| {
            tiles.into_iter().find_map(|tile| {
                let (ti, tj) = (tile as usize / across, tile as usize % across);
                let pick = |salt, start: usize, end: usize| {
                    start + slot(seed ^ salt, tile, 1 << 20) % (end - start)
                };
                let row = pick(11, ti * TILE, ((ti + 1) * TILE).min(m));
                let col = pick(12, tj * TILE, ((tj + 1) * TILE).min(n));
                let (want, magnitude, weighted) = expected.at(row, col);
                let bound = arithmetic.bound(want, arithmetic.accumulation(magnitude, weighted));
                let at = (row * n + col) * size;
                let got = output.widen(&c[at..at + size])[0];
                (!bound.admits(got)).then(|| {
                    format!(
                        "C[{row}, {col}] is {got:e}, expected {want:e} within [{:e}, {:e}]",
                        bound.low, bound.high
                    )
                })
            })
        });
        (down * across, failures.into_iter().flatten().next())
    }
}

/// The exact result, element by element, from operands made again.
struct Expected<'a> {
    k: usize,
    seeds: [u64; 4],
    codes: &'a [f64],
    scales: &'a [f64],
    weights: Option<&'a [f64]>,
}

impl Expected<'_> {
    /// The exact value of C[row, col], with Σ s|ab| and its weighted form.
    fn at(&self, row: usize, col: usize) -> (f64, f64, f64) {
        let [a, b, a_scale, b_scale] = self.seeds;
        let groups_k = self.k.div_ceil(GROUP);
        let code = |seed, i: usize| self.codes[slot(seed, i as u64, self.codes.len())];
        let scale = |seed, i: usize| self.scales[slot(seed, i as u64, self.scales.len())];
        let (mut want, mut magnitude, mut weighted) = (0.0, 0.0, 0.0);
        for group in 0..groups_k {
            let factor = scale(a_scale, row * groups_k + group)
                * scale(b_scale, col / GROUP * groups_k + group);
            for k in group * GROUP..((group + 1) * GROUP).min(self.k) {
                let product = factor * code(a, row * self.k + k) * code(b, col * self.k + k);
                want += product;
                magnitude += product.abs();
                weighted += self.weights.map_or(0.0, |w| w[k]) * product.abs();
            }
        }
        (want, magnitude, weighted)
    }
}

impl Workload for GemmWorkload<'_> {
    fn about(&self) -> &About {
        &self.about
    }

    fn refresh(&mut self, seed: u64) -> Result<()> {
        self.seed = seed;
        let [a, b, a_scale, b_scale] = self.seeds();
        self.filler.bytes(&self.a, &self.code_table.0, a)?;
        self.filler.bytes(&self.b, &self.code_table.0, b)?;
        self.filler
            .floats(&self.a_scale, &self.scale_table.0, a_scale)?;
        self.filler
            .floats(&self.b_scale, &self.scale_table.0, b_scale)?;
        self.c.poison()?;
        match &self.timed {
            Timed::Whole(_) => {}
            Timed::Prepared(wgmma) => {
                wgmma.prepare(self.device, &self.problem, &self.operands())?;
            }
            Timed::Library(library, call) => {
                let ready = library.prepare(self.device, &self.problem, &self.operands())?;
                *call.borrow_mut() = Some(ready);
            }
        }
        Ok(())
    }

    fn launch(&self) -> Result<()> {
        match &self.timed {
            Timed::Whole(subject) => subject.launch(self.device, &self.problem, &self.operands()),
            Timed::Prepared(wgmma) => wgmma.run(),
            Timed::Library(library, call) => {
                let call = call.borrow();
                library.run(self.device, call.as_ref().context("launch before refresh")?)
            }
        }
    }

    fn verify(&self) -> Result<Checked> {
        let c = self.c.download()?;
        let n = self.problem.n;
        let unwritten = first_not_finite(&c, self.problem.output)
            .map(|i| format!("C[{}, {}] was not written, or is not finite", i / n, i % n));
        let (compared, wrong) = self.check_tiles(&c);
        anyhow::ensure!(compared > 0, "no element was compared");
        Ok(Checked {
            compared,
            strength: format!(
                "all {} elements finite after poison; one exact f64 dot a {TILE} x {TILE} tile \
                 within the computed bound",
                self.problem.m * n
            ),
            failure: unwritten.or(wrong),
        })
    }
}

/// Index of the first element that is NaN or infinite.
fn first_not_finite(c: &[u8], output: OutputType) -> Option<usize> {
    let size = output.size();
    let bad = |element: &[u8]| match output {
        OutputType::F32 => !f32::from_le_bytes(element.try_into().expect("four bytes")).is_finite(),
        OutputType::Bf16 => element[1] & 0x7f == 0x7f && element[0] & 0x80 != 0,
        OutputType::F16 => element[1] & 0x7c == 0x7c,
    };
    in_parallel((c.len() / size) as u64, |range| {
        let bytes = &c[range.start as usize * size..range.end as usize * size];
        bytes
            .chunks_exact(size)
            .position(bad)
            .map(|i| i + range.start as usize)
    })
    .into_iter()
    .flatten()
    .next()
}

fn about(subject: &str, config: Config, problem: &Problem) -> About {
    let (m, n, k) = (problem.m, problem.n, problem.k);
    let groups_k = k.div_ceil(GROUP);
    let scales = (m + n.div_ceil(GROUP)) * groups_k * 4;
    About {
        case: format!("{subject}/dense/{m}x{n}x{k}/{}", problem.output.name()),
        subject: subject.to_owned(),
        form: "dense".to_owned(),
        shape: format!("{m}x{n}x{k}"),
        mnk: Some((m, n, k)),
        dtype: "e4m3 x e4m3".to_owned(),
        recipe: format!("a[{}] b[{}]", problem.a, problem.b),
        output: problem.output.name().to_owned(),
        config,
        work: Work {
            flops: 2.0 * m as f64 * n as f64 * k as f64,
            read: ((m + n) * k + scales) as f64,
            written: (m * n * problem.output.size()) as f64,
            unit: unit_of(subject),
        },
        input: "normal, as block quantisation leaves it; scales spread by 25 %".to_owned(),
        counted: "2mnk; operands, scales and C once".to_owned(),
    }
}

/// What a subject multiplies with: `mma.sync` on FP8 unpacks to FP16 on Hopper, but
/// its work is still FP8's, so it is held against that peak.
fn unit_of(subject: &str) -> Unit {
    if subject.starts_with("simt") {
        Unit::Fp32
    } else {
        Unit::Fp8
    }
}

/// The dense workload of the wgmma kernel, from `ptx` where another build is meant.
pub fn wgmma_workload<'d>(
    device: &'d Device,
    problem: Problem,
    ptx: Option<&str>,
) -> Result<GemmWorkload<'d>> {
    use crate::gemm::wgmma::{PROMOTE, STAGES, TILE, WARPS};
    let config = Config {
        block_m: Some(TILE.0),
        block_n: Some(TILE.1),
        block_k: Some(PROMOTE),
        stages: Some(STAGES),
        warps: Some(WARPS),
        split: Some(1),
    };
    let wgmma = match ptx {
        None => Wgmma::load(device),
        Some(ptx) => Wgmma::load_ptx(device, ptx),
    }
    .context("while loading wgmma")?;
    GemmWorkload::new(device, Timed::Prepared(Box::new(wgmma)), config, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unwritten_element_is_found_in_every_output_type() {
        for output in OutputType::ALL {
            let one = output.bytes_of(1.5);
            let mut c = one.repeat(1000);
            assert_eq!(first_not_finite(&c, output), None);
            let at = 777 * output.size();
            c[at..at + output.size()].copy_from_slice(&output.poison());
            assert_eq!(first_not_finite(&c, output), Some(777), "{}", output.name());
        }
    }
}
