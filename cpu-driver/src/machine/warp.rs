//! A warp: its frames, and where its lanes stand.
//!
//! Lanes that stand at the same operation form a *split*. A divergent branch
//! makes two splits and a *join* at the branch's immediate post-dominator;
//! lanes that arrive there wait until all lanes the join expects have arrived,
//! and go on as one split. Merging is an optimisation, never an obligation:
//! when nothing else can run, or another split polls memory, the lanes parked
//! at joins are released as splits of their own ([`Warp::release_parked`]).

use crate::program::code::{ABSENT, FunctionCode};

/// Sixteen words, the unit of frame storage.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u32; 16]);

/// One activation of a function by a group of lanes.
#[derive(Debug, Clone, Copy)]
pub struct Activation {
    pub function: u32,
    /// Byte offset of its frame in the warp's storage.
    pub frame: u32,
    pub frame_bytes: u32,
    pub return_pc: u32,
    pub parent: u32,
    /// Call site that made it, or [`ABSENT`] for the kernel itself.
    pub call: u32,
    /// Where its variables start in local memory.
    pub local_base: u32,
    /// Lanes that have not returned; an activation without any is free.
    pub lanes: u32,
}

#[derive(Debug, Clone, Copy)]
pub struct Join {
    pub pc: u32,
    pub activation: u32,
    /// Lanes that will come here; a join that expects none is free.
    pub expected: u32,
    pub arrived: u32,
    pub parent: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Ready,
    /// Waits at a barrier of the block; resumes after the operation at `pc`.
    Barrier(u32),
    /// Waits at the `.sync` operation at `pc` for other lanes of the warp.
    Rendezvous,
}

#[derive(Debug, Clone, Copy)]
pub struct Split {
    pub pc: u32,
    pub mask: u32,
    pub activation: u32,
    pub join: u32,
    pub state: State,
}

pub struct Warp {
    pub index: u32,
    /// Lanes that exist and have not exited.
    pub live: u32,
    /// Lanes that exist.
    pub lanes: u32,
    pub splits: Vec<Split>,
    pub joins: Vec<Join>,
    pub activations: Vec<Activation>,
    storage: Vec<Line>,
    /// Places of `activations` and `joins` that are known to be free.
    spare_activations: Vec<u32>,
    spare_joins: Vec<u32>,
    /// No live frame ends beyond this byte of the storage.
    top: u32,
    /// Where `top` or the number of joins is worth a search for free places.
    crowded_frames: u32,
    crowded_joins: usize,
}

/// Frames of this many bytes, and this many joins, may lie about before free
/// ones are searched for.
const FRAMES_AT_HAND: u32 = 1 << 20;
const JOINS_AT_HAND: usize = 64;

impl Warp {
    pub fn new(index: u32, lanes: u32) -> Self {
        Self {
            index,
            live: 0,
            lanes,
            splits: Vec::new(),
            joins: Vec::new(),
            activations: Vec::new(),
            storage: Vec::new(),
            spare_activations: Vec::new(),
            spare_joins: Vec::new(),
            top: 0,
            crowded_frames: FRAMES_AT_HAND,
            crowded_joins: JOINS_AT_HAND,
        }
    }

    /// Puts all lanes at the start of the kernel. The frame keeps its content:
    /// constants of the launch stay valid from block to block.
    pub fn start(&mut self, kernel: &FunctionCode) {
        self.live = self.lanes;
        self.splits.clear();
        self.joins.clear();
        self.activations.clear();
        self.spare_activations.clear();
        self.spare_joins.clear();
        self.top = kernel.frame_bytes;
        self.activations.push(Activation {
            function: 0,
            frame: 0,
            frame_bytes: kernel.frame_bytes,
            return_pc: ABSENT,
            parent: ABSENT,
            call: ABSENT,
            local_base: 0,
            lanes: self.lanes,
        });
        self.reserve(kernel.frame_bytes);
        self.splits.push(Split {
            pc: kernel.entry,
            mask: self.lanes,
            activation: 0,
            join: ABSENT,
            state: State::Ready,
        });
    }

    fn reserve(&mut self, bytes: u32) {
        let lines = bytes.div_ceil(64) as usize;
        if self.storage.len() < lines {
            self.storage.resize(lines, Line([0; 16]));
        }
    }

    /// Start of an activation's frame. Good until the storage next grows,
    /// that is until the next call.
    pub fn frame(&mut self, activation: u32) -> *mut u8 {
        let offset = self.activations[activation as usize].frame as usize;
        self.storage[offset / 64..].as_mut_ptr().cast()
    }

    /// Makes an activation with a frame that overlaps no other live one, so
    /// that rows of different widths never meet (see [`crate::program::code`]).
    ///
    /// Calls nest, so the place behind the highest frame nearly always does;
    /// only where lanes leave out of order are gaps looked for.
    pub fn activate(&mut self, mut new: Activation) -> u32 {
        new.frame = match self.top.saturating_add(new.frame_bytes) > self.crowded_frames {
            false => self.top,
            true => self.lowest_gap(new.frame_bytes),
        };
        self.top = self.top.max(new.frame + new.frame_bytes);
        self.reserve(new.frame + new.frame_bytes);
        match self.spare_activations.pop() {
            Some(free) => {
                self.activations[free as usize] = new;
                free
            }
            None => {
                self.activations.push(new);
                self.activations.len() as u32 - 1
            }
        }
    }

