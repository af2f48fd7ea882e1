//! Launch shapes, arguments, and what a fault leaves behind.

use std::ffi::c_void;

use super::support::*;

const KERNELS: &str = include_str!("../ptx/launch.ptx");

fn function(name: &str) -> Handle {
    let ptx = text(KERNELS);
    let module = made(|out| cuModuleLoadData(out, ptx.as_ptr().cast()));
    made(|out| cuModuleGetFunction(out, module, text(name).as_ptr()))
}

fn launch(function: Handle, blocks: u32, threads: u32, values: &[*const c_void]) -> i32 {
    let null = std::ptr::null();
    cuLaunchKernel(
        function,
        blocks,
        1,
        1,
        threads,
        1,
        1,
        0,
        0,
        values.as_ptr(),
        null,
    )
}

fn value<T>(value: &T) -> *const c_void {
    (&raw const *value).cast()
}

#[test]
fn every_thread_adds_its_number() {
    let _context = Context::new();
    let function = function("addIndex");
    let device = upload(&[1; 4 * 96]);
    let (base, n) = (device, 90_u32);
    ok(launch(function, 3, 32, &[value(&base), value(&n)]));
    let found = download(device, 4 * 96);
    for (i, word) in found.chunks_exact(4).enumerate() {
        let got = u32::from_le_bytes(word.try_into().expect("four bytes"));
        let added = if i < 90 { i as u32 } else { 0 };
        assert_eq!(got, 0x0101_0101 + added, "element {i}");
    }
}

#[test]
fn arguments_may_come_as_one_buffer() {
    let _context = Context::new();
    let function = function("addIndex");
    let device = upload(&[0; 8]);
    let mut packed = device.to_le_bytes().to_vec();
    packed.extend(2_u32.to_le_bytes());
    let size = packed.len();
    let extra = [1, packed.as_ptr() as u64, 2, &raw const size as u64, 0];
    let null = std::ptr::null();
    ok(cuLaunchKernel(
        function,
        1,
        1,
        1,
        32,
        1,
        1,
        0,
        0,
        null,
        extra.as_ptr(),
    ));
    assert_eq!(download(device, 8), [0, 0, 0, 0, 1, 0, 0, 0]);
    let short = 4_usize;
    let extra = [1, packed.as_ptr() as u64, 2, &raw const short as u64, 0];
    let refused = cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, 0, null, extra.as_ptr());
    assert_eq!(refused, INVALID_VALUE);
}

#[test]
fn absurd_shapes_and_missing_arguments_are_refused() {
    let _context = Context::new();
    let function = function("addIndex");
    let bounded = self::function("bounded");
    let device = upload(&[0; 8]);
    let n = 0_u32;
    let values = [value(&device), value(&n)];
    let shape = |grid: [u32; 3], block: [u32; 3], shared| {
        let [gx, gy, gz] = grid;
        let [bx, by, bz] = block;
        let null = std::ptr::null();
        cuLaunchKernel(
            function,
            gx,
            gy,
            gz,
            bx,
            by,
            bz,
            shared,
            0,
            values.as_ptr(),
            null,
        )
    };
    for (grid, block, shared) in [
        ([0, 1, 1], [32, 1, 1], 0),
        ([1, 1, 1], [32, 0, 1], 0),
        ([1, 1, 1], [1025, 1, 1], 0),
        ([1, 1, 1], [32, 32, 2], 0),
        ([1, 1, 1], [1, 1, 65], 0),
        ([u32::MAX, 1, 1], [32, 1, 1], 0),
        ([1, 65_536, 1], [32, 1, 1], 0),
        ([1, 1, 1], [u32::MAX, u32::MAX, u32::MAX], 0),
        ([1, 1, 1], [32, 1, 1], 49_153),
        ([1, 1, 1], [32, 1, 1], u32::MAX),
    ] {
        assert_eq!(
            shape(grid, block, shared),
            INVALID_VALUE,
            "{grid:?} {block:?} {shared}"
        );
    }
    ok(shape([1, 1, 1], [1024, 1, 1], 49_152));
    assert_eq!(launch(bounded, 1, 65, &[]), INVALID_VALUE);
    ok(launch(bounded, 1, 64, &[]));
    let wild = 16 as *const c_void;
    assert_eq!(launch(function, 1, 1, &[wild, wild]), INVALID_VALUE);
    let null = std::ptr::null();
    let none = cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, null, null.cast());
    assert_eq!(none, INVALID_VALUE);
    ok(cuCtxSynchronize());
}

#[test]
fn a_fault_stays_with_its_context_and_leaves_others_alone() {
    for (address, n, expected) in [
        // Far outside, where nothing is mapped.
        (0x10_u64 << 40, 1_u32, ILLEGAL_ADDRESS),
        // A misaligned word.
        (2, 1, 716),
    ] {
        let healthy = Context::new();
        let good = upload(&[0; 4]);
        let lost = Context::new();
        let function = function("addIndex");
        let device = upload(&[0; 4096]);
        let target = if expected == 716 {
            device + address
        } else {
            address
        };
        ok(launch(function, 1, 32, &[value(&target), value(&n)]));
        assert_eq!(cuCtxSynchronize(), expected);
        // Sticky: every later call says the same.
        let mut out = 0;
        assert_eq!(cuMemAlloc_v2(&mut out, 16), expected);
        assert_eq!(cuMemFree_v2(device), expected);
        assert_eq!(cuStreamSynchronize(0), expected);
        drop(lost);
        ok(cuCtxPushCurrent_v2(healthy.0));
        assert_eq!(download(good, 4), [0; 4]);
    }
}
