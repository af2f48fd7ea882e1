//! How far a correct kernel may be from the exact result, computed element by
//! element from the arithmetic it does.
//!
//! Let u = 2^-24 and γ(n) = n·u / (1 − n·u). A product passes through at most
//! n FP32 roundings on its way into C: one for each term of its k-group (in any
//! order), one for scaleA·scaleB, one for applying it, one for each promotion,
//! and one for C's old value. So (Higham, *Accuracy and Stability*, ch. 3)
//!
//! |computed − exact| ≤ γ(n) · Σ s|ab|,  n = group + groups + 2 (+ 1).
//!
//! A coarser granularity sums more terms before it promotes: n grows with it.
//! The FP8 path of Hopper's tensor cores aligns the products of a k = 32 step and
//! the accumulator to the largest of them and cuts at 13 fractional bits (measured;
//! model of arXiv 2511.10909). With v = 2^-13 that costs, in each step,
//! v·(33·max(|ab|, |acc|) + |acc|) ≤ 34·v·(Σ|ab| up to this step).
//!
//! Rounding to the output type is monotonic, so a correct result lies between
//! round(exact − e) and round(exact + e): sharper than adding half a spacing. A
//! library that adds into a 16-bit C may round the product first and the sum again:
//! [`Arithmetic::bound_over`].
//!
//! Loose: γ is a worst case; on zero-mean data the error is some hundred times
//! smaller for FP32 and for truncation. Sound for every input and order of sums.

#[cfg(test)]
mod twice_rounded;

use super::problem::Problem;
use crate::lowp::{Granularity, OutputType, Recipe};

/// Unit roundoff of FP32.
pub const U32: f64 = 1.0 / (1u64 << 24) as f64;
/// Where the tensor core cuts, relative to the largest term.
pub const CUT: f64 = 1.0 / 8192.0;
/// Terms of one tensor-core step along k.
pub const STEP: usize = 32;

/// What a kernel adds up in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub enum Accumulator {
    /// FP32 throughout.
    Fp32,
    /// The Hopper FP8 path, its sums added into FP32 every `promote` of k.
    TruncatingPromoted { promote: usize },
    /// The same, and where C's old value is added to in 16 bits the product may be
    /// rounded to the output type first, the sum then again: cuBLASLt on an H200.
    PromotedThenRounded { promote: usize },
    /// The same without promotion: one truncating sum over all of k.
    Truncating,
}

/// The arithmetic of one group's GEMM.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Arithmetic {
    pub accumulator: Accumulator,
    pub depth: usize,
    /// Products that are summed before a scale is applied.
    pub group: usize,
    pub accumulate: bool,
    pub output: OutputType,
    /// The product may be rounded to `output` before C's old value is added.
    pub rounds_product: bool,
}

/// The interval in which a correct result lies, and what it is made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound {
    /// Error before output rounding.
    pub accumulation: f64,
    pub low: f64,
    pub high: f64,
}

/// γ(n) = n·u / (1 − n·u).
pub fn gamma(n: usize) -> f64 {
    let nu = n as f64 * U32;
    assert!(nu < 1.0, "{n} roundings leave no correct digit in FP32");
    nu / (1.0 - nu)
}

/// k between two promotions of a kernel that applies `recipe`'s scales.
pub fn group_along_k(recipe: &Recipe) -> usize {
    match recipe.granularity {
        Granularity::PerToken(g) | Granularity::PerBlock(g) => g,
        Granularity::PerChannel(_) => 1,
        Granularity::Tensor => usize::MAX,
    }
}

impl Arithmetic {
    /// The arithmetic of `problem` for a group of `depth`.
    pub fn of(problem: &Problem, depth: usize, accumulator: Accumulator) -> Arithmetic {
        let limit = match accumulator {
            Accumulator::Fp32 => 128,
            Accumulator::TruncatingPromoted { promote }
            | Accumulator::PromotedThenRounded { promote } => promote,
            Accumulator::Truncating => usize::MAX,
        };
        let scaled = group_along_k(&problem.a).min(group_along_k(&problem.b));
        Arithmetic {
            accumulator,
            depth,
            group: scaled.min(limit).min(depth).max(1),
            accumulate: problem.accumulate,
            output: problem.output,
            rounds_product: problem.accumulate
                && problem.output != OutputType::F32
                && matches!(accumulator, Accumulator::PromotedThenRounded { .. }),
        }
    }

    /// FP32 roundings that one product can pass through.
    pub fn roundings(&self) -> usize {
        let inside = match self.accumulator {
            Accumulator::Fp32 => self.group,
            // Sums inside the tensor core are cut, not rounded: counted apart.
            _ => 1,
        };
        inside + self.depth.div_ceil(self.group) + 2 + usize::from(self.accumulate)
    }

    /// For each k, how many truncating steps see its product; `None` in FP32.
    /// Σ weight·|ab| is the sum over steps of Σ|ab| up to the step.
    pub fn truncation_weights(&self) -> Option<Vec<f64>> {
        if self.accumulator == Accumulator::Fp32 {
            return None;
        }
        let weight = |k: usize| {
            let start = k / self.group * self.group;
            let end = (start + self.group).min(self.depth);
            (end - start).div_ceil(STEP) - (k - start) / STEP
        };
        Some((0..self.depth).map(|k| weight(k) as f64).collect())
    }

