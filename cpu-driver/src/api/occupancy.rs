//! Occupancy: how many blocks of a function a multiprocessor holds, by the
//! device's published limits. Register use is an estimate, since nothing here
//! allocates hardware registers.

use super::code::Code;
use super::ffi::{Out, Outcome};
use super::function::{self, Function};
use super::guard::entries;
use super::handles::Handle;
use super::launch::Shape;

const MULTIPROCESSORS: i32 = 16;
const THREADS_PER_SM: i32 = 39;
const SHARED_PER_SM: i32 = 81;
const REGISTERS_PER_SM: i32 = 82;
const BLOCKS_PER_SM: i32 = 106;
const RESERVED_SHARED: i32 = 111;
const MAX_THREADS: i32 = 1;

fn limit(function: &Function, number: i32) -> u64 {
    u64::try_from(function.profile.attribute(number).unwrap_or(0)).unwrap_or(0)
}

/// Blocks of `threads` threads and `shared` dynamic bytes that one
/// multiprocessor holds at once.
fn blocks_per_sm(function: &Function, threads: u64, shared: u64) -> u64 {
    let most = function.kernel.max_threads.into();
    if threads == 0 || threads > most || threads > limit(function, MAX_THREADS) {
        return 0;
    }
    // Hardware gives out whole warps, and registers in units of 256 a warp.
    let warps = threads.div_ceil(32);
    let by_threads = limit(function, THREADS_PER_SM) / (warps * 32);
    let a_warp = (u64::from(function.registers()).max(1) * 32).next_multiple_of(256);
    let by_registers = limit(function, REGISTERS_PER_SM) / (a_warp * warps);
    let used = u64::from(function.kernel.static_shared) + shared;
    let used = (used + limit(function, RESERVED_SHARED)).next_multiple_of(128);
    let by_shared = limit(function, SHARED_PER_SM).checked_div(used);
    let by_blocks = limit(function, BLOCKS_PER_SM);
    by_threads
        .min(by_registers)
        .min(by_shared.unwrap_or(u64::MAX))
        .min(by_blocks)
}

/// Blocks that the whole device holds at once.
pub fn resident_blocks(function: &Function, shape: &Shape) -> u64 {
    let threads = shape.block.iter().map(|&n| u64::from(n)).product();
    blocks_per_sm(function, threads, shape.shared.into()) * limit(function, MULTIPROCESSORS)
}

fn active_blocks(out: Out<i32>, function: Handle, threads: i32, shared: usize) -> Outcome {
    let function = function::find(function)?;
    let threads = u64::try_from(threads).map_err(|_| Code::INVALID_VALUE)?;
    if threads == 0 {
        return Err(Code::INVALID_VALUE);
    }
    out.set(blocks_per_sm(&function, threads, shared as u64) as i32)
}

/// Bytes of shared memory a block needs at a block size; the client's own.
type SharedOf = Option<extern "C" fn(i32) -> usize>;

fn best_block(
    grid: Out<i32>,
    block: Out<i32>,
    function: Handle,
    shared_of: SharedOf,
    shared: usize,
    most: i32,
) -> Outcome {
    let function = function::find(function)?;
    let device = limit(&function, MAX_THREADS).min(function.kernel.max_threads.into());
    let most = match most {
        0 => device,
        1.. => device.min(most as u64),
        _ => return Err(Code::INVALID_VALUE),
    };
    // The largest size among those that keep most threads resident.
    let mut best = (0, 0, 0);
    for threads in (1..=most.div_ceil(32))
        .rev()
        .map(|warps| (warps * 32).min(most))
    {
        let bytes = shared_of.map_or(shared, |shared_of| shared_of(threads as i32));
        let blocks = blocks_per_sm(&function, threads, bytes as u64);
        if blocks * threads > best.0 {
            best = (blocks * threads, blocks, threads);
        }
    }
    grid.set((best.1 * limit(&function, MULTIPROCESSORS)) as i32)?;
    block.set(best.2 as i32)
}

fn dynamic_shared(out: Out<usize>, function: Handle, blocks: i32, threads: i32) -> Outcome {
    let function = function::find(function)?;
    if blocks <= 0 || threads <= 0 {
        return Err(Code::INVALID_VALUE);
    }
    let fixed = u64::from(function.kernel.static_shared) + limit(&function, RESERVED_SHARED);
    let share = limit(&function, SHARED_PER_SM) / blocks as u64;
    let most = function.most_dynamic_shared() as u64;
    let fits = blocks_per_sm(&function, threads as u64, 0) >= blocks as u64;
    let room = share.saturating_sub(fixed).min(most);
    out.set(if fits { room as usize } else { 0 })
}

entries! {
    cuOccupancyMaxActiveBlocksPerMultiprocessor(
        out: Out<i32>, function: Handle, threads: i32, shared: usize,
    ) => active_blocks(out, function, threads, shared);
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        out: Out<i32>, function: Handle, threads: i32, shared: usize, _flags: u32,
    ) => active_blocks(out, function, threads, shared);
    cuOccupancyMaxPotentialBlockSize(
        grid: Out<i32>, block: Out<i32>, function: Handle, shared_of: SharedOf, shared: usize,
        most: i32,
    ) => best_block(grid, block, function, shared_of, shared, most);
    cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: Out<i32>, block: Out<i32>, function: Handle, shared_of: SharedOf, shared: usize,
        most: i32, _flags: u32,
    ) => best_block(grid, block, function, shared_of, shared, most);
    cuOccupancyAvailableDynamicSMemPerBlock(
        out: Out<usize>, function: Handle, blocks: i32, threads: i32,
    ) => dynamic_shared(out, function, blocks, threads);
}
