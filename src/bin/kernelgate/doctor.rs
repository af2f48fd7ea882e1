//! `kernelgate doctor`: what this machine has, and what that enables.

use std::path::Path;

use kernelgate::device::{Device, Survey, survey};
use kernelgate::exit::Exit;
use kernelgate::outln;
use serde::Serialize;

use crate::programs::{COMPUTE_SANITIZER, NVCC, Program};

/// Print what was found (drivers, devices, nvcc, compute-sanitizer) and what each
/// enables.
#[derive(clap::Args)]
pub struct Arguments {
    /// Print one JSON document instead of text.
    #[arg(long)]
    pub json: bool,
}

/// One thing that was looked for.
#[derive(Debug, Serialize)]
struct Finding {
    what: &'static str,
    found: bool,
    detail: String,
    enables: &'static str,
}

/// Exit 0 when some driver has a device. Otherwise nothing could run: 2 for a variable
/// with a wrong value, 3 when there is none.
pub fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    // The device first: it decides which library this process may bind to.
    let (device, exit) = device();
    let drivers = drivers(&survey());
    let mut findings = vec![device];
    findings.extend(drivers);
    findings.push(program(
        &NVCC,
        "rebuilding kernels/*.cu; without it the checked-in PTX is used",
    ));
    findings.push(program(
        &COMPUTE_SANITIZER,
        "`kernelgate sanitize` on a GPU; without it our checkers run on the CPU",
    ));
    if arguments.json {
        outln!("{}", serde_json::to_string(&findings)?)?;
    } else {
        for finding in &findings {
            outln!("{}", line(finding))?;
        }
    }
    Ok(exit)
}

fn line(finding: &Finding) -> String {
    let mark = if finding.found { "found" } else { "missing" };
    format!(
        "{:<18} {mark:<8} {}\n{:28}enables: {}",
        finding.what, finding.detail, "", finding.enables
    )
}

fn device() -> (Finding, Exit) {
    let (found, detail, exit) = match Device::open() {
        Ok(device) => (true, device.banner(), Exit::Held),
        Err(error) => (false, error.to_string(), error.exit()),
    };
    let finding = Finding {
        what: "chosen device",
        found,
        detail,
        enables: "every lesson and test",
    };
    (finding, exit)
}

fn drivers(survey: &Survey) -> [Finding; 2] {
    [
        Finding {
            what: "NVIDIA's driver",
            found: survey.nvidia.usable() && !survey.nvidia.ours,
            detail: survey.nvidia.describe(),
            enables: "runs on a GPU, performance figures, recording evidence of a device",
        },
        Finding {
            what: "CPU driver",
            found: survey.ours.usable(),
            detail: survey.ours.describe(),
            enables: "runs and sanitized runs without a GPU",
        },
    ]
}

fn program(program: &Program, enables: &'static str) -> Finding {
    let file = program.find();
    Finding {
        what: program.name,
        found: file.is_some(),
        detail: match (&file, program.misnamed()) {
            (Some(file), _) => described(program, file),
            (None, Some(named)) => format!(
                "{}={}: there is no such file",
                program.variable,
                named.display()
            ),
            (None, None) => format!("looked in {}", program.places()),
        },
        enables,
    }
}

fn described(program: &Program, file: &Path) -> String {
    format!("{}, {}", file.display(), program.version(file))
}
