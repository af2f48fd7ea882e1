//! The experts' arithmetic: both GEMMs within the bound of the GEMM harness, SwiGLU
//! and its quantisation within a bound of their own.
//!
//! SwiGLU: exp, an addition, a division, a product, each correctly rounded or
//! within 4 ulp: 16 roundings cover them. A scale follows from the largest value of
//! its run, so it lies between what the smallest and the largest possible value
//! give. Rounding to a code is monotonic, so a right code lies between the codes of
//! the ends of the value's interval.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, anyhow};

use super::movement::Sound;
use super::{Expert, Judge, Looked};
use crate::device::POISON;
use crate::gemm::bound::{Accumulator, U32};
use crate::gemm::operands::SegmentOperands;
use crate::gemm::problem::{Problem, Segment};
use crate::gemm::reference::SegmentReference;
use crate::gemm::sampled;
use crate::lowp::{E4M3, OutputType, Quantised, Ties};
use crate::moe::finding::Stage;
use crate::moe::generate::{Matrix, token_recipe};
use crate::moe::shape::{GROUP, Layout};

/// Judges every sound expert of this rank, some at a time.
pub fn check(judge: &Judge<'_>, sound: &Sound) -> Result<Looked> {
    let local = judge.local();
    let next = AtomicUsize::new(0);
    let looked = Mutex::new(Looked::default());
    std::thread::scope(|scope| {
        let work = || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(expert) = local.get(at) else { return };
                if sound[at] {
                    let one = check_expert(judge, expert);
                    let mut all = looked.lock().unwrap_or_else(|p| p.into_inner());
                    all.rows += one.rows;
                    all.exact_gemms += one.exact_gemms;
                    all.sampled_gemms += one.sampled_gemms;
                }
                judge.hub.alive();
            }
        };
        let threads: Vec<_> = (1..judge.threads).map(|_| scope.spawn(work)).collect();
        work();
        threads.into_iter().try_for_each(|thread| {
            thread
                .join()
                .map_err(|_| anyhow!("an oracle thread panicked"))
        })
    })?;
    Ok(looked.into_inner().unwrap_or_else(|p| p.into_inner()))
}

fn check_expert(judge: &Judge<'_>, expert: &Expert) -> Looked {
    let mut looked = Looked::default();
    // The contiguous layout computes its zero padding too.
    let rows = match judge.layer.layout {
        Layout::Contiguous => expert.allocated,
        Layout::Masked => expert.copies.len(),
    };
    // A rank with the wrong counts may have made room for fewer rows than it was sent.
    let (held, needed) = (
        judge.seen.rows(&judge.layer.shape),
        expert.start + expert.allocated,
    );
    if held < needed {
        let detail = format!("the layer holds {held} rows; the tokens sent to it need {needed}");
        let rank = judge.layer.rank;
        judge.report(Stage::FirstGemm, rank, Some(expert.expert), None, detail);
        return looked;
    }
    if judge.layer.layout == Layout::Masked && judge.layer.poison {
        untouched(judge, expert);
    }
    if rows == 0 {
        return looked;
    }
    looked.rows = rows;
    let (shape, seen) = (&judge.layer.shape, judge.seen);
    let (start, seed) = (expert.start, judge.layer.seed);
    let take = |codes: &[u8], scales: &[f32], cols: usize| {
        let groups = cols.div_ceil(GROUP);
        Quantised {
            rows,
            cols,
            recipe: token_recipe(),
            codes: codes[start * cols..][..rows * cols].to_vec(),
            scales: scales[start * groups..][..rows * groups].to_vec(),
            scale_rows: rows,
            scale_cols: groups,
        }
    };
    let got = &seen.first[start * 2 * shape.intermediate..][..rows * 2 * shape.intermediate];
    let gemm = Gemm {
        stage: Stage::FirstGemm,
        a: take(&seen.codes, &seen.scales, shape.hidden),
        b: Matrix::GateUp.generate(shape, seed, expert.expert),
        output: OutputType::F32,
        got: got.iter().map(|&x| f64::from(x)).collect(),
    };
    gemm.check(judge, expert, &mut looked);
    activation(judge, expert, rows);
    let bytes = &seen.second[start * 2 * shape.hidden..][..rows * 2 * shape.hidden];
    let gemm = Gemm {
        stage: Stage::SecondGemm,
        a: take(&seen.middle_codes, &seen.middle_scales, shape.intermediate),
        b: Matrix::Down.generate(shape, seed, expert.expert),
        output: OutputType::Bf16,
        got: OutputType::Bf16.widen(bytes),
    };
    gemm.check(judge, expert, &mut looked);
    looked
}

