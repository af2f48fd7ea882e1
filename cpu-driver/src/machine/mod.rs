//! The machine: device memory, warps and their schedule.

pub mod launch;
pub mod memory;
pub mod observe;
