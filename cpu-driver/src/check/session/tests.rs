//! A session as the driver drives it, read back from its files.

use std::path::{Path, PathBuf};

use super::*;
use crate::check::config::DestroyOnDeviceError;
use crate::check::memcheck::Memcheck;
use crate::machine::memory::Request;
use crate::machine::observe::{AccessKind, Observer, Reaction, Site, Violation, ViolationKind};
use crate::ptx::ast::StateSpace;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("kernelgate-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for the test");
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).expect(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn config(scratch: &Scratch) -> Config {
    Config {
        log_file: Some(scratch.path("log")),
        status_file: Some(scratch.path("status")),
        ..Config::default()
    }
}

fn memory(session: &Session) -> &'static Memory {
    let memory = Memory::new(session.memory_options(64 << 20)).expect("address space");
    let memory = Box::leak(Box::new(memory));
    session.attach(memory);
    memory
}

fn device(memory: &Memory, session: &Session, bytes: u64) -> Allocation {
    let allocation = memory
        .allocate(Request::new(AllocationKind::Device, bytes, 1))
        .expect("memory");
    session.allocated(&allocation);
    allocation
}

fn past_end(allocation: &Allocation) -> Violation {
    Violation {
        kind: ViolationKind::OutOfBounds,
        space: StateSpace::Global,
        access: AccessKind::Read,
        size: 4,
        address: allocation.base + allocation.bytes,
        thread: [6, 0, 0],
        block: [24, 0, 0],
        kernel: "k".into(),
        site: Site {
            function: "k".into(),
            ..Site::default()
        },
    }
}

fn observe(session: &Session, memory: &Memory, violation: &Violation) -> Reaction {
    let launch = session.launch("k").expect("no filter");
    Memcheck::new(session, memory, launch).violation(violation)
}

/// The process leaves a line when it reaches the driver and one when it is done.
fn status(path: &Path) -> Status {
    let text = std::fs::read_to_string(path).expect("a status file");
    let lines: Vec<Status> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a status line"))
        .collect();
    let [first, last] = &lines[..] else {
        panic!("expected two lines: {text}");
    };
    assert!(first.reached_cuda && !first.summary_printed, "{text}");
    last.clone()
}

/// facts.md §2: one read, then error 719 at the next synchronise.
#[test]
fn a_read_and_the_call_that_fails_after_it_are_two_errors() {
    let scratch = Scratch::new("two");
    let session = Session::new(config(&scratch)).unwrap();
    let memory = memory(&session);
    session.reached_cuda();
    session.reached_cuda();
    let input = device(memory, &session, 24_604);
    assert_eq!(
        observe(&session, memory, &past_end(&input)),
        Reaction::EndLaunch
    );
    session.api_error(
        "cuCtxSynchronize",
        719,
        "CUDA_ERROR_LAUNCH_FAILED",
        "unspecified launch failure",
    );
    session.finish();
    let log = scratch.read("log");
    assert!(log.starts_with("========= KERNELGATE SANITIZER\n========= Invalid __global__ read"));
    assert!(log.contains("and is 1 bytes after the nearest allocation at 0x"));
    assert!(log.contains("of size 24,604 bytes\n"));
    assert!(
        log.contains("\n========= \n========= Program hit CUDA_ERROR_LAUNCH_FAILED (error 719)")
    );
    assert!(log.ends_with("========= ERROR SUMMARY: 2 errors\n"));
    assert!(!log.contains("LEAK"), "leak check is off");
    assert_eq!(
        status(Path::new(&scratch.path("status"))),
        Status {
            process: std::process::id(),
            reached_cuda: true,
            errors: 2,
            leaked_bytes: 0,
            leaks: 0,
            summary_printed: true,
            launches: 1,
            launches_checked: 1,
            unchecked_kernels: Vec::new(),
            problem: None,
        }
    );
}

/// facts.md §2: 1 read + 25 writes + 1 leak of 24,604 bytes.
#[test]
fn kernel_mode_with_leak_check_counts_27() {
    let scratch = Scratch::new("27");
    let session = Session::new(Config {
        leak_check: true,
        destroy_on_device_error: DestroyOnDeviceError::Kernel,
        ..config(&scratch)
    })
    .unwrap();
    let memory = memory(&session);
    session.reached_cuda();
    let input = device(memory, &session, 24_604);
    let tap = device(memory, &session, 24_604);
    for _ in 0..26 {
        let reaction = observe(&session, memory, &past_end(&input));
        assert_eq!(reaction, Reaction::KillWarp);
    }
    session.freed(&memory.free(input.base).unwrap());
    session.finish();
    let log = scratch.read("log");
    assert!(log.contains(&format!(
        "========= Leaked 24,604 bytes at {:#x}\n",
        tap.base
    )));
    assert!(log.contains("up to driver entry point at allocation time\n"));
    assert!(log.ends_with(
        "========= LEAK SUMMARY: 24604 bytes leaked in 1 allocations\n\
         ========= ERROR SUMMARY: 27 errors\n"
    ));
}

