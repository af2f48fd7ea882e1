//! Cases too large for the host: operands made and quantised on the device, C checked
//! there, at full or sampled strength, by `kernels/gemm_reference.cu` and
//! `kernels/gemm_judge.cu`.
//!
//! Same generator, recipes, signs and places as the host's: a case means the same
//! wherever it is made. All of a case is enqueued and read back once, at its end; its
//! memory stays for the next case.
//!
//! Memory beside the operands and C: 8 · k · n/128 bytes for the signed columns,
//! 24 · m · n/128 for the windows, and FP64 panels of at most 1 GiB of A (sampled) or
//! 2.5 GiB in all (full). Nothing unquantised is stored.

mod device_matrix;
mod full;
mod model;
mod operands;
mod report;
mod sampled;
#[cfg(test)]
mod tests;
mod workshop;

use std::time::Instant;

use anyhow::Result;

use self::full::Compared;
use self::model::Place;
use self::operands::Large;
pub use self::operands::images;
use self::report::Report;
use self::sampled::{Checked, Dots, Windows};
use self::workshop::Mark;
pub use self::workshop::Workshop;
use super::between;
use super::case::Case;
use super::check::{Outcome, broken};
use super::gate::Judgement;
use super::subject::Subject;
use crate::device::Device;

/// How much of C is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Every element with an FP64 product.
    Full,
    /// Windowed Freivalds and one exact dot a tile.
    Sampled,
}

/// Runs and judges `case` on the device.
///
/// # Errors
/// When the harness itself could not judge; a failing kernel is an [`Outcome`].
pub fn run(
    device: &Device,
    shop: &Workshop,
    subject: &dyn Subject,
    case: &Case,
    depth: Depth,
) -> Result<Outcome> {
    if let Some(reason) = subject.refusal(&case.problem) {
        return Ok(Outcome::Skipped { reason });
    }
    case.problem.check()?;
    match judge(device, shop, subject, case, depth) {
        Ok(outcome) => Ok(outcome),
        Err(error) => Ok(broken(device, &error)),
    }
}

fn judge(
    device: &Device,
    shop: &Workshop,
    subject: &dyn Subject,
    case: &Case,
    depth: Depth,
) -> Result<Outcome> {
    let started = Instant::now();
    shop.scratch.next_case();
    let mark = |mark| shop.mark(device, mark);
    // Uploads come first: each waits for what was launched before it.
    let mut large = Large::place(device, shop, case)?;
    let report = Report::start(device, shop, large.groups.len())?;
    let dots = Dots::place(device, shop, case, &large)?;

    mark(Mark::Start)?;
    large.make(device, shop, case)?;
    large.digests(shop, |operand| report.before(operand))?;
    mark(Mark::Made)?;

    let operands = large.operands();
    for run in 0..2 {
        large.reset(shop, case)?;
        mark(Mark::RunStarts(run))?;
        subject.launch(device, &case.problem, &operands)?;
        mark(Mark::RunEnds(run))?;
        shop.digest(large.c.address(), large.c.bytes, report.c(run))?;
        if run == 0 {
            between::call(device, subject, &case.problem, &operands)?;
        }
    }

    mark(Mark::Checking)?;
    large.digests(shop, |operand| report.after(operand))?;
    large.look_for_stray_stores(shop, &case.problem, &report)?;
    let accumulator = subject.accumulator(&case.problem);
    let groups: Vec<Place<'_>> = (0..large.groups.len())
        .map(|group| Place::new(case, &large, group, accumulator))
        .collect();
    dots.enqueue(device, shop, &groups, &large)?;
    let windows = match depth {
        Depth::Sampled => Some(Windows::enqueue(device, shop, &groups, &large, &report)?),
        Depth::Full => {
            full::enqueue(device, shop, &groups, &large)?;
            None
        }
    };
    mark(Mark::End)?;

    let words = report.read(shop)?;
    let mut checked = Checked {
        findings: words.findings(case, &large),
        ..Checked::default()
    };
    let compared = match &windows {
        Some(windows) => {
            windows.collect(shop, &groups, &words, &mut checked)?;
            Compared {
                worst: None,
                global: None,
            }
        }
        None => full::collect(shop, &groups, &mut checked)?,
    };
    dots.collect(shop, &groups, &mut checked)?;
    let strength = format!(
        "{}; {}",
        strength(device, shop, &checked, depth)?,
        cost(device, shop, started)?
    );
    let judgement = Judgement {
        findings: checked.findings,
        strength,
        compared: checked.elements,
        worst: compared.worst,
        global: compared.global,
    };
    Ok(verdict(judgement, checked.telling))
}

/// What was compared with what, and what that can miss.
fn strength(device: &Device, shop: &Workshop, checked: &Checked, depth: Depth) -> Result<String> {
    Ok(match depth {
        Depth::Sampled => format!(
            "sampled on the device: {} Freivalds windows, {} exact dots; a single element off by \
             {:.3e} is seen",
            checked.windows, checked.dots, checked.smallest_fault
        ),
        Depth::Full => format!(
            "full, FP64 on the device: every element with a product by {}, {} dots by another \
             kernel",
            match shop.library(device)? {
                Some(_) => "cuBLASLt",
                None => "our own kernel",
            },
            checked.dots
        ),
    })
}

/// Time on the device, by part, and of the whole case on the host.
fn cost(device: &Device, shop: &Workshop, started: Instant) -> Result<String> {
    let between = |from, to| shop.milliseconds(device, from, to);
    let run = |run| between(Mark::RunStarts(run), Mark::RunEnds(run));
    let kernel = run(0)?.min(run(1)?);
    let all = between(Mark::Start, Mark::End)?;
    Ok(format!(
        "made in {:.3} ms, kernel {kernel:.3} ms, run twice in {:.3} ms, checked in {:.3} ms: \
         {all:.3} ms on the device, {:.2} x the kernel; {:.2} ms in all",
        between(Mark::Start, Mark::Made)?,
        between(Mark::Made, Mark::Checking)?,
        between(Mark::Checking, Mark::End)?,
        all / kernel.max(1e-9),
        started.elapsed().as_secs_f64() * 1e3,
    ))
}

/// A failure is one whatever was looked at. Without a single reference that is not
/// zero there is no verdict: a kernel that writes zeros would pass too.
fn verdict(judgement: Judgement, telling: usize) -> Outcome {
    if !judgement.findings.is_empty() || judgement.compared == 0 {
        Outcome::Failed(judgement)
    } else if telling == 0 {
        Outcome::Skipped {
            reason: "every reference looked at is zero: a kernel that writes zeros would pass"
                .into(),
        }
    } else {
        Outcome::Passed(judgement)
    }
}
