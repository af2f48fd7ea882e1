//! The oracle: judges one rank's iteration, stage by stage.
//!
//! It makes every token, weight and logit itself from the seed, and derives from
//! the routing tables of all ranks, in the plainest way, which copy belongs in which
//! row. It shares no planning with the layer. Each arithmetic stage is judged
//! from the operands that the device really had, in f64, so that neither an error
//! of an earlier stage nor agreement between ranks hides anything.
//!
//! Tables, digests and findings travel through the hub, not through the collective
//! under test. Experts are streamed: the weights of one exist at a time a thread.

pub mod arithmetic;
pub mod combine;
pub mod movement;
pub mod routing;

use std::sync::Mutex;

use anyhow::{Context, Result, ensure};

use super::collective::words;
use super::finding::{Finding, Findings, Stage, TokenAt};
use super::hub::{self, Hub};
use super::layer::{Flight, Layer, META};
use super::shape::{Layout, Shape};

/// One rank's routing as all ranks know it.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    pub rank: usize,
    /// Number of its first token.
    pub first: usize,
    /// tokens × top_k.
    pub index: Vec<u32>,
    pub weight: Vec<f32>,
}

/// A copy that an expert must get.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wanted {
    pub source: usize,
    pub token: usize,
    pub slot: usize,
    pub weight: f32,
}

/// What an expert's rows must be, and where.
#[derive(Debug, Clone, PartialEq)]
pub struct Expert {
    pub expert: usize,
    pub copies: Vec<Wanted>,
    /// First row in its rank's layout.
    pub start: usize,
    /// Rows it owns there.
    pub allocated: usize,
}

/// What a rank left on its device.
pub struct Observation {
    pub flight: Flight,
    /// What the layout's tables say: (first row, rows computed) for each expert.
    pub computed: Vec<(usize, usize)>,
    pub codes: Vec<u8>,
    pub scales: Vec<f32>,
    pub meta: Vec<u32>,
    pub first: Vec<f32>,
    pub middle_codes: Vec<u8>,
    pub middle_scales: Vec<f32>,
    /// BF16, as bytes.
    pub second: Vec<u8>,
    /// BF16 rows that came back, as bytes.
    pub returned: Vec<u8>,
    pub out: Vec<f32>,
}

impl Observation {
    /// Rows that the rank made room for.
    pub fn rows(&self, shape: &Shape) -> usize {
        self.first.len() / (2 * shape.intermediate)
    }

    /// Downloads what the iteration left.
    pub fn read(layer: &Layer, flight: Flight) -> Result<Observation> {
        let (shape, arena) = (&layer.shape, &layer.arena);
        let rows = flight.believed.rows();
        let floats = |bytes: Vec<u8>| words(&bytes).into_iter().map(f32::from_bits).collect();
        let table = arena.first_table.read(8 * flight.believed.segments.len())?;
        Ok(Observation {
            computed: table
                .chunks_exact(8)
                .map(|g| (g[4] as usize / (2 * shape.intermediate), g[5] as usize))
                .collect(),
            codes: arena.row_codes.read(rows * shape.hidden)?,
            scales: floats(arena.row_scales.read(4 * rows * shape.hidden_scales())?),
            meta: words(&arena.row_meta.read(rows * META)?),
            first: arena.first.read(rows * 2 * shape.intermediate)?,
            middle_codes: arena.middle_codes.read(rows * shape.intermediate)?,
            middle_scales: arena
                .middle_scales
                .read(rows * shape.intermediate_scales())?,
            second: arena.second.read(rows * 2 * shape.hidden)?,
            returned: arena
                .back_got
                .read(flight.send.copies.len() * 2 * shape.hidden)?,
            out: arena.out.read(flight.input.count * shape.hidden)?,
            flight,
        })
    }
}

/// Everything a stage's check needs.
pub struct Judge<'a> {
    pub layer: &'a Layer,
    pub hub: &'a dyn Hub,
    pub seen: &'a Observation,
    pub tables: Vec<Table>,
    /// All experts of all ranks, in order.
    pub experts: Vec<Expert>,
    pub iteration: u64,
    /// Multiply-adds of an expert's GEMM up to which every element is compared;
    /// above, the sampled check of the GEMM harness is used.
    pub exact_work: u128,
    /// Threads of this rank.
    pub threads: usize,
    pub findings: Mutex<Findings>,
}

/// What was looked at, for the report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Looked {
    pub rows: usize,
    pub exact_gemms: usize,
    pub sampled_gemms: usize,
}

