//! `kernelgate grade`: run a student's program and grade what it did.

use anyhow::{Context, anyhow, bail};
use clap::{Parser, Subcommand};
use kernelgate::device::{Device, choose, environment};
use kernelgate::exit::{Exit, UsageError};
use kernelgate::lessons::grade::answers::Answers;
use kernelgate::lessons::grade::process::{self, Finished, LIMIT};
use kernelgate::lessons::grade::{Grade, memory_bugs, testing};
use kernelgate::lessons::starter::trial::Trial;
use kernelgate::{out, outln};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// Where the sources of this build lie, for the check that a program is not stale.
const SOURCES: &str = env!("CARGO_MANIFEST_DIR");

/// Grade an exercise: 0 passed, 1 something is missing, 3 could not tell.
///
/// A program that has not ended after 120 seconds, or prints more than 16 MiB, is
/// stopped: it could not be graded (3).
#[derive(Debug, Parser)]
pub struct Arguments {
    #[command(subcommand)]
    exercise: ExerciseArgs,
}

#[derive(Debug, Subcommand)]
enum ExerciseArgs {
    /// The exercise of src/bin/testing_starter.rs.
    Testing(TestingArgs),
    /// The exercise of src/bin/memory_bugs.rs: sanitize it until nothing is left.
    #[command(name = "memory_bugs")]
    MemoryBugs(MemoryBugsArgs),
}

#[derive(Debug, Parser)]
struct TestingArgs {
    /// The program to grade; the testing_starter beside this tool by default.
    #[arg(long, value_name = "PROGRAM")]
    bin: Option<PathBuf>,

    /// The answers file; exercises/testing/answers.toml by default.
    #[arg(long, value_name = "FILE")]
    answers: Option<PathBuf>,

    /// Simulate the kernel on the host instead of running it on a device.
    #[arg(long)]
    stand_in: bool,

    /// Order of the trial run; drawn from the clock by default.
    #[arg(long)]
    seed: Option<u64>,

    /// Print one JSON document instead of text.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Parser)]
struct MemoryBugsArgs {
    /// The program to grade; the memory_bugs beside this tool by default.
    #[arg(long, value_name = "PROGRAM")]
    bin: Option<PathBuf>,

