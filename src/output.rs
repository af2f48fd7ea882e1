//! Standard output and standard error of every binary.
//!
//! What a program prints is its result, so a print that fails is an error of the
//! run: [`outln!`](crate::outln) and [`out!`](crate::out) give it back as a value,
//! and `?` carries it to `main`, past the frees of every buffer. `println!` panics
//! there (exit 101), and the lint `clippy::print_stdout` keeps it out of the
//! package. [`errln!`](crate::errln) drops a failed line instead: nobody is left to
//! tell, and the exit code says the same.
//!
//! `std` opens /dev/null in the place of a descriptor that was closed at the start
//! (`program >&-`), where every print would succeed and be lost. So a function in
//! `.init_array`, which the loader runs before `std`, looks first. Linux only, as
//! the rest of the project.

use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Formats and prints to standard output; a `Result` to be passed on with `?`.
#[macro_export]
macro_rules! out {
    ($($argument:tt)*) => { $crate::output::write(format_args!($($argument)*)) };
}

/// [`out!`](crate::out) and a line end.
#[macro_export]
macro_rules! outln {
    () => { $crate::output::write(format_args!("\n")) };
    ($($argument:tt)*) => {
        $crate::output::write(format_args!("{}\n", format_args!($($argument)*)))
    };
}

/// Formats and prints a line to standard error, or drops it where that fails.
#[macro_export]
macro_rules! errln {
    ($($argument:tt)*) => {
        $crate::output::write_error(format_args!("{}\n", format_args!($($argument)*)))
    };
}

/// Standard output did not take what was printed.
#[derive(Debug)]
pub enum OutputError {
    /// The reader of the pipe has left, as `head` does when it has seen enough.
    ReaderLeft,
    /// Standard output was closed when the program started.
    Closed,
    /// Anything else, such as a full disk.
    Failed(io::Error),
}

impl fmt::Display for OutputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot write to standard output: ")?;
        match self {
            OutputError::ReaderLeft => f.write_str("its reader left"),
            OutputError::Closed => {
                f.write_str("it is closed; send it to /dev/null if nobody is to read it")
            }
            OutputError::Failed(error) => write!(f, "{error}; the result is lost"),
        }
    }
}

impl std::error::Error for OutputError {}

impl From<io::Error> for OutputError {
    fn from(error: io::Error) -> OutputError {
        match error.kind() {
            io::ErrorKind::BrokenPipe => OutputError::ReaderLeft,
            _ => OutputError::Failed(error),
        }
    }
}

/// Prints to standard output; the macros call it.
///
/// # Errors
/// [`OutputError`], which every caller passes on.
pub fn write(text: fmt::Arguments<'_>) -> Result<(), OutputError> {
    require_open()?;
    Ok(io::stdout().write_fmt(text)?)
}

/// Prints to standard error; the macro calls it.
pub fn write_error(text: fmt::Arguments<'_>) {
    // In one write: the lines of several processes on one terminal stay whole.
    let _ = io::stderr().write_all(text.to_string().as_bytes());
}

/// Writes out what is still in the buffer: the end of the process would drop an error.
///
/// # Errors
/// [`OutputError`].
pub fn flush() -> Result<(), OutputError> {
    Ok(io::stdout().flush()?)
}

/// # Errors
/// [`OutputError::Closed`] where the program was started without standard output.
pub fn require_open() -> Result<(), OutputError> {
    match CLOSED_AT_START.load(Ordering::Relaxed) {
        true => Err(OutputError::Closed),
        false => Ok(()),
    }
}

static CLOSED_AT_START: AtomicBool = AtomicBool::new(false);

extern "C" fn look_at_standard_output() {
    // SAFETY: F_GETFD asks about a number and changes nothing.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    CLOSED_AT_START.store(flags == -1, Ordering::Relaxed);
}

// SAFETY: `.init_array` holds pointers to functions of this signature. This one uses
// nothing of `std` that its start would have to prepare.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_STD: extern "C" fn() = look_at_standard_output;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_pipe_is_told_from_a_full_disk() {
        let of = |code| OutputError::from(io::Error::from_raw_os_error(code));
        assert!(matches!(of(libc::EPIPE), OutputError::ReaderLeft));
        let full = of(libc::ENOSPC).to_string();
        assert!(
            full.starts_with("cannot write to standard output: No space left on device"),
            "{full}"
        );
    }
}
