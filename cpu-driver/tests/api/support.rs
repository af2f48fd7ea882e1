//! Declarations of the calls that the tests make, and a context to make them in.

use std::ffi::{CString, c_void};

// Pulls the driver's object code in.
use cuda as _;

pub type Handle = u64;

macro_rules! calls {
    ($($name:ident($($arg:ident: $ty:ty),*);)*) => {
        mod linked {
            use super::*;
            unsafe extern "C" {
                $(pub fn $name($($arg: $ty),*) -> i32;)*
            }
        }
        // SAFETY: the driver takes any argument and answers bad ones with a code.
        $(pub fn $name($($arg: $ty),*) -> i32 { unsafe { linked::$name($($arg),*) } })*
    };
}

calls! {
    cuInit(flags: u32);
    cuDeviceGetAttribute(out: *mut i32, number: i32, device: i32);
    cuCtxCreate_v2(out: *mut Handle, flags: u32, device: i32);
    cuCtxDestroy_v2(context: Handle);
    cuCtxSynchronize();
    cuCtxSetLimit(limit: u32, bytes: usize);
    cuCtxPushCurrent_v2(context: Handle);
    cuMemAlloc_v2(out: *mut u64, bytes: usize);
    cuMemFree_v2(address: u64);
    cuMemAllocHost_v2(out: *mut u64, bytes: usize);
    cuMemFreeHost(address: u64);
    cuMemAllocManaged(out: *mut u64, bytes: usize, flags: u32);
    cuMemAllocAsync(out: *mut u64, bytes: usize, stream: Handle);
    cuMemFreeAsync(address: u64, stream: Handle);
    cuMemHostRegister_v2(address: u64, bytes: usize, flags: u32);
    cuMemHostUnregister(address: u64);
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize);
    cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize);
    cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize);
    cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: Handle);
    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: Handle);
    cuMemcpy(to: u64, from: u64, bytes: usize);
    cuMemcpy2D_v2(copy: *const Copy2d);
    cuMemsetD8_v2(to: u64, value: u8, count: usize);
    cuMemsetD32Async(to: u64, value: u32, count: usize, stream: Handle);
    cuMemsetD2D16_v2(to: u64, pitch: usize, value: u16, width: usize, height: usize);
    cuPointerGetAttribute(out: *mut c_void, number: u32, address: u64);
    cuStreamCreate(out: *mut Handle, flags: u32);
    cuStreamDestroy_v2(stream: Handle);
    cuStreamSynchronize(stream: Handle);
    cuStreamQuery(stream: Handle);
    cuStreamWaitEvent(stream: Handle, event: Handle, flags: u32);
    cuLaunchHostFunc(stream: Handle, function: extern "C" fn(*mut c_void), data: *mut c_void);
    cuEventCreate(out: *mut Handle, flags: u32);
    cuEventDestroy_v2(event: Handle);
    cuEventRecord(event: Handle, stream: Handle);
    cuEventQuery(event: Handle);
    cuEventSynchronize(event: Handle);
    cuEventElapsedTime(out: *mut f32, start: Handle, end: Handle);
    cuStreamBeginCapture_v2(stream: Handle, mode: u32);
    cuStreamEndCapture(stream: Handle, out: *mut Handle);
    cuGraphInstantiateWithFlags(out: *mut Handle, graph: Handle, flags: u64);
    cuGraphLaunch(exec: Handle, stream: Handle);
    cuGraphExecDestroy(exec: Handle);
    cuGraphDestroy(graph: Handle);
    cuGraphCreate(out: *mut Handle, flags: u32);
    cuGraphAddMemsetNode(
        out: *mut Handle, graph: Handle, after: *const Handle, count: usize,
        params: *const MemsetNode, context: Handle
    );
    cuGraphAddDependencies(graph: Handle, from: *const Handle, to: *const Handle, count: usize);
    cuGraphGetNodes(graph: Handle, out: *mut Handle, count: *mut usize);
    cuModuleLoadData(out: *mut Handle, image: *const c_void);
    cuModuleLoadDataEx(
        out: *mut Handle, image: *const c_void, count: u32, keys: *const u32, values: *mut u64
    );
    cuModuleLoad(out: *mut Handle, name: *const i8);
    cuModuleUnload(module: Handle);
    cuModuleGetFunction(out: *mut Handle, module: Handle, name: *const i8);
    cuModuleGetGlobal_v2(address: *mut u64, bytes: *mut usize, module: Handle, name: *const i8);
    cuLinkCreate_v2(count: u32, keys: *const u32, values: *mut u64, out: *mut Handle);
    cuLinkAddData_v2(
        link: Handle, kind: u32, data: *const c_void, bytes: usize, name: *const i8, count: u32,
        keys: *const u32, values: *mut u64
    );
    cuLinkComplete(link: Handle, image: *mut *const c_void, bytes: *mut usize);
    cuLinkDestroy(link: Handle);
    cuLibraryLoadData(
        out: *mut Handle, image: *const c_void, jit_keys: *const u32, jit_values: *mut u64,
        jit_count: u32, keys: *const u32, values: *mut u64, count: u32
    );
    cuLibraryGetKernel(out: *mut Handle, library: Handle, name: *const i8);
    cuLibraryUnload(library: Handle);
    cuFuncGetAttribute(out: *mut i32, number: u32, function: Handle);
    cuFuncSetAttribute(function: Handle, number: u32, value: i32);
    cuLaunchKernel(
        function: Handle, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32,
        stream: Handle, values: *const *const c_void, extra: *const u64
    );
    cuGetErrorName(code: i32, out: *mut *const i8);
    cuGetExportTable(table: *mut u64, id: *const c_void);
    cuArrayCreate_v2(out: *mut Handle, description: *const c_void);
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Plane {
    pub x: usize,
    pub y: usize,
    pub kind: u32,
    pub host: u64,
    pub device: u64,
    pub array: u64,
    pub pitch: usize,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Copy2d {
    pub from: Plane,
    pub to: Plane,
    pub width: usize,
    pub height: usize,
}

#[repr(C)]
pub struct MemsetNode {
    pub to: u64,
    pub pitch: usize,
    pub value: u32,
    pub element: u32,
    pub width: usize,
    pub height: usize,
}

pub const OK: i32 = 0;
pub const INVALID_VALUE: i32 = 1;
pub const OUT_OF_MEMORY: i32 = 2;
pub const INVALID_CONTEXT: i32 = 201;
pub const NO_BINARY_FOR_GPU: i32 = 209;
pub const INVALID_IMAGE: i32 = 200;
pub const INVALID_PTX: i32 = 218;
pub const INVALID_HANDLE: i32 = 400;
pub const NOT_FOUND: i32 = 500;
pub const NOT_READY: i32 = 600;
pub const ILLEGAL_ADDRESS: i32 = 700;
pub const NOT_SUPPORTED: i32 = 801;

#[track_caller]
pub fn ok(code: i32) {
    assert_eq!(code, OK);
}

/// Calls `make` with a place for a result and returns what was put there.
#[track_caller]
pub fn made<T: Default>(make: impl FnOnce(*mut T) -> i32) -> T {
    let mut value = T::default();
    ok(make(&raw mut value));
    value
}

/// A context of the test's own, current on its thread while it lives.
pub struct Context(pub Handle);

impl Context {
    pub fn new() -> Self {
        ok(cuInit(0));
        Context(made(|out| cuCtxCreate_v2(out, 0, 0)))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        cuCtxDestroy_v2(self.0);
    }
}

pub fn stream(flags: u32) -> Handle {
    made(|out| cuStreamCreate(out, flags))
}

/// Device memory with this content.
pub fn upload(bytes: &[u8]) -> u64 {
    let address = made(|out| cuMemAlloc_v2(out, bytes.len()));
    ok(cuMemcpyHtoD_v2(address, bytes.as_ptr().cast(), bytes.len()));
    address
}

pub fn download(address: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0xEE; length];
    ok(cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), address, length));
    bytes
}

pub fn text(text: &str) -> CString {
    CString::new(text).expect("no inner zero")
}
