//! Device functions: parameters, recursion, pointers, divergence, built-ins.

mod support;

use std::time::{Duration, Instant};

use cuda::machine::launch::{Fault, LOCAL_LIMIT};
use cuda::machine::printf;
use cuda::ptx::ast::StateSpace;
use support::{Host, Strict};

const MODULE: &str = r#"
.version 8.0
.target sm_75
.address_size 64
.global .align 8 .u64 table[2] = {twice, fib};
.global .align 1 .b8 text[24] = {105, 32, 61, 32, 37, 51, 100, 44, 32, 104, 97, 108, 102, 32, 61, 32, 37, 46, 49, 102, 10};
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.extern .func (.param .b64 r) malloc (.param .b64 n);
.extern .func free (.param .b64 p);
.func (.param .b32 r) twice(.param .b32 n) {
  .reg .b32 %r<3>;
  ld.param.u32 %r1, [n]; shl.b32 %r2, %r1, 1; st.param.b32 [r], %r2; ret;
}
.func (.param .b32 r) fib(.param .b32 n) {
  .reg .b32 %r<9>; .reg .pred %p<2>;
  ld.param.u32 %r8, [n];
  setp.lt.s32 %p1, %r8, 2; @%p1 bra DONE;
  add.s32 %r4, %r8, -1;
  { .param .b32 a0; st.param.b32 [a0], %r4; .param .b32 b0; call.uni (b0), fib, (a0); ld.param.b32 %r5, [b0]; }
  add.s32 %r6, %r8, -2;
  { .param .b32 a0; st.param.b32 [a0], %r6; .param .b32 b0; call.uni (b0), fib, (a0); ld.param.b32 %r7, [b0]; }
  add.s32 %r8, %r7, %r5;
DONE: st.param.b32 [r], %r8; ret;
}
.func (.param .b32 r) forever(.param .b32 n) {
  .reg .b32 %r<3>;
  ld.param.u32 %r1, [n];
  { .param .b32 a0; st.param.b32 [a0], %r1; .param .b32 b0; call.uni (b0), forever, (a0); ld.param.b32 %r2, [b0]; }
  st.param.b32 [r], %r2; ret;
}
.func silent() { call silent; ret; }
.func (.param .b32 r) depth(.param .b32 n) {
  .reg .b32 %r<4>; .reg .pred %p<2>;
  ld.param.u32 %r1, [n]; mov.u32 %r3, 0;
  setp.eq.u32 %p1, %r1, 0; @%p1 bra DONE;
  add.s32 %r2, %r1, -1;
  { .param .b32 a0; st.param.b32 [a0], %r2; .param .b32 b0; call.uni (b0), depth, (a0); ld.param.b32 %r3, [b0]; }
  add.s32 %r3, %r3, 1;
DONE: st.param.b32 [r], %r3; ret;
}
.visible .entry silently() { call silent; ret; }
.visible .entry deep(.param .u64 p, .param .u32 n) {
  .reg .b32 %r<9>; .reg .b64 %rd<9>;
  ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [n]; mov.u32 %r2, %tid.x; mad.wide.u32 %rd2, %r2, 4, %rd1;
  sub.s32 %r1, %r1, %r2;
  { .param .b32 a0; st.param.b32 [a0], %r1; .param .b32 b0; call.uni (b0), depth, (a0); ld.param.b32 %r3, [b0]; }
  st.global.u32 [%rd2], %r3; ret;
}
.visible .entry recursive(.param .u64 p) {
  .reg .b32 %r<9>; .reg .b64 %rd<9>;
  ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mad.wide.u32 %rd2, %r1, 4, %rd1; and.b32 %r2, %r1, 7;
  { .param .b32 a0; st.param.b32 [a0], %r2; .param .b32 b0; call.uni (b0), fib, (a0); ld.param.b32 %r3, [b0]; }
  st.global.u32 [%rd2], %r3; ret;
}
.visible .entry indirect(.param .u64 p) {
  .reg .b32 %r<9>; .reg .b64 %rd<9>;
  ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mad.wide.u32 %rd2, %r1, 4, %rd1; and.b32 %r2, %r1, 1;
  mov.u64 %rd3, table; mad.wide.u32 %rd3, %r2, 8, %rd3; ld.global.u64 %rd4, [%rd3];
  { .param .b32 a0; st.param.b32 [a0], 10; .param .b32 b0;
    proto: .callprototype (.param .b32 _) _ (.param .b32 _);
    call (b0), %rd4, (a0), proto; ld.param.b32 %r3, [b0]; }
  st.global.u32 [%rd2], %r3; ret;
}
.visible .entry endless(.param .u64 p) {
  .reg .b32 %r<9>;
  { .param .b32 a0; st.param.b32 [a0], 1; .param .b32 b0; call.uni (b0), forever, (a0); ld.param.b32 %r3, [b0]; }
  ret;
}
.visible .entry prints(.param .u64 p) {
  .local .align 16 .b8 depot[16];
  .reg .b32 %r<9>; .reg .b64 %rd<9>;
  mov.u64 %rd1, depot; cvta.local.u64 %rd2, %rd1; mov.u32 %r1, %tid.x; st.local.u32 [%rd1], %r1;
  mov.f64 %rd3, 0d3FE0000000000000; st.local.u64 [%rd1+8], %rd3;
  mov.u64 %rd4, text; cvta.global.u64 %rd5, %rd4;
  { .param .b64 a0; st.param.b64 [a0], %rd5; .param .b64 a1; st.param.b64 [a1], %rd2; .param .b32 b0;
    call.uni (b0), vprintf, (a0, a1); ld.param.b32 %r2, [b0]; }
  ret;
}
.visible .entry heap(.param .u64 p) {
  .reg .b32 %r<9>; .reg .b64 %rd<9>;
  ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mad.wide.u32 %rd2, %r1, 4, %rd1;
  { .param .b64 a0; st.param.b64 [a0], 16; .param .b64 b0; call.uni (b0), malloc, (a0); ld.param.b64 %rd3, [b0]; }
  st.u32 [%rd3+12], %r1; ld.u32 %r2, [%rd3+12]; st.global.u32 [%rd2], %r2;
  { .param .b64 a0; st.param.b64 [a0], %rd3; call.uni free, (a0); }
  ret;
}
"#;

