//! Memory whose device pointer is its host pointer: managed, pinned,
//! registered.

use std::ptr;

use super::layout::Layout;
use super::table::{Allocation, Entry};
use super::{AllocationKind, MemoryError, Request};

const SYSTEM_PAGE: u64 = 4096;

/// Maps host memory with an inaccessible page on either side.
pub(super) fn allocate(request: &Request) -> Result<Entry, MemoryError> {
    let refused = MemoryError::OutOfMemory {
        requested: request.bytes,
        free: 0,
    };
    let data = request.bytes.next_multiple_of(SYSTEM_PAGE);
    let align = request.align.max(SYSTEM_PAGE);
    let length = data + align + SYSTEM_PAGE;
    // SAFETY: a fresh anonymous mapping without access rights.
    let found = unsafe {
        libc::mmap(
            ptr::null_mut(),
            length as usize,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if found == libc::MAP_FAILED {
        return Err(refused);
    }
    let start = found.expose_provenance() as u64;
    let base = (start + SYSTEM_PAGE).next_multiple_of(align);
    // SAFETY: inside the mapping just made.
    let rc = unsafe {
        libc::mprotect(
            pointer(base).cast(),
            data as usize,
            libc::PROT_READ | libc::PROT_WRITE,
        )
    };
    let entry = Entry {
        allocation: Allocation::new(request, base),
        reserved: start..start + length,
        legal_end: base + data,
    };
    if rc != 0 {
        release_entry(&entry);
        return Err(refused);
    }
    Ok(entry)
}

pub(super) fn registered(request: &Request, base: u64) -> Entry {
    Entry {
        allocation: Allocation::new(request, base),
        reserved: base..base + request.bytes,
        legal_end: base + request.bytes,
    }
}

/// Takes a freed mapping out of use: the memory goes back to the system, the
/// addresses stay ours so that a late access faults rather than hits a stranger.
pub(super) fn retire(entry: &Entry) {
    if !owns_addresses(entry) {
        return;
    }
    // SAFETY: replaces a mapping of our own that nobody may use any more.
    unsafe {
        libc::mmap(
            pointer(entry.reserved.start).cast(),
            (entry.reserved.end - entry.reserved.start) as usize,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
            -1,
            0,
        );
    }
}

/// Gives the addresses of an entry that left the quarantine back to the system.
pub(super) fn release(layout: &Layout, entry: &Entry) {
    debug_assert!(
        !owns_addresses(entry) || !layout.device.contains(&entry.reserved.start),
        "device addresses are never given back"
    );
    release_entry(entry);
}

pub(super) fn release_entry(entry: &Entry) {
    if !owns_addresses(entry) {
        return;
    }
    // SAFETY: a mapping of our own that is no longer in any table.
    unsafe {
        libc::munmap(
            pointer(entry.reserved.start).cast(),
            (entry.reserved.end - entry.reserved.start) as usize,
        );
    }
}

fn owns_addresses(entry: &Entry) -> bool {
    matches!(
        entry.allocation.kind,
        AllocationKind::Managed | AllocationKind::ModuleManaged | AllocationKind::HostPinned
    )
}

/// True where the process has every page of the range mapped, whatever its
/// access rights.
pub(super) fn is_mapped(base: u64, bytes: u64) -> bool {
    let start = base / SYSTEM_PAGE * SYSTEM_PAGE;
    let Some(end) = base
        .checked_add(bytes)
        .and_then(|end| end.checked_next_multiple_of(SYSTEM_PAGE))
    else {
        return false;
    };
    // One status byte a page, a bounded number at a time.
    let mut resident = [0_u8; 1024];
    let step = resident.len() as u64 * SYSTEM_PAGE;
    (start..end).step_by(step as usize).all(|at| {
        let length = step.min(end - at) as usize;
        // SAFETY: the kernel checks the range and writes one byte a page,
        // at most 1,024.
        let rc = unsafe {
            libc::mincore(
                ptr::without_provenance_mut(at as usize),
                length,
                resident.as_mut_ptr(),
            )
        };
        rc == 0
    })
}

pub(super) fn pointer(address: u64) -> *mut u8 {
    ptr::with_exposed_provenance_mut(address as usize)
}
