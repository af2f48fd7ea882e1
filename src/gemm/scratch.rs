//! Device memory by name that stays from case to case: an allocation and a free cost
//! more than the work on most cases, and each waits for the device.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;

use crate::device::{Buffer, Device, DeviceError};

/// Below this a buffer gets a quarter more than asked for, so that it seldom grows.
const ROOMY: u64 = 1 << 30;

#[derive(Default)]
pub struct Scratch {
    slots: RefCell<BTreeMap<&'static str, Slot>>,
    case: Cell<u64>,
}

struct Slot {
    buffer: Buffer<u8>,
    case: u64,
}

impl Scratch {
    /// What earlier cases took may go if memory runs out.
    pub fn next_case(&self) {
        self.case.set(self.case.get() + 1);
    }

    /// The address of at least `bytes` bytes. What they hold is whatever was there;
    /// asked for again by the same name it is the same memory, unless it had to grow.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] when nothing of an earlier case is left to free.
    pub fn take(
        &self,
        device: &Device,
        name: &'static str,
        bytes: u64,
    ) -> Result<u64, DeviceError> {
        let mut slots = self.slots.borrow_mut();
        let case = self.case.get();
        if let Some(slot) = slots.get_mut(name) {
            if slot.buffer.bytes() as u64 >= bytes {
                slot.case = case;
                return Ok(slot.buffer.address());
            }
            // A launch may still be reading it.
            device.synchronize()?;
            slots.remove(name);
        }
        let size = |bytes: u64| {
            usize::try_from(bytes).map_err(|_| DeviceError::OutOfMemory { bytes: usize::MAX })
        };
        let roomy = if bytes < ROOMY { bytes / 4 + 256 } else { 0 };
        let buffer = match device.uninitialised::<u8>(size(bytes + roomy)?) {
            Err(DeviceError::OutOfMemory { .. }) => {
                device.synchronize()?;
                slots.retain(|_, slot| slot.case == case);
                device.uninitialised::<u8>(size(bytes.max(1))?)?
            }
            other => other?,
        };
        let address = buffer.address();
        slots.insert(name, Slot { buffer, case });
        Ok(address)
    }

    /// [`Scratch::take`], holding `data`.
    pub fn upload(
        &self,
        device: &Device,
        name: &'static str,
        data: &[u8],
    ) -> Result<u64, DeviceError> {
        let address = self.take(device, name, data.len() as u64)?;
        if let Some(slot) = self.slots.borrow_mut().get_mut(name) {
            slot.buffer.upload_range(0, data)?;
        }
        Ok(address)
    }

    /// Bytes of what was taken, after all launches before.
    pub fn download(&self, name: &'static str, range: Range<u64>) -> Result<Vec<u8>, DeviceError> {
        let slots = self.slots.borrow();
        let slot = slots.get(name).ok_or_else(|| DeviceError::BadRequest {
            message: format!("no memory was taken by the name `{name}`"),
        })?;
        let at = |x: u64| usize::try_from(x).unwrap_or(usize::MAX);
        slot.buffer.download_range(at(range.start)..at(range.end))
    }
}

/// Little-endian words of downloaded bytes.
pub fn words(bytes: &[u8]) -> Vec<u64> {
    bytes
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("chunks of eight")))
        .collect()
}

/// The same as numbers.
pub fn doubles(bytes: &[u8]) -> Vec<f64> {
    words(bytes).into_iter().map(f64::from_bits).collect()
}

/// The bytes of words.
pub fn bytes(words: impl IntoIterator<Item = u64>) -> Vec<u8> {
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}