/// One expert's GEMM as the device computed it.
struct Gemm {
    stage: Stage,
    a: Quantised,
    b: Quantised,
    output: OutputType,
    got: Vec<f64>,
}

impl Gemm {
    fn check(self, judge: &Judge<'_>, expert: &Expert, looked: &mut Looked) {
        let (rows, n, depth) = (self.a.rows, self.b.rows, self.a.cols);
        let problem = Problem::dense(rows, n, depth, self.output);
        let (stage, got) = (self.stage, self.got);
        let operands = SegmentOperands {
            segment: Segment {
                rows,
                allocated: rows,
                depth,
            },
            a: self.a,
            b: self.b,
            c: Vec::new(),
            raw_a: Vec::new(),
            raw_b: Vec::new(),
        };
        let report = |row: usize, detail: String| {
            let token = expert.copies.get(row).map(|copy| copy.at());
            judge.report(stage, judge.layer.rank, Some(expert.expert), token, detail);
        };
        if rows as u128 * n as u128 * depth as u128 <= judge.exact_work {
            looked.exact_gemms += 1;
            let reference = SegmentReference::compute(&problem, &operands, Accumulator::Fp32);
            for (i, &got) in got.iter().enumerate() {
                let want = reference.want[i];
                let bound = reference.arithmetic.bound(want, reference.accumulation(i));
                if !bound.admits(got) {
                    report(
                        i / n,
                        format!(
                            "element ({}, {}) is {got:e}, want {want:e} in [{:e}, {:e}]",
                            i / n,
                            i % n,
                            bound.low,
                            bound.high
                        ),
                    );
                }
            }
            return;
        }
        looked.sampled_gemms += 1;
        let seed = judge.layer.seed ^ expert.expert as u64;
        let found = sampled::check(
            &problem,
            &operands,
            Accumulator::Fp32,
            crate::gemm::inputs::Input::Normal,
            &got,
            seed,
        );
        if let Some((row, col, got, want)) = found.dot {
            report(
                row,
                format!("element ({row}, {col}) is {got:e}, want {want:e}"),
            );
        } else if let Some((row, col, difference, gate)) = found.window {
            report(
                row,
                format!(
                    "columns {col} to {} of row {row} are off by {difference:e} in a signed sum, gate {gate:e}",
                    (col + sampled::WINDOW).min(n)
                ),
            );
        }
    }
}

/// Rows past an expert's count hold what they held.
fn untouched(judge: &Judge<'_>, expert: &Expert) {
    let (shape, seen) = (&judge.layer.shape, judge.seen);
    let poison = f32::from_bits(u32::from_le_bytes([POISON; 4])).to_bits();
    for row in expert.start + expert.copies.len()..expert.start + expert.allocated {
        let first = &seen.first[row * 2 * shape.intermediate..][..2 * shape.intermediate];
        let middle = &seen.middle_codes[row * shape.intermediate..][..shape.intermediate];
        let second = &seen.second[row * 2 * shape.hidden..][..2 * shape.hidden];
        for (stage, clean) in [
            (
                Stage::FirstGemm,
                first.iter().all(|x| x.to_bits() == poison),
            ),
            (Stage::Activation, middle.iter().all(|&x| x == POISON)),
            (Stage::SecondGemm, second.iter().all(|&x| x == POISON)),
        ] {
            if !clean {
                let detail = format!("row {row}, past the expert's count, was written");
                judge.report(stage, judge.layer.rank, Some(expert.expert), None, detail);
            }
        }
    }
}

fn activation(judge: &Judge<'_>, expert: &Expert, rows: usize) {
    let (inter, seen) = (judge.layer.shape.intermediate, judge.seen);
    let groups = inter.div_ceil(GROUP);
    for i in 0..rows {
        let row = expert.start + i;
        let (gate, up) = seen.first[row * 2 * inter..][..2 * inter].split_at(inter);
        let codes = &seen.middle_codes[row * inter..][..inter];
        let scales = &seen.middle_scales[row * groups..][..groups];
        for (group, &scale) in scales.iter().enumerate() {
            let cols = group * GROUP..((group + 1) * GROUP).min(inter);
            let run = Run {
                gate: &gate[cols.clone()],
                up: &up[cols.clone()],
                codes: &codes[cols.clone()],
                scale,
            };
            if let Err(detail) = run.check() {
                let token = expert.copies.get(i).map(|copy| copy.at());
                judge.report(
                    Stage::Activation,
                    judge.layer.rank,
                    Some(expert.expert),
                    token,
                    format!(
                        "row {row}, columns {} to {}: {detail}",
                        cols.start, cols.end
                    ),
                );
            }
        }
    }
}

