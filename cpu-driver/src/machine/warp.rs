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
}

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
        }
    }

    /// Puts all lanes at the start of the kernel. The frame keeps its content:
    /// constants of the launch stay valid from block to block.
    pub fn start(&mut self, kernel: &FunctionCode) {
        self.live = self.lanes;
        self.splits.clear();
        self.joins.clear();
        self.activations.clear();
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
    pub fn activate(&mut self, mut new: Activation) -> u32 {
        let mut taken: Vec<(u32, u32)> = self
            .activations
            .iter()
            .filter(|a| a.lanes != 0)
            .map(|a| (a.frame, a.frame + a.frame_bytes))
            .collect();
        taken.sort_unstable();
        let mut at = 0;
        for (start, end) in taken {
            if start >= at + new.frame_bytes {
                break;
            }
            at = at.max(end);
        }
        new.frame = at;
        self.reserve(at + new.frame_bytes);
        match self.activations.iter().position(|a| a.lanes == 0) {
            Some(free) => {
                self.activations[free] = new;
                free as u32
            }
            None => {
                self.activations.push(new);
                self.activations.len() as u32 - 1
            }
        }
    }

    pub fn add_join(&mut self, join: Join) -> u32 {
        match self.joins.iter().position(|j| j.expected == 0) {
            Some(free) => {
                self.joins[free] = join;
                free as u32
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