#[test]
fn a_clean_run_says_so() {
    let scratch = Scratch::new("clean");
    let session = Session::new(Config {
        leak_check: true,
        ..config(&scratch)
    })
    .unwrap();
    let memory = memory(&session);
    session.reached_cuda();
    let buffer = device(memory, &session, 100);
    session.freed(&memory.free(buffer.base).unwrap());
    session.finish();
    session.finish();
    assert_eq!(
        scratch.read("log"),
        "========= KERNELGATE SANITIZER\n\
         ========= LEAK SUMMARY: 0 bytes leaked in 0 allocations\n\
         ========= ERROR SUMMARY: 0 errors\n"
    );
}

#[test]
fn a_process_that_never_calls_the_driver_leaves_no_status() {
    let scratch = Scratch::new("never");
    let session = Session::new(config(&scratch)).unwrap();
    session.finish();
    assert_eq!(scratch.read("log"), "");
    assert!(!Path::new(&scratch.path("status")).exists());
}

#[test]
fn leaks_are_reported_when_their_context_dies_and_not_again_at_exit() {
    let scratch = Scratch::new("context");
    let session = Session::new(Config {
        leak_check: true,
        ..config(&scratch)
    })
    .unwrap();
    let memory = memory(&session);
    session.reached_cuda();
    for kind in [
        AllocationKind::Device,
        AllocationKind::Pool,
        AllocationKind::Managed,
        AllocationKind::DeviceHeap,
        AllocationKind::HostPinned,
        AllocationKind::Module,
        AllocationKind::ModuleManaged,
    ] {
        memory.allocate(Request::new(kind, 1_000, 1)).unwrap();
    }
    session.context_destroyed(&memory.live(Some(1)));
    memory.free_context(1);
    session.finish();
    let log = scratch.read("log");
    assert_eq!(log.matches("Leaked 1,000 bytes").count(), 4, "{log}");
    assert_eq!(log.matches("on the device heap").count(), 1);
    assert!(log.contains("LEAK SUMMARY: 4000 bytes leaked in 4 allocations\n"));
    assert!(log.ends_with("ERROR SUMMARY: 4 errors\n"));
}

#[test]
fn the_print_limit_hides_text_and_keeps_the_count() {
    let scratch = Scratch::new("limit");
    let session = Session::new(Config {
        print_limit: 3,
        save: Some(scratch.path("saved.json")),
        ..config(&scratch)
    })
    .unwrap();
    let memory = memory(&session);
    session.reached_cuda();
    let input = device(memory, &session, 4);
    for _ in 0..10 {
        observe(&session, memory, &past_end(&input));
    }
    session.finish();
    let log = scratch.read("log");
    assert_eq!(log.matches("Invalid __global__").count(), 3);
    assert!(log.contains("========= ERROR SUMMARY: 10 errors\n"));
    assert!(log.contains("========= ERROR SUMMARY: 7 errors were not printed."));
    let saved: serde_json::Value = serde_json::from_str(&scratch.read("saved.json")).unwrap();
    assert_eq!(saved["errors"], 10);
    assert_eq!(saved["not_printed"], 7);
    assert_eq!(saved["findings"].as_array().unwrap().len(), 3);
    let first = &saved["findings"][0];
    assert_eq!(first["type"], "access");
    assert_eq!(first["problem"], "out_of_bounds");
    assert_eq!(first["nearest"]["distance"]["after"], 1);
    assert_eq!(first["fingerprint"], saved["findings"][2]["fingerprint"]);
}

#[test]
fn xml_holds_a_record_a_finding_with_its_text_escaped() {
    let scratch = Scratch::new("xml");
    let session = Session::new(Config {
        xml: true,
        save: Some(scratch.path("saved.xml")),
        ..config(&scratch)
    })
    .unwrap();
    session.reached_cuda();
    session.api_error(
        "cu<Call>",
        1,
        "CUDA_ERROR_INVALID_VALUE",
        "a \"bad\" & value",
    );
    session.finish();
    let xml = scratch.read("saved.xml");
    assert_eq!(xml.matches("<record>").count(), 1);
    assert!(
        xml.contains("due to &quot;a &quot;bad&quot; &amp; value&quot;"),
        "{xml}"
    );
    assert!(xml.contains("cu&lt;Call&gt;."));
}

#[test]
fn bad_frees_are_told_apart_on_the_failed_call() {
    let scratch = Scratch::new("frees");
    let session = Session::new(config(&scratch)).unwrap();
    let memory = memory(&session);
    session.reached_cuda();
    let buffer = device(memory, &session, 100);
    let inside = memory.free(buffer.base + 4).unwrap_err();
    session.freed(&memory.free(buffer.base).unwrap());
    let twice = memory.free(buffer.base).unwrap_err();
    for error in [&inside, &twice] {
        let (name, text) = ("CUDA_ERROR_INVALID_VALUE", "invalid argument");
        session.free_error("cuMemFree_v2", 1, name, text, error);
    }
    session.finish();
    let log = scratch.read("log");
    assert!(log.contains("=========     Invalid pointer to free : 0x"));
    assert!(log.contains("=========     Double free : 0x"));
    assert!(log.ends_with("ERROR SUMMARY: 2 errors\n"));
}

