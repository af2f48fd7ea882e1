//! Modules: PTX made ready in one context.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::code::Code;
use super::context::{Context, ContextState, current};
use super::driver::{Driver, driver};
use super::ffi::{In, Out, Outcome, Text};
use super::function::Function;
use super::function::SHARED_OPTIN;
use super::guard::entries;
use super::handles::{Handle, Registry, fresh};
use super::jit::Options;
use super::link::SEPARATOR;
use crate::machine::memory::{AllocationKind, Request};
use crate::profile::Profile;
use crate::program::{GlobalDef, Kernel, LoadError, Program};
use crate::ptx::ErrorKind;
use crate::ptx::ast::FunctionKind;
use crate::ptx::check::check;

/// PTX that was parsed and linked but belongs to no context yet.
pub struct Prepared {
    program: Program,
    /// Kernels in the order of the text.
    pub names: Vec<String>,
    pub target: u32,
}

#[derive(Debug, Clone, Copy)]
pub struct Global {
    pub address: u64,
    pub bytes: u64,
    pub managed: bool,
}

pub struct Module {
    pub handle: Handle,
    pub context: Arc<ContextState>,
    pub prepared: Arc<Prepared>,
    pub kernels: Vec<Arc<Kernel>>,
    pub globals: BTreeMap<String, Global>,
    functions: Mutex<BTreeMap<String, Arc<Function>>>,
}

pub static MODULES: Registry<Module> = Registry::new();

/// Parses one PTX text and checks its version, its names and its target. A
/// failure leaves a line in the log.
///
/// # Errors
/// `UNSUPPORTED_PTX_VERSION` for an ISA that there never was, `INVALID_PTX`.
pub fn check_text(
    text: &str,
    profile: &Profile,
    log: &mut Options,
) -> Result<crate::ptx::ast::Module, Code> {
    let mut refused = |place: &str, message: &str, code| {
        log.error(&format!("ptx input{place}: error: {message}"));
        code
    };
    let module = crate::ptx::parse(text).map_err(|error| {
        let place = format!(", line {}, column {}", error.line, error.column);
        let code = match error.kind {
            ErrorKind::Syntax => Code::INVALID_PTX,
            ErrorKind::Version => Code::UNSUPPORTED_PTX_VERSION,
        };
        refused(&place, &error.message, code)
    })?;
    profile
        .accepts(&module.target)
        .map_err(|error| refused("", &error.to_string(), Code::INVALID_PTX))?;
    check(&module).map_err(|error| {
        let place = format!(", line {}", error.line);
        refused(&place, &error.message, Code::INVALID_PTX)
    })?;
    Ok(module)
}

