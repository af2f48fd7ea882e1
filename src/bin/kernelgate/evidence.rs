//! `kernelgate evidence record|verify|diff`.

use std::path::PathBuf;

use clap::Subcommand;
use kernelgate::evidence::diff;
use kernelgate::evidence::machine::Machine;
use kernelgate::evidence::plan::{Plan, Step};
use kernelgate::evidence::session::{Outcome, Session};
use kernelgate::exit::Exit;
use kernelgate::outln;

use crate::{given, sanitize};

/// Record transcripts of every documented command, or run them again and compare.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run every documented command here and keep the transcripts.
    ///
    /// A run that does not do what the plan says is not kept: its output goes to
    /// rejected/ and the exit code is 1.
    Record {
        #[command(flatten)]
        common: Common,
        /// Commit that the binaries were built from.
        #[arg(long, value_parser = given::commit)]
        commit: String,
        /// The tree had uncommitted changes.
        #[arg(long)]
        dirty: bool,
        /// Folder for the transcripts, one folder a device in it.
        #[arg(long, default_value = "evidence")]
        out: PathBuf,
    },
    /// Run every documented command again and compare with the transcripts.
    Verify {
        #[command(flatten)]
        common: Common,
        /// Folder that `record` wrote.
        #[arg(long, default_value = "evidence")]
        evidence: PathBuf,
    },
    /// Show that the transcripts of memory_bugs and of its clean build differ in the
    /// planted findings alone.
    Diff {
        /// Folders of devices, such as evidence/nvidia-h200.
        #[arg(required = true)]
        folders: Vec<PathBuf>,
    },
}

#[derive(clap::Args)]
struct Common {
    /// Which commands.
    #[arg(long, value_enum, default_value = "lessons")]
    plan: Plan,
    /// Folder with every binary: testing, ci_gate, memory_bugs, memory_bugs_clean,
    /// kernelgate.
    #[arg(long)]
    bin_dir: PathBuf,
    /// Runs of each command whose exit code is a claim (ci_gate).
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Only the steps with these names.
    #[arg(long, value_name = "STEP")]
    only: Vec<String>,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    match &arguments.command {
        Command::Record {
            common,
            commit,
            dirty,
            out,
        } => {
            let commit = match dirty {
                true => format!("{commit}, dirty"),
                false => commit.clone(),
            };
            each_step(common, out, |session, step, machine| {
                session.record(step, machine, &commit)
            })
        }
        Command::Verify { common, evidence } => {
            with_session(common, evidence, |session, machine| {
                session.require_evidence(machine)
            })?;
            let exit = each_step(common, evidence, |session, step, machine| {
                session.verify(step, machine)
            })?;
            if !common.only.is_empty() {
                return Ok(exit);
            }
            with_session(common, evidence, |session, machine| {
                let strangers = session.strangers(machine)?;
                for name in &strangers {
                    outln!("GATE: {name} is the transcript of no documented command")?;
                }
                Ok(if strangers.is_empty() {
                    exit
                } else {
                    Exit::Failed
                })
            })
        }
        Command::Diff { folders } => differences(folders),
    }
}

fn with_session<T>(
    common: &Common,
    evidence: &std::path::Path,
    body: impl FnOnce(&Session, &Machine) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let backend = sanitize::backend()?;
    let work = tempfile::tempdir()?;
    let session = Session {
        plan: common.plan,
        work: (common.plan != Plan::Lessons).then(|| work.path()),
        bin_dir: &common.bin_dir,
        evidence,
        repeat: common.repeat,
        only: &common.only,
        tool: backend.describe(),
        has_tool: &|tool| backend.has(tool),
    };
    session.steps()?;
    let machine = Machine::of(&common.bin_dir)?;
    session.require_binaries(&machine)?;
    body(&session, &machine)
}

fn each_step(
    common: &Common,
    evidence: &std::path::Path,
    act: impl Fn(&Session, &Step, &Machine) -> anyhow::Result<Outcome>,
) -> anyhow::Result<Exit> {
    with_session(common, evidence, |session, machine| {
        outln!("evidence: {}", session.folder(machine).display())?;
        let (mut good, mut bad, mut skipped) = (0, 0, 0);
        for step in session.steps()? {
            match act(session, step, machine)? {
                Outcome::Good => {
                    good += 1;
                    outln!("ok   {}: exit {}", step.command(), step.exit)?;
                }
                Outcome::Bad(problems) => {
                    bad += 1;
                    for problem in problems {
                        outln!("GATE: {}: {problem}", step.command())?;
                    }
                }
                Outcome::Skipped(reason) => {
                    skipped += 1;
                    outln!("skip {}: {reason}", step.command())?;
                }
            }
        }
        outln!("{good} as they should be, {bad} not, {skipped} skipped")?;
        Ok(match (good, bad) {
            (_, 1..) => Exit::Failed,
            (0, 0) => Exit::CouldNotRun,
            _ => Exit::Held,
        })
    })
}

fn differences(folders: &[PathBuf]) -> anyhow::Result<Exit> {
    let mut exit = Exit::Held;
    for folder in folders {
        let difference = diff::of_folder(folder)?;
        outln!("{}: the shipped build has", folder.display())?;
        for line in &difference.planted {
            outln!("  {line}")?;
        }
        for line in &difference.unexplained {
            outln!("GATE: not planted: {line}")?;
            exit = Exit::Failed;
        }
        if difference.unexplained.is_empty() {
            outln!("  and nothing else that the clean build has not")?;
        }
    }
    Ok(exit)
}