impl<'a> Judge<'a> {
    /// Gathers the routing tables of all ranks and derives what must be where.
    pub fn new(
        layer: &'a Layer,
        hub: &'a dyn Hub,
        seen: &'a Observation,
        iteration: u64,
    ) -> Result<Judge<'a>> {
        let flight = &seen.flight;
        let mut bytes = (flight.input.first as u64).to_le_bytes().to_vec();
        let weights = flight.weight.iter().map(|w| w.to_bits());
        for word in flight.index.iter().copied().chain(weights) {
            bytes.extend(word.to_le_bytes());
        }
        let tables = hub::gather(hub, &bytes)?
            .iter()
            .enumerate()
            .map(|(rank, bytes)| table(rank, bytes, &layer.shape))
            .collect::<Result<Vec<Table>>>()?;
        let experts = wanted(
            &layer.shape,
            layer.layout,
            layer.ranks,
            &tables,
            flight.input.capacity,
        );
        Ok(Judge {
            layer,
            hub,
            seen,
            tables,
            experts,
            iteration,
            exact_work: 1 << 31,
            threads: 1,
            findings: Mutex::new(Findings::default()),
        })
    }

    /// Runs every stage's check. All ranks must call it together.
    pub fn judge(self) -> Result<(Findings, Looked)> {
        self.hub.step("oracle: routing");
        routing::check(&self);
        self.hub.step("oracle: movement");
        let sound = movement::check(&self);
        self.hub.step("oracle: arithmetic");
        let looked = arithmetic::check(&self, &sound)?;
        self.hub.step("oracle: combine");
        combine::check(&self, &sound)?;
        let findings = self.findings.into_inner();
        Ok((findings.unwrap_or_else(|p| p.into_inner()), looked))
    }

    /// The experts of this rank.
    pub fn local(&self) -> &[Expert] {
        let rank = self.layer.rank;
        &self.experts[self.layer.shape.experts_of(rank, self.layer.ranks)]
    }

    pub fn report(
        &self,
        stage: Stage,
        rank: usize,
        expert: Option<usize>,
        token: Option<TokenAt>,
        detail: String,
    ) {
        let mut findings = self.findings.lock().unwrap_or_else(|p| p.into_inner());
        findings.push(Finding {
            stage,
            rank,
            expert,
            token,
            iteration: self.iteration,
            detail,
        });
    }
}

fn table(rank: usize, bytes: &[u8], shape: &Shape) -> Result<Table> {
    let first = bytes.first_chunk::<8>().context("a table's head")?;
    let words = words(&bytes[8..]);
    let (index, weight) = words.split_at(words.len() / 2);
    ensure!(
        index.len() == weight.len() && index.len().is_multiple_of(shape.top_k),
        "rank {rank} told of {} table entries for top {}",
        words.len(),
        shape.top_k
    );
    Ok(Table {
        rank,
        first: u64::from_le_bytes(*first) as usize,
        index: index.to_vec(),
        weight: weight.iter().map(|&w| f32::from_bits(w)).collect(),
    })
}

/// Walks all copies in the order (rank, token, slot) and gives each to its expert,
/// as long as there is room; then lays the experts of each rank out.
pub fn wanted(
    shape: &Shape,
    layout: Layout,
    ranks: usize,
    tables: &[Table],
    capacity: Option<u32>,
) -> Vec<Expert> {
    let mut experts: Vec<Expert> = (0..shape.experts)
        .map(|expert| Expert {
            expert,
            copies: Vec::new(),
            start: 0,
            allocated: 0,
        })
        .collect();
    for table in tables {
        for (at, (&expert, &weight)) in table.index.iter().zip(&table.weight).enumerate() {
            let Some(expert) = experts.get_mut(expert as usize) else {
                continue; // the routing check names it
            };
            if capacity.is_none_or(|c| expert.copies.len() < c as usize) {
                expert.copies.push(Wanted {
                    source: table.rank,
                    token: at / shape.top_k,
                    slot: at % shape.top_k,
                    weight,
                });
            }
        }
    }
    for rank in 0..ranks {
        let local = &mut experts[shape.experts_of(rank, ranks)];
        let up = |count: usize| count.div_ceil(shape.align) * shape.align;
        let most = local.iter().map(|e| up(e.copies.len())).max().unwrap_or(0);
        let mut start = 0;
        for expert in local {
            expert.start = start;
            expert.allocated = match layout {
                Layout::Contiguous => up(expert.copies.len()),
                Layout::Masked => most,
            };
            start += expert.allocated;
        }
    }
    experts
}

/// 64 bits that differ when rows differ, but for one chance in 2^64.
pub fn digest(bytes: &[u8]) -> u64 {
    let mut hash = bytes.len() as u64 ^ 0x9e37_79b9_7f4a_7c15;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash ^= hash >> 32;
    }
    hash
}
