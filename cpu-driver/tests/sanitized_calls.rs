//! What a sanitized program's calls add to the report: bad frees, leaks, failed
//! calls, and the options that choose launches.
//!
//! Each case starts this binary again; `child` plays the program named by the
//! environment against the real `libcuda.so`.

mod outside;

use std::process::Command;

use cuda::check::config::{Config, DestroyOnDeviceError, VARIABLE};
use outside::{Cuda, Shape};

const PROGRAM: &str = "KERNELGATE_TEST_PROGRAM";

/// Two kernels: `good` writes one word a thread, `bad` writes one word past 32.
const PTX: &str = "
.version 8.0
.target sm_75
.address_size 64
.visible .entry good(.param .u64 p)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3;
    st.global.u32 [%rd4], %r1;
    ret;
}
.visible .entry bad(.param .u64 p)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, %tid.x;
    st.global.u32 [%rd1+128], %r1;
    ret;
}
";

/// Each thread allocates 16 bytes and keeps them.
const HEAP_LEAK: &str = "
.version 8.0
.target sm_75
.address_size 64
.extern .func (.param .b64 result) malloc (.param .b64 bytes);
.visible .entry keep()
{
    .reg .b64 %rd<3>;
    mov.u64 %rd1, 16;
    {
    .param .b64 bytes;
    st.param.b64 [bytes], %rd1;
    .param .b64 result;
    call.uni (result), malloc, (bytes);
    ld.param.b64 %rd2, [result];
    }
    ret;
}
";

/// The first thread of two warps stores past the end; then all store one word.
const ONE_WARP_FAULTS: &str = "
.version 8.0
.target sm_75
.address_size 64
.visible .entry two_warps(.param .u64 p)
{
    .reg .pred %p1;
    .reg .b32 %r<4>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, 7;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra store;
    st.global.u32 [%rd1+24604], %r1;
store:
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3;
    st.global.u32 [%rd4], %r2;
    ret;
}
";

/// Variables of every kind, which go with their module.
const VARIABLES: &str = "
.version 8.0
.target sm_75
.address_size 64
.global .align 4 .b32 plain;
.const .align 4 .b32 constant = 7;
.global .attribute(.managed) .align 4 .b32 managed = 7;
.visible .entry idle()
{
    ret;
}
";

const ONE: Shape = Shape {
    grid: 1,
    block: 1,
    shared: 0,
};

#[test]
fn child() {
    let Ok(program) = std::env::var(PROGRAM) else {
        return;
    };
    let cuda = Cuda::start();
    let (first, second) = (cuda.alloc(128), cuda.alloc(24_604));
    match program.as_str() {
        "clean" => {}
        "leak" => std::process::exit(0),
        "leak in a context" => {
            assert_eq!(cuda.primary_release(0), 0);
            std::process::exit(0);
        }
        "double free" => {
            println!("CODE {}", cuda.mem_free(first));
            println!("CODE {}", cuda.mem_free(first));
            println!("CODE {}", cuda.mem_free(second));
            std::process::exit(0);
        }
        "double free in order" => {
            let null = std::ptr::null_mut();
            println!("CODE {}", cuda.mem_free_async(first, null));
            println!("CODE {}", cuda.mem_free_async(first, null));
            println!("CODE {}", cuda.mem_free(first));
            println!("CODE {}", cuda.synchronize());
            println!("CODE {}", cuda.mem_free_async(first, null));
            let module = cuda.load(PTX);
            let function = cuda.function(module, "good");
            println!("CODE {}", cuda.launch(function, ONE, &[second]));
            println!("CODE {}", cuda.synchronize());
            std::process::exit(0);
        }
        "invalid free" => {
            println!("CODE {}", cuda.mem_free(first + 4));
            println!("CODE {}", cuda.mem_free(0x1234));
            // Freeing nothing is legal.
            println!("CODE {}", cuda.mem_free(0));
        }
        "oversize copy" => {
            let host = [0_u8; 129];
            println!(
                "CODE {}",
                cuda.memcpy_to_device(first, host.as_ptr().cast(), 128)
            );
            println!(
                "CODE {}",
                cuda.memcpy_to_device(first, host.as_ptr().cast(), 129)
            );
        }
        "launches" => {
            let module = cuda.load(PTX);
            for name in ["bad", "good", "bad", "bad", "good", "bad"] {
                let function = cuda.function(module, name);
                println!("CODE {}", cuda.launch(function, ONE, &[first]));
            }
            println!("CODE {}", cuda.synchronize());
        }
        "one warp faults" => {
            let function = cuda.function(cuda.load(ONE_WARP_FAULTS), "two_warps");
            assert_eq!(cuda.memset(second, 0, 24_604), 0);
            let shape = Shape { block: 64, ..ONE };
            println!("CODE {}", cuda.launch(function, shape, &[second]));
            println!("CODE {}", cuda.synchronize());
            let mut words = [9_u32; 64];
            assert_eq!(
                cuda.memcpy_to_host(words.as_mut_ptr().cast(), second, 256),
                0
            );
            for word in words {
                println!("CODE {word}");
            }
        }
        "module variables" => {
            let function = cuda.function(cuda.load(VARIABLES), "idle");
            println!("CODE {}", cuda.launch(function, ONE, &[]));
        }
        "heap leak" => {
            let function = cuda.function(cuda.load(HEAP_LEAK), "keep");
            let shape = Shape { block: 3, ..ONE };
            println!("CODE {}", cuda.launch(function, shape, &[]));
            println!("CODE {}", cuda.synchronize());
        }
        "leave at the first failed call" => {
            let module = cuda.load(PTX);
            let function = cuda.function(module, "bad");
            let _third = cuda.alloc(24_604);
            assert_eq!(cuda.launch(function, ONE, &[first]), 0);
            println!("CODE {}", cuda.synchronize());
            std::process::exit(1);
        }
        "go on after the fault" => {
            let module = cuda.load(PTX);
            let function = cuda.function(module, "bad");
            assert_eq!(cuda.launch(function, ONE, &[first]), 0);
            println!("CODE {}", cuda.synchronize());
            println!("CODE {}", cuda.synchronize());
            println!("CODE {}", cuda.mem_free(first));
            println!("CODE {}", cuda.mem_free(second));
            std::process::exit(1);
        }
        other => panic!("{other}"),
    }
    assert_eq!((cuda.mem_free(first), cuda.mem_free(second)), (0, 0));
    std::process::exit(0);
}

