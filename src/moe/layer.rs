//! The layer on a device: one rank's part of an iteration, step by step.
//!
//! route → gather counts → pack → all-to-all → unpack into the layout → GEMM →
//! SwiGLU and quantise → GEMM → pack → all-to-all back → combine. Planning is on
//! the host from the downloaded choice; rows, scales and sums never leave the
//! device. Buffers are reused from iteration to iteration.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};

use super::arena::Slot;
use super::collective::{Collective, Transfer};
use super::fault::Fault;
use super::generate::{self, Matrix, Tokens};
use super::plan::{Copy, Counts, NO_ROW, ReceivePlan, SendPlan, copies, count};
use super::shape::{GROUP, Layout, Router, Shape};
use super::steer::Steer;
use super::weights::Weights;
use crate::device::{Argument, Buffer, Device, Launch, Module};
use crate::gemm::problem::{Form, Problem};
use crate::gemm::simt::Simt;
use crate::gemm::subject::{DeviceOperands, Group, Subject};
use crate::kernels::{MOE_ROUTE, MOE_ROWS, MOE_SWIGLU};
use crate::lowp::OutputType;

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

    /// Packs, transfers and unpacks.
    pub fn dispatch(&mut self, collective: &mut dyn Collective, flight: &Flight) -> Result<()> {
        self.pack(flight)?;
        self.reserve_rows(flight)?;
        self.device.synchronize()?;
        collective.start(&mut self.transfers(flight)?)?;
        if self.fault == Some(Fault::MissingSynchronisation) {
            self.unpack(flight)?;
            self.device.synchronize()?;
            return collective.finish(&mut self.transfers(flight)?);
        }
        collective.finish(&mut self.transfers(flight)?)?;
        self.unpack(flight)
    }

    /// The transfers of a dispatch alone, with `between` while they are under way.
    pub fn transfer(
        &mut self,
        collective: &mut dyn Collective,
        flight: &Flight,
        between: &mut dyn FnMut(&mut Layer) -> Result<()>,
    ) -> Result<()> {
        collective.start(&mut self.transfers(flight)?)?;
        between(self)?;
        collective.finish(&mut self.transfers(flight)?)
    }

    /// Rows into sending order.
    pub fn pack(&mut self, flight: &Flight) -> Result<()> {
        let rows = flight.send.copies.len();
        let (hidden, scales) = (self.shape.hidden, 4 * self.shape.hidden_scales());
        let (device, arena) = (&self.device, &mut self.arena);
        arena.send_codes.reserve(device, rows * hidden)?;
        arena.send_scales.reserve(device, rows * scales)?;
        let meta: Vec<u8> = flight
            .send
            .copies
            .iter()
            .flat_map(|copy| self::meta(copy, flight.weight[slot(copy, self.shape.top_k)]))
            .collect();
        arena.send_meta.fill(device, &meta)?;
        let from: Vec<u32> = flight.send.copies.iter().map(|copy| copy.token).collect();
        let to: Vec<u32> = (0..rows as u32).collect();
        let (codes, scaled) = (self.arena.codes.address(), self.arena.scales.address());
        let (send, send_scales) = (
            self.arena.send_codes.address(),
            self.arena.send_scales.address(),
        );
        self.map(&from, &to)?;
        self.move_rows(codes, send, rows, hidden)?;
        self.move_rows(scaled, send_scales, rows, scales)
    }

    fn reserve_rows(&mut self, flight: &Flight) -> Result<()> {
        let (arrived, rows) = (flight.receive.place.len(), flight.believed.rows());
        let (hidden, scales) = (self.shape.hidden, 4 * self.shape.hidden_scales());
        let (device, arena) = (&self.device, &mut self.arena);
        // Maps of the unpacking too: growing a buffer later would free the old one,
        // which waits for the transfers, and so hide a missing wait.
        arena.from.reserve(device, arrived + rows)?;
        arena.to.reserve(device, arrived + rows)?;
        arena.got_codes.reserve(device, arrived * hidden)?;
        arena.got_scales.reserve(device, arrived * scales)?;
        arena.got_meta.reserve(device, arrived * META)?;
        arena.row_codes.reserve(device, rows * hidden)?;
        arena.row_scales.reserve(device, rows * scales)?;
        arena.row_meta.reserve(device, rows * META)?;
        Ok(())
    }

    fn transfers(&mut self, flight: &Flight) -> Result<[Transfer<'_>; 3]> {
        let (hidden, scales) = (self.shape.hidden, 4 * self.shape.hidden_scales());
        let bytes = |ranges: &[std::ops::Range<usize>], size: usize| {
            let scaled = |r: &std::ops::Range<usize>| r.start * size..r.end * size;
            ranges.iter().map(scaled).collect::<Vec<_>>()
        };
        let (to, from) = (&flight.send.to, &flight.receive.from);
        let arena = &mut self.arena;
        Ok([
            Transfer {
                send: arena.send_codes.get()?,
                to: bytes(to, hidden),
                receive: arena.got_codes.get()?,
                from: bytes(from, hidden),
            },
            Transfer {
                send: arena.send_scales.get()?,
                to: bytes(to, scales),
                receive: arena.got_scales.get()?,
                from: bytes(from, scales),
            },
            Transfer {
                send: arena.send_meta.get()?,
                to: bytes(to, META),
                receive: arena.got_meta.get()?,
                from: bytes(from, META),
            },
        ])
    }

    /// Received rows to the rows of their experts; padding is zeroed.
    pub fn unpack(&mut self, flight: &Flight) -> Result<()> {
        let (hidden, scales) = (self.shape.hidden, 4 * self.shape.hidden_scales());
        let mut from = flight.arrival.clone();
        let mut to = flight.believed.place[..from.len()].to_vec();
        if self.layout == Layout::Contiguous {
            for row in flight.believed.padding() {
                from.push(NO_ROW);
                to.push(row as u32);
            }
        }
        let rows = from.len();
        self.map(&from, &to)?;
        let (a, b) = (
            self.arena.got_codes.address(),
            self.arena.row_codes.address(),
        );
        self.move_rows(a, b, rows, hidden)?;
        let (a, b) = (self.arena.got_meta.address(), self.arena.row_meta.address());
        self.move_rows(a, b, rows, META)?;
        if self.fault == Some(Fault::ScalesNotMoved) {
            let identity: Vec<u32> = (0..flight.arrival.len() as u32).collect();
            to[..identity.len()].copy_from_slice(&identity);
            from.truncate(identity.len());
            to.truncate(identity.len());
            self.device.synchronize()?;
            self.map(&from, &to)?;
        }
        let (a, b) = (
            self.arena.got_scales.address(),
            self.arena.row_scales.address(),
        );
        self.move_rows(a, b, from.len(), scales)
    }

    /// Copies rows by an identity map: the memory ceiling of [`super::bench`].
    pub fn copy_rows(
        &self,
        from: &Buffer<u8>,
        to: &Buffer<u8>,
        map: &Buffer<u32>,
        row: usize,
    ) -> Result<()> {
        let arguments: [&dyn Argument; 5] = [from, to, map, map, &(row as u32)];
        let launch = Launch::linear(u32::try_from(map.len())?, 256);
        self.rows.kernel("moveRows")?.launch(launch, &arguments)?;
        Ok(())
    }

    fn map(&mut self, from: &[u32], to: &[u32]) -> Result<()> {
        self.arena.from.fill(&self.device, from)?;
        self.arena.to.fill(&self.device, to)
    }

    fn move_rows(&self, input: u64, output: u64, rows: usize, bytes: usize) -> Result<()> {
        if rows == 0 {
            return Ok(());
        }
        let arguments: [&dyn Argument; 5] = [
            &input,
            &output,
            &self.arena.from.address(),
            &self.arena.to.address(),
            &(bytes as u32),
        ];
        let threads = if bytes >= 2048 { 128 } else { 32 };
        let launch = Launch::linear(u32::try_from(rows).context("rows of a launch")?, threads);
        self.rows.kernel("moveRows")?.launch(launch, &arguments)?;
        Ok(())
    }

    fn table(&self, flight: &Flight, matrix: Matrix) -> Vec<Group> {
        let (n, depth) = matrix.size(&self.shape);
        let experts = flight.believed.segments.len();
        let segments = flight.believed.segments.iter().enumerate();
        segments
            .map(|(local, segment)| {
                let weights = match self.fault {
                    Some(Fault::ExpertsPermuted) => (local + 1) % experts,
                    _ => local,
                };
                Group {
                    a: (segment.start * depth) as u64,
                    b: (weights * n * depth) as u64,
                    a_scale: (segment.start * depth.div_ceil(GROUP)) as u64,
                    b_scale: (weights * matrix.scale_count(&self.shape)) as u64,
                    c: (segment.start * n) as u64,
                    rows: match self.layout {
                        Layout::Contiguous => segment.allocated as u64,
                        Layout::Masked => segment.count as u64,
                    },
                    depth: depth as u64,
                    allocated: segment.allocated as u64,
                }
            })
            .collect()
    }

    /// The GEMM that `matrix` is the right operand of.
    pub fn problem(&self, flight: &Flight, matrix: Matrix) -> Problem {
        let (n, depth) = matrix.size(&self.shape);
        let output = match matrix {
            Matrix::GateUp => OutputType::F32,
            Matrix::Down => OutputType::Bf16,
        };
        let segments = &flight.believed.segments;
        let form = match self.layout {
            Layout::Contiguous => Form::Contiguous {
                rows: segments.iter().map(|s| s.allocated).collect(),
            },
            Layout::Masked => Form::Masked {
                max_rows: segments.first().map_or(0, |s| s.allocated),
                rows: segments.iter().map(|s| s.count).collect(),
            },
        };
        Problem::dense(1, n, depth, output).with_form(form)
    }

    fn multiply(&self, flight: &Flight, matrix: Matrix) -> Result<()> {
        let (a, a_scale, c, table) = match matrix {
            Matrix::GateUp => (
                self.arena.row_codes.address(),
                self.arena.row_scales.address(),
                self.arena.first.address(),
                self.arena.first_table.address(),
            ),
            Matrix::Down => (
                self.arena.middle_codes.address(),
                self.arena.middle_scales.address(),
                self.arena.second.address(),
                self.arena.second_table.address(),
            ),
        };
        let (b, b_scale) = self.weights.addresses(matrix);
        let operands = DeviceOperands {
            a,
            b,
            a_scale,
            b_scale,
            c,
            table,
            groups: self.table(flight, matrix),
        };
        self.gemm
            .launch(&self.device, &self.problem(flight, matrix), &operands)
    }

    /// Gate and up of every row.
    pub fn first_gemm(&mut self, flight: &Flight) -> Result<()> {
        let rows = flight.believed.rows();
        let words: Vec<u64> = self
            .table(flight, Matrix::GateUp)
            .iter()
            .flat_map(Group::words)
            .collect();
        self.arena.first_table.fill(&self.device, &words)?;
        self.arena
            .first
            .reserve(&self.device, rows * 2 * self.shape.intermediate)?;
        if self.poison {
            self.arena.first.poison()?;
        }
        match rows {
            0 => Ok(()),
            _ => self.multiply(flight, Matrix::GateUp),
        }
    }

    /// SwiGLU and quantisation of every row.
    pub fn activate(&mut self, flight: &Flight) -> Result<()> {
        let (rows, inter) = (flight.believed.rows(), self.shape.intermediate);
        let scales = rows * self.shape.intermediate_scales();
        let (device, arena) = (&self.device, &mut self.arena);
        arena.middle_codes.reserve(device, rows * inter)?;
        arena.middle_scales.reserve(device, scales)?;
        if self.poison {
            arena.middle_codes.poison()?;
            arena.middle_scales.poison()?;
        }
        let segments = &flight.believed.segments;
        let most = segments.iter().map(|s| s.allocated).max().unwrap_or(0);
        if most == 0 {
            return Ok(());
        }
        let launch = Launch {
            grid: (
                inter.div_ceil(GROUP) as u32,
                most.div_ceil(8) as u32,
                segments.len() as u32,
            ),
            block: (256, 1, 1),
            shared_bytes: 0,
        };
        let arguments: [&dyn Argument; 5] = [
            &self.arena.first.address(),
            &self.arena.middle_codes.address(),
            &self.arena.middle_scales.address(),
            &self.arena.first_table.address(),
            &(inter as u32),
        ];
        self.swiglu
            .kernel("swigluQuantise")?
            .launch(launch, &arguments)?;
        Ok(())
    }

    /// Back to hidden columns.
    pub fn second_gemm(&mut self, flight: &Flight) -> Result<()> {
        let rows = flight.believed.rows();
        let words: Vec<u64> = self
            .table(flight, Matrix::Down)
            .iter()
            .flat_map(Group::words)
            .collect();
        self.arena.second_table.fill(&self.device, &words)?;
        self.arena
            .second
            .reserve(&self.device, rows * 2 * self.shape.hidden)?;
        if self.poison {
            self.arena.second.poison()?;
        }
        match rows {
            0 => Ok(()),
            _ => self.multiply(flight, Matrix::Down),
        }
    }

    /// Rows back to the ranks that own their tokens.
    pub fn give_back(&mut self, collective: &mut dyn Collective, flight: &Flight) -> Result<()> {
        let row = 2 * self.shape.hidden;
        let (device, arena) = (&self.device, &mut self.arena);
        arena
            .back_send
            .reserve(device, flight.receive.place.len() * row)?;
        arena
            .back_got
            .reserve(device, flight.send.copies.len() * row)?;
        if self.poison {
            arena.back_send.poison()?;
            arena.back_got.poison()?;
        }
        let (a, b) = (arena.second.address(), arena.back_send.address());
        let to = flight.arrival.clone();
        let from = flight.believed.place[..to.len()].to_vec();
        self.map(&from, &to)?;
        self.move_rows(a, b, to.len(), row)?;
        self.device.synchronize()?;
        let bytes = |ranges: &[std::ops::Range<usize>]| {
            let scaled = |r: &std::ops::Range<usize>| r.start * row..r.end * row;
            ranges.iter().map(scaled).collect::<Vec<_>>()
        };
        let mut transfers = [Transfer {
            send: self.arena.back_send.get()?,
            to: bytes(&flight.receive.from),
            receive: self.arena.back_got.get()?,
            from: bytes(&flight.send.to),
        }];
        collective.start(&mut transfers)?;
        collective.finish(&mut transfers)
    }

    /// The weighted sum of each token's copies, in slot order.
    pub fn combine(&mut self, flight: &Flight) -> Result<()> {
        let tokens = flight.input.count;
        self.arena
            .position
            .fill(&self.device, &flight.send.position)?;
        let out = self
            .arena
            .out
            .reserve(&self.device, tokens * self.shape.hidden)?;
        if self.poison {
            out.poison()?;
        }
        let mut weight = flight.weight.clone();
        if self.fault == Some(Fault::CombineWeightsOff) && !weight.is_empty() {
            weight.rotate_left(1);
        }
        self.arena.combine_weight.fill(&self.device, &weight)?;
        if tokens == 0 {
            return Ok(());
        }
        let arguments: [&dyn Argument; 6] = [
            &self.arena.back_got.address(),
            &self.arena.combine_weight.address(),
            &self.arena.position.address(),
            &self.arena.out.address(),
            &(self.shape.top_k as u32),
            &(self.shape.hidden as u32),
        ];
        let threads = if self.shape.hidden >= 1024 { 256 } else { 64 };
        self.rows
            .kernel("combineRows")?
            .launch(Launch::linear(tokens as u32, threads), &arguments)?;
        Ok(())
    }
}

/// The place of a copy in the routing tables.
pub fn slot(copy: &Copy, top_k: usize) -> usize {
    copy.token as usize * top_k + copy.slot as usize
}

/// What travels with a row.
pub fn meta(copy: &Copy, weight: f32) -> [u8; META] {
    let mut bytes = [0; META];
    let words = [copy.token, copy.slot, copy.expert, weight.to_bits()];
    for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    bytes
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