    /// Whether sums of small integers are exact, so that the gate is zero.
    pub fn is_exact_on_integers(&self) -> bool {
        self.accumulator != Accumulator::Truncating
    }

    /// Error before output rounding, from Σ s|ab| (plus |C|) and the weighted sum.
    pub fn accumulation(&self, magnitude: f64, weighted: f64) -> f64 {
        // The f64 reference itself, and floats below the normal range.
        let reference = (self.depth as f64 + 3.0) * f64::EPSILON * magnitude;
        let underflow = self.depth.div_ceil(self.group) as f64 * 2f64.powi(-125);
        gamma(self.roundings()) * magnitude
            + 34.0 * CUT * (1.0 + CUT) * weighted
            + reference
            + underflow
    }

    /// The interval for an element whose exact value is `want`.
    pub fn bound(&self, want: f64, accumulation: f64) -> Bound {
        Bound {
            accumulation,
            low: self.rounded(want - accumulation),
            high: self.rounded(want + accumulation),
        }
    }

    /// The interval for an element whose exact value, C's old value `held` included,
    /// is `want`.
    ///
    /// Where the product may be rounded first, the interval spans both ways: one
    /// rounding, and round(round(product ± e) + held ± e). The second is at most half
    /// a spacing at the product and half a spacing at the sum away from `want` ± 2e.
    pub fn bound_over(&self, want: f64, held: f64, accumulation: f64) -> Bound {
        let once = self.bound(want, accumulation);
        if !self.rounds_product {
            return once;
        }
        let twice = |error: f64| self.rounded(self.rounded(want - held + error) + held + error);
        Bound {
            low: once.low.min(twice(-accumulation)),
            high: once.high.max(twice(accumulation)),
            ..once
        }
    }

    /// What rounding a product of 16 bits costs a result `got` that was made from it
    /// and from C's old value `held`; zero where the product is not rounded.
    pub fn product_rounding(&self, got: f64, held: f64) -> f64 {
        if !self.rounds_product {
            return 0.0;
        }
        // The sum was within half a spacing of `got`, and `held` is known exactly.
        let product = (got - held).abs() + self.output.half_ulp(got);
        self.output.half_ulp(product)
    }

    /// How often a result is rounded to the output type, in words.
    pub fn output_roundings(&self) -> &'static str {
        if self.rounds_product {
            "rounded once or, with C's old value added to a rounded product, twice"
        } else {
            "rounded once"
        }
    }

    /// The same where every sum is exact.
    pub fn explain_exact(&self) -> String {
        format!(
            "integers: every sum is exact; {} to {}: no other tolerance",
            self.output_roundings(),
            self.output.name()
        )
    }

    /// Nearest value of the output type; the interval's ends only.
    fn rounded(&self, x: f64) -> f64 {
        match self.output {
            // Stored as it was computed: no further rounding, and rounding the
            // ends to f32 inwards could exclude nothing an f32 can be.
            OutputType::F32 => x,
            output => output.round_wide(x),
        }
    }

    /// The sentence that derives the bound of one element.
    pub fn explain(&self, want: f64, magnitude: f64, weighted: f64, bound: &Bound) -> String {
        let n = self.roundings();
        let inside = match self.accumulator {
            Accumulator::Fp32 => self.group,
            _ => 1,
        };
        let c = if self.accumulate { " + 1 (C)" } else { "" };
        let mut text = format!(
            "n = {inside} (k-group) + {} (promotions) + 2 (scales){c} = {n}; \
             gamma(n) = {:.4e}; sum s|ab| = {magnitude:.6e}; product {:.4e}",
            self.depth.div_ceil(self.group),
            gamma(n),
            gamma(n) * magnitude
        );
        if self.accumulator != Accumulator::Fp32 {
            text += &format!(
                "; truncation 34 * 2^-13 * {weighted:.6e} = {:.4e}",
                34.0 * CUT * weighted
            );
        }
        text + &format!(
            "; error before rounding <= {:.4e}; {} to {}: [{:.9e}, {:.9e}] around {want:.9e}",
            bound.accumulation,
            self.output_roundings(),
            self.output.name(),
            bound.low,
            bound.high
        )
    }
}

impl Bound {
    /// Whether `got` may be the result of a correct kernel. NaN never is.
    pub fn admits(&self, got: f64) -> bool {
        self.low <= got && got <= self.high
    }

