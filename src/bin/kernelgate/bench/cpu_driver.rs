//! `kernelgate bench` on the CPU driver: its own speed, never a GPU's rate.

use anyhow::{Context, Result};
use kernelgate::device::Device;
use kernelgate::exit::{Exit, UsageError};
use kernelgate::outln;
use kernelgate::perf::cases::small;
use kernelgate::perf::speed::{Measured, Speed, measure};

use super::Arguments;

pub fn run(arguments: &Arguments, device: &Device) -> Result<Exit> {
    let asked = [
        ("--save", arguments.save.is_some()),
        ("--compare", arguments.compare.is_some()),
        ("--html", arguments.html.is_some()),
        ("--plots", arguments.plots.is_some()),
    ];
    if let Some((option, _)) = asked.iter().find(|(_, asked)| *asked) {
        // The same error as every other action that times a GPU.
        super::Session::new(device, &arguments.options)
            .map(drop)
            .with_context(|| format!("{option} is for times of a GPU"))?;
    }
    let mut cases = small();
    cases.retain(|case| {
        let only = &arguments.only;
        only.is_empty() || only.iter().any(|text| case.id().contains(text))
    });
    if cases.is_empty() {
        let known: Vec<String> = small().iter().map(|case| case.id()).collect();
        return Err(UsageError(format!(
            "--only: the cases on the CPU driver are {}",
            known.join(", ")
        ))
        .into());
    }
    let options = &arguments.options;
    outln!(
        "the speed of kernelgate's CPU driver; no time of a GPU and no TFLOPS follow from it\n\
         median of {} launches after {}",
        options.runs,
        options.warmup
    )?;
    let mut all = Vec::new();
    for case in &cases {
        let measured = measure(device, case, options.warmup, options.runs)
            .with_context(|| format!("case {}", case.id()))?;
        match measured {
            Measured::Speed(speed) => {
                print(&speed)?;
                all.push(speed);
            }
            Measured::Skipped(reason) => outln!("skipped {}: {reason}", case.id())?,
        }
    }
    if let Some(path) = &arguments.json {
        let lines: Vec<String> = all
            .iter()
            .map(|speed| Ok(serde_json::to_string(speed)? + "\n"))
            .collect::<Result<_>>()?;
        std::fs::write(path, lines.concat())
            .with_context(|| format!("while writing {}", path.display()))?;
    }
    Ok(match all.iter().any(|speed| speed.failure.is_some()) {
        true => Exit::Failed,
        false if all.is_empty() => Exit::CouldNotRun,
        false => Exit::Held,
    })
}

fn print(speed: &Speed) -> Result<()> {
    outln!(
        "{:<36} {:.2e} thread-instructions a second ({:.2e} to {:.2e}), {} a launch",
        speed.id,
        speed.rate,
        speed.interval.0,
        speed.interval.1,
        speed.thread_instructions
    )?;
    if let Some(failure) = &speed.failure {
        outln!("  FAILED: {failure}")?;
    }
    Ok(())
}
