//! A case: a problem, its inputs, and the command that runs it again.

use super::check::Strength;
use super::inputs::Input;
use super::problem::Problem;

#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// Where it comes from: `ladder`, `sweep 17`, `model`, a named case, `only`.
    pub origin: String,
    pub problem: Problem,
    pub input: Input,
    pub seed: u64,
}

impl Case {
    pub fn new(origin: impl Into<String>, problem: Problem, input: Input, seed: u64) -> Case {
        Case {
            origin: origin.into(),
            problem,
            input,
            seed,
        }
    }

    /// One command line that runs this case alone, judged as it was.
    pub fn replay(&self, subject: &str, strength: Strength) -> String {
        format!(
            "kernelgate gemm check --subject {subject} {} --input {} --seed {} --strength {}",
            self.problem.options(),
            self.input.name(),
            self.seed,
            strength.name()
        )
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}: {} {} seed {}",
            self.origin,
            self.problem,
            self.input.name(),
            self.seed
        )
    }
}
