//! The compiled kernels of `kernels/`, one module a file.

/// One compiled `.cu` file.
#[derive(Debug, Clone, Copy)]
pub struct KernelModule {
    /// File name without its extension, such as `reduce`.
    pub name: &'static str,
    /// PTX text, NUL-free.
    pub ptx: &'static str,
    /// The `.target` of the PTX, such as `sm_75`: the oldest device it runs on.
    pub target: &'static str,
    /// The `.version` of the PTX (major, minor): the oldest driver it loads in.
    pub least_isa: (u32, u32),
}

macro_rules! module {
    ($name:literal) => {
        KernelModule {
            name: $name,
            ptx: include_str!(concat!("../kernels/ptx/", $name, ".ptx")),
            target: "sm_75",
            least_isa: (8, 0),
        }
    };
}

pub const REDUCE: KernelModule = module!("reduce");
pub const SQUARE: KernelModule = module!("square");
pub const ADJACENT_DIFFERENCE: KernelModule = module!("adjacent_difference");
pub const WINDOW_SUM: KernelModule = module!("window_sum");
