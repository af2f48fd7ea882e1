//! Does the verdict deserve trust? A/A runs, planted slowdowns, and A/B runs.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use kernelgate::exit::{Exit, UsageError};
use kernelgate::perf::cases::{Built, Case, all};
use kernelgate::perf::compare::{Comparison, Rules, Timings, Verdict, compare, overall};
use kernelgate::perf::measure::measure_pair;
use kernelgate::perf::stats::rate_at_most;
use kernelgate::perf::stopwatch::Cache;
use kernelgate::perf::stream::{STREAMS, StreamWorkload};
use kernelgate::perf::workload::Workload;
use kernelgate::{errln, outln};

use crate::given;

use super::session::{Session, open, progress};
use super::{Options, exit_of, selected, table};

#[derive(Args)]
pub struct Aa {
    /// Comparisons of each kind: interleaved, and with an earlier run.
    #[arg(long, default_value_t = 100, value_parser = given::at_least_one)]
    comparisons: usize,
}

#[derive(Args)]
pub struct Inject {
    /// Slowdowns in percent. One of at least twice the floor must be confirmed, one
    /// of at most half of it must not be called.
    #[arg(long, default_values_t = [3.0, 0.3])]
    percent: Vec<f64>,
    /// MiB that the slowed sum reads.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    mib: u64,
}

#[derive(Args)]
pub struct Ab {
    /// Id of the first case, as --list prints it.
    a: String,
    /// Id of the second; the first again where not given.
    b: Option<String>,
    /// PTX of another build for the first case.
    #[arg(long, value_name = "FILE")]
    ptx_a: Option<PathBuf>,
    /// PTX of another build for the second case.
    #[arg(long, value_name = "FILE")]
    ptx_b: Option<PathBuf>,
}

/// Cases that A/A runs use unless told otherwise: short and long, bound by memory
/// and by arithmetic.
const AA_CASES: [&str; 4] = [
    "vectorised-sum/stream/64MiB/cold",
    "window-sum/stream/256MiB/cold",
    "wgmma/dense/4096x4096x7168/bf16/cold",
    "wgmma/dense/128x4096x7168/bf16/cold",
];

pub fn aa(options: &Options, only: &[String], aa: &Aa) -> Result<Exit> {
    let mut cases = selected(only)?;
    if only.is_empty() {
        cases.retain(|case| AA_CASES.contains(&case.id().as_str()));
    }
    let device = open()?;
    let session = Session::new(&device, options)?;
    let mut pairs = Vec::new();
    for case in &cases {
        match (case.build(&device)?, case.build(&device)?) {
            (Built::Ready(a), Built::Ready(b)) => pairs.push((case, a, b)),
            (Built::Skipped(reason), _) | (_, Built::Skipped(reason)) => {
                outln!("skipped {}: {reason}", case.id())?;
            }
        }
    }
    if pairs.is_empty() || aa.comparisons == 0 {
        errln!("error: nothing to compare");
        return Ok(Exit::CouldNotRun);
    }
    let mut interleaved = Vec::new();
    let bar = progress(2 * aa.comparisons);
    let count = pairs.len();
    for i in 0..aa.comparisons {
        let (case, a, b) = &mut pairs[i % count];
        bar.set_message(case.id());
        interleaved.push(pair(
            &session,
            [a.as_mut(), b.as_mut()],
            case.cache,
            &case.id(),
            i as u64,
        )?);
        bar.inc(1);
    }
    let mut sequential = Vec::new();
    let mut before: Vec<Option<Timings>> = vec![None; count];
    while sequential.len() < aa.comparisons {
        let turn = sequential.len() % count;
        let (case, a, _) = &mut pairs[turn];
        bar.set_message(case.id());
        let measured = session.measure(a.as_mut(), case.cache)?;
        if let Some(failure) = measured.failure() {
            anyhow::bail!("{}: {failure}", case.id());
        }
        let first = before[turn].is_none();
        if let Some(old) = before[turn].replace(measured.timings.clone()) {
            let sides = [(case.id(), old, measured.timings)];
            let rules = Rules {
                floor: session.floor,
                paired: false,
                seed: sequential.len() as u64,
            };
            sequential.extend(compare(&sides, &rules));
            bar.inc(1);
        } else if first && turn == 0 {
            // Every case needs a run to be compared with.
            for (other, slot) in before.iter_mut().enumerate().skip(1) {
                let (case, a, _) = &mut pairs[other];
                *slot = Some(session.measure(a.as_mut(), case.cache)?.timings);
            }
        }
    }
    bar.finish_and_clear();
    let false_alarms = report_aa("interleaved", &interleaved)?
        + report_aa("against an earlier run of this process", &sequential)?;
    let told = |all: &[Comparison]| all.iter().any(|c| c.verdict == Verdict::Same);
    Ok(if false_alarms > 0 {
        Exit::Failed
    } else if told(&interleaved) && told(&sequential) {
        Exit::Held
    } else {
        Exit::CouldNotRun
    })
}

