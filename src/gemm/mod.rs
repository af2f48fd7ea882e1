//! The GEMM harness: kernels under test, their reference, gate and planted faults.
//!
//! C = A · Bᵀ with A m × k and B n × k, both quantised, both with k contiguous.
//! Path of a case: [`problem`] says what is multiplied, [`inputs`] with what,
//! [`operands`] quantises it, a [`subject`] runs on it through [`runner`], and
//! [`gate`] judges what came back against `reference` within [`bound`].

mod between;
pub mod bound;
pub mod case;
pub mod check;
pub mod cublaslt;
pub mod faults;
pub mod gate;
pub mod inputs;
pub mod large;
pub mod limits;
pub mod mma;
pub mod named;
pub mod operands;
pub mod planted;
pub mod problem;
pub mod reference;
pub mod report;
pub mod rivals;
pub mod runner;
pub mod sampled;
pub mod scoreboard;
pub(crate) mod scratch;
pub mod shapes;
pub mod shrink;
pub mod simt;
pub mod subject;
pub mod wgmma;
