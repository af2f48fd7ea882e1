//! Plain device, pinned, registered and managed memory.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::code::Code;
use super::context::{Context, current};
use super::driver::driver;
use super::ffi::{Out, Outcome};
use super::guard::{entries, refused_free};
use super::handles::Handle;
use super::stream::per_thread;
use crate::check::session::Session;
use crate::machine::memory::{Allocation, AllocationKind, MemoryError, Request};

impl From<MemoryError> for Code {
    fn from(error: MemoryError) -> Code {
        match error {
            MemoryError::OutOfMemory { .. } | MemoryError::Reservation { .. } => {
                Code::OUT_OF_MEMORY
            }
            MemoryError::AlreadyRegistered { .. } => Code::HOST_MEMORY_ALREADY_REGISTERED,
            MemoryError::NotRegistered { .. } => Code::HOST_MEMORY_NOT_REGISTERED,
            MemoryError::NoDevice { .. } => Code::INVALID_DEVICE,
            _ => Code::INVALID_VALUE,
        }
    }
}

/// Flags that pinned memory was made with, by address.
static HOST_FLAGS: Mutex<BTreeMap<u64, u32>> = Mutex::new(BTreeMap::new());

fn host_flags() -> MutexGuard<'static, BTreeMap<u64, u32>> {
    HOST_FLAGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The live allocation around an address.
///
/// # Errors
/// `INVALID_VALUE`
pub fn known(address: u64) -> Result<Allocation, Code> {
    driver()?.memory.find(address).ok_or(Code::INVALID_VALUE)
}

/// Takes `bytes` of memory for `context`.
pub fn take(context: &Context, kind: AllocationKind, bytes: u64) -> Result<u64, Code> {
    let mut request = Request::new(kind, bytes, context.state.handle);
    request.device = context.state.device;
    let allocation = driver()?.memory.allocate(request)?;
    if let Some(session) = Session::global() {
        session.allocated(&allocation);
    }
    Ok(allocation.base)
}

/// Allocates and hands the address out; gives the memory back where that fails.
fn hand_out(out: Out<u64>, kind: AllocationKind, bytes: usize) -> Outcome {
    let context = current()?;
    super::capture::refuse_while_capturing(context.state.handle)?;
    if out.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let address = take(&context, kind, bytes as u64)?;
    out.set(address).inspect_err(|_| {
        let _ = driver().map(|driver| driver.memory.free(address));
    })
}

/// Rows start at multiples of this, so that every element size coalesces.
const PITCH: usize = 512;

fn pitched(out: Out<u64>, pitch: Out<usize>, width: usize, height: usize, element: u32) -> Outcome {
    if width == 0 || height == 0 || !matches!(element, 4 | 8 | 16) {
        return Err(Code::INVALID_VALUE);
    }
    let row = width.checked_next_multiple_of(PITCH);
    let row = row.ok_or(Code::INVALID_VALUE)?;
    let bytes = row.checked_mul(height).ok_or(Code::OUT_OF_MEMORY)?;
    pitch.set(row)?;
    hand_out(out, AllocationKind::Device, bytes)
}

/// Frees memory of one of `kinds` once nothing that may use it is left to run.
fn release(address: u64, kinds: &[AllocationKind]) -> Outcome {
    let driver = driver()?;
    let context = current()?;
    if address == 0 {
        return Ok(());
    }
    let Some(found) = driver.memory.find(address) else {
        // Lets memory name what is wrong (double free, never allocated).
        return driver.memory.free(address).map(drop).map_err(refused_free);
    };
    if found.base != address {
        return driver.memory.free(address).map(drop).map_err(refused_free);
    }
    if !kinds.contains(&found.kind) {
        return Err(Code::INVALID_VALUE);
    }
    super::capture::refuse_while_capturing(context.state.handle)?;
    let scheduler = &driver.scheduler;
    scheduler.wait(&scheduler.of_context(found.context));
    // Work that was waited for may have lost the context.
    context.state.observe()?;
    let freed = driver.memory.free(address).map_err(refused_free)?;
    if let Some(session) = Session::global() {
        session.freed(&freed);
    }
    host_flags().remove(&address);
    Ok(())
}

const DEVICE_KINDS: &[AllocationKind] = &[
    AllocationKind::Device,
    AllocationKind::Pool,
    AllocationKind::Managed,
];

fn pinned(out: Out<u64>, bytes: usize, flags: u32) -> Outcome {
    // portable | mapped | write-combined
    if flags & !7 != 0 {
        return Err(Code::INVALID_VALUE);
    }
    hand_out(out, AllocationKind::HostPinned, bytes)?;
    host_flags().insert(out.get()?, flags);
    Ok(())
}

/// `CU_MEM_ATTACH_GLOBAL`, `_HOST`, `_SINGLE`
fn managed(out: Out<u64>, bytes: usize, flags: u32) -> Outcome {
    if !matches!(flags, 1 | 2) {
        return Err(Code::INVALID_VALUE);
    }
    hand_out(out, AllocationKind::Managed, bytes)
}

