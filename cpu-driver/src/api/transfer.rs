//! The copy and fill engine: rows of bytes between device and host memory.
//!
//! A range that the driver knows (device, pinned, registered, managed) is
//! reached through [`Memory`]; any other host address is the client's pageable
//! memory and is copied fault-safely (see [`super::ffi`]).

use std::sync::Arc;

use super::code::Code;
use super::driver::driver;
use super::ffi::{Outcome, peek, poke};
use super::stream::Stream;
use super::work::Work;
use crate::machine::memory::Memory;

/// Pageable sources up to this size are copied at the call, so that the call
/// need not wait for the stream; larger ones wait, as hardware's staging does.
const STAGED: u64 = 64 << 10;

/// One side of a copy: rows at `address + y × pitch + z × slice`.
#[derive(Debug, Clone, Copy)]
pub struct Rows {
    pub address: u64,
    pub pitch: u64,
    pub slice: u64,
    /// Memory that the driver does not know.
    pageable: bool,
}

impl Rows {
    pub fn new(memory: &Memory, address: u64, pitch: u64, slice: u64) -> Rows {
        let known = memory.is_device_address(address) || memory.find(address).is_some();
        Rows {
            address,
            pitch,
            slice,
            pageable: !known,
        }
    }

    fn row(&self, y: u64, z: u64) -> u64 {
        self.address
            .wrapping_add(y.wrapping_mul(self.pitch))
            .wrapping_add(z.wrapping_mul(self.slice))
    }
}

#[derive(Debug, Clone)]
pub struct Transfer {
    pub from: Rows,
    pub to: Rows,
    pub width: u64,
    pub height: u64,
    pub depth: u64,
    /// The source's bytes, taken at the call.
    staged: Option<Arc<Vec<u8>>>,
}

/// Bytes from the first to behind the last.
fn extent(rows: &Rows, width: u64, height: u64, depth: u64) -> Option<u64> {
    let slices = rows.slice.checked_mul(depth.checked_sub(1)?)?;
    let lines = rows.pitch.checked_mul(height.checked_sub(1)?)?;
    slices.checked_add(lines)?.checked_add(width)
}

/// # Errors
/// `INVALID_VALUE` where the rows are not inside one live allocation.
fn check_known(memory: &Memory, rows: &Rows, extent: Option<u64>) -> Outcome {
    let extent = extent.ok_or(Code::INVALID_VALUE)?;
    if rows.pageable {
        return Ok(());
    }
    let found = memory.host_pointer(rows.address, extent);
    found.map(drop).map_err(|_| Code::INVALID_VALUE)
}

impl Transfer {
    pub fn linear(memory: &Memory, to: u64, from: u64, bytes: u64) -> Transfer {
        Transfer::boxed(
            Rows::new(memory, from, bytes, bytes),
            Rows::new(memory, to, bytes, bytes),
            [bytes, 1, 1],
        )
    }

    pub fn boxed(from: Rows, to: Rows, [width, height, depth]: [u64; 3]) -> Transfer {
        let mut transfer = Transfer {
            from,
            to,
            width,
            height,
            depth,
            staged: None,
        };
        transfer.merge_rows();
        transfer
    }

    /// Rows without gaps are one row.
    fn merge_rows(&mut self) {
        let dense = self.from.pitch == self.width && self.to.pitch == self.width;
        if dense
            && self.depth == 1
            && self.height > 1
            && let Some(width) = self.width.checked_mul(self.height)
        {
            (self.width, self.height) = (width, 1);
        }
    }

    fn is_empty(&self) -> bool {
        self.width == 0 || self.height == 0 || self.depth == 0
    }

    fn check(&self, memory: &Memory) -> Outcome {
        for rows in [&self.from, &self.to] {
            let extent = extent(rows, self.width, self.height, self.depth);
            check_known(memory, rows, extent)?;
        }
        Ok(())
    }

    /// Submits the copy. `blocking` returns when it is done.
    ///
    /// # Errors
    /// `INVALID_VALUE` for ranges that are not there.
    pub fn submit(mut self, stream: &Stream, blocking: bool) -> Outcome {
        let driver = driver()?;
        stream.context.check()?;
        if self.is_empty() {
            return Ok(());
        }
        self.check(&driver.memory)?;
        let pageable = self.from.pageable || self.to.pageable;
        if super::capture::mark(stream).is_some() {
            return stream.enqueue(Work::Transfer(self));
        }
        let bytes = self.width.saturating_mul(self.height);
        let small = bytes <= STAGED && self.depth == 1;
        if self.from.pageable && !self.to.pageable && !blocking && small {
            self.stage()?;
            return stream.enqueue(Work::Transfer(self));
        }
        if pageable || blocking {
            stream.synchronize()?;
            return self.run(&driver.memory);
        }
        stream.enqueue(Work::Transfer(self))
    }

