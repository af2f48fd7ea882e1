//! The only door to cudarc, and so to a GPU or to the CPU driver.
//!
//! Choose a driver ([`choice`]), open it before cudarc's first call (`loader`), then
//! a [`Device`] with its [`Buffer`]s, [`Module`]s and [`Kernel`] launches. No caller
//! asks which driver it is.
//!
//! After a fault the context is lost. From then on no further driver call is made,
//! not even to free: each would fail, and a sanitizer reports each failure as one
//! more error (`memory_bugs` would show 9 instead of 2).

pub mod choice;
pub mod environment;

mod alias;
mod buffer;
mod context;
mod cubin;
mod error;
mod hardware;
mod loader;
mod lt;
mod module;
mod signature;
mod tensor_map;
mod timing;

pub use buffer::{Buffer, Element, POISON};
pub use context::{Device, DeviceInfo};
pub use error::DeviceError;
pub use hardware::Hardware;
pub(crate) use loader::open_as;
pub use loader::{Survey, choose, our_library, survey, thread_instructions};
pub use lt::{Fp8Gemm, Fp64Gemm, Lt, LtError, LtOutput, ScaleMode};
pub use module::{Argument, Kernel, Launch, Module};
pub use tensor_map::TensorMap;
pub use timing::{Event, HostWords};
