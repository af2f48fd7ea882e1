//! Detection limits: the smallest scale error that each gate turns away.
//!
//! Two faults with a size are run at 2^-1, 2^-2, … 2^-20: all of B's scales too
//! large, and one 128 × 128 scale of B too large. The limit of a gate is the last
//! size it rejects before the first that it accepts.

use std::fmt::Write;

use anyhow::{Context, Result};
use serde::Serialize;

use super::case::Case;
use super::faults::CATALOGUE;
use super::gate::Judgement;
use super::inputs::Input;
use super::named::Named;
use super::planted::Plant;
use super::problem::Problem;
use super::scoreboard::{Bench, Column};
use crate::device::Device;
use crate::lowp::OutputType;

const STEPS: i32 = 20;

/// The limits on one problem: per column, the smallest relative error it rejects.
#[derive(Debug, Clone, Serialize)]
pub struct Limits {
    pub fault: &'static str,
    pub case: String,
    pub columns: Vec<Limit>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Rejects errors of this size and larger ones.
    Rejects(f64),
    /// Accepts even an error of one half.
    Blind,
    /// Rejects the correct kernel, so that its rejections mean nothing.
    FalseAlarm,
}

/// From what a gate said to the correct kernel, and to errors from large to small.
fn limit(accepts_twin: bool, rejected: &[bool]) -> Limit {
    if !accepts_twin {
        return Limit::FalseAlarm;
    }
    match rejected.iter().take_while(|&&rejected| rejected).count() {
        0 => Limit::Blind,
        steps => Limit::Rejects(2f64.powi(-(steps as i32))),
    }
}

/// Measures all gates on an m × n × k problem, for FP32 and BF16 output.
pub fn measure(
    device: &Device,
    (m, n, k): (usize, usize, usize),
    seed: u64,
    mut step: impl FnMut(&str),
) -> Result<Vec<Limits>> {
    let plant = Plant::load(device)?;
    let mut all = Vec::new();
    for output in [OutputType::F32, OutputType::Bf16] {
        let problem = Problem::dense(m, n, k, output);
        let case = Case::new("limits", problem, Input::Normal, seed);
        let named = Named {
            case: case.clone(),
            typical: false,
            specimens_only: false,
        };
        let mut bench = Bench::new(device, &named)?;
        for name in ["scale-2-percent", "one-block-scale"] {
            let fault = CATALOGUE
                .iter()
                .find(|fault| fault.name == name)
                .with_context(|| format!("no fault {name}"))?;
            let (twin, _, _) = bench.ask(&plant.twin(fault), None)?;
            let mut rejected = vec![Vec::new(); twin.0.len()];
            for power in 1..=STEPS {
                step(&format!("{name} of 2^-{power}, {}", output.name()));
                let faulty = plant.fault_of(fault, 2f32.powi(-power));
                let (accepted, _, _) = bench.ask(&faulty, None)?;
                for (column, accepted) in rejected.iter_mut().zip(accepted.0) {
                    column.push(!accepted);
                }
            }
            let columns = twin
                .0
                .iter()
                .zip(&rejected)
                .map(|(&twin, r)| limit(twin, r))
                .collect();
            all.push(Limits {
                fault: name,
                case: case.to_string(),
                columns,
            });
        }
    }
    Ok(all)
}

/// The case that suites are blind to: one 128 × 128 scale 2 % off at k = 16,384.
#[derive(Debug, Clone, Serialize)]
pub struct OneBlock {
    pub case: String,
    /// calc_diff of the right kernel, and of the wrong one.
    pub calc_diff: (f64, f64),
    /// Gates that accept the right kernel and reject the wrong one.
    pub seen_by: Vec<&'static str>,
}

/// k of [`one_block`] and of the limits on a scoreboard.
pub const DEEP: usize = 16384;
/// Problem of the limits on a scoreboard: as deep as suites go, narrow enough for the
/// CPU driver.
pub const SHAPE: (usize, usize, usize) = (4, 128, DEEP);

