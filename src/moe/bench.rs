//! Timing of a layer's parts, each against a ceiling measured in the same run.
//!
//! Wall-clock time between two device-wide synchronisations, after a barrier of all
//! ranks; the median of the repetitions, for the slowest rank of each. So a figure
//! holds the host's planning and launches too, which for few tokens is most of it.
//! Rates count the bytes that leave a rank for others, once.
//!
//! The results are compared bit for bit with those of before the timing.

use std::time::Instant;

use anyhow::{Result, ensure};
use serde::Serialize;

use super::case::{self, Case};
use super::check::{Options, Rank};
use super::collective::Transfer;
use super::generate::Matrix;
use super::hub::{self, Hub};
use super::layer::{Flight, Layer, META};
use crate::device::choice::Driver;

/// Bytes that each rank sends each rank to measure the link.
const LINK_BYTES: usize = 64 << 20;

/// One part of the layer.
#[derive(Debug, Clone, Serialize)]
pub struct Part {
    pub name: String,
    /// Median over the repetitions of the slowest rank's time.
    pub microseconds: f64,
    pub fastest: f64,
    pub slowest: f64,
    /// GB/s of this rank.
    pub gigabytes: Option<f64>,
    /// Of the ceiling named next.
    pub percent: Option<f64>,
    /// `link` or `memory`.
    pub ceiling: &'static str,
    /// TFLOP/s of this rank.
    pub teraflops: Option<f64>,
}

/// One shape and token count.
#[derive(Debug, Clone, Serialize)]
pub struct Bench {
    pub case: Case,
    pub ranks: usize,
    pub tokens_a_rank: usize,
    pub collective: String,
    pub device: String,
    pub repetitions: usize,
    pub link_gigabytes: Option<f64>,
    /// `None`, as every rate, on the CPU driver: none of a GPU follows from its times.
    pub memory_gigabytes: Option<f64>,
    pub parts: Vec<Part>,
    /// `None` without other ranks.
    pub overlap: Option<Overlap>,
    pub same_bits: bool,
}

