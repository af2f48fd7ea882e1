//! Lesson: three memory bugs behind green output.
//!
//! Four kernels over 6,151 elements (24,604 bytes, 25 blocks of 256 threads, the
//! last block ragged): an adjacent difference and a windowed sum, each in a correct
//! and a broken variant. All four leave the right answer in every element that the
//! host compares, so a bare run exits 0. The three bugs:
//!
//! 1. `diffNextPastEnd` in `kernels/adjacent_difference.cu` reads one element past
//!    its input,
//! 2. `windowSumPastTile` in `kernels/window_sum.cu` writes one cell past its
//!    shared tile in every block,
//! 3. the line marked BUG 3 below gives a buffer away that nothing frees.
//!
//! `RUN_BUGGY_PASS` takes the broken variants and the leak out. Both builds exist
//! side by side, `memory_bugs` and `memory_bugs_clean`, after
//!
//! ```text
//! cargo build --release --features clean
//! ```

use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use kernelgate::device::{Argument, Device, DeviceInfo, Launch, Module};
use kernelgate::exit::{self, Exit, UsageError};
use kernelgate::harness::check::{Gate, compare};
use kernelgate::harness::figures::count;
use kernelgate::harness::{Claims, Verdict, poison};
use kernelgate::kernels::{ADJACENT_DIFFERENCE, WINDOW_SUM};
use kernelgate::{out, outln};
use serde::Serialize;

/// False in the clean build. The exercise is to make the sanitizer silent without
/// touching this.
///
/// The feature `clean` adds a second binary; `memory_bugs` stays as it is under it,
/// so that one `cargo build --features clean` leaves both builds side by side.
pub const RUN_BUGGY_PASS: bool = !(cfg!(feature = "clean") && built_as_clean());

/// Whether Cargo builds this source under the name `memory_bugs_clean`. Byte by
/// byte, because a constant cannot compare strings yet.
const fn built_as_clean() -> bool {
    let Some(name) = option_env!("CARGO_BIN_NAME") else {
        return false;
    };
    let (name, clean) = (name.as_bytes(), b"memory_bugs_clean");
    let mut at = 0;
    while at < name.len() && at < clean.len() && name[at] == clean[at] {
        at += 1;
    }
    at == name.len() && at == clean.len()
}

/// Not a multiple of 256: the last block has 7 elements.
const ELEMENTS: usize = 6_151;
const THREADS: u32 = 256;

/// Four kernels whose output is right, and three memory bugs that no comparison of
/// outputs can see.
#[derive(Parser)]
#[command(version, after_help = exit::HELP)]
struct Arguments {
    /// Print one JSON document instead of text.
    #[arg(long)]
    json: bool,
    /// Expect the opposite of this claim, to see that it is able to fail: the run
    /// must then exit 1 with a line beginning GATE:
    #[arg(long, value_name = "CLAIM")]
    flip: Option<String>,
}

#[derive(Serialize)]
struct Report<'a> {
    device: &'a DeviceInfo,
    lesson: &'static str,
    runs_buggy_pass: bool,
    elements: usize,
    passes: Vec<Pass>,
    claims: Claims,
    exit: u8,
}

/// One kernel and what the comparison of its output found.
#[derive(Serialize)]
struct Pass {
    kernel: &'static str,
    #[serde(flatten)]
    verdict: Verdict,
}

pub fn main() -> ExitCode {
    exit::program(|arguments: &Arguments| arguments.json, run)
}

fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let json = arguments.json;
    let device = Device::open()?;
    if !json {
        outln!("{}", device.banner())?;
        outln!("build: {}", build_words())?;
    }
    let input = input();
    let differences = Lesson {
        device: &device,
        module: device.load(&ADJACENT_DIFFERENCE)?,
        reference: difference_reference(&input),
        input: &input,
        json,
    };
    let windows = Lesson {
        device: &device,
        module: device.load(&WINDOW_SUM)?,
        reference: window_reference(&input),
        input: &input,
        json,
    };

    let mut passes = vec![
        differences.pass("diffNext", &[])?,
        windows.pass("windowSum", &[])?,
    ];
    if RUN_BUGGY_PASS {
        passes.push(tapped_difference(&device, &differences)?);
        passes.push(windows.pass("windowSumPastTile", &[])?);
    }

    let mut claims = claims(&passes);
    if let Some(id) = &arguments.flip {
        claims.flip(id).map_err(|e| UsageError(e.to_string()))?;
    }
    let exit = claims.exit();
    if json {
        let report = Report {
            device: device.info(),
            lesson: "memory_bugs",
            runs_buggy_pass: RUN_BUGGY_PASS,
            elements: ELEMENTS,
            passes,
            claims,
            exit: exit.code(),
        };
        outln!("{}", serde_json::to_string(&report)?)?;
    } else {
        out!("{claims}")?;
    }
    Ok(exit)
}

fn build_words() -> &'static str {
    if RUN_BUGGY_PASS {
        "as shipped, with the broken variants and the leak"
    } else {
        "clean, the broken variants and the leak are compiled out"
    }
}

/// The broken difference also stores each value it loads, so that the compiler must
/// keep the load where it is written. Nothing reads the tap.
fn tapped_difference(device: &Device, differences: &Lesson) -> anyhow::Result<Pass> {
    let tap = device.upload(&poison::words(ELEMENTS))?.leak(); // BUG 3: `.leak()` takes the owner away, nothing frees these 24,604 bytes
    differences.pass("diffNextPastEnd", &[&tap])
}

