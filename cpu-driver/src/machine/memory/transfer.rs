//! What the host does to device memory: copies and fills, each inside one live
//! allocation.
//!
//! The table stays read-locked meanwhile, so that no concurrent free takes the
//! memory away. The bytes themselves are shared with running kernels: like on
//! hardware, a copy that races with a kernel sees any mixture, and so every
//! copy goes through raw pointers, never through a reference.

use std::ptr;

use super::host::pointer;
use super::table::Table;
use super::{DevicePtr, Memory, MemoryError};

impl Memory {
    /// Copies from the device into `bytes`.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`]
    pub fn read(&self, from: DevicePtr, bytes: &mut [u8]) -> Result<(), MemoryError> {
        let table = self.read_table();
        let source = self.whole(&table, from, bytes.len() as u64)?;
        // SAFETY: the source is live for the whole length while the table is
        // locked; a `&mut` slice cannot lie in device memory unless the caller
        // made it from managed memory, hence `copy`.
        unsafe { ptr::copy(source, bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    /// Copies `bytes` to the device.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`]
    pub fn write(&self, to: DevicePtr, bytes: &[u8]) -> Result<(), MemoryError> {
        let table = self.read_table();
        let target = self.whole(&table, to, bytes.len() as u64)?;
        // SAFETY: as in `read`, the other way round.
        unsafe { ptr::copy(bytes.as_ptr(), target, bytes.len()) };
        Ok(())
    }

    /// Copies inside device memory; the ranges may overlap.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`] for either range.
    pub fn copy(&self, to: DevicePtr, from: DevicePtr, bytes: u64) -> Result<(), MemoryError> {
        let table = self.read_table();
        let source = self.whole(&table, from, bytes)?;
        let target = self.whole(&table, to, bytes)?;
        // SAFETY: both ranges are live while the table is locked.
        unsafe { ptr::copy(source, target, bytes as usize) };
        Ok(())
    }

    /// Writes `pattern` (1, 2 or 4 bytes) `count` times.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`]; [`MemoryError::Alignment`] where `to` is no
    /// multiple of the pattern's length.
    pub fn fill(&self, to: DevicePtr, pattern: &[u8], count: u64) -> Result<(), MemoryError> {
        let width = pattern.len() as u64;
        if width == 0 || !to.is_multiple_of(width) {
            return Err(MemoryError::Alignment { align: width });
        }
        let bytes = count.saturating_mul(width);
        let table = self.read_table();
        let target = self.whole(&table, to, bytes)?;
        if pattern.iter().all(|&byte| byte == pattern[0]) {
            // SAFETY: the range is live while the table is locked.
            unsafe { ptr::write_bytes(target, pattern[0], bytes as usize) };
            return Ok(());
        }
        for index in 0..count as usize {
            // SAFETY: `index * width + width <= bytes`, which is live.
            unsafe {
                ptr::copy_nonoverlapping(
                    pattern.as_ptr(),
                    target.add(index * pattern.len()),
                    pattern.len(),
                );
            }
        }
        Ok(())
    }

    /// Fills a range that nobody uses yet with zeros. Whole pages of device
    /// memory are given back to the system instead of written: a large variable
    /// of a module costs neither time nor memory before it is touched.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`]
    pub fn clear(&self, at: DevicePtr, bytes: u64) -> Result<(), MemoryError> {
        let is_host = self.find(at).is_some_and(|found| found.kind.is_host());
        let inner = super::pages::whole(at, at.saturating_add(bytes));
        if is_host || inner.is_empty() {
            return self.fill(at, &[0], bytes);
        }
        let table = self.read_table();
        self.whole(&table, at, bytes)?;
        drop(table);
        self.fill(at, &[0], inner.start - at)?;
        super::pages::give_back(&self.layout, &inner);
        self.fill(inner.end, &[0], at + bytes - inner.end)
    }

    /// The host pointer behind a range that lies inside one live allocation,
    /// for copies that the caller makes itself. It stays valid until the
    /// allocation is freed.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`]
    pub fn host_pointer(&self, at: DevicePtr, bytes: u64) -> Result<*mut u8, MemoryError> {
        self.whole(&self.read_table(), at, bytes)
    }

    fn whole(&self, table: &Table, at: DevicePtr, bytes: u64) -> Result<*mut u8, MemoryError> {
        if bytes == 0 {
            // Moving nothing is legal anywhere, one past the end included.
            return Ok(ptr::NonNull::dangling().as_ptr());
        }
        let inside = table
            .containing(at)
            .filter(|entry| bytes <= entry.allocation.range().end - at);
        let Some(entry) = inside else {
            return Err(MemoryError::OutOfBounds {
                address: at,
                bytes,
                nearest: table.nearest(at),
            });
        };
        Ok(if entry.allocation.kind.is_host() {
            pointer(at)
        } else {
            self.layout.backing(at)
        })
    }
}
