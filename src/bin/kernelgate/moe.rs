//! `kernelgate moe`: a mixture-of-experts layer checked across ranks.

mod arguments;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::given;
use anyhow::{Result, bail};
use arguments::{JobArguments, LayerArguments, seconds};
use clap::{Args, Subcommand, ValueEnum};
use kernelgate::exit::{Exit, UsageError};
use kernelgate::moe::bench;
use kernelgate::moe::case::{self, Case, Load};
use kernelgate::moe::check::{self, CaseReport, Loss, Options, Rank};
use kernelgate::moe::job::Outcome;
use kernelgate::moe::launch::{self, GRACE};
use kernelgate::moe::scoreboard;
use kernelgate::{out, outln};

/// Mixture of experts across ranks: check, planted rank faults, lost ranks, timing
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the layer and judge every stage on every rank
    Check(Check),
    /// Plant every rank fault and print who catches it
    Faults(Faults),
    /// Time dispatch, GEMMs, combine and the whole
    Bench(Bench),
    /// Lose a rank in mid-run and see the job end in time, with its name
    Loss(LossRun),
}

#[derive(Args)]
struct Check {
    #[command(flatten)]
    job: JobArguments,
    #[command(flatten)]
    layer: LayerArguments,
    /// Only these cases, by name (repeat, or separate with commas)
    #[arg(long = "case", value_delimiter = ',')]
    cases: Vec<String>,
    /// Instead of the cases, so many shapes with drawn sizes
    #[arg(long, value_name = "COUNT", value_parser = given::at_least_one)]
    sweep: Option<usize>,
    /// Largest hidden and intermediate size of the sweep
    #[arg(long, default_value_t = 320, value_parser = given::width)]
    largest: usize,
    /// Iterations of each case instead of its own number
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    iterations: Option<u64>,
    /// Do not compare with one rank that is given all tokens
    #[arg(long)]
    no_single_rank: bool,
    /// Multiply-adds of an expert's GEMM up to which every element is compared
    #[arg(long, default_value_t = 1 << 31)]
    exact_work: u64,
    /// One JSON document instead of text
    #[arg(long)]
    json: bool,
    /// RANK:HOW, for `moe loss`
    #[arg(long, hide = true)]
    lose: Option<String>,
}

#[derive(Args)]
struct Faults {
    #[command(flatten)]
    job: JobArguments,
    #[command(flatten)]
    layer: LayerArguments,
    /// One JSON document instead of text
    #[arg(long)]
    json: bool,
    /// A Markdown table instead of text
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

#[derive(Args)]
struct Bench {
    #[command(flatten)]
    job: JobArguments,
    #[command(flatten)]
    layer: LayerArguments,
    /// Timed runs of each stage
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
    /// One JSON document instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct LossRun {
    /// Processes to start
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(2..))]
    ranks: u16,
    /// The one to lose
    #[arg(long, default_value_t = 1)]
    rank: u16,
    /// How; all three by default
    #[arg(long, value_enum)]
    how: Vec<Loss>,
    /// The timeout of the jobs
    #[arg(long, default_value_t = 20.0)]
    timeout: f64,
    /// libnccl.so.2 or its folder
    #[arg(long, value_name = "PATH")]
    nccl: Option<PathBuf>,
}

impl Arguments {
    pub fn json(&self) -> bool {
        match &self.command {
            Command::Check(a) => a.json,
            Command::Faults(a) => a.json,
            Command::Bench(a) => a.json,
            Command::Loss(_) => false,
        }
    }
}

pub fn run(arguments: &Arguments) -> Result<Exit> {
    match &arguments.command {
        Command::Check(arguments) => run_check(arguments),
        Command::Faults(arguments) => run_faults(arguments),
        Command::Bench(arguments) => run_bench(arguments),
        Command::Loss(arguments) => run_loss(arguments),
    }
}

/// The first lines: the device, and what the ranks talk over.
fn banner(rank: &Rank, quiet: bool) -> Result<()> {
    if !quiet {
        outln!("{}", rank.device.banner())?;
        outln!("{} ranks over {}", rank.hub.ranks(), rank.collective.name())?;
    }
    Ok(())
}

