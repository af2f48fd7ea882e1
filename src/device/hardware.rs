//! What the driver says about the machine, for benchmarks and launch shapes.

use std::ffi::c_char;

use cudarc::driver::sys::{self, CUdevice_attribute};
use serde::Serialize;

use super::context::Device;
use super::error::DeviceError;

/// Sizes of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hardware {
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of L2; 0 where the driver does not say.
    pub l2_bytes: u64,
    /// Bytes of device memory.
    pub memory_bytes: u64,
    /// Peak clock of the multiprocessors in kHz.
    pub clock_khz: u32,
    /// Dynamic shared memory that a block can ask for, in bytes.
    pub shared_bytes: u32,
    /// PCI address, such as `00000000:19:00.0`; NVML finds the device by it.
    pub pci_bus_id: String,
}

impl Device {
    /// Asks the driver for the sizes of this device.
    pub fn hardware(&self) -> Result<Hardware, DeviceError> {
        use CUdevice_attribute::*;
        self.shared.enter()?;
        let context = self.context();
        let attribute = |which| {
            self.shared
                .check("cuDeviceGetAttribute", context.attribute(which))
                .map(|value| u32::try_from(value).unwrap_or(0))
        };
        let mut memory_bytes = 0;
        let mut address = [0 as c_char; 32];
        // SAFETY: the device is that of a live context; each call writes what it is
        // given room for.
        let asked = unsafe {
            sys::cuDeviceTotalMem_v2(&mut memory_bytes, context.cu_device())
                .result()
                .and_then(|()| {
                    sys::cuDeviceGetPCIBusId(
                        address.as_mut_ptr(),
                        address.len() as i32 - 1,
                        context.cu_device(),
                    )
                    .result()
                })
        };
        self.shared.check("cuDeviceGetPCIBusId", asked)?;
        let pci_bus_id = address
            .iter()
            .take_while(|&&c| c != 0)
            .map(|&c| char::from(c as u8))
            .collect();
        Ok(Hardware {
            multiprocessors: attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            l2_bytes: u64::from(attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?),
            memory_bytes: memory_bytes as u64,
            clock_khz: attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?,
            shared_bytes: attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            pci_bus_id,
        })
    }
}
