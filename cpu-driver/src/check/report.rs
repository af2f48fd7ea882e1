//! Where findings go: the text report, the saved file, the status line for
//! `kernelgate sanitize`.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::config::{Config, ConfigError, expand};
use super::finding::Finding;
use super::xml;

const PREFIX: &str = "=========";

/// What one process found: a line of JSON in the status file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub process: u32,
    /// A driver call was made.
    pub reached_cuda: bool,
    /// Findings of every kind, leaks included.
    pub errors: u64,
    pub leaked_bytes: u64,
    pub leaks: u64,
    /// The whole report was written, its summary included.
    pub summary_printed: bool,
    /// Kernel launches, and those of them that were checked.
    pub launches: u64,
    pub launches_checked: u64,
    /// While none was checked: kernels that were launched, the first few.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unchecked_kernels: Vec<String>,
    /// Why the report is not whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

/// The first part of a report that could not be written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Such as "standard output" or "log file `x`".
    pub what: String,
    pub error: String,
    pub os_error: Option<i32>,
}

/// Names of launched kernels to keep for a run that checks none.
const NAMED_KERNELS: usize = 8;

/// Output of a session, in the order of the findings.
pub struct Report {
    config: Config,
    log: Option<(String, File)>,
    /// Those within the print limit.
    kept: Vec<Finding>,
    status: Status,
}

#[derive(Serialize)]
struct Saved<'a> {
    tool: &'static str,
    version: &'static str,
    #[serde(flatten)]
    status: &'a Status,
    not_printed: u64,
    findings: Vec<SavedFinding<'a>>,
}

#[derive(Serialize)]
struct SavedFinding<'a> {
    fingerprint: String,
    #[serde(flatten)]
    finding: &'a Finding,
}

