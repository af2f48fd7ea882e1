//! Every planted fault past our checks and past the gates that suites put on a
//! result: who catches what, and who cries at a correct layer.

use std::fmt::Write;

use anyhow::Result;
use serde::Serialize;

use super::case::{Case, Load, cases};
use super::check::{CaseReport, Options, Rank, run};
use super::fault::Fault;
use super::finding::Finding;
use super::hub;
use super::shape::{Layout, Shape};
use crate::exit::Exit;
use crate::gemm::rivals::{Rival, View};
use crate::lowp::OutputType;

/// One fault in one layout; no fault is the row that must stay silent.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub fault: Option<Fault>,
    pub layout: Layout,
    /// The rank on which it is planted.
    pub rank: usize,
    /// Why it was not planted.
    pub skipped: Option<String>,
    /// Our checks found something.
    pub caught: bool,
    /// The first finding is of the right stage and names the rank and the expert
    /// or the token.
    pub named: bool,
    pub first: Option<Finding>,
    /// Gates of other suites that reject the result of some rank.
    pub rivals: Vec<&'static str>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Scoreboard {
    pub ranks: usize,
    pub shape: Shape,
    pub seed: u64,
    pub rows: Vec<Row>,
}

/// Gates on the combined result that the scoreboard compares with.
pub const RIVALS: [Rival; 4] = [
    Rival::DeepGemm,
    Rival::VllmScaledMm,
    Rival::FlashInfer,
    Rival::TorchDefaults,
];

/// The case in which every fault can show: three iterations in the same buffers,
/// odd counts, a rank without tokens, another one each time.
fn arena(shape: Shape, layout: Layout, tokens: usize) -> Case {
    Case {
        name: "faults",
        why: "a case in which every fault can show",
        load: Load::OneEmpty(tokens),
        iterations: 3,
        ..cases(shape, layout, tokens)[0]
    }
}

/// Runs all faults. All ranks must call it together; all get the same scoreboard.
pub fn score(
    rank: &mut Rank,
    shape: Shape,
    tokens: usize,
    layouts: &[Layout],
    options: &Options,
) -> Result<Scoreboard> {
    let ranks = rank.hub.ranks();
    // With two ranks it has no tokens in the second iteration, and all have some in
    // the third: faults of sending and of empty ranks both find their iteration.
    let on = 1 % ranks;
    let mut rows = Vec::new();
    for &layout in layouts {
        let case = arena(shape, layout, tokens);
        let clean = run(rank, &case, options)?;
        rows.push(row(rank, None, on, &clean.report, &clean.out, &clean.out)?);
        for fault in Fault::ALL {
            if ranks < fault.needs_ranks() {
                rows.push(Row {
                    fault: Some(fault),
                    layout,
                    rank: on,
                    skipped: Some(format!("needs {} ranks", fault.needs_ranks())),
                    caught: false,
                    named: false,
                    first: None,
                    rivals: Vec::new(),
                });
                continue;
            }
            let planted = Options {
                fault: Some((fault, on)),
                ..*options
            };
            let faulty = run(rank, &case, &planted)?;
            rows.push(row(
                rank,
                Some(fault),
                on,
                &faulty.report,
                &faulty.out,
                &clean.out,
            )?);
        }
    }
    Ok(Scoreboard {
        ranks,
        shape,
        seed: options.seed,
        rows,
    })
}

fn row(
    rank: &Rank,
    fault: Option<Fault>,
    on: usize,
    report: &CaseReport,
    out: &[f32],
    clean: &[f32],
) -> Result<Row> {
    let first = report.findings.first().cloned();
    let named = first.as_ref().is_some_and(|first| {
        fault.is_some_and(|fault| fault.stages().contains(&first.stage))
            && first.rank == on
            && (first.expert.is_some() || first.token.is_some())
    });
    let widen = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<f64>>();
    let (got, want) = (widen(out), widen(clean));
    let rejects = |rival: &Rival| {
        let view = View {
            got: &got,
            shared: &want,
            unquantised: &want,
            output: OutputType::Bf16,
            fp4: false,
        };
        !got.is_empty() && !rival.accepts(&view)
    };
    let mine: Vec<u8> = RIVALS.iter().map(|r| u8::from(rejects(r))).collect();
    let all = hub::gather(rank.hub.as_ref(), &mine)?;
    let rivals = RIVALS.iter().enumerate();
    Ok(Row {
        fault,
        layout: report.case.layout,
        rank: on,
        skipped: None,
        caught: first.is_some(),
        named,
        first,
        rivals: rivals
            .filter(|(i, _)| all.iter().any(|flags| flags.get(*i) == Some(&1)))
            .map(|(_, rival)| rival.name())
            .collect(),
    })
}

impl Scoreboard {
    /// Planted faults.
    fn planted(&self) -> impl Iterator<Item = &Row> {
        self.rows
            .iter()
            .filter(|row| row.fault.is_some() && row.skipped.is_none())
    }

