//! `kernelgate gemm limits`: the smallest scale error that each gate sees.

use anyhow::Result;
use clap::Args;
use kernelgate::device::Device;
use kernelgate::exit::{Exit, UsageError};
use kernelgate::gemm::limits::{measure, steps, text};
use kernelgate::{errln, out, outln};

use crate::given;

use super::progress::Progress;

/// Print the smallest scale error that each gate turns away
///
/// A measurement, not a check: exit 0 whatever the limits are.
#[derive(Args)]
pub struct Arguments {
    /// "m,n,k" of the problem
    #[arg(long, value_name = "M,N,K", default_value = "32,256,1024")]
    shape: String,
    /// Seed of the inputs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One JSON document
    #[arg(long)]
    pub json: bool,
}

/// Its f64 product takes two gigabytes and minutes.
const LARGEST: usize = 16_384;

pub fn run(arguments: &Arguments) -> Result<Exit> {
    let [m, n, k] = given::three_extents(&arguments.shape)
        .map_err(|why| UsageError(format!("--shape {}: {why}", arguments.shape)))?;
    if m.min(n).min(k) == 0 || m.max(n).max(k) > LARGEST {
        let message = format!(
            "--shape {}: expected sizes from 1 to {LARGEST}, for a reference on the host",
            arguments.shape
        );
        return Err(UsageError(message).into());
    }
    let device = Device::open()?;
    errln!("{}", device.banner());
    let mut progress = Progress::new(steps());
    let limits = measure(&device, (m, n, k), arguments.seed, |doing| {
        progress.step(doing)
    })?;
    drop(progress);
    if arguments.json {
        outln!("{}", serde_json::to_string_pretty(&limits)?)?;
    } else {
        out!("{}", text(&limits))?;
    }
    Ok(Exit::Held)
}
