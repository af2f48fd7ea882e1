//! Records and comparisons on a terminal.

use std::collections::BTreeMap;

use kernelgate::outln;
use kernelgate::output::OutputError;
use kernelgate::perf::compare::{Comparison, Verdict};
use kernelgate::perf::record::Record;
use kernelgate::perf::spark::spark;

use super::session::Session;

pub fn print(
    session: &Session<'_>,
    records: &[Record],
    skipped: &[(String, String)],
) -> Result<(), OutputError> {
    let place = &session.place;
    outln!(
        "driver {} (CUDA {}), commit {}; {} rounds of {} runs after {} launches; \
         {:.2} us between two events taken off",
        place.conditions.driver,
        place.cuda,
        place.commit,
        session.plan.rounds,
        session.plan.runs,
        session.plan.warmup,
        place.event_overhead_us
    )?;
    let width = records.iter().map(|r| r.id.len()).max().unwrap_or(4);
    outln!(
        "{:width$} {:>9} {:>19} {:>6} {:>7} {:>7} {:>6} {:>6} {:>6} {:>5} {:3} {:8} note",
        "case",
        "us",
        "95 % interval",
        "noise",
        "TFLOPS",
        "GB/s",
        "MFU",
        "@clock",
        "roof",
        "MHz",
        "P",
        "rounds"
    )?;
    let mut notes: BTreeMap<String, usize> = BTreeMap::new();
    for record in records {
        let next = notes.len() + 1;
        let note = *notes.entry(note(record)).or_insert(next);
        outln!("{}", line(record, note, width))?;
        if let Some(failure) = &record.failure {
            outln!("  FAILED: {failure}")?;
        }
        if record.throttle != "none" {
            outln!("  throttled: {}", record.throttle)?;
        }
    }
    let mut notes: Vec<_> = notes.into_iter().collect();
    notes.sort_by_key(|(_, number)| *number);
    for (text, number) in notes {
        outln!("[{number}] {text}")?;
    }
    for (id, reason) in skipped {
        outln!("skipped {id}: {reason}")?;
    }
    beside_copy(records)
}

fn line(r: &Record, note: usize, width: usize) -> String {
    let number =
        |x: Option<f64>, digits: usize| x.map_or("-".to_owned(), |x| format!("{x:.digits$}"));
    let percent = |x: Option<f64>| x.map_or("-".to_owned(), |x| format!("{:.1}%", 100.0 * x));
    format!(
        "{:width$} {:>9.2} {:>19} {:>6} {:>7} {:>7.0} {:>6} {:>6} {:>6} {:>5} {:3} {:8} [{note}]",
        r.id,
        r.time.median,
        format!("{:.2}-{:.2}", r.time.interval.0, r.time.interval.1),
        percent(Some(r.time.noise)),
        number(r.tflops, 1),
        r.gbs,
        percent(r.mfu),
        percent(r.mfu_at_clock),
        percent(r.roofline),
        number(r.clock_mhz.map(|c| c.median), 0),
        r.power_state,
        spark(&r.timings.microseconds),
    )
}

/// What lines have in common: recipe, configuration, inputs, strength of the check.
fn note(r: &Record) -> String {
    let about = &r.about;
    // The number of elements is the shape's, not the check's.
    let check = match r.check.split_once("elements") {
        Some((_, rest)) if r.about.mnk.is_some() => format!("all elements{rest}"),
        _ => r.check.clone(),
    };
    format!(
        "{}: {}, recipe {}, config {}, input {}; counts {}; check: {check}",
        about.subject, about.dtype, about.recipe, about.config, about.input, about.counted
    )
}

/// The memory-bound kernels against the faster copy of the same size, the driver's or
/// ours. A sum may pass it: only a copy pays for turning from reads to writes.
fn beside_copy(records: &[Record]) -> Result<(), OutputError> {
    let is_copy = |r: &&Record| ["memcpy", "copy"].contains(&r.about.subject.as_str());
    for copy in records.iter().filter(is_copy).filter(|this| {
        !records.iter().filter(is_copy).any(|other| {
            (&other.about.shape, other.cache) == (&this.about.shape, this.cache)
                && other.gbs > this.gbs
        })
    }) {
        for other in records.iter().filter(|r| {
            r.about.form == "stream"
                && !is_copy(r)
                && r.about.shape == copy.about.shape
                && r.cache == copy.cache
        }) {
            outln!(
                "{}: {:.1} % of the {:.0} GB/s of {}",
                other.id,
                100.0 * other.gbs / copy.gbs,
                copy.gbs,
                copy.about.subject
            )?;
        }
    }
    Ok(())
}

pub fn comparisons(all: &[Comparison]) -> Result<(), OutputError> {
    let width = all.iter().map(|c| c.case.len()).max().unwrap_or(4);
    for c in all {
        outln!("{:width$} {:12} {}", c.case, c.verdict.name(), c.reason)?;
    }
    let count = |verdict| all.iter().filter(|c| c.verdict == verdict).count();
    outln!(
        "{} same, {} faster, {} slower, {} inconclusive",
        count(Verdict::Same),
        count(Verdict::Faster),
        count(Verdict::Slower),
        count(Verdict::Inconclusive)
    )
}
