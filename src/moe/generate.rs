//! Inputs of a layer by a counter-based generator: any token, any expert's weights
//! and any logit can be made again anywhere, on any rank, from the seed.
//!
//! Tokens are numbered over all ranks, so the same tokens exist whatever the number
//! of ranks. Codes and scales are made directly: quantising would add nothing to
//! what a layer's coordination is tested for. Every scale has a random mantissa, so
//! a scale at the wrong place changes the result.

use crate::gemm::inputs::{Stream, mix};
use crate::lowp::{E4M3, Granularity, Quantised, Recipe, ScaleFormat};

use super::shape::{GROUP, Shape};

/// What is generated. The discriminant separates the sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tensor {
    Token = 1,
    TokenScale,
    Gate,
    GateScale,
    Down,
    DownScale,
    Logit,
    Bias,
    Given,
    GivenWeight,
    Delay,
}

/// The state from which element i of a tensor is drawn; `unit` numbers the token
/// or the expert.
pub fn state(seed: u64, tensor: Tensor, unit: u64) -> u64 {
    mix(mix(seed, Stream::Check, tensor as u64), Stream::Check, unit)
}

/// 64 mixed bits: the same function as in `kernels/moe_fill.cu`.
pub fn word(state: u64, index: u64) -> u64 {
    let mut x = state.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// `count` E4M3 codes of magnitude ¼ to 15/4.
pub fn codes(state: u64, count: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(count + 8);
    for index in 0..count.div_ceil(8) as u64 {
        let bytes = word(state, index).to_le_bytes();
        out.extend(bytes.map(|b| (b & 0x80) | (0x28 + (b & 0x1f))));
    }
    out.truncate(count);
    out
}

/// `count` scales in [2^(exponent − 127), 2^(exponent − 126)).
pub fn scales(state: u64, count: usize, exponent: u32) -> Vec<f32> {
    (0..count as u64)
        .map(|i| f32::from_bits((exponent << 23) | (word(state, i) >> 41) as u32))
        .collect()
}

/// Exponent field of token scales: around one half.
pub const TOKEN_EXPONENT: u32 = 126;

/// Exponent field of the scales of weights that `depth` products are summed over:
/// keeps results near one.
pub fn weight_exponent(depth: usize) -> u32 {
    // Codes have a mean square near 4; one more for the spread of the scales.
    126 - (depth.max(1).ilog2() / 2 + 1)
}

/// One of an expert's two weight matrices, K along the columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Matrix {
    /// 2·intermediate × hidden: gate, then up.
    GateUp,
    /// hidden × intermediate.
    Down,
}

impl Matrix {
    /// Rows and columns.
    pub fn size(self, shape: &Shape) -> (usize, usize) {
        match self {
            Matrix::GateUp => (2 * shape.intermediate, shape.hidden),
            Matrix::Down => (shape.hidden, shape.intermediate),
        }
    }

    /// Scales of the matrix.
    pub fn scale_count(self, shape: &Shape) -> usize {
        let (rows, cols) = self.size(shape);
        rows.div_ceil(GROUP) * cols.div_ceil(GROUP)
    }

    /// The sequences of its codes and scales.
    pub fn tensors(self) -> (Tensor, Tensor) {
        match self {
            Matrix::GateUp => (Tensor::Gate, Tensor::GateScale),
            Matrix::Down => (Tensor::Down, Tensor::DownScale),
        }
    }

    /// The matrix of one expert on the host.
    pub fn generate(self, shape: &Shape, seed: u64, expert: usize) -> Quantised {
        let (rows, cols) = self.size(shape);
        let (code, scale) = self.tensors();
        Quantised {
            rows,
            cols,
            recipe: weight_recipe(),
            codes: codes(state(seed, code, expert as u64), rows * cols),
            scales: scales(
                state(seed, scale, expert as u64),
                self.scale_count(shape),
                weight_exponent(cols),
            ),
            scale_rows: rows.div_ceil(GROUP),
            scale_cols: cols.div_ceil(GROUP),
        }
    }
}

/// 1 × 128 E4M3.
pub fn token_recipe() -> Recipe {
    Recipe::new(E4M3, Granularity::PerToken(GROUP), ScaleFormat::F32)
}