fn run_check(arguments: &Check) -> Result<Exit> {
    let lose = arguments.lose.as_deref().map(lost).transpose()?;
    let options = Options {
        seed: arguments.job.seed,
        fault: None,
        single_rank: !arguments.no_single_rank,
        exact_work: u128::from(arguments.exact_work),
        loss: lose,
    };
    let outcome = arguments.job.job()?.run(|rank, lead| {
        let cases = chosen(arguments, rank.hub.ranks())?;
        if lead {
            banner(rank, arguments.json)?;
        }
        let mut reports = Vec::new();
        for case in &cases {
            let report = check::run(rank, case, &options)?.report;
            if lead && !arguments.json {
                out!("{}", line(&report))?;
            }
            reports.push(report);
        }
        if lead {
            finish(arguments, &reports)?;
        }
        Ok(match reports.iter().all(CaseReport::passed) {
            true => Exit::Held,
            false => Exit::Failed,
        })
    })?;
    Ok(worst(outcome))
}

fn worst(outcome: Outcome<Exit>) -> Exit {
    match outcome {
        Outcome::Launched(exit) => exit,
        Outcome::Ran(exits) => *exits
            .iter()
            .find(|exit| **exit != Exit::Held)
            .unwrap_or(&Exit::Held),
    }
}

fn chosen(arguments: &Check, ranks: usize) -> Result<Vec<Case>> {
    let shape = arguments.layer.shape(ranks)?;
    let tokens = arguments.layer.tokens;
    let mut cases = Vec::new();
    for layout in arguments.layer.layouts() {
        let all = case::cases(shape, layout, tokens);
        match arguments.sweep {
            Some(count) => {
                let seed = arguments.job.seed;
                let shapes =
                    case::sweep(seed, count, arguments.largest, shape.experts, shape.align);
                cases.extend(shapes.into_iter().map(|shape| Case {
                    name: "sweep",
                    shape,
                    ..all[0]
                }));
            }
            None => cases.extend(all),
        }
    }
    if !arguments.cases.is_empty() {
        if let Some(unknown) = arguments
            .cases
            .iter()
            .find(|name| cases.iter().all(|case| case.name != **name))
        {
            let mut names: Vec<&str> = Vec::new();
            for case in &cases {
                if !names.contains(&case.name) {
                    names.push(case.name);
                }
            }
            return Err(UsageError(format!(
                "there is no case `{unknown}`; the cases are: {}",
                names.join(", ")
            ))
            .into());
        }
        cases.retain(|case| arguments.cases.iter().any(|name| name == case.name));
    }
    if let Some(iterations) = arguments.iterations {
        cases
            .iter_mut()
            .for_each(|case| case.iterations = iterations);
    }
    if cases.is_empty() {
        bail!("there is nothing to check");
    }
    // The sweep and some cases change a shape that was possible.
    for case in &cases {
        if let Err(why) = case.shape.check() {
            return Err(UsageError(format!("case {}: {why}", case.name)).into());
        }
    }
    Ok(cases)
}

fn line(report: &CaseReport) -> String {
    let strength = match (report.looked.exact_gemms, report.looked.sampled_gemms) {
        (exact, 0) => format!("{exact} GEMMs exact"),
        (exact, sampled) => format!("{exact} GEMMs exact, {sampled} sampled"),
    };
    let mut text = format!(
        "{} {:<17} {:<10} {} tokens, {} iterations, {} rows, {strength}, rerun {}, one rank {}, {:.2} s\n",
        if report.passed() { "PASS" } else { "FAIL" },
        report.case.name,
        report.case.layout.name(),
        report.tokens,
        report.case.iterations,
        report.looked.rows,
        if report.rerun {
            "same bits"
        } else {
            "OTHER BITS"
        },
        match report.single_rank {
            Some(true) => "same bits",
            Some(false) => "OTHER BITS",
            None => "not compared",
        },
        report.seconds
    );
    let mut findings: Vec<_> = report.findings.list.iter().collect();
    findings.sort_by_key(|finding| (finding.iteration, finding.stage));
    for finding in findings {
        text += &format!("     {finding}\n");
    }
    if report.findings.more > 0 {
        text += &format!("     and {} more\n", report.findings.more);
    }
    text
}

fn finish(arguments: &Check, reports: &[CaseReport]) -> Result<()> {
    if arguments.json {
        outln!("{}", serde_json::to_string(reports)?)?;
        return Ok(());
    }
    let passed = reports.iter().filter(|report| report.passed()).count();
    outln!(
        "{passed} of {} cases passed, seed {}",
        reports.len(),
        arguments.job.seed
    )?;
    Ok(())
}

