//! What one device answered: `forms/<family>/<label>.rec`, text, one line a
//! form: name, digest of code and inputs, number of cases, outputs (deflated,
//! base64). Lines starting with `#` say device, driver, date and commit.
//!
//! Of a form with `every` input only one 32-bit hash a 256 cases is kept.

use super::inputs::{self, Inputs};
use super::spec::Spec;
use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read;
use std::path::{Path, PathBuf};

const MAGIC: &str = "# kernelgate forms recording 1";
/// Cases that share a hash.
pub const CHUNK: usize = 256;
/// More than any form's outputs: a bound for a damaged file.
const LARGEST: usize = 1 << 24;
/// Many times the largest family's file, which has 0.3 MiB.
const LARGEST_FILE: u64 = 32 << 20;

/// One form's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub digest: u64,
    pub cases: usize,
    /// Packed outputs, or hashes of chunks.
    pub bytes: Vec<u8>,
}

/// One family's answers on one device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recording {
    /// `key: value` lines of the head.
    pub head: Vec<String>,
    pub entries: BTreeMap<String, Entry>,
}

/// Changes when the code or an input of the form does: a recording made
/// before must not be compared.
pub fn digest(spec: &Spec, input: &[u8]) -> u64 {
    super::digest(&[spec.code().as_bytes(), input])
}

/// What is kept of packed outputs.
pub fn keep(spec: &Spec, outputs: &[u8]) -> Vec<u8> {
    if spec.inputs != Inputs::Every {
        return outputs.to_vec();
    }
    outputs
        .chunks(CHUNK * spec.signature.packed_bytes())
        .flat_map(|chunk| (super::digest(&[chunk]) as u32).to_le_bytes())
        .collect()
}

impl Entry {
    /// The entry for outputs that a device has just given.
    pub fn new(spec: &Spec, outputs: &[u8]) -> Entry {
        let cases = inputs::cases(&spec.name, &spec.signature, spec.inputs, spec.block);
        Entry {
            digest: digest(spec, &inputs::buffer(&cases)),
            cases: cases.len(),
            bytes: keep(spec, outputs),
        }
    }
}

/// Where a family's answers of a device lie.
pub fn path(dir: &Path, family: &str, label: &str) -> PathBuf {
    dir.join(family).join(format!("{label}.rec"))
}

impl Recording {
    /// # Errors
    /// A file that is not there, or is damaged; the message names the line.
    pub fn load(path: &Path) -> Result<Recording> {
        let mut text = String::new();
        std::fs::File::open(path)
            .and_then(|file| file.take(LARGEST_FILE + 1).read_to_string(&mut text))
            .with_context(|| format!("no recording {}", path.display()))?;
        if text.len() as u64 > LARGEST_FILE {
            bail!(
                "{} is larger than {} MiB: no recording of forms",
                path.display(),
                LARGEST_FILE >> 20
            );
        }
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    fn parse(text: &str) -> Result<Recording> {
        if text.lines().next() != Some(MAGIC) {
            bail!("first line is not `{MAGIC}`");
        }
        let mut recording = Recording::default();
        for (number, line) in text.lines().enumerate().skip(1) {
            if let Some(head) = line.strip_prefix("# ") {
                recording.head.push(head.to_owned());
                continue;
            }
            let (name, entry) = entry(line).with_context(|| format!("line {}", number + 1))?;
            if recording.entries.insert(name.clone(), entry).is_some() {
                bail!("line {}: `{name}` is recorded twice", number + 1);
            }
        }
        Ok(recording)
    }

    /// # Errors
    /// Writing. The file is replaced whole or not at all.
    pub fn save(&self, path: &Path) -> Result<()> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let partial = path.with_extension("rec.partial");
        std::fs::write(&partial, self.text()?)
            .with_context(|| format!("cannot write {}", partial.display()))?;
        std::fs::rename(&partial, path)?;
        Ok(())
    }

    fn text(&self) -> Result<String> {
        let mut text = format!("{MAGIC}\n");
        for line in &self.head {
            writeln!(text, "# {line}")?;
        }
        for (name, entry) in &self.entries {
            let packed = miniz_oxide::deflate::compress_to_vec(&entry.bytes, 9);
            writeln!(
                text,
                "{name} {:016x} {} {}",
                entry.digest,
                entry.cases,
                BASE64.encode(packed)
            )?;
        }
        Ok(text)
    }
}

fn entry(line: &str) -> Result<(String, Entry)> {
    let mut words = line.split(' ');
    let mut word = || {
        words
            .next()
            .context("expected name, digest, cases, outputs")
    };
    let (name, digest, cases, outputs) = (word()?, word()?, word()?, word()?);
    let packed = BASE64.decode(outputs).context("outputs are not base64")?;
    let bytes = miniz_oxide::inflate::decompress_to_vec_with_limit(&packed, LARGEST)
        .map_err(|e| anyhow::anyhow!("outputs do not inflate: {e}"))?;
    let entry = Entry {
        digest: u64::from_str_radix(digest, 16).context("digest")?,
        cases: cases.parse().context("cases")?,
        bytes,
    };
    Ok((name.to_owned(), entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_survives_being_written_and_read() -> Result<()> {
        let mut recording = Recording {
            head: vec!["device: none".into()],
            entries: BTreeMap::new(),
        };
        let entry = Entry {
            digest: 0x0123_4567_89ab_cdef,
            cases: 3,
            bytes: vec![0, 1, 2, 255],
        };
        recording.entries.insert("add.u32".into(), entry);
        assert_eq!(Recording::parse(&recording.text()?)?, recording);
        Ok(())
    }

    #[test]
    fn a_file_without_end_is_refused_before_it_fills_memory() {
        let error = Recording::load(Path::new("/dev/zero")).expect_err("no end");
        assert!(format!("{error:#}").contains("larger than"), "{error:#}");
    }

    #[test]
    fn a_damaged_recording_is_an_error_and_names_the_line() {
        for damage in [
            "add.u32",
            "add.u32 xyz 3 AAAA",
            "add.u32 00 3 !!!!",
            "add.u32 00 3 AAAA",
        ] {
            let error = Recording::parse(&format!("{MAGIC}\n{damage}\n"));
            let message = format!("{:#}", error.expect_err(damage));
            assert!(message.contains("line 2"), "{message}");
        }
        assert!(Recording::parse("").is_err());
    }
}
