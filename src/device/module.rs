//! Modules, kernels and launches.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CString, c_void};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{result, sys};

use super::buffer::{Buffer, Element};
use super::choice::Driver;
use super::context::{Device, Shared};
use super::error::DeviceError;
use super::{cubin, signature};
use crate::kernels::KernelModule;

/// A loaded module; unloaded on drop unless the context is lost.
pub struct Module {
    shared: Arc<Shared>,
    handle: sys::CUmodule,
    name: String,
    source: Source,
    /// Kernels looked up before: reading a signature out of the text costs more than
    /// a launch.
    found: Mutex<HashMap<String, Found>>,
}

/// Where the parameters of a kernel are read.
enum Source {
    Ptx(String),
    Cubin(BTreeMap<String, Vec<usize>>),
}

/// A kernel's handle, and the size in bytes of each parameter.
type Found = (sys::CUfunction, Arc<[usize]>);

// SAFETY: a module handle may be used from any thread that has made the context
// current, which every method does first.
unsafe impl Send for Module {}
// SAFETY: as above; the driver's module calls are thread safe.
unsafe impl Sync for Module {}

/// A kernel of a loaded module.
pub struct Kernel<'m> {
    module: &'m Module,
    function: sys::CUfunction,
    name: String,
    /// Size in bytes of each parameter, in order.
    parameters: Arc<[usize]>,
}

/// Grid and block of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// Blocks in x, y, z.
    pub grid: (u32, u32, u32),
    /// Threads of a block in x, y, z.
    pub block: (u32, u32, u32),
    /// Dynamic shared memory of a block in bytes.
    pub shared_bytes: u32,
}

impl Launch {
    /// A one-dimensional launch without dynamic shared memory.
    pub fn linear(blocks: u32, threads: u32) -> Launch {
        Launch {
            grid: (blocks, 1, 1),
            block: (threads, 1, 1),
            shared_bytes: 0,
        }
    }
}

/// A kernel argument: a buffer (passed as its address) or a number.
///
/// A kernel may write any buffer that it is given, also one passed by shared
/// reference: device memory is never borrowed by the host, only copied.
pub trait Argument {
    /// Address of the bytes to pass.
    fn bytes(&self) -> *mut c_void;
    /// Their number.
    fn size(&self) -> usize;
}

impl<T: Element> Argument for Buffer<T> {
    fn bytes(&self) -> *mut c_void {
        self.address_of_address()
    }
    fn size(&self) -> usize {
        size_of::<sys::CUdeviceptr>()
    }
}

impl<T: Element> Argument for T {
    fn bytes(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }
    fn size(&self) -> usize {
        size_of::<T>()
    }
}

impl Device {
    /// Loads one compiled file of `kernels/`.
    ///
    /// # Errors
    /// [`DeviceError::PtxRejected`] with the driver's log.
    pub fn load(&self, module: &KernelModule) -> Result<Module, DeviceError> {
        self.load_ptx(module.name, module.ptx)
    }

    /// Loads PTX text; `name` is for messages.
    pub fn load_ptx(&self, name: &str, ptx: &str) -> Result<Module, DeviceError> {
        let image = CString::new(ptx).map_err(|_| DeviceError::BadRequest {
            message: format!("the PTX of module `{name}` holds a NUL byte"),
        })?;
        self.shared.enter()?;
        // Plain cuModuleLoadData: source lines in a sanitizer's report need no JIT
        // option. Only a refusal is asked again, for its log.
        // SAFETY: `image` is NUL-terminated and outlives the call.
        let handle = match unsafe { result::module::load_data(image.as_ptr().cast()) } {
            Ok(handle) => handle,
            Err(error) => {
                let error = self.shared.check::<()>("cuModuleLoadData", Err(error));
                return Err(match error {
                    Err(DeviceError::Driver {
                        code, name: why, ..
                    }) => DeviceError::PtxRejected {
                        module: name.to_string(),
                        code,
                        name: why,
                        log: jit_log(&image),
                    },
                    Err(other) => other,
                    Ok(()) => unreachable!("an error stays an error"),
                });
            }
        };
        Ok(Module {
            shared: Arc::clone(&self.shared),
            handle,
            name: name.to_string(),
            source: Source::Ptx(ptx.to_string()),
            found: Mutex::default(),
        })
    }
}

