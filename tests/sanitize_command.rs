//! `kernelgate sanitize` around what goes wrong: a driver that is not there, settings
//! that say nothing, filters that leave nothing, targets that cannot be started or are
//! ended, reports that cannot be written. On the CPU driver, so that the answer is the
//! same on a machine with a GPU.

use std::path::Path;
use std::process::{Command, Output};

const KERNELGATE: &str = env!("CARGO_BIN_EXE_kernelgate");
const TESTING: &str = env!("CARGO_BIN_EXE_testing");
const CI_GATE: &str = env!("CARGO_BIN_EXE_ci_gate");
const MEMORY_BUGS: &str = env!("CARGO_BIN_EXE_memory_bugs");

fn run(program: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(program)
        .args(arguments)
        .env("KERNELGATE_DRIVER", "cpu")
        .envs(environment.iter().copied())
        .output()
        .expect("the binary starts")
}

fn sanitize(arguments: &[&str]) -> Output {
    let mut all = vec!["sanitize"];
    all.extend(arguments);
    run(KERNELGATE, &all, &[])
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The line that begins with `error: `.
fn error(output: &Output) -> String {
    let stderr = text(&output.stderr);
    let line = stderr.lines().find(|line| line.starts_with("error: "));
    line.unwrap_or_else(|| panic!("no error in {stderr:?}"))
        .to_owned()
}

fn driver_file() -> String {
    let output = run(KERNELGATE, &["driver-path"], &[]);
    format!("{}/libcuda.so", text(&output.stdout).trim())
}

/// What ends the tool ends the program under it: nothing goes on without its checks.
#[test]
fn a_signal_to_the_tool_alone_leaves_no_orphan() {
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGKILL] {
        for words in [
            &["sanitize", "--"][..],
            &["grade", "testing", "--stand-in", "--bin"],
        ] {
            let folder = tempfile::tempdir().unwrap();
            let program = folder.path().join("waits");
            let id = folder.path().join("id");
            let script = format!(
                "#!/bin/sh\necho $$ > {0}.new\nmv {0}.new {0}\nexec sleep 60\n",
                id.display()
            );
            std::fs::write(&program, script).unwrap();
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
            let mut tool = Command::new(KERNELGATE);
            tool.args(words)
                .arg(&program)
                .env("KERNELGATE_DRIVER", "cpu")
                .stderr(std::process::Stdio::null());
            let mut tool = heeding(&mut tool, signal).spawn().unwrap();
            within_20_seconds(|| id.exists());
            let child = std::fs::read_to_string(&id).unwrap();
            let stat = format!("/proc/{}/stat", child.trim());
            let runs = || std::fs::read_to_string(&stat).is_ok_and(|s| !s.contains(") Z"));
            assert!(runs(), "{words:?}: the program did not start");
            // SAFETY: a signal to a child that has not been waited for.
            unsafe { libc::kill(tool.id().cast_signed(), signal) };
            within_20_seconds(|| tool.try_wait().unwrap().is_some());
            within_20_seconds(|| !runs());
        }
    }
}

/// A command that does not inherit that a signal is ignored, as what a shell starts in
/// the background (SIGINT) or under nohup (SIGHUP) does.
fn heeding(command: &mut Command, signal: i32) -> &mut Command {
    use std::os::unix::process::CommandExt;
    // SAFETY: `signal` may be called between fork and exec; it touches no memory.
    unsafe {
        command.pre_exec(move || {
            libc::signal(signal, libc::SIG_DFL);
            Ok(())
        })
    }
}

