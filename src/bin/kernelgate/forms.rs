//! `kernelgate forms`: the differential set of instruction forms.

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use kernelgate::device::{choose, environment};
use kernelgate::exit::{Exit, UsageError};
use kernelgate::forms::runner::{self, Options, Outcome, Run};
use kernelgate::forms::spec::{self, Spec};
use kernelgate::forms::verify::{self, Verdict};
use kernelgate::forms::{table, work};
use kernelgate::outln;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::given;

/// One tiny PTX file an instruction form: run them, record, compare with a recording
///
/// Record on a GPU machine that holds this binary and a copy of forms/:
///   KERNELGATE_DRIVER=cuda kernelgate forms record --forms-dir forms --out OUT \
///       --label h200 --commit COMMIT --date YYYY-MM-DD
///   KERNELGATE_DRIVER=cuda kernelgate forms verify --forms-dir forms --recordings OUT
///   tar czf recordings.tgz -C OUT .
/// The second line shows that the answers do not change from run to run. Unpack
/// the archive into forms/ and commit the .rec files.
///
/// Compare the CPU driver with the recording:
///   KERNELGATE_DRIVER=cpu kernelgate forms verify --against h200
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Forms {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print every form: name, least sm, signature, check.
    List(Select),
    /// Run the forms and print how each ended, and its outputs with --outputs.
    Run(RunForms),
    /// Run the forms and write their outputs as <out>/<family>/<label>.rec.
    Record(Record),
    /// Run the forms and compare with a recording.
    Verify(Verify),
    /// Write forms/<family>/<name>.ptx from the table in src/forms/table.
    Generate(Generate),
    /// A child that runs the forms whose paths it reads from its input.
    #[command(hide = true)]
    Worker,
}

#[derive(Args)]
struct Select {
    /// The folder of the forms.
    #[arg(long, default_value = "forms")]
    forms_dir: PathBuf,
    /// Only forms whose family/name contains this text; may be repeated.
    #[arg(long)]
    only: Vec<String>,
}

#[derive(Args)]
struct How {
    #[command(flatten)]
    select: Select,
    /// Children at a time; the machine's cores, at most 8, if not given.
    #[arg(long, value_parser = given::at_least_one)]
    jobs: Option<usize>,
    /// Seconds one form may take.
    #[arg(long, default_value_t = 20, value_parser = given::seconds)]
    timeout: u64,
}

#[derive(Args)]
struct RunForms {
    #[command(flatten)]
    how: How,
    /// Print the outputs of every case.
    #[arg(long)]
    outputs: bool,
}

#[derive(Args)]
struct Record {
    #[command(flatten)]
    how: How,
    /// Where the recordings go; the folder of the forms if not given.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Name of the device in file names, such as h200; `cpu` or `cpu-…` on the CPU
    /// driver.
    #[arg(long, value_parser = given::name)]
    label: String,
    /// Commit that the binary was built from.
    #[arg(long, value_parser = given::commit)]
    commit: String,
    /// Day of the run.
    #[arg(long, value_parser = given::day)]
    date: String,
    /// Replace recordings even if forms that they hold are lost.
    #[arg(long)]
    overwrite: bool,
}

#[derive(Args)]
struct Verify {
    #[command(flatten)]
    how: How,
    /// Label of the recording to compare with.
    #[arg(long, default_value = "h200")]
    against: String,
    /// Where the recordings lie; the folder of the forms if not given.
    #[arg(long)]
    recordings: Option<PathBuf>,
}

#[derive(Args)]
struct Generate {
    /// The folder of the forms.
    #[arg(long, default_value = "forms")]
    forms_dir: PathBuf,
}

pub fn run(forms: &Forms) -> Result<Exit> {
    match &forms.command {
        Command::List(select) => list(select),
        Command::Run(args) => run_forms(args),
        Command::Record(args) => record(args),
        Command::Verify(args) => verify(args),
        Command::Generate(args) => generate(&args.forms_dir),
        Command::Worker => work().map(|()| Exit::Held),
    }
}

fn selected(select: &Select) -> Result<Vec<Spec>> {
    if !select.forms_dir.is_dir() {
        return Err(UsageError(format!(
            "there is no folder {}; --forms-dir names the one of the forms, `forms` in the \
             repository",
            select.forms_dir.display()
        ))
        .into());
    }
    let mut specs = spec::load_all(&select.forms_dir)?;
    if let Some(stray) = select
        .only
        .iter()
        .find(|text| specs.iter().all(|s| !s.id().contains(*text)))
    {
        return Err(UsageError(format!(
            "--only {stray}: no form has that in its family/name; see `kernelgate forms list`"
        ))
        .into());
    }
    if !select.only.is_empty() {
        specs.retain(|s| select.only.iter().any(|text| s.id().contains(text)));
    }
    Ok(specs)
}

