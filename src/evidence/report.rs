//! A sanitizer's text report, read back.
//!
//! compute-sanitizer's form, which the CPU driver shares. Versions differ in small
//! things, so both are read: `24,604` and `24604`, `Error:` and `ERROR:`,
//! `kernel+0x160` and `kernel:0x160`, a kernel with and without its parameter list.

use std::sync::LazyLock;

use regex_lite::Regex;

/// Every line of a sanitizer starts with this.
pub const PREFIX: &str = "=========";

/// What a report contains.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Invalid accesses, in the order of the report.
    pub accesses: Vec<Access>,
    /// Driver calls that failed.
    pub api_errors: Vec<String>,
    /// Bytes of each leaked allocation.
    pub leaks: Vec<u64>,
    /// Blocks that are neither: their first lines.
    pub others: Vec<String>,
    /// The number of errors in the last SUMMARY line that has one.
    pub errors: Option<u64>,
    /// (allocations, bytes) of the LEAK SUMMARY.
    pub leak_summary: Option<(u64, u64)>,
}

/// One invalid access.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// `global`, `shared` or `local`.
    pub space: String,
    /// `read`, `write` or `atomic`.
    pub kind: String,
    /// Bytes.
    pub size: u64,
    /// Kernel, without parameters.
    pub kernel: String,
    /// Source file and line.
    pub source: Option<(String, u32)>,
    /// Thread in its block.
    pub thread: String,
    /// Block in the grid.
    pub block: String,
}

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is a constant and tested")
}

static ACCESS: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^Invalid __(\w+)__ (\w+)(?: access)? of size ([\d,]+)"));
static AT: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"^\s+at (?:\w+ )*?([\w:<>~]+?)(?:\(.*\))?[+:]0x[0-9a-fA-F]+(?: in (.+):(\d+))?\s*$")
});
static BY: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^\s+by thread (\([\d,]+\)) in block (\([\d,]+\))"));
static API: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^(?:E(?:rror|RROR): )?Program hit (\w+) \(error \d+\)"));
static LEAK: LazyLock<Regex> = LazyLock::new(|| regex(r"^Leaked ([\d,]+) bytes? at "));
static LEAK_SUMMARY: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^LEAK SUMMARY: ([\d,]+) bytes? leaked in ([\d,]+) allocations?"));
static ERROR_SUMMARY: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^ERROR SUMMARY: ([\d,]+) errors?$"));
static HAZARD_SUMMARY: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^RACECHECK SUMMARY: .*\(([\d,]+) errors?, ([\d,]+) warnings?\)"));

/// `24,604` as a number; `None` where it is none.
pub fn number(text: &str) -> Option<u64> {
    text.replace(',', "").parse().ok()
}

/// The text of a sanitizer's line after its prefix, or `None` for a line of the
/// program.
pub fn tool_line(line: &str) -> Option<&str> {
    let rest = line.strip_prefix(PREFIX)?;
    Some(rest.strip_prefix(' ').unwrap_or(rest))
}

impl Report {
    /// Reads what a sanitizer wrote among a program's output.
    pub fn parse(output: &str) -> Report {
        let mut report = Report::default();
        for line in output.lines().filter_map(tool_line) {
            report.take(line);
        }
        report
    }

    fn take(&mut self, line: &str) {
        if let Some(found) = ACCESS.captures(line) {
            self.accesses.push(Access {
                space: found[1].to_string(),
                kind: found[2].to_string(),
                size: number(&found[3]).unwrap_or(0),
                ..Access::default()
            });
        } else if let Some(found) = API.captures(line) {
            self.api_errors.push(found[1].to_string());
        } else if let Some(found) = LEAK.captures(line) {
            self.leaks.push(number(&found[1]).unwrap_or(0));
        } else if let Some(found) = LEAK_SUMMARY.captures(line) {
            self.leak_summary = number(&found[2]).zip(number(&found[1]));
        } else if let Some(found) = ERROR_SUMMARY.captures(line) {
            self.errors = number(&found[1]);
        } else if let Some(found) = HAZARD_SUMMARY.captures(line) {
            self.errors = number(&found[1]);
        } else if line.starts_with(' ') {
            self.take_detail(line);
        } else if is_finding(line) {
            self.others.push(line.to_string());
        }
    }

    /// An indented line belongs to the access before it. Only the first `at` and
    /// `by` do: later ones are call sites.
    fn take_detail(&mut self, line: &str) {
        let Some(access) = self.accesses.last_mut() else {
            return;
        };
        if let Some(found) = AT.captures(line).filter(|_| access.kernel.is_empty()) {
            access.kernel = found[1].to_string();
            access.source = found.get(2).zip(found.get(3)).and_then(|(file, line)| {
                let name = file.as_str().rsplit('/').next()?.to_string();
                Some((name, line.as_str().parse().ok()?))
            });
        } else if let Some(found) = BY.captures(line).filter(|_| access.thread.is_empty()) {
            access.thread = found[1].to_string();
            access.block = found[2].to_string();
        }
    }

