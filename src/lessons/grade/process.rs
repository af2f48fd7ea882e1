//! Running a student's program: with limits of time and output, and never a stale
//! build.

use crate::children::{die_with_parent, end_group_now, end_group_on_signal};
use crate::exit::UsageError;
use anyhow::{Context, bail};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// A program that has not ended by then is stopped. Generous: under a sanitizer
/// on a CPU the lessons take seconds.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Bytes of a stream. A program that prints more is stopped too.
const MOST_OUTPUT: u64 = 16 << 20;

/// What a program left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Its exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// Runs a command to its end, or stops it after `limit` or at 16 MiB of output.
///
/// # Errors
/// When it cannot be started, does not end in time or prints too much.
pub fn run(command: &mut Command, limit: Duration) -> anyhow::Result<Finished> {
    let name = command.get_program().to_string_lossy().into_owned();
    command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = die_with_parent(command)
        .spawn()
        .with_context(|| format!("starting {name}"))?;
    let mut running = Running(child);
    end_group_on_signal(running.group());
    let stdout = Stream::collect(running.0.stdout.take());
    let stderr = Stream::collect(running.0.stderr.take());
    let started = Instant::now();
    let mut status = None;
    loop {
        if status.is_none() {
            status = running.0.try_wait()?;
        }
        // Before the flags: a stream that has ended has set its flag.
        let ended = stdout.reader.is_finished() && stderr.reader.is_finished();
        if stdout.overflowed() || stderr.overflowed() {
            bail!(
                "{name} printed more than {} MiB and was stopped; does a test of yours loop?",
                MOST_OUTPUT >> 20
            );
        }
        if let Some(status) = status.filter(|_| ended) {
            return Ok(Finished {
                code: status.code(),
                stdout: stdout.text(),
                stderr: stderr.text(),
            });
        }
        if started.elapsed() > limit {
            let seconds = limit.as_secs();
            match status {
                None => bail!(
                    "{name} had not ended after {seconds} s and was stopped; does a test of \
                     yours loop?"
                ),
                Some(_) => bail!(
                    "{name} ended, but after {seconds} s a process that it started still held \
                     its output"
                ),
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A child that does not outlive the interest in it, nor do those that it started.
struct Running(Child);

impl Running {
    fn group(&self) -> i32 {
        self.0.id().cast_signed()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        end_group_on_signal(0);
        end_group_now(self.group());
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A pipe that is read on a thread of its own, so that a full pipe stops nobody.
struct Stream {
    reader: JoinHandle<Vec<u8>>,
    overflow: Arc<AtomicBool>,
}

impl Stream {
    fn collect(pipe: Option<impl Read + Send + 'static>) -> Stream {
        let overflow = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&overflow);
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(pipe) = pipe {
                // A broken pipe ends the text; what came before it still counts.
                let _ = pipe.take(MOST_OUTPUT + 1).read_to_end(&mut bytes);
            }
            flag.store(bytes.len() as u64 > MOST_OUTPUT, Ordering::Release);
            bytes
        });
        Stream { reader, overflow }
    }

    fn overflowed(&self) -> bool {
        self.overflow.load(Ordering::Acquire)
    }

    fn text(self) -> String {
        let bytes = self.reader.join().unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// The program to grade: the one named, or the one beside this tool.
///
/// # Errors
/// [`UsageError`] when there is no such file.
pub fn program(named: Option<&Path>, default: &str) -> anyhow::Result<PathBuf> {
    let path = match named {
        Some(path) => path.to_owned(),
        None => std::env::current_exe()
            .context("finding the folder of this tool")?
            .with_file_name(format!("{default}{}", std::env::consts::EXE_SUFFIX)),
    };
    if path.is_file() {
        return Ok(path);
    }
    Err(UsageError(format!(
        "there is no program {}; build it with `cargo build --bin {default}`, or name it with --bin",
        path.display()
    ))
    .into())
}

/// Refuses a program that is older than one of its sources: it would grade the
/// student's last build and not the file on the screen. Sources that are not there
/// (a machine that has only the binaries) are not looked at.
///
/// # Errors
/// Names the source and the build command.
pub fn refuse_stale(program: &Path, sources: &[PathBuf], build: &str) -> anyhow::Result<()> {
    let built = modified(program)?;
    for source in sources.iter().filter(|source| source.is_file()) {
        if modified(source)? > built {
            bail!(
                "{} has changed since {} was built; run `{build}` and grade again",
                source.display(),
                program.display()
            );
        }
    }
    Ok(())
}

fn modified(path: &Path) -> anyhow::Result<SystemTime> {
    let read = std::fs::metadata(path).and_then(|metadata| metadata.modified());
    read.with_context(|| format!("reading the time of {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_streams_and_the_exit_code_arrive_even_past_a_full_pipe() {
        let script = "yes | head -c 300000; echo no >&2; exit 7";
        let finished = run(Command::new("sh").args(["-c", script]), LIMIT).unwrap();
        assert_eq!(finished.code, Some(7));
        assert_eq!(finished.stdout.len(), 300_000);
        assert_eq!(finished.stderr, "no\n");
    }

    #[test]
    fn a_program_that_does_not_end_is_stopped_with_an_error() {
        let limit = Duration::from_millis(50);
        let error = run(Command::new("sleep").arg("60"), limit).unwrap_err();
        assert!(error.to_string().contains("had not ended"), "{error}");
    }

    #[test]
    fn a_program_that_prints_without_end_is_stopped_before_memory_is() {
        for script in ["yes", "yes >&2"] {
            let error = run(Command::new("sh").args(["-c", script]), LIMIT).unwrap_err();
            assert!(error.to_string().contains("more than 16 MiB"), "{error}");
        }
    }

    #[test]
    fn a_process_that_keeps_the_output_open_does_not_keep_the_grader() {
        let limit = Duration::from_millis(300);
        let error = run(Command::new("sh").args(["-c", "sleep 5 &"]), limit).unwrap_err();
        assert!(error.to_string().contains("still held"), "{error}");
    }

    #[test]
    fn a_program_older_than_its_source_is_refused_and_a_newer_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let (source, program) = (folder.path().join("a.rs"), folder.path().join("a"));
        let at = |path: &Path, seconds| {
            let file = std::fs::File::create(path).unwrap();
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            file.set_modified(time).unwrap();
        };
        at(&source, 2_000);
        at(&program, 1_000);
        let sources = [source.clone(), folder.path().join("absent.rs")];
        let error = refuse_stale(&program, &sources, "make it").unwrap_err();
        assert!(error.to_string().contains("make it"), "{error}");
        at(&program, 3_000);
        refuse_stale(&program, &sources, "make it").unwrap();
    }

    #[test]
    fn a_program_that_is_not_there_is_wrong_usage() {
        let error = program(Some(Path::new("/nowhere/x")), "x").unwrap_err();
        assert_eq!(crate::exit::Exit::of(&error), crate::exit::Exit::Usage);
    }
}
