//! Sampled strength for large results: windowed Freivalds plus exact dots.
//!
//! For each row i and each window of 128 columns, with random signs r,
//! Σ_j r_j·C\[i,j\] must equal A\[i,:\] · (Σ_j r_j·B\[j,:\]). That costs 1/128 of the
//! full product. If every element is within b_j of the truth, Hoeffding's
//! inequality over the signs gives |difference| ≤ λ·sqrt(Σ b_j²) except with
//! probability 2·exp(−λ²/2); λ = [`LAMBDA`] makes that 1.4e-9 a window in the worst
//! case (all errors at their limit; rounding errors spread evenly make it 1e-27). Σ s|ab|
//! in b_j is replaced by ‖A\[i,:\]‖·‖B\[j,:\]‖, which is never smaller.
//!
//! Freivalds sees any fault whose signed sum in a window is larger than twice the
//! gate; [`Sampled::smallest_fault`] reports that. One exact dot a tile catches a
//! tile that is wrong as a whole and small everywhere.

use super::bound::{Accumulator, Arithmetic};
use super::inputs::{Input, Stream, mix};
use super::operands::SegmentOperands;
use super::problem::Problem;
use super::reference::product;
use crate::lowp::OutputType;

/// Columns of one window, and rows and columns of a tile that gets one dot.
pub const WINDOW: usize = 128;
/// The element of the tile at (top, left) that gets the exact dot.
///
/// Of [`Input::HalfZero`] a row of A and a column of B share their non-zero runs
/// only where both are even or both odd, and odd ones have none below k = 17. The
/// place is moved to where they do, or the dot would be zero.
pub(super) fn dot_place(
    (rows, n, depth): (usize, usize, usize),
    (top, left): (usize, usize),
    input: Input,
    seed: u64,
) -> (usize, usize) {
    let bits = mix(seed, Stream::Check, !((top * n + left) as u64));
    let (row, col) = (
        top + bits as usize % WINDOW.min(rows - top),
        left + (bits >> 32) as usize % WINDOW.min(n - left),
    );
    if input != Input::HalfZero {
        return (row, col);
    }
    let even = (row & !1, col & !1);
    let odd = (row | 1, col | 1);
    if depth > 16 && row % 2 == 1 && odd.1 < n {
        odd
    } else {
        even
    }
}

/// What is wrong about the window that begins at column `col` of n.
pub(super) fn window_message(col: usize, n: usize, difference: f64, gate: f64) -> String {
    format!(
        "the signed sum of columns {col}..{} is off by {difference:.4e}, gate {gate:.4e}",
        (col + WINDOW).min(n)
    )
}

/// What is wrong about an element that an exact dot was made for.
pub(super) fn dot_message(got: f64, want: f64) -> String {
    format!("got {got:.9e}, want {want:.9e} (exact dot)")
}

/// Standard deviations of the signed sum that the gate allows.
pub const LAMBDA: f64 = 6.5;

/// What the sampled check found, and how strong it was.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampled {
    /// First window that is off: (row, first column, difference, gate).
    pub window: Option<(usize, usize, f64, f64)>,
    /// First exact dot that is off: (row, column, got, want).
    pub dot: Option<(usize, usize, f64, f64)>,
    /// The median over windows of the single-element error that is sure to be
    /// seen: twice the gate.
    pub smallest_fault: f64,
    pub windows: usize,
    pub dots: usize,
}

/// The error model of one group.
struct Model {
    arithmetic: Arithmetic,
    /// Truncating steps that a product can pass through.
    weight: f64,
    exact: bool,
}

impl Model {
    fn accumulation(&self, magnitude: f64) -> f64 {
        if self.exact {
            0.0
        } else {
            self.arithmetic
                .accumulation(magnitude, self.weight * magnitude)
        }
    }

    /// What storing a result of this size can cost. FP32 is stored as computed.
    fn rounding(&self, size: f64) -> f64 {
        match self.arithmetic.output {
            OutputType::F32 => size * 0.0,
            output => output.half_ulp(size),
        }
    }
}

fn sign(seed: u64, col: usize) -> f64 {
    if mix(seed, Stream::Check, col as u64) >> 63 == 0 {
        1.0
    } else {
        -1.0
    }
}

