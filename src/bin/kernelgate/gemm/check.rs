//! `kernelgate gemm check`: run kernels over cases and judge each.

use anyhow::Result;
use clap::Args;
use kernelgate::device::Device;
use kernelgate::exit::{Exit, UsageError};
use kernelgate::gemm::case::Case;
use kernelgate::gemm::check::{Checker, Limits, Outcome, Strength};
use kernelgate::gemm::inputs::Input;
use kernelgate::gemm::planted::Plant;
use kernelgate::gemm::problem::{Form, Problem, fp8_recipes, parse_recipe};
use kernelgate::gemm::shapes::{self, LADDER_CAP, Sweep};
use kernelgate::gemm::shrink::shrink;
use kernelgate::gemm::subject::Subject;
use kernelgate::lowp::{OutputType, Recipe};
use kernelgate::{errln, outln};
use serde::Serialize;

use crate::given;

use super::progress::Progress;
use super::subjects::{Found, find};

/// Run kernels over many shapes and inputs and judge every result
///
/// Without --cases, --models, --huge or --only: the edge ladder, capped so that it
/// runs on the CPU driver too (m*n*k at most 2^25).
#[derive(Args)]
pub struct Arguments {
    /// simt, mma, mma-native, wgmma, wgmma-unpromoted, cublaslt, cublaslt-fast,
    /// fault:NAME; several with commas, or all (those that should pass)
    #[arg(long, default_value = "all")]
    subject: String,
    /// This many random cases instead of the ladder
    #[arg(long, value_name = "N", value_parser = given::at_least_one)]
    cases: Option<usize>,
    /// The shapes of models in use instead of the ladder
    #[arg(long)]
    models: bool,
    /// Sizes past 32 bits, for a GPU, instead of the ladder
    #[arg(long)]
    huge: bool,
    /// One case: "m,n,k"
    #[arg(long, value_name = "M,N,K")]
    only: Option<String>,
    /// Seed of the inputs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Largest m of random cases
    #[arg(long, default_value_t = 8192, value_parser = given::at_least_one)]
    max_m: usize,
    /// Most multiply-adds of a random case
    #[arg(long, value_name = "N")]
    cap: Option<u128>,
    /// Multiply-adds up to which every element is checked in f64
    #[arg(long, value_name = "N")]
    full: Option<u128>,
    /// auto; full: every element, on the host up to --full, above it in FP64 on the
    /// device; sampled (on the host); device: made and sampled there; device-full:
    /// made there, every element in FP64 there
    #[arg(long, default_value = "auto")]
    strength: Strength,
    /// Host memory for operands and reference, in GiB
    #[arg(long, default_value_t = 16)]
    memory: u32,
    /// Every n-th case from the k-th: a part of a job array
    #[arg(long, value_name = "K/N")]
    shard: Option<String>,
    /// Run each case this many times: later runs find memory and kernels in place
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = given::at_least_one)]
    repeat: usize,
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
    /// Leave a failing case at its own size
    #[arg(long)]
    no_shrink: bool,
    /// A line for every case, not only for failures
    #[arg(long, short)]
    verbose: bool,
    #[command(flatten)]
    single: Single,
}

/// What `--only` runs; a failing case prints these.
#[derive(Args)]
struct Single {
    /// With --only: normal, positive, integers, outlier, heavy-tailed, equal,
    /// half-zero, denormal-scales
    #[arg(long, requires = "only")]
    input: Option<Input>,
    /// With --only: f32, f16 or bf16
    #[arg(long, requires = "only", value_parser = parse_output)]
    output: Option<OutputType>,
    /// With --only: A's recipe, such as e4m3,1x128,f32
    #[arg(long, requires = "only", value_parser = parse_recipe)]
    a: Option<Recipe>,
    /// With --only: B's recipe, such as e2m1,1x32,f32
    #[arg(long, requires = "only", value_parser = parse_recipe)]
    b: Option<Recipe>,
    /// With --only: C += instead of C =
    #[arg(long, requires = "only")]
    accumulate: bool,
    /// With --only: unused columns between the rows of C
    #[arg(long, requires = "only", default_value_t = 0, value_parser = given::extent)]
    pad: usize,
    /// With --only: rows of each group
    #[arg(long, requires = "only", value_delimiter = ',', value_parser = given::extent)]
    contiguous: Option<Vec<usize>>,
    /// With --only: counts of each masked group
    #[arg(
        long,
        requires = "only",
        requires = "max_rows",
        value_delimiter = ',',
        value_parser = given::extent
    )]
    masked: Option<Vec<usize>>,
    /// With --masked: rows that each group owns
    #[arg(long, requires = "masked", value_parser = given::extent)]
    max_rows: Option<usize>,
    /// With --only: depth of each group
    #[arg(long, requires = "only", value_delimiter = ',', value_parser = given::extent)]
    k_grouped: Option<Vec<usize>>,
}

fn parse_output(text: &str) -> Result<OutputType, String> {
    OutputType::ALL
        .into_iter()
        .find(|output| output.name() == text)
        .ok_or_else(|| format!("`{text}`: expected f32, f16 or bf16"))
}