/// Parses and links PTX texts; one that `cuLinkComplete` made holds several.
///
/// # Errors
/// `INVALID_PTX`, also for a target beyond the profile.
pub fn prepare(texts: &[String], profile: &Profile, log: &mut Options) -> Result<Prepared, Code> {
    let parts = texts.iter().flat_map(|text| text.split(SEPARATOR));
    let modules = parts
        .map(|text| {
            check_text(text, profile, log).map_err(|code| match code {
                // Text in which no module can start is no image at all.
                Code::INVALID_PTX if !text.contains(".version") => Code::INVALID_IMAGE,
                code => code,
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    let most = profile.attribute(SHARED_OPTIN).unwrap_or(48 << 10);
    let program = Program::link(&modules)
        .and_then(|program| {
            program
                .check_shared(most.unsigned_abs().into())
                .map(|()| program)
        })
        .map_err(|error| link_failed(&error, log))?;
    let functions = modules.iter().flat_map(|module| &module.functions);
    let kernels = functions.filter(|f| f.kind == FunctionKind::Entry && f.body.is_some());
    Ok(Prepared {
        program,
        names: kernels.map(|kernel| kernel.name.clone()).collect(),
        target: modules.first().map_or(0, |module| module.target.sm),
    })
}

fn link_failed(error: &LoadError, log: &mut Options) -> Code {
    let place = match error.line {
        0 => String::new(),
        line => format!(", line {line}"),
    };
    log.error(&format!("ptx input{place}: error: {}", error.message));
    Code::INVALID_PTX
}

impl Prepared {
    /// Gives the program memory in `context` and makes a module of it.
    pub fn instantiate(self: &Arc<Self>, context: &Context) -> Result<Arc<Module>, Code> {
        let driver = driver()?;
        let mut globals = BTreeMap::new();
        let made = self
            .place_globals(driver, context, &mut globals)
            .and_then(|()| self.kernels(&globals));
        let kernels = made.inspect_err(|_| free_globals(driver, &globals))?;
        let module = Arc::new(Module {
            handle: fresh(),
            context: Arc::clone(&context.state),
            prepared: Arc::clone(self),
            kernels,
            globals,
            functions: Mutex::new(BTreeMap::new()),
        });
        MODULES.insert(module.handle, Arc::clone(&module));
        Ok(module)
    }

    fn kernels(&self, globals: &BTreeMap<String, Global>) -> Result<Vec<Arc<Kernel>>, Code> {
        let address_of = |name: &str| globals.get(name).map(|global| global.address);
        let kernels = self.program.instantiate(&address_of);
        let kernels = kernels.map_err(|error| link_failed(&error, &mut Options::none()))?;
        Ok(kernels.into_iter().map(Arc::new).collect())
    }

    fn place_globals(
        &self,
        driver: &Driver,
        context: &Context,
        globals: &mut BTreeMap<String, Global>,
    ) -> Outcome {
        for def in &self.program.globals {
            let kind = match def.managed {
                true => AllocationKind::ModuleManaged,
                false => AllocationKind::Module,
            };
            let mut request = Request::new(kind, def.bytes.max(1), context.state.handle);
            request.device = context.state.device;
            request.align = u64::from(def.align).max(request.align);
            request.read_only = def.constant;
            let global = Global {
                address: driver.memory.allocate(request)?.base,
                bytes: def.bytes,
                managed: def.managed,
            };
            globals.insert(def.name.clone(), global);
        }
        self.program
            .globals
            .iter()
            .try_for_each(|def| self.fill_global(driver, def, globals))
    }

    fn fill_global(
        &self,
        driver: &Driver,
        def: &GlobalDef,
        globals: &BTreeMap<String, Global>,
    ) -> Outcome {
        let address = globals[&def.name].address;
        let mut image = def.image.clone();
        image.truncate(def.bytes as usize);
        for relocation in &def.relocations {
            let found = globals
                .get(&relocation.symbol)
                .map(|global| global.address)
                .or_else(|| self.program.function_address(&relocation.symbol));
            let Some(target) = found else {
                let symbol = &relocation.symbol;
                super::guard::note(&format!(
                    "{} needs `{symbol}`, which is undefined",
                    def.name
                ));
                return Err(Code::INVALID_PTX);
            };
            let value = target.wrapping_add(relocation.addend as u64);
            let at = relocation.offset as usize;
            if image.len() < at + 8 {
                image.resize(at + 8, 0);
            }
            image[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        // A range of no bytes at the very end lies in no allocation.
        if !image.is_empty() {
            driver.memory.write(address, &image)?;
        }
        let rest = def.bytes.saturating_sub(image.len() as u64);
        if rest > 0 {
            let zeros = address + image.len() as u64;
            driver.memory.clear(zeros, rest)?;
        }
        Ok(())
    }
}

fn free_globals(driver: &Driver, globals: &BTreeMap<String, Global>) {
    for global in globals.values() {
        // Freed with the context at the latest.
        let _ = driver.memory.free(global.address);
    }
}

impl Module {
    fn functions(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Function>>> {
        self.functions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The function of a kernel; the same one at every call.
    ///
    /// # Errors
    /// `NOT_FOUND`
    pub fn function(self: &Arc<Self>, name: &str) -> Result<Arc<Function>, Code> {
        let mut functions = self.functions();
        if let Some(known) = functions.get(name) {
            return Ok(Arc::clone(known));
        }
        let kernel = self.kernels.iter().find(|kernel| kernel.name == name);
        let kernel = kernel.ok_or(Code::NOT_FOUND)?;
        let function = Function::new(self, Arc::clone(kernel));
        functions.insert(name.to_owned(), Arc::clone(&function));
        Ok(function)
    }

    /// Waits for the context's work, then takes the module away.
    pub fn unload(&self) -> Outcome {
        let driver = driver()?;
        let scheduler = &driver.scheduler;
        scheduler.wait(&scheduler.of_context(self.context.handle));
        self.forget();
        free_globals(driver, &self.globals);
        Ok(())
    }

    fn forget(&self) {
        for function in self.functions().values() {
            let _ = super::function::FUNCTIONS.remove(function.handle);
        }
        self.functions().clear();
        let _ = MODULES.remove(self.handle);
    }
}

/// Forgets the modules of a context whose memory is being freed.
pub fn forget_context(context: Handle) {
    for module in MODULES.all() {
        if module.context.handle == context {
            module.forget();
        }
    }
    super::library::forget_context(context);
}

/// Reads an image; a failure goes into the log.
pub fn read_image(image: In<u8>, profile: &Profile, log: &mut Options) -> Result<String, Code> {
    super::image::ptx_at(image, profile).map_err(|(code, line)| {
        log.error(&line);
        code
    })
}

/// Reads a file that holds an image.
///
/// # Errors
/// `FILE_NOT_FOUND`, and what the image is refused for.
pub fn read_file(name: Text, profile: &Profile, log: &mut Options) -> Result<String, Code> {
    let path = std::path::PathBuf::from(name.text()?);
    let bytes = std::fs::read(&path).map_err(|error| {
        log.error(&format!("cannot read {}: {error}", path.display()));
        Code::FILE_NOT_FOUND
    })?;
    super::image::ptx_in(&bytes, profile).map_err(|(code, line)| {
        log.error(&line);
        code
    })
}

fn load(
    out: Out<Handle>,
    mut log: Options,
    text: impl FnOnce(&Profile, &mut Options) -> Result<String, Code>,
) -> Outcome {
    let context = current()?;
    let profile = driver()?.device(context.state.device as i32)?.profile;
    let loaded = text(profile, &mut log)
        .and_then(|text| prepare(&[text], profile, &mut log))
        .and_then(|prepared| Arc::new(prepared).instantiate(&context));
    log.finish()?;
    let module = loaded?;
    if let Err(code) = out.set(module.handle) {
        module.unload()?;
        return Err(code);
    }
    Ok(())
}

fn load_data(out: Out<Handle>, image: In<u8>, log: Options) -> Outcome {
    load(out, log, |profile, log| read_image(image, profile, log))
}

fn load_file(out: Out<Handle>, name: Text) -> Outcome {
    load(out, Options::none(), |profile, log| {
        read_file(name, profile, log)
    })
}

fn find(handle: Handle) -> Result<Arc<Module>, Code> {
    let module = MODULES.get(handle)?;
    module.context.check()?;
    Ok(module)
}

fn function(out: Out<Handle>, module: Handle, name: Text) -> Outcome {
    out.set(find(module)?.function(&name.text()?)?.handle)
}

fn global(address: Out<u64>, bytes: Out<usize>, module: Handle, name: Text) -> Outcome {
    let module = find(module)?;
    let global = module.globals.get(&name.text()?).ok_or(Code::NOT_FOUND)?;
    address.set_if_wanted(global.address)?;
    bytes.set_if_wanted(global.bytes as usize)
}

fn enumerate(out: Out<Handle>, most: u32, module: Handle) -> Outcome {
    let module = find(module)?;
    for (at, kernel) in module.kernels.iter().take(most as usize).enumerate() {
        out.element(at).set(module.function(&kernel.name)?.handle)?;
    }
    Ok(())
}

entries! {
    cuModuleLoad(out: Out<Handle>, name: Text) => load_file(out, name);
    cuModuleLoadData(out: Out<Handle>, image: In<u8>) => load_data(out, image, Options::none());
    cuModuleLoadDataEx(
        out: Out<Handle>, image: In<u8>, count: u32, keys: In<u32>, values: Out<u64>,
    ) => load_data(out, image, Options::read(count, keys, values)?);
    cuModuleLoadFatBinary(out: Out<Handle>, image: In<u8>) =>
        load_data(out, image, Options::none());
    cuModuleUnload(module: Handle) => find(module)?.unload();
    cuModuleGetFunction(out: Out<Handle>, module: Handle, name: Text) =>
        function(out, module, name);
    cuModuleGetGlobal_v2(address: Out<u64>, bytes: Out<usize>, module: Handle, name: Text) =>
        global(address, bytes, module, name);
    cuModuleGetFunctionCount(out: Out<u32>, module: Handle) =>
        out.set(find(module)?.kernels.len() as u32);
    cuModuleEnumerateFunctions(out: Out<Handle>, most: u32, module: Handle) =>
        enumerate(out, most, module);
    // Kernels are decoded at their first launch: lazy loading (2).
    cuModuleGetLoadingMode(out: Out<u32>) => {
        driver()?;
        out.set(2)
    };
}
