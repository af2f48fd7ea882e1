//! Device memory with an owner.

use std::marker::PhantomData;
use std::sync::Arc;

use cudarc::driver::{result, sys};

use super::context::{Device, Shared};
use super::error::DeviceError;

/// A plain number that may be copied to and from a device byte by byte.
///
/// # Safety
/// Every bit pattern of `size_of::<Self>()` bytes is a value, and there is no
/// padding.
pub unsafe trait Element: Copy + Default + Send + 'static {}

macro_rules! elements {
    ($($t:ty),*) => { $(
        // SAFETY: a primitive number has no padding and no invalid bit pattern.
        unsafe impl Element for $t {}
    )* };
}
elements!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

/// The byte that [`Buffer::poison`] writes. Four or eight of them are a NaN, and so
/// is one as an E4M3 or E5M2 number; as an unsigned integer they are the largest.
pub const POISON: u8 = 0xFF;

/// `len` elements of device memory from `cuMemAlloc`.
///
/// Freed on drop, on failing paths too, so that a leak report names real leaks
/// only. The exception is a lost context: a free would fail, and a sanitizer would
/// report the failure.
pub struct Buffer<T: Element> {
    shared: Arc<Shared>,
    address: sys::CUdeviceptr,
    len: usize,
    element: PhantomData<T>,
}

impl Device {
    /// A buffer of `len` elements, poisoned: a kernel that never ran leaves
    /// [`POISON`] behind, which is no right answer.
    pub fn poisoned<T: Element>(&self, len: usize) -> Result<Buffer<T>, DeviceError> {
        let mut buffer = self.uninitialised(len)?;
        buffer.poison()?;
        Ok(buffer)
    }

    /// A buffer that holds a copy of `host`.
    pub fn upload<T: Element>(&self, host: &[T]) -> Result<Buffer<T>, DeviceError> {
        let mut buffer = self.uninitialised(host.len())?;
        buffer.upload(host)?;
        Ok(buffer)
    }

    /// A buffer that nothing has written. What it holds is whatever was there.
    ///
    /// # Errors
    /// [`DeviceError::BadRequest`] for no elements or more bytes than a `usize`
    /// holds; [`DeviceError::OutOfMemory`] when the device has no room.
    pub fn uninitialised<T: Element>(&self, len: usize) -> Result<Buffer<T>, DeviceError> {
        let bytes = len
            .checked_mul(size_of::<T>())
            .filter(|&bytes| bytes > 0)
            .ok_or_else(|| DeviceError::BadRequest {
                message: format!(
                    "a buffer needs at least one element and fewer bytes than a usize counts; \
                     {len} elements of {} bytes were asked for",
                    size_of::<T>()
                ),
            })?;
        self.shared.enter()?;
        // SAFETY: the context is current. Nothing reads the memory as `T` before it
        // is copied out, and every bit pattern is a `T`.
        let address = match unsafe { result::malloc_sync(bytes) } {
            Err(error) if error.0 as u32 == 2 => return Err(DeviceError::OutOfMemory { bytes }),
            other => self.shared.check("cuMemAlloc", other)?,
        };
        Ok(Buffer {
            shared: Arc::clone(&self.shared),
            address,
            len,
            element: PhantomData,
        })
    }
}

