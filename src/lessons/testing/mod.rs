//! Lesson: a green suite that certifies a wrong kernel, and one that rejects it.
//!
//! Two suites meet two variants of one launch. The claims state which of the four
//! meetings must be green and which must not; the program exits 0 when all of
//! them hold.

mod claims;
mod one_size;
mod report;
mod suites;

pub use claims::{Observed, observe, state};
pub use one_size::{OneSize, at_size};
pub use report::Report;
pub use suites::{BLIND_AT, GOLDEN_611, hardened, structural_on_the_ladder, supplied};

use super::reduction::{BlockTree, specimens};
use crate::device::DeviceError;

/// Runs the lesson on `tree`.
///
/// # Errors
/// [`DeviceError`] when the device fails under it.
pub fn run(tree: &mut dyn BlockTree) -> Result<Report, DeviceError> {
    let device = tree.banner();
    let drop_tail = observe(&mut specimens::WRONG[0].on(tree))?;
    let guarded = observe(&mut specimens::RIGHT.on(tree))?;
    let claims = state(&drop_tail, &guarded);
    Ok(Report::new(device, drop_tail, guarded, claims))
}