/// Columns that share a scale.
struct Run<'a> {
    gate: &'a [f32],
    up: &'a [f32],
    codes: &'a [u8],
    scale: f32,
}

impl Run<'_> {
    fn check(&self) -> Result<(), String> {
        let values: Vec<(f64, f64)> = self
            .gate
            .iter()
            .zip(self.up)
            .map(|(&g, &u)| {
                let (g, u) = (f64::from(g), f64::from(u));
                let a = g / (1.0 + (-g).exp()) * u;
                // Below the normal floats exp may be flushed to zero.
                (
                    a,
                    16.0 * U32 * a.abs() + 2f64.powi(-120) * (1.0 + (g * u).abs()),
                )
            })
            .collect();
        let most = |sign: f64| {
            let ends = values.iter().map(|(a, e)| (a.abs() + sign * e).max(0.0));
            // A NaN must come out as one; `max` would drop it.
            ends.fold(
                f64::from(1e-4f32),
                |m, x| if x.is_nan() || x > m { x } else { m },
            )
        };
        let (low, high) = (most(-1.0) / 448.0, most(1.0) / 448.0);
        let (low, high) = (low * (1.0 - 2.0 * U32), high * (1.0 + 2.0 * U32));
        let scale = f64::from(self.scale);
        let inside = low <= scale && scale <= high;
        if !inside {
            return Err(format!(
                "the scale is {scale:e}; expected [{low:e}, {high:e}]"
            ));
        }
        for (at, (&code, (a, error))) in self.codes.iter().zip(&values).enumerate() {
            let end = |x: f64, up: bool| {
                let quotient = (x / scale) as f32;
                let moved = if up {
                    quotient.next_up()
                } else {
                    quotient.next_down()
                };
                E4M3.encode(moved, Ties::Even).map(|code| E4M3.decode(code))
            };
            let got = E4M3.decode(code);
            let (low, high) = (end(a - error, false), end(a + error, true));
            let inside = low.is_some_and(|l| l <= got) && high.is_some_and(|h| got <= h);
            if !inside {
                return Err(format!(
                    "code {at} is {code:#04x} ({got}); {a:e} / {scale:e} gives {low:?} to {high:?}"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SwiGLU in f32, as a kernel computes it.
    fn quantise(gate: &[f32], up: &[f32]) -> (Vec<u8>, f32) {
        let a: Vec<f32> = gate
            .iter()
            .zip(up)
            .map(|(g, u)| g / (1.0 + (-g).exp()) * u)
            .collect();
        let amax = a.iter().fold(1e-4f32, |m, x| m.max(x.abs()));
        let scale = amax / 448.0;
        let code = |x: &f32| E4M3.encode(x / scale, Ties::Even).unwrap();
        (a.iter().map(code).collect(), scale)
    }

    #[test]
    fn right_codes_pass_and_one_step_or_a_wrong_scale_does_not() {
        for case in 0..50u32 {
            let value = |i: u32| {
                let mixed = (i + 1000 * case).wrapping_mul(2_654_435_761) >> 8;
                (mixed as f32 / (1 << 23) as f32 - 1.0) * [1e-6, 0.1, 4.0, 100.0][case as usize % 4]
            };
            let gate: Vec<f32> = (0..96).map(value).collect();
            let up: Vec<f32> = (96..192).map(value).collect();
            let (codes, scale) = quantise(&gate, &up);
            let judged = |codes: &[u8], scale: f32| {
                let run = Run {
                    gate: &gate,
                    up: &up,
                    codes,
                    scale,
                };
                run.check()
            };
            assert_eq!(judged(&codes, scale), Ok(()), "case {case}");
            let mut off = codes.clone();
            off[7] ^= 2;
            assert!(judged(&off, scale).is_err(), "case {case}");
            assert!(judged(&codes, scale * (1.0 + 1e-4)).is_err());
            assert!(judged(&codes, f32::NAN).is_err());
            let nan = vec![0x7f; codes.len()];
            assert!(judged(&nan, scale).is_err());
            let mut swapped = codes.clone();
            swapped.swap(0, 1);
            // Values below the floor of the scale are zeros of either sign.
            let alike = E4M3.decode(codes[0]) == E4M3.decode(codes[1]);
            assert!(alike || judged(&swapped, scale).is_err(), "case {case}");
        }
    }
}