impl Report {
    /// Opens the log file.
    ///
    /// # Errors
    /// A log file that cannot be made.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        let log = match &config.log_file {
            None => None,
            Some(pattern) => {
                let path = expand(pattern)?;
                let file = File::create(&path).map_err(|error| ConfigError {
                    message: format!("log file `{path}`: {error}"),
                })?;
                Some((path, file))
            }
        };
        Ok(Self {
            config: config.clone(),
            log,
            kept: Vec::new(),
            status: Status {
                process: std::process::id(),
                ..Status::default()
            },
        })
    }

    #[must_use]
    pub fn status(&self) -> &Status {
        &self.status
    }

    /// Counts a launch that was accepted.
    pub fn launched(&mut self, kernel: &str, checked: bool) {
        let status = &mut self.status;
        status.launches += 1;
        status.launches_checked += u64::from(checked);
        if checked {
            status.unchecked_kernels.clear();
        } else if status.launches_checked == 0
            && status.unchecked_kernels.len() < NAMED_KERNELS
            && !status.unchecked_kernels.iter().any(|name| name == kernel)
        {
            status.unchecked_kernels.push(kernel.to_owned());
        }
    }

    /// Counts without printing; true where the finding is to be added.
    pub fn count(&mut self, leaked_bytes: Option<u64>) -> bool {
        self.status.errors += 1;
        if let Some(bytes) = leaked_bytes {
            self.status.leaks += 1;
            self.status.leaked_bytes += bytes;
        }
        let limit = self.config.print_limit;
        limit == 0 || self.status.errors <= limit
    }

    /// Prints a finding that [`Report::count`] let through, and keeps it.
    pub fn add(&mut self, finding: Finding) {
        self.print(&finding.to_string());
        self.print("");
        self.kept.push(finding);
    }

    /// The head of the report: the driver is in use.
    pub fn reached_cuda(&mut self) {
        if !self.status.reached_cuda {
            self.status.reached_cuda = true;
            self.status.process = std::process::id();
            self.print("KERNELGATE SANITIZER");
            // A process that is killed later leaves this line: it reached the
            // driver, and its report was never finished.
            self.complain("the status file", self.append_status());
        }
    }

    /// Summaries, saved file, status line; nothing may follow.
    pub fn finish(&mut self) {
        let Status {
            errors,
            leaks,
            leaked_bytes,
            ..
        } = self.status;
        if self.config.leak_check {
            self.print(&format!(
                "LEAK SUMMARY: {leaked_bytes} bytes leaked in {leaks} allocations"
            ));
        }
        let noun = if errors == 1 { "error" } else { "errors" };
        self.print(&format!("ERROR SUMMARY: {errors} {noun}"));
        let hidden = self.not_printed();
        if hidden > 0 {
            let noun = if hidden == 1 {
                "error was"
            } else {
                "errors were"
            };
            self.print(&format!(
                "ERROR SUMMARY: {hidden} {noun} not printed. Use --print-limit option to adjust \
                 the number of printed errors"
            ));
        }
        self.status.summary_printed = self.status.problem.is_none();
        self.complain("the saved findings", self.save());
        self.status.summary_printed = self.status.problem.is_none();
        self.complain("the status file", self.append_status());
    }

    fn not_printed(&self) -> u64 {
        self.status.errors - self.kept.len() as u64
    }

    /// One write a block, so that it does not mix with the program's output.
    fn print(&mut self, block: &str) {
        let mut text = String::new();
        for line in block.lines().chain(block.is_empty().then_some("")) {
            text.push_str(PREFIX);
            text.push(' ');
            text.push_str(line);
            text.push('\n');
        }
        let written = match &mut self.log {
            Some((_, file)) => file.write_all(text.as_bytes()),
            None => write_standard_output(text.as_bytes()),
        };
        // A closed pipe must not end the program under test, nor pass for a
        // report.
        if let Err(error) = written {
            let what = match &self.log {
                Some((path, _)) => format!("log file `{path}`"),
                None => "standard output".to_owned(),
            };
            self.failed(what, &error);
        }
    }

    /// Remembers the first failure: what the user sees is not the whole report.
    fn failed(&mut self, what: String, error: &io::Error) {
        self.status.problem.get_or_insert_with(|| Problem {
            what,
            error: error.to_string(),
            os_error: error.raw_os_error(),
        });
    }

    fn save(&self) -> io::Result<()> {
        let Some(pattern) = &self.config.save else {
            return Ok(());
        };
        let path = expand(pattern).map_err(io::Error::other)?;
        let content = if self.config.xml {
            xml::document(&self.kept)
        } else {
            let findings = self.kept.iter().map(|finding| SavedFinding {
                fingerprint: format!("{:016x}", finding.fingerprint()),
                finding,
            });
            let saved = Saved {
                tool: "memcheck",
                version: env!("CARGO_PKG_VERSION"),
                status: &self.status,
                not_printed: self.not_printed(),
                findings: findings.collect(),
            };
            serde_json::to_string_pretty(&saved)? + "\n"
        };
        write_whole(Path::new(&path), content.as_bytes())
    }

    /// One short line in one write: processes of one run may share the file.
    fn append_status(&self) -> io::Result<()> {
        let Some(pattern) = &self.config.status_file else {
            return Ok(());
        };
        let path = expand(pattern).map_err(io::Error::other)?;
        let line = serde_json::to_string(&self.status)? + "\n";
        File::options()
            .append(true)
            .create(true)
            .open(path)?
            .write_all(line.as_bytes())
    }

    fn complain(&mut self, what: &str, result: io::Result<()>) {
        if let Err(error) = result {
            self.failed(what.to_owned(), &error);
            self.print(&format!("Error: {what} could not be written: {error}"));
        }
    }
}

/// Puts a file in place only when it is complete. A device or a pipe is written to as it
/// is: a rename would put a file in its place.
fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return File::options().write(true).open(path)?.write_all(content);
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(name);
    let written = File::create(&part)
        .and_then(|mut file| file.write_all(content).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&part, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    written
}

/// Past the buffers of `std`, which may be gone when the process ends.
fn write_standard_output(mut text: &[u8]) -> io::Result<()> {
    while !text.is_empty() {
        // SAFETY: the pointer and length are those of a live slice.
        let written = unsafe { libc::write(1, text.as_ptr().cast(), text.len()) };
        match usize::try_from(written) {
            Ok(written) => text = &text[written..],
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}
