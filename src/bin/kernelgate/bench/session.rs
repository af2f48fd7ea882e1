//! A device under the stopwatch, with what every record needs.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use kernelgate::device::Device;
use kernelgate::outln;
use kernelgate::perf::cases::{Built, ceilings};
use kernelgate::perf::measure::{Limits, Measured, Plan, measure};
use kernelgate::perf::peaks::{Peaks, Rate, lookup};
use kernelgate::perf::record::{Place, Record};
use kernelgate::perf::stats::Summary;
use kernelgate::perf::stopwatch::{Cache, Stopwatch};
use kernelgate::perf::stream::{StreamWorkload, stream};
use kernelgate::perf::workload::Workload;
use kernelgate::perf::{html, plot};

use super::Options;

/// Bytes of the copy that gives the bandwidth of a device without a datasheet.
const CEILING_BYTES: u64 = 256 << 20;
/// `--peaks` with this word measures also where a datasheet is known.
const MEASURE: &str = "measured";

pub struct Session<'d> {
    pub device: &'d Device,
    pub stopwatch: Stopwatch<'d>,
    pub plan: Plan,
    pub limits: Limits,
    pub place: Place,
    /// Effect floor as a share.
    pub floor: f64,
}

/// Opens the device and prints what it is.
pub fn open() -> Result<Device> {
    let device = Device::open()?;
    outln!("{}", device.banner())?;
    Ok(device)
}

impl<'d> Session<'d> {
    pub fn new(device: &'d Device, options: &Options) -> Result<Session<'d>> {
        let stopwatch = Stopwatch::new(device)?;
        if let Some(reason) = stopwatch.telemetry().absent() {
            outln!("clock, power and throttling are unknown: {reason}")?;
        }
        let info = device.info();
        let hardware = device.hardware()?;
        let conditions = stopwatch.telemetry().conditions();
        let plan = Plan {
            rounds: options.rounds,
            runs: options.runs,
            warmup: options.warmup,
            seed: options.seed,
        };
        let mut session = Session {
            device,
            plan,
            limits: Limits {
                peaks: Peaks::unknown(&info.name),
                l2_bytes: hardware.l2_bytes,
                max_sm_mhz: conditions.max_sm_mhz,
            },
            place: Place {
                device: info.name.clone(),
                cuda: format!("{}.{}", info.driver_cuda.0, info.driver_cuda.1),
                conditions,
                commit: options.commit.clone().unwrap_or_else(commit),
                event_overhead_us: stopwatch.overhead(),
            },
            stopwatch,
            floor: options.floor / 100.0,
        };
        session.limits.peaks = match &options.peaks {
            Some(_) => match given_peaks(options) {
                Some(peaks) => peaks?,
                None => session.measured_peaks()?,
            },
            None => match lookup(&info.name) {
                Some(peaks) => peaks,
                None => session.measured_peaks()?,
            },
        };
        outln!("peaks: {}", session.limits.peaks.source)?;
        Ok(session)
    }

    /// The bandwidth that a copy reaches and the rates that products reach.
    fn measured_peaks(&self) -> Result<Peaks> {
        let copy = stream("memcpy").context("the copy is built in")?;
        let bytes = CEILING_BYTES.min(self.device.hardware()?.memory_bytes / 8 / 16 * 16);
        let mut workload = StreamWorkload::new(self.device, copy, bytes, None)?;
        let seconds = self.ceiling(&mut workload, Cache::Cold)?;
        let bandwidth = workload.about().work.bytes() / seconds / 1e9;
        drop(workload);
        let mut rates = Vec::new();
        for (unit, case) in ceilings() {
            match case.build(self.device) {
                Ok(Built::Ready(mut workload)) => {
                    match self.ceiling(workload.as_mut(), case.cache) {
                        Ok(seconds) => rates.push(Rate {
                            unit,
                            case: case.id(),
                            tflops: workload.about().work.flops / seconds / 1e12,
                        }),
                        Err(error) => outln!("no ceiling from {}: {error:#}", case.id())?,
                    }
                }
                Ok(Built::Skipped(reason)) => outln!("no ceiling from {}: {reason}", case.id())?,
                Err(error) => outln!("no ceiling from {}: {error:#}", case.id())?,
            }
        }
        Ok(Peaks::measured(
            &self.place.device,
            bandwidth,
            bytes,
            &rates,
        ))
    }

    /// Seconds of a case whose result is right.
    fn ceiling(&self, workload: &mut dyn Workload, cache: Cache) -> Result<f64> {
        let measured = self.measure(workload, cache)?;
        if let Some(failure) = measured.failure() {
            anyhow::bail!("{failure}");
        }
        let time = Summary::of(&measured.timings.microseconds, 1).context("no usable time")?;
        Ok(time.median / 1e6)
    }

    pub fn measure(&self, workload: &mut dyn Workload, cache: Cache) -> Result<Measured> {
        measure(&self.stopwatch, workload, cache, &self.plan, &self.limits)
    }

    pub fn record(&self, workload: &mut dyn Workload, cache: Cache) -> Result<Record> {
        let measured = self.measure(workload, cache)?;
        let state = self.stopwatch.telemetry().power_state();
        Record::new(
            workload.about(),
            cache,
            measured,
            &self.limits,
            state,
            &self.place,
        )
        .map_err(anyhow::Error::msg)
    }
}

/// The peaks of the file that `--peaks` names, if it names one.
pub fn given_peaks(options: &Options) -> Option<Result<Peaks>> {
    let file = options.peaks.as_deref()?;
    (file.as_os_str() != MEASURE).then(|| read_peaks(file))
}

fn read_peaks(path: &Path) -> Result<Peaks> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("while reading the peaks {}", path.display()))?;
    Peaks::from_toml(&text).with_context(|| format!("while reading the peaks {}", path.display()))
}

/// The commit of the working directory; `unknown` where git does not say.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        output.status.success().then_some(text)
    };
    if let Ok(given) = std::env::var("KERNELGATE_COMMIT") {
        return given;
    }
    match git(&["rev-parse", "--short=12", "HEAD"]) {
        None => "unknown".to_owned(),
        Some(head) => match git(&["status", "--porcelain", "--untracked-files=no"]) {
            Some(changes) if changes.is_empty() => head,
            _ => head + ", dirty",
        },
    }
}

/// A bar on stderr; nothing where stderr is no terminal.
pub fn progress(steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {elapsed} {msg}") {
        bar.set_style(style);
    }
    bar
}

/// Writes the HTML report and the SVG plots.
pub fn write_pictures(
    report: Option<&Path>,
    folder: Option<&Path>,
    records: &[Record],
) -> Result<()> {
    let pictures = plot::all(records)?;
    let write = |path: PathBuf, text: &str| {
        std::fs::write(&path, text).with_context(|| format!("while writing {}", path.display()))
    };
    if let Some(folder) = folder {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("while making {}", folder.display()))?;
        for (name, svg) in &pictures {
            write(folder.join(format!("{name}.svg")), svg)?;
        }
    }
    if let Some(path) = report {
        write(path.to_owned(), &html::report(records, &pictures))?;
    }
    Ok(())
}
