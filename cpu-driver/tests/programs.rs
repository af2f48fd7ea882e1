//! Compiler output of ordinary CUDA C++ (`tests/ptx/program.cu`).

mod support;

use cuda::machine::launch::{Fault, LaunchConfig, run};
use cuda::machine::observe::Unchecked;
use support::{Host, Strict};

const PROGRAM: &str = include_str!("ptx/program_sm80.ptx");

#[test]
fn the_grid_meets_and_everybody_reads_the_total() {
    let host = Host::new(PROGRAM);
    let (blocks, threads) = (12, 96);
    let x = host.alloc(4 * (1 + blocks * threads));
    let config = LaunchConfig {
        grid: [blocks as u32, 1, 1],
        block: [threads as u32, 1, 1],
        dynamic_shared: 0,
        cooperative: true,
        instruction_budget: 20_000_000,
        stack: 0,
        context: 1,
    };
    let kernel = host.kernel("gridTotal");
    let ran = run(
        kernel,
        &config,
        &x.to_le_bytes(),
        &host.memory,
        &mut Unchecked::default(),
    );
    assert!(ran.is_ok(), "{ran:?}");
    let total = (blocks * threads / 16 * 120) as u32;
    let words = host.words(x, 1 + (blocks * threads) as usize);
    assert!(
        words.iter().all(|word| *word == total),
        "want {total}, got {words:?}"
    );
}

#[test]
fn lanes_find_the_groups_of_their_label() {
    let host = Host::new(PROGRAM);
    let x = host.alloc(256);
    host.launch("groupSizes", 1, 64, &[x]).expect("runs");
    let label = |thread: usize| {
        if thread.is_multiple_of(3) {
            7
        } else {
            thread % 2
        }
    };
    for (thread, word) in host.words(x, 64).iter().enumerate() {
        let base = thread / 32 * 32;
        let same: Vec<usize> = (base..base + 21)
            .filter(|t| label(*t) == label(thread))
            .collect();
        let want = match same.iter().position(|t| *t == thread) {
            Some(rank) => same.len() * 100 + rank,
            None => 0,
        };
        assert_eq!(*word as usize, want, "thread {thread}");
    }
}

#[test]
fn virtual_calls_reach_the_object_of_each_lane_checked_or_not() {
    let host = Host::new(PROGRAM);
    let x = host.alloc(256);
    for strict in [false, true] {
        if strict {
            let mut observer = Strict::default();
            let ran = host.launch_with("virtualCalls", 1, 64, &[x], &mut observer);
            assert!(ran.is_ok(), "{ran:?}: {:?}", observer.found);
        } else {
            host.launch("virtualCalls", 1, 64, &[x]).expect("runs");
        }
        for (thread, word) in host.words(x, 64).iter().enumerate() {
            let t = thread as u32;
            let own = if t % 2 == 1 { t * t } else { t };
            let made = if t.is_multiple_of(3) { 1000 } else { 9 };
            assert_eq!(*word, own + made, "thread {thread}");
        }
    }
}

#[test]
fn constants_module_variables_and_local_arrays_hold_their_values() {
    let host = Host::new(PROGRAM);
    let x = host.alloc(256);
    host.launch("variables", 1, 64, &[x, 5]).expect("runs");
    let primes = [2, 3, 5, 7, 11, 13, 17, 19];
    let words = host.words(x, 64);
    assert_eq!(words[0], 104, "counter");
    for (thread, word) in words.iter().enumerate().skip(1) {
        let want = primes[thread % 8] + (thread as u32 * 5) % 24 * 5;
        assert_eq!(*word, want, "thread {thread}");
    }
}

#[test]
fn staged_copies_arrive_in_shared_memory() {
    let host = Host::new(PROGRAM);
    let values: Vec<f32> = (0..512).map(|i| i as f32).collect();
    let (input, out) = (host.upload(&values), host.alloc(2048));
    host.launch("staged", 1, 128, &[input, out]).expect("runs");
    let got = host.floats(out, 512);
    for (at, value) in got.iter().enumerate() {
        let want = (127 - at / 4) * 4 + at % 4;
        assert_eq!(*value, want as f32, "element {at}");
    }
}

#[test]
fn a_failed_assertion_names_file_line_thread_and_text() {
    let host = Host::new(PROGRAM);
    assert!(host.launch("asserts", 1, 32, &[99]).is_ok());
    let ran = host.launch("asserts", 1, 32, &[5]);
    let Err(Fault::Assert { message, .. }) = ran else {
        panic!("expected a failed assertion, got {ran:?}");
    };
    assert!(
        message.contains("thread: [5,0,0] Assertion `n != threadIdx.x` failed"),
        "{message}"
    );
    assert!(message.contains("program.cu:"), "{message}");
}
