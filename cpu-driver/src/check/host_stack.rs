//! Host call stacks: captured as addresses at the call, given names only when
//! a finding is printed.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use serde::Serialize;

/// Frames beyond these are of no use to anybody.
const DEEPEST: usize = 64;

/// Return addresses of a call into the driver. Clones share the names, which are
/// looked up once: that takes milliseconds where a large program has line tables.
#[derive(Debug, Clone, Default)]
pub struct Captured(Arc<Stack>);

#[derive(Debug, Default)]
struct Stack {
    addresses: Vec<usize>,
    named: OnceLock<HostStack>,
}

/// A call stack with names, innermost first.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct HostStack {
    pub frames: Vec<HostFrame>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostFrame {
    /// Where the binary has symbols.
    pub function: Option<String>,
    /// Where it has line tables.
    pub source: Option<(String, u32)>,
    /// Offset of the call in the file it was loaded from.
    pub offset: u64,
    pub module: String,
}

impl Captured {
    /// The caller's stack. Costs microseconds: no names are looked up.
    #[must_use]
    pub fn here() -> Self {
        let mut addresses = Vec::with_capacity(16);
        backtrace::trace(|frame| {
            addresses.push(frame.ip().addr());
            addresses.len() < DEEPEST
        });
        Self(Arc::new(Stack {
            addresses,
            named: OnceLock::new(),
        }))
    }

    /// Looks up names; leaves out the driver's own frames and those below
    /// `main` or a thread's body, as compute-sanitizer does.
    #[must_use]
    pub fn resolve(&self) -> HostStack {
        let stack = &self.0;
        let named = stack.named.get_or_init(|| HostStack::of(&stack.addresses));
        named.clone()
    }
}

impl HostStack {
    fn of(addresses: &[usize]) -> Self {
        let own = Module::of(own_address()).map(|module| module.base);
        let executable = Module::of(main_address()).map(|module| module.base);
        // Linked into the program, the driver has no file of its own, and its
        // frames are told by their names.
        let own_file = own.filter(|own| Some(*own) != executable);
        let mut frames = Vec::new();
        for &address in addresses {
            // A return address points behind the call.
            let call = address.saturating_sub(1);
            // The end of the stack is an address outside every file.
            let Some(module) = Module::of(call) else {
                continue;
            };
            if own_file == Some(module.base) {
                continue;
            }
            let mut named = names(call);
            if own_file.is_none() && frames.is_empty() {
                // One address can stand for a driver function inlined into its caller.
                let caller = named.iter().position(|name| !is_driver(name));
                named.drain(..caller.unwrap_or(named.len()));
            }
            if named.is_empty() {
                continue;
            }
            let offset = (address - module.base) as u64;
            let module = module.name;
            let start = frames.len();
            frames.extend(named.into_iter().map(|(function, source)| HostFrame {
                function,
                source,
                offset,
                module: module.clone(),
            }));
            if let Some(last) = frames[start..].iter().position(is_start_up) {
                frames.truncate(start + last);
                break;
            }
            if let Some(main) = frames[start..].iter().position(is_main) {
                frames.truncate(start + main + 1);
                break;
            }
        }
        HostStack { frames }
    }
}

type Named = (Option<String>, Option<(String, u32)>);

/// The functions at an address, inlined ones first; at least one entry.
fn names(address: usize) -> Vec<Named> {
    let mut named = Vec::new();
    backtrace::resolve(std::ptr::without_provenance_mut(address), |symbol| {
        let function = symbol.name().map(|name| format!("{name:#}"));
        let source = symbol.filename().and_then(Path::file_name).map(|file| {
            (
                file.to_string_lossy().into_owned(),
                symbol.lineno().unwrap_or(0),
            )
        });
        named.push((function, source));
    });
    if named.is_empty() {
        named.push((None, None));
    }
    named
}

fn is_driver((function, _): &Named) -> bool {
    function
        .as_deref()
        .is_some_and(|name| name.starts_with("cuda::") || name.starts_with("backtrace::"))
}

/// `main` of C, or `main` of a Rust crate, whose callers are start-up code.
fn is_main(frame: &HostFrame) -> bool {
    frame.function.as_deref().is_some_and(|name| {
        name == "main" || (name.ends_with("::main") && name.matches("::").count() == 1)
    })
}

/// Where the standard library calls `main` or the body of a thread.
fn is_start_up(frame: &HostFrame) -> bool {
    frame
        .function
        .as_deref()
        .is_some_and(|name| name.contains("::__rust_begin_short_backtrace"))
}

fn own_address() -> usize {
    names as *const () as usize
}

/// An address inside the main executable.
fn main_address() -> usize {
    // SAFETY: reads a number that the system passed to the process.
    unsafe { libc::getauxval(libc::AT_ENTRY) as usize }
}

struct Module {
    base: usize,
    name: String,
}

impl Module {
    fn of(address: usize) -> Option<Self> {
        let mut info = libc::Dl_info {
            dli_fname: std::ptr::null(),
            dli_fbase: std::ptr::null_mut(),
            dli_sname: std::ptr::null(),
            dli_saddr: std::ptr::null_mut(),
        };
        // SAFETY: dladdr only looks the address up and fills the structure.
        let found = unsafe { libc::dladdr(std::ptr::without_provenance(address), &raw mut info) };
        if found == 0 || info.dli_fname.is_null() {
            return None;
        }
        // SAFETY: a C string that lives as long as the module is loaded.
        let path = unsafe { CStr::from_ptr(info.dli_fname) };
        let path = Path::new(OsStr::from_bytes(path.to_bytes()));
        let name = path.file_name().unwrap_or(path.as_os_str());
        Some(Self {
            base: info.dli_fbase.addr(),
            name: name.to_string_lossy().into_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn outer() -> Captured {
        std::hint::black_box(Captured::here())
    }

    #[test]
    fn the_driver_and_start_up_code_are_left_out() {
        let frames = outer().resolve().frames;
        assert!(!frames.iter().any(is_start_up), "{frames:?}");
        let driver = |frame: &HostFrame| is_driver(&(frame.function.clone(), None));
        assert!(!frames.iter().any(driver), "{frames:?}");
        assert_eq!(Captured::default().resolve(), HostStack::default());
    }

    #[test]
    fn clones_share_names_that_are_looked_up_once() {
        let stack = outer();
        let clone = stack.clone();
        assert_eq!(clone.0.named.get(), None);
        let names = stack.resolve();
        assert_eq!(clone.0.named.get(), Some(&names));
    }
}