fn execute(how: &How, specs: &[Spec]) -> Result<Run> {
    // Here, and not by every child: one error instead of one a form.
    choose(&environment::check()?)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let program = std::env::current_exe().context("own path")?;
    let start = std::time::Instant::now();
    let run = runner::run(
        specs,
        &Options {
            jobs: how.jobs.unwrap_or(cores.min(8)),
            timeout: Duration::from_secs(how.timeout),
            worker: vec![
                program.display().to_string(),
                "forms".into(),
                "worker".into(),
            ],
        },
    )?;
    outln!("{}", run.device.banner)?;
    outln!(
        "{} forms in {:.1} s",
        specs.len(),
        start.elapsed().as_secs_f64()
    )?;
    Ok(run)
}

fn list(select: &Select) -> Result<Exit> {
    let specs = selected(select)?;
    for s in &specs {
        outln!("{:<60} sm_{} {} cases", s.id(), s.sm, s.cases())?;
    }
    outln!("{} forms", specs.len())?;
    Ok(Exit::Held)
}

fn run_forms(args: &RunForms) -> Result<Exit> {
    let specs = selected(&args.how.select)?;
    let run = execute(&args.how, &specs)?;
    let mut bad = 0;
    for (spec, outcome) in specs.iter().zip(&run.outcomes) {
        match outcome {
            Outcome::Ran(bytes) if args.outputs => {
                outln!("{}", spec.id())?;
                for (case, row) in bytes.chunks(spec.signature.packed_bytes()).enumerate() {
                    let hex: String = row.iter().rev().map(|b| format!("{b:02x}")).collect();
                    outln!("  {case:5} {hex}")?;
                }
            }
            Outcome::Ran(_) => {}
            other => {
                bad += 1;
                outln!("{}: {other}", spec.id())?;
            }
        }
    }
    outln!(
        "{} forms, {} ran, {bad} did not",
        specs.len(),
        specs.len() - bad
    )?;
    Ok(if bad == 0 { Exit::Held } else { Exit::Failed })
}

fn record(args: &Record) -> Result<Exit> {
    let specs = selected(&args.how.select)?;
    let out = args.out.as_ref().unwrap_or(&args.how.select.forms_dir);
    let families: BTreeSet<&str> = specs.iter().map(|s| s.family.as_str()).collect();
    // Before minutes are spent, and again when it is known which forms ran.
    refuse_loss(args, out, &families, &specs.iter().collect::<Vec<_>>())?;
    let run = execute(&args.how, &specs)?;
    let device = format!("{} (sm_{})", run.device.name, run.device.sm);
    if !label_fits(&args.label, &device) {
        return Err(UsageError(format!(
            "--label {}: this is {device}; a label is a word of the device's name, `cpu` on \
             the CPU driver",
            args.label
        ))
        .into());
    }
    let ran = specs.iter().zip(&run.outcomes);
    let ran = ran.filter(|(_, outcome)| matches!(outcome, Outcome::Ran(_)));
    let kept: Vec<&Spec> = ran.map(|(spec, _)| spec).collect();
    refuse_loss(args, out, &families, &kept)?;
    let head = [
        format!("device: {device}"),
        format!("driver: {}", run.device.driver),
        format!("date: {}", args.date),
        format!("commit: {}", args.commit),
    ];
    let files = verify::record(&specs, &run, out, &args.label, &head)?;
    let mut missing = 0;
    for (spec, outcome) in specs.iter().zip(&run.outcomes) {
        if !matches!(outcome, Outcome::Ran(_)) {
            missing += 1;
            outln!("not recorded: {}: {outcome}", spec.id())?;
        }
    }
    outln!(
        "{} forms, {} recorded in {} files under {}, {missing} not",
        specs.len(),
        specs.len() - missing,
        files.len(),
        out.display()
    )?;
    Ok(if missing == 0 {
        Exit::Held
    } else {
        Exit::Failed
    })
}

