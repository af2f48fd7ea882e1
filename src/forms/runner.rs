//! Runs forms in child processes: a fault costs one context, so one child, and
//! a kernel that never ends costs one time limit.

use super::spec::Spec;
use super::worker::{Answer, Hello};
use crate::children::die_with_parent;
use anyhow::{Context, Result, bail};
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How to run: children at a time, seconds a form, and the command of a child.
#[derive(Debug, Clone)]
pub struct Options {
    pub jobs: usize,
    pub timeout: Duration,
    /// Program and arguments that end in [`super::work`].
    pub worker: Vec<String>,
}

/// How one form ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Packed outputs.
    Ran(Vec<u8>),
    /// The device is older than the form's `.target`.
    NeedsSm(u32),
    Unsupported(String),
    Fault(String),
    TimedOut,
    Error(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Ran(bytes) => write!(f, "{} bytes of outputs", bytes.len()),
            Outcome::NeedsSm(sm) => write!(f, "needs sm_{sm}"),
            Outcome::Unsupported(why) => write!(f, "not supported: {why}"),
            Outcome::Fault(why) => write!(f, "faulted: {why}"),
            Outcome::TimedOut => f.write_str("no answer in time"),
            Outcome::Error(why) => write!(f, "cannot be run: {why}"),
        }
    }
}

/// The device, and one outcome a form in the order of the forms.
pub struct Run {
    pub device: Hello,
    pub outcomes: Vec<Outcome>,
}

/// Runs all of `specs`.
///
/// # Errors
/// No form at all, or no child that can open a device.
pub fn run(specs: &[Spec], options: &Options) -> Result<Run> {
    if specs.is_empty() {
        bail!("no form selected: nothing would be compared");
    }
    let first = Session::start(options)?;
    let device = first.hello.clone();
    let next = AtomicUsize::new(0);
    let outcomes: Vec<Mutex<Option<Outcome>>> = specs.iter().map(|_| Mutex::new(None)).collect();
    let first = Mutex::new(Some(first));
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.clamp(1, specs.len()) {
            scope.spawn(|| {
                let mut session = first.lock().ok().and_then(|mut s| s.take());
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(spec) = specs.get(index) else { break };
                    let outcome = one(spec, options, &device, &mut session);
                    if let Ok(mut slot) = outcomes[index].lock() {
                        *slot = Some(outcome);
                    }
                }
            });
        }
    });
    let outcomes = outcomes
        .into_iter()
        .map(|o| o.into_inner().ok().flatten())
        .map(|o| o.unwrap_or_else(|| Outcome::Error("the runner lost this form".into())))
        .collect();
    Ok(Run { device, outcomes })
}

/// Runs one form in the session at hand, or in a new one where the last ended.
fn one(spec: &Spec, options: &Options, device: &Hello, session: &mut Option<Session>) -> Outcome {
    if spec.sm > device.sm {
        return Outcome::NeedsSm(spec.sm);
    }
    let mut live = match session.take().map_or_else(|| Session::start(options), Ok) {
        Ok(live) => live,
        Err(error) => return Outcome::Error(format!("{error:#}")),
    };
    let outcome = live.ask(spec, options.timeout);
    // A child that refused an instruction in mid-kernel has lost its context.
    if matches!(outcome, Outcome::Ran(_)) {
        *session = Some(live);
    }
    outcome
}

/// One child and its pipes.
struct Session {
    child: Child,
    lines: Receiver<String>,
    errors: Arc<Mutex<String>>,
    hello: Hello,
}

impl Session {
    fn start(options: &Options) -> Result<Session> {
        let (program, arguments) = options.worker.split_first().context("no worker command")?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = die_with_parent(&mut command)
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        let stdout = child.stdout.take().context("no pipe")?;
        let stderr = child.stderr.take().context("no pipe")?;
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        let errors = Arc::new(Mutex::new(String::new()));
        let sink = Arc::clone(&errors);
        std::thread::spawn(move || drain(stderr, &sink));
        let mut session = Session {
            child,
            lines,
            errors,
            hello: Hello {
                name: String::new(),
                sm: 0,
                banner: String::new(),
                driver: String::new(),
            },
        };
        match session.lines.recv_timeout(Duration::from_secs(60)) {
            Ok(line) => {
                session.hello = serde_json::from_str(&line).context("first line of a child")?
            }
            Err(_) => {
                let status = session.child.wait();
                // The child's own exit code tells no device from a crash.
                bail!("no child opened a device ({status:?}): {}", session.said());
            }
        }
        Ok(session)
    }

    fn ask(&mut self, spec: &Spec, timeout: Duration) -> Outcome {
        let sent = self
            .child
            .stdin
            .as_mut()
            .map(|pipe| writeln!(pipe, "{}", spec.path.display()));
        if !matches!(sent, Some(Ok(()))) {
            return Outcome::Error("the child closed its input".into());
        }
        match self.lines.recv_timeout(timeout) {
            Ok(line) => match serde_json::from_str(&line) {
                Ok(Answer::Outputs(text)) => match unhex(&text) {
                    Some(bytes) => Outcome::Ran(bytes),
                    None => Outcome::Error("outputs are not hexadecimal".into()),
                },
                Ok(Answer::Unsupported(why)) => Outcome::Unsupported(self.with_stderr(why)),
                Ok(Answer::Fault(why)) => Outcome::Fault(self.with_stderr(why)),
                Ok(Answer::Error(why)) => Outcome::Error(why),
                Err(error) => Outcome::Error(format!("answer of the child: {error}")),
            },
            Err(RecvTimeoutError::Timeout) => Outcome::TimedOut,
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.child.wait();
                Outcome::Fault(self.with_stderr(format!("the child ended: {status:?}")))
            }
        }
    }

    fn with_stderr(&self, why: String) -> String {
        match self.said().as_str() {
            "" => why,
            said => format!("{why}; {said}"),
        }
    }

    /// What the child has written to stderr since the last time.
    fn said(&self) -> String {
        // Its reader may be a moment behind the answer on the other pipe.
        std::thread::sleep(Duration::from_millis(5));
        let taken = self.errors.lock().map(|mut e| std::mem::take(&mut *e));
        taken.unwrap_or_default().trim().to_owned()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // A child whose input closes ends by itself; one that hangs does not.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn drain(mut pipe: impl Read, sink: &Mutex<String>) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = pipe.read(&mut buffer) {
        if let Ok(mut text) = sink.lock() {
            // Keep the end: enough for a message, bounded for a chatty driver.
            text.push_str(&String::from_utf8_lossy(&buffer[..count]));
            if text.len() > 1 << 16 {
                text.clear();
            }
        }
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |b: u8| (b as char).to_digit(16).map(|d| d as u8);
    text.as_bytes()
        .chunks(2)
        .map(|pair| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?))
        .collect()
}