fn norms(matrix: &[f64], cols: usize) -> Vec<f64> {
    matrix
        .chunks(cols.max(1))
        .map(|row| row.iter().map(|x| x * x).sum::<f64>().sqrt())
        .collect()
}

/// Checks `got`, rows × n, of one group. The signs come from `seed`. Where no sum of
/// `input` rounds (small integers) only output rounding is allowed.
pub fn check(
    problem: &Problem,
    operands: &SegmentOperands,
    accumulator: Accumulator,
    input: Input,
    got: &[f64],
    seed: u64,
) -> Sampled {
    let (rows, depth, n) = (operands.segment.rows, operands.segment.depth, problem.n);
    assert_eq!(got.len(), rows * n, "C is rows x n");
    let arithmetic = Arithmetic::of(problem, depth, accumulator);
    let (a, b) = (operands.a.dequantise(), operands.b.dequantise());
    let model = Model {
        arithmetic,
        weight: arithmetic
            .truncation_weights()
            .and_then(|weights| weights.into_iter().reduce(f64::max))
            .unwrap_or(0.0),
        exact: input.is_exact() && arithmetic.is_exact_on_integers(),
    };
    let (a_norms, b_norms) = (norms(&a, depth), norms(&b, depth));
    let old = |i: usize| operands.c.get(i).map_or(0.0, |&c| f64::from(c));

    let windows = n.div_ceil(WINDOW);
    let mut signed_b = vec![0.0; windows * depth];
    for col in 0..n {
        let r = sign(seed, col);
        let into = &mut signed_b[col / WINDOW * depth..][..depth];
        into.iter_mut()
            .zip(&b[col * depth..][..depth])
            .for_each(|(s, b)| *s += r * b);
    }
    let wanted = product(&a, &signed_b, rows, windows, depth);

    let mut found = Sampled {
        window: None,
        dot: None,
        smallest_fault: f64::NAN,
        windows: rows * windows,
        dots: 0,
    };
    let mut gates = Vec::with_capacity(rows * windows);
    for row in 0..rows {
        for window in 0..windows {
            let cols = window * WINDOW..((window + 1) * WINDOW).min(n);
            let (mut difference, mut squares) = (-wanted[row * windows + window], 0.0);
            for col in cols.clone() {
                let i = row * n + col;
                difference += sign(seed, col) * (got[i] - old(i));
                let magnitude = a_norms[row] * b_norms[col] + old(i).abs();
                let error = model.accumulation(magnitude);
                // Rounded from within `error` of the truth: judged at what was got,
                // so that no exact value is needed. NaN and infinity give NaN.
                let rounding = model.rounding(got[i].abs() + error)
                    + model.arithmetic.product_rounding(got[i], old(i));
                squares += (error + rounding).powi(2);
            }
            let gate = LAMBDA * squares.sqrt();
            gates.push(gate);
            let inside = difference.abs() <= gate;
            if !inside && found.window.is_none() {
                found.window = Some((row, cols.start, difference, gate));
            }
        }
    }
    gates.sort_by(f64::total_cmp);
    found.smallest_fault = gates
        .get(gates.len() / 2)
        .map_or(f64::NAN, |gate| 2.0 * gate);
    let drawn = (input, seed);
    exact_dots(problem, operands, &model, got, drawn, (&a, &b), &mut found);
    found
}

/// One element of each 128 × 128 tile, at a place drawn from the seed.
fn exact_dots(
    problem: &Problem,
    operands: &SegmentOperands,
    model: &Model,
    got: &[f64],
    (input, seed): (Input, u64),
    (a, b): (&[f64], &[f64]),
    found: &mut Sampled,
) {
    let (rows, depth, n) = (operands.segment.rows, operands.segment.depth, problem.n);
    for top in (0..rows).step_by(WINDOW) {
        for left in (0..n).step_by(WINDOW) {
            let (row, col) = dot_place((rows, n, depth), (top, left), input, seed);
            let terms = || (0..depth).map(|k| a[row * depth + k] * b[col * depth + k]);
            let c = operands.c.get(row * n + col).map_or(0.0, |&c| f64::from(c));
            let want = terms().sum::<f64>() + c;
            let magnitude = terms().map(f64::abs).sum::<f64>() + c.abs();
            let error = model.accumulation(magnitude);
            found.dots += 1;
            let got = got[row * n + col];
            if !model.arithmetic.bound_over(want, c, error).admits(got) && found.dot.is_none() {
                found.dot = Some((row, col, got, want));
            }
        }
    }
}

