//! Baselines: saved records that a later run is compared with.
//!
//! A baseline is one JSON document in a folder, `NAME.json`. It is keyed by what
//! times depend on besides the code: device, driver, clocks, power limit. A
//! document under another key is foreign: comparing with it is an error, because
//! any verdict would be about the machines. A checksum over the records catches a
//! document that was cut or edited.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::record::{Place, Record};

const FORMAT: &str = "kernelgate-baseline-1";

/// What a baseline's times depend on besides the code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    pub device: String,
    pub driver: String,
    pub max_sm_mhz: Option<u32>,
    pub application_sm_mhz: Option<u32>,
    pub memory_mhz: Option<u32>,
    pub power_limit_mw: Option<u32>,
}

impl Key {
    pub fn of(place: &Place) -> Key {
        let c = &place.conditions;
        Key {
            device: place.device.clone(),
            driver: c.driver.clone(),
            max_sm_mhz: c.max_sm_mhz,
            application_sm_mhz: c.application_sm_mhz,
            memory_mhz: c.memory_mhz,
            power_limit_mw: c.power_limit_mw,
        }
    }

    /// The fields that differ, as `driver 1 here, 2 there`.
    fn differences(&self, saved: &Key) -> Vec<String> {
        let text = |x: Option<u32>| x.map_or("unknown".to_owned(), |x| x.to_string());
        [
            ("device", self.device.clone(), saved.device.clone()),
            ("driver", self.driver.clone(), saved.driver.clone()),
            (
                "highest SM clock",
                text(self.max_sm_mhz),
                text(saved.max_sm_mhz),
            ),
            (
                "application SM clock",
                text(self.application_sm_mhz),
                text(saved.application_sm_mhz),
            ),
            (
                "memory clock",
                text(self.memory_mhz),
                text(saved.memory_mhz),
            ),
            (
                "power limit (mW)",
                text(self.power_limit_mw),
                text(saved.power_limit_mw),
            ),
        ]
        .into_iter()
        .filter(|(_, here, there)| here != there)
        .map(|(what, here, there)| format!("{what}: {here} here, {there} in the baseline"))
        .collect()
    }
}

#[derive(Serialize, Deserialize)]
struct Document {
    format: String,
    key: Key,
    /// SHA-256 of the records as compact JSON.
    sha256: String,
    records: Vec<Record>,
}

/// Why a baseline cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BaselineError {
    /// A name that is no plain file name.
    BadName(String),
    Absent(PathBuf),
    /// Cannot be read as a baseline.
    Corrupted {
        path: PathBuf,
        why: String,
    },
    /// From another machine or other conditions.
    Foreign {
        path: PathBuf,
        differences: Vec<String>,
    },
    /// Saving would replace it.
    Exists {
        path: PathBuf,
        state: String,
    },
    /// Nothing to save, or cases that failed.
    NotWorthSaving(String),
    Io {
        path: PathBuf,
        why: String,
    },
}

impl std::fmt::Display for BaselineError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BaselineError::BadName(name) => write!(
                f,
                "`{name}` is no baseline name: expected letters, digits, `-`, `_` and `.`"
            ),
            BaselineError::Absent(path) => write!(
                f,
                "there is no baseline {}; make one with --save",
                path.display()
            ),
            BaselineError::Corrupted { path, why } => write!(
                f,
                "the baseline {} is corrupted: {why}. It was left as it is; \
                 move it away, or replace it with --save and --overwrite",
                path.display()
            ),
            BaselineError::Foreign { path, differences } => write!(
                f,
                "the baseline {} was measured under other conditions ({}): a comparison would \
                 be about the machines. Save one here under another name",
                path.display(),
                differences.join("; ")
            ),
            BaselineError::Exists { path, state } => write!(
                f,
                "{} exists ({state}) and was left as it is; \
                 choose another name, or --overwrite, which keeps it as .old",
                path.display()
            ),
            BaselineError::NotWorthSaving(why) => f.write_str(why),
            BaselineError::Io { path, why } => write!(f, "{}: {why}", path.display()),
        }
    }
}

impl std::error::Error for BaselineError {}

/// A folder of baselines.
pub struct Baselines {
    folder: PathBuf,
}

impl Baselines {
    pub fn at(folder: impl Into<PathBuf>) -> Baselines {
        Baselines {
            folder: folder.into(),
        }
    }

    fn path(&self, name: &str) -> Result<PathBuf, BaselineError> {
        let plain = !name.is_empty()
            && !name.starts_with('.')
            && name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        if !plain {
            return Err(BaselineError::BadName(name.to_owned()));
        }
        Ok(self.folder.join(format!("{name}.json")))
    }

