//! Stream-ordered allocation and memory pools.
//!
//! An address is handed out at the call, since it has to be; the free is
//! ordered on its stream. A pool here owns no reserve: freed memory is free.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::code::Code;
use super::context::current;
use super::driver::driver;
use super::ffi::{In, Out, Outcome, plain};
use super::guard::{entries, refused_free};
use super::handles::{Handle, Registry, fresh};
use super::stream::{per_thread, resolve};
use super::work::Work;
use crate::check::session::Session;
use crate::machine::memory::{AllocationKind, Memory, MemoryError, Request};

pub struct Pool {
    pub handle: Handle,
    device: u32,
    /// 0 for no limit.
    most: u64,
    used: AtomicU64,
    used_high: AtomicU64,
    /// Reuse policies (1 to 3) and the release threshold (4).
    settings: Mutex<BTreeMap<u32, u64>>,
}

static POOLS: Registry<Pool> = Registry::new();

/// Which pool an address came from, and how much it counts there.
static OWNERS: Mutex<BTreeMap<u64, (Arc<Pool>, u64)>> = Mutex::new(BTreeMap::new());

fn owners() -> MutexGuard<'static, BTreeMap<u64, (Arc<Pool>, u64)>> {
    OWNERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Addresses whose free has been called and has not had its turn.
static FREEING: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

fn freeing() -> MutexGuard<'static, BTreeSet<u64>> {
    FREEING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The pool that a device starts with, and the one it uses now.
pub struct DevicePools {
    default: Arc<Pool>,
    current: Mutex<Arc<Pool>>,
}

impl DevicePools {
    pub fn new(device: u32) -> Self {
        let default = Pool::new(device, 0);
        DevicePools {
            current: Mutex::new(Arc::clone(&default)),
            default,
        }
    }

    fn current(&self) -> MutexGuard<'_, Arc<Pool>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    fn new(device: u32, most: u64) -> Arc<Pool> {
        let pool = Arc::new(Pool {
            handle: fresh(),
            device,
            most,
            used: AtomicU64::new(0),
            used_high: AtomicU64::new(0),
            settings: Mutex::new(BTreeMap::from([(1, 1), (2, 1), (3, 1), (4, 0)])),
        });
        POOLS.insert(pool.handle, Arc::clone(&pool));
        pool
    }

    /// Counts `bytes` in, unless that passes the pool's limit.
    fn admit(&self, bytes: u64) -> Outcome {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if self.most != 0 && used > self.most {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            return Err(Code::OUT_OF_MEMORY);
        }
        self.used_high.fetch_max(used, Ordering::Relaxed);
        Ok(())
    }

    fn settings(&self) -> MutexGuard<'_, BTreeMap<u32, u64>> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pool that a pointer's attribute names.
pub fn pool_of(address: u64) -> Option<Handle> {
    owners().get(&address).map(|(pool, _)| pool.handle)
}

fn allocate(out: Out<u64>, bytes: usize, pool: Option<Handle>, stream: Handle) -> Outcome {
    let stream = resolve(stream)?;
    let driver = driver()?;
    if out.is_null() || bytes == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let pool = match pool {
        Some(handle) => POOLS.get(handle)?,
        None => Arc::clone(&driver.device(stream.context.device as i32)?.pools.current()),
    };
    let bytes = bytes as u64;
    pool.admit(bytes)?;
    let mut request = Request::new(AllocationKind::Pool, bytes, stream.context.handle);
    request.device = pool.device;
    let taken = driver.memory.allocate(request);
    let address = match taken {
        Ok(allocation) => {
            if let Some(session) = Session::global() {
                session.allocated(&allocation);
            }
            allocation.base
        }
        Err(error) => {
            pool.used.fetch_sub(bytes, Ordering::Relaxed);
            return Err(error.into());
        }
    };
    owners().insert(address, (pool, bytes));
    if let Err(code) = out.set(address) {
        finish_free(&driver.memory, address)?;
        return Err(code);
    }
    Ok(())
}

fn free(address: u64, stream: Handle) -> Outcome {
    let stream = resolve(stream)?;
    let driver = driver()?;
    if address == 0 {
        return Ok(());
    }
    let mut freeing_now = freeing();
    let found = driver.memory.find(address);
    match found {
        Some(found) if found.base == address && !found.kind.is_host() => {
            let is_first = freeing_now.insert(address);
            drop(freeing_now);
            if !is_first {
                return Err(refused_free(MemoryError::DoubleFree {
                    address,
                    bytes: found.bytes,
                }));
            }
            let queued = stream.enqueue_after(&[], Work::Free(address));
            // A captured free has its turn when the graph is launched.
            if !matches!(queued, Ok(Some(_))) {
                freeing().remove(&address);
            }
            queued?;
            if let Some(session) = Session::global() {
                session.freed(&found);
            }
            Ok(())
        }
        Some(_) => Err(Code::INVALID_VALUE),
        // Lets memory name what is wrong (double free, never allocated).
        None => driver.memory.free(address).map(drop).map_err(refused_free),
    }
}

/// The free's turn has come.
pub fn finish_free(memory: &Memory, address: u64) -> Outcome {
    if let Some((pool, bytes)) = owners().remove(&address) {
        pool.used.fetch_sub(bytes, Ordering::Relaxed);
    }
    // Under the lock: no other free may find the address live and not marked.
    let mut freeing = freeing();
    freeing.remove(&address);
    memory.free(address).map(drop).map_err(Code::from)
}

