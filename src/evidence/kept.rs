//! The lines of an output that another run must print again.

use anyhow::Context;
use regex_lite::Regex;

/// What `patterns` keep of an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// For each kept line, in order, what its pattern's groups captured; the whole
    /// match where it has none.
    pub lines: Vec<String>,
    /// Patterns that matched no line.
    pub unmatched: Vec<&'static str>,
}

impl Kept {
    /// # Errors
    /// A pattern that is no regular expression.
    pub fn of(patterns: &'static [&'static str], output: &str) -> anyhow::Result<Kept> {
        let compiled: Vec<Regex> = patterns
            .iter()
            .map(|pattern| Regex::new(pattern).with_context(|| format!("the pattern {pattern}")))
            .collect::<anyhow::Result<_>>()?;
        let mut matched = vec![false; patterns.len()];
        let mut lines = Vec::new();
        for line in output.lines() {
            for (regex, matched) in compiled.iter().zip(&mut matched) {
                if let Some(captures) = regex.captures(line) {
                    *matched = true;
                    lines.push(captured(&captures));
                    break;
                }
            }
        }
        let unmatched = patterns.iter().zip(&matched).filter(|(_, m)| !**m);
        Ok(Kept {
            lines,
            unmatched: unmatched.map(|(pattern, _)| *pattern).collect(),
        })
    }

    /// The differences in words; empty when equal.
    pub fn differences(&self, other: &Kept) -> Vec<String> {
        let length = self.lines.len().max(other.lines.len());
        (0..length)
            .filter_map(|at| {
                let (a, b) = (self.lines.get(at), other.lines.get(at));
                let shown =
                    |line: Option<&String>| line.map_or("nothing".into(), |l| format!("`{l}`"));
                (a != b).then(|| {
                    format!(
                        "compared line {}: recorded {}, now {}",
                        at + 1,
                        shown(a),
                        shown(b)
                    )
                })
            })
            .collect()
    }
}

fn captured(captures: &regex_lite::Captures) -> String {
    let groups: Vec<&str> = captures
        .iter()
        .skip(1)
        .flatten()
        .map(|group| group.as_str())
        .collect();
    match groups.as_slice() {
        [] => captures[0].to_string(),
        _ => groups.join(" "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATTERNS: &[&str] = &[r"^(PASS|FAIL) (\S+) .* [\d.]+ s$", r"^\d+ of \d+ passed"];
    const OUTPUT: &str = "device: X\nPASS a 3 rows, 0.36 s\nPASS b 4 rows, 0.01 s\n2 of 2 passed";

    #[test]
    fn times_and_other_lines_may_differ_and_verdicts_may_not() {
        let kept = |output: &str| Kept::of(PATTERNS, output).unwrap();
        let recorded = kept(OUTPUT);
        assert_eq!(recorded.lines, ["PASS a", "PASS b", "2 of 2 passed"]);
        assert!(recorded.unmatched.is_empty());
        for (from, to, same) in [
            ("0.36", "9.99", true),
            ("device: X", "rank 0: process 17", true),
            ("PASS b", "FAIL b", false),
            ("PASS b 4 rows, 0.01 s\n", "", false),
            ("2 of 2", "1 of 2", false),
        ] {
            let other = kept(&OUTPUT.replace(from, to));
            assert_eq!(
                recorded.differences(&other).is_empty(),
                same,
                "{from} -> {to}"
            );
        }
    }

    #[test]
    fn a_pattern_that_matches_nothing_is_named() {
        let kept = Kept::of(PATTERNS, "PASS a 3 rows, 0.36 s").unwrap();
        assert_eq!(kept.unmatched, [PATTERNS[1]]);
    }
}