    /// Refuses before anything is measured what [`Baselines::save`] would refuse
    /// after it.
    pub fn check_save(&self, name: &str, overwrite: bool) -> Result<(), BaselineError> {
        let path = self.path(name)?;
        if path.exists() && !overwrite {
            let state = match read(&path) {
                Ok(document) => format!(
                    "a baseline of {} cases from {}",
                    document.records.len(),
                    document.key.device
                ),
                Err(BaselineError::Corrupted { why, .. }) => format!("corrupted: {why}"),
                Err(other) => other.to_string(),
            };
            return Err(BaselineError::Exists { path, state });
        }
        Ok(())
    }

    /// Saves `records`. An existing file is replaced only with `overwrite`, and is
    /// then kept as `NAME.json.old`.
    pub fn save(
        &self,
        name: &str,
        records: &[Record],
        overwrite: bool,
    ) -> Result<PathBuf, BaselineError> {
        self.check_save(name, overwrite)?;
        let path = self.path(name)?;
        let first = records.first().ok_or_else(|| {
            BaselineError::NotWorthSaving("no case was measured: nothing to save".to_owned())
        })?;
        if let Some(failed) = records.iter().find(|r| r.failure.is_some()) {
            return Err(BaselineError::NotWorthSaving(format!(
                "{} failed: a baseline holds only cases that passed",
                failed.id
            )));
        }
        let io = |e: &dyn std::fmt::Display| BaselineError::Io {
            path: path.clone(),
            why: e.to_string(),
        };
        let document = Document {
            format: FORMAT.to_owned(),
            key: Key::of(&first.place),
            sha256: digest(records),
            records: records.to_vec(),
        };
        let text = serde_json::to_string_pretty(&document).map_err(|e| io(&e))?;
        std::fs::create_dir_all(&self.folder).map_err(|e| io(&e))?;
        if path.exists() {
            std::fs::rename(&path, path.with_extension("json.old")).map_err(|e| io(&e))?;
        }
        // Whole or not at all.
        let mut file = tempfile::NamedTempFile::new_in(&self.folder).map_err(|e| io(&e))?;
        std::io::Write::write_all(&mut file, text.as_bytes()).map_err(|e| io(&e))?;
        readable_by_all(file.as_file()).map_err(|e| io(&e))?;
        match file.persist_noclobber(&path) {
            Ok(_) => Ok(path),
            // Somebody else saved one of this name while we measured.
            Err(e) if e.error.kind() == std::io::ErrorKind::AlreadyExists => {
                self.check_save(name, false).map(|()| path)
            }
            Err(e) => Err(io(&e.error)),
        }
    }

    /// The records of baseline `name`, for a run at `place`.
    pub fn load(&self, name: &str, place: &Place) -> Result<Vec<Record>, BaselineError> {
        let path = self.path(name)?;
        let document = read(&path)?;
        let differences = Key::of(place).differences(&document.key);
        if !differences.is_empty() {
            return Err(BaselineError::Foreign { path, differences });
        }
        Ok(document.records)
    }
}

/// A temporary file is private; a baseline is not.
fn readable_by_all(file: &std::fs::File) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))
}

fn read(path: &Path) -> Result<Document, BaselineError> {
    let corrupted = |why: String| BaselineError::Corrupted {
        path: path.to_owned(),
        why,
    };
    let bytes = match std::fs::read(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Err(BaselineError::Absent(path.to_owned()));
        }
        Err(e) => {
            return Err(BaselineError::Io {
                path: path.to_owned(),
                why: e.to_string(),
            });
        }
        Ok(bytes) => bytes,
    };
    let document: Document =
        serde_json::from_slice(&bytes).map_err(|e| corrupted(format!("not a baseline: {e}")))?;
    if document.format != FORMAT {
        return Err(corrupted(format!(
            "format `{}`, expected `{FORMAT}`",
            document.format
        )));
    }
    if document.records.is_empty() {
        return Err(corrupted("it holds no case".to_owned()));
    }
    if document.sha256 != digest(&document.records) {
        return Err(corrupted(
            "the checksum does not fit the records".to_owned(),
        ));
    }
    let stray = document
        .records
        .iter()
        .find(|r| Key::of(&r.place) != document.key);
    if let Some(stray) = stray {
        return Err(corrupted(format!("{} is from another machine", stray.id)));
    }
    Ok(document)
}

fn digest(records: &[Record]) -> String {
    let mut hash = Sha256::new();
    for record in records {
        hash.update(record.json());
        hash.update("\n");
    }
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests;
