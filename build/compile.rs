//! Calling nvcc through bindgen_cuda.
//!
//! bindgen_cuda panics on every failure, asks nvidia-smi for a device, takes
//! nvcc from `PATH` only and keeps old output that looks newer than its source.
//! So the build script starts itself once more for each target, with `PATH`,
//! the device and an empty output folder set, and turns what comes back into an
//! error with the compiler's own words.

use crate::kernel_source::{KernelSource, NVCC_FLAGS};
use crate::nvcc::Nvcc;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// First argument of the build script when it is to run bindgen_cuda.
pub const CHILD_ARGUMENT: &str = "run-bindgen-cuda";

/// What nvcc wrote for each kernel, by name, and its warnings.
pub struct Compiled {
    pub ptx: BTreeMap<String, String>,
    pub warnings: Vec<String>,
}

/// Compiles `sources` below `scratch`, one bindgen_cuda run a target.
pub fn compile(
    nvcc: &Nvcc,
    root: &Path,
    sources: &[KernelSource],
    scratch: &Path,
) -> Result<Compiled, String> {
    let mut by_target: BTreeMap<&str, Vec<&KernelSource>> = BTreeMap::new();
    for source in sources {
        by_target.entry(&source.target).or_default().push(source);
    }
    let mut compiled = Compiled {
        ptx: BTreeMap::new(),
        warnings: Vec::new(),
    };
    for (target, group) in by_target {
        let folder = scratch.join(target);
        let messages = run_child(nvcc, root, target, &group, &folder)?;
        compiled.warnings.extend(messages);
        for source in group {
            let file = folder.join(format!("{}.ptx", source.name));
            let text = fs::read_to_string(&file).map_err(|e| {
                format!(
                    "{}: nvcc left no {}: {e}",
                    source.source_path(),
                    file.display()
                )
            })?;
            compiled.ptx.insert(source.name.clone(), text);
        }
    }
    Ok(compiled)
}

/// nvcc's remark on the second `-arch` that [`child`] passes on purpose.
const OVERRIDE_WARNING: &str = "incompatible redefinition for option 'gpu-architecture'";

/// Returns the lines that nvcc printed.
fn run_child(
    nvcc: &Nvcc,
    root: &Path,
    target: &str,
    group: &[&KernelSource],
    folder: &Path,
) -> Result<Vec<String>, String> {
    empty(folder)?;
    let this = std::env::current_exe().map_err(|e| format!("no path to the build script: {e}"))?;
    let bin = nvcc.path.parent().unwrap_or(&nvcc.toolkit);
    let mut path = bin.as_os_str().to_owned();
    if let Some(rest) = std::env::var_os("PATH") {
        path.push(if cfg!(windows) { ";" } else { ":" });
        path.push(rest);
    }
    let capability: String = target.chars().filter(char::is_ascii_digit).collect();
    let output = Command::new(this)
        .arg(CHILD_ARGUMENT)
        .arg(target)
        .arg(&nvcc.toolkit)
        .args(group.iter().map(|source| source.source_path()))
        .current_dir(root)
        .env("PATH", path)
        .env("OUT_DIR", folder)
        .env("CUDA_COMPUTE_CAP", capability)
        .output()
        .map_err(|e| format!("cannot start the build script again: {e}"))?;
    let messages: Vec<String> = String::from_utf8_lossy(&output.stderr)
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.contains(OVERRIDE_WARNING))
        .map(str::to_owned)
        .collect();
    if output.status.success() {
        return Ok(messages);
    }
    let files: Vec<_> = group.iter().map(|source| source.source_path()).collect();
    Err(format!(
        "{} could not compile {} for {target}:\n{}\n\
         KERNELGATE_PTX=checked-in builds without nvcc as long as the sources are unchanged",
        nvcc.path.display(),
        files.join(", "),
        messages.join("\n")
    ))
}

/// bindgen_cuda skips a kernel whose output looks newer, whatever else changed.
fn empty(folder: &Path) -> Result<(), String> {
    if folder.exists() {
        fs::remove_dir_all(folder)
            .map_err(|e| format!("cannot empty {}: {e}", folder.display()))?;
    }
    fs::create_dir_all(folder).map_err(|e| format!("cannot create {}: {e}", folder.display()))
}

/// The child's side: target, toolkit, then the kernel files. bindgen_cuda panics
/// when nvcc fails; nvcc has printed its errors by then.
pub fn child(mut arguments: impl Iterator<Item = OsString>) {
    std::panic::set_hook(Box::new(|panic| {
        let payload = panic.payload();
        let message = payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| payload.downcast_ref::<&str>().copied())
            .unwrap_or("bindgen_cuda failed");
        eprintln!("{}", message.lines().next().unwrap_or_default());
    }));
    let target = arguments.next().unwrap_or_default();
    let toolkit = PathBuf::from(arguments.next().unwrap_or_default());
    let kernels: Vec<PathBuf> = arguments.map(PathBuf::from).collect();
    let mut builder = bindgen_cuda::Builder::default()
        .include_paths(Vec::<PathBuf>::new())
        .kernel_paths(kernels);
    builder.cuda_root(toolkit);
    for flag in NVCC_FLAGS {
        builder = builder.arg(flag);
    }
    // A feature suffix (`sm_90a`) does not fit bindgen_cuda's numeric capability;
    // a later -arch overrides it.
    let target = target.to_string_lossy();
    if target.ends_with(|c: char| c.is_ascii_lowercase()) {
        let arch = format!("-arch={}", target.replace("sm_", "compute_"));
        builder = builder.arg(arch.leak());
    }
    if builder.build_ptx().is_err() {
        std::process::exit(1);
    }
}