struct Run {
    codes: Vec<i32>,
    text: String,
}

impl Run {
    fn of(program: &str, config: Config) -> Self {
        let output = Command::new(std::env::current_exe().expect("the test binary"))
            .args(["child", "--exact", "--nocapture"])
            .env(PROGRAM, program)
            .env(VARIABLE, config.to_variable())
            .output()
            .expect("a child process");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let failed = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code().is_some_and(|code| code < 2),
            "{text}{failed}"
        );
        let codes = text.lines().filter_map(|line| line.split_once("CODE "));
        Self {
            codes: codes
                .map(|(_, code)| code.parse().expect("a code"))
                .collect(),
            text,
        }
    }

    #[track_caller]
    fn ends_with(&self, summary: &str) {
        assert!(self.text.ends_with(summary), "{}", self.text);
    }

    #[track_caller]
    fn says(&self, times: usize, line: &str) {
        assert_eq!(
            self.text.matches(line).count(),
            times,
            "{line}\n{}",
            self.text
        );
    }
}

fn leak_check() -> Config {
    Config {
        leak_check: true,
        ..Config::default()
    }
}

#[test]
fn a_program_that_frees_everything_is_clean() {
    let run = Run::of("clean", leak_check());
    run.ends_with(
        "========= LEAK SUMMARY: 0 bytes leaked in 0 allocations\n\
         ========= ERROR SUMMARY: 0 errors\n",
    );
}

#[test]
fn live_allocations_are_leaks_at_exit_and_when_their_context_dies() {
    for program in ["leak", "leak in a context"] {
        let run = Run::of(program, leak_check());
        run.says(1, "========= Leaked 128 bytes at 0x");
        run.says(1, "========= Leaked 24,604 bytes at 0x");
        run.says(
            2,
            "up to driver entry point at allocation time\n=========         Host Frame: ",
        );
        run.says(0, "in libcuda.so");
        run.ends_with(
            "========= LEAK SUMMARY: 24732 bytes leaked in 2 allocations\n\
             ========= ERROR SUMMARY: 2 errors\n",
        );
        let unasked = Run::of(program, Config::default());
        unasked.says(0, "eak");
        unasked.ends_with("========= ERROR SUMMARY: 0 errors\n");
    }
}

#[test]
fn what_a_kernel_keeps_of_the_device_heap_is_a_leak() {
    let run = Run::of("heap leak", leak_check());
    assert_eq!(run.codes, [0, 0]);
    run.says(3, " on the device heap\n");
    run.ends_with(
        "========= LEAK SUMMARY: 48 bytes leaked in 3 allocations\n\
         ========= ERROR SUMMARY: 3 errors\n",
    );
}

/// The warp of the bad access ends there; the other one does its work.
#[test]
fn in_kernel_mode_only_the_warp_is_lost() {
    let run = Run::of(
        "one warp faults",
        Config {
            destroy_on_device_error: DestroyOnDeviceError::Kernel,
            ..Config::default()
        },
    );
    run.says(1, "Invalid __global__ write of size 4 bytes");
    assert_eq!(run.codes[..2], [0, 0]);
    assert_eq!(run.codes[2..34], [0; 32], "stores of the lost warp");
    assert_eq!(run.codes[34..], [7; 32], "stores of the other warp");
}

