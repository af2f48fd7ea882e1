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
//! | rerun | a second run with other bits |
//!
//! `global` cannot fail where `elementwise` passes; it is printed beside it
//! because suites speak in it, and it is a gate of its own on the scoreboard.

use anyhow::{Result, bail, ensure};
use serde::Serialize;

use super::bound::Accumulator;
use super::case::Case;
use super::operands::Operands;
use super::reference::SegmentReference;
use super::rivals::calc_diff;
use super::sampled;

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

fn untouched(case: &Case, layout: &Layout, run: &Execution) -> Option<Finding> {
    let mut first = None;
    let mut bad = 0;
    for (group, segment) in case.problem.segments().iter().enumerate() {
        for row in 0..segment.allocated {
            let from = if row < segment.rows { layout.n } else { 0 };
            for col in from..layout.ldc {
                let before = layout.element(&run.initial, group, row, col);
                if layout.element(&run.c, group, row, col) != before {
                    bad += 1;
                    first.get_or_insert((Place { group, row, col }, row < segment.rows));
                }
            }
        }
    }
    let (place, padding) = first?;
    let what = if padding {
        "the padding after column n"
    } else {
        "a masked row"
    };
    Some(Finding {
        place: Some(place),
        ..sentence(Check::Untouched, bad, format!("{what} was written"))
    })
}

fn coverage(case: &Case, layout: &Layout, run: &Execution) -> Option<Finding> {
    if case.problem.accumulate {
        // C held numbers, not poison; an element left out is off by its whole sum.
        return None;
    }
    let poison = case.problem.output.poison();
    let mut first = None;
    let mut bad = 0;
    for (group, segment) in case.problem.segments().iter().enumerate() {
        for row in 0..segment.rows {
            for col in 0..layout.n {
                if layout.element(&run.c, group, row, col) == poison {
                    bad += 1;
                    first.get_or_insert(Place { group, row, col });
                }
            }
        }
    }
    first.map(|place| Finding {
        place: Some(place),
        ..sentence(
            Check::Coverage,
            bad,
            "still poisoned: never written".to_owned(),
        )
    })
}

struct Values {
    findings: Vec<Finding>,
    strength: String,
    worst: Option<Worst>,
    compared: usize,
    global: Option<(f64, f64)>,
}

/// The comparison at sampled strength.
fn sample(
    case: &Case,
    operands: &Operands,
    accumulator: Accumulator,
    got: &[Vec<f64>],
) -> Result<Values> {
    let n = case.problem.n;
    let exact = case.input.is_exact() && accumulator != Accumulator::Truncating;
    let check = if exact {
        Check::Exact
    } else {
        Check::Elementwise
    };
    let (mut findings, mut compared) = (Vec::new(), 0);
    let (mut windows, mut dots, mut smallest) = (0, 0, 0f64);
    for (group, (segment, got)) in operands.segments.iter().zip(got).enumerate() {
        if got.is_empty() {
            continue;
        }
        ensure!(
            segment.a.codes.iter().any(|&code| code & 0x7f != 0),
            "{case}: A is all zeros, a kernel that does nothing would pass"
        );
        let found = sampled::check(&case.problem, segment, accumulator, exact, got, case.seed);
        compared += got.len();
        windows += found.windows;
        dots += found.dots;
        smallest = smallest.max(found.smallest_fault);
        if let Some((row, col, difference, gate)) = found.window {
            findings.push(Finding {
                place: Some(Place { group, row, col }),
                ..sentence(check, 1, format!(
                    "the signed sum of columns {col}..{} is off by {difference:.4e}, gate {gate:.4e}",
                    (col + sampled::WINDOW).min(n)
                ))
            });
        }
        if let Some((row, col, got, want)) = found.dot {
            findings.push(Finding {
                place: Some(Place { group, row, col }),
                got: Some(got),
                want: Some(want),
                ..sentence(
                    check,
                    1,
                    format!("got {got:.9e}, want {want:.9e} (exact dot)"),
                )
            });
        }
    }
    Ok(Values {
        findings,
        strength: format!(
            "sampled: {windows} Freivalds windows, {dots} exact dots; a single element off by \
             {smallest:.3e} is seen"
        ),
        worst: None,
        compared,
        global: None,
    })
}

