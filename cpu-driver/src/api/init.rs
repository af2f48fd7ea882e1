//! Initialisation, version, error names, and calls that only have to exist.

use super::code::{Code, describe};
use super::driver::{VERSION, start};
use super::ffi::{Out, Outcome};
use super::guard::entries;

fn text(
    code: i32,
    out: Out<u64>,
    pick: fn((&'static str, &'static str)) -> &'static str,
) -> Outcome {
    match describe(code) {
        Some(found) => out.set(pick(found).as_ptr() as u64),
        None => {
            out.set(0)?;
            Err(Code::INVALID_VALUE)
        }
    }
}

/// A table of private functions; NVIDIA's static runtime asks for some. Asking
/// is no mistake of the program, so the refusal is quiet.
extern "C" fn refuse_table(table: Out<u64>) -> i32 {
    let _ = table.set_if_wanted(0);
    Code::NOT_FOUND.0
}

#[unsafe(no_mangle)]
extern "C" fn cuGetExportTable(table: Out<u64>, _id: u64) -> i32 {
    refuse_table(table)
}

entries! {
    cuInit(flags: u32) => start(flags);
    cuDriverGetVersion(out: Out<i32>) => out.set(VERSION);
    cuGetErrorName(code: i32, out: Out<u64>) => text(code, out, |(name, _)| name);
    cuGetErrorString(code: i32, out: Out<u64>) => text(code, out, |(_, text)| text);
    // Nothing profiles; a program that marks its region may go on.
    cuProfilerStart() => super::context::current().map(drop);
    cuProfilerStop() => super::context::current().map(drop);
    cuProfilerInitialize(_config: u64, _output: u64, _mode: u32) =>
        Err(Code::PROFILER_DISABLED);
}
