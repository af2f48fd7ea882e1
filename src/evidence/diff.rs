//! The shipped build of `memory_bugs` against its clean build: their transcripts
//! must differ in the planted findings alone.

use std::collections::BTreeMap;
use std::path::Path;

use super::lessons::{BUFFER, CLEAN, SHIPPED};
use super::normalise::{Normal, missing};
use super::report::Report;
use super::transcript::Transcript;

/// Kernels that only the shipped build launches.
const PLANTED_KERNELS: [&str; 2] = ["diffNextPastEnd", "windowSumPastTile"];
/// Blocks of the windowed sum; each writes past its tile once.
const BLOCKS: u64 = 25;

/// What the comparison found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Planted findings, one line a kind.
    pub planted: Vec<String>,
    /// Anything else: noise, or a bug that nobody planted.
    pub unexplained: Vec<String>,
}

/// Reads the two transcripts of one device and compares them.
///
/// # Errors
/// A transcript that is missing or is none.
pub fn of_folder(folder: &Path) -> anyhow::Result<Difference> {
    let shipped = Transcript::read(folder, SHIPPED)?;
    let clean = Transcript::read(folder, CLEAN)?;
    Ok(between(&shipped.output, &clean.output))
}

/// Compares two outputs.
pub fn between(shipped: &str, clean: &str) -> Difference {
    let mut difference = Difference::default();
    findings(shipped, clean, &mut difference);
    let (shipped, clean) = (Normal::of(shipped), Normal::of(clean));
    for line in missing(&shipped.program, &clean.program) {
        if !is_explained(&line) {
            difference
                .unexplained
                .push(format!("only the shipped build printed: {line}"));
        }
    }
    for line in missing(&clean.program, &shipped.program) {
        if !line.starts_with("build:") {
            difference
                .unexplained
                .push(format!("only the clean build printed: {line}"));
        }
    }
    difference
}

/// The line that names the build, and what the broken kernels' passes say.
fn is_explained(line: &str) -> bool {
    line.starts_with("build:") || PLANTED_KERNELS.iter().any(|kernel| line.contains(kernel))
}

fn findings(shipped: &str, clean: &str, difference: &mut Difference) {
    let (shipped, clean) = (Report::parse(shipped), Report::parse(clean));
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for access in &shipped.accesses {
        let at = match &access.source {
            Some((file, line)) => format!(" at {file}:{line}"),
            None => String::new(),
        };
        let text = format!(
            "invalid __{}__ {} of {} bytes in {}{at}",
            access.space, access.kind, access.size, access.kernel
        );
        *found.entry(text).or_default() += 1;
    }
    for bytes in &shipped.leaks {
        *found.entry(format!("{bytes} bytes leaked")).or_default() += 1;
    }
    let expected = [
        ("invalid __global__ read of 4 bytes in diffNextPastEnd", 1),
        (
            "invalid __shared__ write of 4 bytes in windowSumPastTile",
            BLOCKS,
        ),
        (&*format!("{BUFFER} bytes leaked"), 1),
    ];
    for (start, count) in expected {
        let kinds: Vec<_> = found
            .iter()
            .filter(|(text, _)| text.starts_with(start))
            .map(|(text, n)| (text.clone(), *n))
            .collect();
        match kinds.as_slice() {
            [(text, n)] if *n == count => difference.planted.push(format!("{n} × {text}")),
            _ => difference.unexplained.push(format!(
                "expected {count} × {start}, found {}",
                match kinds.as_slice() {
                    [] => "none".to_string(),
                    _ => format!("{kinds:?}"),
                }
            )),
        }
        for (text, _) in kinds {
            found.remove(&text);
        }
    }
    let rest = found.into_iter().map(|(text, n)| format!("{n} × {text}"));
    let others = shipped.api_errors.iter().chain(&shipped.others).cloned();
    difference.unexplained.extend(rest.chain(others));
    let silent = Report {
        errors: Some(0),
        leak_summary: Some((0, 0)),
        ..Report::default()
    };
    if clean != silent {
        difference
            .unexplained
            .push(format!("the clean build's report is not silent: {clean:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clean() -> String {
        "device: X\nbuild: clean\nPASS diffNext: 1\nPASS windowSum: 1\n\
         ========= COMPUTE-SANITIZER\n\
         ========= LEAK SUMMARY: 0 bytes leaked in 0 allocations\n\
         ========= ERROR SUMMARY: 0 errors\n"
            .into()
    }

    fn shipped() -> String {
        let mut text = String::from(
            "device: X\nbuild: as shipped\nPASS diffNext: 1\nPASS windowSum: 1\n\
             ========= COMPUTE-SANITIZER\n\
             ========= Invalid __global__ read of size 4 bytes\n\
             =========     at diffNextPastEnd+0x160 in adjacent_difference.cu:36\n\
             =========     by thread (6,0,0) in block (24,0,0)\n=========\n\
             FAIL diffNextPastEnd: element 6,144\n",
        );
        for block in 0..25 {
            text += &format!(
                "========= Invalid __shared__ write of size 4 bytes\n\
                 =========     at windowSumPastTile+0x210 in window_sum.cu:57\n\
                 =========     by thread (2,0,0) in block ({block},0,0)\n=========\n"
            );
        }
        text + "GATE: [windowSumPastTile] wrong\n\
                ========= Leaked 24,604 bytes at 0x7f3c0a00c400\n\
                ========= LEAK SUMMARY: 24604 bytes leaked in 1 allocations\n\
                ========= ERROR SUMMARY: 27 errors\n"
    }

    #[test]
    fn the_planted_findings_are_the_whole_difference() {
        let difference = between(&shipped(), &clean());
        assert_eq!(difference.unexplained, Vec::<String>::new());
        assert_eq!(
            difference.planted,
            [
                "1 × invalid __global__ read of 4 bytes in diffNextPastEnd at adjacent_difference.cu:36",
                "25 × invalid __shared__ write of 4 bytes in windowSumPastTile at window_sum.cu:57",
                "1 × 24604 bytes leaked",
            ]
        );
    }

    /// Each edit is something that nobody planted.
    #[test]
    fn anything_else_is_unexplained() {
        let extra_leak = "========= Leaked 24,604 bytes at 0x7f3c0a00c400\n";
        let edits: Vec<(String, String)> = vec![
            (shipped().replacen("shared", "local", 1), clean()),
            (
                shipped().replacen("windowSumPastTile", "windowSum", 1),
                clean(),
            ),
            (
                shipped()
                    .replace("adjacent_difference.cu:36", "a.cu:1")
                    .replacen("__global__ read", "__global__ write", 1),
                clean(),
            ),
            (shipped().replace(extra_leak, ""), clean()),
            (
                shipped().replace(extra_leak, &extra_leak.repeat(2)),
                clean(),
            ),
            (
                shipped().replace("PASS diffNext:", "FAIL diffNext:"),
                clean(),
            ),
            (shipped() + "noise\n", clean()),
            (shipped(), clean() + "noise\n"),
            (
                shipped(),
                clean().replace("ERROR SUMMARY: 0", "ERROR SUMMARY: 1"),
            ),
            (
                shipped(),
                clean().replace("========= ERROR SUMMARY: 0 errors\n", ""),
            ),
            (shipped(), shipped()),
            (clean(), clean()),
            (
                shipped()
                    + "========= Program hit CUDA_ERROR_X (error 7) due to \"x\" on CUDA API call to y.\n",
                clean(),
            ),
        ];
        for (number, (shipped, clean)) in edits.iter().enumerate() {
            let difference = between(shipped, clean);
            assert!(!difference.unexplained.is_empty(), "edit {number}");
        }
    }
}
