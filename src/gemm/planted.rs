//! Planted faults and their twins as subjects.

use anyhow::Result;

use super::bound::Accumulator;
use super::faults::{Fault, WrongLaunch};
use super::problem::Problem;
use super::simt::{Block, launch_contract};
use super::subject::{DeviceOperands, Group, Subject};
use crate::device::{Device, DeviceError, Module};
use crate::kernels::{GEMM_FAULTS, GEMM_SIMT};

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
            let block = Block {
                tile: (32, 32),
                threads: 64,
                shared_bytes: 0,
            };
            launch_contract(&kernel, block, problem, operands, self.severity)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::problem::Form;
    use crate::lowp::OutputType;

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
