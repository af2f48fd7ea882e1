//! Allocations, live and freed, and the addresses between them.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use super::free_ranges::FreeRanges;
use super::layout::Layout;
use super::{DevicePtr, GRANULE, MemoryError, MemoryOptions, PAGE, Request, Usage};

/// Allocations from this size on start on a page of their own.
const LARGE: u64 = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AllocationKind {
    Device,
    /// Stream-ordered (`cuMemAllocAsync`).
    Pool,
    /// Device pointer equals host pointer.
    Managed,
    /// Pinned by us.
    HostPinned,
    /// The caller's memory, registered.
    HostRegistered,
    /// A `.global` or `.const` variable of a module.
    Module,
    /// A `.managed` variable of a module: device pointer equals host pointer.
    ModuleManaged,
    /// `malloc` in a kernel.
    DeviceHeap,
}

impl AllocationKind {
    /// Managed memory, allocated or declared.
    #[must_use]
    pub fn is_managed(self) -> bool {
        matches!(self, Self::Managed | Self::ModuleManaged)
    }

    /// The device pointer is the host pointer.
    #[must_use]
    pub fn is_host(self) -> bool {
        matches!(
            self,
            Self::Managed | Self::ModuleManaged | Self::HostPinned | Self::HostRegistered
        )
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    pub base: DevicePtr,
    pub bytes: u64,
    pub kind: AllocationKind,
    /// Order of allocation, from 1.
    pub serial: u64,
    /// Context that owns it.
    pub context: u64,
    pub device: u32,
    pub read_only: bool,
    pub freed: bool,
}

impl Allocation {
    pub(super) fn new(request: &Request, base: DevicePtr) -> Self {
        Self {
            base,
            bytes: request.bytes,
            kind: request.kind,
            serial: 0,
            context: request.context,
            device: request.device,
            read_only: request.read_only,
            freed: false,
        }
    }

    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.base..self.base + self.bytes
    }
}

/// Where an address lies relative to an allocation, counted as
/// compute-sanitizer counts: the first byte past the end is 1 byte after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Relation {
    Before(u64),
    /// Offset from the start.
    Inside(u64),
    After(u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nearest {
    pub allocation: Allocation,
    pub relation: Relation,
}

/// An allocation and what the table knows beyond it.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) allocation: Allocation,
    /// Addresses taken, the gap behind included.
    pub(super) reserved: Range<u64>,
    /// Host memory: end of what an unchecked access may touch.
    pub(super) legal_end: u64,
}

pub(super) struct Table {
    live: BTreeMap<u64, Entry>,
    freed: BTreeMap<u64, Entry>,
    /// Freed ranges that must not be reused yet, oldest first.
    quarantine: VecDeque<Entry>,
    quarantined_bytes: u64,
    general: FreeRanges,
    constants: FreeRanges,
    constants_range: Range<u64>,
    used: Vec<u64>,
    last_serial: u64,
}

impl Table {
    pub(super) fn new(layout: &Layout, devices: u32) -> Self {
        Self {
            live: BTreeMap::new(),
            freed: BTreeMap::new(),
            quarantine: VecDeque::new(),
            quarantined_bytes: 0,
            general: FreeRanges::new(&layout.general),
            constants: FreeRanges::new(&layout.constants),
            constants_range: layout.constants.clone(),
            used: vec![0; devices.max(1) as usize],
            last_serial: 0,
        }
    }

    /// Does the request fit into what the device has left?
    pub(super) fn admit(
        &self,
        request: &Request,
        options: &MemoryOptions,
    ) -> Result<(), MemoryError> {
        if request.device as usize >= self.used.len() {
            return Err(MemoryError::NoDevice {
                device: request.device,
            });
        }
        if accounted(request.kind, request.bytes) > self.usage(request.device, options).free
            || request.bytes > options.capacity
        {
            return Err(self.out_of_memory(request, options));
        }
        Ok(())
    }

    pub(super) fn out_of_memory(&self, request: &Request, options: &MemoryOptions) -> MemoryError {
        MemoryError::OutOfMemory {
            requested: request.bytes,
            free: self.usage(request.device, options).free,
        }
    }

