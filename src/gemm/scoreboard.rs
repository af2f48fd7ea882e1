//! The scoreboard: every planted fault past every gate, ours and other suites'.
//!
//! A fault counts as caught by a gate when a named case makes the gate reject the
//! faulty kernel and accept its correct twin, on the same inputs. Ours see what
//! [`super::runner`] records; the others see a run over a C of zeros (fresh memory)
//! — or over the last call's result, where the launch is forgotten.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;

use super::bound::Accumulator;
use super::case::Case;
use super::check::{Limits, Strength};
use super::faults::{CATALOGUE, Fault};
use super::gate::{self, Check, Judgement, Reference, results};
use super::limits::{self, OneBlock};
use super::named::Named;
use super::operands::Operands;
use super::planted::{Plant, Planted};
use super::problem::Problem;
use super::reference::{self, SegmentReference};
use super::rivals::{Rival, View};
use super::runner::Stage;
use super::subject::{Subject, Unsupported};
use crate::device::Device;
use crate::lowp::E2M1;

/// A column of the scoreboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// Our gate as a whole.
    Ours,
    /// One of its parts alone.
    Exact,
    Elementwise,
    Global,
    /// Guards, operands, masked rows and padding, coverage.
    Memory,
    Rerun,
    Rival(Rival),
}

impl Column {
    pub fn all() -> Vec<Column> {
        let own = [
            Column::Ours,
            Column::Exact,
            Column::Elementwise,
            Column::Global,
            Column::Memory,
            Column::Rerun,
        ];
        own.into_iter()
            .chain(Rival::ALL.map(Column::Rival))
            .collect()
    }

    pub fn name(self) -> &'static str {
        match self {
            Column::Ours => "kernelgate",
            Column::Exact => "exact",
            Column::Elementwise => "elementwise",
            Column::Global => "global",
            Column::Memory => "memory",
            Column::Rerun => "rerun",
            Column::Rival(rival) => rival.name(),
        }
    }
}

/// What each column said about one run: true is accepted. In [`Column::all`]'s
/// order.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Accepted(pub Vec<bool>);

fn accepted(judgement: &Judgement, view: &View<'_>) -> Accepted {
    let memory = [
        Check::Guards,
        Check::Inputs,
        Check::Untouched,
        Check::Coverage,
    ];
    Accepted(
        Column::all()
            .into_iter()
            .map(|column| match column {
                Column::Ours => judgement.passed(),
                Column::Exact => !judgement.failed(Check::Exact),
                Column::Elementwise => !judgement.failed(Check::Elementwise),
                Column::Global => !judgement.failed(Check::Global),
                Column::Memory => !memory.iter().any(|&check| judgement.failed(check)),
                Column::Rerun => !judgement.failed(Check::Rerun),
                Column::Rival(rival) => rival.accepts(view),
            })
            .collect(),
    )
}

/// One fault on one named case.
#[derive(Debug, Clone, Serialize)]
pub struct Trial {
    pub fault: &'static str,
    pub case: String,
    pub typical: bool,
    pub twin: Accepted,
    pub faulty: Accepted,
    /// Our first finding on the faulty kernel.
    pub finding: Option<String>,
    pub replay: String,
}

impl Trial {
    /// Whether column `column` rejects the fault and accepts the twin.
    pub fn caught(&self, column: usize) -> bool {
        self.twin.0[column] && !self.faulty.0[column]
    }
}

/// False alarms over correct kernels: cases run, and rejections by column.
#[derive(Debug, Clone, Default, Serialize)]
pub struct FalseAlarms {
    pub cases: usize,
    pub rejected: Vec<usize>,
    /// What our own gate rejected.
    pub ours: Vec<String>,
}

/// A fault that this device cannot run. Not caught and not missed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Skipped {
    pub fault: &'static str,
    pub reason: String,
}

/// Everything the scoreboard prints.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Scoreboard {
    pub trials: Vec<Trial>,
    pub skipped: Vec<Skipped>,
    /// The smallest error that each gate sees; empty where they were not measured.
    pub limits: Vec<limits::Limits>,
    pub one_block: Vec<OneBlock>,
    pub alarms: FalseAlarms,
}