impl Device {
    /// Loads a cubin, machine code for one family of GPUs; `name` is for messages.
    ///
    /// # Errors
    /// [`DeviceError::PtxRejected`] where the device cannot run it, with the reason:
    /// no failure of the kernel, a case is skipped. [`DeviceError::BadRequest`] for
    /// bytes that are no cubin.
    pub fn load_cubin(&self, name: &str, image: &[u8]) -> Result<Module, DeviceError> {
        let kernels = cubin::parameters(image).map_err(|why| DeviceError::BadRequest {
            message: format!("`{name}` is no cubin: {why}"),
        })?;
        self.shared.enter()?;
        // SAFETY: an ELF file carries its own sizes, which were found to lie inside
        // `image`; the driver copies what it keeps.
        let loaded = unsafe { result::module::load_data(image.as_ptr().cast()) };
        match self.shared.check("cuModuleLoadData", loaded) {
            Ok(handle) => Ok(Module {
                shared: Arc::clone(&self.shared),
                handle,
                name: name.to_string(),
                source: Source::Cubin(kernels),
                found: Mutex::default(),
            }),
            Err(DeviceError::Driver {
                code, name: why, ..
            }) => Err(DeviceError::PtxRejected {
                module: name.to_string(),
                code,
                name: why,
                log: self.why_not_this_cubin(),
            }),
            Err(other) => Err(other),
        }
    }

    fn why_not_this_cubin(&self) -> String {
        let info = self.info();
        let (major, minor) = info.compute_capability;
        match info.driver {
            Driver::Cpu => "a cubin is machine code for a GPU, and this is the CPU driver: \
                            give it the PTX of the same kernel"
                .to_owned(),
            Driver::Nvidia | Driver::Named => format!(
                "a cubin runs on the family it was made for only: make it for sm_{major}{minor}, \
                 or give the PTX"
            ),
        }
    }

    /// Loads PTX or a cubin from a file, by what the file holds.
    ///
    /// # Errors
    /// As [`Device::load_ptx`] and [`Device::load_cubin`];
    /// [`DeviceError::BadRequest`] for a file that cannot be read or is neither.
    pub fn load_file(&self, path: &Path) -> Result<Module, DeviceError> {
        let bad = |why: String| DeviceError::BadRequest {
            message: format!("{}: {why}", path.display()),
        };
        let image = std::fs::read(path).map_err(|error| bad(error.to_string()))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if cubin::is_elf(&image) {
            return self.load_cubin(&name, &image);
        }
        let neither = "expected PTX text or a cubin (`nvcc -ptx`, `nvcc -cubin`)";
        match String::from_utf8(image) {
            Ok(text) if text.contains(".version") => self.load_ptx(&name, &text),
            _ => Err(bad(neither.to_owned())),
        }
    }
}

/// Loads once more with an error log, and drops the result.
fn jit_log(image: &CString) -> String {
    const SIZE: usize = 8192;
    let mut log = vec![0u8; SIZE];
    let mut options = [
        sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
        sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
    ];
    let mut values = [log.as_mut_ptr().cast::<c_void>(), SIZE as *mut c_void];
    let mut module = std::ptr::null_mut();
    // SAFETY: two options with their two values; the log buffer has the size that
    // is passed, and everything outlives the call. The size option is by value.
    unsafe {
        let code = sys::cuModuleLoadDataEx(
            &mut module,
            image.as_ptr().cast(),
            2,
            options.as_mut_ptr(),
            values.as_mut_ptr(),
        );
        if code == sys::CUresult::CUDA_SUCCESS {
            let _ = result::module::unload(module);
        }
    }
    let end = log.iter().position(|&b| b == 0).unwrap_or(SIZE);
    String::from_utf8_lossy(&log[..end]).into_owned()
}

