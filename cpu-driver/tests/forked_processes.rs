//! What a forked child can do: nothing where its parent had called `cuInit`, all
//! where it had not. It never hangs, and never reports for its parent.
//!
//! Each case starts this binary again; `child` plays the program named by the
//! environment against the real `libcuda.so`.

mod outside;

use std::ffi::CStr;
use std::process::{Command, Output};
use std::ptr;

use cuda::check::config::{Config, VARIABLE};
use outside::{Code, Cuda, Shape};

const PROGRAM: &str = "KERNELGATE_TEST_PROGRAM";

/// `CUDA_ERROR_NOT_INITIALIZED`
const NOT_INITIALIZED: Code = 3;

/// Seconds after which a call counts as one that hangs.
const PATIENCE: u32 = 20;

/// Writes the word behind 128 bytes.
const PTX: &str = "
.version 8.0
.target sm_75
.address_size 64
.visible .entry bad(.param .u64 p)
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, 7;
    st.global.u32 [%rd1+128], %r1;
    ret;
}
";

const ONE: Shape = Shape {
    grid: 1,
    block: 1,
    shared: 0,
};

/// Forks; `body` runs in the child, which leaves with its answer in the ordinary
/// way. Returns what the child left with, -1 where a signal ended it.
fn in_fork(body: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the thread that forks is the only one that does anything here.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: ends the process by a signal if it takes too long.
        unsafe { libc::alarm(PATIENCE) };
        std::process::exit(body());
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        -1
    }
}

/// Launches the bad kernel; the code of the synchronise.
fn write_past_end(cuda: &Cuda) -> Code {
    let function = cuda.function(cuda.load(PTX), "bad");
    let buffer = cuda.alloc(128);
    assert_eq!(cuda.launch(function, ONE, &[buffer]), 0);
    cuda.synchronize()
}

/// Call by call in the child of a process that uses the driver.
fn codes_in_child(cuda: &Cuda) -> Vec<Code> {
    let (mut address, mut context) = (0, ptr::null_mut());
    vec![
        cuda.init(0),
        cuda.primary_retain(&raw mut context, 0),
        cuda.synchronize(),
        cuda.mem_alloc(&raw mut address, 4),
        cuda.memset(1 << 40, 0, 4),
        cuda.mem_free(1 << 40),
    ]
}

#[test]
fn child() {
    let Ok(program) = std::env::var(PROGRAM) else {
        return;
    };
    let cuda = Cuda::open();
    let answer = match program.as_str() {
        "fork after" => {
            cuda.begin();
            let function = cuda.function(cuda.load(PTX), "bad");
            let buffer = cuda.alloc(132);
            assert_eq!(cuda.launch(function, ONE, &[buffer]), 0);
            assert_eq!(cuda.synchronize(), 0);
            in_fork(|| {
                let codes = codes_in_child(&cuda);
                let launched = cuda.launch(function, ONE, &[buffer]);
                // The name of the error can be asked for.
                let mut name = ptr::null();
                assert_eq!(cuda.error_name(launched, &raw mut name), 0);
                // SAFETY: a C string of the driver.
                let name = unsafe { CStr::from_ptr(name) };
                assert_eq!(name, c"CUDA_ERROR_NOT_INITIALIZED");
                i32::from(launched != NOT_INITIALIZED || codes != [NOT_INITIALIZED; 6])
            })
        }
        "fork before" => {
            // A call before `cuInit` fails and initialises nothing.
            assert_eq!(cuda.synchronize(), NOT_INITIALIZED);
            in_fork(|| {
                cuda.begin();
                write_past_end(&cuda) & 0x7f
            })
        }
        other => panic!("{other}"),
    };
    println!("ANSWER {answer}");
    std::process::exit(0);
}

fn run(program: &str, sanitized: bool) -> (String, String) {
    let mut command = Command::new(std::env::current_exe().expect("the test binary"));
    command
        .args(["child", "--exact", "--nocapture"])
        .env(PROGRAM, program);
    if sanitized {
        command.env(VARIABLE, Config::default().to_variable());
    }
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("a child process");
    let text = String::from_utf8_lossy(&stdout).into_owned();
    let failed = String::from_utf8_lossy(&stderr).into_owned();
    assert_eq!(status.code(), Some(0), "{text}{failed}");
    (text, failed)
}

#[test]
fn nothing_works_in_a_fork_of_a_process_that_uses_the_driver() {
    for sanitized in [false, true] {
        let (text, failed) = run("fork after", sanitized);
        assert!(text.contains("ANSWER 0\n"), "{text}{failed}");
        // The parent's, and none of the child's.
        let summaries = text.matches("ERROR SUMMARY: 0 errors").count();
        assert_eq!(summaries, usize::from(sanitized), "{text}");
        assert_eq!(text.matches("SUMMARY").count(), summaries, "{text}");
    }
}

#[test]
fn a_fork_of_a_process_that_does_not_use_the_driver_does_and_is_checked() {
    let (text, failed) = run("fork before", false);
    assert!(text.contains("ANSWER 0\n"), "{text}{failed}");
    let (text, failed) = run("fork before", true);
    // 719, as an exit code.
    assert!(
        text.contains(&format!("ANSWER {}\n", 719 & 0x7f)),
        "{text}{failed}"
    );
    let finding = "Invalid __global__ write of size 4 bytes";
    assert_eq!(text.matches(finding).count(), 1, "{text}{failed}");
    assert!(text.contains("ERROR SUMMARY: "), "{text}{failed}");
    assert!(!text.contains("ERROR SUMMARY: 0 errors"), "{text}{failed}");
}
