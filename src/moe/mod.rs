//! A low-precision mixture-of-experts layer across ranks, and the checks that name
//! the rank, expert and token where coordination went wrong.
//!
//! [`layer`] is what is tested: it runs on a device, rank by rank, over a
//! [`collective`]. [`oracle`] judges it: data movement bit for bit against tokens
//! that it generates itself, arithmetic within the bound of the GEMM harness.
//! [`fault`] plants what ranks get wrong in practice. The ranks of a job meet at a
//! [`hub`]: threads of one process, or processes.

mod arena;
pub mod bench;
pub mod case;
pub mod check;
pub mod collective;
pub mod fault;
pub mod finding;
pub mod generate;
pub mod hub;
pub mod job;
pub mod launch;
pub mod layer;
pub mod nccl;
pub mod oracle;
pub mod plan;
pub mod scoreboard;
pub mod shape;
pub mod steer;
pub mod threads;
pub mod weights;
pub mod world;
