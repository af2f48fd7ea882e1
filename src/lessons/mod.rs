//! What the lesson programs do; the programs themselves parse, call, print, exit.

pub mod grade;
pub mod reduction;
pub mod starter;
pub mod suite;
pub mod testing;
