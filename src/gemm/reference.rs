//! The full-strength reference: dequantise, multiply in f64, and the magnitudes
//! that the bound needs.
//!
//! It shares the quantised codes and scales with the kernel, and nothing else:
//! decoding, scaling, order and precision are its own. Code × scale is exact in
//! f64, a product has at most 2·(4 + 24) significant bits, so the f64 sum errs by
//! ≤ (k + 3)·2^-52·Σ|ab|, which the bound includes. The product is the crate
//! `matrixmultiply`.

use super::bound::{Accumulator, Arithmetic, Bound};
use super::operands::{Operands, SegmentOperands};
use super::problem::Problem;
use crate::lowp::Quantised;

/// The reference of one group; rows × n each.
#[derive(Debug, Clone)]
pub struct SegmentReference {
    pub arithmetic: Arithmetic,
    /// The exact result.
    pub want: Vec<f64>,
    /// C's old value, part of `want`; empty where the kernel does not add to it.
    pub held: Vec<f64>,
    /// Σ s|ab| + |C|.
    pub magnitude: Vec<f64>,
    /// Σ weight·s|ab| of the truncating accumulators; empty for FP32.
    pub weighted: Vec<f64>,
}

/// out (rows × n) = a (rows × k) · bᵀ (n × k).
pub fn product(a: &[f64], b: &[f64], rows: usize, n: usize, k: usize) -> Vec<f64> {
    assert_eq!(a.len(), rows * k, "A is rows x k");
    assert_eq!(b.len(), n * k, "B is n x k");
    let mut out = vec![0.0; rows * n];
    if out.is_empty() || k == 0 {
        return out;
    }
    // SAFETY: the lengths are checked above, the strides describe row-major A and
    // out and a transposed row-major B, and `out` aliases neither.
    unsafe {
        matrixmultiply::dgemm(
            rows,
            k,
            n,
            1.0,
            a.as_ptr(),
            k as isize,
            1,
            b.as_ptr(),
            1,
            k as isize,
            0.0,
            out.as_mut_ptr(),
            n as isize,
            1,
        );
    }
    out
}

fn magnitudes(matrix: &Quantised) -> Vec<f64> {
    matrix.dequantise().into_iter().map(f64::abs).collect()
}

impl SegmentReference {
    pub fn compute(
        problem: &Problem,
        operands: &SegmentOperands,
        accumulator: Accumulator,
    ) -> SegmentReference {
        let (rows, depth, n) = (operands.segment.rows, operands.segment.depth, problem.n);
        let arithmetic = Arithmetic::of(problem, depth, accumulator);
        let mut want = product(
            &operands.a.dequantise(),
            &operands.b.dequantise(),
            rows,
            n,
            depth,
        );
        let (mut a, b) = (magnitudes(&operands.a), magnitudes(&operands.b));
        let mut magnitude = product(&a, &b, rows, n, depth);
        for ((want, magnitude), &c) in want.iter_mut().zip(&mut magnitude).zip(&operands.c) {
            *want += f64::from(c);
            *magnitude += f64::from(c.abs());
        }
        let weighted = match arithmetic.truncation_weights() {
            None => Vec::new(),
            Some(weights) => {
                for row in a.chunks_mut(depth.max(1)) {
                    row.iter_mut().zip(&weights).for_each(|(a, w)| *a *= w);
                }
                product(&a, &b, rows, n, depth)
            }
        };
        SegmentReference {
            arithmetic,
            want,
            held: operands.c.iter().map(|&c| f64::from(c)).collect(),
            magnitude,
            weighted,
        }
    }

    /// Error before output rounding at element `i`.
    pub fn accumulation(&self, i: usize) -> f64 {
        self.arithmetic
            .accumulation(self.magnitude[i], self.weighted_at(i))
    }

    /// The interval of element `i`, whose error before output rounding is given.
    pub fn bound(&self, i: usize, accumulation: f64) -> Bound {
        let held = self.held.get(i).copied().unwrap_or(0.0);
        self.arithmetic.bound_over(self.want[i], held, accumulation)
    }

