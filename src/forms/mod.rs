//! The differential set: one tiny PTX file per instruction form, its inputs,
//! and what an H200 answered.
//!
//! `forms/<family>/<name>.ptx` is a kernel in which thread `i` computes case
//! `i`; its header says what goes in and out and how results compare
//! ([`spec`], [`signature`]). The inputs follow from the header alone
//! ([`inputs`]). [`runner`] executes the set on whichever driver is chosen, in
//! child processes, since one fault costs a context. [`recording`] keeps the
//! outputs of one device, [`compare`] holds another's against them. The files
//! are written from [`table`].
//!
//! Limits: inputs are a sample except in the `exhaustive` family; forms whose
//! result depends on the schedule are not in the set.

pub mod compare;
pub mod inputs;
pub mod recording;
pub mod runner;
pub mod signature;
pub mod spec;
pub mod table;
pub mod verify;
mod worker;

pub use worker::work;

/// FNV-1a, 64 bits: names what a recording was made from. Not a defence
/// against anybody, only against stale data.
pub(crate) fn digest(parts: &[&[u8]]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in parts.iter().flat_map(|part| part.iter()) {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash
}