/// Prints one kind of A/A runs and returns its false alarms.
fn report_aa(kind: &str, all: &[Comparison]) -> Result<usize> {
    let count = |verdict| all.iter().filter(|c| c.verdict == verdict).count();
    let (slower, faster) = (count(Verdict::Slower), count(Verdict::Faster));
    let largest = all.iter().map(|c| c.effect.abs()).fold(0.0, f64::max);
    for c in all.iter().filter(|c| c.verdict != Verdict::Same) {
        outln!("  {} {}: {}", c.case, c.verdict.name(), c.reason)?;
    }
    outln!(
        "A/A {kind}: {} comparisons, {slower} false SLOWER, {faster} false FASTER, {} SAME, \
         {} INCONCLUSIVE; largest difference {:.2} %; false-alarm rate below {:.1} % (95 %)",
        all.len(),
        count(Verdict::Same),
        count(Verdict::Inconclusive),
        100.0 * largest,
        100.0 * rate_at_most(slower + faster, all.len())
    )?;
    Ok(slower + faster)
}

/// One interleaved comparison.
fn pair(
    session: &Session<'_>,
    sides: [&mut dyn Workload; 2],
    cache: Cache,
    name: &str,
    seed: u64,
) -> Result<Comparison> {
    let mut plan = session.plan;
    plan.seed = plan.seed.wrapping_add(seed << 20);
    let [a, b] = measure_pair(&session.stopwatch, sides, cache, &plan, &session.limits)?;
    for side in [&a, &b] {
        if let Some(failure) = side.failure() {
            anyhow::bail!("{name}: {failure}");
        }
    }
    let rules = Rules {
        floor: session.floor,
        paired: true,
        seed,
    };
    let all = compare(&[(name.to_owned(), a.timings, b.timings)], &rules);
    all.into_iter().next().context("one case, one comparison")
}

pub fn inject(options: &Options, inject: &Inject) -> Result<Exit> {
    for percent in &inject.percent {
        let decided = *percent >= 2.0 * options.floor || *percent <= options.floor / 2.0;
        if !(decided && *percent >= 0.0 && *percent <= 100.0) {
            return Err(UsageError(format!(
                "--percent {percent}: expected at least twice the floor of {} or at most half \
                 of it; between them either verdict is right",
                options.floor
            ))
            .into());
        }
    }
    let device = open()?;
    let session = Session::new(&device, options)?;
    let bytes = inject.mib << 20;
    let mut exit = Exit::Held;
    for &percent in &inject.percent {
        let mut plain = StreamWorkload::new(&device, &STREAMS[0], bytes, None)?;
        let mut slowed = StreamWorkload::slowed(&device, bytes, percent / 100.0)?;
        let name = format!("{} with {percent} % more work", plain.about().case);
        let c = pair(&session, [&mut plain, &mut slowed], Cache::Cold, &name, 0)?;
        let want_slower = percent >= 2.0 * options.floor;
        let right = (c.verdict == Verdict::Slower) == want_slower;
        outln!("{name}: {}, {}", c.verdict.name(), c.reason)?;
        if !right {
            outln!(
                "  expected {}",
                if want_slower {
                    "SLOWER"
                } else {
                    "anything but SLOWER"
                }
            )?;
            exit = Exit::Failed;
        }
    }
    Ok(exit)
}

pub fn ab(options: &Options, ab: &Ab) -> Result<Exit> {
    let find = |id: &str| {
        let case = all().into_iter().find(|case| case.id() == id);
        case.ok_or_else(|| {
            UsageError(format!(
                "no case is called {id}; see kernelgate bench --list"
            ))
        })
    };
    let (a, b) = (find(&ab.a)?, find(ab.b.as_ref().unwrap_or(&ab.a))?);
    if a.cache != b.cache {
        return Err(UsageError("one case is cold, the other warm".to_owned()).into());
    }
    let device = open()?;
    let session = Session::new(&device, options)?;
    let build = |case: &Case, ptx: &Option<PathBuf>| {
        let text = match ptx {
            None => None,
            Some(path) => Some(
                std::fs::read_to_string(path)
                    .with_context(|| format!("while reading {}", path.display()))?,
            ),
        };
        match case.build_with(&device, text.as_deref())? {
            Built::Ready(workload) => Ok(workload),
            Built::Skipped(reason) => anyhow::bail!("{}: {reason}", case.id()),
        }
    };
    let (mut x, mut y) = (build(&a, &ab.ptx_a)?, build(&b, &ab.ptx_b)?);
    let name = format!("B {} against A {}", b.id(), a.id());
    let c = pair(&session, [x.as_mut(), y.as_mut()], a.cache, &name, 0)?;
    table::comparisons(std::slice::from_ref(&c))?;
    Ok(exit_of(overall(&[c])))
}
