//! Checks for GPU kernels that are able to fail.
//!
//! The parts, in the order a test uses them:
//!
//! | module | answers |
//! |---|---|
//! | [`inputs`] | what do we feed the kernel, and is every sum of it exact? |
//! | [`ladder`] | at which sizes does a wrong kernel show? |
//! | [`poison`] | did the kernel write its output at all? |
//! | [`oracle`] | what is the right answer, computed in a way the kernel does not share? |
//! | [`tolerance`] | how much rounding does the kernel's arithmetic explain? |
//! | [`check`] | is every element inside its gate? |
//! | [`property`] | what must hold without knowing the right answer? |
//! | [`verdict`] | pass, fail or skipped, as a value |
//! | [`claims`] | what does a lesson or a program state about all of that? |
//!
//! # Why no check here is a `debug_assert!`
//!
//! `debug_assert!` compiles to nothing when `debug_assertions` are off, and
//! `cargo run --release` turns them off. A suite built on it passes every kernel
//! in the one build that CI and users run: the check is not slow there, it is
//! gone. C++ has the same trap with `assert` and `NDEBUG`. So every check in
//! this library is an ordinary branch that returns a [`Verdict`], and the exit
//! code of a program is computed from those values. `assert!` would survive
//! `--release`, but it ends the program at the first failure, names no gate, and
//! exits 101, which no table of exit codes explains.

pub mod check;
pub mod claims;
pub mod figures;
pub mod inputs;
pub mod ladder;
pub mod oracle;
pub mod poison;
pub mod property;
pub mod tolerance;
pub mod verdict;

pub use check::{Check, Gate, Outcome};
pub use claims::Claims;
pub use verdict::Verdict;
