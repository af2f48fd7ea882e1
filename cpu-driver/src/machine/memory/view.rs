//! The way of every kernel access to memory.
//!
//! Unchecked, an access inside one page costs a subtraction, a comparison and
//! one bit test. Checked, it costs two comparisons with an allocation that the
//! view remembers; only an allocation not met before takes the table's lock.
//! Managed, pinned and registered memory is checked against its allocation in
//! both modes.

use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::host;
use super::{Memory, PAGE};
use crate::machine::observe::{AccessKind, ViolationKind};

/// Allocations that a view remembers.
const REMEMBERED: usize = 8;

#[derive(Clone, Copy)]
struct Known {
    start: u64,
    end: u64,
    /// Add it (wrapping) to a device address for the host address.
    delta: u64,
    writable: bool,
}

const NOTHING: Known = Known {
    start: u64::MAX,
    end: 0,
    delta: 0,
    writable: false,
};

/// Memory as one worker thread of one launch sees it. Cheap to make, not
/// shared between threads.
pub struct View<'m> {
    memory: &'m Memory,
    pages: &'m super::pages::Pages,
    generation: &'m AtomicU64,
    /// Start and length of the addresses that can hold allocations.
    start: u64,
    length: u64,
    /// Device stores are legal from here on (constants lie below).
    writable_from: u64,
    delta: u64,
    known: [Cell<Known>; REMEMBERED],
    next: Cell<usize>,
    seen: Cell<u64>,
}

impl<'m> View<'m> {
    pub(super) fn new(memory: &'m Memory) -> Self {
        let allocatable = memory.layout.allocatable();
        Self {
            memory,
            pages: &memory.pages,
            generation: &memory.generation,
            start: allocatable.start,
            length: allocatable.end - allocatable.start,
            writable_from: memory.layout.constants.end,
            delta: memory.layout.delta,
            known: [const { Cell::new(NOTHING) }; REMEMBERED],
            next: Cell::new(0),
            seen: Cell::new(memory.generation.load(Ordering::Acquire)),
        }
    }

    /// Host pointer for `lo` where the device may read all of `lo..hi`;
    /// `None` where it may not, where the range is empty, and, checked, where
    /// it is not inside *one* allocation: then ask lane by lane.
    ///
    /// The pointer is good for this one access.
    #[inline(always)]
    #[must_use]
    pub fn span<const STRICT: bool>(&self, lo: u64, hi: u64) -> Option<*mut u8> {
        self.resolve::<STRICT, false>(lo, hi)
    }

    /// [`View::span`] for stores and atomics: constants refuse them.
    #[inline(always)]
    #[must_use]
    pub fn span_mut<const STRICT: bool>(&self, lo: u64, hi: u64) -> Option<*mut u8> {
        self.resolve::<STRICT, true>(lo, hi)
    }

    /// Host pointer where one lane may read `bytes` at `address`.
    #[inline(always)]
    #[must_use]
    pub fn lane<const STRICT: bool>(&self, address: u64, bytes: u32) -> Option<*mut u8> {
        self.resolve::<STRICT, false>(address, address.checked_add(u64::from(bytes))?)
    }

    /// [`View::lane`] for stores and atomics.
    #[inline(always)]
    #[must_use]
    pub fn lane_mut<const STRICT: bool>(&self, address: u64, bytes: u32) -> Option<*mut u8> {
        self.resolve::<STRICT, true>(address, address.checked_add(u64::from(bytes))?)
    }

    /// Generic addresses that mean shared memory.
    #[must_use]
    pub fn shared_window(&self) -> Range<u64> {
        self.memory.shared_window()
    }

    /// Generic addresses that mean the thread's local memory.
    #[must_use]
    pub fn local_window(&self) -> Range<u64> {
        self.memory.local_window()
    }

