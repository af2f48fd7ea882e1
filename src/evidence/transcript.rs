//! A run as a file: a head of `key: value` lines, a rule, the output.

use std::path::Path;

use anyhow::{Context, ensure};

const TITLE: &str = "# Recorded by `kernelgate evidence record`; not edited.";
const RULE: &str = "-----";

/// One recorded run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transcript {
    /// As the documentation writes it.
    pub command: String,
    /// The program's or, for a sanitized run, the sanitizer's.
    pub exit: u8,
    /// How many runs gave that exit code; the output is the last one's.
    pub runs: u32,
    /// Commit of the binaries, with `, dirty` where the tree was.
    pub commit: String,
    /// Device name and compute capability.
    pub device: String,
    /// Whose driver, and its version.
    pub driver: String,
    /// The sanitizer and its version, `none` for a bare run.
    pub tool: String,
    /// UTC.
    pub date: String,
    /// stdout and stderr.
    pub output: String,
}

impl Transcript {
    /// The text of the file.
    pub fn text(&self) -> String {
        format!(
            "{TITLE}\ncommand: {}\nexit code: {}\nruns: {}\ncommit: {}\ndevice: {}\ndriver: {}\n\
             tool: {}\ndate: {}\n{RULE}\n{}",
            self.command,
            self.exit,
            self.runs,
            self.commit,
            self.device,
            self.driver,
            self.tool,
            self.date,
            self.output
        )
    }

    /// Reads a file back.
    ///
    /// # Errors
    /// A head that lacks a line or has it elsewhere.
    pub fn parse(text: &str) -> anyhow::Result<Transcript> {
        let (head, output) = text
            .split_once(&format!("\n{RULE}\n"))
            .context("no rule between head and output")?;
        let mut lines = head.lines();
        ensure!(
            lines.next() == Some(TITLE),
            "the first line is not the title"
        );
        let mut field = |key: &str| -> anyhow::Result<String> {
            let line = lines.next().unwrap_or_default();
            line.strip_prefix(key)
                .and_then(|rest| rest.strip_prefix(": "))
                .map(String::from)
                .with_context(|| format!("expected the line `{key}: …`, found `{line}`"))
        };
        Ok(Transcript {
            command: field("command")?,
            exit: field("exit code")?.parse().context("exit code")?,
            runs: field("runs")?.parse().context("runs")?,
            commit: field("commit")?,
            device: field("device")?,
            driver: field("driver")?,
            tool: field("tool")?,
            date: field("date")?,
            output: output.to_string(),
        })
    }

    /// Reads `folder/name.txt`.
    pub fn read(folder: &Path, name: &str) -> anyhow::Result<Transcript> {
        let path = folder.join(format!("{name}.txt"));
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("no transcript {}", path.display()))?;
        Transcript::parse(&text).with_context(|| format!("in {}", path.display()))
    }

    /// Writes `folder/name.txt`, whole or not at all.
    pub fn write(&self, folder: &Path, name: &str) -> anyhow::Result<()> {
        let file = folder.join(format!("{name}.txt"));
        self.put(folder, &file)
            .with_context(|| format!("cannot write {}", file.display()))
    }

    fn put(&self, folder: &Path, file: &Path) -> anyhow::Result<()> {
        std::fs::create_dir_all(folder)?;
        let mut part = tempfile::NamedTempFile::new_in(folder)?;
        std::io::Write::write_all(&mut part, self.text().as_bytes())?;
        readable_by_all(part.as_file())?;
        part.persist(file)?;
        Ok(())
    }
}

/// A temporary file is private; a transcript is not.
fn readable_by_all(file: &std::fs::File) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transcript() -> Transcript {
        Transcript {
            command: "kernelgate sanitize ci_gate".into(),
            exit: 1,
            runs: 20,
            commit: "abc, dirty".into(),
            device: "X (sm_90)".into(),
            driver: "Y".into(),
            tool: "Z".into(),
            date: "2026-11-29T00:00:00Z".into(),
            output: "a\n-----\nb: c\n".into(),
        }
    }

    #[test]
    fn a_transcript_is_read_back_as_written() {
        let folder = tempfile::tempdir().unwrap();
        transcript().write(folder.path(), "t").unwrap();
        assert_eq!(Transcript::read(folder.path(), "t").unwrap(), transcript());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_head_that_lacks_a_line_is_refused() {
        let text = transcript().text();
        for key in ["command", "exit code", "commit", "device", "date", "-----"] {
            let without: String = text
                .lines()
                .filter(|line| !line.starts_with(key))
                .map(|line| format!("{line}\n"))
                .collect();
            assert!(Transcript::parse(&without).is_err(), "{key}");
        }
    }
}
