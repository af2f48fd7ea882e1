//! Order and asynchrony of streams, events and host functions.

use std::ffi::c_void;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::support::*;

/// A host function that waits until the test lets it go.
struct Gate {
    open: AtomicBool,
    passed: AtomicBool,
}

impl Gate {
    const fn new() -> Self {
        Gate {
            open: AtomicBool::new(false),
            passed: AtomicBool::new(false),
        }
    }

    fn put_on(&'static self, stream: Handle) {
        ok(cuLaunchHostFunc(
            stream,
            wait_at_gate,
            (&raw const *self) as *mut c_void,
        ));
    }

    fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
    }

    fn passed(&self) -> bool {
        self.passed.load(Ordering::SeqCst)
    }
}

extern "C" fn wait_at_gate(gate: *mut c_void) {
    // SAFETY: every gate is a static.
    let gate = unsafe { &*gate.cast::<Gate>() };
    let patience = Instant::now() + Duration::from_secs(20);
    while !gate.open.load(Ordering::SeqCst) && Instant::now() < patience {
        std::thread::yield_now();
    }
    gate.passed.store(true, Ordering::SeqCst);
}

#[test]
fn a_host_function_holds_up_its_own_stream_and_nobody_else() {
    static GATE: Gate = Gate::new();
    let _context = Context::new();
    let (held, other) = (stream(1), stream(1));
    let device = upload(&[0; 16]);
    GATE.put_on(held);
    ok(cuMemsetD32Async(device, 1, 4, held));
    assert_eq!(cuStreamQuery(held), NOT_READY);
    // The caller goes on, and so does another stream.
    ok(cuMemsetD32Async(device + 8, 2, 1, other));
    ok(cuStreamSynchronize(other));
    assert!(!GATE.passed());
    GATE.open();
    ok(cuStreamSynchronize(held));
    assert!(GATE.passed());
    ok(cuStreamQuery(held));
    assert_eq!(download(device, 16)[..8], [1, 0, 0, 0, 1, 0, 0, 0]);
}

#[test]
fn the_legacy_stream_waits_for_blocking_streams_only() {
    static BLOCKING: Gate = Gate::new();
    static FREE: Gate = Gate::new();
    let _context = Context::new();
    let device = upload(&[0; 16]);
    FREE.put_on(stream(1));
    // Nothing on a non-blocking stream holds up the legacy one.
    ok(cuMemsetD8_v2(device, 5, 16));
    let blocking = stream(0);
    BLOCKING.put_on(blocking);
    ok(cuMemsetD32Async(device, 9, 1, 0));
    assert_eq!(cuStreamQuery(0), NOT_READY);
    BLOCKING.open();
    ok(cuStreamSynchronize(0));
    assert!(BLOCKING.passed() && !FREE.passed());
    assert_eq!(download(device, 4), [9, 0, 0, 0]);
    FREE.open();
}

#[test]
fn work_behind_an_event_waits_for_the_stream_that_recorded_it() {
    static GATE: Gate = Gate::new();
    let _context = Context::new();
    let (first, second) = (stream(1), stream(1));
    let event = made(|out| cuEventCreate(out, 0));
    ok(cuEventQuery(event));
    let device = upload(&[0; 4]);
    GATE.put_on(first);
    ok(cuMemsetD32Async(device, 1, 1, first));
    ok(cuEventRecord(event, first));
    ok(cuStreamWaitEvent(second, event, 0));
    ok(cuMemsetD32Async(device, 2, 1, second));
    assert_eq!(cuEventQuery(event), NOT_READY);
    assert_eq!(cuStreamQuery(second), NOT_READY);
    GATE.open();
    ok(cuStreamSynchronize(second));
    assert_eq!(download(device, 4), [2, 0, 0, 0]);
    ok(cuEventSynchronize(event));
}

