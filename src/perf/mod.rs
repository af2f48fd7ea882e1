//! Benchmarks that a review cannot take apart.
//!
//! A [`workload`] is launched under the [`stopwatch`], in the rounds of [`measure`],
//! and becomes a [`record`] held against [`peaks`] and [`roofline`]. Records are
//! saved as a [`baseline`] and judged by [`compare`], whose statistics are in
//! [`stats`]. [`stream`] and [`gemm`], checked by [`tiles`], are the workloads that
//! are built in, [`cases`] the list of them. [`speed`] is for the CPU driver.

pub mod baseline;
pub mod cases;
pub mod code_cache;
pub mod compare;
pub mod gemm;
pub mod html;
pub mod inputs;
pub mod measure;
pub mod peaks;
pub mod plot;
pub mod record;
pub mod roofline;
pub mod spark;
pub mod speed;
pub mod stats;
pub mod stopwatch;
pub mod stream;
pub mod telemetry;
pub mod tiles;
pub mod workload;

pub use stopwatch::bench;
