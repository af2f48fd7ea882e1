//! The tool and the lessons on the CPU driver, from outside: how a program is led to
//! it, and that evidence of a run is kept, verified, and doubted when edited. Gives
//! the same answer on a machine with a GPU, because each run asks for the driver.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

const KERNELGATE: &str = env!("CARGO_BIN_EXE_kernelgate");
const CI_GATE: &str = env!("CARGO_BIN_EXE_ci_gate");
const OURS: &str = "kernelgate's CPU driver";

fn run(program: &str, arguments: &[&str], environment: &[(&str, &OsStr)]) -> Output {
    Command::new(program)
        .args(arguments)
        .env_remove("KERNELGATE_DRIVER")
        .envs(environment.iter().copied())
        .output()
        .expect("the binary starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn driver_path() -> String {
    let output = run(KERNELGATE, &["driver-path"], &[]);
    text(&output.stdout).trim().to_string()
}

/// Three ways to our driver, and what the first line says.
#[test]
fn the_first_line_says_which_driver_and_why() {
    let folder = driver_path();
    let library = format!("{folder}/libcuda.so");
    let ways: [(&str, &str, &str); 4] = [
        ("KERNELGATE_DRIVER", "cpu", "because KERNELGATE_DRIVER=cpu"),
        ("KERNELGATE_DRIVER", &library, "because KERNELGATE_DRIVER="),
        (
            "LD_LIBRARY_PATH",
            &folder,
            "because it is first on the library path",
        ),
        (
            "LD_PRELOAD",
            &library,
            "because it is first on the library path",
        ),
    ];
    for (variable, value, why) in ways {
        let output = run(CI_GATE, &["--fixed"], &[(variable, value.as_ref())]);
        let stdout = text(&output.stdout);
        let first = stdout.lines().next().unwrap_or_default();
        let label = format!("{variable}={value}: {}{}", stdout, text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{label}");
        assert!(first.starts_with("device: "), "{label}");
        assert!(first.contains(OURS) && first.contains(why), "{label}");
    }
}

#[test]
fn asking_for_nvidia_never_falls_back_to_ours() {
    let folder = driver_path();
    let environment: [(&str, &OsStr); 2] = [
        ("KERNELGATE_DRIVER", "cuda".as_ref()),
        ("LD_LIBRARY_PATH", folder.as_ref()),
    ];
    let output = run(CI_GATE, &[], &environment);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("LD_LIBRARY_PATH"));
}

#[test]
fn json_findings_are_one_document_after_the_programs_output() {
    let cpu: [(&str, &OsStr); 1] = [("KERNELGATE_DRIVER", "cpu".as_ref())];
    let output = run(
        KERNELGATE,
        &["sanitize", "--json", "--error-exitcode", "9", CI_GATE],
        &cpu,
    );
    assert_eq!(output.status.code(), Some(9));
    let stdout = text(&output.stdout);
    let at = stdout.find("\n{").expect("a document");
    let document: serde_json::Value = serde_json::from_str(&stdout[at..]).expect("JSON");
    assert_eq!(
        document["errors"], 2,
        "the write and the failed synchronise"
    );
    assert!(!stdout.contains("========="), "the text is replaced");
}

/// Steps that need no binary of the `clean` feature.
const STEPS: [&str; 3] = [
    "ci_gate",
    "ci_gate-kernel-mode-exitcode",
    "memory_bugs-kernel-mode-leaks",
];

fn evidence(action: &str, folder: &Path, only: &[&str]) -> Output {
    let bins = Path::new(KERNELGATE).parent().expect("a folder");
    let mut words = vec!["evidence", action, "--bin-dir", bins.to_str().unwrap()];
    words.push(if action == "record" {
        "--out"
    } else {
        "--evidence"
    });
    words.push(folder.to_str().unwrap());
    if action == "record" {
        words.extend(["--commit", "test", "--repeat", "2"]);
    }
    for step in only {
        words.extend(["--only", step]);
    }
    run(KERNELGATE, &words, &[("KERNELGATE_DRIVER", "cpu".as_ref())])
}

#[test]
fn evidence_verifies_as_recorded_and_not_after_an_edit() {
    let folder = tempfile::tempdir().unwrap();
    let recorded = evidence("record", folder.path(), &STEPS);
    assert_eq!(
        recorded.status.code(),
        Some(0),
        "{}",
        text(&recorded.stdout)
    );
    let verified = evidence("verify", folder.path(), &STEPS);
    assert_eq!(
        verified.status.code(),
        Some(0),
        "{}",
        text(&verified.stdout)
    );

    let file = folder
        .path()
        .join("cpu-driver/memory_bugs-kernel-mode-leaks.txt");
    let original = std::fs::read_to_string(&file).unwrap();
    for (from, to) in [
        ("thread (6,0,0)", "thread (5,0,0)"),
        ("24,604 bytes", "24,600 bytes"),
        ("window_sum.cu:", "window_sum.cu:1"),
        ("PASS diffNext:", "FAIL diffNext:"),
        ("exit code: 1", "exit code: 0"),
        ("block (24,0,0)", "block (25,0,0)"),
    ] {
        assert!(original.contains(from), "{from}");
        std::fs::write(&file, original.replacen(from, to, 1)).unwrap();
        let edited = evidence("verify", folder.path(), &STEPS[2..]);
        assert_eq!(edited.status.code(), Some(1), "{from} -> {to}");
        assert!(text(&edited.stdout).contains("GATE:"), "{from} -> {to}");
    }
    std::fs::remove_file(&file).unwrap();
    let missing = evidence("verify", folder.path(), &STEPS[2..]);
    assert_eq!(missing.status.code(), Some(1));
}

/// Every file in `evidence/` is a transcript of a plan, with commit, device and date,
/// or a file that a step of the plan writes.
#[test]
fn every_checked_in_transcript_is_whole_and_of_the_plan() {
    use kernelgate::evidence::plan::Plan;
    use kernelgate::evidence::transcript::Transcript;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("evidence");
    let mut transcripts = 0;
    for device in std::fs::read_dir(&root).expect("evidence/").flatten() {
        for plan in Plan::ALL {
            let folder = device.path().join(plan.folder().unwrap_or(""));
            for file in files(&folder, plan != Plan::Lessons) {
                let path = folder.join(&file);
                let short = path.strip_prefix(&root).unwrap().display().to_string();
                let mut steps = plan.steps().iter();
                if steps.any(|step| step.files.contains(&file.as_str())) {
                    continue;
                }
                let name = file.strip_suffix(".txt").unwrap_or(&file);
                let mut steps = plan.steps().iter();
                let step = steps
                    .find(|step| step.name == name)
                    .unwrap_or_else(|| panic!("evidence/{short} is of no step"));
                let transcript = Transcript::read(&folder, name).unwrap();
                assert_eq!(transcript.command, step.command(), "{short}");
                assert_eq!(transcript.exit, step.exit, "{short}");
                transcripts += 1;
            }
        }
    }
    assert!(transcripts >= 20, "{transcripts} transcripts");
}

/// Paths of the files below a folder, relative to it.
fn files(folder: &Path, below: bool) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !entry.path().is_dir() {
            found.push(name);
        } else if below {
            let inner = files(&entry.path(), true);
            found.extend(inner.into_iter().map(|file| format!("{name}/{file}")));
        }
    }
    found
}
