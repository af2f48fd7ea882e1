//! Transcripts of every documented command, and the means to doubt them.
//!
//! | module | answers |
//! |---|---|
//! | [`plan`] | which commands are documented, and what must each of them do? |
//! | [`lessons`], [`measured`] | the commands |
//! | [`report`] | what does a sanitizer's text say? |
//! | [`assess`] | did a run do what the plan says? |
//! | [`transcript`] | how is a run kept? |
//! | [`normalise`] | which differences between two runs mean nothing? |
//! | [`kept`] | which lines of a command that prints times must stay? |
//! | [`run`] | one command, with its output and exit code |
//! | [`machine`] | whose device and driver is it? |
//! | [`session`] | record all, verify all |
//! | [`diff`] | do the shipped and the clean build differ in the planted findings alone? |

pub mod assess;
pub mod diff;
pub mod kept;
pub mod lessons;
pub mod machine;
pub mod measured;
pub mod normalise;
pub mod plan;
pub mod report;
pub mod run;
pub mod session;
pub mod transcript;
