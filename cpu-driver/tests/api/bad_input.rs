//! Null, stale and made-up handles, and calls that are not implemented.

use std::ffi::CStr;

use super::support::*;

#[test]
fn made_up_handles_are_refused() {
    let _context = Context::new();
    let device = upload(&[0; 16]);
    for wild in [3, 0x10, 0xdead_beef, device, u64::MAX] {
        assert_eq!(cuStreamSynchronize(wild), INVALID_HANDLE);
        assert_eq!(cuStreamDestroy_v2(wild), INVALID_HANDLE);
        assert_eq!(cuEventRecord(wild, 0), INVALID_HANDLE);
        assert_eq!(cuModuleUnload(wild), INVALID_HANDLE);
        assert_eq!(cuGraphLaunch(wild, 0), INVALID_HANDLE);
        assert_eq!(cuCtxPushCurrent_v2(wild), INVALID_CONTEXT);
        assert_eq!(cuMemFree_v2(wild.wrapping_add(8)), INVALID_VALUE);
        let null = std::ptr::null();
        let launched = cuLaunchKernel(wild, 1, 1, 1, 1, 1, 1, 0, 0, null, null.cast());
        assert_eq!(launched, INVALID_HANDLE);
    }
    assert_eq!(cuEventDestroy_v2(0), INVALID_HANDLE);
}

#[test]
fn a_handle_of_another_kind_is_refused() {
    let _context = Context::new();
    let event = made(|out| cuEventCreate(out, 0));
    assert_eq!(cuStreamSynchronize(event), INVALID_HANDLE);
    ok(cuEventDestroy_v2(event));
    assert_eq!(cuEventQuery(event), INVALID_HANDLE);
}

#[test]
fn a_call_without_a_context_says_so() {
    ok(cuInit(0));
    let mut address = 0;
    assert_eq!(cuMemAlloc_v2(&mut address, 16), INVALID_CONTEXT);
    assert_eq!(cuCtxSynchronize(), INVALID_CONTEXT);
}

#[test]
fn what_is_not_implemented_says_so() {
    let mut array = 0;
    assert_eq!(
        cuArrayCreate_v2(&mut array, std::ptr::null()),
        NOT_SUPPORTED
    );
    let mut table = 1;
    assert_eq!(cuGetExportTable(&mut table, std::ptr::null()), NOT_FOUND);
    assert_eq!(table, 0);
}

#[test]
fn codes_have_names_and_unknown_ones_have_none() {
    let name: *const i8 = {
        let mut name = std::ptr::null();
        ok(cuGetErrorName(700, &mut name));
        name
    };
    let name = unsafe { CStr::from_ptr(name) };
    assert_eq!(name.to_str(), Ok("CUDA_ERROR_ILLEGAL_ADDRESS"));
    let mut name = std::ptr::null();
    assert_eq!(cuGetErrorName(12345, &mut name), INVALID_VALUE);
    assert!(name.is_null());
}

#[test]
fn devices_beyond_the_last_and_attributes_that_are_none_are_refused() {
    ok(cuInit(0));
    let mut value = 0;
    ok(cuDeviceGetAttribute(&mut value, 10, 0));
    assert_eq!(value, 32);
    assert_eq!(cuDeviceGetAttribute(&mut value, 10, 99), 101);
    assert_eq!(cuDeviceGetAttribute(&mut value, 10, -1), 101);
    assert_eq!(cuDeviceGetAttribute(&mut value, 9999, 0), INVALID_VALUE);
    assert_eq!(cuInit(1), INVALID_VALUE);
}
