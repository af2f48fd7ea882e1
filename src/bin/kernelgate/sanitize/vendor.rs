//! PROGRAM under NVIDIA's compute-sanitizer.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use super::flags::Arguments;
use super::outcome::{Ended, Outcome};
use anyhow::Context;
use kernelgate::children::die_with_parent;
use kernelgate::output::OutputError;

/// Runs the tool, passes its output on, and looks for the SUMMARY line.
pub fn run(tool: &Path, arguments: &Arguments) -> anyhow::Result<Outcome> {
    let mut command = Command::new(tool);
    command
        .args(arguments.vendor_arguments()?)
        .stdout(Stdio::piped());
    let mut child = die_with_parent(&mut command)
        .spawn()
        .with_context(|| format!("cannot start {}", tool.display()))?;
    let stdout = child.stdout.take().context("the tool has no stdout")?;
    let seen = pass_on(stdout, std::io::stdout())?;
    let ended = Ended::from(child.wait()?);
    let seen = match arguments.log_file() {
        Some(file) => seen.or(in_log(file)),
        None => seen,
    };
    // The tool says 255 itself when its target never reached CUDA.
    Ok(Outcome {
        ended,
        reached_cuda: seen.summary || ended != Ended::Code(255) && !seen.nothing_checked,
        summary: seen.summary,
        errors: 0,
        problem: None,
        launches: None,
        document: false,
        outlived: false,
    })
}

/// What the tool's text says about the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Seen {
    summary: bool,
    nothing_checked: bool,
}

impl Seen {
    fn or(self, other: Seen) -> Seen {
        Seen {
            summary: self.summary || other.summary,
            nothing_checked: self.nothing_checked || other.nothing_checked,
        }
    }

    fn in_line(line: &[u8]) -> Seen {
        let line = String::from_utf8_lossy(line);
        let from_the_tool = line.starts_with("=========");
        Seen {
            summary: from_the_tool && line.contains("SUMMARY:"),
            nothing_checked: from_the_tool
                && line
                    .contains("Target application terminated before first instrumented API call"),
        }
    }
}

/// Copies byte by byte as it comes, so that a progress line is not held back.
fn pass_on(mut from: impl Read, mut to: impl Write) -> anyhow::Result<Seen> {
    let mut seen = Seen::default();
    let mut line = Vec::new();
    let mut chunk = [0u8; 4096];
    loop {
        let read = match from.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).context("reading what the tool prints"),
        };
        to.write_all(&chunk[..read])
            .and_then(|()| to.flush())
            .map_err(OutputError::from)?;
        for &byte in &chunk[..read] {
            if byte == b'\n' {
                seen = seen.or(Seen::in_line(&line));
                line.clear();
            } else {
                line.push(byte);
            }
        }
    }
    Ok(seen.or(Seen::in_line(&line)))
}

/// With --log-file the SUMMARY is there. A `%p` in the name makes one file a
/// process; the run then has a SUMMARY when any of them has.
fn in_log(pattern: &str) -> Seen {
    let files = match pattern.split_once("%p") {
        None => vec![Path::new(pattern).to_path_buf()],
        Some((before, after)) => matching(before, after),
    };
    files
        .iter()
        .filter_map(|path| std::fs::read(path).ok())
        .flat_map(|bytes| {
            bytes
                .split(|&b| b == b'\n')
                .map(Seen::in_line)
                .collect::<Vec<_>>()
        })
        .fold(Seen::default(), Seen::or)
}

fn matching(before: &str, after: &str) -> Vec<std::path::PathBuf> {
    let prefix = Path::new(before);
    let folder = match prefix.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let stem = before.rsplit('/').next().unwrap_or_default();
    let fits = |name: &str| {
        name.strip_prefix(stem)
            .and_then(|rest| rest.strip_suffix(after))
            .is_some_and(|pid| !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit()))
    };
    std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| fits(&name.to_string_lossy()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_passed_on_unchanged_and_the_summary_is_seen() {
        let text = b"PASS\n========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 2 errors\nlast";
        let mut copy = Vec::new();
        let seen = pass_on(&text[..], &mut copy).unwrap();
        assert_eq!(copy, text);
        assert!(seen.summary && !seen.nothing_checked);
    }

    #[test]
    fn a_summary_that_the_program_printed_does_not_count() {
        let seen = pass_on(&b"ERROR SUMMARY: 0 errors\n"[..], Vec::new()).unwrap();
        assert_eq!(seen, Seen::default());
    }

    #[test]
    fn a_log_by_process_id_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let pattern = folder.path().join("r-%p.txt");
        let pattern = pattern.to_str().unwrap();
        assert_eq!(in_log(pattern), Seen::default());
        std::fs::write(folder.path().join("r-x.txt"), "========= ERROR SUMMARY: 0").unwrap();
        assert_eq!(in_log(pattern), Seen::default());
        std::fs::write(folder.path().join("r-12.txt"), "========= ERROR SUMMARY: 0").unwrap();
        assert!(in_log(pattern).summary);
    }
}