/// Refuses to replace recordings by ones that hold fewer forms.
fn refuse_loss(args: &Record, out: &Path, families: &BTreeSet<&str>, kept: &[&Spec]) -> Result<()> {
    if args.overwrite {
        return Ok(());
    }
    let lost = verify::lost(families, kept, out, &args.label)?;
    let Some(first) = lost.first() else {
        return Ok(());
    };
    Err(UsageError(format!(
        "the recording {} under {} holds {} forms that this run would not write, {first} first; \
         record whole families, or give --overwrite",
        args.label,
        out.display(),
        lost.len()
    ))
    .into())
}

/// Whether a recording of this label can be of this device: the label is a word of the
/// name, or all of them, before any `-suffix`; `cpu` for the CPU driver, which carries
/// the name of the device that it plays.
fn label_fits(label: &str, device: &str) -> bool {
    let name = device.to_lowercase();
    let words: Vec<&str> = match name.contains("cpu driver") {
        true => vec!["cpu"],
        false => name
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|word| !word.is_empty())
            .collect(),
    };
    let label = label.to_lowercase();
    let begins = |word: &str| {
        let rest = label.strip_prefix(word);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    words.iter().any(|word| begins(word))
}

fn verify(args: &Verify) -> Result<Exit> {
    let select = &args.how.select;
    let specs = selected(select)?;
    let recordings = args.recordings.as_ref().unwrap_or(&select.forms_dir);
    let labels = verify::labels(&specs, recordings);
    if !labels.contains(&args.against) {
        return Err(UsageError(format!(
            "--against {}: there is no such recording under {}; there {}",
            args.against,
            recordings.display(),
            match labels.len() {
                0 => "is none at all".to_owned(),
                _ => format!("are: {}", labels.into_iter().collect::<Vec<_>>().join(", ")),
            }
        ))
        .into());
    }
    let run = execute(&args.how, &specs)?;
    let verdicts = verify::verify(&specs, &run, recordings, &args.against)?;
    let (mut passed, mut failed, mut older) = (0, 0, 0);
    let mut shown = BTreeSet::new();
    for (spec, verdict) in specs.iter().zip(&verdicts) {
        match verdict {
            Verdict::Pass => passed += 1,
            Verdict::NeedsSm(sm) => {
                older += 1;
                outln!(
                    "SKIP {}: needs sm_{sm}, this is sm_{}",
                    spec.id(),
                    run.device.sm
                )?;
            }
            other => {
                failed += 1;
                outln!("FAIL {}: {other}", spec.id())?;
            }
        }
    }
    for (family, device) in verify::devices(&specs, recordings, &args.against)? {
        let device = device
            .as_deref()
            .unwrap_or("a device that it does not name");
        if !label_fits(&args.against, device) {
            failed += 1;
            outln!(
                "FAIL {family}: the recording {} is of {device}",
                args.against
            )?;
        } else if shown.insert(device.to_owned()) {
            outln!("recorded on: {device}")?;
        }
    }
    let all = spec::load_all(&select.forms_dir)?;
    for id in verify::orphans(&all, recordings, &args.against)? {
        failed += 1;
        outln!("FAIL {id}: recorded, but there is no such form")?;
    }
    outln!(
        "{} forms against {}: {passed} pass, {failed} fail, {older} need a newer device",
        specs.len(),
        args.against
    )?;
    Ok(match (failed, passed) {
        (1.., _) => Exit::Failed,
        (0, 0) => Exit::CouldNotRun,
        _ => Exit::Held,
    })
}

fn generate(dir: &Path) -> Result<Exit> {
    let written =
        table::write(dir).with_context(|| format!("cannot write forms to {}", dir.display()))?;
    outln!("{written} forms under {}", dir.display())?;
    Ok(Exit::Held)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_names_the_device_and_the_cpu_driver_never_passes_for_one() {
        let cpu = "NVIDIA H200 (kernelgate CPU driver) (sm_90)";
        for (label, device, fits) in [
            ("h200", "NVIDIA H200 (sm_90)", true),
            ("H200-mig", "NVIDIA H200 (sm_90)", true),
            ("nvidia-h200", "NVIDIA H200 (sm_90)", true),
            ("h20", "NVIDIA H200 (sm_90)", false),
            ("t4", "NVIDIA H200 (sm_90)", false),
            ("cpu", "NVIDIA H200 (sm_90)", false),
            ("h200", cpu, false),
            ("cpu", cpu, true),
            ("cpu-driver", cpu, true),
        ] {
            assert_eq!(label_fits(label, device), fits, "{label}: {device}");
        }
    }
}
