//! What a [`super::Memory`] is made of, and how full it is.

/// Sizes and strictness of device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryOptions {
    /// Bytes of memory that each device has.
    pub capacity: u64,
    /// Number of devices.
    pub devices: u32,
    /// Extra bytes behind every allocation that belong to nobody
    /// (compute-sanitizer's `--padding`).
    pub padding: u64,
    /// Bytes of freed ranges that are kept from being reused. They cost
    /// addresses, not memory.
    pub quarantine_bytes: u64,
    /// Leave wide gaps, so that a wild index rarely meets a neighbour. The
    /// views of a checked launch ask for strictness themselves.
    pub strict: bool,
}

impl MemoryOptions {
    /// Memory for runs without checks.
    #[must_use]
    pub fn unchecked(capacity: u64) -> Self {
        Self {
            capacity,
            devices: 1,
            padding: 0,
            quarantine_bytes: 64 << 20,
            strict: false,
        }
    }

    /// Memory for runs under memcheck: freed addresses stay unused for long.
    #[must_use]
    pub fn checked(capacity: u64) -> Self {
        Self {
            quarantine_bytes: capacity,
            strict: true,
            ..Self::unchecked(capacity)
        }
    }
}

/// How full a device is, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub total: u64,
    pub free: u64,
}
