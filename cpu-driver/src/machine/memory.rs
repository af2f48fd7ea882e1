//! Device memory: a synthetic address space over one backing reservation.
//!
//! Two reservations of the same length are made at start. The first, without
//! access rights, owns the *device addresses*, so that no host pointer can
//! alias one and a host access through a device pointer faults. The second is
//! the *backing*: address `a` of the device lies at `a + delta` of the host,
//! one constant for the whole device. Pages of [`PAGE`] bytes that hold at
//! least one live allocation count as mapped, as on hardware; an unchecked
//! access is legal anywhere in a mapped page, a checked one only inside an
//! allocation. Shared and local windows of the generic address space are
//! reserved the same way.
//!
//! ```text
//! device addresses  | shared window | local window | constants | small →   ← large |
//! ```
//!
//! Small allocations fill the general arena from below, packed into pages;
//! large ones start on a page of their own and come from above. Behind every
//! allocation lies a gap that belongs to nobody. A freed range is remembered,
//! and is reused only once the quarantine overflows; its pages go back to the
//! system at once.
//!
//! Managed, pinned and registered memory lies outside both reservations: there
//! the device pointer *is* the host pointer.
//!
//! **Use by the machine**: take one [`View`] a worker thread with
//! [`Memory::view`], ask it for the whole range of a warp's access
//! ([`View::span`], [`View::span_mut`]), and where that is refused ask lane by
//! lane ([`View::lane`], [`View::lane_mut`]). A refused lane is a violation;
//! [`View::classify`] says which.
//!
//! Limits: one address space serves all devices of the process, so a kernel
//! may touch another device's memory without peer access being enabled. Pages
//! that the caller unmaps while they are registered fault the process.

mod error;
mod free_ranges;
mod host;
mod layout;
mod options;
mod pages;
mod table;
mod transfer;
mod view;

pub use error::MemoryError;
pub use options::{MemoryOptions, Usage};
pub use table::{Allocation, AllocationKind, Nearest, Relation};
pub use view::View;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use layout::Layout;
use pages::Pages;
use table::{Entry, Table};

/// Granularity at which the hardware maps device memory.
pub const PAGE: u64 = 2 << 20;

/// Alignment of every allocation, and the unit in which memory is accounted.
pub const GRANULE: u64 = 512;

pub type DevicePtr = u64;

/// What to allocate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    pub bytes: u64,
    /// A power of two; values below [`GRANULE`] are raised to it.
    pub align: u64,
    pub kind: AllocationKind,
    pub context: u64,
    /// Ordinal of the device whose memory is used.
    pub device: u32,
    /// The device may not store to it (constants of a module).
    pub read_only: bool,
}

impl Request {
    /// `bytes` of writable memory on device 0 with default alignment.
    #[must_use]
    pub fn new(kind: AllocationKind, bytes: u64, context: u64) -> Self {
        Self {
            bytes,
            align: GRANULE,
            kind,
            context,
            device: 0,
            read_only: false,
        }
    }
}

/// The memory of all devices of the process. Shared between threads.
pub struct Memory {
    options: MemoryOptions,
    layout: Layout,
    pages: Pages,
    table: RwLock<Table>,
    /// Grows at every free, so that views drop what they remember.
    generation: AtomicU64,
}

impl Memory {
    /// Makes the reservations; takes address space, hardly any memory.
    ///
    /// # Errors
    /// [`MemoryError::Reservation`] where the system gives no address space.
    pub fn new(options: MemoryOptions) -> Result<Self, MemoryError> {
        let layout = Layout::reserve(&options)?;
        let pages = Pages::new(&layout);
        let table = Table::new(&layout, options.devices);
        Ok(Self {
            options,
            layout,
            pages,
            table: RwLock::new(table),
            generation: AtomicU64::new(1),
        })
    }

