//! Finding nvcc.

use std::env::consts::EXE_SUFFIX;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// The one command that fills the project-local `.cuda` folder.
pub const INSTALL: &str = "python3 -m pip install --target .cuda -r kernels/nvcc.txt";

/// Reads an environment variable; a parameter so that tests bring their own.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

#[derive(Debug, Clone, PartialEq)]
pub struct Nvcc {
    /// The real file, links resolved: nvcc finds its parts relative to itself.
    pub path: PathBuf,
    /// Folder above `bin`.
    pub toolkit: PathBuf,
}

/// Looks in `NVCC`, `PATH`, `CUDA_PATH`, `CUDA_HOME` and `.cuda`, in this order.
///
/// # Errors
/// `NVCC` names something that is not there: asked for by name, so no fallback.
pub fn find(root: &Path, env: Environment) -> Result<Option<Nvcc>, String> {
    let set = |name: &str| env(name).filter(|value| !value.is_empty());
    if let Some(named) = set("NVCC") {
        return existing(Path::new(&named)).map(Some).ok_or_else(|| {
            format!(
                "NVCC is set to {}, which is not an nvcc; set it to the path of one, or unset it",
                named.display()
            )
        });
    }
    let executable = format!("nvcc{EXE_SUFFIX}");
    let path = set("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|folder| folder.join(&executable));
    let homes = ["CUDA_PATH", "CUDA_HOME"]
        .into_iter()
        .filter_map(set)
        .map(|home| Path::new(&home).join("bin").join(&executable));
    Ok(on_path
        .chain(homes)
        .chain(project_local(root, &executable))
        .find_map(|candidate| existing(&candidate)))
}

/// `.cuda/bin`, or where pip puts it: `.cuda/nvidia/cu13/bin`.
fn project_local(root: &Path, executable: &str) -> Vec<PathBuf> {
    let folder = root.join(".cuda");
    let mut toolkits: Vec<PathBuf> = fs::read_dir(folder.join("nvidia"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    toolkits.sort();
    toolkits.insert(0, folder);
    toolkits
        .iter()
        .map(|toolkit| toolkit.join("bin").join(executable))
        .collect()
}

fn existing(candidate: &Path) -> Option<Nvcc> {
    let path = candidate.canonicalize().ok().filter(|p| p.is_file())?;
    // bindgen_cuda calls a program of exactly this name.
    if path.file_stem()? != "nvcc" {
        return None;
    }
    let toolkit = path.parent()?.parent()?.to_path_buf();
    Some(Nvcc { path, toolkit })
}
