//! Grading the exercises: by what a student's program does, not by its text.
//!
//! Each exercise is a list of steps. A step is done or says what is still missing;
//! the grade is passed when all are done.

pub mod answers;
pub mod memory_bugs;
pub mod process;
pub mod testing;

use crate::exit::Exit;
use serde::Serialize;
use std::fmt;

/// One thing that an exercise asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Stable identifier.
    pub id: &'static str,
    /// What is asked for.
    pub asks: &'static str,
    /// What is still missing; empty when the step is done.
    pub missing: Vec<String>,
}

impl Step {
    /// A step, done when nothing is missing.
    pub fn new(id: &'static str, asks: &'static str, missing: Vec<String>) -> Self {
        Self { id, asks, missing }
    }

    /// Whether nothing is missing.
    pub fn done(&self) -> bool {
        self.missing.is_empty()
    }
}

/// The grade of one exercise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Grade {
    /// What the program ran on.
    pub device: String,
    /// Name of the exercise.
    pub exercise: &'static str,
    /// All steps, in the order in which to do them.
    pub steps: Vec<Step>,
    /// Whether every step is done.
    pub passed: bool,
}

impl Grade {
    /// The grade for these steps. No steps at all is not a pass.
    pub fn new(exercise: &'static str, device: String, steps: Vec<Step>) -> Self {
        let passed = !steps.is_empty() && steps.iter().all(Step::done);
        Self {
            device,
            exercise,
            steps,
            passed,
        }
    }

    /// 0 when passed, 1 otherwise.
    pub fn exit(&self) -> Exit {
        if self.passed {
            Exit::Held
        } else {
            Exit::Failed
        }
    }

    /// Identifiers of the steps that are not done.
    pub fn open(&self) -> Vec<&'static str> {
        let open = self.steps.iter().filter(|step| !step.done());
        open.map(|step| step.id).collect()
    }
}

impl fmt::Display for Grade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.device)?;
        for step in &self.steps {
            let mark = if step.done() { "done " } else { "to do" };
            writeln!(f, "{mark} [{}] {}", step.id, step.asks)?;
            for missing in &step.missing {
                writeln!(f, "        {missing}")?;
            }
        }
        let open = self.open().len();
        if self.passed {
            writeln!(f, "{}: passed", self.exercise)
        } else {
            writeln!(
                f,
                "{}: not passed, {open} of {} steps to do",
                self.exercise,
                self.steps.len()
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_open_step_or_no_step_is_not_a_pass() {
        let done = Step::new("a", "", vec![]);
        let open = Step::new("b", "", vec!["more".into()]);
        for (steps, want) in [
            (vec![], Exit::Failed),
            (vec![done.clone()], Exit::Held),
            (vec![done, open.clone()], Exit::Failed),
            (vec![open], Exit::Failed),
        ] {
            let grade = Grade::new("x", String::new(), steps);
            assert_eq!(grade.exit(), want, "{grade}");
        }
    }
}
