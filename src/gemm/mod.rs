//! The GEMM harness: kernels under test, their reference, gate and planted faults.