    pub(super) fn usage(&self, device: u32, options: &MemoryOptions) -> Usage {
        let used = self.used.get(device as usize).copied().unwrap_or(0);
        Usage {
            total: options.capacity,
            free: options.capacity.saturating_sub(used),
        }
    }

    /// Takes addresses for a device allocation; shortens the quarantine where
    /// nothing else is left.
    pub(super) fn carve(
        &mut self,
        request: &Request,
        options: &MemoryOptions,
    ) -> Option<Range<u64>> {
        loop {
            if let Some(slot) = self.try_carve(request, options) {
                self.forget_freed(&slot);
                return Some(slot);
            }
            self.release_oldest()?;
        }
    }

    fn try_carve(&mut self, request: &Request, options: &MemoryOptions) -> Option<Range<u64>> {
        let data = request.bytes.next_multiple_of(GRANULE);
        let length = data + gap_behind(request.bytes, options);
        let align = request.align.max(GRANULE);
        let arena = if request.read_only {
            &mut self.constants
        } else {
            &mut self.general
        };
        if request.bytes < LARGE {
            let start = arena.take_low(length, align)?;
            return Some(start..start + length);
        }
        // A whole page stays unmapped behind a large allocation.
        let length = length.next_multiple_of(PAGE) + PAGE;
        let start = arena.take_high(length, PAGE)?;
        Some(start..start + length)
    }

    pub(super) fn give_back(&mut self, slot: Range<u64>) {
        if self.constants_range.contains(&slot.start) {
            self.constants.give(&slot);
        } else {
            self.general.give(&slot);
        }
    }

    pub(super) fn insert(&mut self, mut entry: Entry) -> Allocation {
        self.last_serial += 1;
        entry.allocation.serial = self.last_serial;
        self.forget_freed(&entry.allocation.range());
        let allocation = entry.allocation.clone();
        if let Some(used) = self.used.get_mut(allocation.device as usize) {
            *used += accounted(allocation.kind, allocation.bytes);
        }
        self.live.insert(allocation.base, entry);
        allocation
    }

    /// Takes a live allocation out of the table without remembering it.
    pub(super) fn forget(&mut self, base: u64) -> Result<Entry, MemoryError> {
        let Some(mut entry) = self.live.remove(&base) else {
            if let Some(old) = self.freed.get(&base) {
                return Err(MemoryError::DoubleFree {
                    address: base,
                    bytes: old.allocation.bytes,
                });
            }
            return Err(MemoryError::NotAllocated {
                address: base,
                nearest: self.nearest(base),
            });
        };
        let allocation = &mut entry.allocation;
        allocation.freed = true;
        if let Some(used) = self.used.get_mut(allocation.device as usize) {
            *used -= accounted(allocation.kind, allocation.bytes);
        }
        Ok(entry)
    }

    /// Takes a live allocation out of the table and remembers that it was.
    pub(super) fn remove(&mut self, base: u64) -> Result<Entry, MemoryError> {
        let entry = self.forget(base)?;
        self.freed.insert(base, entry.clone());
        Ok(entry)
    }

    /// Keeps a freed range from being reused; returns the entries that leave
    /// the quarantine for it, whose host addresses are the caller's to release.
    pub(super) fn quarantine(&mut self, entry: &Entry, limit: u64) -> Vec<Entry> {
        self.quarantine.push_back(entry.clone());
        self.quarantined_bytes += length(&entry.reserved);
        let mut released = Vec::new();
        while self.quarantined_bytes > limit {
            match self.release_oldest() {
                Some(entry) => released.push(entry),
                None => break,
            }
        }
        released
    }

    fn release_oldest(&mut self) -> Option<Entry> {
        let entry = self.quarantine.pop_front()?;
        self.quarantined_bytes -= length(&entry.reserved);
        if entry.allocation.kind.is_host() {
            // The system may hand these addresses to anybody from now on.
            self.freed.remove(&entry.allocation.base);
        } else {
            self.give_back(entry.reserved.clone());
        }
        Some(entry)
    }

