//! The `extern "C"` entry points of `libcuda.so`.
//!
//! `guard` stands in front of every call, `ffi` reads and writes the
//! client's memory, `handles` knows the live objects. A call becomes `work`
//! on a `stream`, and the `scheduler` runs it; or a node of a `graph` while
//! its stream is captured (`capture`). `names` lists every public name; what
//! is not implemented stands in `unsupported`.
//!
//! Private export tables are refused, and nothing here claims to be NVIDIA's.

#![allow(non_snake_case)]

pub mod code;

/// Lets submitted work end, for a sanitized process that leaves without
/// synchronising: what a kernel did wrong must still be found.
pub fn drain(patience: std::time::Duration) {
    if let Ok(driver) = driver::driver() {
        driver.scheduler.drain(patience);
    }
}

mod capture;
mod context;
mod context_info;
mod device;
mod driver;
mod event;
mod ffi;
mod function;
#[cfg(test)]
mod fuzz;
mod graph;
mod graph_edges;
mod graph_nodes;
mod guard;
mod handles;
mod image;
mod init;
mod jit;
mod launch;
mod library;
mod link;
mod memcpy;
mod memory;
mod memset;
mod module;
mod names;
mod occupancy;
mod pointer;
mod pool;
mod proc_address;
mod scheduler;
mod stream;
mod teardown;
mod transfer;
mod unsupported;
mod work;
