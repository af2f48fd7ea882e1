//! The GEMM harness: correct kernels pass, planted ones do not.

use super::super::plan::Step;
use super::{kernelgate, longer, on_gpu};

/// How many cases passed.
const COUNTS: &str = r"^(\d+ passed, \d+ failed, \d+ skipped)";
/// The same, and how many were not for a subject.
const TALLY: &[&str] = &[
    COUNTS,
    // Up to where a library was looked for.
    r"^  (skipped \d+: \S+: [^:;]*)",
];

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
    longer(kernelgate(
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
    )),
    longer(kernelgate("ladder", &["gemm", "check"], TALLY)),
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
    // Every element against an FP64 product on the device.
    on_gpu(
        "sweep-full",
        &[
            "gemm",
            "check",
            "--subject",
            "cublaslt,mma,wgmma",
            "--cases",
            "300",
            "--max-m",
            "4096",
            "--seed",
            "8",
            "--strength",
            "device-full",
            "--no-shrink",
        ],
        TALLY,
    ),
    on_gpu(
        "large",
        &[
            "gemm",
            "check",
            "--subject",
            "cublaslt,mma,wgmma",
            "--only",
            "8192,16384,16384",
            "--a",
            "e4m3,1x128,f32",
            "--b",
            "e4m3,128x128,f32",
            "--output",
            "bf16",
            "--input",
            "normal",
            "--repeat",
            "3",
            "--strength",
            "device",
        ],
        VERDICT,
    ),
    on_gpu(
        "large-full",
        &[
            "gemm",
            "check",
            "--subject",
            "cublaslt",
            "--only",
            "8192,16384,16384",
            "--a",
            "e4m3,1x128,f32",
            "--b",
            "e4m3,128x128,f32",
            "--output",
            "bf16",
            "--input",
            "normal",
            "--repeat",
            "3",
            "--strength",
            "device-full",
        ],
        VERDICT,
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
