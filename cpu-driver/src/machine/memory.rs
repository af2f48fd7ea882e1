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

/// Granularity at which the hardware maps device memory.
pub const PAGE: u64 = 2 << 20;

pub type DevicePtr = u64;

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
    /// `malloc` in a kernel.
    DeviceHeap,
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
    pub read_only: bool,
    pub freed: bool,
}

/// Placeholder until the real one lands.
pub struct Memory {}
