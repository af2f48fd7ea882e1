//! What the machine tells its observers. Observers listen; they never steer,
//! except that an observer says how much of a launch a violation costs.

use crate::ptx::ast::StateSpace;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AccessKind {
    Read,
    Write,
    Atomic,
}

/// Where in the program something happened.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Site {
    /// Kernel (or device function) as named in the PTX.
    pub function: String,
    /// Byte-like offset of the operation in its function: 16 × operation index,
    /// our own numbering, since PTX has no machine addresses.
    pub offset: u32,
    /// Innermost first: the source line, then the call sites it was inlined at.
    pub frames: Vec<Frame>,
    pub ptx_line: u32,
    /// Opcode with its modifiers, as in the PTX.
    pub instruction: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Name of the inlined function where `.loc` tells it.
    pub function: Option<String>,
    pub file: String,
    pub line: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ViolationKind {
    /// Outside every allocation (or, unchecked, outside every mapped page).
    OutOfBounds,
    /// Inside an allocation that was freed.
    UseAfterFree,
    Misaligned,
    /// A generic address that is host memory the device may not touch.
    HostPointer,
    /// A store to constant or parameter space.
    ReadOnly,
}

impl std::fmt::Display for ViolationKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::OutOfBounds => "out-of-bounds",
            Self::UseAfterFree => "use-after-free",
            Self::Misaligned => "misaligned",
            Self::HostPointer => "host-memory",
            Self::ReadOnly => "read-only",
        })
    }
}

/// One lane's access that must not happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub kind: ViolationKind,
    pub space: StateSpace,
    pub access: AccessKind,
    /// Bytes this lane asked for, vector width included.
    pub size: u32,
    /// The address as compute-sanitizer prints it: generic for global memory,
    /// offset within the space for shared and local.
    pub address: u64,
    pub thread: [u32; 3],
    pub block: [u32; 3],
    pub kernel: String,
    pub site: Site,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HeapErrorKind {
    /// `free` of memory that was freed before.
    DoubleFree,
    /// `free` of a pointer that `malloc` never returned.
    InvalidFree,
}

/// A wrong `free` in a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeapError {
    pub kind: HeapErrorKind,
    pub address: u64,
    pub thread: [u32; 3],
    pub block: [u32; 3],
    pub kernel: String,
    pub site: Site,
}

/// How much a violation costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaction {
    /// The launch ends and its context is lost (compute-sanitizer's default).
    EndLaunch,
    /// The warp ends, the launch goes on (`--destroy-on-device-error kernel`).
    KillWarp,
}

/// One memory instruction of one warp, before it is carried out.
pub struct WarpAccess<'a> {
    pub space: StateSpace,
    pub access: AccessKind,
    pub size: u32,
    /// Active lanes.
    pub mask: u32,
    /// One address a lane; those of inactive lanes are meaningless.
    pub addresses: &'a [u64; 32],
    /// Index of the operation in the kernel's code.
    pub operation: u32,
    /// Linear index of the block in the grid and of the warp in the block.
    pub block: u64,
    pub warp: u32,
}

/// A listener. The machine is compiled once per implementation, so a constant
/// that is `false` removes the calls it guards.
pub trait Observer {
    /// Check accesses against allocations rather than against mapped pages.
    const STRICT: bool;
    /// Call [`Observer::access`] and [`Observer::barrier`].
    const EVENTS: bool;

    fn violation(&mut self, violation: &Violation) -> Reaction;
    /// A wrong `free` in a kernel. `None`: nothing happens, as on hardware.
    fn heap_error(&mut self, _error: &HeapError) -> Option<Reaction> {
        None
    }
    fn access(&mut self, _access: &WarpAccess<'_>) {}
    /// All threads of `block` that take part have arrived at barrier `id`.
    fn barrier(&mut self, _block: u64, _id: u32) {}
}

/// No checks: the first violation is a device fault.
#[derive(Debug, Default)]
pub struct Unchecked {
    pub first: Option<Violation>,
}

impl Observer for Unchecked {
    const STRICT: bool = false;
    const EVENTS: bool = false;

    fn violation(&mut self, violation: &Violation) -> Reaction {
        self.first.get_or_insert_with(|| violation.clone());
        Reaction::EndLaunch
    }
}
