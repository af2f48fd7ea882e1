//! The program to be sanitized, looked at before it is started: a word of the system
//! such as "No such file or directory" does not say whose file.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::bail;

/// # Errors
/// What keeps `program` from being started, and what to do.
pub fn check(program: &OsStr) -> anyhow::Result<()> {
    let name = program.to_string_lossy();
    let file = found(program)?;
    let about = match std::fs::metadata(&file) {
        Ok(about) => about,
        Err(error) => bail!("cannot start {name}: {error}"),
    };
    if about.is_dir() {
        bail!("cannot start {name}: it is a folder; name the program in it");
    }
    if !executable(&file) {
        bail!("cannot start {name}: it is no executable file; `chmod +x {name}` makes it one");
    }
    let mut head = Vec::new();
    std::fs::File::open(&file)
        .and_then(|file| file.take(256).read_to_end(&mut head))
        .unwrap_or_default();
    // A file that may be run but not read is left to the system.
    if head.is_empty() || head.starts_with(b"\x7fELF") {
        return Ok(());
    }
    match interpreter(&head) {
        None => bail!(
            "cannot start {name}: it is neither a program nor a script, whose first line is \
             `#!` and an interpreter"
        ),
        Some(interpreter) if !interpreter.is_file() => bail!(
            "cannot start {name}: its first line asks for {}, which is not there",
            interpreter.display()
        ),
        Some(_) => Ok(()),
    }
}

/// A word with a `/` is a file, another is looked for in PATH.
fn found(program: &OsStr) -> anyhow::Result<PathBuf> {
    let name = program.to_string_lossy();
    if name.is_empty() {
        bail!("cannot start the program: its name is empty");
    }
    if name.contains('/') {
        let file = PathBuf::from(program);
        if file.symlink_metadata().is_err() {
            bail!("cannot start {name}: there is no such file");
        }
        return Ok(file);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file() && executable(file));
    match in_path {
        Some(file) => Ok(file),
        None if Path::new(program).exists() => bail!(
            "cannot start {name}: there is none in PATH; `./{name}` names the one in this folder"
        ),
        None => bail!("cannot start {name}: there is none in PATH"),
    }
}

fn executable(file: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(file.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: the string ends in a zero and outlives the call.
    unsafe { libc::access(path.as_ptr(), libc::X_OK) == 0 }
}

/// The program that a script's first line names.
fn interpreter(head: &[u8]) -> Option<PathBuf> {
    let line = head.strip_prefix(b"#!")?.split(|&b| b == b'\n').next()?;
    let line = String::from_utf8_lossy(line).into_owned();
    line.split_whitespace().next().map(PathBuf::from)
}