fn usage(message: String) -> anyhow::Error {
    UsageError(message).into()
}

impl Arguments {
    fn only(&self, shape: &str) -> Result<Case> {
        let [m, n, k] =
            given::three_extents(shape).map_err(|why| usage(format!("--only {shape}: {why}")))?;
        let s = &self.single;
        let (a, b) = fp8_recipes();
        let mut problem = Problem::dense(m, n, k, s.output.unwrap_or(OutputType::F32))
            .with_recipes((s.a.unwrap_or(a), s.b.unwrap_or(b)))
            .padded(s.pad);
        problem.accumulate = s.accumulate;
        let form = match (&s.contiguous, &s.masked, s.max_rows, &s.k_grouped) {
            (Some(rows), None, _, None) => Form::Contiguous { rows: rows.clone() },
            (None, Some(rows), Some(max_rows), None) => Form::Masked {
                max_rows,
                rows: rows.clone(),
            },
            (None, None, _, Some(depths)) => Form::KGrouped {
                depths: depths.clone(),
            },
            (None, None, _, None) => Form::Dense,
            _ => return Err(usage("one of --contiguous, --masked, --k-grouped".into())),
        };
        let problem = problem.with_form(form);
        problem
            .check()
            .map_err(|error| usage(format!("{error:#}")))?;
        let input = s.input.unwrap_or(Input::Normal);
        Ok(Case::new("only", problem, input, self.seed))
    }

    fn cases(&self) -> Result<Vec<Case>> {
        let cases = match (&self.only, self.cases, self.models, self.huge) {
            (Some(shape), None, false, false) => vec![self.only(shape)?],
            (None, Some(cases), false, false) => shapes::sweep(&Sweep {
                seed: self.seed,
                cases,
                max_m: self.max_m.max(1),
                cap: self.cap.unwrap_or(1 << 42).max(256 * 256),
            }),
            (None, None, false, true) => shapes::huge(self.seed),
            (None, None, true, false) => shapes::models(self.seed),
            (None, None, false, false) => shapes::ladder(self.seed, self.cap.unwrap_or(LADDER_CAP)),
            _ => {
                return Err(usage(
                    "--only, --cases, --models and --huge exclude each other".into(),
                ));
            }
        };
        match &self.shard {
            None => Ok(cases),
            Some(shard) => {
                let parts = shard.split_once('/').and_then(|(part, of)| {
                    let (part, of) = (part.parse().ok()?, of.parse().ok()?);
                    (1..=of).contains(&part).then_some((part, of))
                });
                let Some((part, of)) = parts else {
                    return Err(usage(format!(
                        "--shard {shard}: expected K/N with K of 1 to N"
                    )));
                };
                let mine = |&(i, _): &(usize, Case)| shapes::in_shard(i, part, of);
                Ok(cases
                    .into_iter()
                    .enumerate()
                    .filter(mine)
                    .map(|(_, case)| case)
                    .collect())
            }
        }
    }
}

/// One line of `--json`.
#[derive(Serialize)]
struct Line<'a> {
    subject: &'a str,
    case: String,
    #[serde(flatten)]
    outcome: &'a Outcome,
    replay: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    smallest: Option<String>,
}

#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
    lost: bool,
    skips: std::collections::BTreeMap<String, usize>,
    /// In cases that were judged.
    spent: std::time::Duration,
}

pub fn run(arguments: &Arguments) -> Result<Exit> {
    let cases: Vec<Case> = arguments
        .cases()?
        .into_iter()
        .flat_map(|case| vec![case; arguments.repeat.max(1)])
        .collect();
    let device = Device::open()?;
    if arguments.json {
        errln!("{}", device.banner());
    } else {
        outln!("{}", device.banner())?;
    }
    let plant = Plant::load(&device)?;
    let mut limits = Limits::default();
    limits.full = arguments.full.unwrap_or(limits.full);
    limits.memory = u128::from(arguments.memory) << 30;
    limits.strength = arguments.strength;
    let checker = Checker::new(&device, limits);
    let subjects = find(&device, &plant, &arguments.subject)?;
    let mut progress = Progress::new(cases.len() * subjects.len());
    let mut tally = Tally::default();
    for found in &subjects {
        let subject = match found {
            Found::Subject(subject) => subject.as_ref(),
            Found::Skipped { name, reason } => {
                tally.skipped += cases.len();
                *tally.skips.entry(format!("{name}: {reason}")).or_default() += cases.len();
                if arguments.json {
                    absent(&checker, name, reason, &cases, &progress)?;
                }
                continue;
            }
        };
        for case in &cases {
            progress.step(&format!("{} {case}", subject.name()));
            one(arguments, &checker, subject, case, &progress, &mut tally)?;
            if tally.lost {
                break;
            }
        }
        if tally.lost {
            break;
        }
    }
    drop(progress);
    summary(arguments, &tally)
}

/// The lines of a subject that this device does not have.
fn absent(
    checker: &Checker<'_>,
    name: &str,
    reason: &str,
    cases: &[Case],
    progress: &Progress,
) -> Result<()> {
    for case in cases {
        let line = Line {
            subject: name,
            case: case.to_string(),
            outcome: &Outcome::Skipped {
                reason: reason.to_owned(),
            },
            replay: case.replay(name, checker.strength(case)?),
            smallest: None,
        };
        progress.line(&serde_json::to_string(&line)?)?;
    }
    Ok(())
}

