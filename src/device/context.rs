//! A device, its context and its banner.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::sys::{self, CUdevice_attribute};
use cudarc::driver::{CudaContext, DriverError, result};
use serde::Serialize;

use super::choice::{Choice, Driver, shown};
use super::error::{DeviceError, is_fault};
use super::{environment, loader};

/// What a transcript or a `--json` document says about the device.
#[derive(Debug, Clone, Serialize)]
pub struct DeviceInfo {
    /// The name that the driver gives, such as `NVIDIA H200`.
    pub name: String,
    /// Compute capability (major, minor).
    pub compute_capability: (i32, i32),
    /// Whose driver it is.
    pub driver: Driver,
    /// The CUDA version that the driver serves (major, minor).
    pub driver_cuda: (i32, i32),
    /// The library.
    pub driver_file: String,
    /// Why this driver.
    pub why: String,
}

/// State that buffers and modules share with their device.
pub(super) struct Shared {
    pub(super) context: Arc<CudaContext>,
    lost: AtomicBool,
}

impl Shared {
    /// Makes the context current, unless it is lost.
    pub(super) fn enter(&self) -> Result<(), DeviceError> {
        if self.is_lost() {
            return Err(DeviceError::Lost);
        }
        let bound = self.context.bind_to_thread();
        self.check("cuCtxSetCurrent", bound)
    }

    /// Turns a driver result into ours and remembers a fault.
    pub(super) fn check<T>(
        &self,
        call: &'static str,
        result: Result<T, DriverError>,
    ) -> Result<T, DeviceError> {
        result.map_err(|error| {
            let error = driver_error(call, error);
            if matches!(error, DeviceError::Faulted { .. }) {
                self.lost.store(true, Ordering::Relaxed);
            }
            error
        })
    }

    /// A kernel faulted: no call can succeed, and under a sanitizer each failing
    /// call would be reported as one more error.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }
}

/// One CUDA device with its primary context. The only door to cudarc.
///
/// Buffers and modules keep the context alive; the last of them releases it.
pub struct Device {
    pub(super) shared: Arc<Shared>,
    info: DeviceInfo,
}

impl Device {
    /// Opens device 0 of the driver that `KERNELGATE_DRIVER` asks for.
    ///
    /// # Errors
    /// [`DeviceError::NoDevice`] with complete advice when there is none.
    pub fn open() -> Result<Device, DeviceError> {
        Device::open_ordinal(0)
    }

    /// Opens device `ordinal`.
    pub fn open_ordinal(ordinal: usize) -> Result<Device, DeviceError> {
        let choice = choose_once()?;
        let count = CudaContext::device_count().map_err(|e| driver_error("cuInit", e))?;
        if ordinal >= usize::try_from(count).unwrap_or(0) {
            return Err(DeviceError::NoDevice {
                message: format!("device {ordinal} was asked for, the driver has {count}"),
            });
        }
        let context =
            CudaContext::new(ordinal).map_err(|e| driver_error("cuDevicePrimaryCtxRetain", e))?;
        // SAFETY: this module makes no CudaSlice and uses one stream, so nothing
        // needs the events. With them on, each drop after a fault would make one
        // more failing call.
        unsafe { context.disable_event_tracking() };
        let info = describe(&context, choice)?;
        Ok(Device {
            shared: Arc::new(Shared {
                context,
                lost: AtomicBool::new(false),
            }),
            info,
        })
    }

    /// What is known about the device.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The first line that every binary prints.
    pub fn banner(&self) -> String {
        let info = &self.info;
        format!(
            "device: {} (sm_{}{}); {} for CUDA {}.{}, {}, chosen because {}",
            info.name,
            info.compute_capability.0,
            info.compute_capability.1,
            info.driver.words(),
            info.driver_cuda.0,
            info.driver_cuda.1,
            info.driver_file,
            info.why
        )
    }

    /// Waits for all launches.
    ///
    /// # Errors
    /// [`DeviceError::Faulted`] when one of them faulted; the context is lost then.
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        self.shared.enter()?;
        self.shared
            .check("cuCtxSynchronize", result::ctx::synchronize())
    }

    /// Whether a fault has taken the context away.
    pub fn is_lost(&self) -> bool {
        self.shared.is_lost()
    }

    /// The cudarc context, for streams, events and libraries that `device` does not
    /// wrap.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.shared.context
    }
}

/// The choice stands for the whole process: cudarc resolves its library once.
fn choose_once() -> Result<&'static Choice, DeviceError> {
    static CHOICE: std::sync::OnceLock<Result<Choice, DeviceError>> = std::sync::OnceLock::new();
    CHOICE
        .get_or_init(|| loader::choose_and_open(&environment::check()?))
        .as_ref()
        .map_err(Clone::clone)
}

fn describe(context: &CudaContext, choice: &Choice) -> Result<DeviceInfo, DeviceError> {
    let attribute = |which| {
        context
            .attribute(which)
            .map_err(|e| driver_error("cuDeviceGetAttribute", e))
    };
    let mut version = 0;
    // SAFETY: the call writes one int.
    unsafe { sys::cuDriverGetVersion(&mut version) }
        .result()
        .map_err(|e| driver_error("cuDriverGetVersion", e))?;
    Ok(DeviceInfo {
        name: context
            .name()
            .map_err(|e| driver_error("cuDeviceGetName", e))?,
        compute_capability: (
            attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        driver: choice.driver,
        driver_cuda: (version / 1000, version % 1000 / 10),
        driver_file: shown(&choice.file),
        why: choice.why.clone(),
    })
}

/// Names a failed call. The name comes from cudarc's own table, so that the driver
/// is not asked again after a fault.
pub(super) fn driver_error(call: &'static str, error: DriverError) -> DeviceError {
    let code = error.0 as u32;
    let name = format!("{:?}", error.0);
    if is_fault(code) {
        DeviceError::Faulted { call, code, name }
    } else {
        DeviceError::Driver { call, code, name }
    }
}
