//! Timing of device work, launch gaps left out.
//!
//! Each sample is queued whole behind a kernel that holds the stream: empty L2 (or
//! a warm-up launch), event, the work, event. Only when all of it is queued is the
//! stream released, so the device never waits for the host between the events.
//! Events on a busy stream leave a fixed cost beside the work; [`Stopwatch::new`]
//! measures it around nothing, and every sample is reduced by it.
//!
//! Cold: a buffer of three times L2 is read through first, which leaves only clean
//! lines of foreign data. Warm: the work ran just before, on the same data.
//!
//! Code is warm unless [`Stopwatch::empty_code`] asks for the opposite.
//!
//! Limits: the default stream only; work that waits for the device cannot be timed
//! (an error says so). Under a driver that runs kernels at the launch, or a
//! profiler that does, nothing can be held: [`Stopwatch::new`] refuses the former.

use anyhow::{Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::code_cache::CodeFlush;
use super::stats::{Summary, median_of};
use super::telemetry::{Reading, Telemetry};
use crate::device::choice::Driver;
use crate::device::{Buffer, Device, DeviceError, Event, HostWords, Launch, Module};
use crate::kernels::STOPWATCH;

/// How long the stream may be held before the host is taken to be waiting.
const HOLD_LIMIT_NS: u64 = 2_000_000_000;
/// L2 sizes that a flush reads.
const FLUSH_FACTOR: u64 = 3;
/// Where the driver does not tell the size of L2.
const L2_GUESS: u64 = 64 << 20;

/// State of L2 before a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cache {
    /// Holds nothing of the operands.
    Cold,
    /// Holds what a run just before left there.
    Warm,
}

impl Cache {
    pub fn name(self) -> &'static str {
        match self {
            Cache::Cold => "cold",
            Cache::Warm => "warm",
        }
    }
}

/// One timed run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    pub microseconds: f64,
    /// State of the device right after it.
    pub reading: Reading,
}

/// Empties L2.
pub struct Flush {
    module: Module,
    buffer: Buffer<u32>,
    sink: Buffer<u32>,
    launch: Launch,
}

impl Flush {
    /// # Errors
    /// When memory does not suffice.
    pub fn new(device: &Device) -> Result<Flush> {
        let hardware = device.hardware()?;
        let l2 = if hardware.l2_bytes == 0 {
            L2_GUESS
        } else {
            hardware.l2_bytes
        };
        let words = usize::try_from(FLUSH_FACTOR * l2)?.next_multiple_of(16) / 4;
        let mut buffer = device.uninitialised::<u32>(words)?;
        buffer.upload(&vec![0; words])?;
        Ok(Flush {
            module: device.load(&STOPWATCH)?,
            buffer,
            sink: device.poisoned(1)?,
            launch: Launch::linear(hardware.multiprocessors * 4, 512),
        })
    }

    /// Fills L2 with clean foreign lines, behind what the default stream holds.
    pub fn enqueue(&self) -> Result<()> {
        let read = self.module.kernel("readThrough")?;
        let quads = (self.buffer.len() / 4) as u64;
        read.launch(self.launch, &[&self.buffer, &quads, &self.sink])?;
        Ok(())
    }
}

/// Times work on the default stream of one device.
pub struct Stopwatch<'d> {
    device: &'d Device,
    module: Module,
    flags: HostWords,
    start: Event,
    stop: Event,
    flush: Flush,
    /// Compiled when it is first asked for.
    code: Option<CodeFlush>,
    code_is_cold: bool,
    telemetry: Telemetry,
    overhead: f64,
}

/// The time of `work` in microseconds: `warmup` launches, then `runs` samples with
/// L2 cold. `work` launches on the default stream and does not wait.
///
/// # Errors
/// What `work` returns; work that waits for the device; a device that cannot be
/// timed.
pub fn bench(
    device: &Device,
    mut work: impl FnMut() -> Result<()>,
    warmup: usize,
    runs: usize,
) -> Result<Summary> {
    let stopwatch = Stopwatch::new(device)?;
    stopwatch.warm_up(&mut work, warmup)?;
    let samples = stopwatch.samples(&mut work, Cache::Cold, runs)?;
    let times = samples.iter().map(|s| s.microseconds).collect();
    Summary::of(&[times], 0).ok_or_else(|| anyhow::anyhow!("{runs} runs gave no usable time"))
}

