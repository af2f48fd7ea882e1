//! A client in C, compiled here and run against `libcuda.so` in a process of its
//! own: `clients/plain_client.c` computes, compares and makes mistakes.

mod outside;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn compiled() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/plain_client.c");
    let program =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("plain_client-{}", std::process::id()));
    let built = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg(source)
        .arg("-ldl")
        .output()
        .expect("the C compiler that links Rust programs");
    let errors = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{errors}");
    program
}

fn run(program: &Path, environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program);
    command.arg(outside::library_path());
    for known in ["PROFILE", "MEMORY", "DEVICES", "BUDGET", "LOG", "SANITIZE"] {
        command.env_remove(format!("KERNELGATE_{known}"));
    }
    command.envs(environment.iter().copied());
    command.output().expect("the client starts")
}

#[test]
fn a_c_program_computes_and_gets_the_codes_that_the_manual_names() {
    let program = compiled();
    for (profile, name) in [("h200", "H200"), ("t4", "T4")] {
        let ran = run(&program, &[("KERNELGATE_PROFILE", profile)]);
        let (out, err) = (
            String::from_utf8_lossy(&ran.stdout),
            String::from_utf8_lossy(&ran.stderr),
        );
        assert_eq!(ran.status.code(), Some(0), "{profile}: {out}{err}");
        for line in [name, "1003 threads wrote", "all as it should be"] {
            assert!(out.contains(line), "{profile}: {out}{err}");
        }
    }
    // A driver that executes nothing must not pass.
    let control = run(&program, &[("KERNELGATE_BUDGET", "1")]);
    assert_eq!(control.status.code(), Some(1), "{control:?}");
    std::fs::remove_file(program).expect("the client's file");
}
