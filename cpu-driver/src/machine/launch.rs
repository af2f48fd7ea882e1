//! One launch: a grid of blocks, run to its end or to its first fatal fault.
//!
//! Blocks run in order on the calling thread. Only when a block does nothing
//! but poll (a grid-wide barrier, a flag set by another block) are further
//! blocks started beside it.

use std::collections::VecDeque;

use super::block::{Block, Turn};
use super::context::Grid;
use super::memory::{AllocationKind, Memory, Request};
use super::observe::{Observer, Site};
use crate::program::Kernel;
use crate::program::code::Code;

#[derive(Debug, Clone, PartialEq)]
pub struct LaunchConfig {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub dynamic_shared: u32,
    pub cooperative: bool,
    /// Warp-instructions after which the launch is given up.
    pub instruction_budget: u64,
    /// Bytes of stack that a thread has for calls beyond each function once
    /// (recursion); [`LEAST_STACK`] where less is asked for.
    pub stack: u32,
    /// Owner of what `malloc` in the kernel allocates.
    pub context: u64,
}

/// Why a launch ended early.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// The observer was told; see its findings.
    Memory,
    /// `trap`, a failed device assertion, …
    Trap {
        site: Site,
    },
    Assert {
        site: Site,
        message: String,
    },
    /// The form is not implemented: kernel, instruction, file and line are in
    /// the message.
    Unsupported {
        site: Site,
        message: String,
    },
    /// A thread's calls need more local memory than there is.
    StackOverflow {
        site: Site,
        message: String,
    },
    /// More instructions than the budget allows.
    Budget {
        executed: u64,
        site: Site,
    },
    /// Threads wait for each other and none can go on.
    Deadlock {
        message: String,
    },
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    pub warp_instructions: u64,
    /// Warp-instructions × lanes that execute them.
    pub thread_instructions: u64,
    /// Warps ended by a violation while the launch went on.
    pub killed_warps: u64,
}

/// Blocks that may be under way at once when they poll for each other; a
/// cooperative launch may have all of its blocks under way.
const RESIDENT: usize = 1024;

/// Local memory that a thread can have, as on hardware.
pub const LOCAL_LIMIT: u32 = 512 << 10;

/// Stack for recursion. Hardware gives 1 KiB unless told otherwise, but its
/// frames are not ours: PTX does not say what they hold, so we err to this side.
pub const LEAST_STACK: u32 = 16 << 10;

/// More shared memory than any device has.
const SHARED_LIMIT: u32 = 1 << 20;

/// Runs `kernel` over the whole grid. `params` is the packed parameter buffer
/// in the kernel's own layout ([`Kernel::params`]).
///
/// The caller has checked the shape against the device profile.
///
/// # Errors
/// The fault that ended the launch. Findings of the observer that let the
/// launch go on are no error.
pub fn run<O: Observer>(
    kernel: &Kernel,
    config: &LaunchConfig,
    params: &[u8],
    memory: &Memory,
    observer: &mut O,
) -> Result<Stats, Fault> {
    let blocks = config.grid.iter().map(|n| u64::from(*n)).product::<u64>();
    if blocks == 0 || config.block.contains(&0) {
        return Ok(Stats::default());
    }
    let workspace = Workspace::new(memory, config)?;
    run_grid(kernel, config, params, memory, workspace.address, observer)
}

/// Eight bytes of device memory that the grid barrier of a cooperative launch
/// lives in: their number and the barrier.
struct Workspace<'m> {
    memory: &'m Memory,
    address: u64,
}

impl<'m> Workspace<'m> {
    fn new(memory: &'m Memory, config: &LaunchConfig) -> Result<Self, Fault> {
        if !config.cooperative {
            return Ok(Self { memory, address: 0 });
        }
        let request = Request::new(AllocationKind::Module, 8, config.context);
        let made = memory.allocate(request).and_then(|found| {
            memory
                .write(found.base, &8u64.to_le_bytes())
                .map(|()| found)
        });
        match made {
            Ok(found) => Ok(Self {
                memory,
                address: found.base,
            }),
            Err(error) => Err(Fault::Unsupported {
                site: Site::default(),
                message: format!("no device memory for the barrier of the grid: {error}"),
            }),
        }
    }
}

