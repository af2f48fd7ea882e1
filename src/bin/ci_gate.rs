//! Lesson: a green test is not a clean program.
//!
//! `squarePastEnd` leaves the right square in each of its 1,000 elements and also
//! stores one float past the end of the output. No host-side comparison can see
//! that store, so this program exits 0. A sanitizer sees it, but reports it in the
//! exit code only when asked:
//!
//! | run | exit code |
//! |---|---|
//! | bare | 0 |
//! | `compute-sanitizer --destroy-on-device-error kernel` | 0 |
//! | the same with `--error-exitcode 1` | 1 |
//! | `compute-sanitizer`, defaults | 1: the context is destroyed, and the synchronise after the launch fails |
//! | any of them with `--fixed` | 0 |

use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use kernelgate::device::{Device, DeviceInfo, Launch};
use kernelgate::exit::{self, Exit, UsageError};
use kernelgate::harness::check::{Gate, compare};
use kernelgate::harness::figures::count;
use kernelgate::harness::{Claims, Verdict, poison};
use kernelgate::kernels::SQUARE;
use kernelgate::{out, outln};
use serde::Serialize;

/// Ragged: the last of four blocks has 232 elements, and its eighth warp 8.
const ELEMENTS: usize = 1_000;
const THREADS: u32 = 256;

/// A kernel whose visible output is right and which also stores one element past
/// the end of it.
#[derive(Parser)]
#[command(version, after_help = exit::HELP)]
struct Arguments {
    /// Launch the memory-clean variant of the kernel.
    #[arg(long)]
    fixed: bool,
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
    kernel: &'static str,
    elements: usize,
    #[serde(flatten)]
    verdict: Verdict,
    claims: Claims,
    exit: u8,
}

fn main() -> ExitCode {
    exit::program(|arguments: &Arguments| arguments.json, run)
}

fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let kernel = if arguments.fixed {
        "squareGuarded"
    } else {
        "squarePastEnd"
    };
    let device = Device::open()?;
    if !arguments.json {
        outln!("{}", device.banner())?;
    }
    let verdict = square(&device, kernel)?;
    let mut claims = claims(kernel, &verdict);
    if let Some(id) = &arguments.flip {
        claims.flip(id).map_err(|e| UsageError(e.to_string()))?;
    }
    let exit = claims.exit();
    if arguments.json {
        let report = Report {
            device: device.info(),
            lesson: "ci_gate",
            kernel,
            elements: ELEMENTS,
            verdict,
            claims,
            exit: exit.code(),
        };
        outln!("{}", serde_json::to_string(&report)?)?;
    } else {
        outln!("{} {kernel}: {}", verdict.word(), sentence(&verdict))?;
        out!("{claims}")?;
    }
    Ok(exit)
}

/// Launches `kernel` and compares every element that the host can see.
fn square(device: &Device, kernel: &str) -> anyhow::Result<Verdict> {
    let module = device.load(&SQUARE)?;
    let host = input();
    let input = device.upload(&host)?;
    let output = device.upload(&poison::floats(ELEMENTS))?;
    let blocks = (ELEMENTS as u32).div_ceil(THREADS);
    module
        .kernel(kernel)?
        .launch(
            Launch::linear(blocks, THREADS),
            &[&input, &output, &(ELEMENTS as u64)],
        )
        .with_context(|| format!("launching {kernel}"))?;
    device
        .synchronize()
        .with_context(|| format!("waiting for {kernel}"))?;
    Ok(compare(&output.download()?, &reference(&host), Gate::Exact))
}

/// Halves from 0.5 up: each square is exact in f32, none is zero.
fn input() -> Vec<f32> {
    (1..=ELEMENTS).map(|i| i as f32 * 0.5).collect()
}

/// Squares as sums of odd numbers, (k/2)² = (1 + 3 + … + (2k - 1))/4: no
/// multiplication in common with the kernel.
fn reference(input: &[f32]) -> Vec<f64> {
    input
        .iter()
        .map(|&value| {
            let k = (f64::from(value) * 2.0) as u64;
            (0..k).map(|j| (2 * j + 1) as f64).sum::<f64>() / 4.0
        })
        .collect()
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

fn claims(kernel: &str, verdict: &Verdict) -> Claims {
    let mut claims = Claims::default();
    claims.expect(
        "visible_output",
        format!("every element that {kernel} should write is right"),
        verdict.passed(),
        sentence(verdict),
    );
    claims
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_is_the_square() {
        let input = input();
        for (value, want) in input.iter().zip(reference(&input)) {
            assert_eq!(f64::from(*value) * f64::from(*value), want);
            assert_eq!(f64::from(value * value), want, "exact in f32");
        }
    }

    #[test]
    fn a_wrong_or_unwritten_element_breaks_the_claim() {
        let reference = reference(&input());
        let right: Vec<f32> = reference.iter().map(|&v| v as f32).collect();
        let judge = |output: &[f32]| claims("k", &compare(output, &reference, Gate::Exact)).exit();
        assert_eq!(judge(&right), Exit::Held);
        for index in [0, 992, ELEMENTS - 1] {
            let mut wrong = right.clone();
            wrong[index] += 1.0;
            assert_eq!(judge(&wrong), Exit::Failed, "{index}");
            wrong[index] = f32::from_bits(poison::F32_BITS);
            assert_eq!(judge(&wrong), Exit::Failed, "{index}");
        }
        assert_eq!(judge(&right[1..]), Exit::Failed);
    }
}
