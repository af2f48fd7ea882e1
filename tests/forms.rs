//! The differential set as files: complete, fresh, and large enough.

use kernelgate::forms::runner::{self, Options, Outcome};
use kernelgate::forms::spec::{self, Spec};
use kernelgate::forms::table;
use kernelgate::forms::verify::{Verdict, orphans, verify};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("forms")
}

fn forms() -> Vec<Spec> {
    spec::load_all(&dir()).expect("forms/ loads")
}

#[test]
fn the_set_holds_at_least_300_forms() {
    let count = forms().len();
    assert!(count >= 300, "{count} forms");
}

#[test]
fn every_file_is_what_the_table_writes_and_no_other_file_is_there() {
    let fresh = "run `cargo run --bin kernelgate forms generate`";
    let mut written = BTreeSet::new();
    for form in table::all() {
        let path = dir().join(form.family).join(format!("{}.ptx", form.name));
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let want = form.text().expect("table line");
        assert!(
            text == want,
            "{} differs from its table line: {fresh}",
            path.display()
        );
        assert!(
            written.insert(path),
            "{}/{} is in the table twice",
            form.family,
            form.name
        );
    }
    let found: BTreeSet<PathBuf> = forms().into_iter().map(|s| s.path).collect();
    assert_eq!(found, written, "{fresh}");
}

/// Opcode and modifiers of every instruction in a PTX text.
fn mnemonics(ptx: &str) -> BTreeSet<String> {
    let guarded = |line: &str| line.split_once(char::is_whitespace).map(|p| p.1.to_owned());
    ptx.lines()
        .map(|line| line.trim().to_owned())
        .filter(|line| line.ends_with(';'))
        .filter_map(|line| match line.starts_with('@') {
            true => guarded(&line),
            false => Some(line),
        })
        .filter_map(|line| {
            line.trim()
                .split([' ', '\t', ';'])
                .next()
                .map(str::to_owned)
        })
        .filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase()))
        .collect()
}

/// Hopper's matrix and bulk-copy instructions, which the CPU driver does not
/// have (cpu-driver/README.md): a form of them could not be verified here.
const BEYOND_THE_CPU_DRIVER: [&str; 3] = ["cp.async.bulk.", "setmaxnreg.", "wgmma."];

#[test]
fn every_instruction_form_of_our_kernels_is_in_the_set() {
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/ptx");
    let covered: BTreeSet<String> = forms().iter().flat_map(|s| mnemonics(&s.ptx)).collect();
    let mut used = BTreeSet::new();
    for entry in std::fs::read_dir(&kernels).expect("kernels/ptx") {
        let path = entry.expect("entry").path();
        if path.extension().is_some_and(|e| e == "ptx") {
            used.extend(mnemonics(&std::fs::read_to_string(&path).expect("PTX")));
        }
    }
    assert!(
        used.len() > 10,
        "only {} instruction forms in {}",
        used.len(),
        kernels.display()
    );
    let beyond = |word: &str| BEYOND_THE_CPU_DRIVER.iter().any(|b| word.starts_with(b));
    let missing = used.difference(&covered).filter(|word| !beyond(word));
    let missing: Vec<&String> = missing.collect();
    assert!(missing.is_empty(), "no form for {missing:?}");
    for prefix in BEYOND_THE_CPU_DRIVER {
        assert!(
            used.iter().any(|word| word.starts_with(prefix)),
            "no kernel uses {prefix} any more: take it off the list"
        );
    }
}

/// Forms newer than the recordings, one a line. Each must still run; record the
/// set again (`kernelgate forms record --help`) and empty the file.
const UNRECORDED: &str = include_str!("unrecorded_forms.txt");

/// The forms on our driver, whatever the machine has.
fn cpu_driver() -> Options {
    let worker = [
        "env",
        "KERNELGATE_DRIVER=cpu",
        env!("CARGO_BIN_EXE_kernelgate"),
        "forms",
        "worker",
    ];
    Options {
        jobs: 2,
        timeout: Duration::from_secs(120),
        worker: worker.map(str::to_owned).to_vec(),
    }
}

#[test]
fn the_cpu_driver_gives_the_bits_that_an_h200_gave() {
    let specs = forms();
    let run = runner::run(&specs, &cpu_driver()).expect("a run");
    let banner = &run.device.banner;
    assert!(banner.contains("kernelgate's CPU driver"), "{banner}");
    let verdicts = verify(&specs, &run, &dir(), "h200").expect("verdicts");
    let unrecorded: Vec<&str> = UNRECORDED.lines().collect();
    let mut waiting = Vec::new();
    let mut wrong = Vec::new();
    for (spec, verdict) in specs.iter().zip(&verdicts) {
        match verdict {
            Verdict::Pass => {}
            Verdict::NoRecording(_) if unrecorded.contains(&spec.id().as_str()) => {
                waiting.push(spec.id());
            }
            other => wrong.push(format!("{}: {other:?}", spec.id())),
        }
    }
    let passed = verdicts.len() - waiting.len() - wrong.len();
    #[allow(clippy::print_stdout)] // The size of the set, for the log.
    {
        println!(
            "{passed} of {} forms as on an H200, {} not recorded yet",
            specs.len(),
            waiting.len()
        );
    }
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert_eq!(waiting, unrecorded, "tests/unrecorded_forms.txt is stale");
    let gone = orphans(&specs, &dir(), "h200").expect("recordings");
    assert!(gone.is_empty(), "recorded, but no such form: {gone:?}");
}

/// A worker in shell: what it answers depends on the form's name.
const SHELL_WORKER: &str = r#"
echo '{"name":"shell","sm":90,"banner":"","driver":""}'
while read path; do
  case "$path" in
    *.s32.ptx) echo '{"fault":"as asked"}'; exit 1;;
    *.u64.ptx) sleep 60;;
    *.s64.ptx) kill -9 $$;;
    *) echo '{"outputs":"00ff"}';;
  esac
done"#;

fn shell(script: &str, jobs: usize) -> Options {
    Options {
        jobs,
        timeout: Duration::from_secs(2),
        worker: ["sh", "-c", script].map(str::to_owned).to_vec(),
    }
}

#[test]
fn a_fault_a_crash_and_a_hang_cost_one_form_each() {
    let mut specs = forms();
    specs.retain(|s| s.family == "integer" && s.name.starts_with("add.") && !s.name.contains("x2"));
    for jobs in [1, 3] {
        let run = runner::run(&specs, &shell(SHELL_WORKER, jobs)).expect("a run");
        for (spec, outcome) in specs.iter().zip(&run.outcomes) {
            let as_asked = match spec.name.as_str() {
                "add.s32" | "add.sat.s32" => *outcome == Outcome::Fault("as asked".into()),
                "add.s64" => matches!(outcome, Outcome::Fault(why) if why.contains("ended")),
                "add.u64" => *outcome == Outcome::TimedOut,
                _ => *outcome == Outcome::Ran(vec![0, 255]),
            };
            assert!(as_asked, "{}, {jobs} jobs: {outcome:?}", spec.id());
        }
    }
}

#[test]
fn a_worker_without_a_device_is_an_error_that_quotes_it() {
    let specs = forms();
    let options = shell("echo no device here >&2; exit 3", 1);
    let error = runner::run(&specs[..1], &options)
        .map(|_| ())
        .expect_err("no device");
    assert!(format!("{error:#}").contains("no device here"), "{error:#}");
}
