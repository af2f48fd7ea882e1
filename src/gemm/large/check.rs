//! The sampled check of one group's C, on the device.

use anyhow::{Context, Result};

use super::device_matrix::DeviceMatrix;
use super::{Workshop, error_model, output_word};
use crate::device::{Argument, Device, Launch};
use crate::gemm::bound::Accumulator;
use crate::gemm::case::Case;
use crate::gemm::gate::{Check, Finding, Place};
use crate::gemm::inputs::{Stream, integer, mix, mixed_seed};
use crate::gemm::operands::{c_unit, group_seed};
use crate::gemm::sampled::{LAMBDA, WINDOW, dot_place};
use crate::gemm::subject;

/// Which group of which case.
pub struct Group<'a> {
    pub case: &'a Case,
    pub index: usize,
    pub group: &'a subject::Group,
    /// Address of C.
    pub c: u64,
    pub accumulator: Accumulator,
}

/// What was checked, over one group or several.
#[derive(Default)]
pub struct CheckedGroup {
    pub findings: Vec<Finding>,
    pub elements: usize,
    pub windows: usize,
    pub dots: usize,
    pub smallest_fault: f64,
    /// Exact dots that are not zero.
    pub telling: usize,
}

impl CheckedGroup {
    pub fn merge(&mut self, other: CheckedGroup) {
        self.findings.extend(other.findings);
        self.elements += other.elements;
        self.windows += other.windows;
        self.dots += other.dots;
        self.smallest_fault = self.smallest_fault.max(other.smallest_fault);
        self.telling += other.telling;
    }
}

fn grid(x: u64, y: u64, threads: u32) -> Result<Launch> {
    let size = |x: u64| u32::try_from(x).context("too many blocks");
    Ok(Launch {
        grid: (size(x)?, size(y)?, 1),
        block: (threads, 1, 1),
        shared_bytes: 0,
    })
}

pub fn group(
    device: &Device,
    shop: &Workshop,
    place: &Group<'_>,
    a: &DeviceMatrix,
    b: &DeviceMatrix,
) -> Result<CheckedGroup> {
    let mut checked = windows(device, shop, place, a, b)?;
    checked.merge(dots(device, shop, place, a, b)?);
    Ok(checked)
}

fn windows(
    device: &Device,
    shop: &Workshop,
    place: &Group<'_>,
    a: &DeviceMatrix,
    b: &DeviceMatrix,
) -> Result<CheckedGroup> {
    let problem = &place.case.problem;
    let (rows, depth) = (place.group.rows, place.group.depth);
    let (n, ldc) = (problem.n as u64, problem.ldc() as u64);
    let windows = n.div_ceil(WINDOW as u64);
    let (arithmetic, _, factor, constant) =
        error_model(place.case, depth as usize, place.accumulator);
    let doubles = |count: u64| {
        device
            .uninitialised::<f64>(usize::try_from(count.max(1))?)
            .map_err(anyhow::Error::from)
    };
    let seed = mixed_seed(place.case.seed, Stream::Check);
    let signed = doubles(windows * depth)?;
    let wanted = doubles(windows * rows)?;
    let (norms_a, norms_b) = (doubles(rows)?, doubles(n)?);
    for (matrix, norms) in [(a, &norms_a), (b, &norms_b)] {
        let arguments: [&dyn Argument; 4] =
            [&matrix.argument, &matrix.codes, &matrix.scales, norms];
        shop.launch("rowNorms", grid(matrix.argument.rows, 1, 128)?, &arguments)?;
    }
    if depth > 0 {
        let arguments: [&dyn Argument; 5] = [&b.argument, &b.codes, &b.scales, &seed, &signed];
        let blocks = grid(depth.div_ceil(128), windows, 128)?;
        shop.launch("signedColumns", blocks, &arguments)?;
    }
    let count = u32::try_from(windows)?;
    let arguments: [&dyn Argument; 6] =
        [&a.argument, &a.codes, &a.scales, &signed, &count, &wanted];
    let blocks = grid(windows.div_ceil(64), rows.div_ceil(64), 256)?;
    shop.launch("windowProduct", blocks, &arguments)?;

    let first = device.upload(&[u64::MAX])?;
    let (differences, gates) = (doubles(windows * rows)?, doubles(windows * rows)?);
    let c = place.c + place.group.c * problem.output.size() as u64;
    let kind = output_word(problem.output);
    let c_seed = mixed_seed(group_seed(place.case.seed, place.index), Stream::C);
    let unit = if problem.accumulate {
        f64::from(c_unit(place.case.input))
    } else {
        0.0
    };
    let rounds_product = u32::from(arithmetic.rounds_product);
    let arguments: [&dyn Argument; 18] = [
        &c,
        &kind,
        &n,
        &ldc,
        &windows,
        &seed,
        &wanted,
        &norms_a,
        &norms_b,
        &c_seed,
        &unit,
        &factor,
        &constant,
        &LAMBDA,
        &rounds_product,
        &first,
        &differences,
        &gates,
    ];
    shop.launch("judgeWindows", grid(rows, windows, 32)?, &arguments)?;
    let first = first.download()?[0];

    let total = (windows * rows) as usize;
    let mut findings = Vec::new();
    if first != u64::MAX {
        let at = first as usize;
        let one = |buffer: &crate::device::Buffer<f64>| buffer.download_range(at..at + 1);
        let (row, window) = (at / windows as usize, at % windows as usize);
        findings.push(Finding {
            place: Some(Place {
                group: place.index,
                row,
                col: window * WINDOW,
            }),
            ..Finding::sentence(
                check_name(place),
                format!(
                    "the signed sum of columns {}..{} is off by {:.4e}, gate {:.4e}",
                    window * WINDOW,
                    ((window + 1) * WINDOW).min(problem.n),
                    one(&differences)?[0],
                    one(&gates)?[0]
                ),
            )
        });
    }
    // The median of a sample of gates stands for all of them.
    let mut sample = gates.download_range(0..total.min(4096))?;
    sample.sort_by(f64::total_cmp);
    Ok(CheckedGroup {
        findings,
        elements: (rows * n) as usize,
        windows: total,
        dots: 0,
        smallest_fault: median_fault(&sample),
        telling: 0,
    })
}

