//! Functions: a kernel in one context, with its attributes.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use super::code::Code;
use super::context::{ContextState, current};
use super::driver::driver;
use super::ffi::{Out, Outcome};
use super::guard::entries;
use super::handles::{Handle, Registry, fresh};
use super::module::{MODULES, Module};
use crate::profile::Profile;
use crate::program::Kernel;

/// `CUfunction_attribute` numbers.
mod attribute {
    pub const MAX_THREADS: u32 = 0;
    pub const STATIC_SHARED: u32 = 1;
    pub const CONSTANT: u32 = 2;
    pub const LOCAL: u32 = 3;
    pub const REGISTERS: u32 = 4;
    pub const PTX_VERSION: u32 = 5;
    pub const BINARY_VERSION: u32 = 6;
    pub const CACHE_MODE: u32 = 7;
    pub const MAX_DYNAMIC_SHARED: u32 = 8;
    pub const CARVEOUT: u32 = 9;
    /// Cluster attributes: 10 to 15.
    pub const LAST: u32 = 15;
}

/// `CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN`
pub const SHARED_OPTIN: i32 = 97;
/// `CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK`
const SHARED_DEFAULT: i32 = 8;

/// `CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK`
const REGISTERS_PER_BLOCK: i32 = 12;

pub struct Function {
    pub handle: Handle,
    pub kernel: Arc<Kernel>,
    pub module: Handle,
    pub context: Arc<ContextState>,
    pub profile: &'static Profile,
    target: u32,
    /// -1 until set: what the device allows without opting in.
    dynamic_shared: AtomicI32,
    carveout: AtomicI32,
}

pub static FUNCTIONS: Registry<Function> = Registry::new();

impl Function {
    pub fn new(module: &Module, kernel: Arc<Kernel>) -> Arc<Function> {
        let profile = driver()
            .and_then(|driver| driver.device(module.context.device as i32))
            .map(|device| device.profile);
        let function = Arc::new(Function {
            handle: fresh(),
            kernel,
            module: module.handle,
            context: Arc::clone(&module.context),
            // A module exists, so its device does.
            profile: profile.unwrap_or(&crate::profile::PROFILES[0]),
            target: module.prepared.target,
            dynamic_shared: AtomicI32::new(-1),
            carveout: AtomicI32::new(-1),
        });
        FUNCTIONS.insert(function.handle, Arc::clone(&function));
        function
    }

    fn limit(&self, attribute: i32) -> i32 {
        self.profile.attribute(attribute).unwrap_or(48 << 10)
    }

    /// Dynamic shared bytes that a launch may ask for.
    pub fn most_dynamic_shared(&self) -> i32 {
        match self.dynamic_shared.load(Ordering::Relaxed) {
            -1 => {
                // A kernel beyond the default has opted in by its declaration.
                let fixed = self.kernel.static_shared as i32;
                let default = self.limit(SHARED_DEFAULT);
                let most = match fixed > default {
                    true => self.limit(SHARED_OPTIN),
                    false => default,
                };
                (most - fixed).max(0)
            }
            set => set,
        }
    }

    /// An estimate: what the PTX declares, but no more than lets a block of the
    /// kernel's largest size run, since the device says that such a block does.
    pub fn registers(&self) -> u32 {
        let a_block = self.limit(REGISTERS_PER_BLOCK).unsigned_abs();
        let most = a_block / self.kernel.max_threads.max(1);
        self.kernel.registers.min(most)
    }

    /// # Errors
    /// `INVALID_VALUE` for an unknown attribute.
    pub fn attribute(&self, number: u32) -> Result<i32, Code> {
        Ok(match number {
            attribute::MAX_THREADS => self.kernel.max_threads as i32,
            attribute::STATIC_SHARED => self.kernel.static_shared as i32,
            attribute::CONSTANT | attribute::CACHE_MODE => 0,
            attribute::LOCAL => self.kernel.local_bytes as i32,
            attribute::REGISTERS => self.registers() as i32,
            attribute::PTX_VERSION => self.target as i32,
            attribute::BINARY_VERSION => {
                let (major, minor) = self.profile.compute_capability;
                (major * 10 + minor) as i32
            }
            attribute::MAX_DYNAMIC_SHARED => self.most_dynamic_shared(),
            attribute::CARVEOUT => self.carveout.load(Ordering::Relaxed),
            10..=attribute::LAST => 0,
            _ => return Err(Code::INVALID_VALUE),
        })
    }

