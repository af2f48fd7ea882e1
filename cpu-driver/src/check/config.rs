//! The configuration of a sanitized run: JSON in `KERNELGATE_SANITIZE`, written
//! by `kernelgate sanitize` and read by the driver in the target process.

use serde::{Deserialize, Serialize};

use super::filter::{Filter, FilterError};

/// Name of the environment variable.
pub const VARIABLE: &str = "KERNELGATE_SANITIZE";

/// Largest `--padding`, in bytes: far beyond any use, and the addresses of a
/// device hold a few thousand allocations with it.
pub const MOST_PADDING: u64 = 1 << 30;

/// A checker. Names are compute-sanitizer's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tool {
    #[default]
    Memcheck,
}

/// What an access that must not happen costs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DestroyOnDeviceError {
    /// The launch ends and its context is lost.
    #[default]
    Context,
    /// The warp ends, the launch goes on.
    Kernel,
}

/// The options of a sanitized run. Unknown keys are an error: a misspelt
/// option that is ignored would be a check that cannot fail.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub tool: Tool,
    /// `--leak-check full`
    pub leak_check: bool,
    pub destroy_on_device_error: DestroyOnDeviceError,
    /// Findings to print and save; 0 for all. The count goes on beyond it.
    pub print_limit: u64,
    /// `--kernel-name`, as typed; a kernel that any of them matches is checked.
    pub kernel_name: Vec<String>,
    /// `--kernel-name-exclude`, as typed.
    pub kernel_name_exclude: Vec<String>,
    /// Launches that pass the name filters and are nevertheless not checked.
    pub launch_skip: u64,
    /// Launches to check after those; 0 for all.
    pub launch_count: u64,
    /// Where the report goes instead of standard output. `%p` is the process
    /// id, `%q{NAME}` an environment variable, `%%` a percent sign.
    pub log_file: Option<String>,
    /// File for the findings as JSON (XML with `xml`); escapes as above.
    pub save: Option<String>,
    pub xml: bool,
    /// Extra bytes behind every allocation that belong to nobody.
    pub padding: u64,
    /// Print file names without their folders.
    pub strip_paths: bool,
    /// Print host and device frames.
    pub show_backtrace: bool,
    /// File to which the process appends a line of JSON
    /// ([`super::report::Status`]) when it first uses the driver and one when it
    /// has reported: the last one counts, and a killed process leaves the first.
    /// Escapes as above. A process that never uses the driver appends nothing.
    pub status_file: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            tool: Tool::Memcheck,
            leak_check: false,
            destroy_on_device_error: DestroyOnDeviceError::Context,
            print_limit: 100,
            kernel_name: Vec::new(),
            kernel_name_exclude: Vec::new(),
            launch_skip: 0,
            launch_count: 0,
            log_file: None,
            save: None,
            xml: false,
            padding: 0,
            strip_paths: true,
            show_backtrace: true,
            status_file: None,
        }
    }
}

impl Config {
    /// The value for [`VARIABLE`].
    #[must_use]
    pub fn to_variable(&self) -> String {
        serde_json::to_string(self).expect("strings, numbers and flags are always JSON")
    }

    /// Reads the value of [`VARIABLE`] and checks it as a whole.
    ///
    /// # Errors
    /// [`ConfigError`], with what was wrong.
    pub fn from_variable(text: &str) -> Result<Self, ConfigError> {
        let config: Self = serde_json::from_str(text).map_err(|error| ConfigError {
            message: error.to_string(),
        })?;
        config.check()?;
        Ok(config)
    }