impl Module {
    /// Looks a kernel up by its `extern "C"` name.
    pub fn kernel(&self, name: &str) -> Result<Kernel<'_>, DeviceError> {
        let mut known = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let (function, parameters) = match known.get(name) {
            Some(found) => found.clone(),
            None => {
                let found = self.look_up(name)?;
                known.insert(name.to_string(), found.clone());
                found
            }
        };
        Ok(Kernel {
            module: self,
            function,
            name: name.to_string(),
            parameters,
        })
    }

    fn look_up(&self, name: &str) -> Result<Found, DeviceError> {
        let absent = || DeviceError::BadRequest {
            message: format!("module `{}` has no kernel `{name}`", self.name),
        };
        let parameters = match &self.source {
            Source::Ptx(text) => signature::parameters(text, name),
            Source::Cubin(kernels) => kernels.get(name).cloned(),
        };
        let parameters = parameters.ok_or_else(absent)?;
        let symbol = CString::new(name).map_err(|_| absent())?;
        self.shared.enter()?;
        // SAFETY: the module is loaded for as long as `self` lives.
        let found = unsafe { result::module::get_function(self.handle, symbol) };
        let function = self.shared.check("cuModuleGetFunction", found)?;
        Ok((function, parameters.into()))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if self.shared.enter().is_ok() {
            // SAFETY: kernels borrow the module, so none is left.
            let unloaded = unsafe { result::module::unload(self.handle) };
            let _ = self.shared.check("cuModuleUnload", unloaded);
        }
    }
}

impl Kernel<'_> {
    /// Launches on the default stream; does not wait.
    ///
    /// The number and sizes of the arguments are checked against the PTX. A kernel
    /// can still leave its buffers: that is what the lessons are about, and it can
    /// only reach device memory.
    ///
    /// # Errors
    /// [`DeviceError::BadRequest`] for an empty grid or block or for arguments that
    /// do not fit the kernel.
    pub fn launch(&self, launch: Launch, arguments: &[&dyn Argument]) -> Result<(), DeviceError> {
        self.check_request(launch, arguments)?;
        let shared = &self.module.shared;
        shared.enter()?;
        let mut pointers: Vec<*mut c_void> = arguments.iter().map(|a| a.bytes()).collect();
        // SAFETY: as many arguments as the kernel has parameters, each of the size
        // the kernel reads; the driver copies them before it returns.
        let launched = unsafe {
            result::launch_kernel(
                self.function,
                launch.grid,
                launch.block,
                launch.shared_bytes,
                std::ptr::null_mut(),
                &mut pointers,
            )
        };
        shared.check("cuLaunchKernel", launched)
    }

    /// Lets launches ask for up to `bytes` of dynamic shared memory; without it the
    /// limit is 48 KiB.
    pub fn allow_shared_bytes(&self, bytes: u32) -> Result<(), DeviceError> {
        let shared = &self.module.shared;
        shared.enter()?;
        // SAFETY: a function of a module that `self` keeps loaded.
        let set = unsafe {
            result::function::set_function_attribute(
                self.function,
                sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                i32::try_from(bytes).unwrap_or(i32::MAX),
            )
        };
        shared.check("cuFuncSetAttribute", set)
    }

    fn check_request(
        &self,
        launch: Launch,
        arguments: &[&dyn Argument],
    ) -> Result<(), DeviceError> {
        let bad = |message| Err(DeviceError::BadRequest { message });
        let (gx, gy, gz) = launch.grid;
        let (bx, by, bz) = launch.block;
        if [gx, gy, gz, bx, by, bz].contains(&0) {
            return bad(format!(
                "`{}` was to be launched with grid ({gx},{gy},{gz}) and block ({bx},{by},{bz}); \
                 a launch needs at least one block and one thread",
                self.name
            ));
        }
        let given: Vec<usize> = arguments.iter().map(|a| a.size()).collect();
        if given != *self.parameters {
            return bad(format!(
                "`{}` takes parameters of {:?} bytes and was given {given:?}",
                self.name, self.parameters
            ));
        }
        Ok(())
    }
}
