//! Damaged PTX through the driver's own door: `libcuda.so` loads it or refuses it
//! with a code, and what loads is launched under a small budget. Whatever the
//! kernels do, the process lives and a new context works.
//!
//! The test starts itself with the budget set; see `damaged_kernels.rs` for the
//! machine without the API and for the kinds of damage.

mod outside;
mod support;

use std::path::Path;
use std::process::Command;
use std::ptr;

use cuda::check::config::{Config, DestroyOnDeviceError, VARIABLE};
use outside::{Cuda, Handle, Shape};
use support::damage::{Random, damaged, number, ptx_files};

const PROGRAM: &str = "KERNELGATE_TEST_PROGRAM";
const SEED: u64 = 20_261_130;
/// Texts to load; each is a file taken by chance and damaged.
const TEXTS: u64 = 1500;
const WORDS: usize = 1 << 10;

const GOOD: &str = ".version 8.0\n.target sm_75\n.address_size 64\n\
    .visible .entry good(.param .u64 p) { .reg .b32 %r<2>; .reg .b64 %rd<2>;\n\
    ld.param.u64 %rd1, [p]; mov.u32 %r1, 77; st.global.u32 [%rd1], %r1; ret; }\n";

/// A context that works: it gives memory, loads, runs and reads back.
fn fresh(cuda: &Cuda) -> u64 {
    assert_eq!(cuda.primary_reset(0), 0);
    let mut context = ptr::null_mut();
    assert_eq!(cuda.primary_retain(&raw mut context, 0), 0);
    assert_eq!(cuda.set_current(context), 0);
    let buffer = cuda.alloc(4 * WORDS);
    let function = cuda.function(cuda.load(GOOD), "good");
    assert_eq!(cuda.launch(function, ONE_WARP, &[buffer]), 0);
    assert_eq!(cuda.synchronize(), 0);
    let mut word = 0_u32;
    assert_eq!(cuda.memcpy_to_host((&raw mut word).cast(), buffer, 4), 0);
    assert_eq!(word, 77);
    buffer
}

const ONE_WARP: Shape = Shape {
    grid: 1,
    block: 32,
    shared: 0,
};

/// Not a test of its own: the child's part.
#[test]
fn child() {
    if std::env::var_os(PROGRAM).is_none() {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in ["../forms", "../kernels/ptx", "tests"] {
        ptx_files(&root.join(folder), &mut files);
    }
    files.sort();
    let cuda = Cuda::start();
    let mut buffer = fresh(&cuda);
    let mut random = Random(number("KERNELGATE_TEST_SEED", SEED));
    let (mut refused, mut launched, mut faults) = (0_u64, 0_u64, 0_u64);
    let texts = number("KERNELGATE_TEST_ROUNDS", TEXTS);
    for _ in 0..texts {
        let path = &files[random.below(files.len())];
        let text = std::fs::read_to_string(path).expect("text");
        let mut text = damaged(&text, &mut random).into_bytes();
        text.retain(|&byte| byte != 0);
        text.push(0);
        let mut module: Handle = ptr::null_mut();
        let code = cuda.module_load_data(&raw mut module, text.as_ptr().cast());
        if code != 0 {
            assert!(
                [2, 200, 209, 218, 222, 300].contains(&code),
                "{}: {code}",
                path.display()
            );
            refused += 1;
            continue;
        }
        let mut count = 0;
        assert_eq!(cuda.function_count(&raw mut count, module), 0);
        let mut functions: Vec<Handle> = vec![ptr::null_mut(); count as usize];
        assert_eq!(cuda.functions(functions.as_mut_ptr(), count, module), 0);
        let mut lost = false;
        for function in functions {
            let shape = Shape {
                grid: 2,
                block: 64,
                shared: 256,
            };
            // More arguments than any kernel of the repository has.
            let arguments = [buffer; 32];
            if cuda.launch(function, shape, &arguments) == 0 {
                launched += 1;
                lost |= cuda.synchronize() != 0;
            }
            if lost {
                break;
            }
        }
        if lost {
            faults += 1;
            buffer = fresh(&cuda);
        } else {
            assert_eq!(cuda.module_unload(module), 0);
        }
    }
    fresh(&cuda);
    println!("{refused} refused, {launched} launched, {faults} contexts lost");
    assert!(refused > texts / 3 && launched > texts / 20 && faults > texts / 200);
    std::process::exit(0);
}

#[test]
fn damaged_modules_are_refused_or_run_and_the_process_lives() {
    println!("seed {}", number("KERNELGATE_TEST_SEED", SEED));
    let checked = |destroy_on_device_error| Config {
        destroy_on_device_error,
        leak_check: true,
        log_file: Some("/dev/null".into()),
        ..Config::default()
    };
    for config in [
        None,
        Some(checked(DestroyOnDeviceError::Context)),
        Some(checked(DestroyOnDeviceError::Kernel)),
    ] {
        let mut command = Command::new(std::env::current_exe().expect("the test binary"));
        command
            .args(["--exact", "child", "--nocapture"])
            .env(PROGRAM, "1")
            .env("KERNELGATE_BUDGET", "5000")
            .env("KERNELGATE_MEMORY", "256MiB")
            .env_remove(VARIABLE);
        if let Some(config) = &config {
            command.env(VARIABLE, config.to_variable());
        }
        let child = command.output().expect("the child starts");
        let (out, err) = (
            String::from_utf8_lossy(&child.stdout),
            String::from_utf8_lossy(&child.stderr),
        );
        let last: Vec<&str> = err.lines().rev().take(8).collect();
        assert!(
            child.status.success(),
            "{config:?}: {}: {out}{last:#?}",
            child.status
        );
        assert!(out.contains("contexts lost"), "{out}");
        println!("{out}");
    }
}
