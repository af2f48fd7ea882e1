//! The driver's one global state, made by `cuInit`.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

use super::code::Code;
use super::context::Primary;
use super::ffi::Outcome;
use super::guard::note;
use super::scheduler::Scheduler;
use crate::check::session::Session;
use crate::machine::memory::{Memory, MemoryOptions};
use crate::profile::Profile;
use crate::settings::Settings;

/// What `cuDriverGetVersion` reports: CUDA 13.0.
pub const VERSION: i32 = 13000;

pub struct Device {
    pub ordinal: u32,
    pub profile: &'static Profile,
    pub primary: Mutex<Primary>,
    pub pools: super::pool::DevicePools,
}

pub struct Driver {
    pub devices: Vec<Device>,
    pub memory: Memory,
    pub scheduler: Scheduler,
}

static DRIVER: OnceLock<Result<Driver, Code>> = OnceLock::new();

/// The process that called `cuInit` first; 0 before.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Has another process called `cuInit`, of which this one is a fork? The threads
/// of the driver stayed there, and any of its locks may be held for ever.
pub fn is_forked() -> bool {
    let started = PROCESS.load(Ordering::Relaxed);
    started != 0 && started != std::process::id()
}

/// # Errors
/// `NOT_INITIALIZED` before `cuInit`.
pub fn driver() -> Result<&'static Driver, Code> {
    match DRIVER.get() {
        Some(Ok(driver)) => Ok(driver),
        Some(Err(code)) => Err(*code),
        None => Err(Code::NOT_INITIALIZED),
    }
}

impl Driver {
    /// # Errors
    /// `INVALID_DEVICE`
    pub fn device(&self, ordinal: i32) -> Result<&Device, Code> {
        let index = usize::try_from(ordinal).map_err(|_| Code::INVALID_DEVICE)?;
        self.devices.get(index).ok_or(Code::INVALID_DEVICE)
    }
}

/// `cuInit`: reads the environment once.
pub fn start(flags: u32) -> Outcome {
    if flags != 0 {
        return Err(Code::INVALID_VALUE);
    }
    // Before anything is made: a fork in the middle of this finds a lock held.
    let own = std::process::id();
    let _ = PROCESS.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed);
    let driver = DRIVER.get_or_init(make).as_ref().map_err(|code| *code)?;
    if let Some(session) = Session::global() {
        session.attach(&driver.memory);
        session.reached_cuda();
    }
    Ok(())
}

fn make() -> Result<Driver, Code> {
    // Not NO_DEVICE: programs take that for a machine without a GPU and carry on.
    let settings = Settings::from_environment().map_err(|error| {
        note(&error.to_string());
        Code::INVALID_VALUE
    })?;
    let count = settings.devices;
    if count == 0 {
        return Err(Code::NO_DEVICE);
    }
    let profile = Profile::of(settings);
    let mut options = memory_options(profile.total_memory);
    options.devices = count;
    let memory = Memory::new(options).map_err(|error| {
        note(&format!("no device memory: {error}"));
        Code::OUT_OF_MEMORY
    })?;
    let devices = (0..count).map(|ordinal| Device {
        ordinal,
        profile,
        primary: Mutex::default(),
        pools: super::pool::DevicePools::new(ordinal),
    });
    Ok(Driver {
        devices: devices.collect(),
        memory,
        scheduler: Scheduler::default(),
    })
}

fn memory_options(capacity: u64) -> MemoryOptions {
    match Session::global() {
        Some(session) => session.memory_options(capacity),
        None => MemoryOptions::unchecked(capacity),
    }
}
