//! The `extern "C"` entry points of `libcuda.so`.
