//! Findings: what a sanitized run has to say, as values. Their text is made in
//! `text` alone.

use serde::Serialize;

use super::host_stack::HostStack;
use crate::machine::memory::{AllocationKind, Nearest, Relation};
use crate::machine::observe::{
    AccessKind, HeapError, HeapErrorKind, Site, Violation, ViolationKind,
};
use crate::ptx::ast::StateSpace;

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Finding {
    /// A kernel's access that must not happen.
    Access(Access),
    /// `malloc` and `free` in a kernel.
    Heap(Heap),
    /// A driver call that returned an error.
    Api(ApiCall),
    /// An allocation that nothing freed.
    Leak(Leak),
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Access {
    pub problem: Problem,
    pub space: &'static str,
    pub access: &'static str,
    pub size: u32,
    pub address: u64,
    pub place: Place,
    pub nearest: Option<Neighbour>,
    /// Where the host launched the kernel.
    pub launched: HostStack,
    /// Where the host freed the memory, for a use after free.
    pub freed: Option<HostStack>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Problem {
    OutOfBounds,
    UseAfterFree,
    Misaligned,
    HostPointer,
    ReadOnly,
}

/// A thread at an instruction.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Place {
    pub kernel: String,
    pub function: String,
    /// Our own numbering (PTX has no machine addresses).
    pub offset: u32,
    pub instruction: String,
    pub ptx_line: u32,
    /// Innermost first; the outer ones are call sites of inlined functions.
    pub frames: Vec<SourceFrame>,
    pub thread: [u32; 3],
    pub block: [u32; 3],
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SourceFrame {
    pub function: String,
    pub file: String,
    pub line: u32,
}

/// The allocation closest to an address.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Neighbour {
    pub base: u64,
    pub bytes: u64,
    pub freed: bool,
    pub distance: Distance,
}

/// The first byte past the end is one byte after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Distance {
    Before(u64),
    Inside(u64),
    After(u64),
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Heap {
    pub problem: HeapProblem,
    pub address: u64,
    pub place: Place,
    pub launched: HostStack,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HeapProblem {
    DoubleFree,
    InvalidFree,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ApiCall {
    pub function: String,
    pub code: u32,
    /// `CUDA_ERROR_LAUNCH_FAILED`
    pub name: String,
    /// `unspecified launch failure`
    pub description: String,
    pub bad_free: Option<BadFree>,
    pub called: HostStack,
}

/// Why a free was refused.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BadFree {
    pub problem: HeapProblem,
    pub address: u64,
    pub nearest: Option<Neighbour>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Leak {
    pub base: u64,
    pub bytes: u64,
    /// Made by `malloc` in a kernel.
    pub device_heap: bool,
    pub allocated: HostStack,
}

impl Finding {
    /// Equal for the same finding in every run: no address (but offsets in
    /// shared and local memory), no host frame, no order.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        fnv1a(&self.identity())
    }

    fn identity(&self) -> String {
        match self {
            Self::Access(access) => {
                let offset = match access.space {
                    "shared" | "local" => Some(access.address),
                    _ => None,
                };
                let near = access
                    .nearest
                    .as_ref()
                    .map(|near| (near.bytes, near.freed, near.distance));
                format!(
                    "{:?} {} {} {} {offset:?} {near:?} {}",
                    access.problem,
                    access.space,
                    access.access,
                    access.size,
                    access.place.identity()
                )
            }
            Self::Heap(heap) => format!("{:?} {}", heap.problem, heap.place.identity()),
            Self::Api(call) => format!(
                "{} {} {:?}",
                call.function,
                call.code,
                call.bad_free.as_ref().map(|free| free.problem)
            ),
            Self::Leak(leak) => format!("leak {} {}", leak.bytes, leak.device_heap),
        }
    }
}

/// 64-bit FNV-1a (Fowler, Noll, Vo): the standard hasher promises no stability.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

impl Access {
    /// A violation with what the memory knows about its address.
    #[must_use]
    pub fn new(violation: &Violation, nearest: Option<&Nearest>, launched: HostStack) -> Self {
        Self {
            problem: match violation.kind {
                ViolationKind::OutOfBounds => Problem::OutOfBounds,
                ViolationKind::UseAfterFree => Problem::UseAfterFree,
                ViolationKind::Misaligned => Problem::Misaligned,
                ViolationKind::HostPointer => Problem::HostPointer,
                ViolationKind::ReadOnly => Problem::ReadOnly,
            },
            space: match violation.space {
                StateSpace::Global | StateSpace::Register => "global",
                StateSpace::Const => "constant",
                StateSpace::Shared => "shared",
                StateSpace::Local => "local",
                StateSpace::Param => "param",
            },
            access: match violation.access {
                AccessKind::Read => "read",
                AccessKind::Write => "write",
                AccessKind::Atomic => "atomic",
            },
            size: violation.size,
            address: violation.address,
            place: Place::new(
                &violation.kernel,
                &violation.site,
                violation.thread,
                violation.block,
            ),
            nearest: nearest.map(Neighbour::new),
            launched,
            freed: None,
        }
    }
}

impl Heap {
    #[must_use]
    pub fn new(error: &HeapError, launched: HostStack) -> Self {
        Self {
            problem: match error.kind {
                HeapErrorKind::DoubleFree => HeapProblem::DoubleFree,
                HeapErrorKind::InvalidFree => HeapProblem::InvalidFree,
            },
            address: error.address,
            place: Place::new(&error.kernel, &error.site, error.thread, error.block),
            launched,
        }
    }
}

impl Place {
    fn new(kernel: &str, site: &Site, thread: [u32; 3], block: [u32; 3]) -> Self {
        let frames = site.frames.iter().map(|frame| SourceFrame {
            function: demangled(frame.function.as_deref().unwrap_or(&site.function)),
            file: frame.file.clone(),
            line: frame.line,
        });
        Self {
            kernel: kernel.to_owned(),
            function: demangled(&site.function),
            offset: site.offset,
            instruction: site.instruction.clone(),
            ptx_line: site.ptx_line,
            frames: frames.collect(),
            thread,
            block,
        }
    }

    fn identity(&self) -> String {
        format!(
            "{} {} {:#x} {:?} {:?}",
            self.kernel, self.function, self.offset, self.thread, self.block
        )
    }
}

impl Neighbour {
    #[must_use]
    pub fn new(nearest: &Nearest) -> Self {
        Self {
            base: nearest.allocation.base,
            bytes: nearest.allocation.bytes,
            freed: nearest.allocation.freed,
            distance: match nearest.relation {
                Relation::Before(distance) => Distance::Before(distance),
                Relation::Inside(offset) => Distance::Inside(offset),
                Relation::After(distance) => Distance::After(distance),
            },
        }
    }
}

/// Do allocations of this kind count as leaks? Host memory does not, nor do a
/// module's variables, which go with their context.
#[must_use]
pub fn can_leak(kind: AllocationKind) -> bool {
    matches!(
        kind,
        AllocationKind::Device
            | AllocationKind::Pool
            | AllocationKind::Managed
            | AllocationKind::DeviceHeap
    )
}

/// `_Z3addPfi` as `add(float*, int)`; other names stay: `f` is a name, though
/// the demangler would read it as the type `float`.
fn demangled(name: &str) -> String {
    if !name.starts_with("_Z") {
        return name.to_owned();
    }
    cpp_demangle::Symbol::new(name)
        .ok()
        .and_then(|symbol| symbol.demangle().ok())
        .unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mangled_names_are_demangled() {
        assert_eq!(demangled("_Z3addPfi"), "add(float*, int)");
        for plain in ["f", "Pi", "v", "rd", "_Z", "_Zz", "Z3addPfi", ""] {
            assert_eq!(demangled(plain), plain);
        }
    }
}
