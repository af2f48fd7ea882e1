//! Our gate: what a run left behind, judged against the full reference.
//!
//! In this order, each able to fail on its own:
//!
//! | check | rejects |
//! |---|---|
//! | guards | a byte changed before or after a buffer |
//! | inputs | an operand that the kernel changed |
//! | untouched | a store to masked rows or to the padding between rows of C |
//! | coverage | an element of C still poisoned |
//! | exact | integers: anything but the one right value (tolerance zero) |
//! | elementwise | an element outside its computed interval |
//! | global | calc_diff above the limit the same intervals allow |
//! | rerun | a second run, after a call of another size, with other bits |
//!
//! `global` cannot fail where `elementwise` passes; it is printed beside it
//! because suites speak in it, and it is a gate of its own on the scoreboard.

mod memory;
#[cfg(test)]
mod tests;
mod values;

use anyhow::{Result, bail, ensure};
use serde::Serialize;

use super::bound::Accumulator;
use super::case::Case;
use super::operands::Operands;
use super::reference::SegmentReference;
use memory::{coverage, rerun, untouched};
pub(super) use values::global;
use values::{compare, diagnosis, sample};

/// What a kernel left behind, as bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Execution {
    /// All of C, padding and masked rows included: c_rows × ldc elements.
    pub c: Vec<u8>,
    /// C of a second run from the same start.
    pub rerun: Vec<u8>,
    /// What C held before each run.
    pub initial: Vec<u8>,
    /// Guard bands found changed: buffer, and the byte's distance to it (negative
    /// before it).
    pub guards: Vec<(&'static str, i64)>,
    /// Operands found changed: buffer and first byte.
    pub modified: Vec<(&'static str, usize)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Check {
    Guards,
    Inputs,
    Untouched,
    Coverage,
    Exact,
    Elementwise,
    Global,
    Rerun,
}

impl Check {
    pub const ALL: [Check; 8] = [
        Check::Guards,
        Check::Inputs,
        Check::Untouched,
        Check::Coverage,
        Check::Exact,
        Check::Elementwise,
        Check::Global,
        Check::Rerun,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Check::Guards => "guards",
            Check::Inputs => "inputs",
            Check::Untouched => "untouched",
            Check::Coverage => "coverage",
            Check::Exact => "exact",
            Check::Elementwise => "elementwise",
            Check::Global => "global",
            Check::Rerun => "rerun",
        }
    }
}

/// One element of C.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Place {
    pub group: usize,
    pub row: usize,
    pub col: usize,
}

/// What a run is judged against, by cost.
#[derive(Debug, Clone)]
pub enum Reference {
    /// Every element in f64.
    Full(Vec<SegmentReference>),
    /// Windowed Freivalds and one exact dot a tile.
    Sampled(Accumulator),
}

/// Why a check failed: the first bad element, or a sentence.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    pub check: Check,
    pub place: Option<Place>,
    pub got: Option<f64>,
    pub want: Option<f64>,
    /// Elements that fail this check.
    pub bad: usize,
    pub message: String,
}

/// The element closest to, or furthest past, its bound.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Worst {
    pub place: Place,
    pub got: f64,
    pub want: f64,
    /// |got − want| over what the interval admits; above 1 is a failure.
    pub ratio: f64,
    pub arithmetic: String,
}

/// The verdict over one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judgement {
    pub findings: Vec<Finding>,
    /// How strong the comparison was, and what it can miss.
    pub strength: String,
    /// Elements that the comparison covered.
    pub compared: usize,
    pub worst: Option<Worst>,
    /// calc_diff and the limit that the intervals allow; absent when sampled.
    pub global: Option<(f64, f64)>,
}

impl Judgement {
    pub fn passed(&self) -> bool {
        self.findings.is_empty() && self.compared > 0
    }

    pub fn failed(&self, check: Check) -> bool {
        self.findings.iter().any(|finding| finding.check == check)
    }
}

/// Where C's groups, rows and columns are in the bytes.
struct Layout {
    size: usize,
    ldc: usize,
    n: usize,
    /// First row of each group.
    starts: Vec<usize>,
}

impl Layout {
    fn of(case: &Case) -> Layout {
        let mut next = 0;
        let starts = case
            .problem
            .segments()
            .iter()
            .map(|segment| {
                let start = next;
                next += segment.allocated;
                start
            })
            .collect();
        Layout {
            size: case.problem.output.size(),
            ldc: case.problem.ldc(),
            n: case.problem.n,
            starts,
        }
    }