fn compare(case: &Case, reference: &[SegmentReference], got: &[Vec<f64>]) -> Values {
    let output = case.problem.output;
    let n = case.problem.n;
    let (mut finding, mut bad, mut compared) = (None, 0, 0);
    let mut worst: Option<(f64, Place, f64, f64)> = None;
    let (mut allowed, mut size) = (0.0, 0.0);
    for (group, (reference, got)) in reference.iter().zip(got).enumerate() {
        let exact = case.input.is_exact() && reference.arithmetic.is_exact_on_integers();
        for (i, (&got, &want)) in got.iter().zip(&reference.want).enumerate() {
            compared += 1;
            let accumulation = if exact {
                0.0
            } else {
                reference.accumulation(i)
            };
            let bound = reference.arithmetic.bound(want, accumulation);
            let reach = bound.reach(want);
            allowed += reach * reach;
            size += want * want + got * got;
            let place = Place {
                group,
                row: i / n,
                col: i % n,
            };
            let error = (got - want).abs();
            let ratio = match error {
                e if e.is_nan() => f64::INFINITY,
                0.0 => 0.0,
                e => e / reach,
            };
            if worst.as_ref().is_none_or(|(most, ..)| ratio > *most) {
                worst = Some((ratio, place, got, want));
            }
            if bound.admits(got) {
                continue;
            }
            bad += 1;
            let check = if exact {
                Check::Exact
            } else {
                Check::Elementwise
            };
            finding.get_or_insert_with(|| Finding {
                check,
                place: Some(place),
                got: Some(got),
                want: Some(want),
                bad: 0,
                message: format!(
                    "got {got:.9e}, want {want:.9e}, admitted [{:.9e}, {:.9e}]",
                    bound.low, bound.high
                ),
            });
        }
    }
    if let Some(finding) = &mut finding {
        finding.bad = bad;
    }
    let worst = worst.map(|(ratio, place, got, want)| {
        let reference = &reference[place.group];
        let i = place.row * n + place.col;
        let (magnitude, weighted) = (reference.magnitude[i], reference.weighted_at(i));
        let bound = reference.arithmetic.bound(want, reference.accumulation(i));
        let arithmetic = if case.input.is_exact() && reference.arithmetic.is_exact_on_integers() {
            format!(
                "integers: every sum is exact; rounded once to {}: tolerance zero",
                output.name()
            )
        } else {
            reference
                .arithmetic
                .explain(want, magnitude, weighted, &bound)
        };
        Worst {
            place,
            got,
            want,
            ratio,
            arithmetic,
        }
    });
    let mut findings: Vec<Finding> = finding.into_iter().collect();
    let flat = |values: Vec<&[f64]>| values.concat();
    let shared = flat(reference.iter().map(|r| r.want.as_slice()).collect());
    let mine = flat(got.iter().map(Vec::as_slice).collect());
    let calc = calc_diff(&mine, &shared);
    let limit = if size > 0.0 { allowed / size } else { 0.0 };
    let inside = calc <= limit;
    if !inside {
        findings.push(sentence(
            Check::Global,
            1,
            format!("calc_diff is {calc:.3e}; the intervals allow {limit:.3e}"),
        ));
    }
    Values {
        findings,
        strength: "full: every element in f64".to_owned(),
        worst,
        compared,
        global: Some((calc, limit)),
    }
}

fn rerun(case: &Case, layout: &Layout, run: &Execution) -> Option<Finding> {
    if run.c == run.rerun {
        return None;
    }
    let differing: Vec<usize> = run
        .c
        .chunks(layout.size)
        .zip(run.rerun.chunks(layout.size))
        .enumerate()
        .filter(|(_, (first, second))| first != second)
        .map(|(at, _)| at)
        .collect();
    let (row, col) = (differing[0] / layout.ldc, differing[0] % layout.ldc);
    let group = layout
        .starts
        .iter()
        .rposition(|&start| start <= row)
        .unwrap_or(0);
    let values = case.problem.output;
    let row = row - layout.starts[group];
    let first = values.widen(layout.element(&run.c, group, row, col))[0];
    let second = values.widen(layout.element(&run.rerun, group, row, col))[0];
    Some(Finding {
        place: Some(Place { group, row, col }),
        ..sentence(
            Check::Rerun,
            differing.len(),
            format!("the second run gave {second:.9e}, the first {first:.9e}"),
        )
    })
}