impl Drop for Workspace<'_> {
    fn drop(&mut self) {
        if self.address != 0 {
            let _ = self.memory.free(self.address);
        }
    }
}

fn run_grid<O: Observer>(
    kernel: &Kernel,
    config: &LaunchConfig,
    params: &[u8],
    memory: &Memory,
    workspace: u64,
    observer: &mut O,
) -> Result<Stats, Fault> {
    let blocks = config.grid.iter().map(|n| u64::from(*n)).product::<u64>();
    let mut stats = Stats::default();
    let code = kernel.code();
    let shared_bytes = kernel.static_shared.saturating_add(config.dynamic_shared);
    refuse_oversize(kernel, code.local_bytes, shared_bytes)?;
    // Parameters are read as whole words: keep them aligned as on the device.
    let mut aligned = vec![0u128; (kernel.param_bytes as usize).max(params.len()).div_ceil(16) + 1];
    let bytes = aligned_bytes(&mut aligned, kernel.param_bytes as usize);
    let given = params.len().min(bytes.len());
    bytes[..given].copy_from_slice(&params[..given]);
    let sites = |operation: u32| kernel.site(operation);
    let grid = Grid {
        code,
        ops: code.ops_for(O::STRICT, O::EVENTS),
        kernel: &kernel.name,
        grid: config.grid,
        block: config.block,
        params: bytes,
        memory,
        view: memory.view(),
        context: config.context,
        dynamic_shared: config.dynamic_shared,
        workspace,
        shared_bytes,
        local_bytes: local_bytes(code, config.stack),
        sites: &sites,
    };
    let mut resident: VecDeque<Block> = VecDeque::new();
    let mut spare = Some(Block::new(&grid));
    let most = if config.cooperative {
        usize::MAX
    } else {
        RESIDENT
    };
    let mut next = 0;
    loop {
        // A new block where one is to spare, or where all others only poll.
        let polling = resident.len();
        if next < blocks && (polling == 0 || (spare.is_none() && polling < most)) {
            let mut block = spare.take().unwrap_or_else(|| Block::new(&grid));
            block.start(&grid, next);
            next += 1;
            resident.push_front(block);
        }
        let Some(mut block) = resident.pop_front() else {
            return Ok(stats);
        };
        match block.run(&grid, observer, &mut stats, config.instruction_budget)? {
            Turn::Done => spare = Some(block),
            Turn::Polling => {
                resident.push_back(block);
                spare = None;
            }
        }
        if stats.warp_instructions > config.instruction_budget {
            return Err(Fault::Budget {
                executed: stats.warp_instructions,
                site: kernel.site(0),
            });
        }
    }
}

/// Bytes of local memory that a thread gets.
fn local_bytes(code: &Code, stack: u32) -> u32 {
    match code.calls_functions {
        false => code.local_bytes,
        true => code
            .local_bytes
            .saturating_add(stack.max(LEAST_STACK))
            .min(LOCAL_LIMIT),
    }
}

/// Sizes that no device could provide, whatever the caller has checked.
fn refuse_oversize(kernel: &Kernel, local: u32, shared: u32) -> Result<(), Fault> {
    let message = if local > LOCAL_LIMIT {
        format!("{local} bytes of local memory a thread, at most {LOCAL_LIMIT} exist")
    } else if shared > SHARED_LIMIT {
        format!("{shared} bytes of shared memory a block, at most {SHARED_LIMIT} exist")
    } else {
        return Ok(());
    };
    Err(Fault::StackOverflow {
        site: kernel.site(0),
        message: format!("{}: the launch needs {message}", kernel.name),
    })
}

fn aligned_bytes(storage: &mut [u128], bytes: usize) -> &mut [u8] {
    // SAFETY: any bytes are valid `u8`s, and the storage is at least this long.
    unsafe { std::slice::from_raw_parts_mut(storage.as_mut_ptr().cast(), bytes) }
}
