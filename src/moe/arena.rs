//! Device buffers that live from iteration to iteration and grow when they must.

use anyhow::Result;

use crate::device::{Buffer, Device, Element};

/// A buffer that is reused. What an iteration leaves in it, the next one finds.
pub struct Slot<T: Element> {
    buffer: Option<Buffer<T>>,
}

impl<T: Element> Default for Slot<T> {
    fn default() -> Slot<T> {
        Slot { buffer: None }
    }
}

impl<T: Element> Slot<T> {
    /// At least `len` elements, and never none.
    pub fn reserve(&mut self, device: &Device, len: usize) -> Result<&mut Buffer<T>> {
        let enough = self.buffer.as_ref().is_some_and(|b| b.len() >= len);
        if !enough {
            // The old one first: both may not fit.
            self.buffer = None;
            self.buffer = Some(device.poisoned(len.max(1))?);
        }
        self.get()
    }

    /// The buffer, which [`Slot::reserve`] has made.
    pub fn get(&mut self) -> Result<&mut Buffer<T>> {
        self.buffer
            .as_mut()
            .ok_or_else(|| anyhow::anyhow!("a buffer is used before it is made"))
    }

    pub fn address(&self) -> u64 {
        self.buffer.as_ref().map_or(0, Buffer::address)
    }

    /// Replaces the first elements.
    pub fn fill(&mut self, device: &Device, host: &[T]) -> Result<()> {
        let buffer = self.reserve(device, host.len())?;
        if !host.is_empty() {
            buffer.upload_range(0, host)?;
        }
        Ok(())
    }

    /// The first `len` elements; fewer than were reserved.
    pub fn read(&self, len: usize) -> Result<Vec<T>> {
        match &self.buffer {
            Some(buffer) if len > 0 => Ok(buffer.download_range(0..len)?),
            _ if len == 0 => Ok(Vec::new()),
            _ => anyhow::bail!("a buffer is read before it is made"),
        }
    }

    /// Overwrites everything with poison.
    pub fn poison(&mut self) -> Result<()> {
        if let Some(buffer) = &mut self.buffer {
            buffer.poison()?;
        }
        Ok(())
    }
}
