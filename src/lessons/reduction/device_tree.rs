//! `blockTreeSum` on a device.

use super::launch::{BlockTree, THREADS};
use crate::device::{Device, DeviceError, Launch, Module};
use crate::kernels;

/// A device with the reduction kernel loaded.
pub struct DeviceTree {
    // Before the device: a module is unloaded while its context lives.
    module: Module,
    device: Device,
}

impl DeviceTree {
    /// Opens the device and loads `kernels/reduce.cu`.
    ///
    /// # Errors
    /// [`DeviceError`] when there is no device or it rejects the kernel.
    pub fn open() -> Result<Self, DeviceError> {
        let device = Device::open()?;
        let module = device.load(&kernels::REDUCE)?;
        Ok(Self { module, device })
    }
}

impl BlockTree for DeviceTree {
    fn partials(&mut self, input: &[f32], blocks: usize) -> Result<Vec<f32>, DeviceError> {
        let too_many = |_| DeviceError::BadRequest {
            message: format!("a grid holds at most {} blocks, not {blocks}", u32::MAX),
        };
        let grid = u32::try_from(blocks).map_err(too_many)?;
        let elements = self.device.upload(input)?;
        let partials = self.device.poisoned::<f32>(blocks)?;
        let n = input.len() as u64;
        self.module.kernel("blockTreeSum")?.launch(
            Launch::linear(grid, THREADS as u32),
            &[&elements, &partials, &n],
        )?;
        self.device.synchronize()?;
        partials.download()
    }

    fn banner(&self) -> String {
        self.device.banner()
    }
}