    /// What is wrong with an aligned access that [`View::lane`] or
    /// [`View::lane_mut`] refused.
    #[must_use]
    pub fn classify(&self, address: u64, bytes: u32, access: AccessKind) -> ViolationKind {
        let last = address.saturating_add(u64::from(bytes.max(1)) - 1);
        let table = self.memory.read_table();
        // The rest of a managed or pinned page is out of bounds of its
        // allocation, not a stranger's memory.
        if let Some(entry) = table.containing_unchecked(address) {
            let inside = last < entry.legal_end;
            let stores = access != AccessKind::Read;
            return if inside && stores && entry.allocation.read_only {
                ViolationKind::ReadOnly
            } else {
                ViolationKind::OutOfBounds
            };
        }
        if table.freed_containing(address).is_some() {
            return ViolationKind::UseAfterFree;
        }
        if !self.memory.is_device_address(address) && host::is_mapped(address, 1) {
            return ViolationKind::HostPointer;
        }
        ViolationKind::OutOfBounds
    }

    #[inline(always)]
    fn resolve<const STRICT: bool, const WRITE: bool>(&self, lo: u64, hi: u64) -> Option<*mut u8> {
        if STRICT {
            if self.seen.get() == self.generation.load(Ordering::Acquire) {
                for known in &self.known {
                    let known = known.get();
                    if lo >= known.start && hi <= known.end && lo < hi {
                        return (!WRITE || known.writable)
                            .then(|| host::pointer(lo.wrapping_add(known.delta)));
                    }
                }
            }
            return self.look_up::<STRICT, WRITE>(lo, hi);
        }
        let offset = lo.wrapping_sub(self.start);
        let last = hi.wrapping_sub(1).wrapping_sub(self.start);
        if offset / PAGE == last / PAGE
            && offset <= last
            && last < self.length
            && (!WRITE || lo >= self.writable_from)
            && self.pages.is_mapped(offset / PAGE)
        {
            return Some(host::pointer(lo.wrapping_add(self.delta)));
        }
        self.unchecked_elsewhere::<WRITE>(lo, hi)
    }

    /// Several pages, host memory, or not legal at all.
    #[cold]
    fn unchecked_elsewhere<const WRITE: bool>(&self, lo: u64, hi: u64) -> Option<*mut u8> {
        if lo >= hi {
            return None;
        }
        if lo.wrapping_sub(self.start) < self.length {
            let legal = hi - self.start <= self.length
                && (!WRITE || lo >= self.writable_from)
                && self.pages.are_mapped(lo, hi);
            return legal.then(|| host::pointer(lo.wrapping_add(self.delta)));
        }
        self.recall::<WRITE>(lo, hi)
            .unwrap_or_else(|| self.look_up::<false, WRITE>(lo, hi))
    }

    /// `Some(answer)` where the range lies in a remembered allocation.
    fn recall<const WRITE: bool>(&self, lo: u64, hi: u64) -> Option<Option<*mut u8>> {
        if self.seen.get() != self.generation.load(Ordering::Acquire) {
            return None;
        }
        self.known
            .iter()
            .map(Cell::get)
            .find(|known| lo >= known.start && hi <= known.end)
            .map(|known| {
                (!WRITE || known.writable).then(|| host::pointer(lo.wrapping_add(known.delta)))
            })
    }

    #[cold]
    fn look_up<const STRICT: bool, const WRITE: bool>(&self, lo: u64, hi: u64) -> Option<*mut u8> {
        if lo >= hi {
            return None;
        }
        // Read before the table: a free in between is then noticed next time.
        let generation = self.generation.load(Ordering::Acquire);
        if self.seen.replace(generation) != generation {
            for known in &self.known {
                known.set(NOTHING);
            }
        }
        let table = self.memory.read_table();
        let (entry, end) = if STRICT {
            let entry = table.containing(lo)?;
            (entry, entry.allocation.range().end)
        } else {
            let entry = table.containing_unchecked(lo)?;
            (entry, entry.legal_end)
        };
        let range = entry.allocation.range();
        if hi > end {
            return None;
        }
        let known = Known {
            start: range.start,
            // Not `end`: one view may serve both modes.
            end: range.end,
            delta: if entry.allocation.kind.is_host() {
                0
            } else {
                self.delta
            },
            writable: !entry.allocation.read_only,
        };
        let slot = self.next.get();
        self.known[slot].set(known);
        self.next.set((slot + 1) % REMEMBERED);
        (!WRITE || known.writable).then(|| host::pointer(lo.wrapping_add(known.delta)))
    }
}
