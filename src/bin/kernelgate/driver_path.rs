//! `kernelgate driver-path`: a folder for `LD_LIBRARY_PATH`.
//!
//! Most CUDA programs open `libcuda.so.1`, cudarc tries `libcuda.so` first. The
//! folder serves both names from one file: two links to the library that Cargo
//! built. The loader recognises one file under two names, so a process never holds
//! the driver twice.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use kernelgate::device::{DeviceError, our_library};
use kernelgate::exit::Exit;
use kernelgate::outln;

const NAMES: [&str; 2] = ["libcuda.so", "libcuda.so.1"];

/// Print a folder that serves the CPU driver as libcuda.so and libcuda.so.1
///
/// With it in LD_LIBRARY_PATH, any program that uses the CUDA driver API runs on
/// the CPU:
///
///   LD_LIBRARY_PATH=$(kernelgate driver-path) ./program
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {}

pub fn run(_arguments: &Arguments) -> anyhow::Result<Exit> {
    outln!("{}", folder_of(&library()?)?.display())?;
    Ok(Exit::Held)
}

/// The library of this installation.
///
/// # Errors
/// [`DeviceError::NoDevice`] when it was not built.
pub fn library() -> Result<PathBuf, DeviceError> {
    our_library().ok_or_else(|| DeviceError::NoDevice {
        message: "kernelgate's CPU driver, libcuda.so, is not beside this program (nor in deps/, \
                  ../deps/ or ../lib/kernelgate/). To do: `cargo build --workspace` builds it"
            .into(),
    })
}

/// A folder that serves `library` under both names, made where there is none yet.
pub fn folder_of(library: &Path) -> anyhow::Result<PathBuf> {
    let library = library
        .canonicalize()
        .with_context(|| format!("while looking at {}", library.display()))?;
    let beside = library
        .parent()
        .context("the driver's path has no folder")?;
    let leads_there = |name| {
        let file = beside.join(name).canonicalize();
        file.is_ok_and(|file| file == library)
    };
    if NAMES.into_iter().all(leads_there) {
        return Ok(beside.to_path_buf());
    }
    let mut tried = Vec::new();
    for candidate in candidates(&library, beside) {
        match serve(&library, &candidate) {
            Ok(()) => return Ok(candidate),
            Err(error) => tried.push(format!("{}: {error}", candidate.display())),
        }
    }
    anyhow::bail!("no folder to put two links in; tried {}", tried.join("; "))
}

/// Beside the library, or where a user can write when that is installed read-only.
fn candidates(library: &Path, beside: &Path) -> Vec<PathBuf> {
    let mut folders = vec![beside.join("kernelgate-driver")];
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")));
    if let Some(cache) = cache {
        // One folder a library, so that two installations do not fight over links.
        let key: String = library
            .to_string_lossy()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        folders.push(cache.join("kernelgate").join(key));
    }
    folders
}

fn serve(library: &Path, folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for name in NAMES {
        let link = folder.join(name);
        if std::fs::read_link(&link).is_ok_and(|target| target == library) {
            continue;
        }
        // Made aside and renamed, so that another process never finds the name gone.
        let aside = folder.join(format!("{name}.{}", std::process::id()));
        std::os::unix::fs::symlink(library, &aside)?;
        std::fs::rename(&aside, &link)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_names_lead_to_the_library_and_follow_it_when_it_moves() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("serve");
        for file in ["first.so", "second.so"] {
            let library = root.path().join(file);
            std::fs::write(&library, file).unwrap();
            serve(&library, &folder).unwrap();
            serve(&library, &folder).unwrap();
            for name in NAMES {
                let served = std::fs::read_to_string(folder.join(name)).unwrap();
                assert_eq!(served, file, "{name}");
            }
            let entries = std::fs::read_dir(&folder).unwrap().count();
            assert_eq!(entries, NAMES.len(), "nothing is left aside");
        }
    }
}
