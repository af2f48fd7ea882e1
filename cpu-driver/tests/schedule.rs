//! Divergence, barriers and warp-wide operations: what must finish finishes,
//! what cannot is reported.

mod support;

use cuda::machine::launch::Fault;
use support::Host;

/// A kernel with the usual opening: `i` is the thread's index, `out` the
/// address of its word.
fn kernel(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n\
         .visible .entry k(.param .u64 p)\n{{\n\
         .reg .b32 %r<40>; .reg .b64 %rd<10>; .reg .pred %p<10>;\n\
         .reg .b32 i, lane, x, y, z; .reg .b64 base, out;\n\
         .shared .align 8 .b8 tile[4096];\n\
         ld.param.u64 base, [p]; mov.u32 i, %tid.x; mov.u32 lane, %laneid;\n\
         mad.wide.u32 out, i, 4, base;\n\
         {body}\nret;\n}}\n"
    )
}

fn run(body: &str, threads: u32) -> (Result<(), Fault>, Vec<u32>) {
    let host = Host::new(&kernel(body));
    let out = host.alloc(u64::from(threads.max(64)) * 4);
    let ran = host.launch("k", 1, threads, &[out]).map(drop);
    (ran, host.words(out, threads as usize))
}

#[test]
fn a_spinlock_between_lanes_of_one_warp_finishes() {
    let (ran, out) = run(
        "mov.u64 %rd1, tile; mov.u32 %r1, 0; st.shared.u32 [%rd1], %r1; st.shared.u32 [%rd1+4], %r1;
         bar.sync 0;
         LOCK: atom.shared.cas.b32 %r2, [%rd1], 0, 1;
         setp.ne.u32 %p1, %r2, 0; @%p1 bra LOCK;
         ld.volatile.shared.u32 %r3, [%rd1+4]; add.u32 %r3, %r3, 1; st.volatile.shared.u32 [%rd1+4], %r3;
         membar.cta; atom.shared.exch.b32 %r4, [%rd1], 0;
         bar.sync 0;
         ld.shared.u32 x, [%rd1+4]; st.global.u32 [out], x;",
        96,
    );
    assert_eq!(ran, Ok(()));
    assert!(out.iter().all(|count| *count == 96), "{out:?}");
}

#[test]
fn a_lane_that_waits_for_a_flag_of_a_later_lane_gets_it() {
    // Lane 0 spins until lane 1, parked behind the branch, has stored.
    let (ran, out) = run(
        "mov.u64 %rd1, tile; mov.u32 %r1, 0; st.shared.u32 [%rd1], %r1; bar.warp.sync -1;
         setp.ne.u32 %p1, i, 0; @%p1 bra AFTER;
         SPIN: ld.volatile.shared.u32 %r2, [%rd1]; setp.eq.u32 %p2, %r2, 0; @%p2 bra SPIN;
         AFTER: setp.eq.u32 %p3, i, 1; mov.u32 x, 7; @%p3 st.volatile.shared.u32 [%rd1], x;
         st.global.u32 [out], x;",
        32,
    );
    assert_eq!(ran, Ok(()));
    assert_eq!(out, vec![7; 32]);
}

#[test]
fn divergent_trip_counts_meet_again_behind_the_loop() {
    let (ran, out) = run(
        "mov.u32 x, 0;
         LOOP: add.u32 x, x, 1; setp.le.u32 %p1, x, lane; @%p1 bra LOOP;
         activemask.b32 y; setp.eq.u32 %p2, y, -1; selp.u32 z, 1000, 0, %p2;
         add.u32 x, x, z; st.global.u32 [out], x;",
        32,
    );
    assert_eq!(ran, Ok(()));
    let expected: Vec<u32> = (0..32).map(|lane| 1001 + lane).collect();
    assert_eq!(out, expected);
}