    fn element<'a>(&self, bytes: &'a [u8], group: usize, row: usize, col: usize) -> &'a [u8] {
        let at = ((self.starts[group] + row) * self.ldc + col) * self.size;
        &bytes[at..at + self.size]
    }
}

/// The elements of C that count, group by group, widened.
pub fn results(case: &Case, c: &[u8]) -> Vec<Vec<f64>> {
    let layout = Layout::of(case);
    let output = case.problem.output;
    case.problem
        .segments()
        .iter()
        .enumerate()
        .map(|(group, segment)| {
            (0..segment.rows)
                .flat_map(|row| {
                    let at = (layout.starts[group] + row) * layout.ldc * layout.size;
                    output.widen(&c[at..at + layout.n * layout.size])
                })
                .collect()
        })
        .collect()
}

/// Judges `run` against the reference of its case.
///
/// # Errors
/// When nothing could be judged: sizes that do not match, a reference that is all
/// zeros or not finite, integers whose sums are not exact.
pub fn judge(
    case: &Case,
    operands: &Operands,
    reference: &Reference,
    run: &Execution,
) -> Result<Judgement> {
    let problem = &case.problem;
    let layout = Layout::of(case);
    let bytes = problem.c_rows() * layout.ldc * layout.size;
    for (name, c) in [
        ("C", &run.c),
        ("the second C", &run.rerun),
        ("C before", &run.initial),
    ] {
        ensure!(
            c.len() == bytes,
            "{name} has {} bytes, expected {bytes}: nothing was judged",
            c.len()
        );
    }
    if let Reference::Full(reference) = reference {
        trustworthy(case, reference)?;
    }

    let mut findings = Vec::new();
    findings.extend(run.guards.first().map(|&(buffer, distance)| {
        sentence(
            Check::Guards,
            run.guards.len(),
            format!(
                "the guard band of {buffer} was overwritten {} bytes {} it",
                distance.abs(),
                if distance < 0 { "before" } else { "after" }
            ),
        )
    }));
    findings.extend(run.modified.first().map(|&(buffer, at)| {
        sentence(
            Check::Inputs,
            run.modified.len(),
            format!("the kernel changed its operand {buffer}, first at byte {at}"),
        )
    }));
    findings.extend(untouched(case, &layout, run));
    findings.extend(coverage(case, &layout, run));
    let got = results(case, &run.c);
    let values = match reference {
        Reference::Full(reference) => {
            let mut values = compare(case, reference, &got);
            for finding in &mut values.findings {
                if let (Some(place), Some(got), Some(want)) =
                    (finding.place, finding.got, finding.want)
                {
                    finding.message += &diagnosis(operands, reference, place, got - want);
                }
            }
            values
        }
        Reference::Sampled(accumulator) => sample(case, operands, *accumulator, &got)?,
    };
    findings.extend(values.findings);
    findings.extend(rerun(case, &layout, run));
    Ok(Judgement {
        findings,
        strength: values.strength,
        compared: values.compared,
        worst: values.worst,
        global: values.global,
    })
}

impl Finding {
    /// A finding that is about the run as a whole.
    pub(super) fn sentence(check: Check, message: String) -> Finding {
        sentence(check, 1, message)
    }
}

fn sentence(check: Check, bad: usize, message: String) -> Finding {
    Finding {
        check,
        place: None,
        got: None,
        want: None,
        bad,
        message,
    }
}

/// A reference that could not reject anything is an error, not a pass.
fn trustworthy(case: &Case, reference: &[SegmentReference]) -> Result<()> {
    let wants = || reference.iter().flat_map(|r| r.want.iter());
    if wants().next().is_none() {
        bail!("{case}: there is nothing to compare");
    }
    if wants().all(|&want| want == 0.0) {
        bail!("{case}: the reference is all zeros, a kernel that does nothing would pass");
    }
    if let Some(want) = wants().find(|want| !want.is_finite()) {
        bail!("{case}: the reference holds {want}");
    }
    if case.input.is_exact() {
        // Products of integers under scales of at least ½ · ½.
        let largest = reference
            .iter()
            .flat_map(|r| r.magnitude.iter())
            .fold(0.0, |m: f64, &x| m.max(x));
        ensure!(
            largest * 4.0 < (1u64 << 24) as f64,
            "{case}: sums up to {largest} are not exact in FP32; use a smaller k"
        );
    }
    Ok(())
}
