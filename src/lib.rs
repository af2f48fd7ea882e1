//! Tests for GPU kernels that are able to fail.
pub mod children;
pub mod device;
pub mod evidence;
pub mod exit;
pub mod forms;
pub mod gemm;
pub mod harness;
pub mod kernels;
pub mod lessons;
pub mod lowp;
pub mod moe;
pub mod output;
pub mod perf;