    /// The largest distance from `want` that is admitted.
    pub fn reach(&self, want: f64) -> f64 {
        (self.high - want).max(want - self.low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::problem::{fp4_recipes, tensor_recipes};

    fn fp32(problem: &Problem) -> Arithmetic {
        Arithmetic::of(problem, problem.k, Accumulator::Fp32)
    }

    #[test]
    fn roundings_are_counted_from_depth_granularity_and_accumulation() {
        let problem = Problem::dense(1, 1, 16384, OutputType::F32);
        assert_eq!(fp32(&problem).roundings(), 128 + 128 + 2);
        assert_eq!(fp32(&problem.clone().accumulating()).roundings(), 259);
        // Groups of 32: fewer terms inside, more promotions.
        assert_eq!(
            fp32(&problem.with_recipes(fp4_recipes())).roundings(),
            32 + 512 + 2
        );
        let short = Problem::dense(1, 1, 5, OutputType::F32);
        assert_eq!(fp32(&short).roundings(), 5 + 1 + 2);
    }

    #[test]
    fn a_coarser_group_gives_a_looser_bound_at_the_same_depth() {
        let depth = 128;
        let bound = |group| {
            let problem = Problem::dense(1, 1, depth, OutputType::F32);
            Arithmetic {
                group,
                ..fp32(&problem)
            }
            .accumulation(1.0, 0.0)
        };
        assert!(bound(16) < bound(32) && bound(32) < bound(64) && bound(64) < bound(128));
    }

    #[test]
    fn truncation_weights_count_the_steps_from_a_product_to_its_promotion() {
        let problem = Problem::dense(1, 1, 200, OutputType::F32).with_recipes(tensor_recipes());
        let promoted = Accumulator::TruncatingPromoted { promote: 128 };
        let weights = Arithmetic::of(&problem, 200, promoted)
            .truncation_weights()
            .unwrap();
        let at = |k: usize| weights[k];
        assert_eq!([at(0), at(31), at(32), at(127)], [4.0, 4.0, 3.0, 1.0]);
        // The ragged group has 72 products: three steps.
        assert_eq!([at(128), at(160), at(199)], [3.0, 2.0, 1.0]);
        let never = Arithmetic::of(&problem, 200, Accumulator::Truncating);
        assert_eq!(never.truncation_weights().unwrap()[0], 7.0);
    }

    #[test]
    fn an_output_type_turns_the_error_into_an_interval_of_its_values() {
        let problem = Problem::dense(1, 1, 64, OutputType::Bf16);
        let arithmetic = fp32(&problem);
        // Far from a rounding boundary exactly one value is admitted.
        let bound = arithmetic.bound(1.001, 1e-5);
        assert_eq!((bound.low, bound.high), (1.0, 1.0));
        assert!(bound.admits(1.0) && !bound.admits(1.0078125));
        // At the boundary both neighbours are.
        let bound = arithmetic.bound(1.00390625, 1e-5);
        assert!(bound.admits(1.0) && bound.admits(1.0078125));
        assert!(!bound.admits(f64::NAN) && !bound.admits(f64::INFINITY));
    }

    #[test]
    fn the_explanation_shows_every_factor() {
        let problem = Problem::dense(1, 1, 256, OutputType::Bf16);
        let arithmetic = fp32(&problem);
        let bound = arithmetic.bound(2.0, arithmetic.accumulation(10.0, 0.0));
        let text = arithmetic.explain(2.0, 10.0, 0.0, &bound);
        assert!(
            text.contains("n = 128 (k-group) + 2 (promotions) + 2 (scales) = 132"),
            "{text}"
        );
        assert!(text.contains("gamma(n) = 7.86"), "{text}");
    }

    /// Simulates the FP32 kernel and the truncating tensor core on hard data, and
    /// demands that the bound holds there and is not absurdly loose.
    #[test]
    fn simulated_kernels_stay_inside_the_bound_and_reach_a_fair_part_of_it() {
        let problem = Problem::dense(1, 1, 4096, OutputType::F32);
        let products: Vec<f64> = (0..4096u64)
            .map(|i| ((i.wrapping_mul(2_654_435_761) >> 7) % 1000) as f64 / 1000.0 + 0.5)
            .map(|x| f64::from(x as f32))
            .collect();
        let exact: f64 = products.iter().sum();
        let mut fp32_sum = 0f32;
        for group in products.chunks(128) {
            fp32_sum += group.iter().fold(0f32, |sum, &x| sum + x as f32);
        }
        let bound = fp32(&problem).accumulation(exact, 0.0);
        let error = (f64::from(fp32_sum) - exact).abs();
        assert!(error <= bound, "{error} {bound}");
        assert!(
            error > bound / 10_000.0,
            "the bound is too loose to mean anything"
        );

        let cut = |x: f64, quantum: f64| (x / quantum).trunc() * quantum;
        let mut sum = 0f64;
        for step in products.chunks(STEP) {
            let largest = step.iter().fold(sum.abs(), |m, x| m.max(x.abs()));
            let quantum = 2f64.powi(largest.log2().floor() as i32 - 13);
            sum = cut(sum, quantum) + step.iter().map(|&x| cut(x, quantum)).sum::<f64>();
        }
        let never = Arithmetic::of(
            &problem.with_recipes(tensor_recipes()),
            4096,
            Accumulator::Truncating,
        );
        let weighted: f64 = never
            .truncation_weights()
            .unwrap()
            .iter()
            .zip(&products)
            .map(|(w, x)| w * x)
            .sum();
        let bound = never.accumulation(exact, weighted);
        assert!((sum - exact).abs() <= bound);
        assert!(
            (sum - exact).abs() > bound / 100.0,
            "{} {bound}",
            sum - exact
        );
    }
}