/// Twice the median gate; infinity where the gates are NaN, because C is.
fn median_fault(sorted_gates: &[f64]) -> f64 {
    match sorted_gates.get(sorted_gates.len() / 2) {
        Some(gate) if gate.is_finite() => 2.0 * gate,
        _ => f64::INFINITY,
    }
}

fn check_name(place: &Group<'_>) -> Check {
    if place.case.input.is_exact() {
        Check::Exact
    } else {
        Check::Elementwise
    }
}

fn dots(
    device: &Device,
    shop: &Workshop,
    place: &Group<'_>,
    a: &DeviceMatrix,
    b: &DeviceMatrix,
) -> Result<CheckedGroup> {
    let problem = &place.case.problem;
    let (rows, n) = (place.group.rows as usize, problem.n);
    let depth = place.group.depth as usize;
    let places: Vec<(usize, usize)> = (0..rows)
        .step_by(WINDOW)
        .flat_map(|top| (0..n).step_by(WINDOW).map(move |left| (top, left)))
        .map(|corner| dot_place((rows, n, depth), corner, place.case.input, place.case.seed))
        .collect();
    let words: Vec<u64> = places
        .iter()
        .flat_map(|&(row, col)| [row as u64, col as u64])
        .collect();
    let where_to = device.upload(&words)?;
    let output = || device.uninitialised::<f64>(places.len());
    let (wants, magnitudes, gots) = (output()?, output()?, output()?);
    let c = place.c + place.group.c * problem.output.size() as u64;
    let (kind, ldc) = (output_word(problem.output), problem.ldc() as u64);
    let arguments: [&dyn Argument; 13] = [
        &a.argument,
        &a.codes,
        &a.scales,
        &b.argument,
        &b.codes,
        &b.scales,
        &where_to,
        &c,
        &kind,
        &ldc,
        &wants,
        &magnitudes,
        &gots,
    ];
    shop.launch("exactDots", grid(places.len() as u64, 1, 128)?, &arguments)?;
    let (wants, magnitudes) = (wants.download()?, magnitudes.download()?);
    let gots = gots.download()?;

    let (arithmetic, weight, factor, constant) = error_model(place.case, depth, place.accumulator);
    let exact = factor == 0.0;
    let c_seed = group_seed(place.case.seed, place.index);
    let mut findings = Vec::new();
    for (i, &(row, col)) in places.iter().enumerate() {
        let held = if problem.accumulate {
            let bits = mix(c_seed, Stream::C, (row * n + col) as u64);
            f64::from(integer(bits) * c_unit(place.case.input))
        } else {
            0.0
        };
        let (want, magnitude) = (wants[i] + held, magnitudes[i] + held.abs());
        let error = if exact {
            0.0
        } else {
            arithmetic.accumulation(magnitude, weight * magnitude) + constant
        };
        if !arithmetic.bound_over(want, held, error).admits(gots[i]) && findings.is_empty() {
            findings.push(Finding {
                place: Some(Place {
                    group: place.index,
                    row,
                    col,
                }),
                got: Some(gots[i]),
                want: Some(want),
                ..Finding::sentence(
                    check_name(place),
                    format!("got {:.9e}, want {want:.9e} (exact dot)", gots[i]),
                )
            });
        }
    }
    Ok(CheckedGroup {
        findings,
        dots: places.len(),
        telling: wants.iter().filter(|&&want| want != 0.0).count(),
        ..CheckedGroup::default()
    })
}