fn within_20_seconds(mut condition: impl FnMut() -> bool) {
    let started = std::time::Instant::now();
    while !condition() {
        assert!(started.elapsed().as_secs() < 20, "it did not happen");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// A shell between the grader and what it waits for.
#[test]
fn a_signal_to_the_grader_alone_ends_what_the_program_started() {
    let folder = tempfile::tempdir().unwrap();
    let id = folder.path().join("id");
    let program = folder.path().join("waits");
    let script = format!(
        "#!/bin/sh\nsleep 60 &\necho $! > {0}.new\nmv {0}.new {0}\nwait\n",
        id.display()
    );
    std::fs::write(&program, script).unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut tool = Command::new(KERNELGATE)
        .args(["grade", "testing", "--stand-in", "--bin"])
        .arg(&program)
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    within_20_seconds(|| id.exists());
    let child = std::fs::read_to_string(&id).unwrap();
    let stat = format!("/proc/{}/stat", child.trim());
    let runs = || std::fs::read_to_string(&stat).is_ok_and(|s| !s.contains(") Z"));
    assert!(runs(), "the program did not start");
    // SAFETY: a signal to a child that has not been waited for.
    unsafe { libc::kill(tool.id().cast_signed(), libc::SIGTERM) };
    within_20_seconds(|| tool.try_wait().unwrap().is_some());
    within_20_seconds(|| !runs());
}

#[test]
fn a_process_that_outlives_the_target_is_waited_for_and_counted() {
    let script = format!("(sleep 1; exec {CI_GATE}) > /dev/null 2>&1 & exec {CI_GATE} --fixed");
    let output = sanitize(&["--error-exitcode", "9", "--", "sh", "-c", &script]);
    assert_eq!(output.status.code(), Some(9), "{}", text(&output.stderr));
}

#[test]
fn a_process_that_does_not_end_after_the_target_is_no_pass() {
    let script = format!("sleep 30 > /dev/null 2>&1 & exec {CI_GATE} --fixed");
    let output = sanitize(&["--error-exitcode", "9", "--", "sh", "-c", &script]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("still runs"),
        "{}",
        text(&output.stderr)
    );
}

/// The commands that need a device. Each must treat the environment as a lesson does.
const ON_A_DEVICE: &[&[&str]] = &[
    &["sanitize", "--", CI_GATE, "--fixed"],
    &["gemm", "check", "--subject", "simt", "--only", "1,16,32"],
    &["gemm", "limits"],
    &["gemm", "faults"],
    &["moe", "check", "--case", "reused-buffers"],
    &["moe", "check", "--ranks", "2", "--case", "reused-buffers"],
    &["moe", "bench"],
    &["moe", "faults"],
    &["bench", "--only", "memcpy"],
    &["bench", "launch", "--only", "memcpy"],
    &["forms", "run", "--only", "integer/add"],
    &["forms", "verify", "--only", "integer/add"],
    &["evidence", "verify", "--bin-dir", "/nodir"],
    &["grade", "testing"],
    &["grade", "memory_bugs", "--bin", MEMORY_BUGS],
];

#[test]
fn a_driver_that_is_not_there_is_the_same_error_for_every_command() {
    for (driver, code) in [("/nope", 3), ("/no/such/libcuda.so", 3), ("gpu", 2)] {
        let environment = [("KERNELGATE_DRIVER", driver)];
        let bare = run(CI_GATE, &["--fixed"], &environment);
        assert_eq!(bare.status.code(), Some(code));
        assert!(error(&bare).contains(&format!("KERNELGATE_DRIVER={driver}")));
        for words in ON_A_DEVICE {
            let output = run(KERNELGATE, words, &environment);
            assert_eq!(
                output.status.code(),
                Some(code),
                "{words:?}: {}",
                text(&output.stderr)
            );
            assert_eq!(error(&output), error(&bare), "{words:?}");
            assert_eq!(
                text(&output.stdout),
                "",
                "{words:?}: nothing looks like a result"
            );
        }
    }
}

#[test]
fn a_driver_named_by_its_file_is_the_one_that_the_program_gets() {
    let elsewhere = tempfile::tempdir().unwrap();
    let copy = elsewhere.path().join("libcuda.so");
    std::fs::copy(driver_file(), &copy).unwrap();
    for named in [copy.as_path(), elsewhere.path()] {
        let named = named.to_str().unwrap();
        let output = run(
            KERNELGATE,
            &["sanitize", "--", CI_GATE, "--fixed"],
            &[("KERNELGATE_DRIVER", named)],
        );
        let stdout = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(stdout.contains(copy.to_str().unwrap()), "{stdout}");
        assert!(stdout.contains("ERROR SUMMARY: 0 errors"), "{stdout}");
    }
}

/// Rows: variable, a wrong value, what the message expects.
const WRONG_SETTINGS: &[(&str, &str, &str)] = &[
    ("KERNELGATE_PROFILE", "h100", "h200 or t4"),
    ("KERNELGATE_MEMORY", "4TiB", "GiB"),
    ("KERNELGATE_MEMORY", "0", "above 0"),
    ("KERNELGATE_DEVICES", "x", "0 to 64"),
    ("KERNELGATE_DEVICES", "65", "0 to 64"),
    ("KERNELGATE_BUDGET", "x", "warp-instructions"),
    ("KERNELGATE_BUDGET", "0", "at least 1"),
    ("KERNELGATE_LOG", "zzz", "calls or off"),
    ("KERNELGATE_SANITIZE", "{", "kernelgate sanitize"),
    ("KERNELGATE_SANITIZE", "{\"leak\":1}", "leak"),
];

#[test]
fn a_setting_that_says_nothing_is_wrong_usage_of_every_command() {
    for (variable, value, expected) in WRONG_SETTINGS {
        let lessons = [TESTING, CI_GATE, MEMORY_BUGS].map(|lesson| (lesson, &[][..]));
        let commands = ON_A_DEVICE.iter().map(|words| (KERNELGATE, *words));
        // A program that is none of ours is not started either.
        let foreign = (KERNELGATE, &["sanitize", "--", "true"][..]);
        for (program, words) in lessons.into_iter().chain(commands).chain([foreign]) {
            let output = run(program, words, &[(variable, value)]);
            let label = format!("{variable}={value} {program} {words:?}");
            assert_eq!(
                output.status.code(),
                Some(2),
                "{label}: {}",
                text(&output.stderr)
            );
            let error = error(&output);
            for part in [variable, value, expected] {
                assert!(error.contains(part), "{label}: {error}");
            }
            assert!(!error.contains("cargo build"), "{label}: {error}");
        }
    }
}

#[test]
fn no_devices_by_request_is_told_from_a_driver_that_was_not_built() {
    let output = run(CI_GATE, &[], &[("KERNELGATE_DEVICES", "0")]);
    assert_eq!(output.status.code(), Some(3));
    let error = error(&output);
    assert!(error.contains("KERNELGATE_DEVICES"), "{error}");
    assert!(!error.contains("cargo build"), "{error}");
}

/// Rows: flags, and a part of the note.
#[test]
fn a_run_that_checks_no_kernel_is_no_pass_and_says_why() {
    let rows: &[(&[&str], &str)] = &[
        (
            &["--kernel-name", "nothinglikethis"],
            "diffNextPastEnd, windowSum",
        ),
        (&["--launch-skip", "10"], "of 4 launches"),
        (
            &["--kernel-name-exclude", "regex=."],
            "no kernel was checked",
        ),
    ];
    for (flags, part) in rows {
        for exitcode in ["0", "9"] {
            let mut words = flags.to_vec();
            words.extend(["--error-exitcode", exitcode, "--json", "--", MEMORY_BUGS]);
            let output = sanitize(&words);
            let note = text(&output.stderr);
            assert_eq!(output.status.code(), Some(3), "{words:?}: {note}");
            assert!(note.contains(part), "{words:?}: {note}");
            let findings = document(&output);
            assert_eq!(findings["launches"], 4, "{words:?}");
            assert_eq!(findings["launches_checked"], 0, "{words:?}");
        }
    }
    let none = sanitize(&["--", KERNELGATE, "driver-path"]);
    assert_eq!(none.status.code(), Some(255), "it reaches no driver");
    let none = sanitize(&["--", KERNELGATE, "doctor"]);
    assert_eq!(none.status.code(), Some(3), "{}", text(&none.stderr));
    assert!(text(&none.stderr).contains("launched no kernel"));
    // One launch is enough.
    let one = sanitize(&[
        "--launch-count",
        "1",
        "--error-exitcode",
        "9",
        "--",
        MEMORY_BUGS,
    ]);
    assert_eq!(one.status.code(), Some(0), "{}", text(&one.stderr));
}

/// The last JSON document on stdout, after what the program printed.
fn document(output: &Output) -> serde_json::Value {
    let stdout = text(&output.stdout);
    let at = match stdout.rfind("\n{\n") {
        Some(at) => at,
        None => stdout.rfind("{\"").expect("a document"),
    };
    serde_json::from_str(&stdout[at..]).unwrap_or_else(|e| panic!("{e}: {stdout}"))
}

/// Rows: the target, exit code, and a part of the note.
#[test]
fn a_target_that_was_ended_is_diagnosed_by_its_signal() {
    let late = format!("'{CI_GATE}' --fixed; kill -TERM $$");
    // A second of processor time is enough to reach the driver, and not for this.
    let busy = format!("ulimit -t 1; exec '{KERNELGATE}' gemm check --subject simt --models");
    let rows: &[(&str, i32, &[&str])] = &[
        (
            "kill -9 $$",
            255,
            &["signal 9 (SIGKILL", "before it initialised CUDA"],
        ),
        (
            "kill -PIPE $$",
            255,
            &["SIGPIPE", "reader of its output left"],
        ),
        (&late, 143, &["signal 15 (SIGTERM"]),
        (&busy, 137, &["signal 9 (SIGKILL", "not whole"]),
    ];
    for (script, code, parts) in rows {
        let output = sanitize(&["--", "/bin/sh", "-c", script]);
        let note = text(&output.stderr);
        assert_eq!(output.status.code(), Some(*code), "{script}: {note}");
        for part in *parts {
            assert!(note.contains(part), "{script}: {note}");
        }
    }
}

#[test]
fn a_report_that_cannot_be_written_is_diagnosed_as_that() {
    // Files that cannot be opened are refused before the target starts.
    for flag in ["--log-file", "--save"] {
        for file in ["/nodir/x", "/nodir/%p", "/proc/nodir"] {
            let output = sanitize(&[flag, file, "--", CI_GATE, "--fixed"]);
            assert_eq!(output.status.code(), Some(3), "{flag} {file}");
            let error = error(&output);
            assert!(error.contains(flag), "{error}");
            assert!(error.contains("cannot write /"), "{error}");
            assert_eq!(text(&output.stdout), "", "{flag} {file}: it did not start");
        }
    }
    // This one opens and takes no byte.
    let full = sanitize(&["--log-file", "/dev/full", "--", CI_GATE, "--fixed"]);
    let note = text(&full.stderr);
    assert_eq!(full.status.code(), Some(3), "{note}");
    assert!(
        note.contains("log file `/dev/full`: No space left"),
        "{note}"
    );
    // Whether root may open it or not, nobody can write it.
    let version = sanitize(&["--log-file", "/proc/version", "--", CI_GATE, "--fixed"]);
    let note = text(&version.stderr);
    assert_eq!(version.status.code(), Some(3), "{note}");
    assert!(note.contains("/proc/version"), "{note}");
    assert!(!note.contains("SUMMARY"), "{note}");
}

#[test]
fn a_good_log_file_is_left_as_the_driver_wrote_it() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log.txt");
    let output = sanitize(&[
        "--log-file",
        log.to_str().unwrap(),
        "--",
        CI_GATE,
        "--fixed",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let written = std::fs::read_to_string(&log).unwrap();
    assert!(written.ends_with("ERROR SUMMARY: 0 errors\n"), "{written}");
    let never = folder.path().join("never.txt");
    let output = sanitize(&["--log-file", never.to_str().unwrap(), "--", "true"]);
    assert_eq!(output.status.code(), Some(255));
    assert!(!never.exists(), "no report was made");
}

#[test]
fn a_relative_log_file_is_where_the_command_was_typed() {
    let folder = tempfile::tempdir().unwrap();
    let moved = script(
        folder.path(),
        "moved",
        &format!("#!/bin/sh\ncd /; exec '{CI_GATE}' --fixed\n"),
        0o755,
    );
    let output = Command::new(KERNELGATE)
        .args(["sanitize", "--log-file", "log.txt", "--save", "saved.json"])
        .args(["--", &moved])
        .env("KERNELGATE_DRIVER", "cpu")
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for file in ["log.txt", "saved.json"] {
        assert!(folder.path().join(file).exists(), "{file}");
    }
}

#[test]
fn json_is_of_this_run_or_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("saved.json");
    let saved = saved.to_str().unwrap();
    let first = sanitize(&["--json", "--save", saved, "--", CI_GATE, "--fixed"]);
    assert_eq!(document(&first)["errors"], 0);
    assert_eq!(document(&first)["summary_printed"], true);
    // The saved file of that run is no answer to this one.
    let second = sanitize(&["--json", "--save", saved, "--", "true"]);
    let document_ = document(&second);
    assert_eq!(document_["exit"], 255, "{document_}");
    assert!(document_["error"].is_string());
    // A file a process is found by the process's id.
    let pattern = folder.path().join("%p.json");
    let third = sanitize(&["--json", "--save", pattern.to_str().unwrap(), "--", CI_GATE]);
    assert_eq!(document(&third)["errors"], 2);
    let missing = sanitize(&["--json", "--", "/no/such/program"]);
    assert_eq!(document(&missing)["exit"], 3);
}

fn script(folder: &Path, name: &str, content: &str, mode: u32) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.join(name);
    std::fs::write(&path, content).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_target_that_cannot_be_started_is_named_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name, content, mode| script(folder.path(), name, content, mode);
    let rows = [
        ("/no/such/program".to_owned(), "there is no such file"),
        ("no-such-program".to_owned(), "none in PATH"),
        ("Cargo.toml".to_owned(), "./Cargo.toml"),
        (folder.path().to_str().unwrap().to_owned(), "a folder"),
        (file("plain", "x", 0o644), "chmod +x"),
        (
            file("text", "hello\n", 0o755),
            "neither a program nor a script",
        ),
        (
            file("lost", "#!/no/such/interpreter\n", 0o755),
            "/no/such/interpreter",
        ),
    ];
    for (target, reason) in rows {
        let output = sanitize(&["--", &target]);
        assert_eq!(output.status.code(), Some(3), "{target}");
        let error = error(&output);
        assert!(error.contains(&target) && error.contains(reason), "{error}");
    }
    let good = file("good", &format!("#!/bin/sh\n'{CI_GATE}' --fixed\n"), 0o755);
    let output = sanitize(&["--", &good]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}
