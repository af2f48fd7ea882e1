//! The commands whose output holds times: GEMM, benchmark, mixture of experts.
//!
//! A second run must give the same exit codes, verdicts and counts; the patterns say
//! which. Times are not compared: `kernelgate bench --compare` is for that.

mod bench;
mod gemm;
mod moe;

pub use bench::BENCH;
pub use gemm::GEMM;
pub use moe::MOE;

use super::plan::{Compare, Needs, Step};

const fn kernelgate(
    name: &'static str,
    arguments: &'static [&'static str],
    patterns: &'static [&'static str],
) -> Step {
    Step {
        compare: Compare::Lines(patterns),
        ..Step::bare(name, "kernelgate", arguments)
    }
}

const fn on_gpu(
    name: &'static str,
    arguments: &'static [&'static str],
    patterns: &'static [&'static str],
) -> Step {
    Step {
        needs: Needs::Gpu,
        ..kernelgate(name, arguments, patterns)
    }
}

const fn on_cpu(
    name: &'static str,
    arguments: &'static [&'static str],
    patterns: &'static [&'static str],
) -> Step {
    Step {
        needs: Needs::CpuDriver,
        ..kernelgate(name, arguments, patterns)
    }
}

/// Of large shapes, on a GPU.
const fn longer(step: Step) -> Step {
    Step {
        limit_s: 600,
        ..step
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::assess::problems;
    use crate::evidence::kept::Kept;
    use crate::evidence::run::Ran;

    /// Plan, step, an output in the command's own format, and the edits that a second
    /// run must not get away with.
    type Sample = (
        &'static [Step],
        &'static str,
        &'static str,
        &'static [(&'static str, &'static str)],
    );

    const SAMPLES: &[Sample] = &[
        (
            GEMM,
            "scoreboard",
            "| zero-tile (21/21) | # | o | # |\n| scale (13/21) | o | o | . |\n\
             | caught, all inputs | 2/2 | 1/2 |\n| false alarms | 0/280 | 1/280 |\n",
            &[
                ("| # | o |", "| . | o |"),
                ("| o | o |", "| . | o |"),
                ("2/2", "1/2"),
                ("0/280", "1/280"),
                ("0/280", "0/2"),
            ],
        ),
        (
            GEMM,
            "ladder",
            "280 passed, 0 failed, 344 skipped; 7.11 ms a case, of 280 judged\n  skipped 12: mma: no\n",
            &[("280 p", "279 p"), ("12: mma", "11: mma")],
        ),
        (
            GEMM,
            "promotion-wgmma",
            "PASS wgmma only: dense\n     262144 elements, kernel 1.4 ms\n1 passed, 0 failed, 0 skipped\n",
            &[("PASS", "FAIL"), ("1 passed, 0", "0 passed, 1")],
        ),
        (
            BENCH,
            "inject",
            "sum/stream/1GiB with 3 % more work: SLOWER, +3.01 %\n\
             sum/stream/1GiB with 0.3 % more work: SAME, the difference\n",
            &[("SLOWER", "SAME"), ("work: SAME", "work: SLOWER")],
        ),
        (
            BENCH,
            "aa",
            "A/A interleaved: 50 comparisons, 0 false SLOWER, 0 false FASTER, 37 SAME\n",
            &[("0 false SLOWER", "1 false SLOWER"), ("50 c", "5 c")],
        ),
        (
            MOE,
            "check",
            "PASS odd masked 24 tokens, rerun same bits, 0.36 s\n1 of 1 cases passed, seed 1\n",
            &[
                ("PASS", "FAIL"),
                ("same bits", "OTHER BITS"),
                ("1 of 1", "0 of 1"),
            ],
        ),
        (
            MOE,
            "faults",
            "none (correct)     masked     rank 1: silent   \n\
             stale-counts       masked     rank 1: named    counts: rank 1\n\
             1 of 1 planted faults caught, 1 named, 0 false alarms on 2 correct runs, 0 skipped\n",
            &[
                ("silent ", "alarm  "),
                ("named  ", "caught "),
                ("0 false", "1 false"),
                ("1 of 1", "0 of 1"),
            ],
        ),
        (
            MOE,
            "loss",
            "holds: kill rank 1 of 2: rank 1 lost: its connection closed\n",
            &[("holds:", "GATE:"), ("rank 1 lost", "rank 0 lost")],
        ),
        (
            MOE,
            "bench-one-gpu",
            "route     35.5 us (34.3 to 38.0)\nmedians; results after timing: the same bits\n",
            &[("route", "other"), ("the same bits", "OTHER BITS")],
        ),
    ];

    #[test]
    fn a_changed_verdict_or_count_fails_and_a_changed_time_does_not() {
        for (steps, name, output, edits) in SAMPLES {
            let step = steps.iter().find(|step| step.name == *name).unwrap();
            let Compare::Lines(patterns) = step.compare else {
                panic!("{name} compares times");
            };
            let recorded = Kept::of(patterns, output).unwrap();
            assert!(recorded.unmatched.is_empty(), "{name}: {recorded:?}");
            for (from, to) in *edits {
                assert!(output.contains(from), "{name}: {from}");
                let now = Kept::of(patterns, &output.replacen(from, to, 1)).unwrap();
                let noticed = !recorded.differences(&now).is_empty();
                assert!(noticed, "{name}: {from} -> {to}");
            }
            for (from, to) in [
                ("0.36 s", "7.11 s"),
                ("35.5 us", "31.0 us"),
                ("1.4 ms", "2 ms"),
            ] {
                let now = Kept::of(patterns, &output.replace(from, to)).unwrap();
                assert_eq!(recorded, now, "{name}: {from} -> {to}");
            }
        }
    }

    /// Of a command that prints nothing that could be compared, nothing is kept.
    #[test]
    fn a_run_without_a_compared_line_is_a_problem() {
        for step in GEMM.iter().chain(BENCH).chain(MOE) {
            let ran = Ran {
                exit: step.exit,
                output: "device: X\n".into(),
            };
            assert!(!problems(step, &ran).is_empty(), "{}", step.name);
        }
    }
}
