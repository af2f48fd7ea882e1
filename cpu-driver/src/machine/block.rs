//! A block: its shared and local memory, its barriers, and the schedule of its
//! warps.
//!
//! Warps run in order, each until it waits, ends or has polled for a while.
//! Barriers are looked at after every round. A round in which nothing ran and
//! no barrier opened is a deadlock.

use super::context::{Context, Grid, Stop};
use super::fill;
use super::launch::{Fault, Stats};
use super::listen::Listener;
use super::warp::{State, Warp};
use crate::program::code::Op;

/// Number of named barriers of a block.
pub const BARRIERS: usize = 16;

/// What the operations of a block share.
pub struct Shared {
    /// Linear index of the block in the grid.
    pub index: u64,
    pub coordinates: [u32; 3],
    memory: Vec<u128>,
    local: Vec<u128>,
    /// Bytes of local memory a thread has, a multiple of 16.
    local_stride: u64,
    pub barriers: Vec<Barrier>,
}

#[derive(Debug, Clone, Default)]
pub struct Barrier {
    /// Lanes that have arrived, a mask a warp.
    pub arrived: Vec<u32>,
    /// Threads to wait for; all of the block's where not given.
    pub count: Option<u32>,
    /// Arrived threads with a true predicate (`bar.red`).
    pub ones: u32,
    pub threads: u32,
}

impl Shared {
    fn new(grid: &Grid<'_>, threads: u32, warps: usize) -> Self {
        // Hardware hands out shared memory in units; what the block did not
        // ask for is silent when nobody checks.
        let bytes = grid.shared_bytes.next_multiple_of(256);
        let stride = u64::from(grid.local_bytes.next_multiple_of(16));
        Self {
            index: 0,
            coordinates: [0; 3],
            memory: vec![0; bytes as usize / 16],
            local: vec![0; (stride * u64::from(threads) / 16) as usize],
            local_stride: stride,
            barriers: vec![
                Barrier {
                    arrived: vec![0; warps],
                    ..Barrier::default()
                };
                BARRIERS
            ],
        }
    }

    /// Host address of shared memory `low..end`: inside what was declared, or,
    /// unchecked, inside the unit in which it is handed out.
    #[inline(always)]
    pub fn shared_at<const STRICT: bool>(&self, declared: u32, low: u64, end: u64) -> Option<u64> {
        let limit = if STRICT {
            u64::from(declared)
        } else {
            self.memory.len() as u64 * 16
        };
        (low < end && end <= limit).then(|| self.memory.as_ptr().expose_provenance() as u64 + low)
    }

    /// Host address of `low..end` in a thread's local memory.
    #[inline(always)]
    pub fn local_at(&self, thread: u32, low: u64, end: u64) -> Option<u64> {
        (low < end && end <= self.local_stride).then(|| {
            self.local.as_ptr().expose_provenance() as u64
                + u64::from(thread) * self.local_stride
                + low
        })
    }

    /// Copies bytes inside a thread's local memory.
    pub fn copy_local(&mut self, thread: u32, from: u64, to: u64, bytes: u64) {
        let (Some(source), Some(target)) = (
            self.local_at(thread, from, from + bytes),
            self.local_at(thread, to, to + bytes),
        ) else {
            return;
        };
        // SAFETY: both ranges were found inside `self.local`, which `&mut self`
        // keeps to us.
        unsafe {
            std::ptr::copy(
                std::ptr::with_exposed_provenance::<u8>(source as usize),
                std::ptr::with_exposed_provenance_mut::<u8>(target as usize),
                bytes as usize,
            );
        }
    }

    pub fn local_stride(&self) -> u64 {
        self.local_stride
    }
}

pub struct Block {
    pub shared: Shared,
    warps: Vec<Warp>,
    started: bool,
}

/// How a turn of a block ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    Done,
    /// Every warp that can run polls: other blocks should get a turn.
    Polling,
}

