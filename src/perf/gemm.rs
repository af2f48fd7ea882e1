//! GEMM workloads: a subject of the GEMM harness, on operands made on the device.
//!
//! Dense, m-grouped contiguous and masked forms; groups lie one after the other. The
//! rates count the rows that are asked for: what masking leaves over is neither
//! computed nor read. [`super::tiles`] checks what a timed launch left.

use std::cell::RefCell;

use anyhow::{Context, Result};

use super::inputs::{Filler, normal_codes, scales};
use super::peaks::Unit;
use super::roofline::Work;
use super::tiles::{self, Expected, TILE};
use super::workload::{About, Checked, Config, Workload};
use crate::device::{Buffer, Device};
use crate::gemm::cublaslt::{CublasLt, ReadyCall};
use crate::gemm::problem::{Form, Problem};
use crate::gemm::subject::{DeviceOperands, Group, Subject};
use crate::gemm::wgmma::Wgmma;
use crate::lowp::E4M3;

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

/// A GEMM under the FP8 block recipe.
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
    groups: Vec<Group>,
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
        let groups = groups(&problem)?;
        let (n, k) = (problem.n, problem.k);
        let (groups_k, blocks_n) = (k.div_ceil(GROUP), n.div_ceil(GROUP));
        let (rows, count) = (problem.c_rows(), groups.len());
        let words: Vec<u64> = groups.iter().flat_map(Group::words).collect();
        let (codes, factors) = (normal_codes(), scales());
        Ok(GemmWorkload {
            device,
            about: about(timed.subject().name(), config, &problem),
            timed,
            filler: Filler::new(device)?,
            seed: 0,
            a: device.uninitialised(rows * k)?,
            b: device.uninitialised(count * n * k)?,
            a_scale: device.uninitialised(rows * groups_k)?,
            b_scale: device.uninitialised(count * blocks_n * groups_k)?,
            c: device.uninitialised(rows * n * problem.output.size())?,
            group_table: device.upload(&words)?,
            groups,
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
            groups: self.groups.clone(),
        }
    }

    /// Seeds of A, B, their scales.
    fn seeds(&self) -> [u64; 4] {
        [1, 2, 3, 4].map(|stream| self.seed.wrapping_mul(8).wrapping_add(stream) << 40)
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
        let expected = Expected {
            n: self.problem.n,
            k: self.problem.k,
            seeds: self.seeds(),
            codes: &self.code_table.1,
            scales: &self.scale_table.1,
        };
        let accumulator = self.timed.subject().accumulator(&self.problem);
        let misplaced = tiles::misplaced(&self.problem, &c);
        let (compared, wrong) =
            tiles::sampled(&self.problem, accumulator, &expected, self.seed, &c);
        anyhow::ensure!(compared > 0, "no element was compared");
        let elements = valid_rows(&self.problem) * self.problem.n;
        let unused = match self.problem.form {
            Form::Masked { .. } => ", rows past the counts not written",
            _ => "",
        };
        Ok(Checked {
            compared,
            strength: format!(
                "all {elements} elements finite after poison{unused}; one exact f64 dot a {TILE} x \
                 {TILE} tile within the computed bound"
            ),
            failure: misplaced.or(wrong),
        })
    }
}

/// Rows of C that are asked for.
fn valid_rows(problem: &Problem) -> usize {
    problem.segments().iter().map(|s| s.rows).sum()
}

/// Where each group's operands lie: one after the other in each buffer.
fn groups(problem: &Problem) -> Result<Vec<Group>> {
    if matches!(problem.form, Form::KGrouped { .. }) {
        anyhow::bail!("groups along k are not timed");
    }
    let (n, k) = (problem.n, problem.k);
    let (groups_k, blocks_n) = (k.div_ceil(GROUP), n.div_ceil(GROUP));
    let mut first = 0;
    let at = |(index, segment): (usize, crate::gemm::problem::Segment)| {
        let group = Group {
            a: (first * k) as u64,
            b: (index * n * k) as u64,
            a_scale: (first * groups_k) as u64,
            b_scale: (index * blocks_n * groups_k) as u64,
            c: (first * n) as u64,
            rows: segment.rows as u64,
            depth: k as u64,
            allocated: segment.allocated as u64,
        };
        first += segment.allocated;
        group
    };
    Ok(problem.segments().into_iter().enumerate().map(at).collect())
}

