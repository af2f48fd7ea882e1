//! Which launches are checked: compute-sanitizer's `--kernel-name`,
//! `--kernel-name-exclude`, `--launch-skip` and `--launch-count`.
//!
//! A name filter is `key=value[,key=value]`, matched against the mangled name:
//! `kernel_name` or `kne` (all of it), `kernel_substring` or `kns` (a part),
//! `regex` (matches anywhere). Pairs and repeated options add up.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use regex_lite::Regex;

#[derive(Debug)]
enum Pattern {
    Name(String),
    Substring(String),
    Regex(Regex),
}

impl Pattern {
    fn matches(&self, kernel: &str) -> bool {
        match self {
            Self::Name(name) => kernel == name,
            Self::Substring(part) => kernel.contains(part.as_str()),
            Self::Regex(regex) => regex.is_match(kernel),
        }
    }
}

/// Decides launch by launch, and counts those that match.
#[derive(Debug, Default)]
pub struct Filter {
    include: Vec<Pattern>,
    exclude: Vec<Pattern>,
    skip: u64,
    count: u64,
    matched: AtomicU64,
}

impl Filter {
    /// # Errors
    /// An option that is no filter, with the forms that are.
    pub fn new(
        include: &[String],
        exclude: &[String],
        skip: u64,
        count: u64,
    ) -> Result<Self, FilterError> {
        Ok(Self {
            include: parse_all(include)?,
            exclude: parse_all(exclude)?,
            skip,
            count,
            matched: AtomicU64::new(0),
        })
    }

    /// Is this launch of `kernel` (mangled name) to be checked? Counts it.
    pub fn admits(&self, kernel: &str) -> bool {
        let any = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(kernel));
        if !self.include.is_empty() && !any(&self.include) || any(&self.exclude) {
            return false;
        }
        let earlier = self.matched.fetch_add(1, Ordering::Relaxed);
        earlier >= self.skip && (self.count == 0 || earlier - self.skip < self.count)
    }
}

fn parse_all(options: &[String]) -> Result<Vec<Pattern>, FilterError> {
    let mut patterns = Vec::new();
    for option in options {
        // A regular expression may hold commas: it takes the whole option.
        if option.starts_with("regex=") {
            patterns.push(parse(option, option)?);
            continue;
        }
        for pair in option.split(',') {
            patterns.push(parse(option, pair)?);
        }
    }
    Ok(patterns)
}

fn parse(option: &str, pair: &str) -> Result<Pattern, FilterError> {
    let refused = |reason: String| FilterError {
        option: option.to_owned(),
        reason,
    };
    let (key, value) = pair
        .split_once('=')
        .filter(|(_, value)| !value.is_empty())
        .ok_or_else(|| refused(format!("`{pair}` is no key=value")))?;
    match key.trim() {
        "kernel_name" | "kne" => Ok(Pattern::Name(value.to_owned())),
        "kernel_substring" | "kns" => Ok(Pattern::Substring(value.to_owned())),
        "regex" => Regex::new(value)
            .map(Pattern::Regex)
            .map_err(|error| refused(error.to_string())),
        other => Err(refused(format!("unknown key `{other}`"))),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterError {
    option: String,
    reason: String,
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "kernel filter `{}`: {}; write kernel_name=NAME (kne), kernel_substring=PART (kns) \
             or regex=EXPRESSION",
            self.option, self.reason
        )
    }
}

impl std::error::Error for FilterError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// One letter a launch: `x` checked, `.` not.
    fn decisions(include: &[&str], exclude: &[&str], skip: u64, count: u64) -> String {
        let strings = |options: &[&str]| options.iter().map(|&o| o.into()).collect::<Vec<_>>();
        let filter = Filter::new(&strings(include), &strings(exclude), skip, count).unwrap();
        [
            "diffNext",
            "windowSum",
            "diffNextPastEnd",
            "windowSum",
            "diffNext",
        ]
        .map(|kernel| if filter.admits(kernel) { 'x' } else { '.' })
        .iter()
        .collect()
    }

    #[test]
    fn names_and_counts_select_launches() {
        for (include, exclude, skip, count, expected) in [
            (&[][..], &[][..], 0, 0, "xxxxx"),
            (&["kne=diffNext"], &[], 0, 0, "x...x"),
            (&["kernel_name=diffNext,kne=windowSum"], &[], 0, 0, "xx.xx"),
            (&["kns=diff"], &[], 0, 0, "x.x.x"),
            (&["kernel_substring=Past"], &[], 0, 0, "..x.."),
            (&["regex=^w.*m$"], &[], 0, 0, ".x.x."),
            (&["regex=[a-z]{4,}N"], &[], 0, 0, "x.x.x"),
            (
                &["kns=diff", "kns=window"],
                &["kne=diffNext"],
                0,
                0,
                ".xxx.",
            ),
            (&[], &["regex=diff"], 0, 0, ".x.x."),
            (&[], &[], 2, 0, "..xxx"),
            (&[], &[], 0, 2, "xx..."),
            (&[], &[], 1, 2, ".xx.."),
            (&["kns=diff"], &[], 1, 1, "..x.."),
            (&["kne=nothing"], &[], 0, 0, "....."),
        ] {
            assert_eq!(
                decisions(include, exclude, skip, count),
                expected,
                "include {include:?}, exclude {exclude:?}, skip {skip}, count {count}"
            );
        }
    }

    #[test]
    fn a_filter_that_is_none_is_an_error() {
        for option in ["diffNext", "kne=", "name=x", "regex=(", "kne=a,b"] {
            assert!(
                Filter::new(&[option.into()], &[], 0, 0).is_err(),
                "{option}"
            );
        }
    }
}
