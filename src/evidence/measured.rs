//! The commands whose output holds times: GEMM, benchmark, mixture of experts.
//!
//! A second run must give the same exit codes, verdicts and counts; the patterns say
//! which. Times are not compared: `kernelgate bench --compare` is for that.

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

/// How many cases passed.
const COUNTS: &str = r"^(\d+ passed, \d+ failed, \d+ skipped)$";
/// The same, and how many were not for a subject.
const TALLY: &[&str] = &[COUNTS, r"^  (skipped \d+: .*)$"];

/// One case and its verdict.
const VERDICT: &[&str] = &[r"^((?:PASS|FAIL) \S+ only: .*)$", COUNTS];

macro_rules! promotion {
    ($subject:literal) => {
        &[
            "gemm",
            "check",
            "--subject",
            $subject,
            "--only",
            "512,512,4096",
            "--a",
            "e4m3,tensor,f32",
            "--b",
            "e4m3,tensor,f32",
            "--output",
            "f32",
            "--input",
            "positive",
            "--seed",
            "1",
        ]
    };
}

/// Correct kernels pass, planted ones do not.
pub const GEMM: &[Step] = &[
    Step {
        limit_s: 900,
        ..kernelgate(
            "scoreboard",
            &[
                "gemm",
                "faults",
                "--seed",
                "1",
                "--subject",
                "all",
                "--markdown",
            ],
            &[
                // Which of a race's inputs shows it first depends on luck: caught is
                // compared, not by what.
                r"^\| ([a-z0-9-]+) \(\d+/\d+\) \| [#o] \|",
                r"^\| (caught, all inputs \| \d+/\d+) ",
                r"^\| (false alarms \| \d+/\d+) ",
            ],
        )
    },
    Step {
        limit_s: 600,
        ..kernelgate("ladder", &["gemm", "check"], TALLY)
    },
    on_gpu(
        "sweep",
        &[
            "gemm",
            "check",
            "--subject",
            "cublaslt,mma",
            "--cases",
            "2400",
            "--max-m",
            "4096",
            "--seed",
            "7",
            "--strength",
            "device",
            "--no-shrink",
        ],
        TALLY,
    ),
    on_gpu("huge", &["gemm", "check", "--huge"], &[COUNTS]),
    // Same-sign inputs show a sum that is never promoted to FP32.
    on_gpu("promotion-cublaslt", promotion!("cublaslt"), VERDICT),
    Step {
        exit: 1,
        ..on_gpu(
            "promotion-cublaslt-fast",
            promotion!("cublaslt-fast"),
            VERDICT,
        )
    },
    on_gpu("promotion-wgmma", promotion!("wgmma"), VERDICT),
    Step {
        exit: 1,
        ..on_gpu(
            "promotion-wgmma-unpromoted",
            promotion!("wgmma-unpromoted"),
            VERDICT,
        )
    },
];

/// Times and whether they can be trusted.
pub const BENCH: &[Step] = &[
    Step {
        limit_s: 400,
        files: &[
            "bench.jsonl",
            "bench.html",
            "plots/roofline.svg",
            "plots/time-gemm.svg",
            "plots/time-stream.svg",
            "baselines/recorded.json",
        ],
        ..on_gpu(
            "bench",
            &[
                "bench",
                "--json",
                "bench.jsonl",
                "--html",
                "bench.html",
                "--plots",
                "plots",
                "--save",
                "recorded",
                "--baselines",
                "baselines",
            ],
            // Which cases ran; exit code 0 says that their results were right.
            &[r"^(\S+/(?:cold|warm)) +[\d.]+ +[\d.]+-[\d.]+ "],
        )
    },
    // Long cases, steady far below the floor of 1 %.
    on_gpu(
        "compare",
        &[
            "bench",
            "--compare",
            "recorded",
            "--baselines",
            "baselines",
            "--only",
            "stream/1GiB",
        ],
        &[
            r"^(\S+/(?:cold|warm) +SAME) ",
            r"^(\d+ same, \d+ faster, \d+ slower, \d+ inconclusive)",
        ],
    ),
    // As on a device that is in no table.
    on_gpu(
        "peaks-measured",
        &[
            "bench",
            "--peaks",
            "measured",
            "--only",
            "wgmma/dense/4096x4096x7168/bf16/cold",
        ],
        &[
            r"^(peaks: measured here, no datasheet): \S+ GB/s by a copy .*, fp8 \S+ TFLOPS by .*, fp32 \S+ TFLOPS by ",
            r"^(\S+/(?:cold|warm)) +[\d.]+ +[\d.]+-[\d.]+ ",
        ],
    ),
    on_gpu(
        "inject",
        &["bench", "inject"],
        &[
            r"^(\S+ with 3 % more work: SLOWER), ",
            r"^(\S+ with 0.3 % more work): (?:SAME|INCONCLUSIVE), ",
        ],
    ),
    Step {
        limit_s: 400,
        ..on_gpu(
            "aa",
            &["bench", "aa", "--comparisons", "50"],
            &[r"^(A/A .*: \d+ comparisons, \d+ false SLOWER, \d+ false FASTER), "],
        )
    },
    on_gpu(
        "against-ncu",
        &["bench", "against-ncu"],
        &[
            r"^(\S+/(?:cold|warm)) +[\d.]+ +[\d.]+ +[\d.]+ .*%$",
            r"^(\d+ of \d+ agree): ",
        ],
    ),
    on_cpu(
        "cpu-driver-speed",
        &["bench"],
        &[
            r"(no time of a GPU and no TFLOPS)",
            r"^(\S+) +\S+ thread-instructions a second .*, (\d+ a launch)$",
        ],
    ),
];

