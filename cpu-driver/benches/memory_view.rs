//! What one warp access to memory costs, unchecked and under memcheck:
//! `cargo bench -p cpu-driver --bench memory_view`. A measurement, not a test.

use std::hint::black_box;
use std::time::Instant;

use cuda::machine::memory::{AllocationKind, Memory, MemoryOptions, Request, View};

const ACCESSES: u64 = 20_000_000;
const BYTES: u64 = 1 << 20;

fn nanoseconds<const STRICT: bool>(view: &View<'_>, bases: &[u64]) -> f64 {
    let start = Instant::now();
    let mut buffer = 0;
    for access in 0..ACCESSES {
        let lo = bases[buffer] + access % (BYTES / 128) * 128;
        buffer = if buffer + 1 == bases.len() {
            0
        } else {
            buffer + 1
        };
        let span = view.span::<STRICT>(black_box(lo), lo + 128);
        assert!(black_box(span).is_some());
    }
    start.elapsed().as_secs_f64() * 1e9 / ACCESSES as f64
}

fn main() {
    let memory = Memory::new(MemoryOptions::checked(1 << 30)).expect("address space");
    println!("buffers in turn   unchecked   memcheck   (ns a warp access)");
    for buffers in [1, 3, 8, 16] {
        let bases: Vec<u64> = (0..buffers)
            .map(|_| {
                let request = Request::new(AllocationKind::Device, BYTES, 1);
                memory.allocate(request).expect("memory").base
            })
            .collect();
        let view = memory.view();
        let unchecked = nanoseconds::<false>(&view, &bases);
        let checked = nanoseconds::<true>(&view, &bases);
        println!("{buffers:>15} {unchecked:>11.2} {checked:>10.2}");
    }
}
