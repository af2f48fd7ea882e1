//! Observers, findings and reports.
pub mod config;