/// Forgets the pool of memory that was freed in another way.
pub fn forget(address: u64) {
    // A lost context never came to the free.
    freeing().remove(&address);
    if let Some((pool, bytes)) = owners().remove(&address) {
        pool.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// `CUmemPoolProps`
#[repr(C)]
#[derive(Clone, Copy)]
struct PoolProps {
    allocation_type: u32,
    handle_types: u32,
    location_type: u32,
    location: i32,
    security: u64,
    most: usize,
    usage: u16,
    reserved: [u8; 54],
}
plain!(PoolProps);

fn create(out: Out<Handle>, props: In<PoolProps>) -> Outcome {
    let driver = driver()?;
    let props = props.get()?;
    // Pinned memory on a device (1, 1) is the only kind that pools are made of.
    if props.allocation_type != 1 || props.location_type != 1 {
        return Err(Code::INVALID_VALUE);
    }
    if props.handle_types != 0 {
        // Sharing with other processes.
        return Err(Code::NOT_SUPPORTED);
    }
    let device = driver.device(props.location)?;
    out.set(Pool::new(device.ordinal, props.most as u64).handle)
}

fn destroy(handle: Handle) -> Outcome {
    let driver = driver()?;
    let pool = POOLS.get(handle)?;
    let pools = &driver.device(pool.device as i32)?.pools;
    if Arc::ptr_eq(&pool, &pools.default) {
        return Err(Code::INVALID_VALUE);
    }
    let mut current = pools.current();
    if Arc::ptr_eq(&pool, &current) {
        *current = Arc::clone(&pools.default);
    }
    POOLS.remove(handle).map(drop)
}

/// Attributes 1 to 3 are 32-bit, the others 64-bit.
fn get_attribute(handle: Handle, attribute: u32, out: Out<u64>) -> Outcome {
    let pool = POOLS.get(handle)?;
    let used = pool.used.load(Ordering::Relaxed);
    match attribute {
        1..=3 => {
            let value = pool.settings()[&attribute] as u32;
            Out(out.0.cast::<u32>()).set(value)
        }
        4 => out.set(pool.settings()[&4]),
        5 | 7 => out.set(used),
        6 | 8 => out.set(pool.used_high.load(Ordering::Relaxed)),
        _ => Err(Code::INVALID_VALUE),
    }
}

fn set_attribute(handle: Handle, attribute: u32, value: In<u64>) -> Outcome {
    let pool = POOLS.get(handle)?;
    match attribute {
        1..=3 => {
            let value = In(value.0.cast::<u32>()).get()?;
            pool.settings().insert(attribute, u64::from(value != 0));
        }
        4 => {
            pool.settings().insert(4, value.get()?);
        }
        // A high-water mark can only be reset.
        6 | 8 if value.get()? == 0 => {
            let used = pool.used.load(Ordering::Relaxed);
            pool.used_high.store(used, Ordering::Relaxed);
        }
        _ => return Err(Code::INVALID_VALUE),
    }
    Ok(())
}

fn set_device_pool(device: i32, handle: Handle) -> Outcome {
    let device = driver()?.device(device)?;
    let pool = POOLS.get(handle)?;
    if pool.device != device.ordinal {
        return Err(Code::INVALID_DEVICE);
    }
    *device.pools.current() = pool;
    Ok(())
}

fn allocate_from(out: Out<u64>, bytes: usize, pool: Handle, stream: Handle) -> Outcome {
    allocate(out, bytes, Some(pool), stream)
}

entries! {
    cuMemAllocAsync(out: Out<u64>, bytes: usize, stream: Handle) =>
        allocate(out, bytes, None, stream);
    cuMemAllocAsync_ptsz(out: Out<u64>, bytes: usize, stream: Handle) =>
        allocate(out, bytes, None, per_thread(stream));
    cuMemAllocFromPoolAsync(out: Out<u64>, bytes: usize, pool: Handle, stream: Handle) =>
        allocate_from(out, bytes, pool, stream);
    cuMemAllocFromPoolAsync_ptsz(out: Out<u64>, bytes: usize, pool: Handle, stream: Handle) =>
        allocate_from(out, bytes, pool, per_thread(stream));
    cuMemFreeAsync(address: u64, stream: Handle) => free(address, stream);
    cuMemFreeAsync_ptsz(address: u64, stream: Handle) => free(address, per_thread(stream));
    cuMemPoolCreate(out: Out<Handle>, props: In<PoolProps>) => create(out, props);
    cuMemPoolDestroy(pool: Handle) => destroy(pool);
    cuMemPoolGetAttribute(pool: Handle, attribute: u32, out: Out<u64>) =>
        get_attribute(pool, attribute, out);
    cuMemPoolSetAttribute(pool: Handle, attribute: u32, value: In<u64>) =>
        set_attribute(pool, attribute, value);
    cuMemPoolTrimTo(pool: Handle, _keep: usize) => POOLS.get(pool).map(drop);
    // Every device may use every pool: there is one address space.
    cuMemPoolSetAccess(pool: Handle, _access: u64, _count: usize) => POOLS.get(pool).map(drop);
    cuMemPoolGetAccess(flags: Out<u32>, pool: Handle, _location: u64) => {
        POOLS.get(pool)?;
        flags.set(3)
    };
    cuDeviceGetDefaultMemPool(out: Out<Handle>, device: i32) =>
        out.set(driver()?.device(device)?.pools.default.handle);
    cuDeviceGetMemPool(out: Out<Handle>, device: i32) =>
        out.set(driver()?.device(device)?.pools.current().handle);
    cuDeviceSetMemPool(device: i32, pool: Handle) => {
        current()?;
        set_device_pool(device, pool)
    };
}
