//! Kernel launches: shapes, parameters, and what a fault becomes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::code::Code;
use super::context::ContextState;
use super::ffi::{In, Outcome, plain};
use super::function::{self, Function};
use super::guard::{entries, note};
use super::handles::Handle;
use super::stream::{per_thread, resolve};
use super::work::Work;
use crate::check::memcheck::CheckedLaunch;
use crate::check::memcheck::Memcheck;
use crate::check::session::Session;
use crate::machine::launch::{Fault, LOCAL_LIMIT, LaunchConfig, run};
use crate::machine::memory::Memory;
use crate::machine::observe::{AccessKind, Site, Unchecked, Violation, ViolationKind};
use crate::program::Kernel;
use crate::settings::{BUDGET, DEFAULT_BUDGET, Settings};

/// `CU_DEVICE_ATTRIBUTE_*`: limits of a shape.
const MAX_THREADS: i32 = 1;
const MAX_BLOCK: [i32; 3] = [2, 3, 4];
const MAX_GRID: [i32; 3] = [5, 6, 7];

/// A launch that was accepted.
pub struct Launch {
    pub function: Arc<Function>,
    pub config: LaunchConfig,
    pub params: Vec<u8>,
    /// Filters and host stack of a sanitized run; `None` runs unchecked.
    checked: Option<CheckedLaunch>,
}

/// What a client asks for, as every form of launch says it.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared: u32,
    pub cooperative: bool,
}

/// # Errors
/// `INVALID_VALUE` for a shape beyond the device or the kernel's launch bounds, or for
/// more local memory than there is (so an H200's driver 580.159 answered each of these);
/// `COOPERATIVE_LAUNCH_TOO_LARGE`.
fn check_shape(function: &Function, shape: &Shape) -> Outcome {
    let limit = |number| function.profile.attribute(number).unwrap_or(1) as u64;
    let refused = |what: &str, code| {
        let Shape { grid, block, .. } = shape;
        let name = &function.kernel.name;
        note(&format!("{name}<<<{grid:?}, {block:?}>>> refused: {what}"));
        Err(code)
    };
    for axis in 0..3 {
        let blocks = u64::from(shape.grid[axis]);
        let threads = u64::from(shape.block[axis]);
        if blocks == 0 || threads == 0 {
            return refused("a dimension is zero", Code::INVALID_VALUE);
        }
        if blocks > limit(MAX_GRID[axis]) || threads > limit(MAX_BLOCK[axis]) {
            return refused("a dimension is beyond the device", Code::INVALID_VALUE);
        }
    }
    let threads: u64 = shape.block.iter().map(|&n| u64::from(n)).product();
    if threads > limit(MAX_THREADS) {
        return refused(
            "more threads a block than the device has",
            Code::INVALID_VALUE,
        );
    }
    if threads > u64::from(function.kernel.max_threads) {
        return refused(
            "more threads a block than the kernel's launch bounds",
            Code::INVALID_VALUE,
        );
    }
    if function
        .kernel
        .required_block
        .is_some_and(|block| block != shape.block)
    {
        return refused(
            "a block of another shape than the kernel's .reqntid",
            Code::INVALID_VALUE,
        );
    }
    if i64::from(shape.shared) > i64::from(function.most_dynamic_shared()) {
        return refused(
            "more dynamic shared memory than the function may use",
            Code::INVALID_VALUE,
        );
    }
    if function.kernel.code().local_bytes > LOCAL_LIMIT {
        return refused(
            "more local memory a thread than there is",
            Code::INVALID_VALUE,
        );
    }
    let blocks: u64 = shape.grid.iter().map(|&n| u64::from(n)).product();
    if shape.cooperative && blocks > super::occupancy::resident_blocks(function, shape) {
        return refused(
            "a cooperative grid must fit on the device at once",
            Code::COOPERATIVE_LAUNCH_TOO_LARGE,
        );
    }
    Ok(())
}

const EXTRA_END: u64 = 0;
const EXTRA_BUFFER: u64 = 1;
const EXTRA_SIZE: u64 = 2;

/// Packs the arguments as the kernel expects them.
///
/// # Errors
/// `INVALID_VALUE` for arguments that are missing or cannot be read.
pub fn gather(kernel: &Kernel, values: In<u64>, extra: In<u64>) -> Result<Vec<u8>, Code> {
    let mut packed = vec![0; kernel.param_bytes as usize];
    if !values.is_null() {
        let pointers = values.all(kernel.params.len())?;
        for (slot, &pointer) in kernel.params.iter().zip(&pointers) {
            let value = In(pointer as *const u8).all(slot.bytes as usize)?;
            let at = slot.offset as usize;
            packed[at..at + value.len()].copy_from_slice(&value);
        }
        return Ok(packed);
    }
    if !extra.is_null() {
        let buffer = extra_buffer(extra)?;
        if buffer.len()
            < kernel
                .params
                .last()
                .map_or(0, |p| (p.offset + p.bytes) as usize)
        {
            return Err(Code::INVALID_VALUE);
        }
        let common = buffer.len().min(packed.len());
        packed[..common].copy_from_slice(&buffer[..common]);
        return Ok(packed);
    }
    match kernel.params.is_empty() {
        true => Ok(packed),
        false => Err(Code::INVALID_VALUE),
    }
}

