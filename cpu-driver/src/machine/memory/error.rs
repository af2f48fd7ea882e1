//! Why memory could not be given, freed or reached.

use std::fmt;

use super::table::{Nearest, Relation};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryError {
    ZeroBytes,
    /// Not a power of two, or beyond a page.
    Alignment {
        align: u64,
    },
    NoDevice {
        device: u32,
    },
    OutOfMemory {
        requested: u64,
        free: u64,
    },
    /// The system refused the address space.
    Reservation {
        bytes: u64,
    },
    /// No live allocation starts there.
    NotAllocated {
        address: u64,
        nearest: Option<Nearest>,
    },
    DoubleFree {
        address: u64,
        bytes: u64,
    },
    /// A registered range; it is unregistered, not freed.
    Registered {
        address: u64,
    },
    AlreadyRegistered {
        address: u64,
    },
    NotRegistered {
        address: u64,
    },
    /// The process has no memory there.
    NotMapped {
        address: u64,
        bytes: u64,
    },
    /// The range is not inside one live allocation.
    OutOfBounds {
        address: u64,
        bytes: u64,
        nearest: Option<Nearest>,
    },
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroBytes => write!(f, "an allocation needs at least one byte, got 0"),
            Self::Alignment { align } => write!(
                f,
                "alignment must be a power of two of at most 2 MiB, got {align}"
            ),
            Self::NoDevice { device } => write!(f, "there is no device {device}"),
            Self::OutOfMemory { requested, free } => write!(
                f,
                "out of device memory: {requested} bytes asked for, {free} free"
            ),
            Self::Reservation { bytes } => write!(
                f,
                "the system gave no {bytes} bytes of address space; raise `ulimit -v`"
            ),
            Self::NotAllocated { address, nearest } => {
                write!(f, "no live allocation starts at {address:#x}")?;
                describe(f, nearest.as_ref())
            }
            Self::DoubleFree { address, bytes } => write!(
                f,
                "the allocation of {bytes} bytes at {address:#x} was freed before"
            ),
            Self::Registered { address } => write!(
                f,
                "{address:#x} is registered host memory: unregister it, do not free it"
            ),
            Self::AlreadyRegistered { address } => {
                write!(f, "the host memory at {address:#x} is registered already")
            }
            Self::NotRegistered { address } => {
                write!(f, "no registered host memory starts at {address:#x}")
            }
            Self::NotMapped { address, bytes } => write!(
                f,
                "the process has no {bytes} bytes of host memory at {address:#x}"
            ),
            Self::OutOfBounds {
                address,
                bytes,
                nearest,
            } => {
                write!(
                    f,
                    "{bytes} bytes at {address:#x} are not inside one live allocation"
                )?;
                describe(f, nearest.as_ref())
            }
        }
    }
}

fn describe(f: &mut fmt::Formatter<'_>, nearest: Option<&Nearest>) -> fmt::Result {
    let Some(Nearest {
        allocation,
        relation,
    }) = nearest
    else {
        return Ok(());
    };
    let (distance, place) = match relation {
        Relation::Before(distance) => (distance, "before"),
        Relation::Inside(distance) => (distance, "inside"),
        Relation::After(distance) => (distance, "after"),
    };
    let freed = if allocation.freed { "freed " } else { "" };
    write!(
        f,
        "; {distance} bytes {place} the {freed}allocation of {} bytes at {:#x}",
        allocation.bytes, allocation.base
    )
}

impl std::error::Error for MemoryError {}
