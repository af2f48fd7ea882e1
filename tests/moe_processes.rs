//! Ranks as processes on the CPU driver: a job that ends well, and jobs that lose a
//! rank or their launcher.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kernelgate"));
    command.arg("moe").args(arguments);
    command.env("KERNELGATE_DRIVER", "cpu");
    for name in [
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
    ] {
        command.env_remove(name);
    }
    command
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn processes_pass_the_check_and_name_the_faults() {
    let check = [
        "check",
        "--ranks",
        "2",
        "--processes",
        "--case",
        "odd-counts",
    ];
    let output = command(&check).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(
        text(&output).contains("2 of 2 cases passed"),
        "{}",
        text(&output)
    );
    let faults = [
        "faults",
        "--ranks",
        "2",
        "--processes",
        "--layout",
        "masked",
        "--json",
    ];
    let output = command(&faults).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let board: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = board["rows"].as_array().unwrap();
    assert_eq!(rows.iter().filter(|row| row["named"] == true).count(), 8);
}

#[test]
fn a_job_that_something_else_started_meets_at_its_store() {
    let start = |rank: &str| {
        let mut command = command(&["check", "--case", "softmax", "--layout", "masked"]);
        command
            .envs([("RANK", rank), ("WORLD_SIZE", "2"), ("LOCAL_RANK", rank)])
            .envs([("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29517")])
            .env("KERNELGATE_TOKEN", "a secret of this test")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let (second, first) = (start("1"), start("0"));
    let (first, second) = (
        first.wait_with_output().unwrap(),
        second.wait_with_output().unwrap(),
    );
    assert_eq!(first.status.code(), Some(0), "{}", text(&first));
    assert_eq!(second.status.code(), Some(0), "{}", text(&second));
    assert!(text(&first).contains("1 of 1 cases passed"));
    assert!(second.stdout.is_empty(), "only rank 0 prints");
}

#[test]
fn killed_stopped_and_hanging_ranks_are_named_in_time() {
    let output = command(&["loss", "--ranks", "3", "--timeout", "5"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    for how in ["kill", "stop", "spin"] {
        let claim = format!("holds: {how} rank 1 of 3: rank 1 lost");
        assert!(text(&output).contains(&claim), "{}", text(&output));
    }
}

/// A long job; the launcher and the processes of its ranks.
fn long_job() -> (Child, Vec<u32>) {
    let mut launcher = command(&[
        "check",
        "--ranks",
        "3",
        "--processes",
        "--case",
        "delays",
        "--layout",
        "masked",
        "--iterations",
        "100000",
    ])
    .stdout(Stdio::null())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    let mut lines = BufReader::new(launcher.stderr.take().unwrap()).lines();
    let ranks = (0..3)
        .map(|_| {
            let line = lines.next().unwrap().unwrap();
            line.rsplit(' ').next().unwrap().parse().unwrap()
        })
        .collect();
    // Into mid-run; keep reading so that nobody writes into a closed pipe.
    std::thread::sleep(Duration::from_secs(2));
    std::thread::spawn(move || lines.for_each(drop));
    (launcher, ranks)
}

fn is_running(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
    // A zombie is over; only its parent has not looked yet.
    stat.is_ok_and(|stat| !stat.contains(") Z"))
}

fn gone_within(processes: &[u32], time: Duration) -> bool {
    let started = Instant::now();
    while processes.iter().any(|&process| is_running(process)) {
        if started.elapsed() > time {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

fn kill(process: u32) {
    let done = Command::new("kill")
        .args(["-9", &process.to_string()])
        .status();
    assert!(done.unwrap().success());
}

#[test]
fn killing_one_rank_ends_the_job_and_leaves_no_process() {
    let (mut launcher, ranks) = long_job();
    assert!(ranks.iter().all(|&rank| is_running(rank)));
    let started = Instant::now();
    kill(ranks[2]);
    assert_eq!(launcher.wait().unwrap().code(), Some(3));
    assert!(started.elapsed() < Duration::from_secs(6));
    assert!(gone_within(&ranks, Duration::from_secs(1)));
}

#[test]
fn killing_the_launcher_leaves_no_process() {
    let (mut launcher, ranks) = long_job();
    assert!(ranks.iter().all(|&rank| is_running(rank)));
    launcher.kill().unwrap();
    launcher.wait().unwrap();
    assert!(gone_within(&ranks, Duration::from_secs(3)));
}

/// Two ranks that something else started, in mid-run.
fn foreign_job(port: &str) -> [Child; 2] {
    ["0", "1"].map(|rank| {
        let mut command = command(&[
            "check",
            "--case",
            "delays",
            "--layout",
            "masked",
            "--iterations",
            "100000",
        ]);
        command
            .envs([("RANK", rank), ("WORLD_SIZE", "2"), ("LOCAL_RANK", rank)])
            .envs([("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", port)])
            .env("KERNELGATE_TOKEN", "a secret of this test")
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    })
}

/// No launcher of ours watches: the store does, or its end is noticed.
#[test]
fn a_killed_rank_of_a_foreign_job_is_named_by_the_other_also_when_it_held_the_store() {
    for (port, dying) in [("29531", 1), ("29533", 0)] {
        let mut ranks = foreign_job(port);
        std::thread::sleep(Duration::from_secs(2));
        let started = Instant::now();
        kill(ranks[dying].id());
        ranks[dying].wait().unwrap();
        let [first, second] = ranks;
        let other = if dying == 0 { second } else { first };
        let output = other.wait_with_output().unwrap();
        assert!(started.elapsed() < Duration::from_secs(8));
        assert_eq!(output.status.code(), Some(3), "{}", text(&output));
        let named = format!("rank {dying} lost");
        assert!(text(&output).contains(&named), "{}", text(&output));
    }
}
