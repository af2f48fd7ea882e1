//! A CUDA driver that runs PTX on the CPU.
//!
//! Folder by folder, in the order a launch meets them:
//! [`api`] (the `extern "C"` entry points), [`ptx`] (text to syntax tree),
//! [`program`] (syntax tree to typed operations), [`machine`] (memory, warps,
//! schedule), [`check`] (observers, findings, reports).

pub mod api;
pub mod check;
pub mod machine;
pub mod profile;
pub mod program;
pub mod ptx;
pub mod settings;

/// Marks the library as kernelgate's: a program that finds some `libcuda.so` can
/// tell whose it is without starting it. The value counts changes of meaning.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static kernelgate_cpu_driver: u32 = 1;

/// Operations executed so far in this process, each counted once for every active
/// lane. For `kernelgate bench`, which reports the speed of this driver in them.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static kernelgate_thread_instructions: std::sync::atomic::AtomicU64 =
    std::sync::atomic::AtomicU64::new(0);