fn register(address: u64, bytes: usize, flags: u32) -> Outcome {
    let context = current()?;
    if bytes == 0 || flags & !15 != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let read_only = flags & 8 != 0;
    let memory = &driver()?.memory;
    memory.register(address, bytes as u64, context.state.handle, read_only)?;
    host_flags().insert(address, flags);
    Ok(())
}

fn unregister(address: u64) -> Outcome {
    let context = current()?;
    let driver = driver()?;
    let scheduler = &driver.scheduler;
    scheduler.wait(&scheduler.of_context(context.state.handle));
    driver.memory.unregister(address)?;
    host_flags().remove(&address);
    Ok(())
}

fn device_pointer(out: Out<u64>, address: u64, flags: u32) -> Outcome {
    current()?;
    let found = known(address)?;
    if flags != 0 || !found.kind.is_host() {
        return Err(Code::INVALID_VALUE);
    }
    out.set(address)
}

fn flags_of(out: Out<u32>, address: u64) -> Outcome {
    current()?;
    let found = host_flags().get(&address).copied();
    // What is page-locked here is always mapped and portable.
    out.set(found.ok_or(Code::INVALID_VALUE)? | 3)
}

fn info(free: Out<usize>, total: Out<usize>) -> Outcome {
    let context = current()?;
    let usage = driver()?.memory.usage(context.state.device);
    free.set(usage.free as usize)?;
    total.set(usage.total as usize)
}

fn address_range(base: Out<u64>, bytes: Out<usize>, address: u64) -> Outcome {
    current()?;
    let found = known(address).map_err(|_| Code::NOT_FOUND)?;
    base.set_if_wanted(found.base)?;
    bytes.set_if_wanted(found.bytes as usize)
}

/// Memory is where it is: advice and prefetches only check their range.
fn advise(address: u64, bytes: usize) -> Outcome {
    current()?;
    let found = known(address)?;
    let end = address.checked_add(bytes as u64);
    match found.kind {
        kind if kind.is_managed() && end.is_some_and(|end| end <= found.range().end) => Ok(()),
        _ => Err(Code::INVALID_VALUE),
    }
}

fn prefetch(address: u64, bytes: usize, stream: super::handles::Handle) -> Outcome {
    advise(address, bytes)?;
    super::stream::resolve(stream)?.enqueue(super::work::Work::Nothing)
}

entries! {
    cuMemAlloc_v2(out: Out<u64>, bytes: usize) => hand_out(out, AllocationKind::Device, bytes);
    cuMemAllocPitch_v2(out: Out<u64>, pitch: Out<usize>, width: usize, height: usize, element: u32)
        => pitched(out, pitch, width, height, element);
    cuMemFree_v2(address: u64) => release(address, DEVICE_KINDS);
    cuMemAllocHost_v2(out: Out<u64>, bytes: usize) => pinned(out, bytes, 0);
    cuMemHostAlloc(out: Out<u64>, bytes: usize, flags: u32) => pinned(out, bytes, flags);
    cuMemFreeHost(address: u64) => release(address, &[AllocationKind::HostPinned]);
    cuMemAllocManaged(out: Out<u64>, bytes: usize, flags: u32) => managed(out, bytes, flags);
    cuMemHostRegister(address: u64, bytes: usize, flags: u32) => register(address, bytes, flags);
    cuMemHostRegister_v2(address: u64, bytes: usize, flags: u32) => register(address, bytes, flags);
    cuMemHostUnregister(address: u64) => unregister(address);
    cuMemHostGetDevicePointer_v2(out: Out<u64>, address: u64, flags: u32) =>
        device_pointer(out, address, flags);
    cuMemHostGetFlags(out: Out<u32>, address: u64) => flags_of(out, address);
    cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) => info(free, total);
    cuMemGetAddressRange_v2(base: Out<u64>, bytes: Out<usize>, address: u64) =>
        address_range(base, bytes, address);
    cuMemAdvise(address: u64, bytes: usize, _advice: u32, _device: i32) => advise(address, bytes);
    // The location is eight bytes, passed in one register.
    cuMemAdvise_v2(address: u64, bytes: usize, _advice: u32, _location: u64) =>
        advise(address, bytes);
    cuMemPrefetchAsync(address: u64, bytes: usize, _device: i32, stream: Handle) =>
        prefetch(address, bytes, stream);
    cuMemPrefetchAsync_ptsz(address: u64, bytes: usize, _device: i32, stream: Handle) =>
        prefetch(address, bytes, per_thread(stream));
    cuMemPrefetchAsync_v2(
        address: u64, bytes: usize, _location: u64, _flags: u32, stream: Handle,
    ) => prefetch(address, bytes, stream);
    cuMemPrefetchAsync_v2_ptsz(
        address: u64, bytes: usize, _location: u64, _flags: u32, stream: Handle,
    ) => prefetch(address, bytes, per_thread(stream));
}
