//! Record every step of the plan on this machine; run them again and compare.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use super::assess::problems;
use super::kept::Kept;
use super::machine::Machine;
use super::normalise::Normal;
use super::plan::{Compare, Needs, Plan, Step};
use super::run::{self, Place, Ran};
use super::transcript::Transcript;
use crate::exit::UsageError;

/// What both directions need.
pub struct Session<'a> {
    /// Which commands.
    pub plan: Plan,
    /// Where steps that write files run, one after the other: a later one may read
    /// what an earlier one wrote. `None` for the lessons, which write none.
    pub work: Option<&'a Path>,
    /// Folder with every binary.
    pub bin_dir: &'a Path,
    /// `evidence`, the folder above the devices' folders.
    pub evidence: &'a Path,
    /// Runs of each step whose exit code is a claim.
    pub repeat: u32,
    /// Only steps with one of these names; empty means all.
    pub only: &'a [String],
    /// Which sanitizer `kernelgate sanitize` runs here, in words for the head.
    pub tool: String,
    /// Whether that sanitizer has this tool.
    pub has_tool: &'a dyn Fn(&str) -> bool,
}

/// What happened to one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// As planned (and, in verify, as recorded).
    Good,
    /// Not, for these reasons.
    Bad(Vec<String>),
    /// Not run, for this reason. Not a pass: the report counts it apart.
    Skipped(String),
}

