//! What the subcommands of `kernelgate moe` share: the job's ranks, the layer.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};
use kernelgate::exit::UsageError;
use kernelgate::moe::job::Job;
use kernelgate::moe::shape::{Layout, Shape};

use crate::given;

/// The ranks of a job.
#[derive(Args)]
pub struct JobArguments {
    /// Ranks that this command starts; a rank of torchrun, mpirun or srun joins theirs
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub ranks: u16,
    /// One process a rank also without GPUs (default there: threads)
    #[arg(long)]
    processes: bool,
    /// A rank without progress for so many seconds ends the job
    #[arg(long, default_value_t = 120.0)]
    timeout: f64,
    /// libnccl.so.2 or its folder (default: KERNELGATE_NCCL, then well-known places)
    #[arg(long, value_name = "PATH")]
    nccl: Option<PathBuf>,
    /// Seed of routing, weights and inputs
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl JobArguments {
    pub fn job(&self) -> Result<Job> {
        if let Some(missing) = self.nccl.as_ref().filter(|path| !path.exists()) {
            return Err(
                UsageError(format!("--nccl {}: it is not there", missing.display())).into(),
            );
        }
        Ok(Job {
            ranks: usize::from(self.ranks),
            processes: self.processes,
            timeout: seconds(self.timeout)?,
            nccl: self.nccl.clone(),
        })
    }
}

pub fn seconds(value: f64) -> Result<Duration> {
    match Duration::try_from_secs_f64(value) {
        Ok(duration) if (0.5..=86_400.0).contains(&value) => Ok(duration),
        _ => Err(UsageError(format!(
            "--timeout {value}: expected at least 0.5 and at most 86400 seconds"
        ))
        .into()),
    }
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub enum Preset {
    /// hidden 160, intermediate 96
    Small,
    /// hidden 7168, intermediate 2048, 256 experts, top 8
    Deepseek,
    /// hidden 4096, intermediate 14336, 8 experts, top 2
    Mixtral,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub enum LayoutArgument {
    Contiguous,
    Masked,
    Both,
}

/// What is run.
#[derive(Args)]
pub struct LayerArguments {
    /// Sizes of the layer
    #[arg(long, value_enum, default_value = "small")]
    shape: Preset,
    /// Experts (default: the shape's; for `small` 8, or two a rank if that is more)
    #[arg(long)]
    experts: Option<usize>,
    /// About so many tokens a rank
    #[arg(long, default_value_t = 4, value_parser = given::at_least_one)]
    pub tokens: usize,
    /// How the rows of the experts lie in memory
    #[arg(long, value_enum, default_value = "both")]
    layout: LayoutArgument,
}

impl LayerArguments {
    pub fn shape(&self, ranks: usize) -> Result<Shape> {
        let shape = match self.shape {
            Preset::Small => Shape::small(self.experts.unwrap_or((2 * ranks).max(8))),
            Preset::Deepseek => Shape::deepseek(),
            Preset::Mixtral => Shape::mixtral(),
        };
        let shape = Shape {
            experts: self.experts.unwrap_or(shape.experts),
            ..shape
        };
        if let Err(why) = shape.check() {
            return Err(UsageError(why.to_string()).into());
        }
        Ok(shape)
    }

    pub fn layouts(&self) -> Vec<Layout> {
        match self.layout {
            LayoutArgument::Contiguous => vec![Layout::Contiguous],
            LayoutArgument::Masked => vec![Layout::Masked],
            LayoutArgument::Both => Layout::ALL.to_vec(),
        }
    }
}