/// Which group of k an error points to: the one whose share of the sum it equals,
/// with the sign of a group left out or counted twice.
fn diagnosis(
    operands: &Operands,
    reference: &[SegmentReference],
    place: Place,
    error: f64,
) -> String {
    let segment = &operands.segments[place.group];
    let reference = &reference[place.group];
    let group = reference.arithmetic.group;
    if !error.is_finite() || error == 0.0 {
        return String::new();
    }
    let term = |k: usize| {
        let (a, b) = (&segment.a, &segment.b);
        f64::from(a.recipe.format.decode(a.codes[place.row * a.cols + k]))
            * f64::from(a.scale_at(place.row, k))
            * f64::from(b.recipe.format.decode(b.codes[place.col * b.cols + k]))
            * f64::from(b.scale_at(place.col, k))
    };
    let depth = segment.segment.depth;
    let close = |part: f64, sign: f64| {
        (error - sign * part).abs() <= 1e-3 * error.abs() + reference.accumulation(0)
    };
    for (index, start) in (0..depth).step_by(group).enumerate() {
        let part: f64 = (start..(start + group).min(depth)).map(term).sum();
        for (sign, what) in [(-1.0, "left out"), (1.0, "counted twice")] {
            if part != 0.0 && close(part, sign) {
                let end = (start + group).min(depth);
                return format!("; as if k-group {index} (k {start}..{end}) were {what}");
            }
        }
    }
    if depth > 0 && close(term(depth - 1), -1.0) {
        return format!("; as if the last k ({}) were left out", depth - 1);
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::bound::Accumulator;
    use crate::gemm::inputs::Input;
    use crate::gemm::problem::{Form, Problem};
    use crate::gemm::reference;
    use crate::lowp::OutputType;

    struct Bench {
        case: Case,
        operands: Operands,
        reference: Reference,
        run: Execution,
    }

    /// A run as a correct kernel leaves it.
    fn bench(problem: Problem, input: Input) -> Bench {
        let case = Case::new("test", problem.clone(), input, 9);
        let operands = Operands::generate(&case).unwrap();
        let reference = reference::compute(&problem, &operands, Accumulator::Fp32);
        let output = problem.output;
        let poison = output.poison();
        let initial: Vec<u8> = poison.repeat(problem.c_rows() * problem.ldc());
        let mut c = initial.clone();
        let layout = Layout::of(&case);
        for (group, reference) in reference.iter().enumerate() {
            for (i, &want) in reference.want.iter().enumerate() {
                let (row, col) = (i / problem.n, i % problem.n);
                let at = ((layout.starts[group] + row) * layout.ldc + col) * layout.size;
                c[at..at + layout.size].copy_from_slice(&output.bytes_of(want as f32));
            }
        }
        Bench {
            case,
            operands,
            reference: Reference::Full(reference),
            run: Execution {
                rerun: c.clone(),
                c,
                initial,
                guards: Vec::new(),
                modified: Vec::new(),
            },
        }
    }

    impl Bench {
        fn judge(&self) -> Judgement {
            judge(&self.case, &self.operands, &self.reference, &self.run).unwrap()
        }

        fn put(&mut self, at: usize, x: f32) {
            let output = self.case.problem.output;
            let bytes = output.bytes_of(x);
            for c in [&mut self.run.c, &mut self.run.rerun] {
                c[at * bytes.len()..(at + 1) * bytes.len()].copy_from_slice(&bytes);
            }
        }

        fn get(&self, at: usize) -> f32 {
            let output = self.case.problem.output;
            output.widen(&self.run.c[at * output.size()..(at + 1) * output.size()])[0] as f32
        }
    }

    #[test]
    fn a_correct_run_passes_for_every_output_input_and_form() {
        for output in OutputType::ALL {
            for input in Input::ALL {
                let base = Problem::dense(6, 9, 150, output);
                for problem in [
                    base.clone(),
                    base.clone().padded(3),
                    base.clone().with_form(Form::Masked {
                        max_rows: 5,
                        rows: vec![0, 5, 2],
                    }),
                ] {
                    // An outlier's square is beyond FP16.
                    if output == OutputType::F16
                        && matches!(input, Input::Outlier | Input::HeavyTailed)
                    {
                        continue;
                    }
                    let judgement = bench(problem, input).judge();
                    assert!(
                        judgement.passed(),
                        "{output:?} {input:?} {:?}",
                        judgement.findings
                    );
                    let (calc, limit) = judgement.global.unwrap();
                    assert!(calc <= limit);
                    assert!(judgement.worst.unwrap().ratio <= 1.0);
                }
            }
        }
    }

    type Fault = (&'static str, Check, fn(&mut Bench));

    #[test]
    fn each_check_rejects_the_fault_it_is_there_for() {
        let masked = || {
            bench(
                Problem::dense(0, 9, 150, OutputType::F32)
                    .with_form(Form::Masked {
                        max_rows: 5,
                        rows: vec![2, 3],
                    })
                    .padded(2),
                Input::Normal,
            )
        };
        let faults: [Fault; 9] = [
            ("guard", Check::Guards, |b| b.run.guards.push(("C", -4))),
            ("input", Check::Inputs, |b| b.run.modified.push(("A", 7))),
            ("padding", Check::Untouched, |b| b.put(9, 1.0)),
            ("masked row", Check::Untouched, |b| b.put(2 * 11, 0.0)),
            ("unwritten", Check::Coverage, |b| {
                let poison = b.run.initial[..4].to_vec();
                b.run.c[4..8].copy_from_slice(&poison);
                b.run.rerun[4..8].copy_from_slice(&poison);
            }),
            ("nan", Check::Elementwise, |b| b.put(3, f32::NAN)),
            ("nan global", Check::Global, |b| b.put(3, f32::NAN)),
            ("slightly off", Check::Elementwise, |b| {
                let x = b.get(12);
                b.put(12, x * 1.001);
            }),
            ("rerun", Check::Rerun, |b| b.run.rerun[0] ^= 1),
        ];
        for (name, check, plant) in faults {
            let mut bench = masked();
            assert!(bench.judge().passed());
            plant(&mut bench);
            let judgement = bench.judge();
            assert!(judgement.failed(check), "{name}: {:?}", judgement.findings);
            assert!(!judgement.passed());
        }
    }

    #[test]
    fn integers_have_tolerance_zero_and_the_finding_names_the_k_group() {
        for output in OutputType::ALL {
            let mut bench = bench(Problem::dense(4, 5, 300, output), Input::Integers);
            assert!(bench.judge().passed());
            let x = bench.get(7);
            let next =
                output.widen(&output.bytes_of(x + 2.0 * output.half_ulp(f64::from(x)) as f32));
            bench.put(7, next[0] as f32);
            let judgement = bench.judge();
            assert!(judgement.failed(Check::Exact), "{output:?}");
            assert_eq!(
                judgement.findings[0].place,
                Some(Place {
                    group: 0,
                    row: 1,
                    col: 2
                })
            );
        }
        let mut bench = bench(Problem::dense(4, 5, 300, OutputType::F32), Input::Normal);
        let term: f64 = (128..256)
            .map(|k| {
                let s = &bench.operands.segments[0];
                s.a.dequantise()[k] * s.b.dequantise()[k]
            })
            .sum();
        let x = bench.get(0);
        bench.put(0, x - term as f32);
        let message = &bench.judge().findings[0].message;
        assert!(
            message.contains("k-group 1 (k 128..256) were left out"),
            "{message}"
        );
    }

    #[test]
    fn sampled_strength_passes_correct_runs_and_rejects_a_wrong_tile_and_a_nan() {
        for input in [Input::Normal, Input::Integers, Input::Positive] {
            let mut b = bench(Problem::dense(70, 200, 300, OutputType::Bf16), input);
            b.reference = Reference::Sampled(Accumulator::Fp32);
            let judgement = b.judge();
            assert!(judgement.passed(), "{:?}", judgement.findings);
            assert!(judgement.strength.contains("a single element off by"));
            b.put(4321, f32::NAN);
            assert!(!b.judge().passed());
            for i in 0..64 {
                b.put(4321 - i, 0.0);
            }
            assert!(!b.judge().passed());
        }
    }

    #[test]
    fn an_all_zero_reference_and_wrong_lengths_are_errors() {
        let mut b = bench(Problem::dense(3, 3, 40, OutputType::F32), Input::Normal);
        b.run.c.pop();
        assert!(judge(&b.case, &b.operands, &b.reference, &b.run).is_err());
        let mut b = bench(Problem::dense(3, 3, 40, OutputType::F32), Input::Normal);
        if let Reference::Full(reference) = &mut b.reference {
            reference[0].want.fill(0.0);
        }
        let error = judge(&b.case, &b.operands, &b.reference, &b.run).unwrap_err();
        assert!(error.to_string().contains("all zeros"), "{error}");
    }
}
