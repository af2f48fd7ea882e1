//! The PTX of the lessons on the machine: right results, and each deliberate
//! bug where the lesson says it is.

mod support;

use cuda::machine::launch::Fault;
use cuda::machine::observe::{AccessKind, ViolationKind};
use cuda::ptx::ast::StateSpace;
use support::{Host, Strict};

const REDUCE: &str = include_str!("../../kernels/ptx/reduce.ptx");
const SQUARE: &str = include_str!("../../kernels/ptx/square.ptx");
const ADJACENT: &str = include_str!("../../kernels/ptx/adjacent_difference.ptx");
const WINDOW: &str = include_str!("../../kernels/ptx/window_sum.ptx");

/// Element i is half of i modulo 97.
fn halves(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i % 97) as f32 / 2.0).collect()
}

#[test]
fn block_tree_sum_gives_the_exact_sum_at_ragged_and_even_sizes() {
    let host = Host::new(REDUCE);
    for (n, sum) in [(611, 14_171.0), (1024, 23_995.5), (16_483, 395_434.5)] {
        let blocks = (n as u32).div_ceil(256);
        let input = host.upload(&halves(n));
        let partials = host.alloc(u64::from(blocks) * 4);
        let stats = host
            .launch("blockTreeSum", blocks, 256, &[input, partials, n as u64])
            .expect("runs");
        let total: f32 = host.floats(partials, blocks as usize).iter().sum();
        assert_eq!(total, sum, "n = {n}");
        assert!(stats.thread_instructions > n as u64);
    }
}

#[test]
fn guarded_kernels_have_no_violation_and_stray_ones_have_theirs() {
    let n = 6151u64;
    for (ptx, name, violations) in [
        (SQUARE, "squareGuarded", 0),
        (SQUARE, "squarePastEnd", 1),
        (ADJACENT, "diffNext", 0),
        (ADJACENT, "diffNextPastEnd", 1),
        (WINDOW, "windowSum", 0),
        (WINDOW, "windowSumPastTile", 25),
    ] {
        let host = Host::new(ptx);
        let kernel = host.kernel(name);
        let values: Vec<u32> = (0..n as u32).collect();
        let input = host.upload(&values);
        let mut params = vec![input];
        while params.len() + 1 < kernel.params.len() {
            params.push(host.alloc(n * 4));
        }
        params.push(n);
        let mut strict = Strict {
            kill_only: true,
            ..Strict::default()
        };
        let ran = host.launch_with(name, 25, 256, &params, &mut strict);
        assert!(ran.is_ok(), "{name}: {ran:?}");
        assert_eq!(
            strict.found.len(),
            violations,
            "{name}: {:#?}",
            strict.found.first()
        );
        for found in &strict.found {
            assert!(!found.site.frames.is_empty(), "{name}: no source line");
        }
    }
}

#[test]
fn past_end_read_names_the_thread_the_block_and_the_address() {
    let host = Host::new(ADJACENT);
    let n = 6151u64;
    let input = host.upload(&vec![1u32; n as usize]);
    let kernel = host.kernel("diffNextPastEnd");
    let mut params = vec![input];
    while params.len() + 1 < kernel.params.len() {
        params.push(host.alloc(n * 4));
    }
    params.push(n);
    let mut strict = Strict::default();
    let ran = host.launch_with("diffNextPastEnd", 25, 256, &params, &mut strict);
    assert_eq!(ran, Err(Fault::Memory));
    let found = &strict.found[0];
    assert_eq!(found.thread, [6, 0, 0]);
    assert_eq!(found.block, [24, 0, 0]);
    assert_eq!(found.address, input + 24_604);
    assert_eq!(
        (found.kind, found.access),
        (ViolationKind::OutOfBounds, AccessKind::Read)
    );
    // Without checks the same read is silent.
    assert!(host.launch("diffNextPastEnd", 25, 256, &params).is_ok());
}

#[test]
fn write_past_the_tile_is_silent_unchecked_and_found_at_its_offset_when_checked() {
    let host = Host::new(WINDOW);
    let n = 6151u64;
    let input = host.upload(&vec![1u32; n as usize]);
    let kernel = host.kernel("windowSumPastTile");
    let mut params = vec![input];
    while params.len() + 1 < kernel.params.len() {
        params.push(host.alloc(n * 4));
    }
    params.push(n);
    assert!(host.launch("windowSumPastTile", 25, 256, &params).is_ok());
    let mut strict = Strict::default();
    let ran = host.launch_with("windowSumPastTile", 25, 256, &params, &mut strict);
    assert_eq!(ran, Err(Fault::Memory));
    assert_eq!(strict.found[0].address, 1032);
    assert_eq!(strict.found[0].space, StateSpace::Shared);
}
