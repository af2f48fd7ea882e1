//! Both variants at one size of the user's choice.

use super::suites::structural_at;
use crate::exit::UsageError;
use crate::harness::verdict::Failure;
use crate::harness::{Claims, Outcome, Verdict, figures, inputs};
use crate::lessons::reduction::{BlockTree, THREADS, specimens};
use serde::Serialize;
use std::fmt;

/// The structural test at one size, on both variants.
#[derive(Clone, Debug, Serialize)]
pub struct OneSize {
    /// What it ran on.
    pub device: String,
    /// What drop-tail did.
    pub drop_tail: Outcome,
    /// What guarded did.
    pub guarded: Outcome,
    /// What must hold at any size.
    pub claims: Claims,
    /// The exit code.
    pub exit: u8,
}

/// Runs both variants on `n` exact elements.
///
/// Below one block drop-tail has nothing to launch: that claim is then broken and
/// the run exits 1.
///
/// # Errors
/// [`UsageError`] for a size without an exact input; the device's error when it
/// fails.
pub fn at_size(tree: &mut dyn BlockTree, n: usize) -> anyhow::Result<OneSize> {
    inputs::structural(n).map_err(|error| UsageError(format!("--n {n}: {error}")))?;
    let device = tree.banner();
    let test = structural_at(n);
    let drop_tail = test.at(n, &mut specimens::WRONG[0].on(tree))?;
    let guarded = test.at(n, &mut specimens::RIGHT.on(tree))?;
    let claims = state(n, &drop_tail.verdict, &guarded.verdict);
    Ok(OneSize {
        device,
        drop_tail,
        guarded,
        exit: claims.exit().code(),
        claims,
    })
}

fn state(n: usize, drop_tail: &Verdict, guarded: &Verdict) -> Claims {
    let n_text = figures::count(n);
    let mut claims = Claims::default();
    claims.expect(
        "guarded-passes",
        format!("guarded is exactly right at {n_text}"),
        guarded.passed(),
        guarded,
    );
    claims.expect(
        "drop-tail-launches",
        format!("drop-tail has at least one block to launch at {n_text}"),
        !matches!(drop_tail, Verdict::Fail(Failure::Launch { .. })),
        drop_tail,
    );
    claims.expect(
        "drop-tail-passes-whole-blocks-only",
        format!("drop-tail is exactly right at {n_text} if and only if {THREADS} divides it"),
        drop_tail.passed() == n.is_multiple_of(THREADS),
        drop_tail,
    );
    claims
}

impl fmt::Display for OneSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.device)?;
        for (name, outcome) in [("drop-tail", &self.drop_tail), ("guarded", &self.guarded)] {
            let verdict = &outcome.verdict;
            writeln!(f, "  {} {name:<9}: {verdict}", verdict.word())?;
        }
        write!(f, "{}", self.claims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;
    use crate::lessons::reduction::HostTree;

    #[test]
    fn sizes_below_one_block_break_the_run_with_an_error_that_says_zero_blocks() {
        for n in [1, 200, 255] {
            let report = at_size(&mut HostTree, n).unwrap();
            assert_eq!(report.claims.exit(), Exit::Failed, "n = {n}");
            let text = report.to_string();
            assert!(text.contains("GATE: [drop-tail-launches]"), "{text}");
            assert!(text.contains("zero blocks"), "{text}");
        }
    }

    #[test]
    fn from_one_block_on_every_size_holds() {
        for n in [256, 257, 611, 1_024, 16_483, 350_000] {
            let report = at_size(&mut HostTree, n).unwrap();
            assert_eq!(report.claims.exit(), Exit::Held, "n = {n}: {report}");
        }
    }

    #[test]
    fn a_size_without_an_exact_input_is_wrong_usage() {
        for n in [0, inputs::LONGEST_EXACT + 1, usize::MAX] {
            let error = at_size(&mut HostTree, n).unwrap_err();
            assert_eq!(Exit::of(&error), Exit::Usage, "{error}");
        }
    }
}
