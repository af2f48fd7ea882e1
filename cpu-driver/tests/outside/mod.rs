//! The driver as an outside program sees it: `libcuda.so` through `dlopen`.

#![allow(dead_code, clippy::too_many_arguments)]

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::path::PathBuf;
use std::ptr;

use libloading::Library;

pub type Code = c_int;
pub type Handle = *mut c_void;

/// The library that cargo built beside this test.
pub fn library_path() -> PathBuf {
    let test = std::env::current_exe().expect("the test binary");
    test.with_file_name("libcuda.so")
}

pub struct Cuda {
    library: Library,
}

/// What `cuInit` answers, and nothing else.
pub fn init_alone() -> Code {
    // SAFETY: the library's initialisers only register an exit function.
    let library = unsafe { Library::new(library_path()) }.expect("libcuda.so");
    Cuda { library }.init(0)
}

macro_rules! calls {
    ($($method:ident = $symbol:literal ($($name:ident: $ty:ty),*);)*) => {
        $(
            pub fn $method(&self, $($name: $ty),*) -> Code {
                // SAFETY: the signature is the one that cuda.h declares for it.
                let function = unsafe {
                    self.library
                        .get::<unsafe extern "C" fn($($ty),*) -> Code>($symbol)
                        .expect("an exported symbol")
                };
                // SAFETY: pointers are to live values of the test.
                unsafe { function($($name),*) }
            }
        )*
    };
}

impl Cuda {
    /// Opens the driver and makes the primary context of device 0 current.
    pub fn start() -> Self {
        let cuda = Self::open();
        cuda.begin();
        cuda
    }

    /// Opens the driver and calls nothing.
    pub fn open() -> Self {
        // SAFETY: the library's initialisers only register an exit function.
        let library = unsafe { Library::new(library_path()) }.expect("libcuda.so");
        Self { library }
    }

    /// Initialises and makes the primary context of device 0 current.
    pub fn begin(&self) {
        assert_eq!(self.init(0), 0, "cuInit");
        let mut context = ptr::null_mut();
        assert_eq!(self.primary_retain(&raw mut context, 0), 0);
        assert_eq!(self.set_current(context), 0);
    }

    pub fn load(&self, ptx: &str) -> Handle {
        let text = CString::new(ptx).expect("no NUL in PTX");
        let mut module = ptr::null_mut();
        let code = self.module_load_data(&raw mut module, text.as_ptr().cast());
        assert_eq!(code, 0, "cuModuleLoadData");
        module
    }

    pub fn function(&self, module: Handle, name: &str) -> Handle {
        let name = CString::new(name).expect("no NUL in a name");
        let mut function = ptr::null_mut();
        let code = self.module_get_function(&raw mut function, module, name.as_ptr());
        assert_eq!(code, 0, "cuModuleGetFunction");
        function
    }

    pub fn alloc(&self, bytes: usize) -> u64 {
        let mut address = 0;
        assert_eq!(self.mem_alloc(&raw mut address, bytes), 0, "cuMemAlloc");
        address
    }

    /// Launches with 64-bit and 32-bit arguments alike: each is 8 bytes of
    /// storage of which the driver reads what the parameter needs.
    pub fn launch(&self, function: Handle, shape: Shape, arguments: &[u64]) -> Code {
        let mut pointers: Vec<*mut c_void> = arguments
            .iter()
            .map(|argument| ptr::from_ref(argument).cast_mut().cast())
            .collect();
        self.launch_kernel(
            function,
            shape.grid,
            1,
            1,
            shape.block,
            1,
            1,
            shape.shared,
            ptr::null_mut(),
            pointers.as_mut_ptr(),
            ptr::null_mut(),
        )
    }

    calls! {
        init = b"cuInit"(flags: c_uint);
        primary_retain = b"cuDevicePrimaryCtxRetain"(context: *mut Handle, device: c_int);
        primary_release = b"cuDevicePrimaryCtxRelease_v2"(device: c_int);
        set_current = b"cuCtxSetCurrent"(context: Handle);
        synchronize = b"cuCtxSynchronize"();
        module_load_data = b"cuModuleLoadData"(module: *mut Handle, image: *const c_void);
        module_unload = b"cuModuleUnload"(module: Handle);
        function_count = b"cuModuleGetFunctionCount"(count: *mut c_uint, module: Handle);
        functions = b"cuModuleEnumerateFunctions"(f: *mut Handle, most: c_uint, module: Handle);
        primary_reset = b"cuDevicePrimaryCtxReset_v2"(device: c_int);
        module_get_function = b"cuModuleGetFunction"(f: *mut Handle, m: Handle, n: *const c_char);
        module_get_global = b"cuModuleGetGlobal_v2"(p: *mut u64, b: *mut usize, m: Handle, n: *const c_char);
        mem_alloc = b"cuMemAlloc_v2"(address: *mut u64, bytes: usize);
        mem_alloc_managed = b"cuMemAllocManaged"(address: *mut u64, bytes: usize, flags: c_uint);
        mem_host_alloc = b"cuMemHostAlloc"(address: *mut *mut c_void, bytes: usize, flags: c_uint);
        mem_host_register = b"cuMemHostRegister_v2"(address: *mut c_void, bytes: usize, flags: c_uint);
        mem_free = b"cuMemFree_v2"(address: u64);
        mem_free_async = b"cuMemFreeAsync"(address: u64, stream: Handle);
        error_name = b"cuGetErrorName"(code: Code, name: *mut *const c_char);
        memcpy_to_device = b"cuMemcpyHtoD_v2"(to: u64, from: *const c_void, bytes: usize);
        memcpy_to_host = b"cuMemcpyDtoH_v2"(to: *mut c_void, from: u64, bytes: usize);
        memset = b"cuMemsetD8_v2"(address: u64, value: u8, bytes: usize);
        launch_kernel = b"cuLaunchKernel"(
            function: Handle, gx: c_uint, gy: c_uint, gz: c_uint,
            bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: Handle,
            arguments: *mut *mut c_void, extra: *mut *mut c_void
        );
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub grid: c_uint,
    pub block: c_uint,
    pub shared: c_uint,
}
