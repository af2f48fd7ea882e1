//! A sanitized run of one process: what the driver tells, from the first call
//! to the summary at exit.
//!
//! The summary is printed by a finaliser of this library, after the program's
//! own exit handlers and static destructors have run, so that buffers freed
//! there are no leaks. A process that is killed or leaves by `_exit` prints
//! none and appends no status line; its parent must not take that for success.
//!
//! Counting follows compute-sanitizer: each access, each failed driver call and
//! each leaked allocation is one error.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use super::config::{Config, ConfigError, VARIABLE};
use super::filter::Filter;
use super::finding::{ApiCall, BadFree, Finding, HeapProblem, Leak, Neighbour, Place, can_leak};
use super::host_stack::{Captured, HostStack};
use super::memcheck::CheckedLaunch;
use super::report::{Report, Status};
use crate::machine::memory::{Allocation, AllocationKind, Memory, MemoryError, MemoryOptions};

/// Stacks of freed allocations to remember.
const REMEMBERED_FREES: usize = 10_000;

/// How long work that is under way at exit may take to end.
const PATIENCE_AT_EXIT: Duration = Duration::from_secs(60);

pub struct Session {
    config: Config,
    filter: Filter,
    /// Whose run this is: the process that used the driver.
    process: AtomicU32,
    memory: OnceLock<&'static Memory>,
    state: Mutex<State>,
}

struct State {
    report: Report,
    finished: bool,
    /// Where live allocations were made, by serial number.
    allocated: BTreeMap<u64, Captured>,
    /// Where the last ones were freed.
    freed: BTreeMap<u64, Captured>,
}

static GLOBAL: OnceLock<Option<Session>> = OnceLock::new();

