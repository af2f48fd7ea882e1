//! Calls before `cuInit`. A process of its own, since nothing undoes `cuInit`.

#![allow(non_snake_case)]

use cuda as _;

unsafe extern "C" {
    fn cuDeviceGetCount(out: *mut i32) -> i32;
    fn cuCtxSynchronize() -> i32;
    fn cuMemAlloc_v2(out: *mut u64, bytes: usize) -> i32;
    fn cuDriverGetVersion(out: *mut i32) -> i32;
}

#[test]
fn calls_before_initialisation_say_so_and_the_version_is_known_all_the_same() {
    const NOT_INITIALIZED: i32 = 3;
    let (mut count, mut address, mut version) = (-1, 0, 0);
    // SAFETY: the results go to live variables.
    unsafe {
        assert_eq!(cuDeviceGetCount(&mut count), NOT_INITIALIZED);
        assert_eq!(cuCtxSynchronize(), NOT_INITIALIZED);
        assert_eq!(cuMemAlloc_v2(&mut address, 16), NOT_INITIALIZED);
        assert_eq!(cuDriverGetVersion(&mut version), 0);
    }
    assert_eq!((count, address, version), (-1, 0, 13000));
}