/// The buffer that an `extra` list describes.
fn extra_buffer(extra: In<u64>) -> Result<Vec<u8>, Code> {
    let (mut buffer, mut size) = (0, 0);
    for at in (0..16).step_by(2) {
        match extra.element(at).get()? {
            EXTRA_END => return In(buffer as *const u8).all(size),
            EXTRA_BUFFER => buffer = extra.element(at + 1).get()?,
            EXTRA_SIZE => size = In(extra.element(at + 1).get()? as *const usize).get()?,
            _ => return Err(Code::INVALID_VALUE),
        }
    }
    Err(Code::INVALID_VALUE)
}

impl Launch {
    /// # Errors
    /// As [`check_shape`] and [`gather`].
    pub fn new(
        function: Arc<Function>,
        shape: Shape,
        values: In<u64>,
        extra: In<u64>,
    ) -> Result<Launch, Code> {
        check_shape(&function, &shape)?;
        let params = gather(&function.kernel, values, extra)?;
        Ok(Launch::with_params(function, shape, params))
    }

    pub fn with_params(function: Arc<Function>, shape: Shape, params: Vec<u8>) -> Launch {
        let session = Session::global();
        Launch {
            checked: session.and_then(|session| session.launch(&function.kernel.name)),
            config: LaunchConfig {
                grid: shape.grid,
                block: shape.block,
                dynamic_shared: shape.shared,
                cooperative: shape.cooperative,
                instruction_budget: budget(),
                stack: super::context_info::stack_limit(function.context.handle),
                context: 0,
            },
            function,
            params,
        }
    }

    /// Runs the grid to its end or its first fatal fault.
    pub fn run(&self, memory: &Memory, context: &ContextState) -> Outcome {
        match (&self.checked, Session::global()) {
            (Some(checked), Some(session)) => {
                let mut observer = Memcheck::new(session, memory, checked.clone());
                let ended = self.execute(memory, context, &mut observer);
                ended.map_err(|fault| match fault {
                    // The tool ends a launch with one code, whatever it found.
                    Fault::Memory | Fault::StackOverflow { .. } => Code::LAUNCH_FAILED,
                    other => self.explain(&other),
                })
            }
            _ => {
                let mut observer = Unchecked::default();
                let ended = self.execute(memory, context, &mut observer);
                ended.map_err(|fault| match (fault, &observer.first) {
                    (Fault::Memory, Some(violation)) => {
                        let code = fault_code(violation);
                        note(&describe(violation, code));
                        code
                    }
                    (other, _) => self.explain(&other),
                })
            }
        }
    }

    fn execute<O: crate::machine::observe::Observer>(
        &self,
        memory: &Memory,
        context: &ContextState,
        observer: &mut O,
    ) -> Result<(), Fault> {
        let kernel = &self.function.kernel;
        let config = LaunchConfig {
            context: context.handle,
            ..self.config.clone()
        };
        let stats = run(kernel, &config, &self.params, memory, observer)?;
        crate::kernelgate_thread_instructions
            .fetch_add(stats.thread_instructions, Ordering::Relaxed);
        Ok(())
    }

    /// A fault that no observer reported: a line for the user, and its code.
    fn explain(&self, fault: &Fault) -> Code {
        let kernel = &self.function.kernel.name;
        let (code, text) = match fault {
            Fault::Memory => (Code::LAUNCH_FAILED, "invalid access".to_owned()),
            Fault::Trap { site } => (Code::LAUNCH_FAILED, format!("trap at {}", place(site))),
            Fault::Assert { site, message } => {
                (Code::ASSERT, format!("{message} at {}", place(site)))
            }
            Fault::Unsupported { site, message } => (
                Code::ILLEGAL_INSTRUCTION,
                format!("{message} at {}", place(site)),
            ),
            Fault::StackOverflow { site, message } => (
                Code::ILLEGAL_ADDRESS,
                format!("{message} at {}", place(site)),
            ),
            Fault::Budget { executed, site } => (
                Code::LAUNCH_TIMEOUT,
                format!(
                    "no end after {executed} warp-instructions ({BUDGET} sets the \
                     limit), last at {}",
                    place(site)
                ),
            ),
            Fault::Deadlock { message } => (Code::LAUNCH_TIMEOUT, format!("deadlock: {message}")),
        };
        note(&format!("{kernel} failed ({code}): {text}"));
        code
    }
}

fn place(site: &Site) -> String {
    let source = match site.frames.first() {
        Some(frame) => format!("{}:{}", frame.file, frame.line),
        None => format!("PTX line {}", site.ptx_line),
    };
    format!("`{}` in {source}", site.instruction)
}

