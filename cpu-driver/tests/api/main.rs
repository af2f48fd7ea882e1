//! The driver's C API, called in the process as a client calls it.
//!
//! All tests share device 0 and run side by side; what may lose a context makes
//! one of its own.

mod bad_input;
mod graphs;
mod launches;
mod memory;
mod modules;
mod streams;
mod support;