    /// The lowest place for a frame between the live ones. Also learns anew
    /// which activations are free and where the frames end.
    fn lowest_gap(&mut self, bytes: u32) -> u32 {
        let live = |activation: &&Activation| activation.lanes != 0;
        let mut taken: Vec<(u32, u32)> = self
            .activations
            .iter()
            .filter(live)
            .map(|a| (a.frame, a.frame + a.frame_bytes))
            .collect();
        taken.sort_unstable();
        self.top = taken.last().map_or(0, |(_, end)| *end);
        self.crowded_frames = FRAMES_AT_HAND.max(self.top.saturating_mul(2));
        self.spare_activations = (0..self.activations.len() as u32)
            .filter(|&at| self.activations[at as usize].lanes == 0)
            .collect();
        let mut at = 0;
        for (start, end) in taken {
            if start >= at + bytes {
                break;
            }
            at = at.max(end);
        }
        at
    }

    /// `lanes` have returned from an activation.
    pub fn finish(&mut self, activation: u32, lanes: u32) {
        let finished = &mut self.activations[activation as usize];
        finished.lanes &= !lanes;
        if finished.lanes == 0 {
            if finished.frame + finished.frame_bytes == self.top {
                self.top = finished.frame;
            }
            self.spare_activations.push(activation);
        }
    }

    pub fn add_join(&mut self, join: Join) -> u32 {
        if self.spare_joins.is_empty() && self.joins.len() >= self.crowded_joins {
            let free = |at: &u32| self.joins[*at as usize].expected == 0;
            self.spare_joins = (0..self.joins.len() as u32).filter(free).collect();
            let live = self.joins.len() - self.spare_joins.len();
            self.crowded_joins = JOINS_AT_HAND.max(2 * live);
        }
        match self.spare_joins.pop() {
            Some(free) => {
                self.joins[free as usize] = join;
                free
            }
            None => {
                self.joins.push(join);
                self.joins.len() as u32 - 1
            }
        }
    }

    /// Takes the first split that can run.
    pub fn take_ready(&mut self) -> Option<Split> {
        let at = self
            .splits
            .iter()
            .position(|split| split.state == State::Ready)?;
        Some(self.splits.remove(at))
    }

    pub fn has_ready(&self) -> bool {
        self.splits.iter().any(|split| split.state == State::Ready)
    }

    /// Lets lanes that wait at joins go on without the others. Returns whether
    /// there were any.
    pub fn release_parked(&mut self) -> bool {
        let mut released = false;
        for join in &mut self.joins {
            if join.arrived != 0 {
                self.splits.push(Split {
                    pc: join.pc,
                    mask: join.arrived,
                    activation: join.activation,
                    join: join.parent,
                    state: State::Ready,
                });
                join.expected &= !join.arrived;
                join.arrived = 0;
                released = true;
            }
        }
        released
    }

    pub fn has_parked(&self) -> bool {
        self.joins.iter().any(|join| join.arrived != 0)
    }

    /// Removes exited lanes everywhere; joins that waited only for them open.
    pub fn retire(&mut self, lanes: u32) {
        self.live &= !lanes;
        for activation in &mut self.activations {
            activation.lanes &= !lanes;
        }
        self.leave_joins(lanes, ABSENT);
    }

    /// Lanes that will not come to the joins from `from` up to (not including)
    /// its ancestor `until`; all joins where `from` is [`ABSENT`].
    fn leave_joins(&mut self, lanes: u32, keep: u32) {
        for at in 0..self.joins.len() {
            if at as u32 == keep || self.joins[at].expected & lanes == 0 {
                continue;
            }
            self.joins[at].expected &= !lanes;
            self.joins[at].arrived &= !lanes;
            self.open_if_complete(at);
        }
    }

    fn open_if_complete(&mut self, at: usize) {
        let join = self.joins[at];
        if join.expected == 0 || join.arrived != join.expected {
            return;
        }
        self.joins[at].expected = 0;
        self.joins[at].arrived = 0;
        self.splits.push(Split {
            pc: join.pc,
            mask: join.arrived,
            activation: join.activation,
            join: join.parent,
            state: State::Ready,
        });
    }

    /// Moves `lanes` out of every join from `from` up to its ancestor `until`.
    fn climb(&mut self, lanes: u32, mut from: u32, until: u32) {
        while from != until && from != ABSENT {
            let join = &mut self.joins[from as usize];
            let parent = join.parent;
            join.expected &= !lanes;
            self.open_if_complete(from as usize);
            from = parent;
        }
    }

    fn ancestors(&self, mut join: u32) -> Vec<u32> {
        let mut chain = vec![join];
        while join != ABSENT {
            join = self.joins[join as usize].parent;
            chain.push(join);
        }
        chain
    }

    /// Merges two splits that stand at the same operation of the same
    /// activation; both leave the joins that only one of them is headed for.
    pub fn merged(&mut self, a: Split, b: Split) -> Split {
        let chain = self.ancestors(a.join);
        let mut common = b.join;
        while !chain.contains(&common) {
            common = self.joins[common as usize].parent;
        }
        self.climb(a.mask, a.join, common);
        self.climb(b.mask, b.join, common);
        Split {
            mask: a.mask | b.mask,
            join: common,
            ..a
        }
    }
}
