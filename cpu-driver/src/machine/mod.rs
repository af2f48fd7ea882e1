//! The machine: device memory, warps and their schedule.
//!
//! A launch runs blocks ([`block`]), a block its warps ([`warp`]), a warp its
//! splits of lanes through the operations of [`ops`], with registers and all
//! else in reach of a [`context`].

// Lane loops index several rows at once; C's precedence of shifts is meant.
#![allow(clippy::needless_range_loop, clippy::precedence)]

pub mod access;
pub mod block;
pub mod builtin;
pub mod context;
pub mod fill;
pub mod lanes;
pub mod launch;
pub mod listen;
pub mod memory;
pub mod numerics;
pub mod observe;
pub mod ops;
pub mod printf;
pub mod rendezvous;
pub mod warp;