impl Session {
    /// The session of this process, if it runs under `kernelgate sanitize`.
    ///
    /// A configuration that cannot be honoured ends the process with code 3: a
    /// sanitized run without its sanitizer would be a check that cannot fail.
    pub fn global() -> Option<&'static Self> {
        GLOBAL
            .get_or_init(|| {
                let text = std::env::var_os(VARIABLE)?;
                if cfg!(feature = "without-checks") {
                    eprintln!("kernelgate: {VARIABLE}: this libcuda was built without checks");
                    std::process::exit(3);
                }
                let session = text
                    .to_str()
                    .ok_or_else(|| ConfigError {
                        message: "not UTF-8".into(),
                    })
                    .and_then(Config::from_variable)
                    .and_then(Self::new);
                match session {
                    Ok(session) => Some(session),
                    Err(error) => {
                        // A standard error that is full must not turn this into a panic.
                        let _ = writeln!(std::io::stderr(), "kernelgate: {VARIABLE}: {error}");
                        std::process::exit(3);
                    }
                }
            })
            .as_ref()
    }

    /// A session of its own.
    ///
    /// # Errors
    /// A bad filter, or a log file that cannot be made.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        Ok(Self {
            filter: config.filter()?,
            process: AtomicU32::new(std::process::id()),
            memory: OnceLock::new(),
            state: Mutex::new(State {
                report: Report::new(&config)?,
                finished: false,
                allocated: BTreeMap::new(),
                freed: BTreeMap::new(),
            }),
            config,
        })
    }

    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Options for the device memory of a sanitized process.
    #[must_use]
    pub fn memory_options(&self, capacity: u64) -> MemoryOptions {
        MemoryOptions {
            padding: self.config.padding,
            ..MemoryOptions::checked(capacity)
        }
    }

    /// Call at every `cuInit`: prints the head of the report once.
    ///
    /// A call that failed before made this session, and the process may have
    /// forked since; a child that uses the driver first reports for itself.
    pub fn reached_cuda(&self) {
        self.process.store(std::process::id(), Ordering::Relaxed);
        self.lock().report.reached_cuda();
    }

    /// The memory whose live allocations are leaks when the process ends.
    pub fn attach(&self, memory: &'static Memory) {
        // A second call names the same memory: there is one a process.
        let _ = self.memory.set(memory);
    }

    /// Call after an allocation by the host, on the calling thread.
    pub fn allocated(&self, allocation: &Allocation) {
        if !self.config.show_backtrace {
            return;
        }
        let stack = Captured::here();
        self.lock().allocated.insert(allocation.serial, stack);
    }

    /// Call after a free by the host, on the calling thread.
    pub fn freed(&self, allocation: &Allocation) {
        if !self.config.show_backtrace {
            return;
        }
        let stack = Captured::here();
        let mut state = self.lock();
        state.allocated.remove(&allocation.serial);
        state.freed.insert(allocation.serial, stack);
        if state.freed.len() > REMEMBERED_FREES {
            state.freed.pop_first();
        }
    }

    /// Call when a driver call is about to return an error, on the calling
    /// thread. `name` is the error's symbol, `description` its text. Polling
    /// and state-checking calls are not counted, as the manual lists them.
    pub fn api_error(&self, function: &str, code: u32, name: &str, description: &str) {
        self.failed_call(function, code, name, description, None);
    }

    /// [`Session::api_error`] for a free that `error` refused.
    pub fn free_error(
        &self,
        function: &str,
        code: u32,
        name: &str,
        description: &str,
        error: &MemoryError,
    ) {
        self.failed_call(function, code, name, description, bad_free(error));
    }

    fn failed_call(
        &self,
        function: &str,
        code: u32,
        name: &str,
        description: &str,
        bad_free: Option<BadFree>,
    ) {
        if is_polling(function, code) {
            return;
        }
        let called = Captured::here();
        self.report(None, || {
            Finding::Api(ApiCall {
                function: function.to_owned(),
                code,
                name: name.to_owned(),
                description: description.to_owned(),
                bad_free,
                called: self.resolve(&called),
            })
        });
    }

    /// Call when a launch of `kernel` (its name in the PTX) is accepted, on the
    /// calling thread. `None`: run it unchecked.
    pub fn launch(&self, kernel: &str) -> Option<CheckedLaunch> {
        let checked = self.filter.admits(kernel);
        self.lock().report.launched(kernel, checked);
        checked.then(|| CheckedLaunch {
            launched: if self.config.show_backtrace {
                Captured::here()
            } else {
                Captured::default()
            },
        })
    }

    /// Call before the allocations of a destroyed context are freed, with
    /// [`Memory::live`] of that context.
    pub fn context_destroyed(&self, live: &[Allocation]) {
        if self.config.leak_check {
            self.leaks(live);
        }
    }

    fn leaks(&self, live: &[Allocation]) {
        for allocation in live.iter().filter(|allocation| can_leak(allocation.kind)) {
            let captured = self.lock().allocated.remove(&allocation.serial);
            self.report(Some(allocation.bytes), || {
                Finding::Leak(Leak {
                    base: allocation.base,
                    bytes: allocation.bytes,
                    device_heap: allocation.kind == AllocationKind::DeviceHeap,
                    allocated: captured.map_or_else(HostStack::default, |at| self.resolve(&at)),
                })
            });
        }
    }

    /// Counts a finding, and makes and prints it if the limit allows.
    pub(super) fn report(&self, leaked: Option<u64>, make: impl FnOnce() -> Finding) {
        {
            let mut state = self.lock();
            if state.finished || !state.report.count(leaked) {
                return;
            }
        }
        // Names are looked up without the lock.
        let finding = make();
        let mut state = self.lock();
        if !state.finished {
            state.report.add(finding);
        }
    }

    pub(super) fn resolve(&self, captured: &Captured) -> HostStack {
        if self.config.show_backtrace {
            captured.resolve()
        } else {
            HostStack::default()
        }
    }

    pub(super) fn freed_at(&self, serial: u64) -> Option<HostStack> {
        let captured = self.lock().freed.get(&serial).cloned();
        captured.map(|captured| self.resolve(&captured))
    }

    /// Takes the folders off file names, if the configuration says so.
    pub(super) fn strip(&self, place: &mut Place) {
        if !self.config.strip_paths {
            return;
        }
        for frame in &mut place.frames {
            if let Some((_, name)) = frame.file.rsplit_once('/') {
                frame.file = name.to_owned();
            }
        }
    }

    /// Leaks of everything still live, then the summary. Does nothing the
    /// second time, nor in a forked child.
    pub fn finish(&self) {
        if !self.is_own_process() {
            return;
        }
        let reached = match self.lock_before_exit() {
            Some(state) if !state.finished => state.report.status().reached_cuda,
            _ => return,
        };
        if reached && self.config.leak_check {
            let live = self.memory.get().map(|memory| memory.live(None));
            self.leaks(&live.unwrap_or_default());
        }
        let mut state = self.lock();
        if !std::mem::replace(&mut state.finished, true) && reached {
            state.report.finish();
        }
    }

    /// Totals so far.
    #[must_use]
    pub fn status(&self) -> Status {
        self.lock().report.status().clone()
    }

    fn is_own_process(&self) -> bool {
        std::process::id() == self.process.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Threads that still run may hold the lock for the length of a print; one
    /// that was ended inside it would hold it for ever.
    fn lock_before_exit(&self) -> Option<MutexGuard<'_, State>> {
        let patience = Instant::now() + Duration::from_secs(2);
        loop {
            match self.state.try_lock() {
                Ok(state) => return Some(state),
                Err(TryLockError::Poisoned(state)) => return Some(state.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() < patience => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(TryLockError::WouldBlock) => return None,
            }
        }
    }
}

/// Calls that return an error in ordinary use.
fn is_polling(function: &str, code: u32) -> bool {
    const NOT_FOUND: u32 = 500;
    const NOT_READY: u32 = 600;
    const PEER_ACCESS_ALREADY_ENABLED: u32 = 704;
    const PEER_ACCESS_NOT_ENABLED: u32 = 705;
    match code {
        NOT_READY => function.contains("Query"),
        PEER_ACCESS_ALREADY_ENABLED => function.contains("EnablePeerAccess"),
        PEER_ACCESS_NOT_ENABLED => function.contains("DisablePeerAccess"),
        NOT_FOUND => function.contains("GetProcAddress"),
        _ => false,
    }
}

fn bad_free(error: &MemoryError) -> Option<BadFree> {
    match error {
        MemoryError::DoubleFree { address, bytes } => Some(BadFree {
            problem: HeapProblem::DoubleFree,
            address: *address,
            nearest: Some(Neighbour {
                base: *address,
                bytes: *bytes,
                freed: true,
                distance: super::finding::Distance::Inside(0),
            }),
        }),
        MemoryError::NotAllocated { address, nearest } => Some(BadFree {
            problem: HeapProblem::InvalidFree,
            address: *address,
            nearest: nearest.as_ref().map(Neighbour::new),
        }),
        _ => None,
    }
}

extern "C" fn at_exit() {
    if let Some(Some(session)) = GLOBAL.get() {
        if session.is_own_process() {
            crate::api::drain(PATIENCE_AT_EXIT);
        }
        session.finish();
    }
}

/// Run by the loader when the process ends.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

#[cfg(test)]
mod tests;
