//! Runs a case on one rank of a job, and brings all ranks' findings together.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;

use super::case::{self, Case};
use super::collective::{Collective, HostCollective};
use super::fault::Fault;
use super::finding::{Finding, Findings, Stage, TokenAt};
use super::hub::local::LocalHub;
use super::hub::{self, Hub};
use super::layer::Layer;
use super::oracle::{Judge, Looked, Observation, digest};
use crate::device::Device;

/// What a rank of a job has.
pub struct Rank {
    pub device: Arc<Device>,
    pub hub: Arc<dyn Hub>,
    pub collective: Box<dyn Collective>,
    /// Threads that this rank's oracle may use.
    pub threads: usize,
}

/// How to run a case.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    pub seed: u64,
    /// Planted on this rank.
    pub fault: Option<(Fault, usize)>,
    /// Compare with one rank that is given all tokens.
    pub single_rank: bool,
    pub exact_work: u128,
    /// Do something fatal on this rank, in mid-run.
    pub loss: Option<(usize, Loss)>,
}

/// How a rank is lost, for tests of the launcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Loss {
    /// SIGKILL.
    Kill,
    /// SIGSTOP: the process is there and does nothing.
    Stop,
    /// The main thread loops for ever.
    Spin,
}

/// A case on all ranks. Every rank gets the same report.
#[derive(Debug, Clone, Serialize)]
pub struct CaseReport {
    pub case: Case,
    pub seed: u64,
    pub ranks: usize,
    pub tokens: usize,
    pub looked: Looked,
    /// Whether a second run and, where it was made, the single-rank run gave the
    /// same bits.
    pub rerun: bool,
    pub single_rank: Option<bool>,
    pub seconds: f64,
    pub findings: Findings,
}

impl CaseReport {
    pub fn passed(&self) -> bool {
        self.findings.is_empty()
    }
}

/// A case's report and this rank's results of the last iteration.
pub struct CaseRun {
    pub report: CaseReport,
    pub out: Vec<f32>,
}

/// Runs all iterations of a case and judges each. All ranks must call it together.
pub fn run(rank: &mut Rank, case: &Case, options: &Options) -> Result<CaseRun> {
    let started = Instant::now();
    let hub = Arc::clone(&rank.hub);
    let (me, ranks) = (hub.rank(), hub.ranks());
    hub.step("weights");
    let mut layer = Layer::new(
        Arc::clone(&rank.device),
        case.shape,
        case.layout,
        options.seed,
        me,
        ranks,
    )
    .with_context(|| format!("case {} on rank {me}", case.name))?;
    if let Some((fault, on)) = options.fault {
        layer.fault = (on == me).then_some(fault);
    }
    let mut mine = Findings::default();
    let mut looked = Looked::default();
    let mut tokens = 0;
    let mut out = Vec::new();
    for iteration in 0..case.iterations {
        let mut input = case::input(case, options.seed, me, ranks, iteration);
        if let Some((Fault::MissingSynchronisation, on)) = options.fault
            && on != me
        {
            // So that the rank which does not wait is early.
            input.delay = case::DELAY;
        }
        tokens += case::single(case, options.seed, ranks, iteration).count;
        lose(options, me, iteration);
        let flight = layer.run(rank.collective.as_mut(), input, &|label| hub.step(label))?;
        hub.step("oracle");
        let seen = Observation::read(&layer, flight)?;
        let mut judge = Judge::new(&layer, hub.as_ref(), &seen, iteration)?;
        judge.exact_work = options.exact_work;
        judge.threads = rank.threads;
        let (findings, at) = judge.judge()?;
        mine.merge(findings);
        looked.rows += at.rows;
        looked.exact_gemms += at.exact_gemms;
        looked.sampled_gemms += at.sampled_gemms;
        out = seen.out;
    }
    let last = case.iterations - 1;
    let (mut rerun, mut single_rank) = (true, None);
    if options.fault.is_none() {
        hub.step("second run");
        let input = case::input(case, options.seed, me, ranks, last);
        let flight = layer.run(rank.collective.as_mut(), input, &|label| hub.step(label))?;
        let again = layer
            .arena
            .out
            .read(flight.input.count * case.shape.hidden)?;
        rerun = same(case, &out, &again, Stage::Rerun, last, &mut mine, |token| {
            TokenAt { rank: me, token }
        });
        if options.single_rank {
            drop(layer);
            hub.step("single rank");
            let same = against_single(rank, case, options, &out, &mut mine)?;
            single_rank = Some(same);
        }
    }
    let merged = merge(hub.as_ref(), &mine, looked, rerun, single_rank)?;
    Ok(CaseRun {
        report: CaseReport {
            case: *case,
            seed: options.seed,
            ranks,
            tokens,
            looked: merged.looked,
            rerun: merged.rerun,
            single_rank: merged.single_rank,
            seconds: started.elapsed().as_secs_f64(),
            findings: merged.findings,
        },
        out,
    })
}