    fn stage(&mut self) -> Outcome {
        let mut bytes = vec![0; (self.width * self.height) as usize];
        for (y, row) in bytes.chunks_exact_mut(self.width as usize).enumerate() {
            // SAFETY: `row` is writable for its length.
            unsafe { peek(self.from.row(y as u64, 0), row.as_mut_ptr(), row.len())? };
        }
        self.staged = Some(Arc::new(bytes));
        Ok(())
    }

    pub fn run(&self, memory: &Memory) -> Outcome {
        if let Some(bytes) = &self.staged {
            for (y, row) in bytes.chunks_exact(self.width as usize).enumerate() {
                let written = memory.write(self.to.row(y as u64, 0), row);
                written.map_err(|_| Code::INVALID_VALUE)?;
            }
            return Ok(());
        }
        for z in 0..self.depth {
            for y in 0..self.height {
                self.copy_row(memory, self.to.row(y, z), self.from.row(y, z))?;
            }
        }
        Ok(())
    }

    fn copy_row(&self, memory: &Memory, to: u64, from: u64) -> Outcome {
        let bytes = self.width as usize;
        let known = |address| {
            let pointer = memory.host_pointer(address, self.width);
            pointer.map_err(|_| Code::INVALID_VALUE)
        };
        match (self.to.pageable, self.from.pageable) {
            (false, false) => {
                let copied = memory.copy(to, from, self.width);
                copied.map_err(|_| Code::INVALID_VALUE)
            }
            // SAFETY: `host_pointer` gives memory that is live for the length;
            // the client must not free it while a copy of its own runs.
            (false, true) => unsafe { peek(from, known(to)?, bytes) },
            // SAFETY: as above, for reading.
            (true, false) => unsafe { poke(to, known(from)?, bytes) },
            (true, true) => copy_pageable(to, from, bytes),
        }
    }
}

/// Host to host, neither side known.
fn copy_pageable(to: u64, from: u64, bytes: usize) -> Outcome {
    let mut buffer = vec![0_u8; bytes.min(1 << 20)];
    let mut done = 0;
    while done < bytes {
        let step = (bytes - done).min(buffer.len());
        // SAFETY: the buffer holds `step` bytes.
        unsafe {
            peek(from + done as u64, buffer.as_mut_ptr(), step)?;
            poke(to + done as u64, buffer.as_ptr(), step)?;
        }
        done += step;
    }
    Ok(())
}

/// `height` rows of `width` copies of a pattern.
#[derive(Debug, Clone)]
pub struct Fill {
    pub to: u64,
    /// 1, 2 or 4 bytes.
    pub pattern: Vec<u8>,
    pub width: u64,
    pub height: u64,
    pub pitch: u64,
}

impl Fill {
    /// # Errors
    /// `INVALID_VALUE` for an address that is not aligned to the pattern or rows
    /// that are not inside one live allocation.
    pub fn submit(self, stream: &Stream, blocking: bool) -> Outcome {
        let driver = driver()?;
        stream.context.check()?;
        if self.width == 0 || self.height == 0 {
            return Ok(());
        }
        let unit = self.pattern.len() as u64;
        if !self.to.is_multiple_of(unit) || (self.height > 1 && !self.pitch.is_multiple_of(unit)) {
            return Err(Code::INVALID_VALUE);
        }
        let bytes = self.width.checked_mul(unit).ok_or(Code::INVALID_VALUE)?;
        let rows = Rows {
            address: self.to,
            pitch: self.pitch,
            slice: 0,
            pageable: false,
        };
        check_known(&driver.memory, &rows, extent(&rows, bytes, self.height, 1))?;
        if blocking && super::capture::mark(stream).is_none() {
            stream.synchronize()?;
            return self.run(&driver.memory);
        }
        stream.enqueue(Work::Fill(self))
    }

    pub fn run(&self, memory: &Memory) -> Outcome {
        for y in 0..self.height {
            let row = self.to.wrapping_add(y.wrapping_mul(self.pitch));
            let filled = memory.fill(row, &self.pattern, self.width);
            filled.map_err(|_| Code::INVALID_VALUE)?;
        }
        Ok(())
    }
}