/// Runs the benchmark; all ranks must call it together and get the same figures.
pub fn run(rank: &mut Rank, case: &Case, options: &Options, repetitions: usize) -> Result<Bench> {
    ensure!(repetitions > 0, "a benchmark needs at least one repetition");
    let hub = std::sync::Arc::clone(&rank.hub);
    let (me, ranks) = (hub.rank(), hub.ranks());
    hub.step("weights");
    let mut layer = Layer::new(
        std::sync::Arc::clone(&rank.device),
        case.shape,
        case.layout,
        options.seed,
        me,
        ranks,
    )?;
    layer.poison = false;
    let input = case::input(case, options.seed, me, ranks, 0);
    let step = |label: &str| hub.step(label);
    let flight = layer.run(rank.collective.as_mut(), input, &step)?;
    let elements = input.count * case.shape.hidden;
    let before = layer.arena.out.read(elements)?;

    let mut clock = Clock {
        hub: hub.as_ref(),
        repetitions,
    };
    let link = link(rank, &mut clock)?;
    let memory = memory(&layer, &mut clock)?;
    let on_cpu = rank.device.info().driver == Driver::Cpu;
    let mut parts = Vec::new();
    let off_rank: usize = flight
        .send
        .to
        .iter()
        .enumerate()
        .filter(|(to, _)| *to != me)
        .map(|(_, rows)| rows.len())
        .sum();
    let row = case.shape.hidden + 4 * case.shape.hidden_scales() + META;
    let collective = &mut rank.collective;
    let device = std::sync::Arc::clone(&rank.device);
    let mut timed = |name: &str, work: Work, body: &mut dyn FnMut() -> Result<()>| {
        let times = clock.time(name, &mut || {
            body()?;
            Ok(device.synchronize()?)
        })?;
        parts.push(part(name, &times, work, link, memory));
        Ok::<Vec<f64>, anyhow::Error>(times)
    };
    timed("route", Work::None, &mut || {
        layer.launch_router(input.count)
    })?;
    timed("counts and plan", Work::None, &mut || {
        let (index, weight) = (flight.index.clone(), flight.weight.clone());
        layer
            .plan(collective.as_mut(), input, index, weight)
            .map(drop)
    })?;
    timed("dispatch", Work::Link(off_rank * row), &mut || {
        layer.dispatch(collective.as_mut(), &flight)
    })?;
    let first = gemm_work(&layer, &flight, Matrix::GateUp);
    let gemm = timed("first GEMM", first, &mut || layer.first_gemm(&flight))?;
    timed(
        "SwiGLU",
        Work::Memory(activation_bytes(&flight, case)),
        &mut || layer.activate(&flight),
    )?;
    let second = gemm_work(&layer, &flight, Matrix::Down);
    timed("second GEMM", second, &mut || layer.second_gemm(&flight))?;
    let back = off_rank * 2 * case.shape.hidden;
    timed("return", Work::Link(back), &mut || {
        layer.give_back(collective.as_mut(), &flight)
    })?;
    let sum = (flight.send.copies.len() * 2 + input.count * 4) * case.shape.hidden;
    timed("combine", Work::Memory(sum), &mut || layer.combine(&flight))?;
    timed(
        "whole layer",
        Work::Link(off_rank * row + back),
        &mut || {
            layer.launch_router(input.count)?;
            let (index, weight) = (flight.index.clone(), flight.weight.clone());
            let flight = layer.plan(collective.as_mut(), input, index, weight)?;
            layer.dispatch(collective.as_mut(), &flight)?;
            layer.first_gemm(&flight)?;
            layer.activate(&flight)?;
            layer.second_gemm(&flight)?;
            layer.give_back(collective.as_mut(), &flight)?;
            layer.combine(&flight)
        },
    )?;
    let overlap = match ranks {
        1 => None,
        _ => {
            let moved = timed("transfer alone", Work::Link(off_rank * row), &mut || {
                layer.transfer(collective.as_mut(), &flight, &mut |_| Ok(()))
            })?;
            let both = timed("transfer beside first GEMM", Work::None, &mut || {
                layer.transfer(collective.as_mut(), &flight, &mut |layer| {
                    layer.first_gemm(&flight)?;
                    Ok(layer.device.synchronize()?)
                })
            })?;
            Some(Overlap::of(&moved, &gemm, &both))
        }
    };
    let after = layer.arena.out.read(elements)?;
    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
    let mine = u8::from(bits(&before) == bits(&after));
    let same_bits = hub::gather(hub.as_ref(), &[mine])?
        .iter()
        .all(|b| b == &[1]);
    let link = link.filter(|_| !on_cpu);
    if on_cpu {
        for part in &mut parts {
            (part.gigabytes, part.percent, part.teraflops) = (None, None, None);
        }
    }
    Ok(Bench {
        case: *case,
        ranks,
        tokens_a_rank: input.count,
        collective: rank.collective.name(),
        device: rank.device.info().name.clone(),
        repetitions,
        link_gigabytes: link,
        memory_gigabytes: (!on_cpu).then_some(memory),
        parts,
        overlap,
        same_bits,
    })
}

/// How much of one dispatch transfer is hidden when the first GEMM is queued beside
/// it. The layer itself runs its parts one after the other: this says what it could
/// gain, not what it does.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Overlap {
    /// Of the shorter of the two; as measured, so it may lie outside 0 to 100.
    pub percent: f64,
    /// Half of the range that the quartiles of the three times leave open.
    pub plus_minus: f64,
}

impl Overlap {
    /// From the times of the transfer, of the GEMM, and of both at once.
    fn of(moved: &[f64], gemm: &[f64], both: &[f64]) -> Overlap {
        let shorter = median(moved).min(median(gemm));
        let hidden = median(moved) + median(gemm) - median(both);
        let open: f64 = [moved, gemm, both].map(between_quartiles).iter().sum();
        Overlap {
            percent: 100.0 * hidden / shorter,
            plus_minus: 50.0 * open / shorter,
        }
    }

    /// A figure that noise moves by half of the whole says nothing.
    fn is_told(self) -> bool {
        self.plus_minus <= 50.0
    }
}

