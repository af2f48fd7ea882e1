//! The full check of every group's C on the device: each element against an FP64
//! product of the dequantised operands, window by window, so that memory stays
//! bounded whatever the size.
//!
//! One FP64 product is the whole cost. Σ s|ab| in the bound would be a second one:
//! ‖a‖·‖b‖, which is never smaller, stands for it, as in the sampled check.

use anyhow::Result;

use super::device_matrix::DeviceMatrix;
use super::model::Place;
use super::operands::Large;
use super::sampled::{Checked, norms};
use super::workshop::{Workshop, panel_cols, panel_rows};
use crate::device::{Argument, Device, Fp64Gemm, Launch};
use crate::gemm::gate::{self, Finding, Worst};
use crate::gemm::scratch::words;

/// Blocks of `judgeElements`, each with a record of its own.
const BLOCKS: u64 = 512;
/// Words of `struct Seen` in `gemm_judge.cu`.
const SEEN: usize = 10;

/// Enqueues the products and comparisons of every group.
pub fn enqueue(
    device: &Device,
    shop: &Workshop,
    groups: &[Place<'_>],
    large: &Large,
) -> Result<()> {
    let per_group = BLOCKS * 8 * SEEN as u64;
    let seen = shop
        .scratch
        .take(device, "seen", per_group * groups.len() as u64)?;
    for (index, place) in groups.iter().enumerate() {
        if place.rows > 0 {
            let matrices = &large.matrices[place.group];
            one_group(
                device,
                shop,
                place,
                matrices,
                seen + per_group * index as u64,
            )?;
        }
    }
    Ok(())
}

fn one_group(
    device: &Device,
    shop: &Workshop,
    place: &Place<'_>,
    matrices: &(DeviceMatrix, DeviceMatrix),
    seen: u64,
) -> Result<()> {
    let (a, b) = matrices;
    let (rows, n, depth) = (place.rows as u64, place.result.n, place.depth as u64);
    let (norms_a, norms_b) = norms(device, shop, matrices)?;
    let row_step = panel_rows(rows, depth);
    let col_step = panel_cols(n, row_step, depth);
    let take = |name, count: u64| shop.scratch.take(device, name, 8 * count);
    let panel_a = take("FP64 panel of A", row_step * depth)?;
    let panel_b = take("FP64 panel of B", col_step * depth)?;
    let product = take("FP64 product", row_step * col_step)?;
    for row in (0..rows).step_by(usize::try_from(row_step)?) {
        let count = row_step.min(rows - row);
        if depth > 0 {
            a.dequantise(shop, row, count, panel_a)?;
        }
        for col in (0..n).step_by(usize::try_from(col_step)?) {
            let cols = col_step.min(n - col);
            if depth > 0 {
                b.dequantise(shop, col, cols, panel_b)?;
            }
            let gemm = Fp64Gemm {
                m: count,
                n: cols,
                k: depth,
                a: panel_a,
                b: panel_b,
                d: product,
            };
            shop.product(device, &gemm)?;
            let fresh = u32::from(row == 0 && col == 0);
            let arguments: [&dyn Argument; 11] = [
                &place.result,
                &place.model,
                &row,
                &col,
                &count,
                &cols,
                &product,
                &norms_a,
                &norms_b,
                &seen,
                &fresh,
            ];
            let launch = Launch::linear(BLOCKS as u32, 256);
            shop.check("judgeElements", launch, &arguments)?;
        }
    }
    Ok(())
}

/// One record of `struct Seen`, folded over the blocks.
struct Seen {
    ratio: f64,
    want: f64,
    got: f64,
    magnitude: f64,
    at: u64,
    bad: u64,
    first: u64,
    allowed: f64,
    size: f64,
    squares: f64,
}

impl Seen {
    fn fold(records: &[u64]) -> Seen {
        let mut all = Seen {
            ratio: -1.0,
            want: 0.0,
            got: 0.0,
            magnitude: 0.0,
            at: u64::MAX,
            bad: 0,
            first: u64::MAX,
            allowed: 0.0,
            size: 0.0,
            squares: 0.0,
        };
        for record in records.chunks_exact(SEEN) {
            let number = |i: usize| f64::from_bits(record[i]);
            if number(0) > all.ratio || (number(0) == all.ratio && record[4] < all.at) {
                all.ratio = number(0);
                all.want = number(1);
                all.got = number(2);
                all.magnitude = number(3);
                all.at = record[4];
            }
            all.bad += record[5];
            all.first = all.first.min(record[6]);
            all.allowed += number(7);
            all.size += number(8);
            all.squares += number(9);
        }
        all
    }
}

/// What the full check adds to a judgement.
pub struct Compared {
    pub worst: Option<Worst>,
    /// calc_diff and its limit.
    pub global: Option<(f64, f64)>,
}

/// Reads what [`enqueue`] left.
pub fn collect(shop: &Workshop, groups: &[Place<'_>], checked: &mut Checked) -> Result<Compared> {
    let per_group = BLOCKS * 8 * SEEN as u64;
    let mut worst: Option<Worst> = None;
    let (mut allowed, mut size, mut squares) = (0.0, 0.0, 0.0);
    for (index, place) in groups.iter().enumerate() {
        if place.rows == 0 {
            continue;
        }
        let range = per_group * index as u64..per_group * (index as u64 + 1);
        let seen = Seen::fold(&words(&shop.scratch.download("seen", range)?));
        checked.elements += place.rows * place.case.problem.n;
        checked.telling += usize::from(seen.size > 0.0);
        if seen.bad > 0 {
            checked.findings.push(finding(place, &seen));
        }
        allowed += seen.allowed;
        size += seen.size;
        squares += seen.squares;
        if worst.as_ref().is_none_or(|worst| seen.ratio > worst.ratio) {
            worst = Some(describe(place, &seen));
        }
    }
    let global = (size > 0.0).then(|| (squares / size, allowed / size));
    checked
        .findings
        .extend(global.and_then(|(calc, limit)| gate::global(calc, limit)));
    Ok(Compared { worst, global })
}

fn at(place: &Place<'_>, index: u64) -> gate::Place {
    let n = place.case.problem.n;
    gate::Place {
        group: place.group,
        row: index as usize / n,
        col: index as usize % n,
    }
}

/// Names the first bad element; its values are known where it is the worst as well.
fn finding(place: &Place<'_>, seen: &Seen) -> Finding {
    let worst = describe(place, seen);
    Finding {
        place: Some(at(place, seen.first)),
        bad: seen.bad as usize,
        ..Finding::sentence(
            place.check(),
            format!(
                "{} elements are outside their interval; the worst, (row {}, column {}), is {:.9e}, \
                 want {:.9e}: {:.3} of its bound",
                seen.bad, worst.place.row, worst.place.col, seen.got, seen.want, seen.ratio
            ),
        )
    }
}

fn describe(place: &Place<'_>, seen: &Seen) -> Worst {
    let arithmetic = &place.arithmetic;
    let element = at(place, seen.at);
    let text = if place.is_exact() {
        arithmetic.explain_exact()
    } else {
        let held = place.held(element.row, element.col);
        let bound = arithmetic.bound_over(seen.want, held, place.error(seen.magnitude));
        let weighted = place.weight * seen.magnitude;
        arithmetic.explain(seen.want, seen.magnitude, weighted, &bound)
    };
    Worst {
        place: element,
        got: seen.got,
        want: seen.want,
        ratio: seen.ratio,
        arithmetic: text,
    }
}