    /// A window onto memory for one worker thread of one launch.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        View::new(self)
    }

    /// Generic addresses that mean shared memory; offset 0 is the start of the
    /// block's shared memory.
    #[must_use]
    pub fn shared_window(&self) -> Range<u64> {
        self.layout.shared.clone()
    }

    /// Generic addresses that mean the thread's local memory.
    #[must_use]
    pub fn local_window(&self) -> Range<u64> {
        self.layout.local.clone()
    }

    #[must_use]
    pub fn options(&self) -> &MemoryOptions {
        &self.options
    }

    /// True for an address that belongs to the device (allocated or not, and
    /// the windows included) and can therefore be no host pointer.
    #[must_use]
    pub fn is_device_address(&self, address: u64) -> bool {
        self.layout.device.contains(&address)
    }

    /// Allocates memory of any kind but [`AllocationKind::HostRegistered`].
    /// The content is undefined.
    ///
    /// # Errors
    /// [`MemoryError::ZeroBytes`], [`MemoryError::OutOfMemory`],
    /// [`MemoryError::Alignment`], [`MemoryError::NoDevice`].
    pub fn allocate(&self, request: Request) -> Result<Allocation, MemoryError> {
        if request.bytes == 0 {
            return Err(MemoryError::ZeroBytes);
        }
        if !request.align.is_power_of_two() || request.align > PAGE {
            return Err(MemoryError::Alignment {
                align: request.align,
            });
        }
        let mut table = self.write_table();
        table.admit(&request, &self.options)?;
        let entry = if request.kind.is_host() {
            host::allocate(&request)?
        } else {
            self.carve(&mut table, &request)?
        };
        Ok(table.insert(entry))
    }

    fn carve(&self, table: &mut Table, request: &Request) -> Result<Entry, MemoryError> {
        let slot = table
            .carve(request, &self.options)
            .ok_or_else(|| table.out_of_memory(request, &self.options))?;
        let data = slot.start..slot.start + request.bytes;
        if !self.pages.map(&self.layout, &data) {
            let refused = table.out_of_memory(request, &self.options);
            table.give_back(slot);
            return Err(refused);
        }
        Ok(Entry {
            legal_end: data.end,
            reserved: slot,
            allocation: Allocation::new(request, data.start),
        })
    }

    /// Frees the allocation that starts at `base`. The range goes into
    /// quarantine and counts as free memory.
    ///
    /// The caller has made sure that no kernel still uses it.
    ///
    /// # Errors
    /// [`MemoryError::DoubleFree`] where it was freed before,
    /// [`MemoryError::NotAllocated`] for any other address,
    /// [`MemoryError::Registered`] for memory that wants [`Memory::unregister`].
    pub fn free(&self, base: DevicePtr) -> Result<Allocation, MemoryError> {
        let mut table = self.write_table();
        if table.is_registered(base) {
            return Err(MemoryError::Registered { address: base });
        }
        let freed = table.remove(base)?;
        self.generation.fetch_add(1, Ordering::Release);
        if freed.allocation.kind.is_host() {
            host::retire(&freed);
        } else {
            self.pages.unmap(&self.layout, &freed.allocation.range());
        }
        for old in table.quarantine(&freed, self.options.quarantine_bytes) {
            host::release(&self.layout, &old);
        }
        Ok(freed.allocation)
    }

    /// Frees everything that `context` owns; registered ranges are forgotten.
    /// Returns what was live, in order of allocation.
    pub fn free_context(&self, context: u64) -> Vec<Allocation> {
        let live = self.live(Some(context));
        for allocation in &live {
            // A concurrent free of the same buffer is the only way to fail, and
            // then the work is done.
            let _ = if allocation.kind == AllocationKind::HostRegistered {
                self.unregister(allocation.base)
            } else {
                self.free(allocation.base)
            };
        }
        live
    }

    /// Makes the caller's own memory usable by the device at its own address.
    ///
    /// # Errors
    /// [`MemoryError::AlreadyRegistered`] where it overlaps a known range,
    /// [`MemoryError::NotMapped`] where the process has no such memory.
    pub fn register(
        &self,
        base: u64,
        bytes: u64,
        context: u64,
        read_only: bool,
    ) -> Result<Allocation, MemoryError> {
        if bytes == 0 {
            return Err(MemoryError::ZeroBytes);
        }
        let mut request = Request::new(AllocationKind::HostRegistered, bytes, context);
        request.read_only = read_only;
        if self.is_device_address(base) || !host::is_mapped(base, bytes) {
            return Err(MemoryError::NotMapped {
                address: base,
                bytes,
            });
        }
        let mut table = self.write_table();
        if table.overlaps(&(base..base + bytes)) || table.freed_containing(base).is_some() {
            return Err(MemoryError::AlreadyRegistered { address: base });
        }
        Ok(table.insert(host::registered(&request, base)))
    }

    /// Undoes [`Memory::register`].
    ///
    /// # Errors
    /// [`MemoryError::NotRegistered`] where `base` starts no registered range.
    pub fn unregister(&self, base: u64) -> Result<Allocation, MemoryError> {
        let mut table = self.write_table();
        if !table.is_registered(base) {
            return Err(MemoryError::NotRegistered { address: base });
        }
        let entry = table.forget(base)?;
        self.generation.fetch_add(1, Ordering::Release);
        Ok(entry.allocation)
    }

    /// The live allocation that contains `address`.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<Allocation> {
        self.read_table()
            .containing(address)
            .map(|entry| entry.allocation.clone())
    }

    /// The freed allocation that contained `address`, as long as its range has
    /// not been reused.
    #[must_use]
    pub fn find_freed(&self, address: u64) -> Option<Allocation> {
        self.read_table().freed_containing(address).cloned()
    }

    /// The allocation, live or freed, that `address` is closest to; a freed one
    /// only where it contains the address.
    #[must_use]
    pub fn nearest(&self, address: u64) -> Option<Nearest> {
        self.read_table().nearest(address)
    }

    /// Live allocations in order of allocation, of one context or of all.
    #[must_use]
    pub fn live(&self, context: Option<u64>) -> Vec<Allocation> {
        self.read_table().live(context)
    }

    /// Free and total memory of a device; quarantined memory counts as free.
    #[must_use]
    pub fn usage(&self, device: u32) -> Usage {
        self.read_table().usage(device, &self.options)
    }

    fn read_table(&self) -> RwLockReadGuard<'_, Table> {
        // A panic elsewhere must not take the whole driver down: the table is
        // consistent between its own calls.
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_table(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let table = self.table.get_mut().unwrap_or_else(PoisonError::into_inner);
        for entry in table.drain_host() {
            host::retire(&entry);
            host::release_entry(&entry);
        }
        self.layout.release();
    }
}

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod thread_tests;
