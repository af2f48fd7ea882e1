//! What the lesson programs do; the programs themselves parse, call, print, exit.

pub mod reduction;
pub mod suite;
pub mod testing;
