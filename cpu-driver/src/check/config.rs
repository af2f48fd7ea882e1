//! The contract between `kernelgate sanitize` and the driver inside its target.
//!
//! The parent puts a [`Config`] as JSON into `KERNELGATE_SANITIZE`. The driver in
//! the target reads it at `cuInit`, prints the report itself, and leaves a
//! [`Status`] for the parent, which computes the exit code from it. Without the
//! variable nothing is checked.
//!
//! A target may start other processes that use CUDA too, so each writes a status
//! of its own: `<status_folder>/<pid>.json`, first at `cuInit` and again when the
//! report is complete. A killed process leaves the first one, which has no summary.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Name of the environment variable that holds a [`Config`] as JSON.
pub const VARIABLE: &str = "KERNELGATE_SANITIZE";

/// A checker, with compute-sanitizer's name for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tool {
    Memcheck,
    Racecheck,
    Initcheck,
    Synccheck,
}

impl Tool {
    /// compute-sanitizer's four tools.
    pub const ALL: [Tool; 4] = [
        Tool::Memcheck,
        Tool::Racecheck,
        Tool::Initcheck,
        Tool::Synccheck,
    ];

    /// Those that this driver has.
    pub const AVAILABLE: &[Tool] = &[Tool::Memcheck];

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Tool::Memcheck => "memcheck",
            Tool::Racecheck => "racecheck",
            Tool::Initcheck => "initcheck",
            Tool::Synccheck => "synccheck",
        }
    }
}

/// What an access violation takes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Destroy {
    /// The launch, and its context: the next call returns 719.
    #[default]
    Context,
    /// The warp; the launch and the context go on.
    Kernel,
}

/// Which kernels a name filter means.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NameFilter {
    /// The whole name.
    Exact(String),
    /// A part of the name.
    Substring(String),
}

impl NameFilter {
    /// Whether `kernel` is meant.
    pub fn matches(&self, kernel: &str) -> bool {
        match self {
            NameFilter::Exact(name) => kernel == name,
            NameFilter::Substring(part) => kernel.contains(part.as_str()),
        }
    }
}

/// How a report is saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SaveForm {
    #[default]
    Json,
    Xml,
}

/// Everything the driver needs to know. Field names are compute-sanitizer's flags.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub tool: Tool,
    /// `--leak-check full`.
    pub leak_check: bool,
    pub destroy_on_device_error: Destroy,
    /// Findings printed at most; 0 means no limit. The summary counts all.
    pub print_limit: u64,
    /// Check only kernels that match one of these; empty means all.
    pub kernel_name: Vec<NameFilter>,
    /// Do not check kernels that match one of these.
    pub kernel_name_exclude: Vec<NameFilter>,
    /// Launches (of kernels that the filters admit) to leave unchecked first.
    pub launch_skip: u64,
    /// Launches to check after those; 0 means all.
    pub launch_count: u64,
    /// Report file instead of stdout. `%p` stands for the process id.
    pub log_file: Option<PathBuf>,
    /// Machine-readable report.
    pub save: Option<PathBuf>,
    pub save_form: SaveForm,
    /// Print the machine-readable report on stdout instead of the text.
    pub json: bool,
    /// Bytes without access after each allocation, beyond what the driver leaves.
    pub padding: u64,
    /// Folder for the [`Status`] files.
    pub status_folder: Option<PathBuf>,
}

impl Default for Config {
    /// compute-sanitizer's defaults.
    fn default() -> Config {
        Config {
            tool: Tool::Memcheck,
            leak_check: false,
            destroy_on_device_error: Destroy::Context,
            print_limit: 100,
            kernel_name: Vec::new(),
            kernel_name_exclude: Vec::new(),
            launch_skip: 0,
            launch_count: 0,
            log_file: None,
            save: None,
            save_form: SaveForm::Json,
            json: false,
            padding: 0,
            status_folder: None,
        }
    }
}

impl Config {
    /// Reads the environment: `Ok(None)` without the variable.
    ///
    /// # Errors
    /// Text that is not a [`Config`]. The driver refuses `cuInit` then: running
    /// unchecked would look like a clean run.
    pub fn from_env() -> Result<Option<Config>, String> {
        match std::env::var(VARIABLE) {
            Err(_) => Ok(None),
            Ok(text) => serde_json::from_str(&text)
                .map(Some)
                .map_err(|error| format!("{VARIABLE} is not a sanitizer configuration: {error}")),
        }
    }

    /// Whether the filters by name admit `kernel`.
    pub fn admits(&self, kernel: &str) -> bool {
        (self.kernel_name.is_empty() || self.kernel_name.iter().any(|f| f.matches(kernel)))
            && !self.kernel_name_exclude.iter().any(|f| f.matches(kernel))
    }
}

/// What one process tells the parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Status {
    /// Errors, leaked allocations included: the number in ERROR SUMMARY.
    pub errors: u64,
    /// Leaked allocations among them.
    pub leaks: u64,
    /// The report is complete, its SUMMARY lines included.
    pub summary_printed: bool,
}

impl Status {
    /// Writes the status of this process, whole or not at all.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let pid = std::process::id();
        let part = folder.join(format!("{pid}.part"));
        std::fs::write(&part, serde_json::to_vec(self)?)?;
        std::fs::rename(&part, folder.join(format!("{pid}.json")))
    }

    /// The statuses of all processes that wrote one.
    pub fn read_all(folder: &Path) -> io::Result<Vec<Status>> {
        let mut statuses = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|e| e == "json") {
                statuses.push(serde_json::from_slice(&std::fs::read(&path)?)?);
            }
        }
        Ok(statuses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_survives_the_environment_and_a_misspelt_field_does_not() {
        let config = Config {
            leak_check: true,
            destroy_on_device_error: Destroy::Kernel,
            kernel_name: vec![NameFilter::Substring("diff".into())],
            ..Config::default()
        };
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<Config>(&text).unwrap(), config);
        assert_eq!(
            serde_json::from_str::<Config>("{}").unwrap(),
            Config::default()
        );
        assert!(serde_json::from_str::<Config>(r#"{"leakcheck": true}"#).is_err());
    }

    #[test]
    fn exclusion_wins_over_inclusion() {
        let config = Config {
            kernel_name: vec![NameFilter::Substring("diff".into())],
            kernel_name_exclude: vec![NameFilter::Exact("diffNext".into())],
            ..Config::default()
        };
        assert!(config.admits("diffNextPastEnd"));
        assert!(!config.admits("diffNext"));
        assert!(!config.admits("windowSum"));
        assert!(Config::default().admits("anything"));
    }

    #[test]
    fn a_status_is_read_back_and_parts_are_not() {
        let folder = std::env::temp_dir().join(format!("kg-status-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("1.part"), "{").unwrap();
        assert_eq!(Status::read_all(&folder).unwrap(), vec![]);
        let status = Status {
            errors: 27,
            leaks: 1,
            summary_printed: true,
        };
        status.write(&folder).unwrap();
        assert_eq!(Status::read_all(&folder).unwrap(), vec![status]);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
