//! Rows for registers: liveness on the control-flow graph, then a linear scan
//! over live ranges, one pool of rows a register class.
//!
//! Ranges are per thread. That is sound with divergence because a row of a
//! class is only ever used for values of that class, so a lane's slot holds
//! the value of exactly one live register of that lane wherever other lanes
//! stand.

use super::code::Class;
use super::flow::Block;
use super::operation::{Operation, Register, Value};

/// Slot number of each register within its class, and slots a class.
#[derive(Debug, Default)]
pub struct Assignment {
    pub slot: Vec<u32>,
    pub predicates: u32,
    pub quads: u32,
    pub longs: u32,
    pub words: u32,
}

pub fn assign(operations: &[Operation], blocks: &[Block], classes: &[Class]) -> Assignment {
    let ranges = live_ranges(operations, blocks, classes.len());
    let mut order: Vec<Register> = (0..classes.len() as u32)
        .filter(|register| ranges[*register as usize].is_some())
        .collect();
    order.sort_by_key(|register| ranges[*register as usize].map_or(0, |(start, _)| start));
    let mut assignment = Assignment {
        slot: vec![0; classes.len()],
        ..Assignment::default()
    };
    let mut pools: Vec<(Class, Pool)> = [Class::Predicate, Class::Quad, Class::Long, Class::Word]
        .map(|class| (class, Pool::default()))
        .into();
    for register in order {
        let class = classes[register as usize];
        if let (Some((start, end)), Some((_, pool))) = (
            ranges[register as usize],
            pools.iter_mut().find(|(known, _)| *known == class),
        ) {
            assignment.slot[register as usize] = pool.take(start, end);
        }
    }
    for (class, pool) in pools {
        match class {
            Class::Predicate => assignment.predicates = pool.size,
            Class::Quad => assignment.quads = pool.size,
            Class::Long => assignment.longs = pool.size,
            _ => assignment.words = pool.size,
        }
    }
    assignment
}

/// Slots of one class: `(end of range, slot)` of those in use.
#[derive(Default)]
struct Pool {
    size: u32,
    free: Vec<u32>,
    used: std::collections::BTreeSet<(usize, u32)>,
}

impl Pool {
    fn take(&mut self, start: usize, end: usize) -> u32 {
        while let Some((last, slot)) = self.used.first().copied() {
            if last >= start {
                break;
            }
            self.used.remove(&(last, slot));
            self.free.push(slot);
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.size += 1;
            self.size - 1
        });
        self.used.insert((end, slot));
        slot
    }
}

type Range = Option<(usize, usize)>;

fn live_ranges(operations: &[Operation], blocks: &[Block], registers: usize) -> Vec<Range> {
    let live_in = live_in(operations, blocks, registers);
    let mut ranges: Vec<Range> = vec![None; registers];
    let mut extend = |register: usize, at: usize| {
        let range = ranges[register].get_or_insert((at, at));
        range.0 = range.0.min(at);
        range.1 = range.1.max(at);
    };
    for (at, block) in blocks.iter().enumerate() {
        for register in live_in[at].iter() {
            extend(register, block.start);
        }
        for successor in &block.successors {
            for register in live_in[*successor].iter() {
                extend(register, block.end - 1);
            }
        }
        let inside = operations.iter().enumerate();
        for (index, operation) in inside.take(block.end).skip(block.start) {
            for value in operation.reads().chain(operation.writes()) {
                if let Value::Register(register) = value {
                    extend(register as usize, index);
                }
            }
        }
    }
    ranges
}

/// Registers live at the start of each block.
fn live_in(operations: &[Operation], blocks: &[Block], registers: usize) -> Vec<Bits> {
    let mut uses: Vec<Bits> = Vec::with_capacity(blocks.len());
    let mut kills: Vec<Bits> = Vec::with_capacity(blocks.len());
    for block in blocks {
        let (mut used, mut killed) = (Bits::new(registers), Bits::new(registers));
        for operation in &operations[block.start..block.end] {
            for value in operation.reads() {
                if let Value::Register(register) = value
                    && !killed.has(register as usize)
                {
                    used.set(register as usize);
                }
            }
            if operation.partial {
                continue;
            }
            for value in operation.writes() {
                if let Value::Register(register) = value {
                    killed.set(register as usize);
                }
            }
        }
        uses.push(used);
        kills.push(killed);
    }
    let mut live = uses.clone();
    let mut changed = true;
    while changed {
        changed = false;
        for at in (0..blocks.len()).rev() {
            let mut out = Bits::new(registers);
            for successor in &blocks[at].successors {
                out.add(&live[*successor]);
            }
            out.remove(&kills[at]);
            changed |= live[at].add(&out);
        }
    }
    live
}

#[derive(Clone)]
struct Bits(Vec<u64>);

impl Bits {
    fn new(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)])
    }

    fn has(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 != 0
    }

    fn set(&mut self, at: usize) {
        self.0[at / 64] |= 1 << (at % 64);
    }

    /// Whether anything was new.
    fn add(&mut self, other: &Bits) -> bool {
        let mut new = 0;
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            new |= theirs & !*mine;
            *mine |= theirs;
        }
        new != 0
    }

    fn remove(&mut self, other: &Bits) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine &= !theirs;
        }
    }

    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(at, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                if rest == 0 {
                    return None;
                }
                let bit = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                Some(at * 64 + bit)
            })
        })
    }
}
