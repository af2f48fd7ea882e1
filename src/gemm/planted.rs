//! Planted faults and their twins as subjects.

use anyhow::Result;

use std::cell::OnceCell;

use super::bound::Accumulator;
use super::cublaslt::CublasLt;
use super::faults::{Fault, Specimen, WrongLaunch};
use super::problem::Problem;
use super::simt::{Block, launch_contract};
use super::subject::{DeviceOperands, Group, Subject};
use super::wgmma::Wgmma;
use crate::device::{Device, DeviceError, LtError, Module};
use crate::kernels::{GEMM_FAULTS, GEMM_SIMT};

/// A specimen and the subject that is right, or why this device has neither.
type Pair = Result<(Box<dyn Subject>, Box<dyn Subject>), String>;

/// The modules that hold faults and twins.
pub struct Plant {
    faults: Module,
    simt: Module,
    /// Loaded when first asked for: a library is slow to open.
    wgmma: OnceCell<Pair>,
    cublaslt: OnceCell<Pair>,
}

impl Plant {
    pub fn load(device: &Device) -> Result<Plant, DeviceError> {
        Ok(Plant {
            faults: device.load(&GEMM_FAULTS)?,
            simt: device.load(&GEMM_SIMT)?,
            wgmma: OnceCell::new(),
            cublaslt: OnceCell::new(),
        })
    }

    fn pair(&self, specimen: Specimen) -> &OnceCell<Pair> {
        match specimen {
            Specimen::WgmmaUnpromoted => &self.wgmma,
            Specimen::CublasLtFast => &self.cublaslt,
        }
    }

    /// Why `fault` cannot run on this device; `None` when it can. Loads what it needs:
    /// a specimen that this was not asked about refuses every problem.
    ///
    /// # Errors
    /// When what it needs is there and cannot be loaded.
    pub fn unavailable(&self, device: &Device, fault: &Fault) -> Result<Option<String>> {
        let Some(specimen) = fault.specimen else {
            return Ok(None);
        };
        let cell = self.pair(specimen);
        if cell.get().is_none() {
            let pair = match specimen {
                Specimen::WgmmaUnpromoted => wgmma(device)?,
                Specimen::CublasLtFast => cublaslt(device)?,
            };
            let _ = cell.set(pair);
        }
        Ok(cell.get().and_then(|pair| pair.as_ref().err().cloned()))
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
            specimen: fault.specimen.map(|specimen| (specimen, true)),
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
            specimen: fault.specimen.map(|specimen| (specimen, false)),
            launch: WrongLaunch::None,
            accumulator: fault.accumulator(),
            severity: 0.0,
        }
    }
}

fn wgmma(device: &Device) -> Result<Pair, DeviceError> {
    if let Some(reason) = Wgmma::unavailable(device) {
        return Ok(Err(reason));
    }
    Ok(Ok((
        Box::new(Wgmma::load_unpromoted(device)?),
        Box::new(Wgmma::load(device)?),
    )))
}

fn cublaslt(device: &Device) -> Result<Pair, LtError> {
    let open = |fast| CublasLt::open(device, fast).map(|s| Box::new(s) as Box<dyn Subject>);
    match (open(true), open(false)) {
        (Err(LtError::Absent(why)), _) => Ok(Err(LtError::Absent(why).to_string())),
        (fast, promoted) => Ok(Ok((fast?, promoted?))),
    }
}

/// A fault or a twin as a subject.
pub struct Planted<'p> {
    plant: &'p Plant,
    name: &'static str,
    kernel: &'static str,
    /// Which, and whether it is the wrong one of the pair.
    specimen: Option<(Specimen, bool)>,
    launch: WrongLaunch,
    accumulator: Accumulator,
    severity: f32,
}

impl Planted<'_> {
    /// Where the launch is forgotten, other suites see the last call's result.
    pub fn is_forgotten(&self) -> bool {
        self.launch == WrongLaunch::Forgotten
    }

    /// The subject that a specimen is, or why there is none.
    fn stands_for(&self) -> Option<Result<&dyn Subject, String>> {
        let (specimen, wrong) = self.specimen?;
        Some(match self.plant.pair(specimen).get() {
            None => Err(format!("{} was not loaded", self.name)),
            Some(Err(reason)) => Err(reason.clone()),
            Some(Ok(pair)) => Ok(if wrong { &*pair.0 } else { &*pair.1 }),
        })
    }
}

impl Subject for Planted<'_> {
    fn name(&self) -> &str {
        self.name
    }

    fn refusal(&self, problem: &Problem) -> Option<String> {
        match self.stands_for()? {
            Ok(subject) => subject.refusal(problem),
            Err(reason) => Some(reason),
        }
    }

    fn accumulator(&self, problem: &Problem) -> Accumulator {
        match self.stands_for() {
            Some(Ok(subject)) => subject.accumulator(problem),
            _ => self.accumulator,
        }
    }

    fn tile(&self, problem: &Problem) -> (usize, usize) {
        match self.stands_for() {
            Some(Ok(subject)) => subject.tile(problem),
            _ => (32, 32),
        }
    }

    fn launch(&self, device: &Device, problem: &Problem, operands: &DeviceOperands) -> Result<()> {
        if let Some(subject) = self.stands_for() {
            return subject
                .map_err(anyhow::Error::msg)?
                .launch(device, problem, operands);
        }
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
