//! `kernelgate gemm faults`: the scoreboard of planted faults.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use kernelgate::device::Device;
use kernelgate::exit::{Exit, UsageError};
use kernelgate::gemm::check::Limits;
use kernelgate::gemm::faults::{CATALOGUE, Fault};
use kernelgate::gemm::limits;
use kernelgate::gemm::planted::Plant;
use kernelgate::gemm::report;
use kernelgate::gemm::shapes::{self, LADDER_CAP, Sweep};
use kernelgate::gemm::subject::Subject;
use kernelgate::gemm::{
    named::named_cases,
    scoreboard::{FalseAlarms, Scoreboard, false_alarms, trials},
};
use kernelgate::{errln, out};

use crate::given;

use super::progress::Progress;
use super::subjects::{Found, find};

/// Plant wrong kernels and print which gate rejects which
///
/// Exit 0 only if our gate catches every fault that this device can run and accepts
/// every correct kernel; 3 if it can run none.
#[derive(Args)]
pub struct Arguments {
    /// Only this fault (repeat for more)
    #[arg(long, value_name = "NAME")]
    fault: Vec<String>,
    /// Seed of the inputs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Add cases with k = 16,384, for a GPU
    #[arg(long)]
    deep: bool,
    /// Correct kernels for the false-alarm row
    #[arg(long, default_value = "all")]
    subject: String,
    /// Random cases for the false-alarm row, besides the ladder
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = given::count)]
    cases: usize,
    /// Most multiply-adds of those random cases
    #[arg(long, value_name = "N", default_value_t = LADDER_CAP)]
    cap: u128,
    /// Leave out the false-alarm row
    #[arg(long)]
    no_alarms: bool,
    /// Leave out the detection limits (they are left out with --fault, too)
    #[arg(long)]
    no_limits: bool,
    /// The scoreboard as one JSON document
    #[arg(long)]
    pub json: bool,
    /// The scoreboard as Markdown
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Write it to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Arguments {
    fn faults(&self) -> Result<Vec<&'static Fault>> {
        if self.fault.is_empty() {
            return Ok(CATALOGUE.iter().collect());
        }
        self.fault
            .iter()
            .map(|name| {
                CATALOGUE
                    .iter()
                    .find(|fault| fault.name == name)
                    .ok_or_else(|| {
                        let known: Vec<&str> = CATALOGUE.iter().map(|fault| fault.name).collect();
                        UsageError(format!(
                            "no fault `{name}`; there are: {}",
                            known.join(", ")
                        ))
                        .into()
                    })
            })
            .collect()
    }
}

impl Arguments {
    /// The options that shape the result.
    fn options(&self) -> String {
        let mut text = format!(" --seed {} --subject {}", self.seed, self.subject);
        if self.deep {
            text += " --deep";
        }
        if self.cases > 0 {
            text += &format!(" --cases {} --cap {}", self.cases, self.cap);
        }
        text
    }
}

pub fn run(arguments: &Arguments) -> Result<Exit> {
    if let Some(path) = &arguments.out {
        given::writable(path)?;
    }
    let faults = arguments.faults()?;
    let device = Device::open()?;
    errln!("{}", device.banner());
    let cases = named_cases(arguments.seed, arguments.deep);
    let pairs = cases
        .iter()
        .map(|named| faults.iter().filter(|f| named.takes(f)).count())
        .sum();
    let mut progress = Progress::new(pairs);
    let (trials, skipped) = trials(&device, &faults, &cases, |doing| progress.step(doing))
        .context("while running planted faults")?;
    drop(progress);
    let (limits, one_block) = if arguments.no_limits || !arguments.fault.is_empty() {
        (Vec::new(), Vec::new())
    } else {
        let mut progress = Progress::new(limits::steps() + limits::one_block_steps());
        (
            limits::measure(&device, limits::SHAPE, arguments.seed, |doing| {
                progress.step(doing)
            })
            .context("while measuring detection limits")?,
            limits::one_block(&device, arguments.seed, |doing| progress.step(doing))?,
        )
    };
    let board = Scoreboard {
        trials,
        skipped,
        limits,
        one_block,
        alarms: if arguments.no_alarms {
            FalseAlarms::default()
        } else {
            alarms(arguments, &device)?
        },
    };
    let text = if arguments.json {
        serde_json::to_string_pretty(&board)? + "\n"
    } else if arguments.markdown {
        format!(
            "`kernelgate gemm faults{}` on {}\n\n{}",
            arguments.options(),
            device.banner().trim_start_matches("device: "),
            report::markdown(&board)
        )
    } else {
        report::text(&board)
    };
    match &arguments.out {
        Some(path) => std::fs::write(path, text)
            .with_context(|| format!("cannot write {}", path.display()))?,
        None => out!("{text}")?,
    }
    if board.trials.is_empty() && !board.skipped.is_empty() {
        return Ok(Exit::CouldNotRun);
    }
    let held = if arguments.no_alarms {
        !board.trials.is_empty() && board.missed().is_empty()
    } else {
        board.holds()
    };
    Ok(if held { Exit::Held } else { Exit::Failed })
}

fn alarms(arguments: &Arguments, device: &Device) -> Result<FalseAlarms> {
    let plant = Plant::load(device)?;
    let found = find(device, &plant, &arguments.subject)?;
    let mut subjects: Vec<&dyn Subject> = Vec::new();
    for found in &found {
        match found {
            Found::Subject(subject) => subjects.push(subject.as_ref()),
            Found::Skipped { name, reason } => errln!("skipped {name}: {reason}"),
        }
    }
    let mut cases = shapes::ladder(arguments.seed, LADDER_CAP);
    cases.extend(shapes::sweep(&Sweep {
        seed: arguments.seed,
        cases: arguments.cases,
        max_m: 4096,
        cap: arguments.cap.max(256 * 256),
    }));
    let limits = Limits {
        full: arguments.cap.max(LADDER_CAP),
        ..Limits::default()
    };
    let mut progress = Progress::new(cases.len() * subjects.len());
    false_alarms(device, &subjects, &cases, &limits, |doing| {
        progress.step(doing)
    })
    .context("while running correct kernels")
}