/// Compares results token by token, bit by bit.
fn same(
    case: &Case,
    want: &[f32],
    got: &[f32],
    stage: Stage,
    iteration: u64,
    findings: &mut Findings,
    at: impl Fn(usize) -> TokenAt,
) -> bool {
    let hidden = case.shape.hidden;
    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
    let mut all = want.len() == got.len();
    for (token, (want, got)) in want.chunks(hidden).zip(got.chunks(hidden)).enumerate() {
        if bits(want) != bits(got) {
            all = false;
            let at = at(token);
            findings.push(Finding {
                stage,
                rank: at.rank,
                expert: None,
                token: Some(at),
                iteration,
                detail: "the bits differ between two runs of the same input".to_owned(),
            });
        }
    }
    all
}

/// Rank 0 runs the last iteration with all tokens on itself; every rank compares
/// its tokens by digest. Bits, not a bound: each copy's row and the order of its sum
/// are the same whoever computes them.
fn against_single(
    rank: &Rank,
    case: &Case,
    options: &Options,
    out: &[f32],
    findings: &mut Findings,
) -> Result<bool> {
    let hub = rank.hub.as_ref();
    let (ranks, last, hidden) = (hub.ranks(), case.iterations - 1, case.shape.hidden);
    let digests = |out: &[f32]| -> Vec<u8> {
        let rows = out.chunks(hidden);
        rows.flat_map(|row| {
            let bytes: Vec<u8> = row.iter().flat_map(|x| x.to_le_bytes()).collect();
            digest(&bytes).to_le_bytes()
        })
        .collect()
    };
    let mut parts = vec![Vec::new(); ranks];
    if hub.rank() == 0 {
        let alone: Arc<dyn Hub> = Arc::new(
            LocalHub::all(1, Duration::from_secs(3600))
                .pop()
                .context("one rank")?,
        );
        let mut collective = HostCollective::new(alone);
        let device = Arc::clone(&rank.device);
        let mut layer = Layer::new(device, case.shape, case.layout, options.seed, 0, 1)?;
        let input = case::single(case, options.seed, ranks, last);
        layer.run(&mut collective, input, &|label| {
            hub.step(&format!("single rank: {label}"));
        })?;
        let all = digests(&layer.arena.out.read(input.count * hidden)?);
        for (to, part) in parts.iter_mut().enumerate() {
            let its = case::input(case, options.seed, to, ranks, last);
            *part = all[8 * its.first..8 * (its.first + its.count)].to_vec();
        }
    }
    let want = hub.exchange(parts)?.swap_remove(0);
    let got = digests(out);
    let mut all = want.len() == got.len();
    for (token, (want, got)) in want.chunks(8).zip(got.chunks(8)).enumerate() {
        if want != got {
            all = false;
            let at = TokenAt {
                rank: hub.rank(),
                token,
            };
            findings.push(Finding {
                stage: Stage::RankCount,
                rank: at.rank,
                expert: None,
                token: Some(at),
                iteration: last,
                detail: "one rank with all tokens gives other bits".to_owned(),
            });
        }
    }
    Ok(all)
}

#[derive(Serialize, serde::Deserialize)]
struct Merged {
    findings: Findings,
    looked: Looked,
    rerun: bool,
    single_rank: Option<bool>,
}

fn merge(
    hub: &dyn Hub,
    findings: &Findings,
    looked: Looked,
    rerun: bool,
    single_rank: Option<bool>,
) -> Result<Merged> {
    let mine = Merged {
        findings: findings.clone(),
        looked,
        rerun,
        single_rank,
    };
    let mut all = Merged {
        findings: Findings::default(),
        looked: Looked::default(),
        rerun: true,
        single_rank: None,
    };
    for bytes in hub::gather(hub, &serde_json::to_vec(&mine)?)? {
        let one: Merged = serde_json::from_slice(&bytes).context("findings of a rank")?;
        all.findings.merge(one.findings);
        all.looked.rows += one.looked.rows;
        all.looked.exact_gemms += one.looked.exact_gemms;
        all.looked.sampled_gemms += one.looked.sampled_gemms;
        all.rerun &= one.rerun;
        all.single_rank = match (all.single_rank, one.single_rank) {
            (Some(x), Some(y)) => Some(x && y),
            (x, y) => x.or(y),
        };
    }
    Ok(all)
}

/// Ends, stops or occupies this process, if it is the one to be lost.
fn lose(options: &Options, me: usize, iteration: u64) {
    let Some((rank, loss)) = options.loss else {
        return;
    };
    if rank != me || iteration != 1 {
        return;
    }
    match loss {
        Loss::Kill => raise(libc::SIGKILL),
        Loss::Stop => raise(libc::SIGSTOP),
        Loss::Spin => loop {
            std::thread::park();
        },
    }
}

fn raise(signal: i32) {
    // SAFETY: sends a signal to this process; nothing of ours handles it.
    unsafe {
        libc::kill(libc::getpid(), signal);
    }
    // SIGSTOP stops the threads of a process one after the other.
    std::thread::sleep(Duration::from_secs(3600));
}