impl<'d> Stopwatch<'d> {
    /// # Errors
    /// On the CPU driver, whose times say nothing about a GPU.
    pub fn new(device: &'d Device) -> Result<Stopwatch<'d>> {
        if device.info().driver == Driver::Cpu {
            return Err(DeviceError::NoDevice {
                message: "timing needs a GPU: kernelgate's CPU driver runs the same kernels, \
                          but its times say nothing about one; `kernelgate bench` alone prints \
                          its own speed, in thread-instructions a second"
                    .to_owned(),
            }
            .into());
        }
        let hardware = device.hardware()?;
        let mut stopwatch = Stopwatch {
            device,
            module: device.load(&STOPWATCH)?,
            flags: device.host_words(2)?,
            start: device.event()?,
            stop: device.event()?,
            flush: Flush::new(device)?,
            code: None,
            code_is_cold: false,
            telemetry: Telemetry::open(&hardware.pci_bus_id),
            overhead: 0.0,
        };
        stopwatch.load_kernels()?;
        let mut times = Vec::new();
        for _ in 0..21 {
            times.push(stopwatch.sample(&mut || Ok(()), Cache::Cold)?.microseconds);
        }
        stopwatch.overhead = median_of(times);
        Ok(stopwatch)
    }

    /// The driver loads a kernel at its first launch and may wait for the device to
    /// do so: that must not happen while the stream is held.
    fn load_kernels(&self) -> Result<()> {
        self.flags.set(0, 1);
        let hold = self.module.kernel("holdStream")?;
        hold.launch(Launch::linear(1, 1), &[&self.flags, &HOLD_LIMIT_NS])?;
        self.flush.enqueue()?;
        Ok(self.device.synchronize()?)
    }

    /// Microseconds between two events with nothing between them; taken off each
    /// sample.
    pub fn overhead(&self) -> f64 {
        self.overhead
    }

    /// Whether samples start with empty instruction caches, as a first launch does.
    pub fn empty_code(&mut self, empty: bool) -> Result<()> {
        if empty && self.code.is_none() {
            let code = CodeFlush::new(self.device)?;
            // Loaded before anything is held: see `load_kernels`.
            code.enqueue()?;
            self.device.synchronize()?;
            self.code = Some(code);
        }
        self.code_is_cold = empty;
        Ok(())
    }

    /// Clocks, power and temperature of the device.
    pub fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    /// Launches `work` `times` times, at least once, and waits.
    pub fn warm_up(&self, work: &mut dyn FnMut() -> Result<()>, times: usize) -> Result<()> {
        // At least one: see `load_kernels`.
        for _ in 0..times.max(1) {
            work()?;
        }
        Ok(self.device.synchronize()?)
    }

    /// `runs` samples one after the other.
    pub fn samples(
        &self,
        work: &mut dyn FnMut() -> Result<()>,
        cache: Cache,
        runs: usize,
    ) -> Result<Vec<Sample>> {
        (0..runs).map(|_| self.sample(work, cache)).collect()
    }

    /// One sample.
    pub fn sample(&self, work: &mut dyn FnMut() -> Result<()>, cache: Cache) -> Result<Sample> {
        self.flags.set(0, 0);
        self.flags.set(1, 0);
        let hold = self.module.kernel("holdStream")?;
        hold.launch(Launch::linear(1, 1), &[&self.flags, &HOLD_LIMIT_NS])?;
        let queued = self.queue(work, cache);
        // Also after an error: nothing may stay held.
        self.flags.set(0, 1);
        self.device.synchronize()?;
        queued?;
        ensure!(
            self.flags.get(1) == 0,
            "the work waited for the device while the stream was held; \
             work under the stopwatch must only launch"
        );
        let microseconds = self.start.microseconds_to(&self.stop)? - self.overhead;
        if !microseconds.is_finite() {
            bail!("the driver gave a time of {microseconds}");
        }
        Ok(Sample {
            microseconds,
            reading: self.telemetry.read(),
        })
    }

    fn queue(&self, work: &mut dyn FnMut() -> Result<()>, cache: Cache) -> Result<()> {
        if let (true, Some(code)) = (self.code_is_cold, &self.code) {
            code.enqueue()?;
        }
        match cache {
            Cache::Cold => self.flush.enqueue()?,
            Cache::Warm => work()?,
        }
        self.start.record()?;
        work()?;
        self.stop.record()?;
        Ok(())
    }
}
