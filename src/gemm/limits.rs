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

/// How many steps [`measure`] announces.
pub fn steps() -> usize {
    4 * STEPS as usize
}

/// A table: gates down, problems across.
pub fn text(limits: &[Limits]) -> String {
    let mut out = String::new();
    for (i, limit) in limits.iter().enumerate() {
        let _ = writeln!(
            out,
            "{}: {} too large, {}",
            i + 1,
            what(limit.fault),
            limit.case
        );
    }
    let _ = write!(out, "\n{:16}", "smallest seen");
    for i in 1..=limits.len() {
        let _ = write!(out, " {i:>12}");
    }
    out.push('\n');
    for (c, column) in Column::all().into_iter().enumerate() {
        let _ = write!(out, "{:16}", column.name());
        for limit in limits {
            let cell = match limit.columns[c] {
                Limit::Rejects(size) => format!("{:.1e}", size),
                Limit::Blind => "blind".to_owned(),
                Limit::FalseAlarm => "false alarm".to_owned(),
            };
            let _ = write!(out, " {cell:>12}");
        }
        out.push('\n');
    }
    out
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
    fn a_limit_is_the_last_rejection_before_the_first_acceptance() {
        assert_eq!(
            limit(true, &[true, true, false, true]),
            Limit::Rejects(0.25)
        );
        assert_eq!(limit(true, &[false, true]), Limit::Blind);
        assert_eq!(limit(false, &[true, true]), Limit::FalseAlarm);
    }
}
