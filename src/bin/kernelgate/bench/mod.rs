//! `kernelgate bench`: times the subjects and tells a regression from noise.

mod cpu_driver;
mod experiments;
mod profiler;
mod session;
mod table;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use kernelgate::device::choice::Driver;
use kernelgate::exit::{Exit, UsageError};
use kernelgate::perf::baseline::{BaselineError, Baselines};
use kernelgate::perf::cases::{Built, Case, all};
use kernelgate::perf::compare::{Rules, Verdict, compare, overall};
use kernelgate::perf::record::Record;
use kernelgate::{errln, outln};
use session::Session;

use crate::given;

/// Time the kernels: median, interval, rates and roofline for each case.
///
/// Without an action: runs the cases, and saves or compares a baseline.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    options: Options,
    /// Cases whose id contains this text; may be repeated.
    #[arg(long, global = true)]
    only: Vec<String>,
    /// Print the ids of the cases and stop.
    #[arg(long)]
    list: bool,
    /// Write every record as a line of JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a report with plots in one HTML file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the plots as SVG files.
    #[arg(long, value_name = "FOLDER")]
    plots: Option<PathBuf>,
    /// Save the records as a baseline.
    #[arg(long, value_name = "NAME")]
    save: Option<String>,
    /// Let --save replace a baseline; the old one is kept as NAME.json.old.
    #[arg(long, requires = "save")]
    overwrite: bool,
    /// Compare with a baseline: exit 1 on a confirmed regression, 3 when it cannot
    /// be told.
    #[arg(long, value_name = "NAME")]
    compare: Option<String>,
    /// Where baselines lie.
    #[arg(long, value_name = "FOLDER", default_value = ".kernelgate/baselines")]
    baselines: PathBuf,
}

/// How to measure.
#[derive(Args)]
struct Options {
    /// Rounds of a case, each with inputs of its own.
    #[arg(long, global = true, default_value_t = 8, value_parser = given::at_least_one)]
    rounds: usize,
    /// Samples a round.
    #[arg(long, global = true, default_value_t = 8, value_parser = given::at_least_one)]
    runs: usize,
    /// Launches before the samples of a round.
    #[arg(long, global = true, default_value_t = 3, value_parser = given::count)]
    warmup: usize,
    /// Seed of the inputs.
    #[arg(long, global = true, default_value_t = 1)]
    seed: u64,
    /// Smallest difference that counts, in percent.
    #[arg(
        long,
        global = true,
        default_value_t = 1.0,
        value_name = "PERCENT",
        allow_negative_numbers = true
    )]
    floor: f64,
    /// Peaks of the device, instead of the built-in table: TOML with name, source
    /// and any of fp8, fp16, fp32 (TFLOPS), bandwidth (GB/s), boost_mhz; or the word
    /// measured, for what a copy and products reach here, as on a device that is not
    /// in the table.
    #[arg(long, global = true, value_name = "FILE")]
    peaks: Option<PathBuf>,
    /// Commit that the binary was built from; asked of git where not given.
    #[arg(long, global = true)]
    commit: Option<String>,
}

#[derive(Subcommand)]
enum Action {
    /// Compare kernels with themselves and report the rate of false alarms.
    Aa(experiments::Aa),
    /// Plant slowdowns and see which are confirmed.
    Inject(experiments::Inject),
    /// Compare two cases, or two builds of one, interleaved in one process.
    Ab(experiments::Ab),
    /// Launch cases without timing them, for a profiler.
    Launch(profiler::LaunchOnly),
    /// Compare our times with the durations of Nsight Compute.
    AgainstNcu(profiler::AgainstNcu),
}

pub fn run(arguments: &Arguments) -> Result<Exit> {
    check(&arguments.options)?;
    match &arguments.action {
        None if arguments.list => {
            for case in selected(&arguments.only)? {
                outln!("{}", case.id())?;
            }
            Ok(Exit::Held)
        }
        None => run_cases(arguments),
        Some(Action::Aa(aa)) => experiments::aa(&arguments.options, &arguments.only, aa),
        Some(Action::Inject(inject)) => experiments::inject(&arguments.options, inject),
        Some(Action::Ab(ab)) => experiments::ab(&arguments.options, ab),
        Some(Action::Launch(launch)) => profiler::launch(&arguments.only, launch),
        Some(Action::AgainstNcu(ncu)) => {
            profiler::against_ncu(&arguments.options, &arguments.only, ncu)
        }
    }
}

fn check(options: &Options) -> Result<()> {
    if !(options.floor.is_finite() && options.floor > 0.0) {
        return Err(UsageError("--floor must be a positive percentage".to_owned()).into());
    }
    // On every driver: a file that nobody can read is no wish to go without.
    match session::given_peaks(options) {
        Some(Err(error)) => Err(UsageError(format!("--peaks: {error:#}")).into()),
        _ => Ok(()),
    }
}

/// The cases whose id holds one of `only`; all for none.
fn selected(only: &[String]) -> Result<Vec<Case>> {
    let mut cases = all();
    if let Some(stray) = only
        .iter()
        .find(|text| !cases.iter().any(|case| case.id().contains(*text)))
    {
        return Err(UsageError(format!(
            "--only {stray}: no case has that in its id; see kernelgate bench --list"
        ))
        .into());
    }
    cases.retain(|case| only.is_empty() || only.iter().any(|text| case.id().contains(text)));
    Ok(cases)
}