/// 128 × 128 E4M3.
pub fn weight_recipe() -> Recipe {
    Recipe::new(E4M3, Granularity::PerBlock(GROUP), ScaleFormat::F32)
}

/// The tokens of one iteration: a function of (seed, iteration, token number).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tokens {
    pub seed: u64,
}

impl Tokens {
    /// Each iteration draws from sequences of its own.
    pub fn new(seed: u64, iteration: u64) -> Tokens {
        Tokens {
            seed: mix(seed, Stream::A, iteration),
        }
    }

    /// `hidden` codes.
    pub fn codes(&self, shape: &Shape, token: usize) -> Vec<u8> {
        codes(state(self.seed, Tensor::Token, token as u64), shape.hidden)
    }

    /// One scale for each 128 columns.
    pub fn scales(&self, shape: &Shape, token: usize) -> Vec<f32> {
        scales(
            state(self.seed, Tensor::TokenScale, token as u64),
            shape.hidden_scales(),
            TOKEN_EXPONENT,
        )
    }

    /// Router logits in [−4, 4), 22 bits each: distinct values are far apart.
    pub fn logits(&self, shape: &Shape, token: usize) -> Vec<f32> {
        let state = state(self.seed, Tensor::Logit, token as u64);
        (0..shape.experts as u64)
            .map(|e| (word(state, e) >> 42) as f32 / (1u32 << 19) as f32 - 4.0)
            .collect()
    }

    /// A routing table row that no router would make: (expert, weight) a slot, the
    /// first expert named twice.
    pub fn duplicated(&self, shape: &Shape, token: usize) -> (Vec<u32>, Vec<f32>) {
        let experts = state(self.seed, Tensor::Given, token as u64);
        let mut index: Vec<u32> = (0..shape.top_k as u64)
            .map(|k| (word(experts, k) % shape.experts as u64) as u32)
            .collect();
        if shape.top_k > 1 {
            index[1] = index[0];
        }
        let weights = state(self.seed, Tensor::GivenWeight, token as u64);
        (index, scales(weights, shape.top_k, 125))
    }
}

/// The selection bias of each expert, in [−⅛, ⅛).
pub fn bias(shape: &Shape, seed: u64) -> Vec<f32> {
    let state = state(seed, Tensor::Bias, 0);
    (0..shape.experts as u64)
        .map(|e| (word(state, e) >> 44) as f32 / (1u32 << 22) as f32 - 0.125)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_finite_never_zero_and_of_both_signs() {
        let codes = codes(state(1, Tensor::Token, 0), 4099);
        assert_eq!(codes.len(), 4099);
        let values: Vec<f32> = codes.iter().map(|&code| E4M3.decode(code)).collect();
        assert!(values.iter().all(|v| (0.25..=3.75).contains(&v.abs())));
        assert!(values.iter().any(|&v| v < 0.0) && values.iter().any(|&v| v > 0.0));
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        assert!(mean.abs() < 0.1, "{mean}");
    }

    #[test]
    fn tensors_units_iterations_and_seeds_draw_from_different_sequences() {
        let mut states = Vec::new();
        for seed in [1, 2] {
            for tensor in [Tensor::Token, Tensor::Gate, Tensor::Logit] {
                for unit in 0..3 {
                    states.push(state(seed, tensor, unit));
                }
            }
        }
        let mut distinct = states.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), states.len());
        assert_ne!(Tokens::new(1, 0), Tokens::new(1, 1));
    }

    #[test]
    fn scales_differ_from_group_to_group_and_stay_in_their_binade() {
        let scales = scales(state(3, Tensor::TokenScale, 5), 1000, TOKEN_EXPONENT);
        assert!(scales.iter().all(|s| (0.5..1.0).contains(s)));
        assert!(scales.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn a_given_routing_names_an_expert_twice() {
        let shape = Shape::small(8);
        let (index, weight) = Tokens::new(1, 0).duplicated(&shape, 7);
        assert_eq!(index[0], index[1]);
        assert!(index.iter().all(|&e| (e as usize) < shape.experts));
        assert!(weight.iter().all(|w| (0.25..0.5).contains(w)));
    }
}
