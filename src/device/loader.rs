//! Opens driver libraries and makes cudarc use the chosen one.
//!
//! cudarc resolves `libcuda.so` once, at its first call, through the loader. So
//! everything here happens before that call, and nothing here calls cudarc: a
//! probe opens the candidate with local visibility and asks it for two symbols.

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};

use super::DeviceError;
use super::alias;
use super::choice::{Choice, Probe, Request, decide, places};

/// The name under which NVIDIA installs its driver. Not `libcuda.so`: that name
/// must stay free until the choice is made.
const NVIDIA: &str = "libcuda.so.1";
/// The name that cudarc asks for first.
const ASKED_BY_CUDARC: &str = "libcuda.so";
/// A symbol that only kernelgate's CPU driver exports.
const MARKER: &[u8] = b"kernelgate_cpu_driver";
/// Where it counts what it executed: one word of eight bytes that only grows.
const COUNTER: &[u8] = b"kernelgate_thread_instructions";
/// What `device` calls. cudarc panics at a missing symbol, so look first.
const REQUIRED: [&str; 21] = [
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGet",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemcpyHtoD_v2",
    "cuMemcpyDtoH_v2",
    "cuMemsetD8_v2",
    "cuModuleLoadData",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuLaunchKernel",
];

/// Every candidate that was tried, for `kernelgate doctor`.
#[derive(Debug, Clone)]
pub struct Survey {
    /// What the loader gives for `libcuda.so.1`.
    pub nvidia: Probe,
    /// Our library beside the executable.
    pub ours: Probe,
}

/// Tries what the loader gives for `libcuda.so.1`, and nothing else.
fn probe_nvidia() -> Probe {
    probe(OsStr::new(NVIDIA))
}

/// Tries NVIDIA's driver and ours.
pub fn survey() -> Survey {
    Survey {
        nvidia: probe_nvidia(),
        ours: probe_ours(),
    }
}

/// The file of our driver for the running executable, whether it works or not.
pub fn our_library() -> Option<PathBuf> {
    our_places()
        .into_iter()
        .find(|p| p.is_file())
        .and_then(|p| p.canonicalize().ok())
}

/// Operations that our driver has executed in this process, each counted once for
/// every active lane; `None` where it is not there or does not count.
pub fn thread_instructions() -> Option<u64> {
    let library = open(our_library()?.as_os_str()).ok()?;
    let counter = address(&library, COUNTER).filter(|_| has(&library, MARKER));
    // It stays loaded, as at every probe.
    std::mem::forget(library);
    // SAFETY: the symbol is an AtomicU64 of a library that is never unloaded.
    counter.map(|at| unsafe { &*at.cast::<AtomicU64>() }.load(Ordering::Relaxed))
}

/// Decides for `request`, opens the choice, and makes sure that cudarc gets it.
pub(crate) fn choose_and_open(request: &Request) -> Result<Choice, DeviceError> {
    let choice = choose(request)?;
    bind_for_cudarc(&choice.file)?;
    Ok(choice)
}

/// Looks for what `request` asks for and decides. Nothing is bound by that: the tool
/// asks for the programs that it starts.
///
/// # Errors
/// [`DeviceError::NoDevice`] with what was looked for.
pub fn choose(request: &Request) -> Result<Choice, DeviceError> {
    let skipped = Probe {
        file: None,
        ours: false,
        devices: Err("not looked for".into()),
    };
    let (nvidia, other) = match request {
        // Ours is opened only when NVIDIA's is out, so that a process on a GPU
        // never holds two drivers.
        Request::Auto => {
            // A library that was preloaded under cudarc's name is what cudarc gets.
            let name = match already_loaded() {
                Some(_) => ASKED_BY_CUDARC,
                None => NVIDIA,
            };
            let nvidia = probe(OsStr::new(name));
            let ours = if nvidia.usable() {
                skipped
            } else {
                probe_ours()
            };
            (nvidia, ours)
        }
        Request::Cuda => (probe_nvidia(), skipped),
        Request::Cpu => (skipped, probe_ours()),
        Request::Path(path) => (skipped, probe(named_file(path).as_os_str())),
    };
    decide(request, &nvidia, &other)
}

fn named_file(path: &Path) -> PathBuf {
    if path.is_dir() {
        path.join(ASKED_BY_CUDARC)
    } else {
        path.to_path_buf()
    }
}

fn our_places() -> Vec<PathBuf> {
    std::env::current_exe()
        .ok()
        .and_then(|exe| exe.canonicalize().ok())
        .and_then(|exe| exe.parent().map(places))
        .map(Vec::from)
        .unwrap_or_default()
}

fn probe_ours() -> Probe {
    match our_library() {
        Some(file) => probe(file.as_os_str()),
        None => {
            let looked: Vec<String> = our_places()
                .iter()
                .map(|p| p.display().to_string())
                .collect();
            Probe {
                file: None,
                ours: false,
                devices: Err(format!(
                    "kernelgate's libcuda.so: not at {}",
                    looked.join(", ")
                )),
            }
        }
    }
}

