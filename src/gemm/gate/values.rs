//! The comparison of values, at full or sampled strength.

use anyhow::{Result, ensure};

use super::{Check, Finding, Place, Worst, sentence};
use crate::gemm::bound::Accumulator;
use crate::gemm::case::Case;
use crate::gemm::operands::Operands;
use crate::gemm::reference::SegmentReference;
use crate::gemm::rivals::calc_diff;
use crate::gemm::sampled;

pub(super) struct Values {
    pub(super) findings: Vec<Finding>,
    pub(super) strength: String,
    pub(super) worst: Option<Worst>,
    pub(super) compared: usize,
    pub(super) global: Option<(f64, f64)>,
}

/// The comparison at sampled strength.
pub(super) fn sample(
    case: &Case,
    operands: &Operands,
    accumulator: Accumulator,
    got: &[Vec<f64>],
) -> Result<Values> {
    let n = case.problem.n;
    let check = if case.input.is_exact() && accumulator != Accumulator::Truncating {
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
        let found = sampled::check(
            &case.problem,
            segment,
            accumulator,
            case.input,
            got,
            case.seed,
        );
        compared += got.len();
        windows += found.windows;
        dots += found.dots;
        smallest = smallest.max(found.smallest_fault);
        if let Some((row, col, difference, gate)) = found.window {
            findings.push(Finding {
                place: Some(Place { group, row, col }),
                ..sentence(check, 1, sampled::window_message(col, n, difference, gate))
            });
        }
        if let Some((row, col, got, want)) = found.dot {
            findings.push(Finding {
                place: Some(Place { group, row, col }),
                got: Some(got),
                want: Some(want),
                ..sentence(check, 1, sampled::dot_message(got, want))
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

/// The finding where calc_diff is above its limit; NaN is.
pub(in crate::gemm) fn global(calc: f64, limit: f64) -> Option<Finding> {
    let inside = calc <= limit;
    (!inside).then(|| {
        let message = format!("calc_diff is {calc:.3e}; the intervals allow {limit:.3e}");
        sentence(Check::Global, 1, message)
    })
}

pub(super) fn compare(case: &Case, reference: &[SegmentReference], got: &[Vec<f64>]) -> Values {
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
            let bound = reference.bound(i, accumulation);
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
        let bound = reference.bound(i, reference.accumulation(i));
        let arithmetic = if case.input.is_exact() && reference.arithmetic.is_exact_on_integers() {
            reference.arithmetic.explain_exact()
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
    findings.extend(global(calc, limit));
    Values {
        findings,
        strength: "full: every element in f64".to_owned(),
        worst,
        compared,
        global: Some((calc, limit)),
    }
}

/// Which group of k an error points to: the one whose share of the sum it equals,
/// with the sign of a group left out or counted twice.
pub(super) fn diagnosis(
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
