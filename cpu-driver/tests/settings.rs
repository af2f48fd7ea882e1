//! Environment variables with wrong values, seen from an outside program: the
//! test starts itself and opens `libcuda.so` in the child.

mod outside;

use std::process::{Command, Output};

const PROGRAM: &str = "KERNELGATE_TEST_PROGRAM";

/// Not a test of its own: the child's part.
#[test]
fn child() {
    if std::env::var_os(PROGRAM).is_none() {
        return;
    }
    let code = outside::init_alone();
    println!("cuInit returned {code}");
    // Asked twice, the answer stays.
    assert_eq!(outside::init_alone(), code);
}

fn cu_init_with(variable: &str, value: &str) -> Output {
    let mut command = Command::new(std::env::current_exe().expect("the test binary"));
    command.args(["--exact", "child", "--nocapture"]);
    for known in ["PROFILE", "MEMORY", "DEVICES", "BUDGET", "LOG", "SANITIZE"] {
        command.env_remove(format!("KERNELGATE_{known}"));
    }
    command.env(PROGRAM, "1").env(variable, value);
    command.output().expect("the child starts")
}

#[test]
fn cu_init_fails_on_a_wrong_value_and_says_what_was_expected() {
    for (variable, value, expected) in [
        ("KERNELGATE_PROFILE", "h100", "h200 or t4"),
        ("KERNELGATE_MEMORY", "4TiB", "such as 4GiB"),
        ("KERNELGATE_DEVICES", "many", "from 0 to 64"),
        ("KERNELGATE_BUDGET", "1e9", "warp-instructions"),
        ("KERNELGATE_LOG", "everything", "calls or off"),
    ] {
        let child = cu_init_with(variable, value);
        let (out, err) = (
            String::from_utf8_lossy(&child.stdout),
            String::from_utf8_lossy(&child.stderr),
        );
        assert!(
            out.contains("cuInit returned 1\n"),
            "{variable}: {out}{err}"
        );
        let lines: Vec<&str> = err.lines().filter(|l| l.contains(variable)).collect();
        assert_eq!(lines.len(), 1, "one line names {variable}: {err}");
        for part in ["kernelgate driver:", expected, value] {
            assert!(lines[0].contains(part), "{part}: {err}");
        }
    }
}

#[test]
fn right_values_and_zero_devices_keep_their_meaning() {
    for (variable, value, code) in [
        ("KERNELGATE_PROFILE", "t4", 0),
        ("KERNELGATE_MEMORY", "64MiB", 0),
        ("KERNELGATE_DEVICES", "2", 0),
        ("KERNELGATE_DEVICES", "0", 100),
        ("KERNELGATE_BUDGET", "1000", 0),
        ("KERNELGATE_LOG", "off", 0),
    ] {
        let child = cu_init_with(variable, value);
        let out = String::from_utf8_lossy(&child.stdout);
        assert!(
            out.contains(&format!("cuInit returned {code}\n")),
            "{variable}={value}: {out}"
        );
    }
}