#[test]
fn variables_of_a_module_that_is_never_unloaded_are_no_leaks() {
    let run = Run::of("module variables", leak_check());
    assert_eq!(run.codes, [0]);
    run.says(1, "LEAK SUMMARY: 0 bytes leaked in 0 allocations");
}

#[test]
fn bad_frees_are_refused_and_told_apart() {
    let run = Run::of("double free", Config::default());
    assert_eq!(run.codes, [0, 1, 0]);
    run.says(
        1,
        "on CUDA API call to cuMemFree_v2.\n=========     Double free : 0x",
    );
    run.ends_with("========= ERROR SUMMARY: 1 error\n");

    let run = Run::of("invalid free", Config::default());
    assert_eq!(run.codes, [1, 1, 0]);
    run.says(
        2,
        "on CUDA API call to cuMemFree_v2.\n=========     Invalid pointer to free : 0x",
    );
    run.says(1, "and is inside the nearest allocation at 0x");
    run.ends_with("========= ERROR SUMMARY: 2 errors\n");
}

/// The second free is refused at the call, whether or not the first has had its
/// turn on the stream; the context lives on.
#[test]
fn a_second_stream_ordered_free_is_refused_at_the_call() {
    let run = Run::of("double free in order", Config::default());
    assert_eq!(run.codes, [0, 1, 1, 0, 1, 0, 0]);
    run.says(
        2,
        "on CUDA API call to cuMemFreeAsync.\n=========     Double free : 0x",
    );
    run.says(
        1,
        "on CUDA API call to cuMemFree_v2.\n=========     Double free : 0x",
    );
    run.ends_with("========= ERROR SUMMARY: 3 errors\n");
}

#[test]
fn a_copy_past_an_allocation_is_a_failed_call() {
    let run = Run::of("oversize copy", Config::default());
    assert_eq!(run.codes, [0, 1]);
    run.says(1, "Program hit CUDA_ERROR_INVALID_VALUE (error 1) due to \"invalid argument\" on CUDA API call to cuMemcpyHtoD_v2.");
    run.ends_with("========= ERROR SUMMARY: 1 error\n");
}

/// facts.md §2, last row: 1 read + the 719 + three live buffers.
#[test]
fn leaving_at_the_first_failed_call_counts_the_live_buffers() {
    let run = Run::of("leave at the first failed call", leak_check());
    assert_eq!(run.codes, [719]);
    run.says(1, "Invalid __global__ write of size 4 bytes");
    run.says(3, "========= Leaked ");
    run.ends_with(
        "========= LEAK SUMMARY: 49336 bytes leaked in 3 allocations\n\
         ========= ERROR SUMMARY: 5 errors\n",
    );
}

/// facts.md §2, "Fallout trap": each call after the fault fails and is reported.
#[test]
fn every_call_after_the_fault_is_reported() {
    let run = Run::of("go on after the fault", leak_check());
    assert_eq!(run.codes, [719; 4]);
    run.says(4, "Program hit CUDA_ERROR_LAUNCH_FAILED (error 719)");
    run.says(2, "========= Leaked ");
    run.ends_with("========= ERROR SUMMARY: 7 errors\n");
}

#[test]
fn options_choose_the_launches_that_are_checked() {
    let strings = |filters: &[&str]| filters.iter().map(|&text| text.to_owned()).collect();
    for (include, exclude, skip, count, errors) in [
        (&[][..], &[][..], 0, 0, 4),
        (&["kne=bad"], &[], 0, 0, 4),
        (&["kne=good"], &[], 0, 0, 0),
        (&[], &["kns=ba"], 0, 0, 0),
        (&["regex=^b.d$"], &[], 0, 0, 4),
        (&[], &[], 1, 0, 3),
        (&[], &[], 0, 3, 2),
        (&["kne=bad"], &[], 1, 2, 2),
    ] {
        let run = Run::of(
            "launches",
            Config {
                destroy_on_device_error: DestroyOnDeviceError::Kernel,
                kernel_name: strings(include),
                kernel_name_exclude: strings(exclude),
                launch_skip: skip,
                launch_count: count,
                ..Config::default()
            },
        );
        assert_eq!(run.codes, [0; 7], "nothing fails in kernel mode");
        run.says(errors, "Invalid __global__ write of size 4 bytes");
        run.ends_with(&format!("========= ERROR SUMMARY: {errors} errors\n"));
    }
}

#[test]
fn the_print_limit_hides_findings_but_counts_them() {
    let run = Run::of(
        "launches",
        Config {
            destroy_on_device_error: DestroyOnDeviceError::Kernel,
            print_limit: 3,
            ..Config::default()
        },
    );
    run.says(3, "Invalid __global__ write");
    run.says(1, "========= ERROR SUMMARY: 4 errors\n");
    run.says(1, "========= ERROR SUMMARY: 1 error was not printed.");
}
