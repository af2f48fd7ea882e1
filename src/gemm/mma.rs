//! The subject `mma`: our tensor-core kernels through `mma.sync`, from
//! `kernels/gemm_mma.cu` and `kernels/gemm_mma_widened.cu`.

use anyhow::Result;

use super::bound::Accumulator;
use super::problem::Problem;
use super::simt::{Block, is_large, launch_contract, shifts, unread_scales};
use super::subject::{DeviceOperands, Subject};
use crate::device::{Device, DeviceError, Module};
use crate::kernels::{GEMM_MMA, GEMM_MMA_WIDENED};
use crate::lowp::E4M3;

/// One kernel of the subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variant {
    pub kernel: &'static str,
    /// Rows and columns of C that a block makes.
    pub tile: (usize, usize),
    /// Steps along k that are loaded at once, and how many are held.
    pub step: usize,
    pub stages: usize,
    pub warps: usize,
    shared_bytes: u32,
}

const SMALL: Variant = Variant {
    kernel: "mmaFp8",
    tile: (64, 64),
    step: 64,
    stages: 2,
    warps: 4,
    shared_bytes: 0,
};

const LARGE: Variant = Variant {
    kernel: "mmaFp8Large",
    tile: (128, 128),
    step: 64,
    stages: 3,
    warps: 8,
    shared_bytes: 0,
};

const WIDENED: Variant = Variant {
    kernel: "mmaFp8Widened",
    tile: (64, 128),
    step: 128,
    stages: 3,
    warps: 4,
    shared_bytes: (64 + 128) * 128 * 3,
};

/// The tensor-core kernels: FP8 × FP8, k a multiple of 16.
pub struct Mma {
    module: Module,
    /// The kernel that unpacks to FP16 itself, where `mma.sync` has no FP8 multiplier.
    widened: Option<Module>,
}

impl Mma {
    /// # Errors
    /// [`DeviceError::PtxRejected`] on a device below sm_89.
    pub fn load(device: &Device) -> Result<Mma, DeviceError> {
        let unpacks = device.info().compute_capability.0 == 9;
        Ok(Mma {
            widened: unpacks
                .then(|| device.load(&GEMM_MMA_WIDENED))
                .transpose()?,
            ..Mma::native(device)?
        })
    }

    /// Multiplies by `mma.sync` on FP8 alone, also where the compiler unpacks it.
    ///
    /// # Errors
    /// As [`Mma::load`].
    pub fn native(device: &Device) -> Result<Mma, DeviceError> {
        Ok(Mma {
            module: device.load(&GEMM_MMA)?,
            widened: None,
        })
    }

    /// The kernel that a problem is given to.
    pub fn variant(&self, problem: &Problem) -> Variant {
        match is_large(problem) {
            false => SMALL,
            true if self.widened.is_some() && suits_widened(problem) => WIDENED,
            true => LARGE,
        }
    }
}

/// The widened kernel promotes every 128 of k and reads one scale of B for 64 columns.
fn suits_widened(problem: &Problem) -> bool {
    match (shifts(&problem.a), shifts(&problem.b)) {
        (Some((_, a_k)), Some((b_n, b_k))) => a_k >= 7 && b_k >= 7 && b_n >= 6,
        _ => false,
    }
}

impl Subject for Mma {
    fn name(&self) -> &str {
        "mma"
    }

    fn refusal(&self, problem: &Problem) -> Option<String> {
        if problem.a.format != E4M3 || problem.b.format != E4M3 {
            return Some("mma reads E4M3 x E4M3".to_owned());
        }
        for recipe in [&problem.a, &problem.b] {
            if shifts(recipe).is_some_and(|(_, k)| k < 5) {
                return Some("mma multiplies 32 of k at once: groups of 16 do not fit".to_owned());
            }
        }
        if let Some(s) = problem.segments().iter().find(|s| s.depth % 16 != 0) {
            return Some(format!(
                "mma copies 16 bytes at a time: k = {} is no multiple",
                s.depth
            ));
        }
        unread_scales(problem)
    }

    /// On sm_90 FP8 is unpacked to FP16 and accumulated in FP32, by the compiler or by
    /// the kernel itself.
    fn accumulator(&self, _problem: &Problem) -> Accumulator {
        Accumulator::Fp32
    }

    fn tile(&self, problem: &Problem) -> (usize, usize) {
        self.variant(problem).tile
    }

    fn launch(&self, _: &Device, problem: &Problem, operands: &DeviceOperands) -> Result<()> {
        let variant = self.variant(problem);
        let module = match &self.widened {
            Some(widened) if variant == WIDENED => widened,
            _ => &self.module,
        };
        let block = Block {
            tile: variant.tile,
            threads: variant.warps as u32 * 32,
            shared_bytes: variant.shared_bytes,
        };
        launch_contract(
            &module.kernel(variant.kernel)?,
            block,
            problem,
            operands,
            0.0,
        )
    }
}