/// Who sees one scale of [`DEEP`]/128 that is 2 % off: normal inputs and integers.
pub fn one_block(device: &Device, seed: u64, mut step: impl FnMut(&str)) -> Result<Vec<OneBlock>> {
    let plant = Plant::load(device)?;
    let fault = CATALOGUE
        .iter()
        .find(|fault| fault.name == "one-block-scale")
        .context("no fault one-block-scale")?;
    let mut all = Vec::new();
    for (input, output) in ONE_BLOCK {
        step(&format!("one scale of {}, {}", input.name(), output.name()));
        // Two blocks of n: the other column of scales is right.
        let problem = Problem::dense(SHAPE.0, 2 * SHAPE.1, DEEP, output);
        let named = Named {
            case: Case::new("one block", problem, input, seed),
            typical: false,
            specimens_only: false,
        };
        let mut bench = Bench::new(device, &named)?;
        let (twin, right, _) = bench.ask(&plant.twin(fault), None)?;
        let (faulty, wrong, _) = bench.ask(&plant.fault(fault), None)?;
        let calc = |judgement: &Judgement| judgement.global.map_or(f64::NAN, |(calc, _)| calc);
        all.push(OneBlock {
            case: named.case.to_string(),
            calc_diff: (calc(&right), calc(&wrong)),
            seen_by: Column::all()
                .into_iter()
                .zip(twin.0.iter().zip(&faulty.0))
                .filter(|(_, (twin, faulty))| **twin && !**faulty)
                .map(|(column, _)| column.name())
                .collect(),
        });
    }
    Ok(all)
}

const ONE_BLOCK: [(Input, OutputType); 3] = [
    (Input::Normal, OutputType::F32),
    (Input::Normal, OutputType::Bf16),
    (Input::Integers, OutputType::F32),
];

/// One sentence a case.
pub fn one_block_text(found: &[OneBlock]) -> String {
    let mut out = format!("One 128 x 128 scale of B 2 % too large at k = {DEEP}:\n");
    for one in found {
        let seen = match one.seen_by.as_slice() {
            [] => "nobody".to_owned(),
            gates => gates.join(", "),
        };
        let _ = writeln!(
            out,
            "- {}: calc_diff {:.2e} instead of {:.2e}; seen by {seen}",
            one.case, one.calc_diff.1, one.calc_diff.0
        );
    }
    out
}

/// How many steps [`one_block`] announces.
pub fn one_block_steps() -> usize {
    ONE_BLOCK.len()
}

/// How many steps [`measure`] announces.
pub fn steps() -> usize {
    4 * STEPS as usize
}

/// A table: gates down, problems across.
pub fn text(limits: &[Limits]) -> String {
    let mut out = headings(limits);
    let _ = write!(out, "\n{:16}", "smallest seen");
    for i in 1..=limits.len() {
        let _ = write!(out, " {i:>12}");
    }
    out.push('\n');
    for (c, column) in Column::all().into_iter().enumerate() {
        let _ = write!(out, "{:16}", column.name());
        for limit in limits {
            let _ = write!(out, " {:>12}", limit.columns[c].to_string());
        }
        out.push('\n');
    }
    out
}

/// The same as Markdown.
pub fn markdown(limits: &[Limits]) -> String {
    let mut out = headings(limits).replace('\n', "  \n");
    let _ = write!(out, "\n| smallest seen |");
    for i in 1..=limits.len() {
        let _ = write!(out, " {i} |");
    }
    let _ = write!(out, "\n|---|{}\n", "---|".repeat(limits.len()));
    for (c, column) in Column::all().into_iter().enumerate() {
        let _ = write!(out, "| {} |", column.name());
        for limit in limits {
            let _ = write!(out, " {} |", limit.columns[c]);
        }
        out.push('\n');
    }
    out
}

fn headings(limits: &[Limits]) -> String {
    let mut out = String::new();
    for (i, limit) in limits.iter().enumerate() {
        let what = what(limit.fault);
        let _ = writeln!(out, "{}: {what} too large, {}", i + 1, limit.case);
    }
    out
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Limit::Rejects(size) => write!(f, "{size:.1e}"),
            Limit::Blind => f.write_str("blind"),
            Limit::FalseAlarm => f.write_str("false alarm"),
        }
    }
}

fn what(fault: &str) -> &'static str {
    if fault == "one-block-scale" {
        "one 128 x 128 scale of B"
    } else {
        "every scale of B"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_that_no_gate_sees_is_said_to_be_seen_by_nobody() {
        let one = |seen_by| OneBlock {
            case: "deep".into(),
            calc_diff: (1e-9, 1.6e-6),
            seen_by,
        };
        let text = one_block_text(&[one(vec![]), one(vec!["kernelgate", "exact"])]);
        assert!(text.contains("k = 16384"), "{text}");
        assert!(text.contains("calc_diff 1.60e-6 instead of 1.00e-9; seen by nobody"));
        assert!(text.contains("seen by kernelgate, exact"));
    }

    #[test]
    fn a_limit_is_the_last_rejection_before_the_first_acceptance() {
        assert_eq!(
            limit(true, &[true, true, false, true]),
            Limit::Rejects(0.25)
        );
        assert_eq!(limit(true, &[false, true]), Limit::Blind);
        assert_eq!(limit(false, &[true, true]), Limit::FalseAlarm);
    }
}
