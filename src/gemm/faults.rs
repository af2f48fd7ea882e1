//! The catalogue of planted faults: wrong kernels of `kernels/gemm_faults.cu` and
//! wrong launches of the right kernel, each modelled on a fault that happens.

use super::bound::Accumulator;
use super::problem::{Form, Problem};
use crate::lowp::{E2M1, Granularity};

/// What is wrong about the launch, where the kernel is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WrongLaunch {
    None,
    /// The kernel is never launched; C keeps what it held.
    Forgotten,
    /// Each group after the first starts one row early: the last token of a group
    /// meets the next group's weights.
    GroupStartsEarly,
    /// Empty groups are left out when weights are counted.
    EmptyGroupsSkipped,
}

/// A fault that needs a device or a library of its own: its subject is wrong on
/// purpose, and the right one stands beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Specimen {
    /// Our Hopper kernel without promotion, beside `wgmma`.
    WgmmaUnpromoted,
    /// cuBLASLt's fast accumulation, beside `cublaslt`.
    CublasLtFast,
}

/// Problems on which a fault can show at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    Fp8,
    Fp4,
    /// One scale for all of k: the truncating kernels apply theirs once.
    TensorScales,
    Contiguous,
    Masked,
}

/// One planted fault.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    pub name: &'static str,
    /// Kernel of `gemm_faults.cu`, or of `gemm_simt.cu` for a wrong launch; empty for
    /// a specimen.
    pub kernel: &'static str,
    /// What it needs beside any device; `None` runs everywhere.
    pub specimen: Option<Specimen>,
    pub launch: WrongLaunch,
    pub needs: Needs,
    /// Relative size, for the faults that have one.
    pub severity: f32,
    /// What happens to whom.
    pub what: &'static str,
}

const fn kernel(name: &'static str, kernel: &'static str, what: &'static str) -> Fault {
    Fault {
        name,
        kernel,
        specimen: None,
        launch: WrongLaunch::None,
        needs: Needs::Fp8,
        severity: 0.0,
        what,
    }
}

const fn needing(needs: Needs, fault: Fault) -> Fault {
    Fault { needs, ..fault }
}

const fn launch(
    name: &'static str,
    launch: WrongLaunch,
    needs: Needs,
    what: &'static str,
) -> Fault {
    Fault {
        name,
        kernel: "simtFp8Small",
        specimen: None,
        launch,
        needs,
        severity: 0.0,
        what,
    }
}

const fn specimen(name: &'static str, specimen: Specimen, what: &'static str) -> Fault {
    Fault {
        specimen: Some(specimen),
        ..needing(Needs::TensorScales, kernel(name, "", what))
    }
}