/// References of one case, by what the subject adds up in.
pub(super) struct Bench<'d> {
    named: Named,
    operands: Operands,
    stage: Stage<'d>,
    references: BTreeMap<Accumulator, Reference>,
    unquantised: Option<Vec<f64>>,
}

impl<'d> Bench<'d> {
    pub(super) fn new(device: &'d Device, named: &Named) -> Result<Bench<'d>> {
        let operands = Operands::generate(&named.case)?;
        Ok(Bench {
            stage: Stage::new(device, &named.case, &operands)?,
            unquantised: reference::unquantised(&named.case.problem, &operands)
                .map(|groups| groups.concat()),
            operands,
            named: named.clone(),
            references: BTreeMap::new(),
        })
    }

    /// Runs a subject and asks every column. `stale` is what the others' C held.
    pub(super) fn ask(
        &mut self,
        subject: &dyn Subject,
        stale: Option<&[u8]>,
    ) -> Result<(Accepted, Judgement, Vec<u8>)> {
        let case = &self.named.case;
        let problem = &case.problem;
        let accumulator = subject.accumulator(problem);
        if !self.references.contains_key(&accumulator) {
            let full = reference::compute(problem, &self.operands, accumulator);
            self.references.insert(accumulator, Reference::Full(full));
        }
        let run = self.stage.execute(subject)?;
        let reference = &self.references[&accumulator];
        let judgement = gate::judge(case, &self.operands, reference, &run)?;
        let zeros = vec![0; run.initial.len()];
        let before = match stale {
            Some(stale) => stale,
            None if problem.accumulate => &run.initial,
            None => &zeros,
        };
        let fresh = self.stage.run_over(subject, before)?;
        let got = results(case, &fresh).concat();
        let Reference::Full(groups) = reference else {
            anyhow::bail!("the scoreboard compares every element");
        };
        let shared = shared(problem, groups);
        let view = View {
            got: &got,
            shared: &shared,
            unquantised: self.unquantised.as_deref().unwrap_or(&shared),
            output: problem.output,
            fp4: problem.b.format == E2M1,
        };
        Ok((accepted(&judgement, &view), judgement, fresh))
    }
}

fn shared(problem: &Problem, groups: &[SegmentReference]) -> Vec<f64> {
    groups
        .iter()
        .flat_map(|group| group.want.iter().map(|&x| problem.output.round_wide(x)))
        .collect()
}

/// `None` where a library has nothing for the problem, which only its launch can tell:
/// no case of the subject's then.
fn able<T>(asked: Result<T>) -> Result<Option<T>> {
    match asked {
        Err(error) if error.downcast_ref::<Unsupported>().is_some() => Ok(None),
        asked => asked.map(Some),
    }
}

/// Runs `faults` over `cases`; `step` is told after each pair.
pub fn trials(
    device: &Device,
    faults: &[&'static Fault],
    cases: &[Named],
    mut step: impl FnMut(&str),
) -> Result<(Vec<Trial>, Vec<Skipped>)> {
    let plant = Plant::load(device)?;
    let (mut trials, mut skipped) = (Vec::new(), Vec::new());
    let mut here = Vec::new();
    for &fault in faults {
        match plant.unavailable(device, fault)? {
            None => here.push(fault),
            Some(reason) => skipped.push(Skipped {
                fault: fault.name,
                reason,
            }),
        }
    }
    for named in cases {
        let runs = |fault: &&&'static Fault| {
            named.takes(fault) && plant.fault(fault).refusal(&named.case.problem).is_none()
        };
        let applicable: Vec<_> = here.iter().filter(runs).collect();
        if applicable.is_empty() {
            continue;
        }
        let mut bench = Bench::new(device, named)?;
        // Twins are few: run each once a case.
        let mut twins: BTreeMap<&str, (Accepted, Vec<u8>)> = BTreeMap::new();
        for fault in applicable {
            step(&format!("{} on {}", fault.name, named.case.origin));
            if !twins.contains_key(fault.twin()) {
                let Some((accepted, _, c)) = able(bench.ask(&plant.twin(fault), None))? else {
                    continue;
                };
                twins.insert(fault.twin(), (accepted, c));
            }
            let (twin, twin_c) = &twins[fault.twin()];
            let planted: Planted<'_> = plant.fault(fault);
            let stale = planted.is_forgotten().then_some(twin_c.as_slice());
            let Some((faulty, judgement, _)) = able(bench.ask(&planted, stale))? else {
                continue;
            };
            trials.push(Trial {
                fault: fault.name,
                case: named.case.origin.clone(),
                typical: named.typical,
                twin: twin.clone(),
                faulty,
                finding: judgement
                    .findings
                    .first()
                    .map(|f| format!("{}: {}", f.check.name(), f.message)),
                replay: named
                    .case
                    .replay(&format!("fault:{}", fault.name), Strength::Full),
            });
        }
    }
    Ok((trials, skipped))
}

/// Runs a correct subject over `cases` and counts who rejects it.
pub fn false_alarms(
    device: &Device,
    subjects: &[&dyn Subject],
    cases: &[Case],
    limits: &Limits,
    mut step: impl FnMut(&str),
) -> Result<FalseAlarms> {
    let mut alarms = FalseAlarms {
        rejected: vec![0; Column::all().len()],
        ..FalseAlarms::default()
    };
    for case in cases {
        if case.problem.work() > limits.full {
            continue;
        }
        let named = Named {
            case: case.clone(),
            typical: false,
            specimens_only: false,
        };
        let mut bench = None;
        for subject in subjects {
            step(&format!("{} on {}", subject.name(), case.origin));
            if subject.refusal(&case.problem).is_some() {
                continue;
            }
            let bench = match &mut bench {
                Some(bench) => bench,
                none => none.insert(Bench::new(device, &named)?),
            };
            let Some((accepted, judgement, _)) = able(bench.ask(*subject, None))? else {
                continue;
            };
            alarms.cases += 1;
            for (count, accepted) in alarms.rejected.iter_mut().zip(&accepted.0) {
                *count += usize::from(!accepted);
            }
            if let Some(finding) = judgement.findings.first() {
                alarms.ours.push(format!(
                    "{} {}: {}; {}",
                    subject.name(),
                    finding.check.name(),
                    finding.message,
                    case.replay(subject.name(), Strength::Full)
                ));
            }
        }
    }
    Ok(alarms)
}

impl Scoreboard {
    /// Trials of one fault.
    pub fn of<'a>(&'a self, fault: &'a str) -> impl Iterator<Item = &'a Trial> + 'a {
        self.trials.iter().filter(move |trial| trial.fault == fault)
    }

    /// (caught on typical inputs, typical cases, caught, cases) of a fault.
    pub fn rate(&self, fault: &str, column: usize) -> (usize, usize, usize, usize) {
        let mut rate = (0, 0, 0, 0);
        for trial in self.of(fault) {
            let caught = usize::from(trial.caught(column));
            rate.2 += caught;
            rate.3 += 1;
            if trial.typical {
                rate.0 += caught;
                rate.1 += 1;
            }
        }
        rate
    }

    /// Faults that were run.
    pub fn faults(&self) -> Vec<&'static str> {
        let ran = |fault: &&Fault| self.trials.iter().any(|trial| trial.fault == fault.name);
        CATALOGUE
            .iter()
            .filter(ran)
            .map(|fault| fault.name)
            .collect()
    }

    /// Faults that our gate misses on every case.
    pub fn missed(&self) -> Vec<&'static str> {
        self.faults()
            .into_iter()
            .filter(|fault| self.rate(fault, 0).2 == 0)
            .collect()
    }

    /// Our gate caught everything and rejected nothing that is right.
    pub fn holds(&self) -> bool {
        !self.trials.is_empty()
            && self.missed().is_empty()
            && self.alarms.cases > 0
            && self.alarms.rejected.first() == Some(&0)
    }
}
