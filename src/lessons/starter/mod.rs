//! What stands behind the starter exercise: its command line and its trial run.
//!
//! The student's file holds tests and one expression of grid arithmetic, nothing
//! else. [`main`] runs the tests on the student's own launch; for the grader it
//! runs them on every launch of the catalogue ([`trial`]).

mod command;
pub mod trial;

pub use command::main;

use super::suite::Test;

/// What a student hands in.
#[derive(Clone)]
pub struct Exercise {
    /// The suite.
    pub tests: Vec<Test>,
    /// The grid arithmetic: elements to blocks.
    pub blocks_for: fn(usize) -> usize,
}
