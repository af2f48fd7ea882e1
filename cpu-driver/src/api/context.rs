//! Contexts: primary and ordinary, and each thread's stack of current ones.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::code::Code;
use super::driver::{Driver, driver};
use super::ffi::{Out, Outcome};
use super::guard::entries;
use super::handles::{Handle, Registry, fresh};
use super::stream::Stream;

/// What streams and queued work need to know of their context.
pub struct ContextState {
    pub handle: Handle,
    pub device: u32,
    alive: AtomicBool,
    /// The device's fault; 0 while all is well. Work behind it is dropped.
    fault: AtomicI32,
    /// The fault once a call has waited for it: what every later call returns.
    /// Keeping the two apart makes it the synchronising call that tells, however
    /// fast the fault came.
    told: AtomicI32,
}

impl ContextState {
    /// A device fault: the context is lost, the first cause stays.
    pub fn poison(&self, code: Code) {
        let _ = self
            .fault
            .compare_exchange(0, code.0, Ordering::AcqRel, Ordering::Acquire);
    }

    /// The fault, told or not.
    pub fn fault(&self) -> Option<Code> {
        match self.fault.load(Ordering::Acquire) {
            0 => None,
            code => Some(Code(code)),
        }
    }

    /// For a call that has waited for the device: as [`ContextState::check`], and
    /// from now on every call knows.
    ///
    /// # Errors
    /// As [`ContextState::check`].
    pub fn observe(&self) -> Outcome {
        self.told
            .store(self.fault.load(Ordering::Acquire), Ordering::Release);
        self.check()
    }

    /// # Errors
    /// The sticky code; `CONTEXT_IS_DESTROYED`.
    pub fn check(&self) -> Outcome {
        if !self.alive.load(Ordering::Acquire) {
            return Err(Code::CONTEXT_IS_DESTROYED);
        }
        match self.told.load(Ordering::Acquire) {
            0 => Ok(()),
            code => Err(Code(code)),
        }
    }
}

pub struct Context {
    pub state: Arc<ContextState>,
    pub legacy: Arc<Stream>,
    pub primary: bool,
    pub flags: AtomicU32,
    pub cache_config: AtomicI32,
    pub shared_config: AtomicI32,
    pub limits: Mutex<BTreeMap<u32, usize>>,
    /// Contexts whose memory this one may use.
    pub peers: Mutex<Vec<Handle>>,
}

pub static CONTEXTS: Registry<Context> = Registry::new();

/// The primary context of one device.
#[derive(Default)]
pub struct Primary {
    users: u32,
    flags: u32,
    context: Option<Arc<Context>>,
}

thread_local! {
    static CURRENT: RefCell<Vec<Arc<Context>>> = const { RefCell::new(Vec::new()) };
}

/// The calling thread's context, lost or not.
pub fn current_or_lost() -> Result<Arc<Context>, Code> {
    driver()?;
    let top = CURRENT.with_borrow(|stack| stack.last().cloned());
    let context = top.ok_or(Code::INVALID_CONTEXT)?;
    match context.state.alive.load(Ordering::Acquire) {
        true => Ok(context),
        false => Err(Code::CONTEXT_IS_DESTROYED),
    }
}

/// The calling thread's context.
///
/// # Errors
/// `INVALID_CONTEXT` where there is none, or the sticky error of a lost one.
pub fn current() -> Result<Arc<Context>, Code> {
    let context = current_or_lost()?;
    context.state.check()?;
    Ok(context)
}

fn create(device: u32, flags: u32, primary: bool) -> Arc<Context> {
    let state = Arc::new(ContextState {
        handle: fresh(),
        device,
        alive: AtomicBool::new(true),
        fault: AtomicI32::new(0),
        told: AtomicI32::new(0),
    });
    let context = Arc::new(Context {
        legacy: Stream::legacy(Arc::clone(&state)),
        state,
        primary,
        flags: AtomicU32::new(flags),
        cache_config: AtomicI32::new(0),
        shared_config: AtomicI32::new(0),
        limits: Mutex::new(BTreeMap::new()),
        peers: Mutex::new(Vec::new()),
    });
    CONTEXTS.insert(context.state.handle, Arc::clone(&context));
    context
}

/// Ends a context: its work is waited for, what it owns is freed.
fn destroy(driver: &'static Driver, context: &Context) {
    let handle = context.state.handle;
    driver.scheduler.wait(&driver.scheduler.of_context(handle));
    context.state.alive.store(false, Ordering::Release);
    super::teardown::release_owned(driver, handle);
    driver.scheduler.forget_context(handle);
    let _ = CONTEXTS.remove(handle);
}

fn retain_primary(out: Out<Handle>, device: i32) -> Outcome {
    let device = driver()?.device(device)?;
    let mut primary = device
        .primary
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let flags = primary.flags;
    let context = primary
        .context
        .get_or_insert_with(|| create(device.ordinal, flags, true));
    out.set(context.state.handle)?;
    primary.users += 1;
    Ok(())
}

fn release_primary(device: i32) -> Outcome {
    let driver = driver()?;
    let device = driver.device(device)?;
    let mut primary = device
        .primary
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if primary.users == 0 {
        return Err(Code::INVALID_CONTEXT);
    }
    primary.users -= 1;
    if primary.users == 0
        && let Some(context) = primary.context.take()
    {
        destroy(driver, &context);
    }
    Ok(())
}

fn reset_primary(device: i32) -> Outcome {
    let driver = driver()?;
    let device = driver.device(device)?;
    let mut primary = device
        .primary
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let Some(context) = primary.context.take() else {
        return Ok(());
    };
    destroy(driver, &context);
    // Those who hold it get a new one at their next retain.
    primary.users = 0;
    Ok(())
}

