//! How a sanitized process ends: the summary is printed once, whatever way the
//! program leaves, and never for one that was killed.
//!
//! Each case starts this test binary again with the configuration in the
//! environment; `child` then plays the program under test.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::OnceLock;

use cuda::check::config::{Config, VARIABLE};
use cuda::check::report::Status;
use cuda::check::session::Session;
use cuda::machine::memory::{AllocationKind, Memory, Request};

const LEAVE: &str = "KERNELGATE_TEST_LEAVE";

static MEMORY: OnceLock<Memory> = OnceLock::new();

/// Registered before the driver is first called, so run after everything that
/// was registered later; and still what it frees is no leak.
extern "C" fn free_all() {
    if let (Some(memory), Some(session)) = (MEMORY.get(), Session::global()) {
        for allocation in memory.free_context(1) {
            session.freed(&allocation);
        }
    }
}

/// The program under test: leaks 24,604 bytes and leaves as it is told.
#[test]
fn child() {
    let Ok(way) = std::env::var(LEAVE) else {
        return;
    };
    if way == "never" {
        std::process::exit(0);
    }
    if way == "handler" {
        // SAFETY: the handler is a plain function.
        unsafe { libc::atexit(free_all) };
    }
    let session = Session::global().expect("the configuration is set");
    let memory =
        MEMORY.get_or_init(|| Memory::new(session.memory_options(1 << 30)).expect("addresses"));
    session.attach(memory);
    session.reached_cuda();
    let leak = memory
        .allocate(Request::new(AllocationKind::Device, 24_604, 1))
        .expect("memory");
    session.allocated(&leak);
    match way.as_str() {
        "exit" | "handler" => std::process::exit(0),
        "code" => std::process::exit(42),
        "threads" => {
            for _ in 0..3 {
                std::thread::spawn(move || {
                    loop {
                        session.api_error("cuEventQuery", 600, "", "");
                        let buffer = memory
                            .allocate(Request::new(AllocationKind::HostPinned, 64, 1))
                            .expect("memory");
                        session.allocated(&buffer);
                        session.freed(&memory.free(buffer.base).expect("live"));
                    }
                });
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
            std::process::exit(0);
        }
        "thread" => {
            let _ = std::thread::spawn(|| std::process::exit(0)).join();
        }
        "fork" => {
            // SAFETY: the child only leaves.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                std::process::exit(0);
            }
            let mut status = 0;
            // SAFETY: waits for the child made above.
            unsafe { libc::waitpid(pid, &raw mut status, 0) };
            std::process::exit(0);
        }
        "abort" => std::process::abort(),
        // SAFETY: ends the process.
        "_exit" => unsafe { libc::_exit(0) },
        other => panic!("{other}"),
    }
}

struct Run {
    output: Output,
    status: Vec<Status>,
}

fn run(way: &str) -> Run {
    let name = format!("kernelgate-exit-{}-{way}", std::process::id());
    let status: PathBuf = std::env::temp_dir().join(name);
    let config = Config {
        leak_check: true,
        status_file: Some(status.to_string_lossy().into_owned()),
        ..Config::default()
    };
    let output = Command::new(std::env::current_exe().expect("the test binary"))
        .args(["child", "--exact", "--nocapture"])
        .env(VARIABLE, config.to_variable())
        .env(LEAVE, way)
        .output()
        .expect("a child process");
    let lines = std::fs::read_to_string(&status).unwrap_or_default();
    let _ = std::fs::remove_file(&status);
    Run {
        output,
        // One when the driver is reached, one at the end.
        status: lines
            .lines()
            .map(|line| serde_json::from_str(line).expect("a status line"))
            .collect(),
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn every_ordinary_exit_prints_one_summary_and_keeps_its_code() {
    for (way, code) in [
        ("exit", 0),
        ("code", 42),
        ("threads", 0),
        ("thread", 0),
        ("fork", 0),
    ] {
        let Run { output, status } = run(way);
        let text = text(&output);
        assert_eq!(output.status.code(), Some(code), "{way}: {text}");
        assert_eq!(
            text.matches("KERNELGATE SANITIZER").count(),
            1,
            "{way}: {text}"
        );
        assert_eq!(
            text.matches("Leaked 24,604 bytes at 0x").count(),
            1,
            "{way}: {text}"
        );
        assert!(
            text.ends_with(
                "========= LEAK SUMMARY: 24604 bytes leaked in 1 allocations\n\
                 ========= ERROR SUMMARY: 1 error\n"
            ),
            "{way}: {text}"
        );
        let [first, status] = &status[..] else {
            panic!("{way}: {status:?}");
        };
        assert!(first.reached_cuda && !first.summary_printed, "{way}");
        assert_eq!(
            (status.errors, status.leaks, status.leaked_bytes),
            (1, 1, 24_604),
            "{way}"
        );
        assert!(status.reached_cuda && status.summary_printed, "{way}");
    }
}

#[test]
fn what_exit_handlers_free_is_no_leak() {
    let Run { output, status } = run("handler");
    let text = text(&output);
    assert!(
        text.contains("LEAK SUMMARY: 0 bytes leaked in 0 allocations"),
        "{text}"
    );
    assert_eq!(status.last().map(|status| status.errors), Some(0));
}

#[test]
fn a_killed_process_leaves_no_summary_and_one_without_cuda_no_status() {
    for way in ["abort", "_exit"] {
        let Run { output, status } = run(way);
        assert!(!text(&output).contains("SUMMARY"), "{way}");
        assert_eq!(status.len(), 1, "{way}");
        assert!(
            status[0].reached_cuda && !status[0].summary_printed,
            "{way}"
        );
    }
    let Run { output, status } = run("never");
    assert!(status.is_empty());
    assert!(!text(&output).contains("======"));
}

#[test]
fn a_configuration_that_cannot_be_honoured_ends_the_process() {
    let output = Command::new(std::env::current_exe().expect("the test binary"))
        .args(["child", "--exact", "--nocapture"])
        .env(VARIABLE, "{\"leak\":true}")
        .env(LEAVE, "exit")
        .output()
        .expect("a child process");
    assert_eq!(output.status.code(), Some(3));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        complaint.contains(VARIABLE) && complaint.contains("leak"),
        "{complaint}"
    );
}