/// Rounds of pure polling after which other blocks run.
const POLLING_ROUNDS: u32 = 64;

impl Block {
    pub fn new(grid: &Grid<'_>) -> Self {
        let threads = grid.block.iter().product::<u32>();
        let warps: Vec<Warp> = (0..threads.div_ceil(32))
            .map(|index| {
                let lanes = (threads - index * 32).min(32);
                Warp::new(index, u32::MAX >> (32 - lanes))
            })
            .collect();
        Self {
            shared: Shared::new(grid, threads, warps.len()),
            warps,
            started: false,
        }
    }

    /// Puts the block at the start of the kernel as block `index` of the grid.
    pub fn start(&mut self, grid: &Grid<'_>, index: u64) {
        let [gx, gy, _] = grid.grid.map(u64::from);
        self.shared.index = index;
        self.shared.coordinates = [
            (index % gx) as u32,
            (index / gx % gy) as u32,
            (index / (gx * gy)) as u32,
        ];
        for barrier in &mut self.shared.barriers {
            barrier.reset();
        }
        let kernel = &grid.code.functions[0];
        for warp in &mut self.warps {
            warp.start(kernel);
            let all = !self.started;
            fill::fill_frame(warp, 0, &self.shared, grid, all);
        }
        self.started = true;
    }

    /// Runs until the block is done or only polls.
    pub fn run(
        &mut self,
        grid: &Grid<'_>,
        listener: &mut dyn Listener,
        stats: &mut Stats,
        budget: u64,
    ) -> Result<Turn, Fault> {
        let mut polling = 0;
        loop {
            let mut ran = false;
            let mut worked = false;
            for warp in &mut self.warps {
                if warp.has_ready() || warp.has_parked() {
                    ran = true;
                    worked |= !run_warp(warp, &mut self.shared, grid, listener, stats, budget)?;
                }
            }
            worked |= self.open_barriers(grid, listener);
            if self.warps.iter().all(|warp| warp.live == 0) {
                return Ok(Turn::Done);
            }
            if !ran && !worked {
                return Err(self.deadlock(grid));
            }
            polling = if worked { 0 } else { polling + 1 };
            if polling >= POLLING_ROUNDS {
                return Ok(Turn::Polling);
            }
        }
    }

    /// Opens every barrier whose threads have all arrived.
    fn open_barriers(&mut self, grid: &Grid<'_>, listener: &mut dyn Listener) -> bool {
        let mut opened = false;
        for id in 0..BARRIERS {
            if !self.shared.barriers[id].is_complete(&self.warps) {
                continue;
            }
            opened = true;
            let barrier = self.shared.barriers[id].clone();
            self.shared.barriers[id].reset();
            listener.barrier(self.shared.index, id as u32);
            for warp in &mut self.warps {
                wake(warp, id as u32, &barrier, grid);
            }
        }
        opened
    }

    fn deadlock(&self, grid: &Grid<'_>) -> Fault {
        let mut places: Vec<(String, u32)> = Vec::new();
        for split in self.warps.iter().flat_map(|warp| &warp.splits) {
            let site = (grid.sites)(split.pc);
            let place = site.frames.first().map_or_else(
                || format!("{} (PTX line {})", site.instruction, site.ptx_line),
                |frame| format!("{} ({}:{})", site.instruction, frame.file, frame.line),
            );
            match places.iter_mut().find(|(known, _)| *known == place) {
                Some((_, threads)) => *threads += split.mask.count_ones(),
                None => places.push((place, split.mask.count_ones())),
            }
        }
        let waiting: Vec<String> = places
            .iter()
            .map(|(place, threads)| format!("{threads} threads wait at {place}"))
            .collect();
        let [x, y, z] = self.shared.coordinates;
        Fault::Deadlock {
            message: format!(
                "{}: no thread of block ({x},{y},{z}) can go on: {}",
                grid.kernel,
                waiting.join(", ")
            ),
        }
    }
}

