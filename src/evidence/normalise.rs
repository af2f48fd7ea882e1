//! What may differ between two runs of one command.
//!
//! Addresses, code offsets, host frames, times, process ids, where the driver's
//! file lies and why it was chosen. The order of a sanitizer's findings too: blocks
//! of a grid fault in any order. Everything else must be equal: figures, threads,
//! blocks, sizes, source lines, sums.

use std::sync::LazyLock;

use regex_lite::Regex;

use super::report::tool_line;

/// A run's output in a form in which equal runs are equal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Normal {
    /// The program's own lines, in order.
    pub program: Vec<String>,
    /// The sanitizer's blocks, sorted. A block is a finding with its details, or
    /// one summary line.
    pub blocks: Vec<String>,
}

/// Patterns and what stands for them, applied in order.
static RULES: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    [
        // 0x408, an offset in shared memory, is kept: it is a figure of the lesson.
        (r"0x[0-9a-fA-F]{6,}", "ADDRESS"),
        (r"[+:]0x[0-9a-fA-F]+", "+OFFSET"),
        (r#"[^\s",=]*libcuda\.so[.\d]*"#, "LIBCUDA"),
        (r"[^\s]*/compute-sanitizer\b", "COMPUTE-SANITIZER"),
        (r"chosen because .*$", "chosen because REASON"),
        // Advice, which is other words under a sanitizer than without one.
        (r"(; the context is lost)\. .*$", "$1"),
        (
            r"by kernelgate's CPU driver, because .*$",
            "by kernelgate's CPU driver",
        ),
        (r"for CUDA \d+\.\d+", "for CUDA VERSION"),
        (r"(?i)\bpid[ =:]*\d+", "PID"),
        (r"\b\d+(?:\.\d+)?(?:e-?\d+)? ?(?:ns|µs|us|ms|s)\b", "TIME"),
        (r"\bERROR: ", "Error: "),
    ]
    .into_iter()
    .map(|(pattern, stand_in)| {
        let regex = Regex::new(pattern).expect("the pattern is a constant and tested");
        (regex, stand_in)
    })
    .collect()
});

/// One line with its accidents replaced.
pub fn line(text: &str) -> String {
    let mut line = text.trim_end().to_string();
    for (regex, stand_in) in RULES.iter() {
        line = regex.replace_all(&line, *stand_in).into_owned();
    }
    without_separators(&line)
}

/// Only some versions separate thousands. Coordinates, `(1,100,200)`, are told
/// apart by their parenthesis.
fn without_separators(line: &str) -> String {
    static GROUPED: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(^|[^(\d,])(\d{1,3}(?:,\d{3})+)\b").expect("the pattern is tested")
    });
    GROUPED
        .replace_all(line, |found: &regex_lite::Captures| {
            format!("{}{}", &found[1], found[2].replace(',', ""))
        })
        .into_owned()
}

impl Normal {
    /// Splits an output into the program's lines and the sanitizer's blocks.
    pub fn of(output: &str) -> Normal {
        let mut program = Vec::new();
        let mut blocks: Vec<String> = Vec::new();
        for raw in output.lines() {
            let Some(text) = tool_line(raw) else {
                program.push(line(raw));
                continue;
            };
            if is_host_frame(text) || text.trim().is_empty() {
                continue;
            }
            let text = line(text);
            match blocks.last_mut() {
                Some(block) if text.starts_with(' ') => {
                    block.push('\n');
                    block.push_str(&text);
                }
                _ => blocks.push(text),
            }
        }
        blocks.sort();
        Normal { program, blocks }
    }

    /// The first few differences in words; empty when equal.
    pub fn differences(&self, other: &Normal) -> Vec<String> {
        let mut differences = Vec::new();
        let length = self.program.len().max(other.program.len());
        for at in 0..length {
            let (a, b) = (self.program.get(at), other.program.get(at));
            if a != b {
                differences.push(format!(
                    "line {} of the program: recorded {}, now {}",
                    at + 1,
                    shown(a),
                    shown(b)
                ));
            }
        }
        for block in missing(&self.blocks, &other.blocks) {
            differences.push(format!("recorded, not found now: {block}"));
        }
        for block in missing(&other.blocks, &self.blocks) {
            differences.push(format!("found now, not recorded: {block}"));
        }
        differences
    }
}