/// The code that hardware gives for an access that must not happen.
fn fault_code(violation: &Violation) -> Code {
    match violation.kind {
        ViolationKind::Misaligned => Code::MISALIGNED_ADDRESS,
        _ => Code::ILLEGAL_ADDRESS,
    }
}

fn describe(violation: &Violation, code: Code) -> String {
    let what = match violation.access {
        AccessKind::Read => "read",
        AccessKind::Write => "write",
        AccessKind::Atomic => "atomic",
    };
    format!(
        "{} failed ({code}): {} {} {what} of {} bytes at {:#x} by thread {:?} of block {:?} at {}; \
         `kernelgate sanitize` tells more",
        violation.kernel,
        violation.kind,
        violation.space,
        violation.size,
        violation.address,
        violation.thread,
        violation.block,
        place(&violation.site)
    )
}

fn budget() -> u64 {
    // Wrong settings end at `cuInit`.
    Settings::from_environment().map_or(DEFAULT_BUDGET, |settings| settings.budget)
}

fn submit(
    function: Handle,
    shape: Shape,
    stream: Handle,
    values: In<u64>,
    extra: In<u64>,
) -> Outcome {
    let function = function::find(function)?;
    let stream = resolve(stream)?;
    if function.context.handle != stream.context.handle {
        return Err(Code::INVALID_HANDLE);
    }
    let launch = Launch::new(function, shape, values, extra)?;
    stream.enqueue(Work::Launch(Arc::new(launch)))
}

/// `CUlaunchConfig`
#[repr(C)]
#[derive(Clone, Copy)]
struct Config {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: Handle,
    attributes: u64,
    count: u32,
}

/// `CUlaunchAttribute`: a number and a 64-byte union.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LaunchAttribute {
    pub number: u32,
    pad: u32,
    pub value: [u32; 16],
}
plain!(Config, LaunchAttribute);

const ATTRIBUTE_COOPERATIVE: u32 = 2;
const ATTRIBUTE_CLUSTER: u32 = 4;

fn submit_config(
    config: In<Config>,
    function: Handle,
    values: In<u64>,
    extra: In<u64>,
    stream_of: fn(Handle) -> Handle,
) -> Outcome {
    let config = config.get()?;
    let attributes = In(config.attributes as *const LaunchAttribute);
    let mut shape = Shape {
        grid: config.grid,
        block: config.block,
        shared: config.shared,
        cooperative: false,
    };
    for attribute in attributes.all(config.count as usize)? {
        match attribute.number {
            ATTRIBUTE_COOPERATIVE => shape.cooperative = attribute.value[0] != 0,
            ATTRIBUTE_CLUSTER if attribute.value[..3].iter().any(|&n| n > 1) => {
                note("thread block clusters are not implemented");
                return Err(Code::NOT_SUPPORTED);
            }
            // Priorities, policies and hints change no result.
            0..=16 => {}
            _ => return Err(Code::INVALID_VALUE),
        }
    }
    submit(function, shape, stream_of(config.stream), values, extra)
}

fn shape(grid: [u32; 3], block: [u32; 3], shared: u32, cooperative: bool) -> Shape {
    Shape {
        grid,
        block,
        shared,
        cooperative,
    }
}

const NO_EXTRA: In<u64> = In(std::ptr::null());

entries! {
    cuLaunchKernel(
        function: Handle, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32,
        stream: Handle, values: In<u64>, extra: In<u64>,
    ) => {
        let shape = shape([gx, gy, gz], [bx, by, bz], shared, false);
        submit(function, shape, stream, values, extra)
    };
    cuLaunchKernel_ptsz(
        function: Handle, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32,
        stream: Handle, values: In<u64>, extra: In<u64>,
    ) => {
        let shape = shape([gx, gy, gz], [bx, by, bz], shared, false);
        submit(function, shape, per_thread(stream), values, extra)
    };
    cuLaunchCooperativeKernel(
        function: Handle, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32,
        stream: Handle, values: In<u64>,
    ) => {
        let shape = shape([gx, gy, gz], [bx, by, bz], shared, true);
        submit(function, shape, stream, values, NO_EXTRA)
    };
    cuLaunchCooperativeKernel_ptsz(
        function: Handle, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32,
        stream: Handle, values: In<u64>,
    ) => {
        let shape = shape([gx, gy, gz], [bx, by, bz], shared, true);
        submit(function, shape, per_thread(stream), values, NO_EXTRA)
    };
    cuLaunchKernelEx(config: In<Config>, function: Handle, values: In<u64>, extra: In<u64>) =>
        submit_config(config, function, values, extra, std::convert::identity);
    cuLaunchKernelEx_ptsz(config: In<Config>, function: Handle, values: In<u64>, extra: In<u64>) =>
        submit_config(config, function, values, extra, per_thread);
}
