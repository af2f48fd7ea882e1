//! Libraries: PTX that belongs to no context and becomes a module in each one
//! that uses it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::code::Code;
use super::context::{Context, current};
use super::driver::driver;
use super::ffi::{In, Out, Outcome, Text};
use super::function::{Function, lasting_name, param_info};
use super::guard::entries;
use super::handles::{Handle, Registry, fresh};
use super::jit::Options;
use super::module::{Module, Prepared, prepare, read_file, read_image};
use crate::profile::Profile;

pub struct Library {
    handle: Handle,
    prepared: Arc<Prepared>,
    /// By context.
    modules: Mutex<BTreeMap<Handle, Arc<Module>>>,
    kernels: Mutex<BTreeMap<String, Arc<LibraryKernel>>>,
}

/// `CUkernel`
pub struct LibraryKernel {
    handle: Handle,
    library: Handle,
    name: String,
}

static LIBRARIES: Registry<Library> = Registry::new();
static KERNELS: Registry<LibraryKernel> = Registry::new();

impl Library {
    fn modules(&self) -> MutexGuard<'_, BTreeMap<Handle, Arc<Module>>> {
        self.modules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn module_in(&self, context: &Context) -> Result<Arc<Module>, Code> {
        let mut modules = self.modules();
        if let Some(module) = modules.get(&context.state.handle) {
            return Ok(Arc::clone(module));
        }
        let module = self.prepared.instantiate(context)?;
        modules.insert(context.state.handle, Arc::clone(&module));
        Ok(module)
    }

    fn kernel(&self, name: &str) -> Result<Arc<LibraryKernel>, Code> {
        if !self.prepared.names.iter().any(|known| known == name) {
            return Err(Code::NOT_FOUND);
        }
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        let kernel = kernels.entry(name.to_owned()).or_insert_with(|| {
            let kernel = Arc::new(LibraryKernel {
                handle: fresh(),
                library: self.handle,
                name: name.to_owned(),
            });
            KERNELS.insert(kernel.handle, Arc::clone(&kernel));
            kernel
        });
        Ok(Arc::clone(kernel))
    }

    fn unload(&self) -> Outcome {
        LIBRARIES.remove(self.handle)?;
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        for kernel in std::mem::take(&mut *kernels).into_values() {
            let _ = KERNELS.remove(kernel.handle);
        }
        let modules = std::mem::take(&mut *self.modules());
        modules.into_values().try_for_each(|module| module.unload())
    }
}

/// The function that a `CUkernel` is in `context`.
///
/// # Errors
/// `INVALID_HANDLE`
pub fn function_of(kernel: Handle, context: &Context) -> Result<Arc<Function>, Code> {
    let kernel = KERNELS.get(kernel)?;
    let library = LIBRARIES.get(kernel.library)?;
    library.module_in(context)?.function(&kernel.name)
}

/// A context ends: its modules go with it.
pub fn forget_context(context: Handle) {
    for library in LIBRARIES.all() {
        library.modules().remove(&context);
    }
}

/// All devices have one profile; a library needs no current context.
fn profile() -> Result<&'static Profile, Code> {
    Ok(driver()?.device(0)?.profile)
}

fn load(
    out: Out<Handle>,
    mut log: Options,
    text: impl FnOnce(&Profile, &mut Options) -> Result<String, Code>,
) -> Outcome {
    let profile = profile()?;
    let prepared = text(profile, &mut log).and_then(|text| prepare(&[text], profile, &mut log));
    log.finish()?;
    let prepared = Arc::new(prepared?);
    let library = Arc::new(Library {
        handle: fresh(),
        prepared,
        modules: Mutex::new(BTreeMap::new()),
        kernels: Mutex::new(BTreeMap::new()),
    });
    out.set(library.handle)?;
    LIBRARIES.insert(library.handle, library);
    Ok(())
}

fn enumerate(out: Out<Handle>, most: u32, library: Handle) -> Outcome {
    let library = LIBRARIES.get(library)?;
    for (at, name) in library
        .prepared
        .names
        .iter()
        .take(most as usize)
        .enumerate()
    {
        out.element(at).set(library.kernel(name)?.handle)?;
    }
    Ok(())
}