fn run_faults(arguments: &Faults) -> Result<Exit> {
    let options = Options {
        seed: arguments.job.seed,
        fault: None,
        single_rank: false,
        exact_work: 1 << 31,
        loss: None,
    };
    let layer = &arguments.layer;
    let outcome = arguments.job.job()?.run(|rank, lead| {
        let shape = layer.shape(rank.hub.ranks())?;
        if lead {
            banner(rank, arguments.json || arguments.markdown)?;
        }
        let board = scoreboard::score(rank, shape, layer.tokens, &layer.layouts(), &options)?;
        if lead {
            match (arguments.json, arguments.markdown) {
                (true, _) => outln!("{}", serde_json::to_string(&board)?)?,
                (_, true) => out!("{}", board.markdown())?,
                _ => out!("{board}")?,
            }
        }
        Ok(board.exit())
    })?;
    Ok(worst(outcome))
}

fn run_bench(arguments: &Bench) -> Result<Exit> {
    let options = Options {
        seed: arguments.job.seed,
        fault: None,
        single_rank: false,
        exact_work: 0,
        loss: None,
    };
    let layer = &arguments.layer;
    let outcome = arguments.job.job()?.run(|rank, lead| {
        let shape = layer.shape(rank.hub.ranks())?;
        if lead {
            banner(rank, arguments.json)?;
        }
        let mut all = Vec::new();
        for layout in layer.layouts() {
            let case = Case {
                name: "bench",
                why: "timing",
                load: Load::Even(layer.tokens),
                ..case::cases(shape, layout, layer.tokens)[0]
            };
            let one = bench::run(rank, &case, &options, arguments.repetitions as usize)?;
            if lead && !arguments.json {
                outln!("\n{one}")?;
            }
            all.push(one);
        }
        if lead && arguments.json {
            outln!("{}", serde_json::to_string(&all)?)?;
        }
        Ok(match all.iter().all(|bench| bench.same_bits) {
            true => Exit::Held,
            false => Exit::Failed,
        })
    })?;
    Ok(worst(outcome))
}

fn lost(text: &str) -> Result<(usize, Loss)> {
    let parsed = text.split_once(':').and_then(|(rank, how)| {
        let how = Loss::from_str(how, true).ok()?;
        Some((rank.parse().ok()?, how))
    });
    parsed.ok_or_else(|| UsageError(format!("--lose {text}: expected RANK:kill|stop|spin")).into())
}

fn run_loss(arguments: &LossRun) -> Result<Exit> {
    let timeout = seconds(arguments.timeout)?;
    if arguments.rank >= arguments.ranks {
        return Err(UsageError(format!(
            "--rank {}: the ranks are 0 to {}",
            arguments.rank,
            arguments.ranks - 1
        ))
        .into());
    }
    let hows = match arguments.how.as_slice() {
        [] => &[Loss::Kill, Loss::Stop, Loss::Spin],
        some => some,
    };
    let mut exit = Exit::Held;
    for how in hows {
        let name = format!("{how:?}").to_lowercase();
        let mut words: Vec<OsString> = [
            "moe",
            "check",
            "--case",
            "reused-buffers",
            "--layout",
            "masked",
            "--lose",
            &format!("{}:{name}", arguments.rank),
            "--timeout",
            &arguments.timeout.to_string(),
        ]
        .map(OsString::from)
        .to_vec();
        if let Some(path) = &arguments.nccl {
            words.extend(["--nccl".into(), path.clone().into_os_string()]);
        }
        let started = Instant::now();
        let ended = launch::run(usize::from(arguments.ranks), &words, timeout)?;
        let named = ended
            .lost
            .as_ref()
            .is_some_and(|lost| lost.ranks == [usize::from(arguments.rank)]);
        let in_time = ended
            .after_loss
            .is_some_and(|after| after <= GRACE + Duration::from_secs(1));
        let holds = named && in_time && ended.exit() == Exit::CouldNotRun;
        if !holds {
            exit = Exit::Failed;
        }
        outln!(
            "{} {name} rank {} of {}: {}; all processes gone {} after that; exit {}; {:.1} s in all",
            if holds { "holds:" } else { "GATE:" },
            arguments.rank,
            arguments.ranks,
            ended
                .lost
                .as_ref()
                .map_or("nobody was missed".to_owned(), ToString::to_string),
            ended
                .after_loss
                .map_or("never".to_owned(), |t| format!("{:.1} s", t.as_secs_f64())),
            ended.exit().code(),
            started.elapsed().as_secs_f64()
        )?;
    }
    Ok(exit)
}
