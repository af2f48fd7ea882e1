//! What an operation can reach while it runs: the registers of its warp, the
//! block's memory, the launch.

use super::block::Shared;
use super::lanes::LANES;
use super::launch::Fault;
use super::listen::Listener;
use super::memory::View;
use super::warp::{Join, Split, State, Warp};
use crate::program::code::{ABSENT, Code, Op, Step};

/// Why a split stopped.
#[derive(Debug, Default)]
pub enum Stop {
    #[default]
    None,
    /// Its lanes wait at a join, have exited or wait somewhere.
    Gone,
    /// It polls or has had its share: let others run.
    Yield,
    /// It cannot go on in this turn; others of the block may change that.
    Held,
    /// The warp ends (a violation, in kernel mode).
    WarpKilled,
    Fault(Box<Fault>),
}

/// What does not change during a launch.
pub struct Grid<'l> {
    pub code: &'l Code,
    pub ops: &'l [Op],
    pub kernel: &'l str,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub params: &'l [u8],
    pub memory: &'l super::memory::Memory,
    pub view: View<'l>,
    pub context: u64,
    pub dynamic_shared: u32,
    /// Address of the workspace of a cooperative launch, otherwise 0.
    pub workspace: u64,
    /// Bytes of shared memory that the kernel and the launch declare.
    pub shared_bytes: u32,
    /// Bytes of local memory a thread has.
    pub local_bytes: u32,
    /// Sites for faults and violations.
    pub sites: &'l dyn Fn(u32) -> super::observe::Site,
}

pub struct Context<'l> {
    frame: *mut u8,
    /// Lanes that the current operation acts on.
    pub active: u32,
    /// Lanes of the current split.
    pub mask: u32,
    /// Index of the current operation; after [`Step::Jump`], of the next one.
    pub pc: u32,
    pub activation: u32,
    pub join: u32,
    /// Number of lanes in `mask`.
    pub width: u64,
    pub warp_instructions: u64,
    pub thread_instructions: u64,
    /// Backward jumps since the split was last scheduled.
    pub laps: u32,
    /// The split touched memory in a way that spinning code does.
    pub polled: bool,
    /// A `.sync` operation runs for lanes that have all arrived.
    pub gathered: bool,
    pub stop: Stop,
    pub warp: &'l mut Warp,
    pub shared: &'l mut Shared,
    pub grid: &'l Grid<'l>,
    pub listener: &'l mut dyn Listener,
}

/// Backward jumps after which other splits and warps get their turn.
const LAPS: u32 = 1 << 14;
/// The same for a split that polls.
const POLLING_LAPS: u32 = 32;

impl<'l> Context<'l> {
    pub fn new(
        warp: &'l mut Warp,
        shared: &'l mut Shared,
        grid: &'l Grid<'l>,
        listener: &'l mut dyn Listener,
    ) -> Self {
        Self {
            frame: std::ptr::null_mut(),
            active: 0,
            mask: 0,
            pc: 0,
            activation: 0,
            join: ABSENT,
            width: 0,
            warp_instructions: 0,
            thread_instructions: 0,
            laps: 0,
            polled: false,
            gathered: false,
            stop: Stop::None,
            warp,
            shared,
            grid,
            listener,
        }
    }

    /// Makes `split` the current one.
    pub fn enter(&mut self, split: Split) {
        self.pc = split.pc;
        self.join = split.join;
        self.set_mask(split.mask);
        self.set_activation(split.activation);
        self.laps = 0;
        self.polled = false;
    }

    /// The current split, to be put back.
    pub fn leave(&self, pc: u32, state: State) -> Split {
        Split {
            pc,
            mask: self.mask,
            activation: self.activation,
            join: self.join,
            state,
        }
    }

    pub fn set_mask(&mut self, mask: u32) {
        self.mask = mask;
        self.active = mask;
        self.width = u64::from(mask.count_ones());
    }

    pub fn set_activation(&mut self, activation: u32) {
        self.activation = activation;
        self.frame = self.warp.frame(activation);
    }

    /// Runs the current split until it stops.
    pub fn execute(&mut self) {
        let ops = self.grid.ops;
        loop {
            let op = &ops[self.pc as usize];
            self.warp_instructions += 1;
            self.thread_instructions += self.width;
            // SAFETY: the operation was lowered together with the layout of
            // the frame that `set_activation` selected for it.
            match unsafe { (op.exec)(self, op) } {
                Step::Next => self.pc += 1,
                Step::Jump => {}
                Step::Stop => return,
            }
        }
    }

    /// Ends the launch.
    #[cold]
    pub fn fault(&mut self, fault: Fault) -> Step {
        self.stop = Stop::Fault(Box::new(fault));
        Step::Stop
    }

    pub fn stop(&mut self, stop: Stop) -> Step {
        self.stop = stop;
        Step::Stop
    }

    // Registers ------------------------------------------------------------

    pub fn frame(&self) -> *mut u8 {
        self.frame
    }

    pub fn words(&self, offset: u32) -> &[u32; LANES] {
        // SAFETY: `offset` is a 32-bit row of the current frame.
        unsafe { &*self.frame.add(offset as usize).cast() }
    }

    pub fn words_mut(&mut self, offset: u32) -> &mut [u32; LANES] {
        // SAFETY: as above; `&mut self` keeps other views away.
        unsafe { &mut *self.frame.add(offset as usize).cast() }
    }

    pub fn longs(&self, offset: u32) -> &[u64; LANES] {
        // SAFETY: `offset` is a 64-bit row of the current frame.
        unsafe { &*self.frame.add(offset as usize).cast() }
    }

