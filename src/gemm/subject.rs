//! What a kernel under test must offer, and the list of those that are built in.
//!
//! To add your own, implement [`Subject`]: `examples/own_gemm.rs` does it from PTX or
//! a cubin in less than sixty lines. `launch` gets device addresses and may do anything
//! with them: launch a kernel of a [`crate::device::Module`] loaded from PTX or a cubin
//! ([`Device::load_file`] takes either), call a library, or compute in Rust and upload.

use anyhow::Result;

use super::bound::Accumulator;
use super::problem::Problem;
use crate::device::Device;

/// Addresses and offsets of a case's operands on the device.
///
/// Group g's A starts `groups[g].a` bytes after `a`, and so on; see [`Group`].
#[derive(Debug, Clone)]
pub struct DeviceOperands {
    /// Codes: rows × depth bytes a group.
    pub a: u64,
    /// Codes: n × depth bytes a group, or n × ceil(depth / 2) for E2M1.
    pub b: u64,
    /// FP32, one row of scales for each group of rows, depth groups along it.
    pub a_scale: u64,
    pub b_scale: u64,
    /// rows × ldc elements of the output type a group.
    pub c: u64,
    /// The group table itself, eight u64 words a group, on the device.
    pub table: u64,
    /// The group table on the host.
    pub groups: Vec<Group>,
}

/// One line of the group table, in the layout that the kernels read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Group {
    /// Bytes.
    pub a: u64,
    pub b: u64,
    /// Elements.
    pub a_scale: u64,
    pub b_scale: u64,
    pub c: u64,
    pub rows: u64,
    pub depth: u64,
    /// Rows that the group owns, masked ones included.
    pub allocated: u64,
}

impl Group {
    pub fn words(&self) -> [u64; 8] {
        [
            self.a,
            self.b,
            self.a_scale,
            self.b_scale,
            self.c,
            self.rows,
            self.depth,
            self.allocated,
        ]
    }
}

/// What `launch` returns when the device or library has nothing for the problem,
/// which only it can know: the case is Skipped with this reason.
#[derive(Debug)]
pub struct Unsupported(pub String);

impl std::fmt::Display for Unsupported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unsupported {}

/// A kernel under test.
pub trait Subject {
    /// Short name, as `--subject` takes it.
    fn name(&self) -> &str;

    /// Why this subject cannot run `problem`; `None` when it can. The case is then
    /// Skipped with this reason.
    fn refusal(&self, problem: &Problem) -> Option<String>;

    /// What it adds up in: decides the bound.
    fn accumulator(&self, problem: &Problem) -> Accumulator;

    /// Rows and columns of its output tile for `problem`, for reports.
    fn tile(&self, problem: &Problem) -> (usize, usize);

    /// Computes C. May return before the device is done.
    ///
    /// # Errors
    /// [`Unsupported`] skips the case; anything else is a failed case.
    fn launch(&self, device: &Device, problem: &Problem, operands: &DeviceOperands) -> Result<()>;
}