    pub fn false_alarms(&self) -> usize {
        let clean = self.rows.iter().filter(|row| row.fault.is_none());
        clean.filter(|row| row.caught).count()
    }

    /// Held when every planted fault is caught and named and nothing else is.
    pub fn exit(&self) -> Exit {
        let named = self.planted().all(|row| row.caught && row.named);
        if self.planted().next().is_none() {
            Exit::CouldNotRun
        } else if named && self.false_alarms() == 0 {
            Exit::Held
        } else {
            Exit::Failed
        }
    }

    fn summary(&self) -> String {
        let planted = self.planted().count();
        format!(
            "{} of {planted} planted faults caught, {} named, {} false alarms on {} correct runs, {} skipped",
            self.planted().filter(|row| row.caught).count(),
            self.planted().filter(|row| row.named).count(),
            self.false_alarms(),
            self.rows.iter().filter(|row| row.fault.is_none()).count(),
            self.rows.iter().filter(|row| row.skipped.is_some()).count(),
        )
    }

    /// A Markdown table, a column a gate.
    pub fn markdown(&self) -> String {
        let mut text = format!(
            "{} ranks, {}, seed {}\n\n",
            self.ranks, self.shape, self.seed
        );
        text += "| fault | layout | rank | ours | first finding |";
        for rival in RIVALS {
            let _ = write!(text, " {} |", rival.name());
        }
        text += "\n|---|---|---|---|---|";
        text += &"---|".repeat(RIVALS.len());
        for row in &self.rows {
            let _ = write!(
                text,
                "\n| {} | {} | {} | {} | {} |",
                row.name(),
                row.layout.name(),
                row.rank,
                row.word(),
                row.seen().replace('|', "\\|")
            );
            for rival in RIVALS {
                let caught = row.rivals.contains(&rival.name());
                let _ = write!(text, " {} |", if caught { "rejects" } else { "accepts" });
            }
        }
        let _ = write!(text, "\n\n{}\n", self.summary());
        text
    }
}

impl Row {
    fn name(&self) -> &'static str {
        self.fault.map_or("none (correct)", Fault::name)
    }

    fn word(&self) -> &'static str {
        match (self.fault, &self.skipped) {
            (_, Some(_)) => "skipped",
            (None, _) if self.caught => "FALSE ALARM",
            (None, _) => "silent",
            (Some(_), _) if self.named => "named",
            (Some(_), _) if self.caught => "CAUGHT, NOT NAMED",
            (Some(_), _) => "MISSED",
        }
    }

    fn seen(&self) -> String {
        match (&self.skipped, &self.first) {
            (Some(why), _) => why.clone(),
            (None, Some(finding)) => finding.to_string(),
            (None, None) => String::new(),
        }
    }
}

impl std::fmt::Display for Scoreboard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{} ranks, {}, seed {}",
            self.ranks, self.shape, self.seed
        )?;
        for row in &self.rows {
            let rivals = match row.rivals.is_empty() {
                true => "none".to_owned(),
                false => row.rivals.join(", "),
            };
            writeln!(
                f,
                "{:<24} {:<10} rank {}: {:<8} {}{}",
                row.name(),
                row.layout.name(),
                row.rank,
                row.word(),
                row.seen(),
                match (row.fault, &row.skipped) {
                    (Some(_), None) => format!("; gates on the result that reject it: {rivals}"),
                    _ => String::new(),
                }
            )?;
        }
        writeln!(f, "{}", self.summary())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moe::finding::Stage;

    fn row(fault: Option<Fault>, caught: bool, named: bool) -> Row {
        Row {
            fault,
            layout: Layout::Masked,
            rank: 1,
            skipped: None,
            caught,
            named,
            first: caught.then(|| Finding {
                stage: Stage::Counts,
                rank: 1,
                expert: Some(3),
                token: None,
                iteration: 0,
                detail: "x | y".into(),
            }),
            rivals: Vec::new(),
        }
    }

    #[test]
    fn only_every_fault_named_and_no_false_alarm_holds() {
        let fault = Some(Fault::StaleCounts);
        for (rows, want) in [
            (
                vec![row(None, false, false), row(fault, true, true)],
                Exit::Held,
            ),
            (
                vec![row(None, true, false), row(fault, true, true)],
                Exit::Failed,
            ),
            (
                vec![row(None, false, false), row(fault, true, false)],
                Exit::Failed,
            ),
            (
                vec![row(None, false, false), row(fault, false, false)],
                Exit::Failed,
            ),
            (vec![row(None, false, false)], Exit::CouldNotRun),
            (vec![], Exit::CouldNotRun),
        ] {
            let board = Scoreboard {
                ranks: 2,
                shape: Shape::small(8),
                seed: 1,
                rows,
            };
            assert_eq!(board.exit(), want, "{board}");
            assert!(board.markdown().contains("planted faults caught"));
        }
    }
}
