//! The speed of kernelgate's CPU driver: thread-instructions a second.
//!
//! A thread-instruction is one executed operation of one active lane. The driver
//! counts them; the time is wall-clock from the launch until the device is done, and
//! the results are checked as those of a timed kernel are. No rate here is a GPU's:
//! there are no TFLOPS, no GB/s and no baselines.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use super::cases::{Built, Case};
use super::stats::Summary;
use crate::device::{Device, thread_instructions};

/// One case on the CPU driver.
#[derive(Debug, Clone, Serialize)]
pub struct Speed {
    pub id: String,
    /// Of one launch.
    pub thread_instructions: u64,
    /// Thread-instructions a second: median, 95 % interval.
    pub rate: f64,
    pub interval: (f64, f64),
    pub runs: usize,
    pub check: String,
    /// The first wrong element.
    pub failure: Option<String>,
}

/// What became of a case.
pub enum Measured {
    Speed(Speed),
    /// Why the device at hand cannot run it.
    Skipped(String),
}

/// Runs a case `warmup` times, then `runs` times by the clock.
///
/// # Errors
/// A driver that does not count, and anything that keeps the case from running.
pub fn measure(device: &Device, case: &Case, warmup: usize, runs: usize) -> Result<Measured> {
    let mut workload = match case.build(device)? {
        Built::Ready(workload) => workload,
        Built::Skipped(reason) => return Ok(Measured::Skipped(reason)),
    };
    workload.refresh(1)?;
    for _ in 0..warmup {
        workload.launch()?;
    }
    device.synchronize()?;
    let counted = || thread_instructions().context("the driver in use counts no instructions");
    let (mut seconds, mut count) = (Vec::new(), 0);
    for _ in 0..runs {
        let before = counted()?;
        let started = Instant::now();
        workload.launch()?;
        device.synchronize()?;
        seconds.push(started.elapsed().as_secs_f64());
        count = counted()? - before;
        ensure!(count > 0, "the driver in use counted nothing");
    }
    let checked = workload.verify()?;
    let time = Summary::of(&[seconds], 1).context("no run was timed")?;
    let rate = |seconds: f64| count as f64 / seconds;
    Ok(Measured::Speed(Speed {
        id: case.id(),
        thread_instructions: count,
        rate: rate(time.median),
        interval: (rate(time.interval.1), rate(time.interval.0)),
        runs,
        check: checked.strength,
        failure: checked.failure,
    }))
}
