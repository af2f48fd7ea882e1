//! Low-precision number formats and quantisation recipes.
//!
//! Everything here is host code written for obvious correctness: the kernels
//! under test decode and scale on their own, and share nothing with it.

pub mod minifloat;
pub mod output;
pub mod recipe;
pub mod ue8m0;

pub use minifloat::{E2M1, E4M3, E5M2, Minifloat, Ties};
pub use output::OutputType;
pub use recipe::{Granularity, Quantised, Recipe, RecipeError, ScaleFormat};
