//! Something to time: what it is, its launch, and the check of what it left.
//!
//! To time a kernel of your own, implement [`Workload`] and hand it to
//! [`super::measure::measure`]; `benches/own_kernel.rs` does it. For a time alone
//! [`super::stopwatch::bench`] takes a closure.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::roofline::Work;

/// Launch configuration of a subject, as far as it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Config {
    pub block_m: Option<usize>,
    pub block_n: Option<usize>,
    pub block_k: Option<usize>,
    pub stages: Option<usize>,
    pub warps: Option<usize>,
    /// Parts that k is split into.
    pub split: Option<usize>,
}

impl std::fmt::Display for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let fields = [
            ("m", self.block_m),
            ("n", self.block_n),
            ("k", self.block_k),
            ("stages", self.stages),
            ("warps", self.warps),
            ("split", self.split),
        ];
        let words: Vec<String> = fields
            .iter()
            .filter_map(|(name, value)| value.map(|v| format!("{name}{v}")))
            .collect();
        f.write_str(&words.join(" "))
    }
}

/// What is timed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// Unique among the cases, without the state of the cache:
    /// `wgmma/dense/4096x4096x7168/bf16`.
    pub case: String,
    pub subject: String,
    /// `dense`, `contiguous`, `masked`; `stream` for memory-bound kernels.
    pub form: String,
    /// m × n × k, or the number of elements.
    pub shape: String,
    /// m, n and k of a GEMM.
    pub mnk: Option<(usize, usize, usize)>,
    pub dtype: String,
    pub recipe: String,
    pub output: String,
    pub config: Config,
    pub work: Work,
    /// Distribution of the inputs.
    pub input: String,
    /// What the rates count, such as `valid rows only`.
    pub counted: String,
}

/// The check of a result, after timing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// Elements that were compared with a value of the reference.
    pub compared: usize,
    /// What was compared, and with what tolerance.
    pub strength: String,
    /// The first wrong element; `None` when all are right.
    pub failure: Option<String>,
}

/// A launch that can be timed and checked.
pub trait Workload {
    fn about(&self) -> &About;

    /// Fresh inputs and poisoned outputs. Not timed.
    fn refresh(&mut self, seed: u64) -> Result<()>;

    /// One launch on the default stream; must not wait for the device.
    fn launch(&self) -> Result<()>;

    /// Checks what the last launch left. Takes a result that nothing checked for an
    /// error, not for a pass.
    fn verify(&self) -> Result<Checked>;
}
