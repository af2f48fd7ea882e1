//! The driver's C API, called in the process as a client calls it.
//!
//! All tests share device 0 and run side by side; what may lose a context makes
//! one of its own.

// The names and the argument lists are the API's.
#![allow(non_snake_case, clippy::too_many_arguments)]

mod bad_input;
mod graphs;
mod launches;
mod limits;
mod memory;
mod modules;
mod streams;
mod support;
