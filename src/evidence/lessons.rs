//! The commands of the lessons. The counts are those of compute-sanitizer on an
//! H200; the CPU driver is held to the same.

use super::plan::{Expected, Step};

const NOTHING: Expected = Expected {
    errors: 0,
    global_reads: 0,
    global_writes: 0,
    shared_writes: 0,
    api_errors: 0,
    leaks: None,
};

const NO_LEAK: Expected = Expected {
    leaks: Some((0, 0)),
    ..NOTHING
};

const KERNEL: &str = "--destroy-on-device-error";

const fn bare(name: &'static str, program: &'static str) -> Step {
    Step::bare(name, program, &[])
}

const fn sanitized(
    name: &'static str,
    program: &'static str,
    flags: &'static [&'static str],
    exit: u8,
    report: Expected,
) -> Step {
    Step {
        sanitizer: Some(flags),
        exit,
        report: Some(report),
        ..bare(name, program)
    }
}

const fn gate(step: Step, arguments: &'static [&'static str]) -> Step {
    Step {
        arguments,
        repeated: true,
        ..step
    }
}

const fn fixed(name: &'static str, flags: &'static [&'static str]) -> Step {
    gate(sanitized(name, "ci_gate", flags, 0, NOTHING), &["--fixed"])
}

const STRAY_WRITE: Expected = Expected {
    errors: 1,
    global_writes: 1,
    ..NOTHING
};

/// The context goes with the write, so the next synchronise fails too.
const STRAY_WRITE_AND_FALLOUT: Expected = Expected {
    errors: 2,
    api_errors: 1,
    ..STRAY_WRITE
};

const READ_AND_FALLOUT: Expected = Expected {
    errors: 2,
    global_reads: 1,
    api_errors: 1,
    ..NOTHING
};

/// One read, and one shared write in each of 25 blocks.
const BOTH_KERNELS: Expected = Expected {
    errors: 26,
    global_reads: 1,
    shared_writes: 25,
    ..NOTHING
};

/// The name of the shipped build's transcript that `diff` reads.
pub const SHIPPED: &str = "memory_bugs-kernel-mode-leaks";
/// The name of the clean build's transcript that `diff` reads.
pub const CLEAN: &str = "memory_bugs_clean-kernel-mode-leaks";
/// Bytes of one buffer of `memory_bugs`.
pub const BUFFER: u64 = 24_604;

/// Every documented command, in the order of the lessons.
pub const STEPS: &[Step] = &[
    bare("testing", "testing"),
    // A wrong kernel that is memory-clean.
    sanitized(
        "testing-memcheck-leaks",
        "testing",
        &["--leak-check", "full", "--error-exitcode", "1"],
        0,
        NO_LEAK,
    ),
    bare("testing_starter", "testing_starter"),
    gate(bare("ci_gate", "ci_gate"), &[]),
    gate(
        sanitized(
            "ci_gate-kernel-mode",
            "ci_gate",
            &[KERNEL, "kernel"],
            0,
            STRAY_WRITE,
        ),
        &[],
    ),
    gate(
        sanitized(
            "ci_gate-kernel-mode-exitcode",
            "ci_gate",
            &[KERNEL, "kernel", "--error-exitcode", "1"],
            1,
            STRAY_WRITE,
        ),
        &[],
    ),
    gate(
        sanitized(
            "ci_gate-defaults",
            "ci_gate",
            &[],
            1,
            STRAY_WRITE_AND_FALLOUT,
        ),
        &[],
    ),
    gate(bare("ci_gate-fixed", "ci_gate"), &["--fixed"]),
    fixed("ci_gate-fixed-kernel-mode", &[KERNEL, "kernel"]),
    fixed(
        "ci_gate-fixed-kernel-mode-exitcode",
        &[KERNEL, "kernel", "--error-exitcode", "1"],
    ),
    fixed("ci_gate-fixed-defaults", &[]),
    Step {
        report: Some(NO_LEAK),
        ..fixed(
            "ci_gate-fixed-leaks",
            &["--leak-check", "full", "--error-exitcode", "1"],
        )
    },
    bare("memory_bugs", "memory_bugs"),
    sanitized(
        "memory_bugs-defaults",
        "memory_bugs",
        &[],
        1,
        READ_AND_FALLOUT,
    ),
    sanitized(
        "memory_bugs-kernel-mode",
        "memory_bugs",
        &[KERNEL, "kernel"],
        1,
        BOTH_KERNELS,
    ),
    sanitized(
        SHIPPED,
        "memory_bugs",
        &[KERNEL, "kernel", "--leak-check", "full"],
        1,
        Expected {
            errors: 27,
            leaks: Some((1, BUFFER)),
            ..BOTH_KERNELS
        },
    ),
    // The exercise: the context is lost at the first bug, so three live buffers
    // are reported as leaks beside the read and the failed synchronise.
    sanitized(
        "memory_bugs-exercise",
        "memory_bugs",
        &["--leak-check", "full", "--error-exitcode", "1"],
        1,
        Expected {
            errors: 5,
            leaks: Some((3, 3 * BUFFER)),
            ..READ_AND_FALLOUT
        },
    ),
    bare("memory_bugs_clean", "memory_bugs_clean"),
    sanitized(
        "memory_bugs_clean-leaks",
        "memory_bugs_clean",
        &["--leak-check", "full", "--error-exitcode", "1"],
        0,
        NO_LEAK,
    ),
    sanitized(
        CLEAN,
        "memory_bugs_clean",
        &[KERNEL, "kernel", "--leak-check", "full"],
        0,
        NO_LEAK,
    ),
    // None of the other three tools sees these bugs.
    sanitized(
        "memory_bugs-racecheck",
        "memory_bugs",
        &["--tool", "racecheck"],
        0,
        NOTHING,
    ),
    sanitized(
        "memory_bugs-initcheck",
        "memory_bugs",
        &["--tool", "initcheck"],
        0,
        NOTHING,
    ),
    sanitized(
        "memory_bugs-synccheck",
        "memory_bugs",
        &["--tool", "synccheck"],
        0,
        NOTHING,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_and_commands_are_unique() {
        let names: BTreeSet<_> = STEPS.iter().map(|s| s.name).collect();
        let commands: BTreeSet<_> = STEPS.iter().map(Step::command).collect();
        assert_eq!(names.len(), STEPS.len());
        assert_eq!(commands.len(), STEPS.len());
        assert!(names.contains(SHIPPED) && names.contains(CLEAN));
    }

    #[test]
    fn each_sanitized_step_expects_a_report_whose_parts_add_up() {
        for step in STEPS {
            assert_eq!(
                step.sanitizer.is_some(),
                step.report.is_some(),
                "{}",
                step.name
            );
            let Some(expected) = step.report else {
                continue;
            };
            let leaks = expected.leaks.map_or(0, |(count, _)| count);
            let parts = expected.global_reads
                + expected.global_writes
                + expected.shared_writes
                + expected.api_errors
                + leaks;
            assert_eq!(parts, expected.errors, "{}", step.name);
            let asked = step.sanitizer.unwrap_or_default().contains(&"--leak-check");
            assert_eq!(expected.leaks.is_some(), asked, "{}", step.name);
        }
    }

    /// The exit rule: the flag's code with findings, the program's own otherwise.
    #[test]
    fn exit_codes_follow_the_rule_for_error_exitcode() {
        for step in STEPS {
            let flags = step.sanitizer.unwrap_or_default();
            if flags.contains(&"--error-exitcode") {
                let found = step.report.unwrap().errors > 0;
                assert_eq!(step.exit, u8::from(found), "{}", step.name);
            }
        }
    }

    #[test]
    fn the_tool_is_read_from_the_flags() {
        let tool = |name| STEPS.iter().find(|s| s.name == name).unwrap().tool();
        assert_eq!(tool("testing"), None);
        assert_eq!(tool("ci_gate-defaults"), Some("memcheck"));
        assert_eq!(tool("memory_bugs-initcheck"), Some("initcheck"));
    }
}