impl std::fmt::Display for Overlap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_told() {
            write!(
                f,
                "overlap: {:.0} % (plus or minus {:.0}) of the shorter of one transfer and the \
                 first GEMM is hidden when both are queued",
                self.percent, self.plus_minus
            )?;
        } else {
            write!(
                f,
                "overlap: cannot be told, the times vary by {:.0} % of the shorter of one \
                 transfer and the first GEMM",
                2.0 * self.plus_minus
            )?;
        }
        write!(f, "; the layer itself runs its parts one after the other")
    }
}

/// What a part moves or computes, on one rank.
#[derive(Clone, Copy)]
enum Work {
    None,
    Link(usize),
    Memory(usize),
    /// Floating-point operations, and bytes that must be read or written.
    Gemm(f64, usize),
}

struct Clock<'a> {
    hub: &'a dyn Hub,
    repetitions: usize,
}

impl Clock<'_> {
    /// Times of the repetitions in µs, each the slowest rank's; two runs first.
    fn time(&mut self, name: &str, body: &mut dyn FnMut() -> Result<()>) -> Result<Vec<f64>> {
        self.hub.step(name);
        let mut times = Vec::with_capacity(self.repetitions);
        for repetition in 0..self.repetitions + 2 {
            hub::barrier(self.hub)?;
            let started = Instant::now();
            body()?;
            let mine = started.elapsed().as_secs_f64() * 1e6;
            if repetition >= 2 {
                times.push(mine);
            }
        }
        let bytes: Vec<u8> = times.iter().flat_map(|t| t.to_le_bytes()).collect();
        for other in hub::gather(self.hub, &bytes)? {
            for (time, bytes) in times.iter_mut().zip(other.chunks_exact(8)) {
                let bytes = bytes.try_into().map_err(|_| anyhow::anyhow!("a time"))?;
                *time = time.max(f64::from_le_bytes(bytes));
            }
        }
        Ok(times)
    }
}

fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0
}

/// Distance of the quartiles.
fn between_quartiles(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len() - 1;
    sorted[(3 * last).div_ceil(4)] - sorted[last / 4]
}

fn part(name: &str, times: &[f64], work: Work, link: Option<f64>, memory: f64) -> Part {
    let microseconds = median(times);
    let giga = |bytes: usize| bytes as f64 / microseconds / 1e3;
    let (gigabytes, most, ceiling) = match work {
        Work::Link(bytes) => (link.map(|_| giga(bytes)), link, "link"),
        Work::Memory(bytes) | Work::Gemm(_, bytes) => (Some(giga(bytes)), Some(memory), "memory"),
        Work::None => (None, None, ""),
    };
    Part {
        name: name.to_owned(),
        microseconds,
        fastest: times.iter().copied().fold(f64::INFINITY, f64::min),
        slowest: times.iter().copied().fold(0.0, f64::max),
        gigabytes,
        percent: gigabytes.zip(most).map(|(rate, most)| 100.0 * rate / most),
        ceiling,
        teraflops: match work {
            Work::Gemm(flops, _) => Some(flops / microseconds / 1e6),
            _ => None,
        },
    }
}

fn gemm_work(layer: &Layer, flight: &Flight, matrix: Matrix) -> Work {
    let problem = layer.problem(flight, matrix);
    let (n, depth) = matrix.size(&layer.shape);
    let busy = problem.segments().into_iter().filter(|s| s.rows > 0);
    let bytes = busy.map(|s| n * depth + s.rows * (depth + problem.output.size() * n));
    Work::Gemm(2.0 * problem.work() as f64, bytes.sum())
}

fn activation_bytes(flight: &Flight, case: &Case) -> usize {
    let rows: usize = flight.believed.segments.iter().map(|s| s.count).sum();
    rows * (9 * case.shape.intermediate + 4 * case.shape.intermediate_scales())
}