    /// # Errors
    /// `INVALID_VALUE` for a read-only attribute or a value out of range.
    pub fn set_attribute(&self, number: u32, value: i32) -> Outcome {
        match number {
            attribute::MAX_DYNAMIC_SHARED => {
                let most = self.limit(SHARED_OPTIN) - self.kernel.static_shared as i32;
                if !(0..=most).contains(&value) {
                    return Err(Code::INVALID_VALUE);
                }
                self.dynamic_shared.store(value, Ordering::Relaxed);
            }
            attribute::CARVEOUT if (-1..=100).contains(&value) => {
                self.carveout.store(value, Ordering::Relaxed);
            }
            // Clusters are not implemented; asking for none is fine.
            10..=attribute::LAST if value == 0 => {}
            10..=attribute::LAST => return Err(Code::NOT_SUPPORTED),
            _ => return Err(Code::INVALID_VALUE),
        }
        Ok(())
    }
}

/// A function by handle: a module's, or a library's kernel in the current
/// context.
///
/// # Errors
/// `INVALID_HANDLE`, and the context's sticky error.
pub fn find(handle: Handle) -> Result<Arc<Function>, Code> {
    driver()?;
    let function = match FUNCTIONS.get(handle) {
        Ok(function) => function,
        Err(_) => super::library::function_of(handle, &*current()?)?,
    };
    function.context.check()?;
    Ok(function)
}

fn get_attribute(out: Out<i32>, number: u32, function: Handle) -> Outcome {
    out.set(find(function)?.attribute(number)?)
}

fn set_cache(function: Handle, config: i32) -> Outcome {
    find(function)?;
    match config {
        0..=3 => Ok(()),
        _ => Err(Code::INVALID_VALUE),
    }
}

pub fn param_info(kernel: &Kernel, index: usize, offset: Out<usize>, size: Out<usize>) -> Outcome {
    let slot = kernel.params.get(index).ok_or(Code::INVALID_VALUE)?;
    offset.set(slot.offset as usize)?;
    size.set_if_wanted(slot.bytes as usize)
}

/// Names stay valid as long as the program runs, since clients keep pointers.
pub fn lasting_name(name: &str) -> u64 {
    use std::collections::BTreeMap;
    use std::ffi::CString;
    use std::sync::{Mutex, PoisonError};
    static NAMES: Mutex<BTreeMap<String, CString>> = Mutex::new(BTreeMap::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let text = names
        .entry(name.to_owned())
        .or_insert_with(|| CString::new(name).unwrap_or_default());
    text.as_ptr() as u64
}

entries! {
    cuFuncGetAttribute(out: Out<i32>, attribute: u32, function: Handle) =>
        get_attribute(out, attribute, function);
    cuFuncSetAttribute(function: Handle, attribute: u32, value: i32) =>
        find(function)?.set_attribute(attribute, value);
    cuFuncSetCacheConfig(function: Handle, config: i32) => set_cache(function, config);
    cuFuncSetSharedMemConfig(function: Handle, _config: i32) => find(function).map(drop);
    cuFuncGetModule(out: Out<Handle>, function: Handle) => {
        let module = MODULES.get(find(function)?.module)?;
        out.set(module.handle)
    };
    cuFuncGetName(out: Out<u64>, function: Handle) =>
        out.set(lasting_name(&find(function)?.kernel.name));
    cuFuncGetParamInfo(function: Handle, index: usize, offset: Out<usize>, size: Out<usize>) =>
        param_info(&find(function)?.kernel, index, offset, size);
    cuFuncGetParamCount(function: Handle, out: Out<usize>) =>
        out.set(find(function)?.kernel.params.len());
    cuFuncIsLoaded(out: Out<u32>, function: Handle) => {
        find(function)?;
        out.set(1)
    };
    cuFuncLoad(function: Handle) => find(function).map(drop);
}