    /// Print one JSON document instead of text.
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// Whether the answer is to be JSON.
    pub fn json(&self) -> bool {
        match &self.exercise {
            ExerciseArgs::Testing(args) => args.json,
            ExerciseArgs::MemoryBugs(args) => args.json,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// When the student's program cannot be run, or ends without a report.
pub fn run(args: &Arguments) -> anyhow::Result<Exit> {
    let grade = match &args.exercise {
        ExerciseArgs::Testing(args) => grade_testing(args)?,
        ExerciseArgs::MemoryBugs(args) => grade_memory_bugs(args)?,
    };
    if args.json() {
        outln!("{}", serde_json::to_string_pretty(&grade)?)?;
    } else {
        out!("{grade}")?;
    }
    Ok(grade.exit())
}

fn grade_testing(args: &TestingArgs) -> anyhow::Result<Grade> {
    let program = process::program(args.bin.as_deref(), "testing_starter")?;
    if args.bin.is_none() {
        let sources = [source("src/bin/testing_starter.rs")];
        process::refuse_stale(&program, &sources, &build_command("testing_starter"))?;
    }
    let answers_file = answers_file(args.answers.as_deref())?;
    let answers = Answers::read(&answers_file)?;
    if !args.stand_in {
        // Without a driver the student's program is not to blame.
        choose(&environment::check()?)?;
    }
    let seed = args.seed.unwrap_or_else(seed_from_clock);
    let mut command = Command::new(&program);
    command.args(["--trial", &seed.to_string()]);
    if args.stand_in {
        command.arg("--stand-in");
    }
    let finished = process::run(&mut command, LIMIT)?;
    let trial = trial(&program, &finished, seed)?;
    Ok(testing::judge(&trial, &answers))
}

/// The trial's report, from the one line that the program prints.
fn trial(program: &Path, finished: &Finished, seed: u64) -> anyhow::Result<Trial> {
    if finished.code == Some(2) && finished.stderr.contains("'--trial'") {
        return Err(UsageError(format!(
            "{} is no build of the exercise: it does not know --trial. Expected the program of \
             src/bin/testing_starter.rs; `{}` builds it, --bin names it",
            program.display(),
            build_command("testing_starter")
        ))
        .into());
    }
    if finished.code != Some(0) {
        bail!(
            "{} --trial ended {} before it reported: {}",
            program.display(),
            match finished.code {
                Some(code) => format!("with exit code {code}"),
                None => "by a signal".to_owned(),
            },
            last_line(&finished.stderr)
        );
    }
    let report = finished.stdout.lines().rfind(|line| line.starts_with('{'));
    let report = report.ok_or_else(|| {
        anyhow!(
            "{} printed no report; expected the program of src/bin/testing_starter.rs, which \
             `{}` builds",
            program.display(),
            build_command("testing_starter")
        )
    })?;
    let trial: Trial = serde_json::from_str(report)
        .with_context(|| format!("reading the report of {}", program.display()))?;
    if trial.seed != seed {
        bail!(
            "{} reported for seed {} and was asked for {seed}",
            program.display(),
            trial.seed
        );
    }
    Ok(trial)
}

fn grade_memory_bugs(args: &MemoryBugsArgs) -> anyhow::Result<Grade> {
    let program = process::program(args.bin.as_deref(), "memory_bugs")?;
    if args.bin.is_none() {
        let sources = [
            source("src/bin/memory_bugs.rs"),
            source("kernels/adjacent_difference.cu"),
            source("kernels/window_sum.cu"),
        ];
        process::refuse_stale(&program, &sources, &build_command("memory_bugs"))?;
    }
    // Opened and closed here: the program opens its own, under the sanitizer.
    let device = Device::open()?.banner();
    let this = std::env::current_exe().context("finding this tool")?;
    let mut command = Command::new(this);
    command
        .arg("sanitize")
        .args(memory_bugs::FLAGS)
        .arg(&program)
        .arg("--json");
    let finished = process::run(&mut command, LIMIT)?;
    refuse_another_program(&program, &finished)?;
    refuse_what_did_not_run(&finished)?;
    Ok(memory_bugs::judge(&finished, device))
}

/// Another program's run says nothing about the exercise either.
fn refuse_another_program(program: &Path, finished: &Finished) -> anyhow::Result<()> {
    let expected = format!(
        "expected the program of src/bin/memory_bugs.rs; `{}` builds it, --bin names it",
        build_command("memory_bugs")
    );
    if let Some(lesson) = memory_bugs::other_lesson(finished) {
        return Err(UsageError(format!(
            "{} is no build of the exercise: its report is of the lesson {lesson}; {expected}",
            program.display()
        ))
        .into());
    }
    // What compute-sanitizer and ours return for a target that never reached CUDA.
    if finished.code == Some(255) && memory_bugs::printed_nothing(finished) {
        bail!("{} never reached CUDA; {expected}", program.display());
    }
    Ok(())
}

/// A run that never reached a device says nothing about the student's program.
fn refuse_what_did_not_run(finished: &Finished) -> anyhow::Result<()> {
    if let Some(error) = memory_bugs::could_not_run(finished) {
        bail!("the program could not run: {error}");
    }
    let said = last_line(&finished.stderr);
    let no_report = !finished.stdout.lines().any(|line| line.starts_with('{'));
    match finished.code {
        Some(2) if no_report => {
            Err(UsageError(format!("kernelgate sanitize refused: {said}")).into())
        }
        Some(3) if no_report => bail!("kernelgate sanitize could not run: {said}"),
        _ => Ok(()),
    }
}

fn answers_file(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(path) = named {
        return match path.is_file() {
            true => Ok(path.to_owned()),
            false => Err(UsageError(format!(
                "there is no answers file {}; exercises/testing/answers.toml is one to start from",
                path.display()
            ))
            .into()),
        };
    }
    let name = "exercises/testing/answers.toml";
    [PathBuf::from(name), source(name)]
        .into_iter()
        .find(|path| path.is_file())
        .ok_or_else(|| {
            UsageError(format!(
                "there is no {name} here; name the answers file with --answers"
            ))
            .into()
        })
}

fn source(path: &str) -> PathBuf {
    Path::new(SOURCES).join(path)
}

/// The command that builds a program into the folder of this tool.
fn build_command(bin: &str) -> String {
    let release = if cfg!(debug_assertions) {
        ""
    } else {
        "--release "
    };
    format!("cargo build {release}--bin {bin}")
}

fn last_line(text: &str) -> &str {
    text.lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("it said nothing")
}

fn seed_from_clock() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as u64)
}