impl Barrier {
    fn reset(&mut self) {
        self.arrived.fill(0);
        self.count = None;
        self.ones = 0;
        self.threads = 0;
    }

    fn is_complete(&self, warps: &[Warp]) -> bool {
        if self.arrived.iter().all(|mask| *mask == 0) {
            return false;
        }
        match self.count {
            None => warps
                .iter()
                .zip(&self.arrived)
                .all(|(warp, arrived)| warp.live & !arrived == 0),
            Some(count) => {
                let here: u32 = warps
                    .iter()
                    .zip(&self.arrived)
                    .map(|(warp, arrived)| {
                        // A whole warp counts as 32 threads, also a short one.
                        if *arrived != 0 && warp.live & !arrived == 0 {
                            32
                        } else {
                            arrived.count_ones()
                        }
                    })
                    .sum();
                here >= count
            }
        }
    }
}

/// What a barrier operation does; the value of its `imm`.
pub mod barrier_kind {
    pub const SYNC: u64 = 0;
    pub const ARRIVE: u64 = 1;
    pub const COUNT: u64 = 2;
    pub const AND: u64 = 3;
    pub const OR: u64 = 4;
}

/// Lets the warp's splits that wait at barrier `id` go on, with their results.
fn wake(warp: &mut Warp, id: u32, barrier: &Barrier, grid: &Grid<'_>) {
    for at in 0..warp.splits.len() {
        let split = warp.splits[at];
        if split.state != State::Barrier(id) {
            continue;
        }
        let op: &Op = &grid.ops[split.pc as usize];
        fill::barrier_result(warp, &split, op, barrier.ones, barrier.threads);
        warp.splits[at].pc += 1;
        warp.splits[at].state = State::Ready;
    }
}

/// Runs a warp until it waits or ends (`false`), or polls (`true`).
fn run_warp(
    warp: &mut Warp,
    shared: &mut Shared,
    grid: &Grid<'_>,
    listener: &mut dyn Listener,
    stats: &mut Stats,
    budget: u64,
) -> Result<bool, Fault> {
    let mut cx = Context::new(warp, shared, grid, listener);
    cx.warp_instructions = stats.warp_instructions;
    cx.thread_instructions = stats.thread_instructions;
    let outcome = turn(&mut cx, stats, budget);
    stats.warp_instructions = cx.warp_instructions;
    stats.thread_instructions = cx.thread_instructions;
    outcome
}

fn turn(cx: &mut Context<'_>, stats: &mut Stats, budget: u64) -> Result<bool, Fault> {
    // Every split gets at most a few turns here before other warps run.
    let mut yields = 0;
    loop {
        let Some(split) = cx.warp.take_ready() else {
            if cx.warp.release_parked() {
                continue;
            }
            return Ok(false);
        };
        cx.enter(split);
        cx.execute();
        match std::mem::take(&mut cx.stop) {
            Stop::None | Stop::Gone => {}
            // A barrier opens only between rounds.
            Stop::Held => return Ok(true),
            Stop::Fault(fault) => return Err(*fault),
            Stop::WarpKilled => {
                stats.killed_warps += 1;
                let live = cx.warp.live;
                cx.warp.retire(live);
                cx.warp.splits.clear();
                return Ok(false);
            }
            Stop::Yield => {
                let split = cx.leave(cx.pc, State::Ready);
                cx.warp.splits.push(split);
                if cx.warp_instructions > budget {
                    return Err(Fault::Budget {
                        executed: cx.warp_instructions,
                        site: (cx.grid.sites)(cx.pc),
                    });
                }
                yields += 1;
                if cx.polled {
                    // Somebody that waits at a join may hold what it waits for.
                    cx.warp.release_parked();
                }
                if yields > cx.warp.splits.len() {
                    return Ok(cx.polled);
                }
            }
        }
    }
}