impl Session<'_> {
    /// The folder of the plan's transcripts of `machine`.
    pub fn folder(&self, machine: &Machine) -> PathBuf {
        let device = self.evidence.join(machine.folder());
        match self.plan.folder() {
            Some(plan) => device.join(plan),
            None => device,
        }
    }

    /// The steps of the plan that were asked for.
    ///
    /// # Errors
    /// A name that is in no step: a misspelt one would otherwise check nothing.
    pub fn steps(&self) -> anyhow::Result<Vec<&'static Step>> {
        let steps = self.plan.steps();
        for name in self.only {
            if steps.iter().all(|step| step.name != name) {
                let names: Vec<_> = steps.iter().map(|s| s.name).collect();
                return Err(UsageError(format!(
                    "there is no step `{name}` in this plan; its steps are {}",
                    names.join(", ")
                ))
                .into());
            }
        }
        let wanted =
            |step: &&Step| self.only.is_empty() || self.only.iter().any(|n| n == step.name);
        Ok(steps.iter().filter(wanted).collect())
    }

    /// # Errors
    /// A binary that a step needs is missing: better said before an hour of steps than
    /// after it.
    pub fn require_binaries(&self, machine: &Machine) -> anyhow::Result<()> {
        for step in self.steps()? {
            if self.cannot_run(step, machine).is_none() {
                run::binary(self.bin_dir, step.program)?;
            }
        }
        Ok(())
    }

    /// # Errors
    /// This device has no folder: every step would only say so again.
    pub fn require_evidence(&self, machine: &Machine) -> anyhow::Result<()> {
        let folder = self.folder(machine);
        ensure!(
            folder.is_dir(),
            "there is no evidence of this device: {} is not there; `kernelgate evidence record` \
             makes it",
            folder.display()
        );
        Ok(())
    }

    /// Runs a step and keeps its transcript if it did what the plan says. The
    /// output of one that did not goes to `rejected/`, which is no evidence.
    pub fn record(&self, step: &Step, machine: &Machine, commit: &str) -> anyhow::Result<Outcome> {
        if let Some(reason) = self.cannot_run(step, machine) {
            return Ok(Outcome::Skipped(reason));
        }
        let (ran, mut problems) = self.run(step, Some(commit))?;
        let transcript = Transcript {
            command: step.command(),
            exit: ran.exit,
            runs: self.runs(step),
            commit: commit.to_string(),
            device: machine.device(),
            driver: machine.driver(),
            tool: self.tool_of(step),
            date: humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string(),
            output: ran.output,
        };
        let folder = self.folder(machine);
        let rejected = folder.join("rejected");
        if problems.is_empty() {
            problems = self.keep_files(step, &folder)?;
        }
        if problems.is_empty() {
            transcript.write(&folder, step.name)?;
            // An earlier failure is settled; the folder goes with its last file.
            let _ = std::fs::remove_file(rejected.join(format!("{}.txt", step.name)));
            let _ = std::fs::remove_dir(&rejected);
            return Ok(Outcome::Good);
        }
        transcript.write(&rejected, step.name)?;
        Ok(Outcome::Bad(problems))
    }

    /// Runs a step again and compares it with the plan and with its transcript.
    pub fn verify(&self, step: &Step, machine: &Machine) -> anyhow::Result<Outcome> {
        if let Some(reason) = self.cannot_run(step, machine) {
            let file = self.folder(machine).join(format!("{}.txt", step.name));
            return Ok(match file.exists() {
                true => Outcome::Bad(vec![format!("there is a transcript, but {reason}")]),
                false => Outcome::Skipped(reason),
            });
        }
        let recorded = match Transcript::read(&self.folder(machine), step.name) {
            Ok(recorded) => recorded,
            Err(error) => return Ok(Outcome::Bad(vec![format!("{error:#}")])),
        };
        let (ran, mut bad) = self.run(step, None)?;
        bad.extend(self.other_place(step, &recorded, machine));
        bad.extend(against_record(step, &recorded, &ran)?);
        Ok(if bad.is_empty() {
            Outcome::Good
        } else {
            Outcome::Bad(bad)
        })
    }

    /// What the head of a transcript says of another machine. Versions may differ;
    /// the device, whose driver and whose sanitizer it was may not.
    fn other_place(&self, step: &Step, recorded: &Transcript, machine: &Machine) -> Vec<String> {
        let tool = self.tool_of(step);
        let driver = machine.driver();
        let rows = [
            ("device", recorded.device.as_str(), machine.device()),
            ("driver", whose(&recorded.driver), whose(&driver).into()),
            ("tool", whose(&recorded.tool), whose(&tool).into()),
        ];
        rows.into_iter()
            .filter(|(_, recorded, here)| recorded != here)
            .map(|(key, recorded, here)| {
                format!("{key}: the transcript is of `{recorded}`, here is `{here}`")
            })
            .collect()
    }

    fn tool_of(&self, step: &Step) -> String {
        match step.sanitizer {
            Some(_) => self.tool.clone(),
            None => "none".into(),
        }
    }

    /// Files that no step of the plan explains.
    pub fn strangers(&self, machine: &Machine) -> anyhow::Result<Vec<String>> {
        let folder = self.folder(machine);
        let mut strangers = Vec::new();
        for entry in std::fs::read_dir(&folder)
            .with_context(|| format!("no evidence folder {}", folder.display()))?
        {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if !self.explains(&name) {
                strangers.push(name);
            }
        }
        strangers.sort();
        Ok(strangers)
    }

    /// A transcript, a file that a step writes or its folder; beside the lessons, the
    /// folder of another plan.
    fn explains(&self, name: &str) -> bool {
        let first = |file: &str| file.split('/').next() == Some(name);
        let mut steps = self.plan.steps().iter();
        steps.any(|step| {
            name.strip_suffix(".txt") == Some(step.name) || step.files.iter().any(|f| first(f))
        }) || (self.plan == Plan::Lessons && Plan::ALL.iter().any(|p| p.folder() == Some(name)))
    }

    /// Copies what the step wrote beside its transcript; what is missing, in words.
    fn keep_files(&self, step: &Step, folder: &Path) -> anyhow::Result<Vec<String>> {
        let mut missing = Vec::new();
        for file in step.files {
            let from = self.work.unwrap_or(Path::new("")).join(file);
            if !std::fs::metadata(&from).is_ok_and(|found| found.len() > 0) {
                missing.push(format!("it did not write {file}"));
                continue;
            }
            let to = folder.join(file);
            std::fs::create_dir_all(to.parent().context("a file lies in a folder")?)?;
            std::fs::copy(&from, &to).with_context(|| format!("cannot write {}", to.display()))?;
        }
        Ok(missing)
    }

    /// Why this machine cannot run the step.
    fn cannot_run(&self, step: &Step, machine: &Machine) -> Option<String> {
        let cpu = machine.is_cpu_driver();
        match step.needs {
            Needs::Gpu if cpu => return Some("it needs a GPU".into()),
            Needs::CpuDriver if !cpu => return Some("it is the CPU driver's".into()),
            _ => {}
        }
        let tool = step.tool().filter(|tool| !(self.has_tool)(tool))?;
        Some(format!("the sanitizer here has no {tool} yet"))
    }

    fn runs(&self, step: &Step) -> u32 {
        if step.repeated { self.repeat.max(1) } else { 1 }
    }

    /// The last run, and the problems of all runs.
    fn run(&self, step: &Step, commit: Option<&str>) -> anyhow::Result<(Ran, Vec<String>)> {
        let place = Place {
            bin_dir: self.bin_dir,
            folder: self.work,
            commit,
        };
        let runs = self.runs(step);
        let mut bad = Vec::new();
        let mut ran = run::step(step, &place)?;
        for number in 1..=runs {
            if number > 1 {
                ran = run::step(step, &place)?;
            }
            let found = problems(step, &ran);
            if !found.is_empty() {
                bad.extend(found.into_iter().map(|p| match runs {
                    1 => p,
                    _ => format!("run {number} of {runs}: {p}"),
                }));
                break;
            }
        }
        Ok((ran, bad))
    }
}

