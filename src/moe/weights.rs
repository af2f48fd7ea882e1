//! The weights of a rank's experts, filled on the device.

use std::ops::Range;

use anyhow::{Context, Result};

use super::arena::Slot;
use super::generate::{Matrix, state, weight_exponent};
use super::shape::Shape;
use crate::device::{Argument, Device, Launch};
use crate::kernels::MOE_FILL;

/// Codes and scales of both matrices, expert after expert.
pub struct Weights {
    codes: [Slot<u8>; 2],
    scales: [Slot<f32>; 2],
}

const THREADS: u32 = 256;

impl Weights {
    pub fn fill(
        device: &Device,
        shape: &Shape,
        seed: u64,
        experts: Range<usize>,
    ) -> Result<Weights> {
        let module = device.load(&MOE_FILL)?;
        let (codes_kernel, scales_kernel) =
            (module.kernel("fillCodes")?, module.kernel("fillScales")?);
        let mut weights = Weights {
            codes: Default::default(),
            scales: Default::default(),
        };
        for (at, matrix) in [Matrix::GateUp, Matrix::Down].into_iter().enumerate() {
            let (rows, cols) = matrix.size(shape);
            let (codes, scales) = (rows * cols, matrix.scale_count(shape));
            weights.codes[at].reserve(device, experts.len() * codes)?;
            weights.scales[at].reserve(device, experts.len() * scales)?;
            let (code, scale) = matrix.tensors();
            for (local, expert) in experts.clone().enumerate() {
                let unit = expert as u64;
                let to = weights.codes[at].address() + (local * codes) as u64;
                let arguments: [&dyn Argument; 3] =
                    [&to, &state(seed, code, unit), &(codes as u64)];
                codes_kernel.launch(launch(codes)?, &arguments)?;
                let to = weights.scales[at].address() + 4 * (local * scales) as u64;
                let arguments: [&dyn Argument; 4] = [
                    &to,
                    &state(seed, scale, unit),
                    &(scales as u64),
                    &weight_exponent(cols),
                ];
                scales_kernel.launch(launch(scales)?, &arguments)?;
            }
        }
        device.synchronize()?;
        Ok(weights)
    }

    /// Addresses of codes and scales.
    pub fn addresses(&self, matrix: Matrix) -> (u64, u64) {
        let at = usize::from(matrix == Matrix::Down);
        (self.codes[at].address(), self.scales[at].address())
    }
}

fn launch(elements: usize) -> Result<Launch> {
    let blocks = u32::try_from(elements.div_ceil(THREADS as usize));
    Ok(Launch::linear(blocks.context("blocks of a fill")?, THREADS))
}