fn one(
    arguments: &Arguments,
    checker: &Checker<'_>,
    subject: &dyn Subject,
    case: &Case,
    progress: &Progress,
    tally: &mut Tally,
) -> Result<()> {
    let started = std::time::Instant::now();
    let outcome = checker.run(subject, case)?;
    if !matches!(outcome, Outcome::Skipped { .. }) {
        tally.spent += started.elapsed();
    }
    match &outcome {
        Outcome::Passed(_) => tally.passed += 1,
        Outcome::Failed(_) => tally.failed += 1,
        Outcome::Broke { lost, .. } => {
            tally.failed += 1;
            tally.lost |= lost;
        }
        Outcome::Skipped { reason } => {
            tally.skipped += 1;
            *tally
                .skips
                .entry(format!("{}: {reason}", subject.name()))
                .or_default() += 1;
        }
    }
    let strength = checker.strength(case)?;
    let replay = case.replay(&arguments.subject_of(subject), strength);
    let smallest = match &outcome {
        Outcome::Failed(_) if !arguments.no_shrink => Some(shrink(case, 60, |smaller| {
            checker
                .run(subject, smaller)
                .is_ok_and(|o| matches!(o, Outcome::Failed(_)))
        }))
        .filter(|smallest| smallest.problem != case.problem),
        _ => None,
    };
    let smallest = match smallest {
        Some(smaller) => {
            let strength = checker.strength(&smaller)?;
            Some(smaller.replay(&arguments.subject_of(subject), strength))
        }
        None => None,
    };
    if arguments.json {
        let line = Line {
            subject: subject.name(),
            case: case.to_string(),
            outcome: &outcome,
            replay,
            smallest,
        };
        progress.line(&serde_json::to_string(&line)?)?;
    } else if outcome.failed() || arguments.verbose || arguments.only.is_some() {
        let mut text = describe(subject, case, &outcome);
        if outcome.failed() {
            text += &format!("\n     replay: {replay}");
        }
        if let Some(smallest) = smallest {
            text += &format!("\n     smallest: {smallest}");
        }
        progress.line(&text)?;
    }
    Ok(())
}

impl Arguments {
    /// A fault is a subject under the name it was asked for.
    fn subject_of(&self, subject: &dyn Subject) -> String {
        let planted = format!("fault:{}", subject.name());
        if self.subject.contains(&planted) {
            planted
        } else {
            subject.name().to_owned()
        }
    }
}

fn describe(subject: &dyn Subject, case: &Case, outcome: &Outcome) -> String {
    let mut text = format!("{} {} {case}", outcome.word(), subject.name());
    match outcome {
        Outcome::Skipped { reason } => text += &format!("\n     {reason}"),
        Outcome::Broke { message, .. } => text += &format!("\n     {message}"),
        Outcome::Passed(judgement) | Outcome::Failed(judgement) => {
            let (tile_rows, tile_cols) = subject.tile(&case.problem);
            for finding in &judgement.findings {
                text += &format!("\n     {}: {}", finding.check.name(), finding.message);
                if let Some(place) = finding.place {
                    text += &format!(
                        "\n       first at (row {}, column {}) of group {}, tile ({}, {}), \
                         {} elements in all",
                        place.row,
                        place.col,
                        place.group,
                        place.row / tile_rows,
                        place.col / tile_cols,
                        finding.bad
                    );
                }
            }
            text += &format!(
                "\n     {} elements compared, {}",
                judgement.compared, judgement.strength
            );
            if let Some((calc, limit)) = judgement.global {
                text += &format!("\n     calc_diff {calc:.3e}, limit {limit:.3e}");
            }
            if let Some(worst) = &judgement.worst {
                text += &format!(
                    "\n     worst element (row {}, column {}) of group {}: {:.3} of its bound\n       {}",
                    worst.place.row,
                    worst.place.col,
                    worst.place.group,
                    worst.ratio,
                    worst.arithmetic
                );
            }
        }
    }
    text
}

fn summary(arguments: &Arguments, tally: &Tally) -> Result<Exit> {
    let exit = if tally.failed > 0 {
        Exit::Failed
    } else if tally.passed > 0 {
        Exit::Held
    } else {
        Exit::CouldNotRun
    };
    let mut text = format!(
        "{} passed, {} failed, {} skipped",
        tally.passed, tally.failed, tally.skipped
    );
    let judged = tally.passed + tally.failed;
    if judged > 0 {
        let mean = tally.spent.as_secs_f64() * 1e3 / judged as f64;
        text += &format!("; {mean:.2} ms a case, of {judged} judged");
    }
    for (reason, count) in &tally.skips {
        text += &format!("\n  skipped {count}: {reason}");
    }
    if tally.lost {
        text += "\n  the context was lost to a fault; the cases after it did not run";
    }
    if arguments.json {
        errln!("{text}");
    } else {
        outln!("{text}")?;
    }
    Ok(exit)
}
