//! Arithmetic as the hardware does it, where Rust's own operators differ.

pub mod approximate;
pub mod dot;
pub mod element;
pub mod formats;
pub mod fused;
pub mod half;
pub mod single;
pub mod soft;
