//! The thing under test in the testing lessons: a launch together with its kernel.
//!
//! The kernel is `blockTreeSum`, unchanged in every variant. The variants differ
//! in the host code that decides how many blocks to launch, and a test that looks
//! at the kernel alone cannot see that. So the trait [`Sum`] spans both.
//!
//! The kernel itself runs behind [`BlockTree`]: on a device ([`DeviceTree`]), or
//! as a simulation on the host that adds in the same order ([`HostTree`]), so that
//! suites, claims and the grader are tested without a device.

mod device_tree;
mod host_tree;
mod launch;
pub mod specimens;

pub use device_tree::DeviceTree;
pub use host_tree::HostTree;
pub use launch::{BlockTree, Launch, LaunchError, Sum, THREADS, drop_tail, guarded};

use crate::device::DeviceError;

/// The device, or the host-side stand-in where the user asks for it. Never the one
/// in place of the other.
///
/// # Errors
/// [`DeviceError`] when a device is asked for and there is none.
pub fn open(stand_in: bool) -> Result<Box<dyn BlockTree>, DeviceError> {
    if stand_in {
        Ok(Box::new(HostTree))
    } else {
        Ok(Box::new(DeviceTree::open()?))
    }
}
