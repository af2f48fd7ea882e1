//! The layer on a device: one rank's part of an iteration, step by step.
//!
//! route → gather counts → pack → all-to-all → unpack into the layout → GEMM →
//! SwiGLU and quantise → GEMM → pack → all-to-all back → combine. Planning is on
//! the host from the downloaded choice; rows, scales and sums never leave the
//! device. Buffers are reused from iteration to iteration.

mod experts;
mod movement;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use super::arena::Slot;
use super::collective::Collective;
use super::fault::Fault;
use super::generate::{self, Tokens};
use super::plan::{Counts, NO_ROW, ReceivePlan, SendPlan, copies, count};
use super::shape::{Layout, Router, Shape};
use super::steer::Steer;
use super::weights::Weights;
use crate::device::{Argument, Device, Launch, Module};
use crate::gemm::simt::Simt;
use crate::kernels::{MOE_ROUTE, MOE_ROWS, MOE_SWIGLU};

/// Bytes that travel with each row: source token, slot, expert, weight.
pub const META: usize = 16;

/// What a rank is given in one iteration.
#[derive(Debug, Clone, Copy)]
pub struct Input {
    pub tokens: Tokens,
    /// Number of the rank's first token, over all ranks.
    pub first: usize,
    pub count: usize,
    pub steer: Steer,
    /// Copies an expert takes, over all ranks; the others are dropped.
    pub capacity: Option<u32>,
    /// Sleep before the transfers start.
    pub delay: Duration,
}

/// One iteration's tables on the host.
#[derive(Debug, Clone)]
pub struct Flight {
    pub input: Input,
    /// tokens × top_k.
    pub index: Vec<u32>,
    pub weight: Vec<f32>,
    pub counts: Counts,
    pub send: SendPlan,
    /// What really arrives.
    pub receive: ReceivePlan,
    /// What the layer takes it for: the same, unless a fault is planted.
    pub believed: ReceivePlan,
    /// For each arrival that `believed` places: the row it is read from.
    pub arrival: Vec<u32>,
}

#[derive(Default)]
pub(super) struct Arena {
    logits: Slot<f32>,
    pub index: Slot<u32>,
    pub weight: Slot<f32>,
    codes: Slot<u8>,
    scales: Slot<u8>,
    send_codes: Slot<u8>,
    send_scales: Slot<u8>,
    send_meta: Slot<u8>,
    got_codes: Slot<u8>,
    got_scales: Slot<u8>,
    pub got_meta: Slot<u8>,
    pub row_codes: Slot<u8>,
    pub row_scales: Slot<u8>,
    pub row_meta: Slot<u8>,
    pub first: Slot<f32>,
    pub middle_codes: Slot<u8>,
    pub middle_scales: Slot<f32>,
    pub second: Slot<u8>,
    back_send: Slot<u8>,
    pub back_got: Slot<u8>,
    pub out: Slot<f32>,
    from: Slot<u32>,
    to: Slot<u32>,
    position: Slot<u32>,
    pub first_table: Slot<u64>,
    pub second_table: Slot<u64>,
    combine_weight: Slot<f32>,
}

/// One rank of a layer, with its experts' weights on the device.
pub struct Layer {
    pub device: Arc<Device>,
    pub shape: Shape,
    pub layout: Layout,
    pub seed: u64,
    pub rank: usize,
    pub ranks: usize,
    /// Planted on this rank.
    pub fault: Option<Fault>,
    /// Fill results with poison before each iteration: for checks, not for timing.
    pub poison: bool,
    route: Module,
    rows: Module,
    swiglu: Module,
    gemm: Simt,
    weights: Weights,
    bias: Slot<f32>,
    pub(super) arena: Arena,
    previous: Option<Counts>,
}

impl Layer {
    /// Loads the kernels and fills the weights of this rank's experts.
    pub fn new(
        device: Arc<Device>,
        shape: Shape,
        layout: Layout,
        seed: u64,
        rank: usize,
        ranks: usize,
    ) -> Result<Layer> {
        shape.check()?;
        let weights = Weights::fill(&device, &shape, seed, shape.experts_of(rank, ranks))?;
        let mut bias = Slot::default();
        bias.fill(&device, &generate::bias(&shape, seed))?;
        Ok(Layer {
            route: device.load(&MOE_ROUTE)?,
            rows: device.load(&MOE_ROWS)?,
            swiglu: device.load(&MOE_SWIGLU)?,
            gemm: Simt::load(&device)?,
            weights,
            bias,
            arena: Arena::default(),
            previous: None,
            fault: None,
            poison: true,
            device,
            shape,
            layout,
            seed,
            rank,
            ranks,
        })
    }

    /// A whole iteration. `step` is told what comes next.
    pub fn run(
        &mut self,
        collective: &mut dyn Collective,
        input: Input,
        step: &dyn Fn(&str),
    ) -> Result<Flight> {
        step("route");
        self.load(&input)?;
        let (index, weight) = self.route(&input)?;
        step("gather counts");
        let flight = self.plan(collective, input, index, weight)?;
        std::thread::sleep(input.delay);
        step("dispatch");
        self.dispatch(collective, &flight)?;
        step("experts");
        self.first_gemm(&flight)?;
        self.activate(&flight)?;
        self.second_gemm(&flight)?;
        self.device.synchronize()?;
        step("return");
        self.give_back(collective, &flight)?;
        step("combine");
        self.combine(&flight)?;
        self.device.synchronize()?;
        Ok(flight)
    }

