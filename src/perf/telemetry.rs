//! Clock, power, temperature and throttle reasons through NVML.
//!
//! Read right after a sample, when the clock is still what the sample ran at. A
//! machine without NVML is no error: readings are then empty, and whatever needs
//! them says that the clock is unknown.

use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use serde::{Deserialize, Serialize};

/// One look at the device. `None` where NVML does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Reading {
    pub sm_mhz: Option<u32>,
    pub watts: Option<f64>,
    pub celsius: Option<u32>,
    /// Bits of the active throttle reasons.
    pub throttle: Option<u64>,
}

/// What identifies the conditions of a measurement; part of a baseline's key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conditions {
    /// Version of the GPU's driver, such as `580.159`; `unknown` without NVML.
    pub driver: String,
    /// Highest SM clock in MHz.
    pub max_sm_mhz: Option<u32>,
    /// Clock that was asked for with `nvidia-smi -ac`, in MHz.
    pub application_sm_mhz: Option<u32>,
    pub memory_mhz: Option<u32>,
    /// Enforced power limit in milliwatts.
    pub power_limit_mw: Option<u32>,
}

/// An open NVML session, or the reason why there is none.
pub struct Telemetry {
    session: Result<(Nvml, u32), String>,
}

impl Telemetry {
    /// Finds the device by its PCI address.
    pub fn open(pci_bus_id: &str) -> Telemetry {
        Telemetry {
            session: find(pci_bus_id),
        }
    }

    /// Why there are no readings; `None` when there are.
    pub fn absent(&self) -> Option<&str> {
        self.session.as_ref().err().map(String::as_str)
    }

    fn device(&self) -> Option<nvml_wrapper::Device<'_>> {
        let (nvml, index) = self.session.as_ref().ok()?;
        nvml.device_by_index(*index).ok()
    }

    /// One look at the device.
    pub fn read(&self) -> Reading {
        let Some(device) = self.device() else {
            return Reading::default();
        };
        Reading {
            sm_mhz: device.clock_info(Clock::SM).ok(),
            watts: device.power_usage().ok().map(|mw| f64::from(mw) / 1e3),
            celsius: device.temperature(TemperatureSensor::Gpu).ok(),
            throttle: device.current_throttle_reasons().ok().map(|r| r.bits()),
        }
    }

    /// `P0` and the like; `unknown` without NVML.
    pub fn power_state(&self) -> String {
        self.device()
            .and_then(|device| device.performance_state().ok())
            .map_or("unknown".to_owned(), |state| format!("P{}", state.as_c()))
    }

    /// The conditions under which this device measures.
    pub fn conditions(&self) -> Conditions {
        let device = self.device();
        let device = device.as_ref();
        let driver = self
            .session
            .as_ref()
            .ok()
            .and_then(|(nvml, _)| nvml.sys_driver_version().ok());
        Conditions {
            driver: driver.unwrap_or_else(|| "unknown".to_owned()),
            max_sm_mhz: device.and_then(|d| d.max_clock_info(Clock::SM).ok()),
            application_sm_mhz: device.and_then(|d| d.applications_clock(Clock::SM).ok()),
            memory_mhz: device.and_then(|d| d.max_clock_info(Clock::Memory).ok()),
            power_limit_mw: device.and_then(|d| d.enforced_power_limit().ok()),
        }
    }
}

fn find(pci_bus_id: &str) -> Result<(Nvml, u32), String> {
    // The plain name is a link that only development packages install.
    let nvml = Nvml::builder()
        .lib_path("libnvidia-ml.so.1".as_ref())
        .init()
        .or_else(|_| Nvml::init())
        .map_err(|e| format!("NVML did not open: {e}"))?;
    let index = nvml
        .device_by_pci_bus_id(pci_bus_id)
        .and_then(|device| device.index())
        .map_err(|e| format!("NVML does not know the device at {pci_bus_id}: {e}"))?;
    Ok((nvml, index))
}

/// Reasons that change how fast a kernel runs, with the words of the report.
/// Idle is none: a device is idle right after a sample.
const SLOWING: [(ThrottleReasons, &str); 6] = [
    (ThrottleReasons::SW_POWER_CAP, "power cap"),
    (ThrottleReasons::HW_SLOWDOWN, "hardware slowdown"),
    (
        ThrottleReasons::HW_THERMAL_SLOWDOWN,
        "hardware thermal slowdown",
    ),
    (ThrottleReasons::SW_THERMAL_SLOWDOWN, "thermal slowdown"),
    (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "power brake"),
    (ThrottleReasons::SYNC_BOOST, "sync boost"),
];

/// The throttle verdict over samples: `none`, the reasons with the share of samples
/// that showed them, or `unknown`.
pub fn throttle_verdict(bits: &[Option<u64>]) -> String {
    let known: Vec<u64> = bits.iter().filter_map(|b| *b).collect();
    if known.is_empty() {
        return "unknown".to_owned();
    }
    let found: Vec<String> = SLOWING
        .iter()
        .filter_map(|(reason, words)| {
            let count = known.iter().filter(|&&b| b & reason.bits() != 0).count();
            (count > 0).then(|| format!("{words} in {count} of {} samples", known.len()))
        })
        .collect();
    if found.is_empty() {
        "none".to_owned()
    } else {
        found.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_is_no_throttling_and_unknown_is_not_none() {
        let idle = ThrottleReasons::GPU_IDLE.bits();
        let cap = ThrottleReasons::SW_POWER_CAP.bits();
        assert_eq!(throttle_verdict(&[]), "unknown");
        assert_eq!(throttle_verdict(&[None, None]), "unknown");
        assert_eq!(throttle_verdict(&[Some(0), Some(idle)]), "none");
        assert_eq!(
            throttle_verdict(&[Some(cap), Some(0), None, Some(cap | idle)]),
            "power cap in 2 of 3 samples"
        );
    }

    #[test]
    fn without_nvml_there_are_no_readings_but_a_reason() {
        let telemetry = Telemetry::open("ffff:ff:1f.7");
        assert!(telemetry.absent().is_some());
        assert_eq!(telemetry.read(), Reading::default());
        assert_eq!(telemetry.conditions().driver, "unknown");
    }
}