/// GB/s that a rank sends to others, all at once, in large messages.
fn link(rank: &mut Rank, clock: &mut Clock<'_>) -> Result<Option<f64>> {
    let (me, ranks) = (rank.hub.rank(), rank.hub.ranks());
    if ranks == 1 {
        return Ok(None);
    }
    // A CPU driver moves bytes through host memory: a ceiling all the same.
    let bytes = match rank.device.info().driver {
        Driver::Nvidia => LINK_BYTES,
        _ => 1 << 18,
    };
    let send = rank.device.poisoned::<u8>(bytes * ranks)?;
    let mut receive = rank.device.poisoned::<u8>(bytes * ranks)?;
    let ranges = || -> Vec<std::ops::Range<usize>> {
        (0..ranks)
            .map(|r| {
                if r == me {
                    0..0
                } else {
                    r * bytes..(r + 1) * bytes
                }
            })
            .collect()
    };
    let collective = &mut rank.collective;
    let times = clock.time("link ceiling", &mut || {
        let mut transfers = [Transfer {
            send: &send,
            to: ranges(),
            receive: &mut receive,
            from: ranges(),
        }];
        collective.start(&mut transfers)?;
        collective.finish(&mut transfers)
    })?;
    Ok(Some((bytes * (ranks - 1)) as f64 / median(&times) / 1e3))
}

/// GB/s of a copy, reads and writes counted.
fn memory(layer: &Layer, clock: &mut Clock<'_>) -> Result<f64> {
    let (row, rows) = match layer.device.info().driver {
        Driver::Nvidia => (16 << 10, 32 << 10),
        _ => (1 << 10, 64),
    };
    let from = layer.device.poisoned::<u8>(row * rows)?;
    let to = layer.device.poisoned::<u8>(row * rows)?;
    let map: Vec<u32> = (0..rows as u32).collect();
    let map = layer.device.upload(&map)?;
    let times = clock.time("memory ceiling", &mut || {
        layer.copy_rows(&from, &to, &map, row)?;
        Ok(layer.device.synchronize()?)
    })?;
    Ok(2.0 * (row * rows) as f64 / median(&times) / 1e3)
}

impl std::fmt::Display for Bench {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{} {}, {} tokens a rank, {} ranks over {}, {}",
            self.case.shape,
            self.case.layout.name(),
            self.tokens_a_rank,
            self.ranks,
            self.collective,
            self.device
        )?;
        match self.memory_gigabytes {
            Some(memory) => writeln!(
                f,
                "ceilings: link {}, memory {memory:.1} GB/s (copy, both directions)",
                match self.link_gigabytes {
                    Some(link) => format!("{link:.1} GB/s sent by each rank"),
                    None => "none with one rank".to_owned(),
                }
            )?,
            None => writeln!(
                f,
                "times of the CPU driver: no rate of a GPU follows from them"
            )?,
        }
        for part in &self.parts {
            write!(
                f,
                "{:<28} {:>12.1} us ({:.1} to {:.1})",
                part.name, part.microseconds, part.fastest, part.slowest
            )?;
            if let Some((rate, percent)) = part.gigabytes.zip(part.percent) {
                write!(f, "  {rate:.2} GB/s, {percent:.1} % of {}", part.ceiling)?;
            }
            if let Some(rate) = part.teraflops {
                write!(f, "  {rate:.2} TFLOP/s")?;
            }
            writeln!(f)?;
        }
        if let Some(overlap) = self.overlap {
            writeln!(f, "{overlap}")?;
        }
        writeln!(
            f,
            "medians of {} repetitions of the slowest rank; results after timing: {}",
            self.repetitions,
            if self.same_bits {
                "the same bits"
            } else {
                "OTHER BITS"
            }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_is_a_share_of_the_shorter_with_its_doubt() {
        let steady = |time: f64| vec![time; 20];
        let all = Overlap::of(&steady(100.0), &steady(400.0), &steady(400.0));
        assert_eq!((all.percent, all.plus_minus), (100.0, 0.0));
        let none = Overlap::of(&steady(100.0), &steady(400.0), &steady(500.0));
        assert_eq!(none.percent, 0.0);
        let half = Overlap::of(&steady(400.0), &steady(100.0), &steady(450.0));
        assert_eq!(half.percent, 50.0);
        // A GEMM that varies by more than a transfer takes hides any answer.
        let noisy: Vec<f64> = (0..20).map(|i| 24_000.0 + 20.0 * f64::from(i)).collect();
        let doubt = Overlap::of(&steady(170.0), &noisy, &noisy);
        assert!(!doubt.is_told() && all.is_told(), "{doubt:?}");
        assert!(doubt.to_string().contains("cannot be told"), "{doubt}");
        assert!(all.to_string().contains("100 % (plus or minus 0)"), "{all}");
    }
}
