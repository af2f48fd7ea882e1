//! The environment variables that decide how a run goes, checked before it starts.
//!
//! The CPU driver reads most of them itself and refuses a wrong value at `cuInit`, where
//! a program sees a number. Here it is wrong usage (exit 2), with the variable, the value
//! and what was expected, on every machine: whether a driver would have looked at it does
//! not matter.

use cuda::check::config::{self, Config};
use cuda::settings::Settings;

use super::DeviceError;
use super::choice::Request;

/// Reads every variable.
///
/// # Errors
/// [`DeviceError::BadRequest`] for the first with a wrong value.
pub fn check() -> Result<Request, DeviceError> {
    let bad = |message| DeviceError::BadRequest { message };
    let request = Request::from_env()?;
    Settings::from_environment().map_err(|error| bad(error.to_string()))?;
    if let Some(value) = std::env::var_os(config::VARIABLE) {
        let value = value.to_string_lossy();
        Config::from_variable(&value).map_err(|error| bad(not_ours(&value, &error)))?;
    }
    Ok(request)
}

fn not_ours(value: &str, error: &config::ConfigError) -> String {
    format!(
        "{}={value}: {error}; expected the JSON that `kernelgate sanitize` sets for the program \
         that it starts. Unset the variable and put `kernelgate sanitize` before the program",
        config::VARIABLE
    )
}

/// Whether a sanitizer watches this process: ours, or NVIDIA's, which is known by the
/// libraries that it puts into its target.
pub(super) fn sanitized() -> bool {
    std::env::var_os(config::VARIABLE).is_some()
        || std::fs::read_to_string("/proc/self/maps")
            .is_ok_and(|maps| maps.contains("/libsanitizer-"))
}

/// What a user can do about a fault with this code; nothing under a sanitizer, whose
/// report is the answer.
pub(super) fn advice(code: u32) -> Option<String> {
    const TIMEOUT: u32 = 702;
    /// Illegal, misaligned or wrong-space addresses, and the launch failure that a store
    /// through a null pointer gives.
    const OF_AN_ACCESS: [u32; 5] = [700, 714, 716, 717, 719];
    match code {
        TIMEOUT => Some(
            "The kernel did not end in its time, or waits for something that never comes. \
             KERNELGATE_BUDGET sets the time on the CPU driver, whose line above says where \
             the kernel was"
                .into(),
        ),
        code if OF_AN_ACCESS.contains(&code) && !sanitized() => Some(format!(
            "`kernelgate sanitize -- {}` shows which access did it",
            this_command()
        )),
        _ => None,
    }
}

/// The command line of this process.
fn this_command() -> String {
    let words: Vec<String> = std::env::args_os()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_given_only_where_it_helps() {
        let access = advice(700).expect("no sanitizer watches a test");
        assert!(access.contains("kernelgate sanitize -- "), "{access}");
        assert!(!advice(702).unwrap().contains("kernelgate sanitize"));
        // An assertion, an illegal instruction, an unknown error.
        for code in [710, 715, 999] {
            assert_eq!(advice(code), None, "{code}");
        }
    }
}
