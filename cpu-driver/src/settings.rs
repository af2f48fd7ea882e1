//! The environment variables that set the driver up, read in one place.
//!
//! | variable | value |
//! |---|---|
//! | `KERNELGATE_PROFILE` | `h200` or `t4` |
//! | `KERNELGATE_MEMORY` | bytes, or with the suffix `MiB` or `GiB` |
//! | `KERNELGATE_DEVICES` | 0 to 64 |
//! | `KERNELGATE_BUDGET` | warp-instructions, at least 1 |
//! | `KERNELGATE_LOG` | `calls` or `off` |
//!
//! A value that cannot be honoured is an error and never a default: a run with
//! another device, budget or memory than the one asked for would say something
//! about the wrong machine. `cuInit` fails on it; a tool that starts programs
//! calls [`Settings::from_environment`] itself and stops earlier.
//! `KERNELGATE_SANITIZE` is [`crate::check::config`]'s.

use std::ffi::OsString;
use std::fmt;
use std::sync::OnceLock;

use crate::profile::PROFILES;

pub const PROFILE: &str = "KERNELGATE_PROFILE";
pub const MEMORY: &str = "KERNELGATE_MEMORY";
pub const DEVICES: &str = "KERNELGATE_DEVICES";
pub const BUDGET: &str = "KERNELGATE_BUDGET";
pub const LOG: &str = "KERNELGATE_LOG";

/// More would only slow down programs that start one thread a device.
pub const MOST_DEVICES: u32 = 64;

/// Warp-instructions that a launch may take where the environment does not say:
/// minutes of work, so that only a launch without progress meets it.
pub const DEFAULT_BUDGET: u64 = 1 << 38;

/// What the environment asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// [`crate::profile::Profile::id`] of one of the profiles.
    pub profile: &'static str,
    /// Bytes of device memory; `None` for the profile's or this machine's.
    pub memory: Option<u64>,
    /// 0 to [`MOST_DEVICES`]; with 0, `cuInit` finds no device.
    pub devices: u32,
    /// Warp-instructions after which a launch is given up.
    pub budget: u64,
    /// A line on standard error for every call that fails.
    pub log_calls: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            profile: PROFILES[0].id,
            memory: None,
            devices: 1,
            budget: DEFAULT_BUDGET,
            log_calls: false,
        }
    }
}

impl Settings {
    /// The settings of this process; read once.
    ///
    /// # Errors
    /// The first variable, in the order of the table above, with a wrong value.
    pub fn from_environment() -> Result<&'static Self, &'static SettingError> {
        static READ: OnceLock<Result<Settings, SettingError>> = OnceLock::new();
        READ.get_or_init(|| Self::read(|name| std::env::var_os(name)))
            .as_ref()
    }

    /// The settings that `value_of` gives, a variable's name to its value.
    ///
    /// # Errors
    /// As [`Settings::from_environment`].
    pub fn read(value_of: impl Fn(&str) -> Option<OsString>) -> Result<Self, SettingError> {
        let default = Self::default();
        let read = Reader(&value_of);
        Ok(Self {
            profile: read
                .value(PROFILE, "h200 or t4", profile)?
                .unwrap_or(default.profile),
            memory: read.value(
                MEMORY,
                "a number of bytes, MiB or GiB above 0, such as 4GiB",
                bytes,
            )?,
            devices: read
                .value(DEVICES, "a number of devices from 0 to 64", |text| {
                    number(text).filter(|&count| count <= MOST_DEVICES)
                })?
                .unwrap_or(default.devices),
            budget: read
                .value(
                    BUDGET,
                    "a number of warp-instructions of at least 1",
                    |text| number(text).filter(|&budget| budget > 0),
                )?
                .unwrap_or(default.budget),
            log_calls: read
                .value(LOG, "calls or off", |text| match text {
                    "calls" => Some(true),
                    "off" => Some(false),
                    _ => None,
                })?
                .unwrap_or(default.log_calls),
        })
    }
}

struct Reader<'f>(&'f dyn Fn(&str) -> Option<OsString>);

impl Reader<'_> {
    fn value<T>(
        &self,
        variable: &'static str,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, SettingError> {
        let Some(given) = (self.0)(variable) else {
            return Ok(None);
        };
        let parsed = given.to_str().and_then(|text| parse(text.trim()));
        match parsed {
            Some(value) => Ok(Some(value)),
            None => Err(SettingError {
                variable,
                expected,
                found: given.to_string_lossy().into_owned(),
            }),
        }
    }
}

fn profile(text: &str) -> Option<&'static str> {
    PROFILES
        .iter()
        .map(|known| known.id)
        .find(|id| id.eq_ignore_ascii_case(text))
}

/// A number in digits: no sign, no inner space.
fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let shift = match text[digits.len()..].trim() {
        "" | "B" => 0,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    let bytes = number::<u64>(digits)?.checked_mul(1 << shift)?;
    (bytes > 0).then_some(bytes)
}

/// An environment variable whose value says nothing usable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingError {
    pub variable: &'static str,
    /// In words, with an example where one helps.
    pub expected: &'static str,
    pub found: String,
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            variable,
            expected,
            found,
        } = self;
        write!(f, "{variable}: expected {expected}, found `{found}`")
    }
}

impl std::error::Error for SettingError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(given: &[(&str, &str)]) -> Result<Settings, SettingError> {
        Settings::read(|name| {
            let found = given.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn an_empty_environment_gives_the_defaults() {
        assert_eq!(read(&[]), Ok(Settings::default()));
    }

    #[test]
    fn every_variable_is_read() {
        let read = read(&[
            (PROFILE, "T4"),
            (MEMORY, " 5 MiB "),
            (DEVICES, "2"),
            (BUDGET, "1000"),
            (LOG, "calls"),
        ]);
        let expected = Settings {
            profile: "t4",
            memory: Some(5 << 20),
            devices: 2,
            budget: 1000,
            log_calls: true,
        };
        assert_eq!(read, Ok(expected));
        for (text, bytes) in [("64GiB", 64 << 30), ("4096", 4096), ("4096 B", 4096)] {
            assert_eq!(super::bytes(text), Some(bytes), "{text}");
        }
    }

    #[test]
    fn a_wrong_value_is_an_error_that_names_variable_value_and_expectation() {
        for (variable, wrong) in [
            (PROFILE, &["", "h100", "sm_90", "h200,t4"][..]),
            (
                MEMORY,
                &[
                    "",
                    "x",
                    "0",
                    "0GiB",
                    "-1",
                    "+1",
                    "4TiB",
                    "4gib",
                    "99999999999GiB",
                    "1.5GiB",
                ],
            ),
            (
                DEVICES,
                &["", "-1", "+1", "65", "99999999999999", "two", "1 2"],
            ),
            (
                BUDGET,
                &["", "0", "-5", "1e9", "2^38", "99999999999999999999"],
            ),
            (LOG, &["", "call", "1", "all"]),
        ] {
            for value in wrong {
                let error = read(&[(variable, value)]).expect_err(value);
                assert_eq!((error.variable, error.found.as_str()), (variable, *value));
                let text = error.to_string();
                assert!(text.contains(variable), "{text}");
                assert!(text.contains(&format!("`{value}`")), "{text}");
                assert!(text.contains(error.expected), "{text}");
            }
        }
    }

    #[test]
    fn a_value_that_is_no_text_is_an_error() {
        use std::os::unix::ffi::OsStringExt;
        let error =
            Settings::read(|name| (name == DEVICES).then(|| OsString::from_vec(vec![b'1', 0xff])));
        assert_eq!(error.expect_err("no text").variable, DEVICES);
    }
}
