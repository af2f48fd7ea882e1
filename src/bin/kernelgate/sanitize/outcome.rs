//! From what happened under a sanitizer to an exit code.
//!
//! compute-sanitizer's rules, as measured: `--error-exitcode` when there are
//! findings, whatever the program returned; without the flag, or without findings,
//! the program's own code; 255 for a target that never reached CUDA. Three holes of
//! the original are closed here, each with 3 where it would be 0: a target that never
//! reached CUDA under `--require-cuda-init no`; a report without its SUMMARY line; and,
//! where our driver counts them, a run in which no kernel launch was checked, because
//! there was none or because the filters left none.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use cuda::check::report::Problem;
use kernelgate::exit::{Exit, READER_LEFT};

/// compute-sanitizer's code for a target that never reached CUDA.
const NO_CUDA: u8 = 255;

/// The flags that decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// `--error-exitcode`.
    pub error_exitcode: u8,
    /// `--require-cuda-init`.
    pub require_cuda_init: bool,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Code(u8),
    Signal(i32),
}

impl Ended {
    /// The code as a shell gives it: 128 + n for a process that signal n ended.
    pub fn code(self) -> u8 {
        match self {
            Ended::Code(code) => code,
            Ended::Signal(signal) => (128 + signal) as u8,
        }
    }

    /// Such as "returned 1".
    fn words(self) -> String {
        match self {
            Ended::Code(code) => format!("returned {code}"),
            Ended::Signal(signal) => format!("was ended by signal {}", signal_words(signal)),
        }
    }
}

impl From<ExitStatus> for Ended {
    fn from(status: ExitStatus) -> Ended {
        match (status.code(), status.signal()) {
            (Some(code), _) => Ended::Code((code & 0xFF) as u8),
            (None, Some(signal)) => Ended::Signal(signal),
            (None, None) => Ended::Code(Exit::CouldNotRun.code()),
        }
    }
}

fn signal_words(signal: i32) -> String {
    let (name, why) = match signal {
        libc::SIGHUP => ("SIGHUP", "its terminal was closed"),
        libc::SIGINT => ("SIGINT", "it was interrupted"),
        libc::SIGILL => ("SIGILL", "an instruction that this processor does not have"),
        libc::SIGABRT => ("SIGABRT", "it gave up by itself"),
        libc::SIGBUS => ("SIGBUS", "a crash of the host program"),
        libc::SIGFPE => ("SIGFPE", "a crash of the host program"),
        libc::SIGKILL => ("SIGKILL", "somebody, or the system for want of memory"),
        libc::SIGSEGV => ("SIGSEGV", "a crash of the host program"),
        libc::SIGPIPE => ("SIGPIPE", "the reader of its output left"),
        libc::SIGTERM => ("SIGTERM", "it was asked to end"),
        _ => return signal.to_string(),
    };
    format!("{signal} ({name}: {why})")
}

/// Kernel launches of all processes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Launches {
    pub all: u64,
    pub checked: u64,
    /// Names of kernels that were launched, where none was checked.
    pub unchecked: Vec<String>,
}

impl Launches {
    /// Why nothing was checked, if nothing was.
    fn nothing_checked(&self) -> Option<String> {
        match (self.all, self.checked) {
            (_, 1..) => None,
            (0, _) => Some("the target launched no kernel: no access was checked".into()),
            (all, _) => Some(format!(
                "no kernel was checked: of {all} launches, none is left by --kernel-name, \
                 --kernel-name-exclude, --launch-skip and --launch-count; the kernels were {}",
                self.unchecked.join(", ")
            )),
        }
    }
}

/// What is known after the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The program's end, or that of NVIDIA's tool, which follows the same rules.
    pub ended: Ended,
    /// Some process initialised CUDA.
    pub reached_cuda: bool,
    /// Every report is complete.
    pub summary: bool,
    /// Errors of all processes; 0 where NVIDIA's tool has judged them already.
    pub errors: u64,
    /// Why a report is not complete, where the driver could tell.
    pub problem: Option<Problem>,
    /// `None` where NVIDIA's tool ran: it does not say.
    pub launches: Option<Launches>,
    /// A JSON document was printed.
    pub document: bool,
    /// A process that the program started still runs: what it does is not counted.
    pub outlived: bool,
}

impl Outcome {
    /// The exit code, and a sentence where it is not the program's own or where that
    /// says too little.
    pub fn exit(&self, rules: Rules) -> (u8, Option<String>) {
        match self.of_the_ended(rules) {
            (0, _) if self.outlived => (
                Exit::CouldNotRun.code(),
                Some(
                    "a process that the target started still runs after it: what it does is \
                     not in the report, so this is no pass"
                        .into(),
                ),
            ),
            judged => judged,
        }
    }

    /// From the processes whose end is known.
    fn of_the_ended(&self, rules: Rules) -> (u8, Option<String>) {
        let code = self.ended.code();
        if !self.reached_cuda {
            return self.without_cuda(rules);
        }
        if !self.summary {
            let code = first_nonzero([rules.error_exitcode, code, Exit::CouldNotRun.code()]);
            return self.without_summary(code);
        }
        let nothing = self.launches.as_ref().and_then(Launches::nothing_checked);
        if self.errors > 0 && rules.error_exitcode != 0 {
            return (rules.error_exitcode, nothing);
        }
        match (nothing, self.ended) {
            (Some(note), _) => (first_nonzero([code, Exit::CouldNotRun.code()]), Some(note)),
            (None, Ended::Signal(_)) => (code, Some(format!("the target {}", self.ended.words()))),
            (None, Ended::Code(_)) => (code, None),
        }
    }