/// A case's verdict and what was looked at.
const CASE: &str = r"^((?:PASS|FAIL) .*), [\d.]+ s$";
const CASES: &[&str] = &[CASE, r"^(\d+ of \d+ cases passed, seed \d+)$"];
/// The parts that were timed, and that nothing else was computed than before.
const TIMED: &[&str] = &[
    r"^(route|counts and plan|dispatch|first GEMM|SwiGLU|second GEMM|return|combine|whole layer|transfer alone|transfer beside first GEMM) +[\d.]+ us",
    r"(results after timing: the same bits)$",
];
const NAMED: &[&str] = &[
    r"^(\S.*) (contiguous|masked) +(rank \d+: named|rank \d+: silent) ",
    r"^(\d+ of \d+ planted faults caught, \d+ named, \d+ false alarms .*)$",
];

const fn longer(step: Step) -> Step {
    Step {
        limit_s: 600,
        ..step
    }
}

macro_rules! bench {
    ($ranks:literal, $tokens:literal) => {
        &[
            "moe",
            "bench",
            "--ranks",
            $ranks,
            "--shape",
            "deepseek",
            "--layout",
            "contiguous",
            "--tokens",
            $tokens,
        ]
    };
}

macro_rules! started {
    ($rank:literal, $ranks:literal, $local:literal) => {
        &[
            &[
                ($rank, "0"),
                ($ranks, "2"),
                ($local, "0"),
                ("MASTER_ADDR", "127.0.0.1"),
                ("MASTER_PORT", "$PORT"),
                ("KERNELGATE_TOKEN", "$TOKEN"),
            ],
            &[
                ($rank, "1"),
                ($ranks, "2"),
                ($local, "1"),
                ("MASTER_ADDR", "127.0.0.1"),
                ("MASTER_PORT", "$PORT"),
                ("KERNELGATE_TOKEN", "$TOKEN"),
            ],
        ]
    };
}

/// Two ranks, or as many as the command says.
pub const MOE: &[Step] = &[
    kernelgate("check", &["moe", "check", "--ranks", "2"], CASES),
    kernelgate("faults", &["moe", "faults", "--ranks", "2"], NAMED),
    kernelgate(
        "loss",
        &["moe", "loss", "--ranks", "2", "--timeout", "10"],
        &[r"^(holds: \S+ rank \d+ of \d+: rank \d+ lost): "],
    ),
    Step {
        ranks: started!("RANK", "WORLD_SIZE", "LOCAL_RANK"),
        ..kernelgate(
            "started-as-by-torchrun",
            &["moe", "check", "--case", "odd-counts"],
            CASES,
        )
    },
    Step {
        ranks: started!(
            "OMPI_COMM_WORLD_RANK",
            "OMPI_COMM_WORLD_SIZE",
            "OMPI_COMM_WORLD_LOCAL_RANK"
        ),
        ..kernelgate(
            "started-as-by-mpirun",
            &["moe", "check", "--case", "odd-counts"],
            CASES,
        )
    },
    Step {
        ranks: started!("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
        ..kernelgate(
            "started-as-by-srun",
            &["moe", "check", "--case", "odd-counts"],
            CASES,
        )
    },
    on_cpu(
        "check-16-ranks",
        &["moe", "check", "--ranks", "16", "--case", "zero-token-rank"],
        CASES,
    ),
    longer(on_gpu(
        "sweep",
        &[
            "moe",
            "check",
            "--ranks",
            "2",
            "--sweep",
            "20",
            "--largest",
            "2048",
        ],
        CASES,
    )),
    longer(on_gpu(
        "deepseek",
        &[
            "moe",
            "check",
            "--ranks",
            "2",
            "--shape",
            "deepseek",
            "--tokens",
            "64",
            "--case",
            "odd-counts,one-expert",
        ],
        CASES,
    )),
    longer(on_gpu(
        "mixtral",
        &[
            "moe",
            "check",
            "--ranks",
            "2",
            "--shape",
            "mixtral",
            "--tokens",
            "64",
            "--case",
            "odd-counts,skewed",
        ],
        CASES,
    )),
    longer(on_gpu(
        "8192-tokens",
        &[
            "moe",
            "check",
            "--ranks",
            "2",
            "--shape",
            "mixtral",
            "--tokens",
            "8192",
            "--case",
            "odd-counts",
            "--layout",
            "contiguous",
            "--iterations",
            "1",
            "--no-single-rank",
        ],
        CASES,
    )),
    on_gpu("bench-1-token", bench!("2", "1"), TIMED),
    on_gpu("bench-128-tokens", bench!("2", "128"), TIMED),
    on_gpu("bench-1024-tokens", bench!("2", "1024"), TIMED),
    longer(on_gpu("bench-8192-tokens", bench!("2", "8192"), TIMED)),
    on_gpu("bench-one-gpu", bench!("1", "1024"), TIMED),
];

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
            "280 passed, 0 failed, 344 skipped\n  skipped 12: mma: no\n",
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