    /// Checks what the types cannot: filters, escapes and options that need
    /// each other.
    ///
    /// # Errors
    /// [`ConfigError`], with what was wrong.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.filter()?;
        if self.xml && self.save.is_none() {
            return Err(ConfigError {
                message: "`--xml` needs `--save FILE` to say where the XML goes".into(),
            });
        }
        if self.padding > MOST_PADDING {
            return Err(ConfigError {
                message: format!(
                    "expected at most {MOST_PADDING} bytes of padding, found {}",
                    self.padding
                ),
            });
        }
        let paths = [&self.log_file, &self.save, &self.status_file];
        for path in paths.into_iter().flatten() {
            expand(path)?;
        }
        Ok(())
    }

    /// The kernel filter that the name and count options describe.
    ///
    /// # Errors
    /// A filter that does not parse.
    pub fn filter(&self) -> Result<Filter, FilterError> {
        Filter::new(
            &self.kernel_name,
            &self.kernel_name_exclude,
            self.launch_skip,
            self.launch_count,
        )
    }
}

/// Fills in the escapes of a file name for this process.
///
/// # Errors
/// An unknown escape or an unset variable.
pub fn expand(pattern: &str) -> Result<String, ConfigError> {
    expand_for(pattern, std::process::id())
}

/// [`expand`] for another process with the same environment.
///
/// # Errors
/// As [`expand`].
pub fn expand_for(pattern: &str, process: u32) -> Result<String, ConfigError> {
    let mut path = String::new();
    let mut rest = pattern;
    while let Some(at) = rest.find('%') {
        path.push_str(&rest[..at]);
        let escape = &rest[at + 1..];
        if let Some(after) = escape.strip_prefix('%') {
            path.push('%');
            rest = after;
        } else if let Some(after) = escape.strip_prefix('p') {
            path.push_str(&process.to_string());
            rest = after;
        } else if let Some((name, after)) = escape
            .strip_prefix("q{")
            .and_then(|tail| tail.split_once('}'))
        {
            let value = std::env::var(name).map_err(|_| ConfigError {
                message: format!("`{pattern}` names the variable {name}, which is not set"),
            })?;
            path.push_str(&value);
            rest = after;
        } else {
            return Err(ConfigError {
                message: format!("`{pattern}`: expected %p, %q{{NAME}} or %% after the %"),
            });
        }
    }
    path.push_str(rest);
    Ok(path)
}

/// A configuration that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    pub message: String,
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "sanitizer configuration: {}", self.message)
    }
}

impl std::error::Error for ConfigError {}

impl From<FilterError> for ConfigError {
    fn from(error: FilterError) -> Self {
        Self {
            message: error.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_survives_the_environment() {
        let config = Config {
            leak_check: true,
            destroy_on_device_error: DestroyOnDeviceError::Kernel,
            kernel_name: vec!["kns=Past".into(), "regex=^diff".into()],
            print_limit: 0,
            log_file: Some("log.%p".into()),
            ..Config::default()
        };
        assert_eq!(Config::from_variable(&config.to_variable()), Ok(config));
        assert_eq!(Config::from_variable("{}"), Ok(Config::default()));
    }

    #[test]
    fn what_cannot_be_honoured_is_refused() {
        for (text, named) in [
            ("", "EOF"),
            (r#"{"leak_chek":true}"#, "leak_chek"),
            (r#"{"tool":"racecheck"}"#, "racecheck"),
            (r#"{"kernel_name":["name=x"]}"#, "name=x"),
            (r#"{"kernel_name":["regex=["]}"#, "regex=["),
            (r#"{"xml":true}"#, "--save"),
            (r#"{"log_file":"a%z"}"#, "a%z"),
            (r#"{"padding":1073741825}"#, "at most 1073741824 bytes"),
            (
                r#"{"padding":18446744073709551615}"#,
                "18446744073709551615",
            ),
            (
                r#"{"save":"%q{NO_SUCH_VARIABLE_HERE}"}"#,
                "NO_SUCH_VARIABLE_HERE",
            ),
        ] {
            let error = Config::from_variable(text).expect_err(text).to_string();
            assert!(error.contains(named), "{text}: {error}");
        }
    }

    #[test]
    fn escapes_are_filled_in() {
        let id = std::process::id();
        assert_eq!(expand("a%p.b%%"), Ok(format!("a{id}.b%")));
        let path = std::env::var("PATH").expect("PATH is set in tests");
        assert_eq!(expand("%q{PATH}"), Ok(path));
        assert!(expand("100%").is_err());
    }
}