fn set_primary_flags(device: i32, flags: u32) -> Outcome {
    let device = driver()?.device(device)?;
    check_flags(flags)?;
    let mut primary = device
        .primary
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    primary.flags = flags;
    if let Some(context) = &primary.context {
        context.flags.store(flags, Ordering::Relaxed);
    }
    Ok(())
}

fn primary_state(device: i32, flags: Out<u32>, active: Out<i32>) -> Outcome {
    let device = driver()?.device(device)?;
    let primary = device
        .primary
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    flags.set_if_wanted(primary.flags)?;
    active.set_if_wanted(i32::from(primary.context.is_some()))
}

fn check_flags(flags: u32) -> Outcome {
    // Scheduling policies exclude each other; 0xff is every flag there is.
    match flags & 7 {
        0 | 1 | 2 | 4 if flags & !0xff == 0 => Ok(()),
        _ => Err(Code::INVALID_VALUE),
    }
}

fn create_current(out: Out<Handle>, flags: u32, device: i32) -> Outcome {
    let device = driver()?.device(device)?;
    check_flags(flags)?;
    if out.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let context = create(device.ordinal, flags, false);
    out.set(context.state.handle)?;
    CURRENT.with_borrow_mut(|stack| stack.push(context));
    Ok(())
}

fn destroy_by_handle(handle: Handle) -> Outcome {
    let driver = driver()?;
    let context = CONTEXTS.get(handle).map_err(|_| Code::INVALID_CONTEXT)?;
    if context.primary {
        return Err(Code::INVALID_CONTEXT);
    }
    destroy(driver, &context);
    CURRENT.with_borrow_mut(|stack| {
        if stack.last().is_some_and(|top| Arc::ptr_eq(top, &context)) {
            stack.pop();
        }
    });
    Ok(())
}

fn push(handle: Handle) -> Outcome {
    driver()?;
    let context = CONTEXTS.get(handle).map_err(|_| Code::INVALID_CONTEXT)?;
    CURRENT.with_borrow_mut(|stack| stack.push(context));
    Ok(())
}

fn pop(out: Out<Handle>) -> Outcome {
    driver()?;
    let top = CURRENT.with_borrow_mut(Vec::pop);
    let context = top.ok_or(Code::INVALID_CONTEXT)?;
    out.set_if_wanted(context.state.handle)
}

fn set_current(handle: Handle) -> Outcome {
    driver()?;
    let context = match handle {
        0 => None,
        _ => Some(CONTEXTS.get(handle).map_err(|_| Code::INVALID_CONTEXT)?),
    };
    CURRENT.with_borrow_mut(|stack| {
        stack.pop();
        stack.extend(context);
    });
    Ok(())
}

fn get_current(out: Out<Handle>) -> Outcome {
    driver()?;
    let top = CURRENT.with_borrow(|stack| stack.last().map(|context| context.state.handle));
    out.set(top.unwrap_or(0))
}

/// The context with this handle, the current one for 0.
pub fn by_handle(handle: Handle) -> Result<Arc<Context>, Code> {
    match handle {
        0 => current_or_lost(),
        _ => CONTEXTS.get(handle).map_err(|_| Code::INVALID_CONTEXT),
    }
}

pub fn synchronize(context: &Context) -> Outcome {
    let scheduler = &driver()?.scheduler;
    super::capture::refuse_while_capturing(context.state.handle)?;
    scheduler.wait(&scheduler.of_context(context.state.handle));
    context.state.observe()
}

entries! {
    cuDevicePrimaryCtxRetain(out: Out<Handle>, device: i32) => retain_primary(out, device);
    cuDevicePrimaryCtxRelease(device: i32) => release_primary(device);
    cuDevicePrimaryCtxRelease_v2(device: i32) => release_primary(device);
    cuDevicePrimaryCtxReset(device: i32) => reset_primary(device);
    cuDevicePrimaryCtxReset_v2(device: i32) => reset_primary(device);
    cuDevicePrimaryCtxSetFlags(device: i32, flags: u32) => set_primary_flags(device, flags);
    cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32) => set_primary_flags(device, flags);
    cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) =>
        primary_state(device, flags, active);
    cuCtxCreate(out: Out<Handle>, flags: u32, device: i32) => create_current(out, flags, device);
    cuCtxCreate_v2(out: Out<Handle>, flags: u32, device: i32) =>
        create_current(out, flags, device);
    // Execution affinity narrows a context to some multiprocessors, which
    // changes no result.
    cuCtxCreate_v3(out: Out<Handle>, _affinity: u64, _count: i32, flags: u32, device: i32) =>
        create_current(out, flags, device);
    cuCtxCreate_v4(out: Out<Handle>, _params: u64, flags: u32, device: i32) =>
        create_current(out, flags, device);
    cuCtxDestroy(context: Handle) => destroy_by_handle(context);
    cuCtxDestroy_v2(context: Handle) => destroy_by_handle(context);
    cuCtxPushCurrent(context: Handle) => push(context);
    cuCtxPushCurrent_v2(context: Handle) => push(context);
    cuCtxPopCurrent(out: Out<Handle>) => pop(out);
    cuCtxPopCurrent_v2(out: Out<Handle>) => pop(out);
    cuCtxSetCurrent(context: Handle) => set_current(context);
    cuCtxGetCurrent(out: Out<Handle>) => get_current(out);
    cuCtxSynchronize() => synchronize(&*current_or_lost()?);
    cuCtxSynchronize_v2(context: Handle) => synchronize(&*by_handle(context)?);
}