fn global(
    address: Out<u64>,
    bytes: Out<usize>,
    library: Handle,
    name: Text,
    managed: bool,
) -> Outcome {
    let module = LIBRARIES.get(library)?.module_in(&*current()?)?;
    let global = module.globals.get(&name.text()?);
    let global = global.filter(|global| !managed || global.managed);
    let global = global.ok_or(Code::NOT_FOUND)?;
    address.set_if_wanted(global.address)?;
    bytes.set_if_wanted(global.bytes as usize)
}

/// The kernel in the context of a device: the current one, which has to be there.
fn on_device(kernel: Handle, device: i32) -> Result<Arc<Function>, Code> {
    let context = current()?;
    driver()?.device(device)?;
    function_of(kernel, &context)
}

entries! {
    cuLibraryLoadData(
        out: Out<Handle>, image: In<u8>,
        jit_keys: In<u32>, jit_values: Out<u64>, jit_count: u32,
        _keys: In<u32>, _values: Out<u64>, _count: u32,
    ) => load(out, Options::read(jit_count, jit_keys, jit_values)?, |profile, log| {
        read_image(image, profile, log)
    });
    cuLibraryLoadFromFile(
        out: Out<Handle>, name: Text,
        jit_keys: In<u32>, jit_values: Out<u64>, jit_count: u32,
        _keys: In<u32>, _values: Out<u64>, _count: u32,
    ) => load(out, Options::read(jit_count, jit_keys, jit_values)?, |profile, log| {
        read_file(name, profile, log)
    });
    cuLibraryUnload(library: Handle) => LIBRARIES.get(library)?.unload();
    cuLibraryGetKernel(out: Out<Handle>, library: Handle, name: Text) =>
        out.set(LIBRARIES.get(library)?.kernel(&name.text()?)?.handle);
    cuLibraryGetKernelCount(out: Out<u32>, library: Handle) =>
        out.set(LIBRARIES.get(library)?.prepared.names.len() as u32);
    cuLibraryEnumerateKernels(out: Out<Handle>, most: u32, library: Handle) =>
        enumerate(out, most, library);
    cuLibraryGetModule(out: Out<Handle>, library: Handle) =>
        out.set(LIBRARIES.get(library)?.module_in(&*current()?)?.handle);
    cuLibraryGetGlobal(address: Out<u64>, bytes: Out<usize>, library: Handle, name: Text) =>
        global(address, bytes, library, name, false);
    cuLibraryGetManaged(address: Out<u64>, bytes: Out<usize>, library: Handle, name: Text) =>
        global(address, bytes, library, name, true);
    cuKernelGetFunction(out: Out<Handle>, kernel: Handle) =>
        out.set(function_of(kernel, &*current()?)?.handle);
    cuKernelGetLibrary(out: Out<Handle>, kernel: Handle) => out.set(KERNELS.get(kernel)?.library);
    cuKernelGetName(out: Out<u64>, kernel: Handle) =>
        out.set(lasting_name(&KERNELS.get(kernel)?.name));
    cuKernelGetAttribute(out: Out<i32>, attribute: u32, kernel: Handle, device: i32) =>
        out.set(on_device(kernel, device)?.attribute(attribute)?);
    cuKernelSetAttribute(attribute: u32, value: i32, kernel: Handle, device: i32) =>
        on_device(kernel, device)?.set_attribute(attribute, value);
    cuKernelSetCacheConfig(kernel: Handle, _config: i32, device: i32) =>
        on_device(kernel, device).map(drop);
    cuKernelGetParamInfo(kernel: Handle, index: usize, offset: Out<usize>, size: Out<usize>) =>
        param_info(&function_of(kernel, &*current()?)?.kernel, index, offset, size);
    cuKernelGetParamCount(kernel: Handle, out: Out<usize>) =>
        out.set(function_of(kernel, &*current()?)?.kernel.params.len());
}