/// Opens `name` and asks it how many devices it has.
fn probe(name: &OsStr) -> Probe {
    let library = match open(name) {
        Ok(library) => library,
        Err(why) => {
            let name = name.to_string_lossy();
            let path = Path::new(&*name);
            // The loader's words begin with the name in most cases, and a file's name
            // stands before them in every message.
            let why = why.strip_prefix(&format!("{name}: ")).unwrap_or(&why);
            let file = path.is_file().then(|| path.to_path_buf());
            return Probe {
                devices: Err(match file {
                    Some(_) => why.to_owned(),
                    None => format!("{name}: {why}"),
                }),
                file,
                ours: false,
            };
        }
    };
    let file = file_of(&library).or_else(|| Some(PathBuf::from(name)));
    let ours = has(&library, MARKER);
    let devices = match missing_symbols(&library) {
        missing if missing.is_empty() => count_devices(&library),
        missing => Err(format!("it lacks {}", few(&missing))),
    };
    // A driver that started is not unloaded again: NVIDIA's keeps threads and
    // handlers, and ours is linked so that it stays.
    std::mem::forget(library);
    Probe {
        file,
        ours,
        devices,
    }
}

fn open(name: &OsStr) -> Result<Library, String> {
    // SAFETY: loading runs the library's initialisers. The names opened here are
    // CUDA drivers, which any CUDA program loads the same way, or our alias, which
    // has no code.
    unsafe { Library::open(Some(name), RTLD_LAZY | RTLD_LOCAL) }.map_err(|e| loader_words(&e))
}

fn loader_words(error: &libloading::Error) -> String {
    let text = match std::error::Error::source(error) {
        Some(source) => source.to_string(),
        None => error.to_string(),
    };
    if text.contains("No such file") {
        "not found".to_string()
    } else {
        text
    }
}

fn address(library: &Library, symbol: &[u8]) -> Option<*mut c_void> {
    // SAFETY: the symbol's address is taken, nothing is called or read through it.
    unsafe { library.get::<*mut c_void>(symbol) }
        .ok()
        .map(|s| s.as_raw_ptr())
        .filter(|p| !p.is_null())
}

fn has(library: &Library, symbol: &[u8]) -> bool {
    address(library, symbol).is_some()
}

fn missing_symbols(library: &Library) -> Vec<&'static str> {
    REQUIRED
        .into_iter()
        .filter(|name| !has(library, name.as_bytes()))
        .collect()
}

fn few(names: &[&str]) -> String {
    const SHOWN: usize = 3;
    let mut text = names[..names.len().min(SHOWN)].join(", ");
    if names.len() > SHOWN {
        text += &format!(" and {} more calls", names.len() - SHOWN);
    }
    text
}

fn count_devices(library: &Library) -> Result<u32, String> {
    type Init = unsafe extern "C" fn(u32) -> u32;
    type Count = unsafe extern "C" fn(*mut c_int) -> u32;
    // SAFETY: both signatures are those of the public driver API, and `count`
    // outlives the call that writes it.
    unsafe {
        let init = library.get::<Init>(b"cuInit").map_err(|e| e.to_string())?;
        let get_count = library
            .get::<Count>(b"cuDeviceGetCount")
            .map_err(|e| e.to_string())?;
        match init(0) {
            0 => {}
            code => return Err(format!("cuInit returned {code}{}", init_words(code))),
        }
        let mut count: c_int = 0;
        match get_count(&mut count) {
            0 => Ok(u32::try_from(count).unwrap_or(0)),
            code => Err(format!("cuDeviceGetCount returned {code}")),
        }
    }
}

fn init_words(code: u32) -> &'static str {
    match code {
        34 => " (a stub library from a CUDA toolkit, not a driver)",
        100 => " (no CUDA-capable device)",
        801 => " (not supported)",
        803 => " (driver and kernel module are of different versions)",
        804 => " (forward compatibility was tried on a device without it)",
        _ => "",
    }
}

fn file_of(library: &Library) -> Option<PathBuf> {
    let at = address(library, b"cuInit")?;
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `at` lies in a loaded library, `info` is large enough, and the name
    // it points to lives as long as that library.
    let name = unsafe {
        if libc::dladdr(at, info.as_mut_ptr()) == 0 {
            return None;
        }
        let info = info.assume_init();
        if info.dli_fname.is_null() {
            return None;
        }
        CStr::from_ptr(info.dli_fname)
    };
    Some(PathBuf::from(name.to_string_lossy().into_owned()))
}

/// Makes the name that cudarc asks for mean `file` in this process, and checks it.
fn bind_for_cudarc(file: &Path) -> Result<(), DeviceError> {
    let failed = |why: String| DeviceError::NoDevice {
        message: format!("{}: {why}", file.display()),
    };
    let chosen = open(file.as_os_str()).map_err(failed)?;
    if already_loaded().is_none() {
        let bytes = alias::library(ASKED_BY_CUDARC, &file.to_string_lossy());
        open_bytes(&bytes).map_err(failed)?;
    }
    let seen_by_cudarc = open(OsStr::new(ASKED_BY_CUDARC)).map_err(failed)?;
    let same = address(&seen_by_cudarc, b"cuInit") == address(&chosen, b"cuInit");
    let other = file_of(&seen_by_cudarc);
    std::mem::forget((chosen, seen_by_cudarc));
    if same {
        return Ok(());
    }
    Err(failed(format!(
        "was chosen, but this process already holds another libcuda.so ({}); \
         take it out of LD_PRELOAD or LD_LIBRARY_PATH",
        other.unwrap_or_default().display()
    )))
}