/// The form and sizes of a problem as ids have it: `dense/4096x4096x7168`,
/// `masked/6x1024x4096x7168` (groups, most rows of a group, n, k).
pub fn shape_name(problem: &Problem) -> (&'static str, String) {
    let (n, k) = (problem.n, problem.k);
    match &problem.form {
        Form::Contiguous { rows } => {
            let most = rows.iter().max().unwrap_or(&0);
            ("contiguous", format!("{}x{most}x{n}x{k}", rows.len()))
        }
        Form::Masked { max_rows, rows } => ("masked", format!("{}x{max_rows}x{n}x{k}", rows.len())),
        Form::Dense | Form::KGrouped { .. } => ("dense", format!("{}x{n}x{k}", problem.m)),
    }
}

fn about(subject: &str, config: Config, problem: &Problem) -> About {
    let (form, shape) = shape_name(problem);
    let (rows, n, k) = (valid_rows(problem), problem.n, problem.k);
    let busy = problem.segments().iter().filter(|s| s.rows > 0).count();
    let scales = (rows + busy * n.div_ceil(GROUP)) * k.div_ceil(GROUP) * 4;
    About {
        case: format!("{subject}/{form}/{shape}/{}", problem.output.name()),
        subject: subject.to_owned(),
        form: form.to_owned(),
        shape,
        mnk: Some((rows, n, k)),
        dtype: "e4m3 x e4m3".to_owned(),
        recipe: format!("a[{}] b[{}]", problem.a, problem.b),
        output: problem.output.name().to_owned(),
        config,
        work: Work {
            flops: 2.0 * rows as f64 * n as f64 * k as f64,
            read: ((rows + busy * n) * k + scales) as f64,
            written: (rows * n * problem.output.size()) as f64,
            unit: unit_of(subject),
        },
        input: "normal, as block quantisation leaves it; scales spread by 25 %".to_owned(),
        counted: match problem.form {
            Form::Dense => "2mnk; operands, scales and C once".to_owned(),
            _ => format!(
                "valid rows only: {rows} of {} in {busy} of {} groups; 2nk each; their operands, \
                 scales and C once",
                problem.c_rows(),
                problem.segments().len()
            ),
        },
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

/// The workload of the wgmma kernel, from `ptx` where another build is meant.
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
    use crate::lowp::OutputType;

    #[test]
    fn grouped_forms_count_their_valid_rows_only() {
        let masked = Problem::dense(0, 256, 512, OutputType::Bf16).with_form(Form::Masked {
            max_rows: 96,
            rows: vec![96, 0, 33],
        });
        let about = about("simt", Config::default(), &masked);
        assert_eq!(about.case, "simt/masked/3x96x256x512/bf16");
        assert_eq!(about.mnk, Some((129, 256, 512)));
        assert_eq!(about.work.flops, 2.0 * 129.0 * 256.0 * 512.0);
        assert_eq!(about.work.written, 129.0 * 256.0 * 2.0);
        // Two of the three groups have rows: the weights of the third stay where
        // they are.
        let scales = (129 + 2 * 2) * 4 * 4;
        assert_eq!(about.work.read, f64::from((129 + 2 * 256) * 512 + scales));
        assert!(
            about
                .counted
                .starts_with("valid rows only: 129 of 288 in 2 of 3 groups")
        );
    }

    #[test]
    fn groups_lie_one_after_the_other_with_their_unused_rows() {
        let masked = Problem::dense(0, 256, 512, OutputType::F32).with_form(Form::Masked {
            max_rows: 96,
            rows: vec![96, 0, 33],
        });
        let all = groups(&masked).unwrap();
        let last = all[2];
        assert_eq!((last.rows, last.allocated, last.depth), (33, 96, 512));
        assert_eq!((last.a, last.c), (192 * 512, 192 * 256));
        assert_eq!(
            (last.b, last.a_scale, last.b_scale),
            (2 * 256 * 512, 192 * 4, 2 * 2 * 4)
        );
        let split = masked.with_form(Form::KGrouped { depths: vec![1] });
        assert!(groups(&split).is_err());
    }
}