/// Every planted fault.
pub const CATALOGUE: &[Fault] = &[
    kernel(
        "last-k-dropped",
        "dropLastK",
        "the loop over k ends one early",
    ),
    kernel(
        "ragged-k-dropped",
        "dropRaggedTail",
        "k is rounded down to whole groups of 128",
    ),
    kernel(
        "ragged-k-repeated",
        "repeatTail",
        "loads past k are clamped, not zeroed",
    ),
    kernel(
        "neighbour-b-scale",
        "neighbourBScale",
        "B's scale comes from the next block of n",
    ),
    kernel(
        "frozen-a-scale",
        "frozenAScale",
        "A's scale of the first k-group serves all",
    ),
    kernel("inverted-scale", "invertedScale", "divides by A's scale"),
    Fault {
        severity: 0.02,
        ..kernel(
            "scale-2-percent",
            "scaleOff",
            "B's scales are 2 % too large",
        )
    },
    Fault {
        severity: 0.02,
        ..kernel(
            "one-block-scale",
            "oneBlockScale",
            "one 128 x 128 scale of B is 2 % too large",
        )
    },
    kernel(
        "ue8m0-not-requantised",
        "roundedScale",
        "A's scale is rounded to a power of two, its codes are not",
    ),
    kernel(
        "denormal-scale-flushed",
        "flushedScale",
        "compiled with flush-to-zero",
    ),
    kernel(
        "scale-stride",
        "scaleStride",
        "k/128 rounded down is the stride of A's scales",
    ),
    kernel("wild-element", "wildElement", "one element is 1000"),
    kernel("zero-tile", "zeroTile", "one tile is zero"),
    kernel(
        "ragged-rows-unwritten",
        "rowsUnwritten",
        "a tile that sticks out past m is not stored",
    ),
    kernel(
        "sparse-zeros",
        "sparseZeros",
        "one element in 2,000 is zero",
    ),
    needing(
        Needs::TensorScales,
        kernel(
            "missing-promotion",
            "truncated",
            "tensor-core sums are never promoted to FP32",
        ),
    ),
    kernel(
        "bf16-accumulator",
        "bf16Accumulate",
        "the total is kept in BF16",
    ),
    kernel("store-past-n", "storePastN", "the column guard is <= n"),
    kernel("one-nan", "oneNan", "the last element is NaN"),
    launch(
        "stale-output",
        WrongLaunch::Forgotten,
        Needs::Fp8,
        "the kernel is not launched; C holds the last call's result",
    ),
    kernel(
        "always-accumulates",
        "alwaysAccumulate",
        "adds to whatever C held",
    ),
    kernel(
        "never-accumulates",
        "neverAccumulate",
        "C's old value is overwritten",
    ),
    kernel(
        "missing-barrier",
        "missingBarrier",
        "the double buffer is read before it is full",
    ),
    kernel(
        "order-by-arrival",
        "arrivalOrder",
        "the order of k-groups follows a counter that nothing resets",
    ),
    launch(
        "neighbour-weights",
        WrongLaunch::GroupStartsEarly,
        Needs::Contiguous,
        "the last token of a group meets the next group's weights",
    ),
    launch(
        "empty-groups-skipped",
        WrongLaunch::EmptyGroupsSkipped,
        Needs::Contiguous,
        "weights are counted without the empty groups",
    ),
    needing(
        Needs::Masked,
        kernel(
            "masked-rows-written",
            "maskIgnored",
            "rows past the count are computed and stored",
        ),
    ),
    needing(
        Needs::Fp4,
        kernel(
            "nibbles-swapped",
            "nibblesSwapped",
            "the high nibble is taken for the even element",
        ),
    ),
    needing(
        Needs::Fp4,
        kernel(
            "coarse-fp4-scale",
            "coarseFp4Scale",
            "one FP4 scale serves 128 elements, not 32",
        ),
    ),
    kernel("ties-up", "tiesUp", "BF16 halfway cases go up, not to even"),
    kernel(
        "output-truncated",
        "truncatedOutput",
        "BF16 output is cut, not rounded",
    ),
    kernel(
        "subnormal-codes",
        "subnormalCodes",
        "subnormal E4M3 codes count as zero",
    ),
    kernel(
        "columns-swapped",
        "swappedColumns",
        "neighbouring columns of the last tile change places",
    ),
    specimen(
        "wgmma-unpromoted",
        Specimen::WgmmaUnpromoted,
        "Hopper's tensor cores sum over all of k",
    ),
    specimen(
        "cublaslt-fast",
        Specimen::CublasLtFast,
        "the vendor's fast accumulation where promotion is claimed",
    ),
];

impl Fault {
    /// Whether the fault can be run on `problem` and differ from its twin there.
    pub fn applies(&self, problem: &Problem) -> bool {
        let fp4 = problem.b.format == E2M1;
        let tensor = problem.a.granularity == Granularity::Tensor;
        match self.needs {
            Needs::Fp4 => fp4,
            Needs::TensorScales => tensor && !fp4,
            Needs::Fp8 => !fp4,
            Needs::Contiguous => !fp4 && matches!(problem.form, Form::Contiguous { .. }),
            Needs::Masked => !fp4 && matches!(problem.form, Form::Masked { .. }),
        }
    }

    /// Name of the kernel that is right where this one is wrong.
    pub fn twin(&self) -> &'static str {
        match (self.specimen, self.needs) {
            (Some(Specimen::WgmmaUnpromoted), _) => "wgmma",
            (Some(Specimen::CublasLtFast), _) => "cublaslt",
            (None, needs) => match needs {
                Needs::TensorScales => "truncatedPromoted",
                Needs::Fp4 => "simtFp4Small",
                _ => "simtFp8Small",
            },
        }
    }

    /// What the twin adds up in, and so what the gate presumes.
    pub fn accumulator(&self) -> Accumulator {
        if self.needs == Needs::TensorScales {
            Accumulator::TruncatingPromoted { promote: 128 }
        } else {
            Accumulator::Fp32
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::{GEMM_FAULTS, GEMM_SIMT};

    #[test]
    fn every_fault_has_a_kernel_in_the_compiled_modules_and_no_kernel_is_left_over() {
        let planted: Vec<&str> = GEMM_FAULTS
            .ptx
            .lines()
            .filter_map(|line| line.strip_prefix(".visible .entry "))
            .map(|rest| rest.trim_end_matches('('))
            .collect();
        assert!(CATALOGUE.len() >= 20, "{} faults", CATALOGUE.len());
        for fault in CATALOGUE {
            if fault.specimen.is_some() {
                assert!(fault.kernel.is_empty(), "{}", fault.name);
                continue;
            }
            let home = if fault.launch == WrongLaunch::None {
                GEMM_FAULTS.ptx
            } else {
                GEMM_SIMT.ptx
            };
            assert!(
                home.contains(&format!(".entry {}(", fault.kernel)),
                "{}",
                fault.name
            );
        }
        for kernel in planted {
            let used = CATALOGUE
                .iter()
                .any(|f| f.kernel == kernel || f.twin() == kernel);
            assert!(used, "{kernel} is compiled and never run");
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = CATALOGUE.iter().map(|fault| fault.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CATALOGUE.len());
    }
}
