//! The answers file of the testing exercise.

use anyhow::Context;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The answer for a test that no wrong kernel of the catalogue fails.
pub const NONE: &str = "none";

/// What the student wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answers {
    /// Supplied test to the name of a wrong kernel that it rejects, or [`NONE`].
    pub rejects: BTreeMap<String, String>,
    /// The state after the fix.
    pub after_the_fix: AfterTheFix,
}

/// Which supplied test breaks, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AfterTheFix {
    /// Name of the test.
    pub breaks: String,
    /// One sentence.
    pub why: String,
}

impl Answers {
    /// Reads an answers file.
    ///
    /// # Errors
    /// When the file is not there or is not of the shape of
    /// `exercises/testing/answers.toml`; the message names the line.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("reading the answers file {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("in {}", path.display()))
    }

    /// Parses the text of an answers file.
    ///
    /// # Errors
    /// As for [`Answers::read`].
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        toml::from_str(text).context(
            "expected [rejects] with one line a supplied test and [after_the_fix] with breaks and \
             why, as in exercises/testing/answers.toml",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_another_shape_is_an_error_that_says_what_was_expected() {
        for text in [
            "",
            "rejects = 3",
            "[rejects]\nlinearity = \"offset\"",
            "[rejects]\n[after_the_fix]\nbreaks = \"x\"",
            "[rejects]\n[after_the_fix]\nbreaks = \"x\"\nwhy = \"y\"\nbrakes = \"z\"",
            "not toml at all",
        ] {
            let error = Answers::parse(text).unwrap_err();
            assert!(error.to_string().contains("[after_the_fix]"), "{text:?}");
        }
    }

    #[test]
    fn the_shipped_file_parses_and_answers_nothing() {
        let answers =
            Answers::parse(include_str!("../../../exercises/testing/answers.toml")).unwrap();
        assert_eq!(answers.rejects.len(), 4);
        assert!(answers.rejects.values().all(String::is_empty));
        assert_eq!(answers.after_the_fix, AfterTheFix::default());
    }
}
