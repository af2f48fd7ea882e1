//! The PTX in `kernels/ptx/`: taken where there is no nvcc, refreshed where
//! there is one.

use crate::kernel_source::KernelSource;
use crate::nvcc::INSTALL;
use crate::ptx_text::recorded_digest;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The one command that rewrites `kernels/ptx/`.
pub const REFRESH: &str = "KERNELGATE_PTX=refresh cargo build --lib";

/// PTX of each kernel by name.
///
/// # Errors
/// Lists every kernel whose PTX is missing or belongs to other sources.
pub fn read_all(root: &Path, sources: &[KernelSource]) -> Result<BTreeMap<String, String>, String> {
    let mut ptx = BTreeMap::new();
    let mut problems = Vec::new();
    for source in sources {
        match read(root, source) {
            Ok(text) => {
                ptx.insert(source.name.clone(), text);
            }
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() {
        return Ok(ptx);
    }
    problems.push(format!(
        "Compiling it needs nvcc, which was not found in NVCC, PATH, CUDA_PATH, CUDA_HOME or .cuda. \
         Install it with: {INSTALL}"
    ));
    Err(problems.join("\n"))
}

/// PTX of one kernel when it was made from `source` as it is now.
pub fn read(root: &Path, source: &KernelSource) -> Result<String, String> {
    let (path, cu) = (source.ptx_path(), source.source_path());
    let Ok(text) = fs::read_to_string(root.join(&path)) else {
        return Err(format!("{cu} has no checked-in PTX: {path} is not there"));
    };
    match recorded_digest(&text) {
        Some(digest) if digest == source.digest => Ok(text),
        Some(_) => Err(format!(
            "{cu} (or a header or flag of it) changed since {path} was made"
        )),
        None => Err(format!("{path} does not record the digest of {cu}")),
    }
}

/// Writes `ptx` to `kernels/ptx/` and removes what no kernel stands behind.
pub fn write_all(root: &Path, ptx: &BTreeMap<String, String>) -> Result<(), String> {
    let folder = root.join("kernels/ptx");
    let failed = |e: std::io::Error| format!("cannot write {}: {e}", folder.display());
    fs::create_dir_all(&folder).map_err(failed)?;
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        if path.extension().is_some_and(|e| e == "ptx") && !ptx.contains_key(&*stem) {
            fs::remove_file(&path).map_err(failed)?;
        }
    }
    for (name, text) in ptx {
        fs::write(folder.join(format!("{name}.ptx")), text).map_err(failed)?;
    }
    Ok(())
}
