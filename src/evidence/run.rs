//! One command, with its output and exit code.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::plan::Step;

/// A run that takes longer is ended and fails: no lesson needs a tenth of it.
const LIMIT: Duration = Duration::from_secs(300);

/// What a command did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// As a shell gives it; 128 + n for signal n.
    pub exit: u8,
    /// stdout and stderr in the order they were written.
    pub output: String,
}

/// Runs a step with the binaries of `bin_dir`.
pub fn step(step: &Step, bin_dir: &Path) -> anyhow::Result<Ran> {
    let mut words: Vec<PathBuf> = Vec::new();
    if let Some(flags) = step.sanitizer {
        words.push(binary(bin_dir, "kernelgate")?);
        words.push("sanitize".into());
        words.extend(flags.iter().map(PathBuf::from));
        words.push("--".into());
    }
    words.push(binary(bin_dir, step.program)?);
    words.extend(step.arguments.iter().map(PathBuf::from));
    command(&words)
}

fn binary(bin_dir: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let file = bin_dir.join(name);
    ensure!(
        file.is_file(),
        "{} is not there; --bin-dir must hold every binary, memory_bugs_clean included \
         (`cargo build --release --features clean`)",
        file.display()
    );
    // A bare name would be looked for in PATH.
    Ok(std::path::absolute(file)?)
}

/// Runs a command; both streams go to one file, so that their order is kept.
pub fn command(words: &[PathBuf]) -> anyhow::Result<Ran> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("output");
    let file = File::options().create(true).append(true).open(&path)?;
    let (program, arguments) = words.split_first().context("a command has a program")?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdout(file.try_clone()?)
        .stderr(file)
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > LIMIT {
            child.kill()?;
            child.wait()?;
            anyhow::bail!("{} took more than {LIMIT:?}", program.display());
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    Ok(Ran {
        exit: exit_code(status),
        output: String::from_utf8_lossy(&std::fs::read(&path)?).into_owned(),
    })
}

fn exit_code(status: std::process::ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => (code & 0xFF) as u8,
        (None, signal) => (128 + signal.unwrap_or(0)) as u8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Ran {
        command(&["/bin/sh".into(), "-c".into(), script.into()]).unwrap()
    }

    #[test]
    fn both_streams_are_kept_in_order_with_the_exit_code() {
        let ran = shell("echo a; echo b >&2; echo c; exit 7");
        assert_eq!(ran.output, "a\nb\nc\n");
        assert_eq!(ran.exit, 7);
        assert_eq!(shell("kill -9 $$").exit, 137);
    }

    #[test]
    fn a_missing_binary_is_named() {
        let step_of_plan = &crate::evidence::plan::STEPS[0];
        let error = step(step_of_plan, Path::new("/no/such/folder")).unwrap_err();
        assert!(error.to_string().contains("/no/such/folder/testing"));
    }
}