/// Makes `asked`, the plain name that cudarc opens a library by, mean the first of
/// `candidates` that is there, unless the loader already finds it.
///
/// # Errors
/// What was looked for, and why each was not it.
pub(crate) fn make_findable(asked: &str, candidates: &[&str]) -> Result<(), String> {
    let mut tried = match open(OsStr::new(asked)) {
        Ok(library) => {
            std::mem::forget(library);
            return Ok(());
        }
        Err(why) => vec![format!("{asked}: {why}")],
    };
    for candidate in candidates {
        match open(OsStr::new(candidate)) {
            Ok(library) => {
                std::mem::forget(library);
                return open_bytes(&alias::library(asked, candidate));
            }
            Err(why) => tried.push(format!("{candidate}: {why}")),
        }
    }
    Err(tried.join("; "))
}

/// Opens the library at `path` and makes `soname` mean it for the rest of the
/// process: for libraries that cudarc looks for under another name than they are
/// installed by.
pub(crate) fn open_as(path: &Path, soname: &str) -> Result<(), String> {
    std::mem::forget(open(path.as_os_str())?);
    // By its full path: the loader sees that this file is loaded already.
    let full = path.canonicalize().map_err(|e| e.to_string())?;
    open_bytes(&alias::library(soname, &full.to_string_lossy()))
}

fn already_loaded() -> Option<Library> {
    // SAFETY: with RTLD_NOLOAD nothing is loaded and no initialiser runs.
    unsafe {
        Library::open(
            Some(ASKED_BY_CUDARC),
            RTLD_LAZY | RTLD_LOCAL | libc::RTLD_NOLOAD,
        )
    }
    .ok()
}

/// Loads a library from memory, by way of a file that is gone afterwards. Each has a
/// path of its own: the loader takes a path that it has loaded for the same library.
fn open_bytes(bytes: &[u8]) -> Result<(), String> {
    let cannot =
        |e: std::io::Error| format!("cannot write a library below the temporary folder: {e}");
    let mut file = tempfile::Builder::new()
        .prefix("kernelgate-alias-")
        .suffix(".so")
        .tempfile()
        .map_err(cannot)?;
    file.write_all(bytes)
        .and_then(|()| file.flush())
        .map_err(cannot)?;
    std::mem::forget(open(file.path().as_os_str())?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alias_makes_a_name_mean_another_library() {
        let math = open(OsStr::new("libm.so.6")).unwrap();
        let name = "libkernelgate-alias-test.so";
        assert!(open(OsStr::new(name)).is_err(), "the name must be free");
        open_bytes(&alias::library(name, "libm.so.6")).unwrap();
        let aliased = open(OsStr::new(name)).expect("the name now has a meaning");
        assert_eq!(address(&aliased, b"cos"), address(&math, b"cos"));
        assert!(address(&aliased, b"no_such_symbol_anywhere").is_none());
    }

    #[test]
    fn two_aliases_in_one_process_are_two_libraries() {
        for (name, library, symbol) in [
            ("libkernelgate-alias-first.so", "libm.so.6", &b"cos"[..]),
            ("libkernelgate-alias-second.so", "libc.so.6", &b"getpid"[..]),
        ] {
            open_bytes(&alias::library(name, library)).unwrap();
            let aliased = open(OsStr::new(name)).expect(name);
            assert!(has(&aliased, symbol), "{name}");
        }
    }

    #[test]
    fn a_name_is_given_to_the_first_candidate_that_is_there_or_all_are_listed() {
        let name = "libkernelgate-findable-test.so";
        make_findable(name, &["libkernelgate-nowhere.so", "libm.so.6"]).unwrap();
        let found = open(OsStr::new(name)).unwrap();
        assert!(has(&found, b"cos"));
        let error = make_findable("liba-b-c.so", &["libd-e-f.so"]).unwrap_err();
        assert!(error.contains("liba-b-c.so: not found") && error.contains("libd-e-f.so"));
    }

    #[test]
    fn a_missing_library_is_reported_by_name() {
        let probe = probe(OsStr::new("libkernelgate-does-not-exist.so"));
        assert!(!probe.usable());
        assert_eq!(
            probe.describe(),
            "libkernelgate-does-not-exist.so: not found"
        );
    }

    #[test]
    fn a_file_that_is_no_library_is_named_once() {
        let probe = probe(OsStr::new("/etc/passwd"));
        assert_eq!(probe.describe(), "/etc/passwd: invalid ELF header");
    }

    #[test]
    fn a_library_that_is_no_driver_says_what_it_lacks() {
        let probe = probe(OsStr::new("libm.so.6"));
        assert!(!probe.usable() && !probe.ours);
        assert!(probe.describe().contains("it lacks cuInit"));
    }
}