    /// Puts the rank's tokens on the device, quantised as they are generated.
    pub fn load(&mut self, input: &Input) -> Result<()> {
        let (mut codes, mut scales) = (Vec::new(), Vec::new());
        for token in input.first..input.first + input.count {
            codes.extend(input.tokens.codes(&self.shape, token));
            for scale in input.tokens.scales(&self.shape, token) {
                scales.extend(scale.to_le_bytes());
            }
        }
        self.arena.codes.fill(&self.device, &codes)?;
        self.arena.scales.fill(&self.device, &scales)
    }

    /// Chooses experts and weights; steered tables are given, not computed.
    pub fn route(&mut self, input: &Input) -> Result<(Vec<u32>, Vec<f32>)> {
        let slots = input.count * self.shape.top_k;
        if let Some((index, weight)) = input.steer.given(&self.shape, input) {
            self.arena.index.fill(&self.device, &index)?;
            self.arena.weight.fill(&self.device, &weight)?;
            return Ok((index, weight));
        }
        let logits: Vec<f32> = (input.first..input.first + input.count)
            .flat_map(|token| input.steer.logits(&self.shape, &input.tokens, token))
            .collect();
        self.arena.logits.fill(&self.device, &logits)?;
        self.arena.index.reserve(&self.device, slots)?.poison()?;
        self.arena.weight.reserve(&self.device, slots)?.poison()?;
        self.launch_router(input.count)?;
        Ok((
            self.arena.index.read(slots)?,
            self.arena.weight.read(slots)?,
        ))
    }

    /// The router over what is on the device.
    pub fn launch_router(&mut self, tokens: usize) -> Result<()> {
        if tokens == 0 {
            return Ok(());
        }
        let (groups, top_groups, sigmoid, scaling) = match self.shape.router {
            Router::Softmax => (1, 1, 0u32, 1.0f32),
            Router::Sigmoid {
                groups,
                top_groups,
                scaling,
            } => (groups as u32, top_groups as u32, 1, scaling),
        };
        let arguments: [&dyn Argument; 11] = [
            &self.arena.logits.address(),
            &self.bias.address(),
            &self.arena.index.address(),
            &self.arena.weight.address(),
            &(tokens as u32),
            &(self.shape.experts as u32),
            &(self.shape.top_k as u32),
            &groups,
            &top_groups,
            &sigmoid,
            &scaling,
        ];
        let launch = Launch::linear(tokens.div_ceil(4) as u32, 128);
        self.route.kernel("routeTopK")?.launch(launch, &arguments)?;
        Ok(())
    }

    /// Learns everybody's counts and plans both directions.
    pub fn plan(
        &mut self,
        collective: &mut dyn Collective,
        input: Input,
        index: Vec<u32>,
        weight: Vec<f32>,
    ) -> Result<Flight> {
        let mut routed = index.clone();
        if self.fault == Some(Fault::LastTokenDropped) {
            routed.truncate(routed.len().saturating_sub(self.shape.top_k));
        }
        for &expert in &routed {
            anyhow::ensure!(
                (expert as usize) < self.shape.experts,
                "the router of rank {} chose expert {expert} of {}",
                self.rank,
                self.shape.experts
            );
        }
        let mine = count(&copies(&routed, self.shape.top_k), self.shape.experts);
        let counts = Counts::new(&collective.gather_counts(&mine)?, input.capacity);
        let mut send = SendPlan::new(&self.shape, self.ranks, &routed, &counts.kept[self.rank]);
        send.position.resize(index.len(), NO_ROW);
        let plan = |counts: &Counts| {
            ReceivePlan::new(&self.shape, self.layout, self.rank, self.ranks, counts)
        };
        let receive = plan(&counts);
        let believed = match (self.fault, &self.previous) {
            (Some(Fault::StaleCounts), Some(previous)) => plan(previous),
            (Some(Fault::SkippedEmptyRank), _) => plan(&without_empty(&counts)),
            _ => receive.clone(),
        };
        let arrival = self.arrival(&receive, believed.place.len());
        self.previous = Some(counts.clone());
        Ok(Flight {
            input,
            index,
            weight,
            counts,
            send,
            receive,
            believed,
            arrival,
        })
    }

    /// For each arrival, the row of the receive buffer it is taken to be in.
    fn arrival(&self, receive: &ReceivePlan, believed: usize) -> Vec<u32> {
        let rows = receive.place.len();
        if self.fault != Some(Fault::WrongRankOffset) {
            return (0..rows.min(believed) as u32).collect();
        }
        // Offsets as if the ranks came in the order 1, 2, …, 0.
        let mut offset = vec![0; self.ranks];
        let mut start = 0;
        for source in (0..self.ranks).map(|s| (s + 1) % self.ranks) {
            offset[source] = start;
            start += receive.from[source].len();
        }
        (0..self.ranks)
            .flat_map(|s| offset[s] as u32..(offset[s] + receive.from[s].len()) as u32)
            .collect()
    }
}

/// The mistake of [`Fault::SkippedEmptyRank`]: the i-th rank that sends anything is
/// given the counts of rank i.
fn without_empty(counts: &Counts) -> Counts {
    let mut kept = counts.kept.clone();
    let sends = |counts: &&mut Vec<u32>| counts.iter().any(|&c| c > 0);
    for (i, line) in kept.iter_mut().filter(sends).enumerate() {
        line.clone_from(&counts.kept[i]);
    }
    Counts { kept }
}
