//! Events and host words: what a benchmark needs besides launches.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::{result, sys};

use super::context::{Device, Shared};
use super::error::DeviceError;
use super::module::Argument;

/// A point on the default stream whose time the device records.
pub struct Event {
    shared: Arc<Shared>,
    handle: sys::CUevent,
}

impl Device {
    /// A new event.
    pub fn event(&self) -> Result<Event, DeviceError> {
        self.shared.enter()?;
        let created = result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT);
        Ok(Event {
            shared: Arc::clone(&self.shared),
            handle: self.shared.check("cuEventCreate", created)?,
        })
    }

    /// `count` words of pinned host memory that kernels can read and write, zeroed.
    pub fn host_words(&self, count: usize) -> Result<HostWords, DeviceError> {
        self.shared.enter()?;
        let mut host = std::ptr::null_mut::<c_void>();
        // CU_MEMHOSTALLOC_DEVICEMAP
        const MAPPED: u32 = 2;
        // SAFETY: the call writes one pointer.
        let allocated =
            unsafe { sys::cuMemHostAlloc(&mut host, count.max(1) * size_of::<u32>(), MAPPED) };
        self.shared.check("cuMemHostAlloc", allocated.result())?;
        let mut words = HostWords {
            shared: Arc::clone(&self.shared),
            host: host.cast(),
            count: count.max(1),
            address: 0,
        };
        // SAFETY: `host` is a live mapped allocation; the call writes one address.
        let mapped = unsafe { sys::cuMemHostGetDevicePointer_v2(&mut words.address, host, 0) };
        self.shared
            .check("cuMemHostGetDevicePointer", mapped.result())?;
        for index in 0..words.count {
            words.set(index, 0);
        }
        Ok(words)
    }
}

impl Event {
    /// Records the event behind all that the default stream holds.
    pub fn record(&self) -> Result<(), DeviceError> {
        self.shared.enter()?;
        // SAFETY: a live event of this context, on its default stream.
        let recorded = unsafe { result::event::record(self.handle, std::ptr::null_mut()) };
        self.shared.check("cuEventRecord", recorded)
    }

    /// Microseconds from `self` to `later`, both recorded and reached.
    pub fn microseconds_to(&self, later: &Event) -> Result<f64, DeviceError> {
        self.shared.enter()?;
        // SAFETY: two live events of the same context.
        let elapsed = unsafe { result::event::elapsed(self.handle, later.handle) };
        let milliseconds = self.shared.check("cuEventElapsedTime", elapsed)?;
        Ok(f64::from(milliseconds) * 1e3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.shared.enter().is_ok() {
            // SAFETY: this event owns the handle and is gone after this.
            let destroyed = unsafe { result::event::destroy(self.handle) };
            let _ = self.shared.check("cuEventDestroy", destroyed);
        }
    }
}

/// Words of host memory that a running kernel sees change.
pub struct HostWords {
    shared: Arc<Shared>,
    host: *mut u32,
    count: usize,
    address: sys::CUdeviceptr,
}

impl HostWords {
    /// Stores word `index`; a running kernel reads it from then on.
    pub fn set(&self, index: usize, value: u32) {
        assert!(index < self.count, "word {index} of {}", self.count);
        // SAFETY: inside the allocation; volatile, because the device looks on.
        unsafe { self.host.add(index).write_volatile(value) }
    }

    /// Loads word `index`.
    pub fn get(&self, index: usize) -> u32 {
        assert!(index < self.count, "word {index} of {}", self.count);
        // SAFETY: inside the allocation; volatile, because the device writes too.
        unsafe { self.host.add(index).read_volatile() }
    }
}

impl Argument for HostWords {
    fn bytes(&self) -> *mut c_void {
        std::ptr::from_ref(&self.address).cast_mut().cast()
    }
    fn size(&self) -> usize {
        size_of::<sys::CUdeviceptr>()
    }
}

impl Drop for HostWords {
    fn drop(&mut self) {
        if self.shared.enter().is_ok() {
            // SAFETY: this value owns the allocation and is gone after this.
            let freed = unsafe { sys::cuMemFreeHost(self.host.cast()) };
            let _ = self.shared.check("cuMemFreeHost", freed.result());
        }
    }
}