#[test]
fn elapsed_time_covers_what_ran_between_two_events() {
    extern "C" fn nap(_: *mut c_void) {
        std::thread::sleep(Duration::from_millis(30));
    }
    let _context = Context::new();
    let stream = stream(1);
    let (start, end) = (
        made(|out| cuEventCreate(out, 0)),
        made(|out| cuEventCreate(out, 0)),
    );
    let mut milliseconds = 0.0;
    let early = cuEventElapsedTime(&mut milliseconds, start, end);
    assert_eq!(early, INVALID_HANDLE);
    ok(cuEventRecord(start, stream));
    ok(cuLaunchHostFunc(stream, nap, std::ptr::null_mut()));
    ok(cuEventRecord(end, stream));
    ok(cuEventSynchronize(end));
    ok(cuEventElapsedTime(&mut milliseconds, start, end));
    assert!(milliseconds >= 29.0, "{milliseconds}");
    let untimed = made(|out| cuEventCreate(out, 2));
    ok(cuEventRecord(untimed, stream));
    assert_eq!(
        cuEventElapsedTime(&mut milliseconds, start, untimed),
        INVALID_HANDLE
    );
}

#[test]
fn events_on_an_idle_stream_are_stamped_while_the_device_is_busy() {
    static GATE: Gate = Gate::new();
    let _context = Context::new();
    let (busy, idle) = (stream(1), stream(1));
    let (early, late) = (
        made(|out| cuEventCreate(out, 0)),
        made(|out| cuEventCreate(out, 0)),
    );
    GATE.put_on(busy);
    ok(cuEventRecord(late, busy));
    ok(cuEventRecord(early, idle));
    ok(cuEventQuery(early));
    assert_eq!(cuEventQuery(late), NOT_READY);
    GATE.open();
    ok(cuEventSynchronize(late));
    let elapsed: f32 = made(|out| cuEventElapsedTime(out, early, late));
    assert!(elapsed >= 0.0, "{elapsed}");
}

#[test]
fn a_small_pageable_source_may_change_after_the_call() {
    static GATE: Gate = Gate::new();
    let _context = Context::new();
    let stream = stream(1);
    let device = upload(&[0; 4]);
    GATE.put_on(stream);
    let mut source = [1_u8, 2, 3, 4];
    ok(cuMemcpyHtoDAsync_v2(
        device,
        source.as_ptr().cast(),
        4,
        stream,
    ));
    source.fill(99);
    GATE.open();
    ok(cuStreamSynchronize(stream));
    assert_eq!(download(device, 4), [1, 2, 3, 4]);
}

#[test]
fn a_copy_to_pageable_memory_has_arrived_when_the_call_returns() {
    static GATE: Gate = Gate::new();
    let _context = Context::new();
    let stream = stream(1);
    let device = upload(&[8; 4]);
    GATE.put_on(stream);
    ok(cuMemsetD32Async(device, 3, 1, stream));
    GATE.open();
    let mut found = [0_u8; 4];
    ok(cuMemcpyDtoHAsync_v2(
        found.as_mut_ptr().cast(),
        device,
        4,
        stream,
    ));
    assert_eq!(found, [3, 0, 0, 0]);
}

#[test]
fn memory_freed_on_a_stream_lives_until_its_turn() {
    static GATE: Gate = Gate::new();
    let _context = Context::new();
    let stream = stream(1);
    let device = made(|out| cuMemAllocAsync(out, 64, stream));
    GATE.put_on(stream);
    ok(cuMemFreeAsync(device, stream));
    ok(cuMemsetD8_v2(device, 1, 64));
    GATE.open();
    ok(cuStreamSynchronize(stream));
    assert_eq!(cuMemsetD8_v2(device, 1, 64), INVALID_VALUE);
}

#[test]
fn many_threads_may_use_one_context_at_once() {
    let context = Context::new();
    let start = Barrier::new(8);
    std::thread::scope(|scope| {
        for thread in 0..8_u8 {
            let (context, start) = (context.0, &start);
            scope.spawn(move || {
                ok(cuCtxPushCurrent_v2(context));
                start.wait();
                for round in 0..40 {
                    let stream = stream(u32::from(thread % 2));
                    let bytes = vec![thread ^ round; 3000];
                    let device = upload(&bytes);
                    ok(cuMemsetD32Async(
                        device,
                        0x0101_0101 * u32::from(thread),
                        10,
                        stream,
                    ));
                    ok(cuStreamSynchronize(stream));
                    let found = download(device, 3000);
                    assert_eq!(found[..40], [thread; 40]);
                    assert_eq!(found[40..], bytes[40..]);
                    ok(cuMemFree_v2(device));
                    ok(cuStreamDestroy_v2(stream));
                }
            });
        }
    });
    ok(cuCtxSynchronize());
}
