//! The catalogue of planted faults: wrong kernels of `kernels/gemm_faults.cu` and
//! wrong launches of the right kernel, each modelled on a fault that happens.

use anyhow::Result;

use super::bound::Accumulator;
use super::problem::{Form, Problem};
use super::simt::{Simt, launch_contract};
use super::subject::{DeviceOperands, Group, Subject};
use crate::device::{Device, DeviceError, Module};
use crate::kernels::{GEMM_FAULTS, GEMM_SIMT};
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
    /// Kernel of `gemm_faults.cu`, or of `gemm_simt.cu` for a wrong launch.
    pub kernel: &'static str,
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
        launch,
        needs,
        severity: 0.0,
        what,
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
        match self.needs {
            Needs::TensorScales => "truncatedPromoted",
            Needs::Fp4 => "simtFp4Small",
            _ => "simtFp8Small",
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

/// The modules that hold faults and twins.
pub struct Plant {
    faults: Module,
    simt: Module,
}

impl Plant {
    pub fn load(device: &Device) -> Result<Plant, DeviceError> {
        Ok(Plant {
            faults: device.load(&GEMM_FAULTS)?,
            simt: device.load(&GEMM_SIMT)?,
        })
    }

    /// The wrong kernel or launch.
    pub fn fault(&self, fault: &Fault) -> Planted<'_> {
        self.fault_of(fault, fault.severity)
    }

    /// The same with another size.
    pub fn fault_of(&self, fault: &Fault, severity: f32) -> Planted<'_> {
        Planted {
            plant: self,
            name: fault.name,
            kernel: fault.kernel,
            launch: fault.launch,
            accumulator: fault.accumulator(),
            severity,
        }
    }

    /// The kernel that is right.
    pub fn twin(&self, fault: &Fault) -> Planted<'_> {
        Planted {
            plant: self,
            name: fault.twin(),
            kernel: fault.twin(),
            launch: WrongLaunch::None,
            accumulator: fault.accumulator(),
            severity: 0.0,
        }
    }
}

/// A fault or a twin as a subject.
pub struct Planted<'p> {
    plant: &'p Plant,
    name: &'static str,
    kernel: &'static str,
    launch: WrongLaunch,
    accumulator: Accumulator,
    severity: f32,
}

impl Planted<'_> {
    /// Where the launch is forgotten, other suites see the last call's result.
    pub fn is_forgotten(&self) -> bool {
        self.launch == WrongLaunch::Forgotten
    }
}

impl Subject for Planted<'_> {
    fn name(&self) -> &str {
        self.name
    }

    fn refusal(&self, _problem: &Problem) -> Option<String> {
        None
    }

    fn accumulator(&self, _problem: &Problem) -> Accumulator {
        self.accumulator
    }

    fn tile(&self, _problem: &Problem) -> (usize, usize) {
        (32, 32)
    }

    fn launch(&self, device: &Device, problem: &Problem, operands: &DeviceOperands) -> Result<()> {
        if self.is_forgotten() {
            return Ok(());
        }
        let module = if self.kernel.starts_with("simt") {
            &self.plant.simt
        } else {
            &self.plant.faults
        };
        let kernel = module.kernel(self.kernel)?;
        let run = |operands: &DeviceOperands| {
            launch_contract(&kernel, (32, 32), 64, problem, operands, self.severity)
        };
        let wrong = match self.launch {
            WrongLaunch::GroupStartsEarly => starts_early(problem, &operands.groups),
            WrongLaunch::EmptyGroupsSkipped => weights_compacted(&operands.groups),
            _ => return run(operands),
        };
        let words: Vec<u64> = wrong.iter().flat_map(Group::words).collect();
        let table = device.upload(&words)?;
        run(&DeviceOperands {
            table: table.address(),
            groups: wrong,
            ..operands.clone()
        })?;
        // The table must outlive the launch.
        device.synchronize()?;
        Ok(())
    }
}

/// Group g > 0 takes its predecessor's last row.
fn starts_early(problem: &Problem, groups: &[Group]) -> Vec<Group> {
    let mut wrong = groups.to_vec();
    for g in 1..wrong.len() {
        if wrong[g - 1].rows == 0 || wrong[g].rows == 0 {
            continue;
        }
        wrong[g - 1].rows -= 1;
        wrong[g - 1].allocated -= 1;
        let (depth, scales) = (wrong[g].depth, wrong[g].a_scale - wrong[g - 1].a_scale);
        // One row of scales: the distance between the groups over the rows between.
        let rows_between = groups[g - 1].rows;
        wrong[g].a -= depth;
        wrong[g].a_scale -= scales / rows_between;
        wrong[g].c -= problem.ldc() as u64;
        wrong[g].rows += 1;
        wrong[g].allocated += 1;
    }
    wrong
}

/// The i-th group with rows gets the i-th weights.
fn weights_compacted(groups: &[Group]) -> Vec<Group> {
    let mut wrong = groups.to_vec();
    let mut next = 0;
    for group in &mut wrong {
        if group.rows > 0 {
            (group.b, group.b_scale) = (groups[next].b, groups[next].b_scale);
            next += 1;
        }
    }
    wrong
}

/// Whether `simt` itself would run `problem` with the small tile, as twins do.
pub fn twin_is_simt(simt: &Simt, problem: &Problem) -> bool {
    simt.tile(problem) == (32, 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lowp::OutputType;

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

    #[test]
    fn wrong_tables_differ_from_the_right_one_where_they_should() {
        let problem = Problem::dense(0, 10, 128, OutputType::F32).with_form(Form::Contiguous {
            rows: vec![3, 0, 4, 2],
        });
        let groups: Vec<Group> = [(0, 3), (3, 0), (3, 4), (7, 2)]
            .iter()
            .enumerate()
            .map(|(g, &(start, rows))| Group {
                a: start * 128,
                b: g as u64 * 1280,
                a_scale: start,
                b_scale: g as u64,
                c: start * 10,
                rows,
                depth: 128,
                allocated: rows,
            })
            .collect();
        let early = starts_early(&problem, &groups);
        assert_eq!((early[2].rows, early[3].rows), (3, 3));
        assert_eq!((early[3].a, early[3].a_scale, early[3].c), (6 * 128, 6, 60));
        let compact = weights_compacted(&groups);
        assert_eq!([compact[0].b, compact[2].b, compact[3].b], [0, 1280, 2560]);
    }
}
