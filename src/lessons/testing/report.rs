//! The lesson as text and as JSON.

use super::claims::Observed;
use crate::harness::{Claims, Outcome, figures};
use serde::Serialize;
use std::fmt;

/// Rows of one test above which the text shows a summary; JSON has them all.
const SHOWN_ROWS: usize = 4;

/// Everything the program has to say.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What it ran on.
    pub device: String,
    /// What drop-tail did.
    pub drop_tail: Observed,
    /// What guarded did.
    pub guarded: Observed,
    /// What the lesson states about both.
    pub claims: Claims,
    /// The exit code.
    pub exit: u8,
}

impl Report {
    pub(super) fn new(
        device: String,
        drop_tail: Observed,
        guarded: Observed,
        claims: Claims,
    ) -> Self {
        let exit = claims.exit().code();
        Self {
            device,
            drop_tail,
            guarded,
            claims,
            exit,
        }
    }

    /// Expects the opposite of one claim; see [`Claims::flip`].
    ///
    /// # Errors
    /// [`crate::harness::claims::UnknownClaim`] with the list of claims.
    pub fn flip(&mut self, id: &str) -> Result<(), crate::harness::claims::UnknownClaim> {
        self.claims.flip(id)?;
        self.exit = self.claims.exit().code();
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.device)?;
        for (variant, grid, observed) in [
            ("drop-tail", "n / 256 blocks", &self.drop_tail),
            ("guarded", "n / 256 rounded up", &self.guarded),
        ] {
            writeln!(f, "\nsupplied suite on {variant} ({grid})")?;
            suite(f, &observed.supplied)?;
            writeln!(f, "\nhardened suite on {variant} ({grid})")?;
            suite(f, &observed.hardened)?;
        }
        writeln!(f, "\nclaims")?;
        write!(f, "{}", self.claims)?;
        let broken = self.claims.broken().count();
        let all = self.claims.iter().count();
        writeln!(f, "\n{} of {all} claims hold", all - broken)
    }
}

fn suite(f: &mut fmt::Formatter<'_>, outcomes: &[Outcome]) -> fmt::Result {
    for rows in outcomes.chunk_by(|a, b| a.check.name == b.check.name) {
        if rows.len() <= SHOWN_ROWS {
            for outcome in rows {
                row(f, outcome)?;
            }
        } else {
            summary(f, rows)?;
        }
    }
    let passed = outcomes.iter().filter(|o| o.verdict.passed()).count();
    writeln!(f, "  {passed} of {} pass", outcomes.len())
}

fn row(f: &mut fmt::Formatter<'_>, outcome: &Outcome) -> fmt::Result {
    writeln!(
        f,
        "  {} {:<15} n = {:>9}: {}",
        outcome.verdict.word(),
        outcome.check.name,
        figures::count(outcome.n),
        outcome.verdict
    )
}

/// The first failure, or the largest size, and how many rows it stands for.
fn summary(f: &mut fmt::Formatter<'_>, rows: &[Outcome]) -> fmt::Result {
    let failed = rows.iter().filter(|o| !o.verdict.passed()).count();
    let telling = rows
        .iter()
        .find(|o| !o.verdict.passed())
        .or(rows.iter().max_by_key(|o| o.n));
    if let Some(outcome) = telling {
        row(f, outcome)?;
        writeln!(
            f,
            "       {:<15} {} of {} sizes pass",
            "",
            rows.len() - failed,
            rows.len()
        )?;
    }
    Ok(())
}