fn run_cases(arguments: &Arguments) -> Result<Exit> {
    let baselines = Baselines::at(&arguments.baselines);
    for name in [&arguments.save, &arguments.compare].into_iter().flatten() {
        given::name(name).map_err(|why| UsageError(format!("baseline `{name}`: {why}")))?;
    }
    if let Some(name) = &arguments.save {
        baselines
            .check_save(name, arguments.overwrite)
            .map_err(baseline_error)?;
    }
    for file in [&arguments.json, &arguments.html].into_iter().flatten() {
        given::writable(file)?;
    }
    check_writable(arguments)?;
    let device = session::open()?;
    if device.info().driver == Driver::Cpu {
        return cpu_driver::run(arguments, &device);
    }
    let cases = selected(&arguments.only)?;
    let session = Session::new(&device, &arguments.options)?;
    // A baseline that cannot be used is an error before minutes are spent.
    let before = match &arguments.compare {
        Some(name) => Some(
            baselines
                .load(name, &session.place)
                .map_err(baseline_error)?,
        ),
        None => None,
    };
    let (records, skipped) = measure_all(&session, &cases)?;
    table::print(&session, &records, &skipped)?;
    write_files(arguments, &records)?;
    if let Some(name) = &arguments.save {
        let path = baselines
            .save(name, &records, arguments.overwrite)
            .map_err(baseline_error)?;
        outln!("saved {} cases as {}", records.len(), path.display())?;
    }
    if records.iter().any(|r| r.failure.is_some()) {
        return Ok(Exit::Failed);
    }
    if records.is_empty() {
        errln!("error: every case was skipped");
        return Ok(Exit::CouldNotRun);
    }
    match before {
        Some(before) => compare_with(&session, &before, &records, &skipped),
        None => Ok(Exit::Held),
    }
}

/// Id of a case, and why it cannot run here.
type Skipped = (String, String);

fn measure_all(session: &Session<'_>, cases: &[Case]) -> Result<(Vec<Record>, Vec<Skipped>)> {
    let (mut records, mut skipped) = (Vec::new(), Vec::new());
    let bar = session::progress(cases.len());
    for case in cases {
        let id = case.id();
        bar.set_message(id.clone());
        match case
            .build(session.device)
            .with_context(|| format!("case {id}"))?
        {
            Built::Skipped(reason) => skipped.push((id, reason)),
            Built::Ready(mut workload) => {
                let record = session
                    .record(workload.as_mut(), case.cache)
                    .with_context(|| format!("case {id}"))?;
                records.push(record);
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok((records, skipped))
}

/// Files that cannot be written are an error before minutes are spent, too.
fn check_writable(arguments: &Arguments) -> Result<()> {
    for path in [&arguments.json, &arguments.html].into_iter().flatten() {
        // Append: what is there stays until it is replaced.
        std::fs::File::options()
            .create(true)
            .append(true)
            .open(path)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let baselines = arguments.save.as_ref().map(|_| &arguments.baselines);
    for folder in arguments.plots.iter().chain(baselines) {
        std::fs::create_dir_all(folder)
            .and_then(|()| tempfile::tempfile_in(folder))
            .with_context(|| format!("cannot write into {}", folder.display()))?;
    }
    Ok(())
}

fn write_files(arguments: &Arguments, records: &[Record]) -> Result<()> {
    if let Some(path) = &arguments.json {
        let lines: String = records.iter().map(|r| r.json() + "\n").collect();
        std::fs::write(path, lines).with_context(|| format!("while writing {}", path.display()))?;
    }
    if arguments.html.is_some() || arguments.plots.is_some() {
        session::write_pictures(
            arguments.html.as_deref(),
            arguments.plots.as_deref(),
            records,
        )?;
    }
    Ok(())
}

fn compare_with(
    session: &Session<'_>,
    before: &[Record],
    now: &[Record],
    skipped: &[Skipped],
) -> Result<Exit> {
    let mut cases = Vec::new();
    for record in now {
        match before.iter().find(|old| old.id == record.id) {
            Some(old) => cases.push((
                record.id.clone(),
                old.timings.clone(),
                record.timings.clone(),
            )),
            None => outln!("{}: not in the baseline", record.id)?,
        }
    }
    // A case that stopped running is no pass.
    let lost: Vec<_> = skipped
        .iter()
        .filter(|(id, _)| before.iter().any(|old| old.id == *id))
        .collect();
    for (id, reason) in &lost {
        outln!("{id}: in the baseline, and skipped here: {reason}")?;
    }
    let comparisons = compare(
        &cases,
        &Rules {
            floor: session.floor,
            paired: false,
            seed: session.plan.seed,
        },
    );
    table::comparisons(&comparisons)?;
    Ok(match exit_of(overall(&comparisons)) {
        Exit::Held if !lost.is_empty() => Exit::CouldNotRun,
        exit => exit,
    })
}

/// A name that cannot be meant is wrong usage, a file that cannot be used is "could
/// not run".
fn baseline_error(error: BaselineError) -> anyhow::Error {
    match error {
        BaselineError::BadName(_) | BaselineError::Absent(_) | BaselineError::Exists { .. } => {
            UsageError(error.to_string()).into()
        }
        other => other.into(),
    }
}

/// A confirmed regression is a failure, doubt is "could not tell".
fn exit_of(verdict: Verdict) -> Exit {
    match verdict {
        Verdict::Same | Verdict::Faster => Exit::Held,
        Verdict::Slower => Exit::Failed,
        Verdict::Inconclusive => Exit::CouldNotRun,
    }
}
