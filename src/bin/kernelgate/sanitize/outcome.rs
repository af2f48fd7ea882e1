//! From what happened under a sanitizer to an exit code.
//!
//! compute-sanitizer's rules, as measured: `--error-exitcode` when there are
//! findings, whatever the program returned; without the flag, or without findings,
//! the program's own code; 255 for a target that never reached CUDA. Two holes of
//! the original are closed here: with `--require-cuda-init no` such a target exits
//! 0 there, and 3 here; and a run whose report never reached its SUMMARY line is no
//! pass.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use kernelgate::exit::Exit;

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

/// What is known after the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Exit code of the program, or of NVIDIA's tool, which follows the same rules.
    pub code: u8,
    /// Some process initialised CUDA.
    pub reached_cuda: bool,
    /// Every report is complete.
    pub summary: bool,
    /// Errors of all processes; 0 where NVIDIA's tool has judged them already.
    pub errors: u64,
}

impl Outcome {
    /// The exit code, and a sentence where it is not the program's own.
    pub fn exit(self, rules: Rules) -> (u8, Option<String>) {
        if !self.reached_cuda {
            return self.without_cuda(rules);
        }
        if !self.summary {
            let code = first_nonzero([rules.error_exitcode, self.code, Exit::CouldNotRun.code()]);
            let note = "the report has no SUMMARY line: the run was cut short, so it is no pass";
            return (code, Some(note.into()));
        }
        if self.errors > 0 && rules.error_exitcode != 0 {
            return (rules.error_exitcode, None);
        }
        (self.code, None)
    }

    fn without_cuda(self, rules: Rules) -> (u8, Option<String>) {
        let code = if rules.require_cuda_init {
            NO_CUDA
        } else {
            first_nonzero([self.code, Exit::CouldNotRun.code()])
        };
        let note = format!(
            "the target returned {} and never initialised CUDA: nothing was checked",
            self.code
        );
        (code, Some(note))
    }
}

fn first_nonzero<const N: usize>(codes: [u8; N]) -> u8 {
    codes.into_iter().find(|&code| code != 0).unwrap_or(0)
}

/// The code as a shell gives it: 128 + n for a process that signal n ended.
pub fn code_of(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => (code & 0xFF) as u8,
        (None, Some(signal)) => (128 + signal) as u8,
        (None, None) => Exit::CouldNotRun.code(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(code: u8, reached_cuda: bool, summary: bool, errors: u64) -> Outcome {
        Outcome {
            code,
            reached_cuda,
            summary,
            errors,
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
    fn no_run_without_cuda_or_summary_exits_zero() {
        for code in [0, 1, 2, 3, 137, 255] {
            for error_exitcode in [0, 1, 9] {
                for require_cuda_init in [false, true] {
                    let rules = Rules {
                        error_exitcode,
                        require_cuda_init,
                    };
                    for outcome in [run(code, false, false, 0), run(code, true, false, 0)] {
                        let (exit, note) = outcome.exit(rules);
                        assert_ne!(exit, 0, "{outcome:?} {rules:?}");
                        assert!(note.is_some(), "{outcome:?} {rules:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_signal_is_128_and_its_number() {
        assert_eq!(code_of(ExitStatus::from_raw(9)), 137);
        assert_eq!(code_of(ExitStatus::from_raw(3 << 8)), 3);
    }
}