    fn without_cuda(&self, rules: Rules) -> (u8, Option<String>) {
        let code = if rules.require_cuda_init {
            NO_CUDA
        } else {
            first_nonzero([self.ended.code(), Exit::CouldNotRun.code()])
        };
        let note = match self.ended {
            Ended::Code(_) => format!(
                "the target {} and never initialised CUDA: nothing was checked",
                self.ended.words()
            ),
            Ended::Signal(_) => format!(
                "the target {} before it initialised CUDA: nothing was checked",
                self.ended.words()
            ),
        };
        (code, Some(note))
    }

    fn without_summary(&self, code: u8) -> (u8, Option<String>) {
        let no_pass = "the report is not whole, so this is no pass";
        let note = match (&self.problem, self.ended) {
            // As quiet as any program whose reader left.
            (Some(problem), _) if problem.os_error == Some(libc::EPIPE) => {
                return (first_nonzero([self.ended.code(), READER_LEFT]), None);
            }
            (Some(problem), _) => format!(
                "cannot write to {}: {}; {no_pass}",
                problem.what, problem.error
            ),
            (None, Ended::Signal(_)) => {
                format!("the target {}; {no_pass}", self.ended.words())
            }
            (None, Ended::Code(_)) => format!(
                "the report has no SUMMARY line: the target {} without the exit handlers that \
                 print it (`_exit`, or another process was ended); {no_pass}",
                self.ended.words()
            ),
        };
        (code, Some(note))
    }
}

fn first_nonzero<const N: usize>(codes: [u8; N]) -> u8 {
    codes.into_iter().find(|&code| code != 0).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(code: u8, reached_cuda: bool, summary: bool, errors: u64) -> Outcome {
        Outcome {
            ended: Ended::Code(code),
            reached_cuda,
            summary,
            errors,
            problem: None,
            launches: Some(Launches {
                all: 4,
                checked: 1,
                unchecked: Vec::new(),
            }),
            document: false,
            outlived: false,
        }
    }

    /// A whole report of a run that checked no launch.
    fn unchecked(code: u8, all: u64, errors: u64) -> Outcome {
        Outcome {
            launches: Some(Launches {
                all,
                checked: 0,
                unchecked: vec!["windowSum".into()],
            }),
            ..run(code, true, true, errors)
        }
    }

    fn outlived(outcome: Outcome) -> Outcome {
        Outcome {
            outlived: true,
            ..outcome
        }
    }

    /// Rows: what happened, --error-exitcode, --require-cuda-init, exit code.
    #[test]
    fn exit_codes_follow_the_measured_table() {
        let rows = [
            // ci_gate: bare findings leave the program's code, the flag does not.
            (run(0, true, true, 1), 0, true, 0),
            (run(0, true, true, 1), 1, true, 1),
            (run(1, true, true, 2), 0, true, 1),
            // The flag wins over a program that failed by itself.
            (run(1, true, true, 2), 9, true, 9),
            // Clean runs.
            (run(0, true, true, 0), 1, true, 0),
            (run(3, true, true, 0), 1, true, 3),
            // Never reached CUDA.
            (run(0, false, false, 0), 0, true, 255),
            (run(0, false, false, 0), 9, true, 255),
            (run(0, false, false, 0), 9, false, 3),
            (run(2, false, false, 0), 0, false, 2),
            // Cut short.
            (run(0, true, false, 0), 0, true, 3),
            (run(0, true, false, 0), 7, true, 7),
            (run(137, true, false, 0), 0, true, 137),
            // Nothing checked: by a filter, or because nothing was launched.
            (unchecked(0, 4, 0), 1, true, 3),
            (unchecked(0, 0, 0), 0, true, 3),
            (unchecked(1, 4, 0), 0, true, 1),
            (unchecked(0, 4, 1), 9, true, 9),
            (unchecked(0, 4, 1), 0, true, 3),
            // Something still runs.
            (outlived(run(0, true, true, 0)), 1, true, 3),
            (outlived(run(0, true, true, 1)), 9, true, 9),
        ];
        for (outcome, error_exitcode, require_cuda_init, want) in rows {
            let rules = Rules {
                error_exitcode,
                require_cuda_init,
            };
            assert_eq!(outcome.exit(rules).0, want, "{outcome:?} {rules:?}");
        }
    }

    #[test]
    fn no_run_without_cuda_a_summary_or_a_checked_launch_exits_zero() {
        for code in [0, 1, 2, 3, 137, 255] {
            for error_exitcode in [0, 1, 9] {
                for require_cuda_init in [false, true] {
                    let rules = Rules {
                        error_exitcode,
                        require_cuda_init,
                    };
                    for outcome in [
                        run(code, false, false, 0),
                        run(code, true, false, 0),
                        unchecked(code, 0, 0),
                        unchecked(code, 4, 0),
                    ] {
                        let (exit, note) = outcome.exit(rules);
                        assert_ne!(exit, 0, "{outcome:?} {rules:?}");
                        assert!(note.is_some(), "{outcome:?} {rules:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn nvidias_tool_does_not_count_launches_and_keeps_its_code() {
        let outcome = Outcome {
            launches: None,
            ..run(0, true, true, 0)
        };
        let rules = Rules {
            error_exitcode: 1,
            require_cuda_init: true,
        };
        assert_eq!(outcome.exit(rules), (0, None));
    }

    #[test]
    fn a_signal_is_128_and_its_number() {
        assert_eq!(Ended::from(ExitStatus::from_raw(9)).code(), 137);
        assert_eq!(Ended::from(ExitStatus::from_raw(3 << 8)).code(), 3);
    }
}
