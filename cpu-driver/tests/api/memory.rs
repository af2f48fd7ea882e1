//! Allocation, copies and fills.

use super::support::*;

/// Bytes that no two places share by chance.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 31 + i / 7) as u8).collect()
}

#[test]
fn bytes_survive_every_direction_of_copy() {
    let _context = Context::new();
    for length in [1, 255, 4096, 70_001, 3 << 20] {
        let bytes = pattern(length);
        let first = upload(&bytes);
        let second = made(|out| cuMemAlloc_v2(out, length));
        ok(cuMemcpyDtoD_v2(second, first, length));
        assert_eq!(download(second, length), bytes);
        let pinned = made(|out| cuMemAllocHost_v2(out, length));
        ok(cuMemcpyDtoH_v2(pinned as *mut _, second, length));
        let third = made(|out| cuMemAllocManaged(out, length, 1));
        ok(cuMemcpy(third, pinned, length));
        // Managed memory is legal to touch from here.
        let seen = unsafe { std::slice::from_raw_parts(third as *const u8, length) };
        assert_eq!(seen, bytes);
        for address in [first, second, third] {
            ok(cuMemFree_v2(address));
        }
        ok(cuMemFreeHost(pinned));
    }
}

#[test]
fn a_two_dimensional_copy_moves_the_rectangle_and_nothing_else() {
    let _context = Context::new();
    let (pitch, width, height) = (64, 10, 5);
    let source = pattern(pitch * 8);
    let device = upload(&vec![0xAA; pitch * 8]);
    let copy = Copy2d {
        from: Plane {
            x: 3,
            y: 1,
            kind: 1,
            host: source.as_ptr() as u64,
            pitch,
            ..Plane::default()
        },
        to: Plane {
            x: 7,
            y: 2,
            kind: 2,
            device,
            pitch,
            ..Plane::default()
        },
        width,
        height,
    };
    ok(cuMemcpy2D_v2(&copy));
    let mut expected = vec![0xAA; pitch * 8];
    for row in 0..height {
        let (to, from) = ((row + 2) * pitch + 7, (row + 1) * pitch + 3);
        expected[to..to + width].copy_from_slice(&source[from..from + width]);
    }
    assert_eq!(download(device, pitch * 8), expected);
    let beyond = Copy2d { height: 7, ..copy };
    assert_eq!(cuMemcpy2D_v2(&beyond), INVALID_VALUE);
}

#[test]
fn fills_write_their_pattern_between_untouched_bytes() {
    let _context = Context::new();
    let device = upload(&[7; 64]);
    ok(cuMemsetD8_v2(device + 1, 9, 3));
    ok(cuMemsetD2D16_v2(device + 16, 16, 0x0201, 2, 2));
    let mut expected = [7; 64];
    expected[1..4].fill(9);
    expected[16..20].copy_from_slice(&[1, 2, 1, 2]);
    expected[32..36].copy_from_slice(&[1, 2, 1, 2]);
    assert_eq!(download(device, 64), expected);
    assert_eq!(cuMemsetD32Async(device + 2, 1, 1, 0), INVALID_VALUE);
    assert_eq!(cuMemsetD8_v2(device, 1, 65), INVALID_VALUE);
}

#[test]
fn wrong_sizes_and_wrong_frees_are_refused() {
    let _context = Context::new();
    let mut address = 0;
    assert_eq!(cuMemAlloc_v2(&mut address, 0), INVALID_VALUE);
    assert_eq!(cuMemAlloc_v2(&mut address, usize::MAX), OUT_OF_MEMORY);
    assert_eq!(cuMemAlloc_v2(&mut address, 1 << 46), OUT_OF_MEMORY);
    assert_eq!(cuMemAlloc_v2(std::ptr::null_mut(), 8), INVALID_VALUE);
    let device = upload(&[1; 100]);
    assert_eq!(cuMemFree_v2(device + 4), INVALID_VALUE);
    assert_eq!(cuMemcpyDtoD_v2(device, device + 60, 41), INVALID_VALUE);
    ok(cuMemFree_v2(device));
    assert_eq!(cuMemFree_v2(device), INVALID_VALUE);
    ok(cuMemFree_v2(0));
    let mut byte = 0_u8;
    let gone = cuMemcpyDtoH_v2((&raw mut byte).cast(), device, 1);
    assert_eq!(gone, INVALID_VALUE);
}

#[test]
fn freed_memory_counts_as_free() {
    let _context = Context::new();
    // Other tests allocate too; a large piece stands out.
    let large = 512 << 20;
    let free = || {
        let mut total = 0;
        made(|out| cuMemGetInfo_v2(out, &mut total))
    };
    let before = free();
    let device = made(|out| cuMemAlloc_v2(out, large));
    assert!(free() + large / 2 < before);
    ok(cuMemFree_v2(device));
    assert!(free() + large / 2 > before);
}

#[test]
fn wild_host_pointers_give_a_code_and_no_fault() {
    let _context = Context::new();
    let device = upload(&[1; 64]);
    for wild in [1_u64, 0xdead_beef_0000, u64::MAX - 16, device] {
        assert_eq!(cuMemcpyHtoD_v2(device, wild as *const _, 64), INVALID_VALUE);
        assert_eq!(cuMemcpyDtoH_v2(wild as *mut _, device, 64), INVALID_VALUE);
    }
    assert_eq!(download(device, 64), [1; 64]);
}

#[test]
fn registered_memory_is_known_until_it_is_unregistered() {
    let _context = Context::new();
    let page = vec![3_u8; 8192];
    let address = page.as_ptr() as u64;
    ok(cuMemHostRegister_v2(address, 8192, 0));
    assert_eq!(cuMemHostRegister_v2(address, 8192, 0), 712);
    let kind: u32 = made(|out: *mut u32| cuPointerGetAttribute(out.cast(), 2, address + 5));
    assert_eq!(kind, 1);
    ok(cuMemHostUnregister(address));
    assert_eq!(cuMemHostUnregister(address), 713);
    let mut kind = 0_u32;
    let unknown = cuPointerGetAttribute((&raw mut kind).cast(), 2, address);
    assert_eq!(unknown, INVALID_VALUE);
}

#[test]
fn pointer_attributes_tell_the_allocation() {
    let _context = Context::new();
    let device = upload(&[1; 640]);
    let start: u64 = made(|out: *mut u64| cuPointerGetAttribute(out.cast(), 11, device + 100));
    let bytes: u64 = made(|out: *mut u64| cuPointerGetAttribute(out.cast(), 12, device + 100));
    let kind: u32 = made(|out: *mut u32| cuPointerGetAttribute(out.cast(), 2, device));
    assert_eq!((start, bytes, kind), (device, 640, 2));
}