/// One module with the input and the reference of its kernels.
struct Lesson<'a> {
    device: &'a Device,
    module: Module,
    input: &'a [u32],
    reference: Vec<f64>,
    json: bool,
}

impl Lesson<'_> {
    /// Launches `kernel(in, out, extra…, n)` and compares all of `out`.
    ///
    /// The buffers belong to this call: they are freed whether the output is right
    /// or wrong. A faulted device is the one exception, see `kernelgate::device`.
    fn pass(&self, kernel: &'static str, extra: &[&dyn Argument]) -> anyhow::Result<Pass> {
        let input = self.device.upload(self.input)?;
        let output = self.device.upload(&poison::words(ELEMENTS))?;
        let n = ELEMENTS as u64;
        let mut arguments: Vec<&dyn Argument> = vec![&input, &output];
        arguments.extend(extra);
        arguments.push(&n);

        let blocks = (ELEMENTS as u32).div_ceil(THREADS);
        self.module
            .kernel(kernel)?
            .launch(Launch::linear(blocks, THREADS), &arguments)
            .with_context(|| format!("launching {kernel}"))?;
        self.device
            .synchronize()
            .with_context(|| format!("waiting for {kernel}"))?;

        let verdict = compare(&output.download()?, &self.reference, Gate::Exact);
        if !self.json {
            outln!("{} {kernel}: {}", verdict.word(), sentence(&verdict))?;
        }
        Ok(Pass { kernel, verdict })
    }
}

fn sentence(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Pass(passed) => format!(
            "each of the {} elements equals its reference",
            count(passed.compared)
        ),
        other => other.to_string(),
    }
}

fn claims(passes: &[Pass]) -> Claims {
    let mut claims = Claims::default();
    for pass in passes {
        claims.expect(
            pass.kernel,
            format!("the output of {} is right", pass.kernel),
            pass.verdict.passed(),
            sentence(&pass.verdict),
        );
    }
    claims
}

/// Spread over all 32 bits, so that differences and sums wrap.
fn input() -> Vec<u32> {
    (1..=ELEMENTS as u32)
        .map(|i| i.wrapping_mul(2_654_435_761))
        .collect()
}

const WRAP: i128 = 1 << 32;

/// `in[i + 1] - in[i]` modulo 2^32 and 0 at the end, by whole numbers that do not
/// wrap; every value is exact in f64.
fn difference_reference(input: &[u32]) -> Vec<f64> {
    let mut reference: Vec<f64> = input
        .windows(2)
        .map(|pair| (i128::from(pair[1]) - i128::from(pair[0])).rem_euclid(WRAP) as f64)
        .collect();
    reference.push(0.0);
    reference
}

/// Windows of three from running totals: another order than the kernel's.
fn window_reference(input: &[u32]) -> Vec<f64> {
    let mut totals: Vec<i128> = vec![0];
    for &value in input {
        totals.push(totals[totals.len() - 1] + i128::from(value));
    }
    (0..input.len())
        .map(|i| {
            let first = i.saturating_sub(1);
            let end = (i + 2).min(input.len());
            (totals[end] - totals[first]).rem_euclid(WRAP) as f64
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_are_those_of_the_lesson() {
        assert_eq!(ELEMENTS * size_of::<u32>(), 24_604);
        assert_eq!(ELEMENTS.div_ceil(THREADS as usize), 25);
        assert_eq!(
            ELEMENTS % THREADS as usize,
            7,
            "thread 6 owns the last element"
        );
    }

    #[test]
    fn the_references_agree_with_the_definition_on_wrapping_words() {
        let input = input();
        let at = |i: i64| {
            usize::try_from(i)
                .ok()
                .and_then(|i| input.get(i))
                .copied()
                .unwrap_or(0)
        };
        let differences = difference_reference(&input);
        let windows = window_reference(&input);
        for i in 0..ELEMENTS as i64 {
            let difference = if i + 1 < ELEMENTS as i64 {
                at(i + 1).wrapping_sub(at(i))
            } else {
                0
            };
            let window = at(i - 1).wrapping_add(at(i)).wrapping_add(at(i + 1));
            assert_eq!(differences[i as usize], f64::from(difference), "{i}");
            assert_eq!(windows[i as usize], f64::from(window), "{i}");
        }
    }

    /// Otherwise a kernel that never ran would pass at that element.
    #[test]
    fn poison_is_the_right_answer_nowhere() {
        let input = input();
        for reference in [difference_reference(&input), window_reference(&input)] {
            assert!(!reference.contains(&f64::from(poison::U32)));
        }
    }

    #[test]
    fn a_wrong_output_breaks_its_claim_and_no_passes_hold_nothing() {
        let reference = difference_reference(&input());
        let mut output: Vec<u32> = reference.iter().map(|&v| v as u32).collect();
        let pass = |output: &[u32]| Pass {
            kernel: "diffNext",
            verdict: compare(output, &reference, Gate::Exact),
        };
        assert_eq!(claims(&[pass(&output)]).exit(), Exit::Held);
        output[6_144] ^= 1;
        let wrong = claims(&[pass(&output)]);
        assert_eq!(wrong.exit(), Exit::Failed);
        assert!(wrong.to_string().starts_with("GATE:"), "{wrong}");
        assert!(wrong.to_string().contains("6,144"), "{wrong}");
        assert_eq!(claims(&[]).exit(), Exit::CouldNotRun);
    }
}
