//! Lanes of a warp that must execute a `.sync` operation together.
//!
//! A split that reaches such an operation before all members of its mask have
//! waits. When the last one comes, the operation is carried out for the whole
//! group: at one place of the program directly, at several places by moving
//! the operands into the frame of the last arrival and the results back.
//! Exited lanes are not waited for.

use super::context::{Context, Stop};
use super::lanes::LANES;
use super::launch::Fault;
use super::ops::warp::{ONE_PLACE, classes_of, members_row};
use super::warp::{Split, State};
use crate::program::code::{ABSENT, Class, Op, Step};

impl Context<'_> {
    /// The current split has reached `op`, whose members are not all here or
    /// not all the same.
    #[cold]
    #[inline(never)]
    pub fn rendezvous(&mut self, _: &Op) -> Step {
        let split = self.leave(self.pc, State::Rendezvous);
        self.warp.splits.push(split);
        self.settle();
        match self.stop {
            Stop::None => self.stop(Stop::Gone),
            _ => Step::Stop,
        }
    }

    /// Carries out every `.sync` operation whose members have all arrived.
    /// Also to be called when lanes have exited.
    pub fn settle(&mut self) {
        while let Some((key, members)) = self.complete_group() {
            self.perform(key, members);
            if !matches!(self.stop, Stop::None) {
                return;
            }
        }
    }

    /// A group that is complete: the operation (code and variant) its members
    /// wait at, and the lanes.
    fn complete_group(&mut self) -> Option<(Key, u32)> {
        let mut waiting: [Option<(Key, u32)>; LANES] = [None; LANES];
        for at in 0..self.warp.splits.len() {
            let split = self.warp.splits[at];
            if split.state != State::Rendezvous {
                continue;
            }
            self.set_activation(split.activation);
            let op = &self.grid.ops[split.pc as usize];
            let members = self.words(members_row(self, op));
            for lane in lanes(split.mask) {
                waiting[lane] = Some((self.key(split.pc), members[lane]));
            }
        }
        let live = self.warp.live;
        waiting.iter().flatten().find_map(|(key, members)| {
            let here = (0..LANES)
                .filter(|lane| waiting[*lane] == Some((*key, *members)))
                .fold(0u32, |here, lane| here | 1 << lane);
            (members & live & !here == 0).then_some((*key, here))
        })
    }

    /// Operations match when they are of the same kind.
    fn key(&self, pc: u32) -> Key {
        let op = &self.grid.ops[pc as usize];
        (op.exec as usize, op.imm)
    }

    fn perform(&mut self, key: Key, group: u32) {
        let mut taking_part: Vec<Split> = Vec::new();
        let mut at = 0;
        while at < self.warp.splits.len() {
            let split = self.warp.splits[at];
            let part = split.mask & group;
            if split.state != State::Rendezvous || part == 0 || self.key(split.pc) != key {
                at += 1;
                continue;
            }
            taking_part.push(Split {
                mask: part,
                ..split
            });
            if part == split.mask {
                self.warp.splits.remove(at);
            } else {
                self.warp.splits[at].mask &= !part;
                at += 1;
            }
        }
        // Lanes at the same place become one split again.
        let mut merged: Vec<Split> = Vec::new();
        for split in taking_part {
            match merged
                .iter_mut()
                .find(|m| m.pc == split.pc && m.activation == split.activation)
            {
                Some(known) => *known = self.warp.merged(*known, split),
                None => merged.push(split),
            }
        }
        if let [one] = merged[..] {
            self.carry_out(one, group);
        } else if merged.len() > 1 {
            self.carry_out_apart(&merged, group);
        }
        for mut split in merged {
            split.pc += 1;
            split.state = State::Ready;
            self.warp.splits.push(split);
        }
    }

    /// All members stand at one operation.
    fn carry_out(&mut self, split: Split, group: u32) {
        let op = &self.grid.ops[split.pc as usize];
        self.pc = split.pc;
        self.set_activation(split.activation);
        self.set_mask(group);
        self.gathered = true;
        // SAFETY: as in `Context::execute`.
        unsafe { (op.exec)(self, op) };
        self.gathered = false;
    }

    /// Members stand at several operations of one kind. The first operands of
    /// all are brought together; then the operation runs once a place, on that
    /// place's other operands, and only the lanes of the place keep a result.
    fn carry_out_apart(&mut self, places: &[Split], group: u32) {
        let mut values = [0; LANES];
        for place in places {
            let op = &self.grid.ops[place.pc as usize];
            if op.imm & ONE_PLACE != 0 {
                self.pc = place.pc;
                let site = (self.grid.sites)(place.pc);
                let message = format!(
                    "{}: lanes of a warp reach {} at different places",
                    self.grid.kernel, site.instruction
                );
                self.fault(Fault::Unsupported { site, message });
                return;
            }
            self.set_activation(place.activation);
            let own = self.bits(classes_of(op).0, op.a);
            for lane in lanes(place.mask) {
                values[lane] = own[lane];
            }
        }
        for place in places {
            let op = &self.grid.ops[place.pc as usize];
            let (source, target) = classes_of(op);
            self.pc = place.pc;
            self.set_activation(place.activation);
            let second = if op.dst2 == ABSENT {
                Class::None
            } else {
                Class::Predicate
            };
            let before = [
                self.bits(source, op.a),
                self.bits(target, op.dst),
                self.bits(second, op.dst2),
            ];
            self.set_mask(group);
            self.set_bits(source, op.a, &values);
            self.gathered = true;
            // SAFETY: as in `Context::execute`.
            unsafe { (op.exec)(self, op) };
            self.gathered = false;
            let (result, extra) = (self.bits(target, op.dst), self.bits(second, op.dst2));
            self.set_bits(source, op.a, &before[0]);
            self.set_bits(target, op.dst, &before[1]);
            self.set_bits(second, op.dst2, &before[2]);
            self.set_mask(place.mask);
            self.set_bits(target, op.dst, &result);
            self.set_bits(second, op.dst2, &extra);
        }
    }

    fn bits(&self, class: Class, offset: u32) -> [u64; LANES] {
        match class {
            Class::Word => self.words(offset).map(u64::from),
            Class::Long => *self.longs(offset),
            Class::Predicate => {
                let mask = self.predicate(offset);
                std::array::from_fn(|lane| (mask >> lane & 1).into())
            }
            Class::None | Class::Quad => [0; LANES],
        }
    }

    /// Writes the active lanes.
    fn set_bits(&mut self, class: Class, offset: u32, bits: &[u64; LANES]) {
        match class {
            Class::Word => self.set_words(offset, &bits.map(|b| b as u32)),
            Class::Long => self.set_longs(offset, bits),
            Class::Predicate => {
                let mask = lanes(u32::MAX).fold(0, |mask, lane| mask | (bits[lane] as u32) << lane);
                self.set_predicate(offset, mask);
            }
            Class::None | Class::Quad => {}
        }
    }
}

/// Code and variant of an operation: those of one kind match.
type Key = (usize, u64);

/// Lanes of a mask.
fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    (0..LANES).filter(move |lane| mask >> lane & 1 != 0)
}