impl<T: Element> Buffer<T> {
    /// Number of elements, at least 1.
    #[allow(clippy::len_without_is_empty)] // never empty
    pub fn len(&self) -> usize {
        self.len
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// The device address, for libraries that take one.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Where the address is kept: what a launch takes for a pointer parameter.
    pub(super) fn address_of_address(&self) -> *mut std::ffi::c_void {
        std::ptr::from_ref(&self.address).cast_mut().cast()
    }

    /// Fills the buffer with [`POISON`].
    pub fn poison(&mut self) -> Result<(), DeviceError> {
        self.shared.enter()?;
        // SAFETY: the range is this buffer's own.
        let done = unsafe { result::memset_d8_sync(self.address, POISON, self.bytes()) };
        self.shared.check("cuMemsetD8", done)
    }

    /// Enqueues a copy of all of `from` on the default stream, by the driver's own
    /// means. Lengths must match.
    pub fn enqueue_copy(&self, from: &Buffer<T>) -> Result<(), DeviceError> {
        if from.len != self.len {
            return Err(DeviceError::BadRequest {
                message: format!(
                    "a buffer of {} elements was given {} to copy",
                    self.len, from.len
                ),
            });
        }
        self.shared.enter()?;
        // SAFETY: two live buffers of the same size. Like a kernel that writes to a
        // buffer, the copy changes device memory that no Rust reference points to.
        let done = unsafe {
            result::memcpy_dtod_async(
                self.address,
                from.address,
                self.bytes(),
                std::ptr::null_mut(),
            )
        };
        self.shared.check("cuMemcpyDtoDAsync", done)
    }

    /// Copies `host` in. Lengths must match.
    pub fn upload(&mut self, host: &[T]) -> Result<(), DeviceError> {
        if host.len() != self.len {
            return Err(DeviceError::BadRequest {
                message: format!(
                    "a buffer of {} elements was given {} to upload",
                    self.len,
                    host.len()
                ),
            });
        }
        self.shared.enter()?;
        // SAFETY: both ranges have the same size, checked above.
        let done = unsafe { result::memcpy_htod_sync(self.address, host) };
        self.shared.check("cuMemcpyHtoD", done)
    }

    /// Copies all elements out, after the launches before it.
    pub fn download(&self) -> Result<Vec<T>, DeviceError> {
        self.shared.enter()?;
        let mut host = vec![T::default(); self.len];
        // SAFETY: both ranges have the same size, and any bit pattern is a `T`.
        let done = unsafe { result::memcpy_dtoh_sync(&mut host, self.address) };
        self.shared.check("cuMemcpyDtoH", done)?;
        Ok(host)
    }

    /// Copies the elements of `range` out.
    pub fn download_range(&self, range: std::ops::Range<usize>) -> Result<Vec<T>, DeviceError> {
        if range.start > range.end || range.end > self.len {
            return Err(DeviceError::BadRequest {
                message: format!(
                    "elements {}..{} of a buffer of {} were asked for",
                    range.start, range.end, self.len
                ),
            });
        }
        self.shared.enter()?;
        let mut host = vec![T::default(); range.len()];
        if host.is_empty() {
            return Ok(host);
        }
        let from = self.address + (range.start * size_of::<T>()) as u64;
        // SAFETY: the range is inside the buffer, and any bit pattern is a `T`.
        let done = unsafe { result::memcpy_dtoh_sync(&mut host, from) };
        self.shared.check("cuMemcpyDtoH", done)?;
        Ok(host)
    }

    /// Copies `host` to the elements from `start` on.
    pub fn upload_range(&mut self, start: usize, host: &[T]) -> Result<(), DeviceError> {
        if start
            .checked_add(host.len())
            .is_none_or(|end| end > self.len)
        {
            return Err(DeviceError::BadRequest {
                message: format!(
                    "{} elements were to be written from element {start} of a buffer of {}",
                    host.len(),
                    self.len
                ),
            });
        }
        if host.is_empty() {
            return Ok(());
        }
        self.shared.enter()?;
        let to = self.address + (start * size_of::<T>()) as u64;
        // SAFETY: the range is inside the buffer, checked above.
        let done = unsafe { result::memcpy_htod_sync(to, host) };
        self.shared.check("cuMemcpyHtoD", done)
    }

    /// Gives the memory up without freeing it, and returns its address, which a
    /// launch takes like the buffer. The context can still be released: only the
    /// allocation stays behind. This is how `memory_bugs` plants its leak.
    pub fn leak(mut self) -> u64 {
        std::mem::take(&mut self.address)
    }
}

impl<T: Element> Drop for Buffer<T> {
    fn drop(&mut self) {
        if self.address == 0 || self.shared.enter().is_err() {
            return;
        }
        // SAFETY: this buffer owns the address and is gone after this.
        let freed = unsafe { result::free_sync(self.address) };
        // A fault of an unfinished launch can surface here; `check` remembers it,
        // and the next call says `Lost`. A destructor has nobody to tell.
        let _ = self.shared.check("cuMemFree", freed);
    }
}
