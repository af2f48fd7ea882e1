//! Observers, findings and reports.
//!
//! [`session`] is the process-wide state of a sanitized run, made from the
//! configuration ([`config`]) that `kernelgate sanitize` puts into the
//! environment. [`memcheck`] listens to a launch and turns violations into
//! findings ([`finding`]); text is made in `text` alone, files and totals in
//! [`report`].

pub mod config;
pub mod filter;
pub mod finding;
pub mod host_stack;
pub mod memcheck;
pub mod report;
pub mod session;
mod text;
mod xml;