/// The maker of a driver or sanitizer, without its version.
fn whose(text: &str) -> &str {
    let version = |c: char| c == ',' || c.is_ascii_digit();
    let name = text.split(version).next().unwrap_or_default().trim();
    name.strip_suffix(" of unknown version").unwrap_or(name)
}

/// What differs between a transcript and a run of the same step.
fn against_record(step: &Step, recorded: &Transcript, ran: &Ran) -> anyhow::Result<Vec<String>> {
    let mut bad = Vec::new();
    if recorded.command != step.command() {
        bad.push(format!(
            "the transcript is of `{}`, the plan says `{}`",
            recorded.command,
            step.command()
        ));
    }
    if recorded.exit != ran.exit {
        bad.push(format!(
            "exit code: recorded {}, now {}",
            recorded.exit, ran.exit
        ));
    }
    bad.extend(match step.compare {
        Compare::Whole => Normal::of(&recorded.output).differences(&Normal::of(&ran.output)),
        Compare::Lines(patterns) => {
            let recorded = Kept::of(patterns, &recorded.output)?;
            recorded.differences(&Kept::of(patterns, &ran.output)?)
        }
    });
    Ok(bad)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::machine::tests::machine;

    /// A folder of shell scripts in place of the binaries.
    struct Stage {
        bins: tempfile::TempDir,
        evidence: tempfile::TempDir,
    }

    const JSON: &str = r#"{"device":{"name":"Stage","compute_capability":[7,5],"driver":"nvidia","driver_cuda":[13,0]}}"#;

    impl Stage {
        fn new(testing: &str, gate_exit: u8) -> Stage {
            let stage = Stage {
                bins: tempfile::tempdir().unwrap(),
                evidence: tempfile::tempdir().unwrap(),
            };
            stage.script("testing", testing);
            stage.script(
                "ci_gate",
                &format!("[ \"$2\" = --json ] && {{ echo noise >&2; echo '{JSON}'; exit 0; }}; exit {gate_exit}"),
            );
            stage
        }

        fn script(&self, name: &str, body: &str) {
            use std::os::unix::fs::PermissionsExt;
            let path = self.bins.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }

        fn session<'a>(&'a self, only: &'a [String]) -> Session<'a> {
            Session {
                plan: Plan::Lessons,
                work: None,
                bin_dir: self.bins.path(),
                evidence: self.evidence.path(),
                repeat: 3,
                only,
                tool: "a tool".into(),
                has_tool: &|tool| tool == "memcheck",
            }
        }
    }

    fn step(name: &str) -> &'static Step {
        let mut steps = Plan::ALL.into_iter().flat_map(Plan::steps);
        steps.find(|step| step.name == name).unwrap()
    }

    #[test]
    fn a_recorded_run_verifies_until_a_figure_changes() {
        let stage = Stage::new("echo sum 14,171", 0);
        let session = stage.session(&[]);
        let machine = Machine::of(stage.bins.path()).unwrap();
        assert_eq!(machine.folder(), "stage");
        let testing = step("testing");
        assert!(matches!(
            session.verify(testing, &machine).unwrap(),
            Outcome::Bad(_)
        ));
        assert_eq!(
            session.record(testing, &machine, "abc").unwrap(),
            Outcome::Good
        );
        assert_eq!(session.verify(testing, &machine).unwrap(), Outcome::Good);
        stage.script("testing", "echo sum 14,172");
        assert!(matches!(
            session.verify(testing, &machine).unwrap(),
            Outcome::Bad(_)
        ));
        stage.script("testing", "echo sum 14,171; exit 1");
        assert!(matches!(
            session.verify(testing, &machine).unwrap(),
            Outcome::Bad(_)
        ));
    }

    #[test]
    fn a_transcript_of_another_device_driver_or_sanitizer_does_not_verify() {
        let stage = Stage::new("", 0);
        let session = stage.session(&[]);
        let machine = Machine::of(stage.bins.path()).unwrap();
        let testing = step("testing");
        session.record(testing, &machine, "abc").unwrap();
        let folder = session.folder(&machine);
        let recorded = Transcript::read(&folder, "testing").unwrap();
        let edited = |edit: &dyn Fn(&mut Transcript)| {
            let mut transcript = recorded.clone();
            edit(&mut transcript);
            transcript.write(&folder, "testing").unwrap();
            session.verify(testing, &machine).unwrap()
        };
        let same = edited(&|t| t.driver = "NVIDIA 999.1, CUDA 99.0".into());
        assert_eq!(same, Outcome::Good, "a version may differ");
        let edits: [&dyn Fn(&mut Transcript); 3] = [
            &|t| t.device = "NVIDIA H200 (sm_90)".into(),
            &|t| t.driver = "kernelgate's CPU driver 0.1.0, CUDA 13.0".into(),
            &|t| t.tool = "kernelgate's CPU driver 0.1.0".into(),
        ];
        for edit in edits {
            let outcome = edited(edit);
            let Outcome::Bad(problems) = outcome else {
                panic!("{outcome:?}");
            };
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(problems[0].contains("the transcript is of"), "{problems:?}");
        }
    }

    #[test]
    fn a_run_against_the_plan_is_rejected_and_not_kept() {
        let stage = Stage::new("exit 1", 0);
        let session = stage.session(&[]);
        let machine = Machine::of(stage.bins.path()).unwrap();
        let outcome = session.record(step("testing"), &machine, "abc").unwrap();
        assert!(matches!(outcome, Outcome::Bad(_)), "{outcome:?}");
        let folder = session.folder(&machine);
        assert!(!folder.join("testing.txt").exists());
        assert!(folder.join("rejected/testing.txt").exists());
        assert_eq!(session.strangers(&machine).unwrap(), ["rejected"]);

        stage.script("testing", "exit 0");
        let outcome = session.record(step("testing"), &machine, "abc").unwrap();
        assert_eq!(outcome, Outcome::Good);
        assert!(session.strangers(&machine).unwrap().is_empty());
    }

    #[test]
    fn one_bad_run_among_the_repeated_is_noticed() {
        let stage = Stage::new("", 0);
        let count = stage.bins.path().join("count");
        let file = count.display();
        stage.script(
            "ci_gate",
            &format!(
                "[ \"$2\" = --json ] && {{ echo '{JSON}'; exit 0; }}; echo x >> {file}; \
                 [ $(wc -l < {file}) -lt 3 ]"
            ),
        );
        let session = stage.session(&[]);
        let machine = Machine::of(stage.bins.path()).unwrap();
        let outcome = session.record(step("ci_gate"), &machine, "abc").unwrap();
        let Outcome::Bad(problems) = outcome else {
            panic!("{outcome:?}");
        };
        assert!(problems[0].starts_with("run 3 of 3"), "{problems:?}");
    }

    #[test]
    fn a_tool_that_is_not_there_is_skipped_and_says_so() {
        let stage = Stage::new("", 0);
        let session = stage.session(&[]);
        let machine = Machine::of(stage.bins.path()).unwrap();
        let outcome = session
            .record(step("memory_bugs-racecheck"), &machine, "abc")
            .unwrap();
        assert!(matches!(outcome, Outcome::Skipped(reason) if reason.contains("racecheck")));
    }

    /// A plan of commands that print times, with a script in place of `kernelgate`.
    #[test]
    fn a_changed_verdict_fails_where_times_differ_and_files_are_kept() {
        let stage = Stage::new("", 0);
        let work = tempfile::tempdir().unwrap();
        let session = Session {
            plan: Plan::Bench,
            work: Some(work.path()),
            ..stage.session(&[])
        };
        let machine = Machine::of(stage.bins.path()).unwrap();
        let record = |step| session.record(step, &machine, "abc").unwrap();
        let verify = |step| session.verify(step, &machine).unwrap();

        let inject = step("inject");
        let prints = |three: &str, time: &str| {
            stage.script(
                "kernelgate",
                &format!(
                    "echo 'sum with 3 % more work: {three}, +{time} %'; \
                     echo 'sum with 0.3 % more work: SAME, within {time} %'"
                ),
            );
        };
        prints("SLOWER", "3.01");
        assert_eq!(record(inject), Outcome::Good);
        let folder = session.folder(&machine);
        assert!(folder.ends_with("stage/bench"), "{}", folder.display());
        prints("SLOWER", "2.97");
        assert_eq!(verify(inject), Outcome::Good);
        prints("SAME", "3.01");
        assert!(matches!(verify(inject), Outcome::Bad(_)));

        let bench = step("bench");
        let line = "echo 'sum/stream/1GiB/cold  502.24  502.00-502.40  0.1%'";
        stage.script("kernelgate", line);
        let Outcome::Bad(problems) = record(bench) else {
            panic!("its files are missing");
        };
        assert_eq!(problems.len(), bench.files.len(), "{problems:?}");
        let writes = "mkdir -p plots baselines; for f in bench.jsonl bench.html \
             plots/roofline.svg plots/time-gemm.svg plots/time-stream.svg \
             baselines/recorded.json; do echo $KERNELGATE_COMMIT > $f; done";
        stage.script("kernelgate", &format!("{line}; {writes}"));
        assert_eq!(record(bench), Outcome::Good);
        let kept = std::fs::read_to_string(folder.join("plots/roofline.svg")).unwrap();
        assert_eq!(kept, "abc\n");
        assert!(session.strangers(&machine).unwrap().is_empty());
        std::fs::write(folder.join("notes.txt"), "by hand").unwrap();
        assert_eq!(session.strangers(&machine).unwrap(), ["notes.txt"]);
    }

    #[test]
    fn a_step_for_another_driver_is_skipped_and_says_so() {
        let stage = Stage::new("", 0);
        let session = stage.session(&[]);
        for (driver, name) in [("cpu", "huge"), ("nvidia", "cpu-driver-speed")] {
            let outcome = session.record(step(name), &machine("X", driver), "abc");
            assert!(matches!(outcome, Ok(Outcome::Skipped(_))), "{outcome:?}");
        }
    }

    #[test]
    fn a_misspelt_step_is_an_error() {
        let stage = Stage::new("", 0);
        let only = ["tseting".to_string()];
        assert!(stage.session(&only).steps().is_err());
        let only = ["testing".to_string()];
        assert_eq!(stage.session(&only).steps().unwrap().len(), 1);
    }
}