    /// How many accesses of this space and kind.
    pub fn count(&self, space: &str, kind: &str) -> u64 {
        let matching = self
            .accesses
            .iter()
            .filter(|a| a.space == space && a.kind == kind);
        matching.count() as u64
    }
}

/// Unindented lines that are not the head, a summary or a blank.
fn is_finding(line: &str) -> bool {
    !line.is_empty()
        && !line.contains("SUMMARY:")
        && !line.contains("SANITIZER")
        && !line.starts_with("Target application")
        && !line.contains("process didn't terminate successfully")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// NVIDIA's format, written by hand from its manual and facts.md §2.
    pub const SAMPLE: &str = "\
device: X
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at diffNextPastEnd+0x160 in adjacent_difference.cu:36
=========     by thread (6,0,0) in block (24,0,0)
=========     Access to 0x7f3c0a00601c is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f3c0a000000 of size 24,604 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: cuLaunchKernel [0x2f5d47] in libcuda.so.1
=========         Host Frame: main in memory_bugs.rs:12 [0x1234] in memory_bugs
=========
========= Invalid __shared__ write of size 4 bytes
=========     at windowSumPastTile(const unsigned int *, unsigned int *, unsigned long long)+0x210 in /src/kernels/window_sum.cu:57
=========     by thread (2,0,0) in block (3,0,0)
=========     Address 0x408 is out of bounds
=========
========= Program hit CUDA_ERROR_LAUNCH_FAILED (error 719) due to \"unspecified launch failure\" on CUDA API call to cuCtxSynchronize.
=========     Saved host backtrace up to driver entry point at error
=========         Host Frame: main [0x99] in memory_bugs
=========
========= Leaked 24,604 bytes at 0x7f3c0a00c400
=========     Saved host backtrace up to driver entry point at allocation time
=========
========= LEAK SUMMARY: 24604 bytes leaked in 1 allocations
========= ERROR SUMMARY: 4 errors
PASS something
";

    #[test]
    fn the_parts_of_a_report_are_read() {
        let report = Report::parse(SAMPLE);
        assert_eq!(report.accesses.len(), 2);
        assert_eq!(
            report.accesses[0],
            Access {
                space: "global".into(),
                kind: "read".into(),
                size: 4,
                kernel: "diffNextPastEnd".into(),
                source: Some(("adjacent_difference.cu".into(), 36)),
                thread: "(6,0,0)".into(),
                block: "(24,0,0)".into(),
            }
        );
        assert_eq!(report.accesses[1].kernel, "windowSumPastTile");
        assert_eq!(
            report.accesses[1].source,
            Some(("window_sum.cu".into(), 57))
        );
        assert_eq!(report.api_errors, ["CUDA_ERROR_LAUNCH_FAILED"]);
        assert_eq!(report.leaks, [24_604]);
        assert_eq!(report.leak_summary, Some((1, 24_604)));
        assert_eq!(report.errors, Some(4));
        assert!(report.others.is_empty(), "{:?}", report.others);
    }

    #[test]
    fn other_versions_wordings_are_read_alike() {
        let older = SAMPLE
            .replace("+0x160", ":0x160")
            .replace("24,604", "24604")
            .replace("Program hit", "ERROR: Program hit");
        assert_eq!(Report::parse(&older), Report::parse(SAMPLE));
        let newer = SAMPLE
            .replace("24604", "24,604")
            .replace("Program hit", "Error: Program hit");
        assert_eq!(Report::parse(&newer), Report::parse(SAMPLE));
    }

    #[test]
    fn a_report_without_source_lines_has_none() {
        let bare = SAMPLE.replace(" in adjacent_difference.cu:36", "");
        let report = Report::parse(&bare);
        assert_eq!(report.accesses[0].kernel, "diffNextPastEnd");
        assert_eq!(report.accesses[0].source, None);
    }

    #[test]
    fn no_summary_is_told_from_no_errors_and_racecheck_has_its_own() {
        assert_eq!(Report::parse("ERROR SUMMARY: 0 errors").errors, None);
        let zero = "========= ERROR SUMMARY: 0 errors";
        assert_eq!(Report::parse(zero).errors, Some(0));
        let race = "========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)";
        assert_eq!(Report::parse(race).errors, Some(1));
    }

    #[test]
    fn an_unknown_finding_is_kept() {
        let text = "========= Something new went wrong\n=========     at x+0x1\n";
        assert_eq!(Report::parse(text).others, ["Something new went wrong"]);
    }
}
