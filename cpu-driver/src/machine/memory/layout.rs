//! The two reservations and what lies where in them.

use std::ops::Range;
use std::ptr;

use super::{MemoryError, MemoryOptions, PAGE};

/// Size of the shared and of the local window; 16 MiB each, as on hardware.
const WINDOW: u64 = 16 << 20;
/// Constants have pages of their own, so that a store to one can be refused
/// without a look at the allocation.
const CONSTANTS: u64 = 256 << 20;
/// Addresses for each byte of memory: gaps and quarantine live on the surplus.
const SURPLUS: u64 = 4;
const LEAST: u64 = 1 << 30;
const MOST: u64 = 2 << 40;
/// Where device addresses start if the place is free: the same addresses in
/// every run make reports and pointer-dependent programs repeatable.
const PREFERRED: u64 = 0x7000_0000_0000;

#[derive(Debug)]
pub(super) struct Layout {
    /// All device addresses.
    pub(super) device: Range<u64>,
    pub(super) shared: Range<u64>,
    pub(super) local: Range<u64>,
    pub(super) constants: Range<u64>,
    pub(super) general: Range<u64>,
    /// Add it to a device address (wrapping) for the host address behind it.
    pub(super) delta: u64,
    backing: Range<u64>,
}

impl Layout {
    pub(super) fn reserve(options: &MemoryOptions) -> Result<Self, MemoryError> {
        let wanted = options
            .capacity
            .saturating_mul(u64::from(options.devices.max(1)))
            .saturating_mul(SURPLUS)
            .clamp(LEAST, MOST)
            .next_multiple_of(PAGE);
        // Under a small `ulimit -v` less address space still makes a device.
        let mut general = wanted;
        loop {
            if let Some(layout) = Self::try_reserve(general) {
                return Ok(layout);
            }
            general = (general / 2).next_multiple_of(PAGE);
            if general < LEAST / 4 {
                return Err(MemoryError::Reservation { bytes: wanted });
            }
        }
    }

    fn try_reserve(general: u64) -> Option<Self> {
        let length = 2 * WINDOW + CONSTANTS + general;
        // One window more than needed, to align the start to a window.
        let device = reserve_addresses(PREFERRED, length + WINDOW)?;
        let Some(backing) = reserve_addresses(0, length + PAGE) else {
            release_addresses(device, length + WINDOW);
            return None;
        };
        let start = device.next_multiple_of(WINDOW);
        let shared = start..start + WINDOW;
        let local = shared.end..shared.end + WINDOW;
        let constants = local.end..local.end + CONSTANTS;
        // A page at either end stays unused, so that one element before the
        // first or past the last allocation is an unmapped page.
        let general = constants.end + PAGE..constants.end + general - PAGE;
        Some(Self {
            device: device..device + length + WINDOW,
            delta: backing.next_multiple_of(PAGE).wrapping_sub(start),
            backing: backing..backing + length + PAGE,
            shared,
            local,
            constants,
            general,
        })
    }

    /// Addresses that can hold allocations.
    pub(super) fn allocatable(&self) -> Range<u64> {
        self.constants.start..self.general.end
    }

    pub(super) fn backing(&self, address: u64) -> *mut u8 {
        ptr::with_exposed_provenance_mut(address.wrapping_add(self.delta) as usize)
    }

    pub(super) fn release(&self) {
        for reservation in [&self.device, &self.backing] {
            release_addresses(reservation.start, reservation.end - reservation.start);
        }
    }
}

fn reserve_addresses(preferred: u64, length: u64) -> Option<u64> {
    let length = usize::try_from(length).ok()?;
    let map = |at: u64, fixed: i32| {
        // SAFETY: a fresh anonymous mapping without access rights;
        // MAP_FIXED_NOREPLACE fails rather than replacing anything.
        unsafe {
            libc::mmap(
                ptr::without_provenance_mut(at as usize),
                length,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed,
                -1,
                0,
            )
        }
    };
    let mut found = libc::MAP_FAILED;
    if preferred != 0 {
        found = map(preferred, libc::MAP_FIXED_NOREPLACE);
    }
    if found == libc::MAP_FAILED {
        found = map(0, 0);
    }
    (found != libc::MAP_FAILED).then(|| found.expose_provenance() as u64)
}

fn release_addresses(start: u64, length: u64) {
    // SAFETY: the range is one of our own reservations, and whoever holds a
    // pointer into it has borrowed the `Memory` that is going away.
    unsafe {
        libc::munmap(
            ptr::with_exposed_provenance_mut(start as usize),
            length as usize,
        );
    }
}
