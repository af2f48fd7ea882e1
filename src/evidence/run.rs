//! One command, with its output and exit code.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::plan::Step;
use crate::children::die_with_parent;

/// What a command did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// As a shell gives it; 128 + n for signal n.
    pub exit: u8,
    /// stdout and stderr in the order they were written.
    pub output: String,
}

/// Where a step runs.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// Folder with every binary.
    pub bin_dir: &'a Path,
    /// Working folder, where the step leaves its files; `None`: this process's own.
    pub folder: Option<&'a Path>,
    /// For records that carry the commit of the binaries.
    pub commit: Option<&'a str>,
}

/// Seconds that a question to a binary may take.
const ASK_S: u64 = 60;
/// The exit code of a command that was ended, as `timeout` gives it.
const ENDED: u8 = 124;

/// Runs a step: once, or once for each of its ranks, all at the same time.
pub fn step(step: &Step, place: &Place) -> anyhow::Result<Ran> {
    let mut words: Vec<PathBuf> = Vec::new();
    if let Some(flags) = step.sanitizer {
        words.push(binary(place.bin_dir, "kernelgate")?);
        words.push("sanitize".into());
        words.extend(flags.iter().map(PathBuf::from));
        words.push("--".into());
    }
    words.push(binary(place.bin_dir, step.program)?);
    words.extend(step.arguments.iter().map(PathBuf::from));
    let mut variables = rank_variables(step)?;
    if variables.is_empty() {
        variables.push(Vec::new());
    }
    let prepare = |set: Vec<(String, String)>| {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).envs(set);
        if let Some(folder) = place.folder {
            command.current_dir(folder);
        }
        if let Some(commit) = place.commit {
            command.env("KERNELGATE_COMMIT", commit);
        }
        command
    };
    together(variables.into_iter().map(prepare).collect(), step.limit_s)
}

/// The variables of each rank, with a secret and a port of this run.
fn rank_variables(step: &Step) -> anyhow::Result<Vec<Vec<(String, String)>>> {
    if step.ranks.is_empty() {
        return Ok(Vec::new());
    }
    let token: String = std::iter::repeat_with(fastrand::alphanumeric)
        .take(32)
        .collect();
    // Free a moment ago: good enough on a machine that records evidence.
    let port = std::net::TcpListener::bind(("127.0.0.1", 0))
        .and_then(|listener| listener.local_addr())
        .context("no free port for the ranks")?
        .port()
        .to_string();
    let filled = |value: &str| value.replace("$TOKEN", &token).replace("$PORT", &port);
    Ok(step
        .ranks
        .iter()
        .map(|set| {
            let pair = |&(name, value): &(&str, &str)| (name.to_string(), filled(value));
            set.iter().map(pair).collect()
        })
        .collect())
}

pub(super) fn binary(bin_dir: &Path, name: &str) -> anyhow::Result<PathBuf> {
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

/// Runs a command.
pub fn command(words: &[PathBuf]) -> anyhow::Result<Ran> {
    let (program, arguments) = words.split_first().context("a command has a program")?;
    let mut command = Command::new(program);
    command.args(arguments);
    together(vec![command], ASK_S)
}

/// Runs commands at the same time; all streams go to one file, so that their order
/// is kept. The exit code is the first that is not 0. After `limit_s` seconds what
/// still runs is killed, which the output says, and the exit code is [`ENDED`].
fn together(commands: Vec<Command>, limit_s: u64) -> anyhow::Result<Ran> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("output");
    let file = File::options().create(true).append(true).open(&path)?;
    let mut running = Running(Vec::new());
    for mut command in commands {
        command.stdout(file.try_clone()?).stderr(file.try_clone()?);
        // A recorder that is killed leaves nothing that goes on using the device.
        die_with_parent(&mut command);
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        running.0.push((child, None));
    }
    let limit = Duration::from_secs(limit_s);
    let start = Instant::now();
    while !running.over()? {
        if start.elapsed() > limit {
            drop(running);
            writeln!(&file, "kernelgate evidence: ended after {limit_s} s")?;
            return Ok(Ran {
                exit: ENDED,
                output: String::from_utf8_lossy(&std::fs::read(&path)?).into_owned(),
            });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let codes = running.0.iter().filter_map(|(_, status)| *status);
    Ok(Ran {
        exit: codes.map(exit_code).find(|code| *code != 0).unwrap_or(0),
        output: String::from_utf8_lossy(&std::fs::read(&path)?).into_owned(),
    })
}

/// Children that do not outlive this process's interest in them.
struct Running(Vec<(Child, Option<ExitStatus>)>);

impl Running {
    /// Whether all have ended.
    fn over(&mut self) -> std::io::Result<bool> {
        let mut over = true;
        for (child, status) in &mut self.0 {
            if status.is_none() {
                *status = child.try_wait()?;
            }
            over &= status.is_some();
        }
        Ok(over)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for (child, status) in &mut self.0 {
            if status.is_none() {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

fn exit_code(status: ExitStatus) -> u8 {
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
    fn a_command_that_takes_too_long_is_ended_and_says_so() {
        let mut sleeps = Command::new("/bin/sleep");
        sleeps.arg("60");
        let started = Instant::now();
        let ran = together(vec![sleeps], 1).unwrap();
        assert!(started.elapsed() < Duration::from_secs(10));
        assert_eq!(ran.exit, ENDED);
        assert!(ran.output.contains("ended after 1 s"), "{}", ran.output);
    }

    /// Two processes at once: each waits for the other's file.
    #[test]
    fn ranks_run_at_the_same_time_with_their_variables() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("rank");
        let script = "#!/bin/sh\ntouch \"here$RANK\"\n\
             while ! [ -e \"here$((1 - RANK))\" ]; do sleep 0.01; done\n\
             echo \"$MASTER_PORT $KERNELGATE_TOKEN $KERNELGATE_COMMIT\"\nexit $((RANK * 7))\n";
        std::fs::write(&program, script).unwrap();
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let started = Step {
            ranks: &[
                &[
                    ("RANK", "0"),
                    ("MASTER_PORT", "$PORT"),
                    ("KERNELGATE_TOKEN", "$TOKEN"),
                ],
                &[
                    ("RANK", "1"),
                    ("MASTER_PORT", "$PORT"),
                    ("KERNELGATE_TOKEN", "$TOKEN"),
                ],
            ],
            limit_s: 20,
            ..Step::bare("x", "rank", &[])
        };
        let place = Place {
            bin_dir: folder.path(),
            folder: Some(folder.path()),
            commit: Some("abc"),
        };
        let ran = step(&started, &place).unwrap();
        assert_eq!(ran.exit, 7, "{}", ran.output);
        let lines: Vec<&str> = ran.output.lines().collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert_eq!(lines[0], lines[1], "one port and one token for all");
        let words: Vec<&str> = lines[0].split(' ').collect();
        assert!(words[0].parse::<u16>().unwrap() > 0);
        assert_eq!((words[1].len(), words[2]), (32, "abc"));
    }

    #[test]
    fn a_missing_binary_is_named() {
        let place = Place {
            bin_dir: Path::new("/no/such/folder"),
            folder: None,
            commit: None,
        };
        let error = step(&Step::bare("testing", "testing", &[]), &place).unwrap_err();
        assert!(error.to_string().contains("/no/such/folder/testing"));
    }
}
