//! The compiled kernels of `kernels/`, one constant for each file.
//!
//! `build.rs` writes the constants: `kernels/reduce.cu` becomes [`REDUCE`]. The
//! PTX is what nvcc just made of the file, or the checked-in copy of it.

/// One compiled `.cu` file.
#[derive(Debug, Clone, Copy)]
pub struct KernelModule {
    /// File name without its extension, such as `reduce`.
    pub name: &'static str,
    /// PTX text.
    pub ptx: &'static str,
    /// The `.target` of the PTX, such as `sm_75`: the oldest device it runs on.
    pub target: &'static str,
    /// The `.version` of the PTX (major, minor): the oldest driver that loads it.
    pub least_isa: (u32, u32),
}

include!(concat!(env!("OUT_DIR"), "/kernel_modules.rs"));