#[test]
fn shuffles_in_both_arms_of_a_branch_exchange_with_each_other() {
    let (ran, out) = run(
        "mov.u32 z, 31; setp.lt.u32 %p1, lane, 16; add.u32 y, lane, 100;
         @%p1 bra LOW;
         shfl.sync.bfly.b32 x, y, 16, z, -1; bra DONE;
         LOW: shfl.sync.bfly.b32 x, y, 16, z, -1;
         DONE: st.global.u32 [out], x;",
        32,
    );
    assert_eq!(ran, Ok(()));
    let expected: Vec<u32> = (0..32u32).map(|lane| 100 + (lane ^ 16)).collect();
    assert_eq!(out, expected);
}

#[test]
fn groups_with_different_member_masks_do_not_mix() {
    // Even and odd lanes vote apart in one converged instruction.
    let (ran, out) = run(
        "and.b32 %r1, lane, 1; setp.eq.u32 %p1, %r1, 0; selp.b32 %r2, 0x55555555, 0xaaaaaaaa, %p1;
         setp.lt.u32 %p2, lane, 8; vote.sync.ballot.b32 x, %p2, %r2; st.global.u32 [out], x;",
        32,
    );
    assert_eq!(ran, Ok(()));
    for (lane, ballot) in out.iter().enumerate() {
        assert_eq!(
            *ballot,
            if lane % 2 == 0 { 0x55 } else { 0xaa },
            "lane {lane}"
        );
    }
}

#[test]
fn exited_lanes_are_not_waited_for() {
    let (ran, out) = run(
        "setp.ge.u32 %p1, lane, 20; @%p1 exit; bar.sync 0;
         mov.u32 z, 31; shfl.sync.idx.b32 x, lane, 3, z, -1; add.u32 x, x, 40; st.global.u32 [out], x;",
        64,
    );
    assert_eq!(ran, Ok(()));
    for (thread, word) in out.iter().enumerate() {
        assert_eq!(
            *word,
            if thread % 32 < 20 { 43 } else { 0 },
            "thread {thread}"
        );
    }
}

#[test]
fn named_barriers_order_producer_and_consumer_warps() {
    // Warp 0 stores and arrives; warp 1 waits on the same barrier.
    let (ran, out) = run(
        "mov.u64 %rd1, tile; mad.wide.u32 %rd2, lane, 4, %rd1; setp.lt.u32 %p1, i, 32; @!%p1 bra USE;
         add.u32 x, lane, 500; st.shared.u32 [%rd2], x; bar.arrive 3, 64; bra END;
         USE: bar.sync 3, 64; ld.shared.u32 x, [%rd2];
         END: st.global.u32 [out], x;",
        64,
    );
    assert_eq!(ran, Ok(()));
    for (thread, word) in out.iter().enumerate() {
        assert_eq!(*word, 500 + thread as u32 % 32, "thread {thread}");
    }
}

#[test]
fn a_barrier_that_not_all_threads_reach_is_a_deadlock_with_its_place() {
    let (ran, _) = run(
        "setp.lt.u32 %p1, i, 32; @%p1 bra A; bar.sync 1; bra END;
         A: bar.sync 2; END:",
        64,
    );
    let Err(Fault::Deadlock { message }) = ran else {
        panic!("expected a deadlock, got {ran:?}");
    };
    assert!(message.contains("32 threads wait at bar.sync"), "{message}");
}

#[test]
fn an_endless_loop_ends_with_the_budget() {
    let (ran, _) = run("FOREVER: add.u32 x, x, 1; bra FOREVER;", 32);
    assert!(matches!(ran, Err(Fault::Budget { .. })), "{ran:?}");
}

#[test]
fn an_unknown_form_fails_only_when_it_is_reached_and_names_itself() {
    let (ran, _) = run("setp.eq.u32 %p1, i, 99; @%p1 frobnicate.b32 x, y;", 32);
    assert_eq!(ran, Ok(()));
    let (ran, _) = run("frobnicate.b32 x, y;", 32);
    let Err(Fault::Unsupported { message, .. }) = ran else {
        panic!("expected a refusal, got {ran:?}");
    };
    assert!(message.contains("k: frobnicate.b32 (PTX line"), "{message}");
}
