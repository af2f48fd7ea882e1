//! Peak memory of a process on the driver: its own device allocations and at
//! most 100 MiB more, three times its allocations and 100 MiB under memcheck.

mod outside;

use std::process::Command;

use cuda::check::config::{Config, VARIABLE};
use outside::Cuda;

const PROGRAM: &str = "KERNELGATE_TEST_PROGRAM";
const MIB: usize = 1 << 20;

/// Fills device memory in a pattern that would pile up if freed memory were
/// kept; never more than 192 MiB are live.
#[test]
fn child() {
    let Ok(program) = std::env::var(PROGRAM) else {
        return;
    };
    let cuda = Cuda::start();
    let filled = |bytes: usize| {
        let address = cuda.alloc(bytes);
        assert_eq!(cuda.memset(address, 0xA5, bytes), 0);
        address
    };
    match program.as_str() {
        "large" => {
            let _kept = [filled(128 * MIB), filled(32 * MIB)];
            for _ in 0..20 {
                assert_eq!(cuda.mem_free(filled(32 * MIB)), 0);
            }
        }
        "small" => {
            let kept: Vec<u64> = (0..192 * 64).map(|_| filled(16 << 10)).collect();
            for address in kept {
                assert_eq!(cuda.mem_free(address), 0);
                assert_eq!(cuda.mem_free(filled(16 << 10)), 0);
            }
        }
        other => panic!("{other}"),
    }
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.trim().strip_suffix(" kB"))
        .expect("a peak");
    println!("PEAK {peak}");
    std::process::exit(0);
}

fn peak_mib(program: &str, config: Option<Config>) -> usize {
    let mut command = Command::new(std::env::current_exe().expect("the test binary"));
    command
        .args(["child", "--exact", "--nocapture"])
        .env(PROGRAM, program)
        .env_remove(VARIABLE);
    let checked = config.is_some();
    if let Some(config) = config {
        command.env(VARIABLE, config.to_variable());
    }
    let output = command.output().expect("a child process");
    let text = String::from_utf8_lossy(&output.stdout);
    let failed = String::from_utf8_lossy(&output.stderr);
    let peak = text.lines().find_map(|line| line.split_once("PEAK "));
    let (_, peak) = peak.unwrap_or_else(|| panic!("{text}{failed}"));
    let peak = peak.parse::<usize>().expect("kibibytes") / 1024;
    let how = match checked {
        true => "memcheck",
        false => "unchecked",
    };
    println!("{program}, {how}: peak {peak} MiB with at most 192 MiB live");
    peak
}

#[test]
fn a_process_needs_its_allocations_and_100_mib() {
    for program in ["large", "small"] {
        let peak = peak_mib(program, None);
        assert!((192..=192 + 100).contains(&peak), "{program}: {peak} MiB");
    }
}

#[test]
fn under_memcheck_it_needs_at_most_three_times_that() {
    for program in ["large", "small"] {
        let config = Config {
            leak_check: true,
            ..Config::default()
        };
        let peak = peak_mib(program, Some(config));
        assert!(
            (192..=3 * 192 + 100).contains(&peak),
            "{program}: {peak} MiB"
        );
    }
}