#[cfg(test)]
mod places;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::case::Case;
    use crate::gemm::inputs::Input;
    use crate::gemm::operands::Operands;
    use crate::gemm::reference::SegmentReference;

    fn setting(output: OutputType) -> (Problem, Operands, Vec<f64>) {
        let problem = Problem::dense(70, 300, 520, output);
        let case = Case::new("test", problem.clone(), Input::Normal, 5);
        let operands = Operands::generate(&case).unwrap();
        let reference =
            SegmentReference::compute(&problem, &operands.segments[0], Accumulator::Fp32);
        let got = reference
            .want
            .iter()
            .map(|&x| output.round_wide(x))
            .collect();
        (problem, operands, got)
    }

    fn run(problem: &Problem, operands: &Operands, got: &[f64], seed: u64) -> Sampled {
        check(
            problem,
            &operands.segments[0],
            Accumulator::Fp32,
            Input::Normal,
            got,
            seed,
        )
    }

    #[test]
    fn a_correct_result_passes_under_every_seed() {
        for output in OutputType::ALL {
            let (problem, operands, got) = setting(output);
            for seed in 0..20 {
                let found = run(&problem, &operands, &got, seed);
                assert_eq!((found.window, found.dot), (None, None), "{output:?}");
                assert_eq!((found.windows, found.dots), (70 * 3, 3));
            }
        }
    }

    #[test]
    fn one_element_off_by_the_stated_smallest_fault_is_always_seen() {
        for output in OutputType::ALL {
            let (problem, operands, got) = setting(output);
            let smallest = run(&problem, &operands, &got, 0).smallest_fault;
            let rms = (got.iter().map(|x| x * x).sum::<f64>() / got.len() as f64).sqrt();
            let limit = match output {
                OutputType::F32 => 0.03,
                OutputType::F16 => 0.09,
                OutputType::Bf16 => 0.45,
            };
            assert!(smallest < limit * rms, "{output:?}: {smallest} of {rms}");
            for at in [0, 299, 150 * 7, got.len() - 1] {
                let mut wrong = got.clone();
                // Windows differ a little in their gates: the median times two.
                wrong[at] += 2.0 * smallest;
                assert!(
                    run(&problem, &operands, &wrong, 1).window.is_some(),
                    "{output:?} {at}"
                );
            }
        }
    }

    #[test]
    fn integers_leave_no_room_at_all_in_fp32() {
        let problem = Problem::dense(5, 200, 300, OutputType::F32);
        let case = Case::new("test", problem.clone(), Input::Integers, 5);
        let operands = Operands::generate(&case).unwrap();
        let segment = &operands.segments[0];
        let mut got = SegmentReference::compute(&problem, segment, Accumulator::Fp32).want;
        let found = |got: &[f64]| {
            check(
                &problem,
                segment,
                Accumulator::Fp32,
                Input::Integers,
                got,
                2,
            )
        };
        assert_eq!(
            (found(&got).window, found(&got).smallest_fault),
            (None, 0.0)
        );
        got[3] += 0.25;
        assert!(found(&got).window.is_some());
    }

    #[test]
    fn nan_a_zero_tile_and_a_dropped_row_are_seen() {
        let (problem, operands, got) = setting(OutputType::Bf16);
        let mut nan = got.clone();
        nan[12_345] = f64::NAN;
        let mut tile = got.clone();
        for row in 0..70 {
            tile[row * 300 + 128..row * 300 + 256].fill(0.0);
        }
        let mut last_row = got.clone();
        last_row[69 * 300..].fill(0.0);
        for wrong in [nan, tile, last_row] {
            assert!(run(&problem, &operands, &wrong, 3).window.is_some());
        }
    }

    #[test]
    fn the_exact_dots_alone_see_a_tile_that_is_two_percent_low() {
        let (problem, operands, mut got) = setting(OutputType::F32);
        for row in 0..70 {
            got[row * 300..row * 300 + 128]
                .iter_mut()
                .for_each(|x| *x *= 0.98);
        }
        assert!(run(&problem, &operands, &got, 3).dot.is_some());
    }
}
