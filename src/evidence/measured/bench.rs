//! The benchmark: times, and whether they can be trusted.

use super::super::plan::Step;
use super::{longer, on_cpu, on_gpu};

/// Times and whether they can be trusted.
pub const BENCH: &[Step] = &[
    Step {
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
    longer(on_gpu(
        "aa",
        &["bench", "aa", "--comparisons", "50"],
        &[r"^(A/A .*: \d+ comparisons, \d+ false SLOWER, \d+ false FASTER), "],
    )),
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
            r"^(\S+) +\S+ thread-instructions a second ",
        ],
    ),
];
