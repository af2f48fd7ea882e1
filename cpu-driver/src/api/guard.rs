//! What every entry point passes through: no panic crosses to C, failures are
//! seen, and notes go to one place.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::code::{Code, SUCCESS, describe};
use super::driver::is_forked;
use super::ffi::Outcome;
use crate::check::session::Session;
use crate::machine::memory::MemoryError;
use crate::settings::Settings;

/// Defines exported functions; each body is an expression of type [`Outcome`].
macro_rules! entries {
    ($($(#[$meta:meta])* $name:ident($($arg:ident: $ty:ty),* $(,)?) => $body:expr;)*) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $ty),*) -> i32 {
            $crate::api::guard::run(stringify!($name), move || $body)
        }
    )*};
}
pub(super) use entries;

/// Calls that need no driver and take no lock: a forked child may ask what the
/// error it got is called.
const NEED_NO_DRIVER: &[&str] = &[
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGetProcAddress",
    "cuGetProcAddress_v2",
];

/// The answer to a call in a process forked after `cuInit`. As with NVIDIA's
/// driver nothing works there; neither the sanitizer nor the log is told, whose
/// locks the fork may have left held.
fn run_forked(name: &str, body: impl FnOnce() -> Outcome) -> i32 {
    if !NEED_NO_DRIVER.contains(&name) {
        return Code::NOT_INITIALIZED.0;
    }
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(outcome) => outcome.map_or_else(|code| code.0, |()| SUCCESS),
        Err(_) => Code::UNKNOWN.0,
    }
}

/// Runs the body of an entry point.
pub fn run(name: &'static str, body: impl FnOnce() -> Outcome) -> i32 {
    if is_forked() {
        return run_forked(name, body);
    }
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(code)) => {
            failed(name, code);
            code.0
        }
        Err(panic) => {
            let what = panic
                .downcast_ref::<&str>()
                .copied()
                .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
                .unwrap_or("no message");
            note(&format!("{name} failed inside the driver: {what}"));
            failed(name, Code::UNKNOWN);
            Code::UNKNOWN.0
        }
    }
}

thread_local! {
    /// Why the free that is about to fail on this thread was refused.
    static REFUSED_FREE: RefCell<Option<MemoryError>> = const { RefCell::new(None) };
}

/// The code for a free that memory refused; the sanitizer is told the reason.
pub fn refused_free(error: MemoryError) -> Code {
    let code = Code::from(error.clone());
    REFUSED_FREE.set(Some(error));
    code
}

/// A failed call: reported by a sanitized run, and shown where `KERNELGATE_LOG`
/// asks for calls.
fn failed(name: &str, code: Code) {
    let reason = REFUSED_FREE.take();
    if let (Some(session), Some((symbol, text))) = (Session::global(), describe(code.0)) {
        let (symbol, text) = (symbol.trim_end_matches('\0'), text.trim_end_matches('\0'));
        let number = code.0.unsigned_abs();
        match reason {
            Some(error) => session.free_error(name, number, symbol, text, &error),
            None => session.api_error(name, number, symbol, text),
        }
    }
    if code != Code::NOT_READY && wants_calls() {
        note(&format!("{name} returned {code}"));
    }
}

fn wants_calls() -> bool {
    // A wrong value has made `cuInit` fail, which says so.
    Settings::from_environment().is_ok_and(|settings| settings.log_calls)
}

/// A line on standard error for something that a user must be told.
pub fn note(text: &str) {
    use std::io::Write;
    // A closed standard error is no reason to fail.
    let _ = writeln!(std::io::stderr(), "kernelgate driver: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_code() {
        assert_eq!(run("cuTest", || panic!("boom")), Code::UNKNOWN.0);
        assert_eq!(run("cuTest", || Ok(())), SUCCESS);
        assert_eq!(run("cuTest", || Err(Code::NOT_FOUND)), 500);
    }
}