#[test]
fn recursion_with_a_different_depth_in_every_lane_gives_fibonacci() {
    let host = Host::new(MODULE);
    let out = host.alloc(256);
    host.launch("recursive", 1, 64, &[out]).expect("runs");
    let fib = [0, 1, 1, 2, 3, 5, 8, 13];
    for (thread, word) in host.words(out, 64).iter().enumerate() {
        assert_eq!(*word, fib[thread % 8], "thread {thread}");
    }
}

#[test]
fn indirect_calls_go_where_each_lane_points() {
    let host = Host::new(MODULE);
    let out = host.alloc(256);
    host.launch("indirect", 1, 32, &[out]).expect("runs");
    for (thread, word) in host.words(out, 32).iter().enumerate() {
        assert_eq!(
            *word,
            if thread % 2 == 0 { 20 } else { 55 },
            "thread {thread}"
        );
    }
}

#[test]
fn endless_recursion_is_a_stack_overflow_within_a_second() {
    let mut host = Host::new(MODULE);
    let out = host.alloc(256);
    for stack in [0, LOCAL_LIMIT] {
        host.stack = stack;
        for (kernel, params) in [("endless", &[out][..]), ("silently", &[])] {
            let start = Instant::now();
            let ran = host.launch(kernel, 4, 256, params);
            let Err(Fault::StackOverflow { message, .. }) = ran else {
                panic!("{kernel}: {ran:?}");
            };
            assert!(message.contains("stack overflow in a call of"), "{message}");
            let took = start.elapsed();
            assert!(took < Duration::from_secs(3), "{kernel}, {stack}: {took:?}");
        }
    }
}

#[test]
fn a_checked_stack_overflow_is_a_local_write_out_of_bounds_in_every_lane() {
    let host = Host::new(MODULE);
    let out = host.alloc(256);
    for kill_only in [false, true] {
        let mut strict = Strict {
            kill_only,
            ..Strict::default()
        };
        let ran = host.launch_with("endless", 1, 32, &[out], &mut strict);
        assert_eq!(ran.is_ok(), kill_only, "{ran:?}");
        assert_eq!(strict.found.len(), 32);
        for violation in &strict.found {
            assert_eq!(violation.space, StateSpace::Local);
            assert_eq!(violation.site.function, "forever");
        }
    }
}

#[test]
fn a_raised_stack_limit_lets_recursion_go_deeper() {
    let mut host = Host::new(MODULE);
    let out = host.alloc(128);
    let shallow = host.launch("deep", 1, 32, &[out, 10_000]);
    assert!(matches!(shallow, Err(Fault::StackOverflow { .. })));
    host.stack = LOCAL_LIMIT;
    host.launch("deep", 1, 32, &[out, 10_000]).expect("fits");
    let expected: Vec<u32> = (0..32).map(|thread| 10_000 - thread).collect();
    assert_eq!(host.words(out, 32), expected);
}

#[test]
fn printf_writes_one_line_a_thread_in_lane_order() {
    let host = Host::new(MODULE);
    let out = host.alloc(256);
    host.launch("prints", 1, 3, &[out]).expect("runs");
    let text = String::from_utf8(printf::take()).expect("text");
    assert_eq!(
        text,
        "i =   0, half = 0.5\ni =   1, half = 0.5\ni =   2, half = 0.5\n"
    );
}

#[test]
fn the_device_heap_gives_every_thread_its_own_block() {
    let host = Host::new(MODULE);
    let out = host.alloc(256);
    let before = host.memory.live(None).len();
    host.launch("heap", 1, 64, &[out]).expect("runs");
    let expected: Vec<u32> = (0..64).collect();
    assert_eq!(host.words(out, 64), expected);
    assert_eq!(host.memory.live(None).len(), before, "all freed");
}