    /// Freed allocations whose addresses are in use again.
    fn forget_freed(&mut self, range: &Range<u64>) {
        while let Some((&base, entry)) = self.freed.range(..range.end).next_back() {
            if entry.allocation.range().end <= range.start {
                break;
            }
            self.freed.remove(&base);
        }
    }

    pub(super) fn containing(&self, address: u64) -> Option<&Entry> {
        let (_, entry) = self.live.range(..=address).next_back()?;
        (address < entry.allocation.range().end).then_some(entry)
    }

    /// As [`Table::containing`], for an access without checks: the rest of a
    /// page that host memory was mapped with counts.
    pub(super) fn containing_unchecked(&self, address: u64) -> Option<&Entry> {
        let (_, entry) = self.live.range(..=address).next_back()?;
        (address < entry.legal_end).then_some(entry)
    }

    pub(super) fn freed_containing(&self, address: u64) -> Option<&Allocation> {
        let (_, entry) = self.freed.range(..=address).next_back()?;
        (address < entry.allocation.range().end).then_some(&entry.allocation)
    }

    pub(super) fn overlaps(&self, range: &Range<u64>) -> bool {
        self.live
            .range(..range.end)
            .next_back()
            .is_some_and(|(_, entry)| entry.allocation.range().end > range.start)
    }

    pub(super) fn is_registered(&self, base: u64) -> bool {
        self.live
            .get(&base)
            .is_some_and(|entry| entry.allocation.kind == AllocationKind::HostRegistered)
    }

    pub(super) fn nearest(&self, address: u64) -> Option<Nearest> {
        if let Some(freed) = self.freed_containing(address)
            && self.containing(address).is_none()
        {
            return Some(Nearest {
                relation: Relation::Inside(address - freed.base),
                allocation: freed.clone(),
            });
        }
        let below = self.live.range(..=address).next_back();
        let above = self.live.range(address..).next();
        let below = below.map(|(_, entry)| {
            let range = entry.allocation.range();
            let (relation, distance) = if address < range.end {
                (Relation::Inside(address - range.start), 0)
            } else {
                let distance = address - range.end + 1;
                (Relation::After(distance), distance)
            };
            (entry, relation, distance)
        });
        let above = above.map(|(&base, entry)| {
            let distance = base - address;
            (entry, Relation::Before(distance), distance)
        });
        let (entry, relation, _) = match (below, above) {
            (Some(below), Some(above)) if above.2 < below.2 => above,
            (Some(below), _) => below,
            (None, above) => above?,
        };
        Some(Nearest {
            allocation: entry.allocation.clone(),
            relation,
        })
    }

    pub(super) fn live(&self, context: Option<u64>) -> Vec<Allocation> {
        let mut live: Vec<_> = self
            .live
            .values()
            .map(|entry| &entry.allocation)
            .filter(|allocation| context.is_none_or(|context| allocation.context == context))
            .cloned()
            .collect();
        live.sort_by_key(|allocation| allocation.serial);
        live
    }

    /// Every entry that owns host addresses, live or in quarantine.
    pub(super) fn drain_host(&mut self) -> Vec<Entry> {
        let live = std::mem::take(&mut self.live).into_values();
        let freed = std::mem::take(&mut self.quarantine);
        live.chain(freed)
            .filter(|entry| entry.allocation.kind.is_host())
            .collect()
    }
}

fn length(range: &Range<u64>) -> u64 {
    range.end - range.start
}

/// Device memory that an allocation takes; host memory takes none.
fn accounted(kind: AllocationKind, bytes: u64) -> u64 {
    match kind {
        AllocationKind::HostPinned | AllocationKind::HostRegistered => 0,
        _ => bytes.div_ceil(GRANULE).saturating_mul(GRANULE),
    }
}

/// Bytes behind an allocation that belong to nobody.
fn gap_behind(bytes: u64, options: &MemoryOptions) -> u64 {
    let gap = if options.strict {
        (bytes / 2).clamp(GRANULE, LARGE)
    } else {
        GRANULE
    };
    (gap + options.padding).next_multiple_of(GRANULE)
}
