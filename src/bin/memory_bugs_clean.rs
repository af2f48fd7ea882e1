//! `memory_bugs` with `RUN_BUGGY_PASS` false: the same source, built with the
//! `clean` feature under a name of its own, so that both builds exist side by side
//! and `kernelgate evidence diff` can compare their transcripts.

#[path = "memory_bugs.rs"]
mod memory_bugs;

const _: () = assert!(
    !memory_bugs::RUN_BUGGY_PASS,
    "memory_bugs_clean needs `--features clean`"
);

fn main() -> std::process::ExitCode {
    memory_bugs::main()
}
