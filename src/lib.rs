//! Tests for GPU kernels that are able to fail.
