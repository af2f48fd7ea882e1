//! One group's C and how far it may be from the truth, as the kernels take them.

use crate::device::Argument;
use crate::gemm::bound::{Accumulator, Arithmetic};
use crate::gemm::case::Case;
use crate::gemm::gate::Check;
use crate::gemm::inputs::{Stream, mixed_seed};
use crate::gemm::large::operands::{Large, output_word};
use crate::gemm::operands::{c_unit, group_seed, initial_c};
use crate::gemm::sampled::LAMBDA;

/// `struct Model` of `gemm_judge.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ModelArgument {
    factor: f64,
    constant: f64,
    lambda: f64,
    c_unit: f64,
    c_seed: u64,
    kind: u32,
    rounds_product: u32,
}

/// `struct Result` of `gemm_judge.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ResultArgument {
    pub c: u64,
    pub rows: u64,
    pub n: u64,
    pub ldc: u64,
}

macro_rules! by_value {
    ($($t:ty),*) => { $(
        impl Argument for $t {
            fn bytes(&self) -> *mut std::ffi::c_void {
                std::ptr::from_ref(self).cast_mut().cast()
            }
            fn size(&self) -> usize {
                size_of::<$t>()
            }
        }
    )* };
}
by_value!(ModelArgument, ResultArgument);

/// One group of a case.
pub struct Place<'a> {
    pub case: &'a Case,
    pub group: usize,
    pub rows: usize,
    pub depth: usize,
    pub arithmetic: Arithmetic,
    /// Truncating steps that a product can pass through.
    pub weight: f64,
    pub model: ModelArgument,
    pub result: ResultArgument,
}

impl<'a> Place<'a> {
    pub fn new(case: &'a Case, large: &Large, group: usize, accumulator: Accumulator) -> Place<'a> {
        let problem = &case.problem;
        let of = &large.groups[group];
        let depth = of.depth as usize;
        let arithmetic = Arithmetic::of(problem, depth, accumulator);
        let exact = case.input.is_exact() && arithmetic.is_exact_on_integers();
        let weight = arithmetic
            .truncation_weights()
            .and_then(|weights| weights.into_iter().reduce(f64::max))
            .unwrap_or(0.0);
        let (factor, constant) = if exact {
            (0.0, 0.0)
        } else {
            let constant = arithmetic.accumulation(0.0, 0.0);
            (arithmetic.accumulation(1.0, weight) - constant, constant)
        };
        let unit = if problem.accumulate {
            f64::from(c_unit(case.input))
        } else {
            0.0
        };
        Place {
            case,
            group,
            rows: of.rows as usize,
            depth,
            arithmetic,
            weight,
            model: ModelArgument {
                factor,
                constant,
                lambda: LAMBDA,
                c_unit: unit,
                c_seed: mixed_seed(group_seed(case.seed, group), Stream::C),
                kind: output_word(problem.output),
                rounds_product: u32::from(arithmetic.rounds_product),
            },
            result: ResultArgument {
                c: large.c.address() + of.c * problem.output.size() as u64,
                rows: of.rows,
                n: problem.n as u64,
                ldc: problem.ldc() as u64,
            },
        }
    }

    /// Whether every sum is exact, so that only output rounding is allowed.
    pub fn is_exact(&self) -> bool {
        self.model.factor == 0.0
    }

    pub fn check(&self) -> Check {
        if self.is_exact() {
            Check::Exact
        } else {
            Check::Elementwise
        }
    }

    /// Error before output rounding where the magnitudes sum to `magnitude`.
    pub fn error(&self, magnitude: f64) -> f64 {
        self.model.factor * magnitude + self.model.constant
    }

    /// What C held at (row, col) before an accumulating kernel.
    pub fn held(&self, row: usize, col: usize) -> f64 {
        if !self.case.problem.accumulate {
            return 0.0;
        }
        let seed = group_seed(self.case.seed, self.group);
        let index = (row * self.case.problem.n + col) as u64;
        f64::from(initial_c(self.case.input, seed, index))
    }
}
