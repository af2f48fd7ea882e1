//! The mixture of experts, on two ranks or as many as a command says.

use super::super::plan::Step;
use super::{kernelgate, longer, on_cpu, on_gpu};

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

macro_rules! most_tokens {
    ($shape:literal) => {
        &[
            "moe",
            "check",
            "--ranks",
            "2",
            "--shape",
            $shape,
            "--tokens",
            "8192",
            "--case",
            "odd-counts",
            "--layout",
            "contiguous",
            "--iterations",
            "1",
            "--no-single-rank",
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
    on_gpu("bench-1-token", bench!("2", "1"), TIMED),
    on_gpu("bench-128-tokens", bench!("2", "128"), TIMED),
    on_gpu("bench-1024-tokens", bench!("2", "1024"), TIMED),
    longer(on_gpu("bench-8192-tokens", bench!("2", "8192"), TIMED)),
    on_gpu("bench-one-gpu", bench!("1", "1024"), TIMED),
    longer(on_gpu(
        "deepseek-8192-tokens",
        most_tokens!("deepseek"),
        CASES,
    )),
    longer(on_gpu(
        "mixtral-8192-tokens",
        most_tokens!("mixtral"),
        CASES,
    )),
];
