//! Tests for GPU kernels that are able to fail.
pub mod kernels;
