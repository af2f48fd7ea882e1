//! What a lesson states must hold, and what was seen.
//!
//! A lesson does not end with "all tests passed": in half of them a test must
//! fail. It states claims, and each broken one prints a line beginning `GATE:`.
//! A claim holds when what was observed equals what was expected, so every claim
//! can be flipped: expect the opposite, and the run must fail. A program that
//! still exits 0 then has a claim that is not looked at.

use crate::exit::Exit;
use serde::Serialize;
use std::fmt;

/// One statement with what was expected and what was observed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// Stable identifier, for `--flip` and for reports.
    pub id: &'static str,
    /// The statement in words.
    pub statement: String,
    /// Whether the statement is expected to be true.
    pub expected: bool,
    /// Whether it was.
    pub observed: bool,
    /// The figures behind the observation.
    pub seen: String,
}

impl Claim {
    /// Whether the claim holds.
    pub fn holds(&self) -> bool {
        self.expected == self.observed
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.holds() { "holds:" } else { "GATE:" };
        let turned = if self.expected { "" } else { "not: " };
        write!(
            f,
            "{mark} [{}] {turned}{}. Seen: {}",
            self.id, self.statement, self.seen
        )
    }
}

/// The claims of one program, in the order they were made.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Claims(Vec<Claim>);

/// No claim has this identifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownClaim {
    /// What was asked for.
    pub asked: String,
    /// What there is.
    pub known: Vec<&'static str>,
}

impl fmt::Display for UnknownClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "there is no claim `{}`; the claims are: {}",
            self.asked,
            self.known.join(", ")
        )
    }
}

impl std::error::Error for UnknownClaim {}

impl Claims {
    /// States that `statement` is true. `seen` gives the figures.
    pub fn expect(
        &mut self,
        id: &'static str,
        statement: impl Into<String>,
        observed: bool,
        seen: impl fmt::Display,
    ) {
        self.0.push(Claim {
            id,
            statement: statement.into(),
            expected: true,
            observed,
            seen: seen.to_string(),
        });
    }

    /// Expects the opposite of one claim, to show that it is able to fail.
    ///
    /// # Errors
    /// [`UnknownClaim`] with the list of claims.
    pub fn flip(&mut self, id: &str) -> Result<(), UnknownClaim> {
        match self.0.iter_mut().find(|claim| claim.id == id) {
            Some(claim) => {
                claim.expected = !claim.expected;
                Ok(())
            }
            None => Err(UnknownClaim {
                asked: id.to_owned(),
                known: self.ids(),
            }),
        }
    }

    /// The identifiers in order.
    pub fn ids(&self) -> Vec<&'static str> {
        self.0.iter().map(|claim| claim.id).collect()
    }

    /// All claims in order.
    pub fn iter(&self) -> impl Iterator<Item = &Claim> {
        self.0.iter()
    }

    /// The claims that do not hold.
    pub fn broken(&self) -> impl Iterator<Item = &Claim> {
        self.0.iter().filter(|claim| !claim.holds())
    }

    /// 0 when every claim holds, 1 when one is broken, 3 when none was made.
    pub fn exit(&self) -> Exit {
        match (self.0.is_empty(), self.broken().next()) {
            (true, _) => Exit::CouldNotRun,
            (false, Some(_)) => Exit::Failed,
            (false, None) => Exit::Held,
        }
    }
}

/// One line a claim.
impl fmt::Display for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for claim in &self.0 {
            writeln!(f, "{claim}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Claims {
        let mut claims = Claims::default();
        for id in ["a", "b", "c"] {
            claims.expect(id, format!("{id} is so"), true, "1 of 1");
        }
        claims
    }

    #[test]
    fn each_flipped_claim_breaks_the_run_with_its_own_gate_line() {
        assert_eq!(three().exit(), Exit::Held);
        assert!(!three().to_string().contains("GATE:"));
        for id in three().ids() {
            let mut claims = three();
            claims.flip(id).unwrap();
            assert_eq!(claims.exit(), Exit::Failed, "{id}");
            let text = claims.to_string();
            let gates: Vec<&str> = text.lines().filter(|l| l.starts_with("GATE:")).collect();
            assert_eq!(gates.len(), 1, "{text}");
            assert!(gates[0].contains(&format!("[{id}]")), "{text}");
        }
    }

    #[test]
    fn each_false_observation_breaks_the_run() {
        let mut claims = three();
        claims.expect("d", "d is so", false, "0 of 1");
        assert_eq!(claims.exit(), Exit::Failed);
        assert_eq!(claims.broken().map(|c| c.id).collect::<Vec<_>>(), ["d"]);
    }

    #[test]
    fn a_run_without_claims_could_not_tell() {
        assert_eq!(Claims::default().exit(), Exit::CouldNotRun);
    }

    #[test]
    fn an_unknown_claim_is_an_error_that_lists_the_claims() {
        let error = three().flip("nope").unwrap_err();
        assert_eq!(error.known, ["a", "b", "c"]);
        assert!(error.to_string().contains("a, b, c"));
    }
}