fn shown(line: Option<&String>) -> String {
    line.map_or("nothing".into(), |line| format!("`{line}`"))
}

/// Blocks of `a` that `b` lacks, counting repeats.
pub fn missing(a: &[String], b: &[String]) -> Vec<String> {
    let mut rest: Vec<&String> = b.iter().collect();
    let mut out = Vec::new();
    for block in a {
        match rest.iter().position(|other| *other == block) {
            Some(at) => {
                rest.swap_remove(at);
            }
            None => out.push(block.clone()),
        }
    }
    out
}

/// Host frames depend on the machine's libraries and on inlining.
fn is_host_frame(text: &str) -> bool {
    text.contains("Host Frame:") || text.contains("Saved host backtrace")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::report::tests::SAMPLE;

    #[test]
    fn accidents_are_replaced_and_figures_are_kept() {
        for (given, want) in [
            ("    at k+0x160 in a.cu:36", "    at k+OFFSET in a.cu:36"),
            ("    at k:0x160 in a.cu:36", "    at k+OFFSET in a.cu:36"),
            (
                "    Access to 0x7f3c0a00601c is out of bounds",
                "    Access to ADDRESS is out of bounds",
            ),
            (
                "    Address 0x408 is out of bounds",
                "    Address 0x408 is out of bounds",
            ),
            ("of size 24,604 bytes", "of size 24604 bytes"),
            ("1,234,567", "1234567"),
            (
                "thread (6,0,0) in block (24,0,0)",
                "thread (6,0,0) in block (24,0,0)",
            ),
            ("thread (1,100,200)", "thread (1,100,200)"),
            ("took 1.25 ms, 3s", "took TIME, TIME"),
            ("error 6.111e-3", "error 6.111e-3"),
            ("pid 123", "PID"),
            ("ERROR: x", "Error: x"),
            (
                "device: X (sm_90); NVIDIA's driver for CUDA 13.0, /usr/lib/libcuda.so.1, chosen because it has one",
                "device: X (sm_90); NVIDIA's driver for CUDA VERSION, LIBCUDA, chosen because REASON",
            ),
        ] {
            assert_eq!(line(given), want);
        }
    }

    #[test]
    fn another_address_order_and_backtrace_are_no_difference() {
        let (first, second) = SAMPLE.split_once("========= Invalid __shared__").unwrap();
        let (shared, rest) = second.split_once("=========\n").unwrap();
        let (device, global) = first.split_once("========= Invalid __global__").unwrap();
        let swapped = format!(
            "{device}========= Invalid __shared__{shared}=========\n========= Invalid __global__{global}{rest}"
        )
        .replace("0x7f3c0a", "0x7aaaaa")
        .replace("+0x160", "+0x1b0")
        .replace("Host Frame: main", "Host Frame: start");
        let (a, b) = (Normal::of(SAMPLE), Normal::of(&swapped));
        assert_ne!(swapped, SAMPLE);
        assert_eq!(a.differences(&b), Vec::<String>::new());
    }

    /// Each edit is a finding or a figure of the lesson, and must be seen.
    #[test]
    fn another_figure_is_a_difference() {
        for (from, to) in [
            ("thread (6,0,0)", "thread (7,0,0)"),
            ("block (24,0,0)", "block (23,0,0)"),
            ("adjacent_difference.cu:36", "adjacent_difference.cu:37"),
            ("is 1 bytes after", "is 5 bytes after"),
            ("24,604", "24,608"),
            ("0x408", "0x40c"),
            ("read of size 4", "read of size 8"),
            ("error 719", "error 700"),
            ("ERROR SUMMARY: 4", "ERROR SUMMARY: 5"),
            ("PASS something", "FAIL something"),
            ("========= Leaked 24,604 bytes at 0x7f3c0a00c400\n", ""),
        ] {
            let edited = SAMPLE.replace(from, to);
            assert_ne!(edited, SAMPLE, "{from}");
            let differences = Normal::of(SAMPLE).differences(&Normal::of(&edited));
            assert!(!differences.is_empty(), "{from} -> {to}");
        }
    }

    #[test]
    fn repeats_are_counted() {
        let block = |n: usize| vec!["x".to_string(); n];
        assert_eq!(missing(&block(25), &block(24)).len(), 1);
        assert!(missing(&block(24), &block(25)).is_empty());
    }
}