    pub fn longs_mut(&mut self, offset: u32) -> &mut [u64; LANES] {
        // SAFETY: as above.
        unsafe { &mut *self.frame.add(offset as usize).cast() }
    }

    pub fn quads(&self, offset: u32) -> &[u128; LANES] {
        // SAFETY: `offset` is a 128-bit row of the current frame.
        unsafe { &*self.frame.add(offset as usize).cast() }
    }

    pub fn quads_mut(&mut self, offset: u32) -> &mut [u128; LANES] {
        // SAFETY: as above.
        unsafe { &mut *self.frame.add(offset as usize).cast() }
    }

    pub fn predicate(&self, offset: u32) -> u32 {
        // SAFETY: `offset` is a predicate of the current frame.
        unsafe { *self.frame.add(offset as usize).cast() }
    }

    /// Writes the active lanes of a predicate; nothing where the result is
    /// thrown away.
    pub fn set_predicate(&mut self, offset: u32, value: u32) {
        if offset == ABSENT {
            return;
        }
        let active = self.active;
        // SAFETY: as above.
        let mask: &mut u32 = unsafe { &mut *self.frame.add(offset as usize).cast() };
        *mask = (*mask & !active) | (value & active);
    }

    /// Writes the active lanes of a 32-bit row.
    pub fn set_words(&mut self, offset: u32, value: &[u32; LANES]) {
        if offset == ABSENT {
            return;
        }
        let active = self.active;
        let row = self.words_mut(offset);
        for lane in 0..LANES {
            row[lane] = if active >> lane & 1 != 0 {
                value[lane]
            } else {
                row[lane]
            };
        }
    }

    /// Writes the active lanes of a 64-bit row.
    pub fn set_longs(&mut self, offset: u32, value: &[u64; LANES]) {
        if offset == ABSENT {
            return;
        }
        let active = self.active;
        let row = self.longs_mut(offset);
        for lane in 0..LANES {
            row[lane] = if active >> lane & 1 != 0 {
                value[lane]
            } else {
                row[lane]
            };
        }
    }

    /// Operand list of an operation, from `aux` on.
    pub fn list(&self, op: &Op, count: usize) -> &'l [u32] {
        &self.grid.code.lists[op.aux as usize..op.aux as usize + count]
    }

    // Control --------------------------------------------------------------

    /// Jumps back: counts a lap and lets others run now and then.
    pub fn jump_back(&mut self, target: u32) -> Step {
        self.pc = target;
        self.laps += 1;
        let limit = if self.polled { POLLING_LAPS } else { LAPS };
        if self.laps >= limit {
            return self.stop(Stop::Yield);
        }
        Step::Jump
    }

    /// Divides the current split among several targets; the last one goes on
    /// at once. `join` is the post-dominator of the branch, or [`ABSENT`].
    pub fn diverge(&mut self, parts: &[(u32, u32)], join: u32) -> Step {
        let joined = if join == ABSENT {
            self.join
        } else {
            self.join_at(join)
        };
        let mut current = None;
        for (pc, mask) in parts {
            if *pc == join {
                self.warp.joins[joined as usize].arrived |= mask;
                continue;
            }
            if let Some((pc, mask)) = current.replace((*pc, *mask)) {
                self.warp.splits.push(Split {
                    pc,
                    mask,
                    activation: self.activation,
                    join: joined,
                    state: State::Ready,
                });
            }
        }
        self.join = joined;
        // Two different targets: at most one of them is the join.
        let (pc, mask) = current.unwrap_or((self.pc, self.mask));
        self.set_mask(mask);
        if pc <= self.pc {
            return self.jump_back(pc);
        }
        self.pc = pc;
        Step::Jump
    }

    fn join_at(&mut self, pc: u32) -> u32 {
        if let Some(join) = self.warp.joins.get(self.join as usize)
            && join.pc == pc
            && join.activation == self.activation
        {
            return self.join;
        }
        self.warp.add_join(Join {
            pc,
            activation: self.activation,
            expected: self.mask,
            arrived: 0,
            parent: self.join,
        })
    }

    /// Arrives at joins that lie at the current place. Goes on when complete.
    pub fn arrive_at_join(&mut self) -> Step {
        while let Some(join) = self.warp.joins.get_mut(self.join as usize) {
            if join.pc != self.pc || join.activation != self.activation {
                break;
            }
            join.arrived |= self.mask;
            if join.arrived != join.expected {
                return self.stop(Stop::Gone);
            }
            let (mask, parent) = (join.expected, join.parent);
            join.expected = 0;
            join.arrived = 0;
            self.join = parent;
            self.set_mask(mask);
        }
        Step::Next
    }

    /// The active lanes exit; the rest of the split goes on.
    pub fn exit_active(&mut self) -> Step {
        let gone = self.active;
        self.warp.retire(gone);
        let rest = self.mask & !gone;
        if rest == 0 {
            // Others may have waited for nobody but these lanes.
            self.settle();
            return match self.stop {
                Stop::None => self.stop(Stop::Gone),
                _ => Step::Stop,
            };
        }
        self.set_mask(rest);
        Step::Next
    }

    /// Index of a lane's thread in the block.
    pub fn thread_of(&self, lane: u32) -> u32 {
        self.warp.index * 32 + lane
    }

    /// Coordinates of a lane's thread.
    pub fn thread_coordinates(&self, lane: u32) -> [u32; 3] {
        let [x, y, _] = self.grid.block;
        let thread = self.thread_of(lane);
        [thread % x, thread / x % y, thread / (x * y)]
    }

    /// The lowest active lane.
    pub fn first_lane(&self) -> u32 {
        self.active.trailing_zeros() & 31
    }
}