    pub fn weighted_at(&self, i: usize) -> f64 {
        self.weighted.get(i).copied().unwrap_or(0.0)
    }
}

/// The references of all groups, in order.
pub fn compute(
    problem: &Problem,
    operands: &Operands,
    accumulator: Accumulator,
) -> Vec<SegmentReference> {
    operands
        .segments
        .iter()
        .map(|segment| SegmentReference::compute(problem, segment, accumulator))
        .collect()
}

/// The product of the operands before quantising, for gates that compare with it.
/// `None` where the codes were made directly.
pub fn unquantised(problem: &Problem, operands: &Operands) -> Option<Vec<Vec<f64>>> {
    let widen = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<f64>>();
    operands
        .segments
        .iter()
        .map(|s| {
            let (rows, depth) = (s.segment.rows, s.segment.depth);
            if s.raw_a.len() != rows * depth || s.raw_b.len() != problem.n * depth {
                return None;
            }
            let mut want = product(&widen(&s.raw_a), &widen(&s.raw_b), rows, problem.n, depth);
            for (want, &c) in want.iter_mut().zip(&s.c) {
                *want += f64::from(c);
            }
            Some(want)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::case::Case;
    use crate::gemm::inputs::Input;
    use crate::gemm::problem::{Form, fp4_recipes};
    use crate::lowp::OutputType;

    /// Element (row, col) the slow way, from codes and scales.
    fn dot(s: &SegmentOperands, row: usize, col: usize) -> f64 {
        (0..s.segment.depth)
            .rev()
            .map(|k| {
                let a = s.a.recipe.format.decode(s.a.codes[row * s.a.cols + k]);
                let b = s.b.recipe.format.decode(s.b.codes[col * s.b.cols + k]);
                f64::from(a)
                    * f64::from(s.a.scale_at(row, k))
                    * f64::from(b)
                    * f64::from(s.b.scale_at(col, k))
            })
            .sum()
    }

    #[test]
    fn the_product_equals_a_plain_loop_for_every_form() {
        let base = Problem::dense(9, 133, 301, OutputType::F32);
        let problems = [
            base.clone(),
            base.clone().with_recipes(fp4_recipes()),
            base.clone().with_form(Form::Contiguous {
                rows: vec![3, 0, 5],
            }),
            base.clone().with_form(Form::Masked {
                max_rows: 6,
                rows: vec![0, 6],
            }),
            base.clone()
                .with_form(Form::KGrouped {
                    depths: vec![130, 0, 17],
                })
                .accumulating(),
        ];
        for problem in problems {
            let case = Case::new("test", problem.clone(), Input::Normal, 11);
            let operands = Operands::generate(&case).unwrap();
            for (s, reference) in
                operands
                    .segments
                    .iter()
                    .zip(compute(&problem, &operands, Accumulator::Fp32))
            {
                assert_eq!(reference.want.len(), s.segment.rows * problem.n);
                for (i, &want) in reference.want.iter().enumerate() {
                    let (row, col) = (i / problem.n, i % problem.n);
                    let c = s.c.get(i).map_or(0.0, |&c| f64::from(c));
                    let slow = dot(s, row, col) + c;
                    assert!((want - slow).abs() <= 1e-12 * (1.0 + reference.magnitude[i]));
                    assert!(want.abs() <= reference.magnitude[i] * (1.0 + 1e-12));
                }
            }
        }
    }

    #[test]
    fn the_unquantised_product_exists_only_for_quantised_inputs() {
        let problem = Problem::dense(3, 4, 40, OutputType::F32);
        let operands =
            |input| Operands::generate(&Case::new("test", problem.clone(), input, 1)).unwrap();
        let normal = operands(Input::Normal);
        let raw = unquantised(&problem, &normal).unwrap();
        let shared = compute(&problem, &normal, Accumulator::Fp32);
        let gap = (raw[0][0] - shared[0].want[0]).abs();
        assert!(gap > 1e-6 && gap < 1.0, "quantisation noise of {gap}");
        assert!(unquantised(&problem, &operands(Input::Integers)).is_none());
    }
}