#[test]
fn a_use_after_free_says_where_the_memory_was_freed() {
    let scratch = Scratch::new("uaf");
    let session = Session::new(config(&scratch)).unwrap();
    let memory = memory(&session);
    session.reached_cuda();
    let buffer = device(memory, &session, 100);
    session.freed(&memory.free(buffer.base).unwrap());
    let mut violation = past_end(&buffer);
    violation.address = buffer.base + 8;
    violation.kind = ViolationKind::UseAfterFree;
    observe(&session, memory, &violation);
    let log = scratch.read("log");
    assert!(
        log.contains("and is 8 bytes inside the freed allocation"),
        "{log}"
    );
    assert!(
        log.contains("up to driver entry point at free time\n"),
        "{log}"
    );
}

#[test]
fn polling_calls_are_no_errors() {
    let scratch = Scratch::new("polling");
    let session = Session::new(config(&scratch)).unwrap();
    session.reached_cuda();
    for (function, code, counted) in [
        ("cuEventQuery", 600, 0),
        ("cuStreamQuery", 600, 0),
        ("cuCtxEnablePeerAccess", 704, 0),
        ("cuCtxDisablePeerAccess", 705, 0),
        ("cuEventQuery", 719, 1),
        ("cuEventElapsedTime_v2", 600, 1),
    ] {
        let before = session.status().errors;
        session.api_error(function, code, "", "");
        assert_eq!(
            session.status().errors - before,
            counted,
            "{function} {code}"
        );
    }
}

#[test]
fn filtered_launches_are_unchecked() {
    let scratch = Scratch::new("filter");
    let session = Session::new(Config {
        kernel_name: vec!["kns=Past".into()],
        launch_skip: 1,
        launch_count: 1,
        ..config(&scratch)
    })
    .unwrap();
    let checked = ["k", "kPast", "kPast", "kPast"].map(|name| session.launch(name).is_some());
    assert_eq!(checked, [false, false, true, false]);
    let status = session.status();
    assert_eq!((status.launches, status.launches_checked), (4, 1));
    assert!(status.unchecked_kernels.is_empty(), "one was checked");
}

#[test]
fn a_filter_that_matches_no_launch_leaves_the_names_of_those_there_were() {
    let scratch = Scratch::new("nothing");
    let session = Session::new(Config {
        kernel_name: vec!["kne=nothinglikethis".into()],
        ..config(&scratch)
    })
    .unwrap();
    session.reached_cuda();
    for name in ["a", "b", "a"] {
        assert!(session.launch(name).is_none());
    }
    session.finish();
    let status = status(Path::new(&scratch.path("status")));
    assert_eq!((status.launches, status.launches_checked), (3, 0));
    assert_eq!(status.unchecked_kernels, ["a", "b"]);
}

#[test]
fn findings_from_many_threads_are_all_counted_and_never_mixed() {
    let scratch = Scratch::new("threads");
    let session = Session::new(Config {
        print_limit: 0,
        show_backtrace: false,
        ..config(&scratch)
    })
    .unwrap();
    session.reached_cuda();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    session.api_error(
                        "cuMemAlloc_v2",
                        2,
                        "CUDA_ERROR_OUT_OF_MEMORY",
                        "out of memory",
                    );
                }
            });
        }
    });
    session.finish();
    let log = scratch.read("log");
    let whole = "========= Program hit CUDA_ERROR_OUT_OF_MEMORY (error 2) due to \"out of memory\" on CUDA API call to cuMemAlloc_v2.\n========= \n";
    assert_eq!(log.matches(whole).count(), 400);
    assert!(log.ends_with("ERROR SUMMARY: 400 errors\n"));
}

#[test]
fn a_report_that_could_not_be_written_is_not_called_printed() {
    for (log, save, what, error) in [
        ("/dev/full", None, "log file `/dev/full`", 28),
        (
            "/dev/null",
            Some("/nowhere/saved.json".into()),
            "the saved findings",
            2,
        ),
        (
            "/dev/null",
            Some("/dev/full".into()),
            "the saved findings",
            28,
        ),
    ] {
        let scratch = Scratch::new("full");
        let session = Session::new(Config {
            log_file: Some(log.into()),
            save,
            ..config(&scratch)
        })
        .unwrap();
        session.reached_cuda();
        session.finish();
        let status = status(Path::new(&scratch.path("status")));
        assert!(!status.summary_printed, "{log}");
        let problem = status.problem.expect("it says why");
        assert_eq!(
            (problem.what.as_str(), problem.os_error),
            (what, Some(error))
        );
        let full = std::fs::metadata("/dev/full").unwrap();
        assert!(!full.is_file(), "the device was replaced by a file");
    }
    let nowhere = Config {
        log_file: Some("/nowhere/log".into()),
        ..Config::default()
    };
    assert!(Session::new(nowhere).is_err());
}
