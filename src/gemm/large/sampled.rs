//! The sampled check of every group's C on the device: windowed Freivalds and one
//! exact dot a tile. [`Sample::enqueue`] launches, [`Sample::collect`] reads.

use anyhow::Result;

use super::device_matrix::DeviceMatrix;
use super::model::Place;
use super::operands::Large;
use super::report::{Report, Words};
use super::workshop::{Workshop, grid, linear, panel_rows};
use crate::device::{Argument, Device, Fp64Gemm};
use crate::gemm::case::Case;
use crate::gemm::gate::{self, Finding};
use crate::gemm::inputs::{Stream, mixed_seed};
use crate::gemm::sampled::{WINDOW, dot_message, dot_place, window_message};
use crate::gemm::scratch::{bytes, doubles};

/// Gates whose median stands for all of a group's.
const SAMPLE: u64 = 4096;
/// Rows that one block of `judgeWindows` looks at.
const ROWS_PER_BLOCK: u64 = 8;

/// What was checked, over all groups.
#[derive(Default)]
pub struct Checked {
    pub findings: Vec<Finding>,
    pub elements: usize,
    pub windows: usize,
    pub dots: usize,
    pub smallest_fault: f64,
    /// References looked at that are not zero.
    pub telling: usize,
}

/// One exact dot in each tile of each group.
pub struct Dots {
    /// (group, row, column).
    places: Vec<(usize, usize, usize)>,
    /// On the device: row and column, a word each.
    address: u64,
}

impl Dots {
    /// Draws the places and uploads them: before the launches, which an upload waits
    /// for.
    pub fn place(device: &Device, shop: &Workshop, case: &Case, large: &Large) -> Result<Dots> {
        let n = case.problem.n;
        let mut places = Vec::new();
        for (index, group) in large.groups.iter().enumerate() {
            let (rows, depth) = (group.rows as usize, group.depth as usize);
            for top in (0..rows).step_by(WINDOW) {
                for left in (0..n).step_by(WINDOW) {
                    let size = (rows, n, depth);
                    let (row, col) = dot_place(size, (top, left), case.input, case.seed);
                    places.push((index, row, col));
                }
            }
        }
        let words = places
            .iter()
            .flat_map(|&(_, row, col)| [row as u64, col as u64]);
        Ok(Dots {
            address: shop
                .scratch
                .upload(device, "places of dots", &bytes(words))?,
            places,
        })
    }

    /// Enqueues the dots of every group.
    pub fn enqueue(
        &self,
        device: &Device,
        shop: &Workshop,
        groups: &[Place<'_>],
        large: &Large,
    ) -> Result<()> {
        let total = 8 * self.places.len() as u64;
        let outputs = shop.scratch.take(device, "dots", 3 * total)?;
        let mut first = 0u64;
        for place in groups {
            let (a, b) = &large.matrices[place.group];
            let mine = |p: &&(usize, usize, usize)| p.0 == place.group;
            let count = self.places.iter().filter(mine).count() as u64;
            if count == 0 {
                continue;
            }
            let places = self.address + 16 * first;
            let [dots, magnitudes, got] = [0, 1, 2].map(|i| outputs + i * total + 8 * first);
            let kind = super::operands::output_word(place.case.problem.output);
            let arguments: [&dyn Argument; 12] = [
                &a.argument,
                &a.codes,
                &a.scales,
                &b.argument,
                &b.codes,
                &b.scales,
                &places,
                &place.result,
                &kind,
                &dots,
                &magnitudes,
                &got,
            ];
            shop.check("exactDots", grid(count, 1, 128)?, &arguments)?;
            first += count;
        }
        Ok(())
    }

    /// Reads the dots and compares C with them.
    pub fn collect(
        &self,
        shop: &Workshop,
        groups: &[Place<'_>],
        checked: &mut Checked,
    ) -> Result<()> {
        let count = self.places.len();
        if count == 0 {
            return Ok(());
        }
        let read = doubles(&shop.scratch.download("dots", 0..24 * count as u64)?);
        let (dots, rest) = read.split_at(count);
        let (magnitudes, got) = rest.split_at(count);
        let mut wrong = vec![false; groups.len()];
        for (i, &(group, row, col)) in self.places.iter().enumerate() {
            let place = &groups[group];
            let held = place.held(row, col);
            let want = dots[i] + held;
            let error = place.error(magnitudes[i] + held.abs());
            let inside = place
                .arithmetic
                .bound_over(want, held, error)
                .admits(got[i]);
            if !inside && !wrong[group] {
                wrong[group] = true;
                checked.findings.push(Finding {
                    place: Some(gate::Place { group, row, col }),
                    got: Some(got[i]),
                    want: Some(want),
                    ..Finding::sentence(place.check(), dot_message(got[i], want))
                });
            }
        }
        checked.dots += count;
        checked.telling += dots.iter().filter(|&&dot| dot != 0.0).count();
        Ok(())
    }
}

/// Enqueues the norms of a group's rows: (of A, of B), an FP64 number a row.
pub fn norms(
    device: &Device,
    shop: &Workshop,
    (a, b): &(DeviceMatrix, DeviceMatrix),
) -> Result<(u64, u64)> {
    let of = |name, matrix: &DeviceMatrix| {
        let rows = matrix.argument.rows;
        let norms = shop.scratch.take(device, name, 8 * rows)?;
        let arguments: [&dyn Argument; 4] =
            [&matrix.argument, &matrix.codes, &matrix.scales, &norms];
        shop.check("rowNorms", grid(rows.div_ceil(4), 1, 128)?, &arguments)?;
        anyhow::Ok(norms)
    };
    Ok((of("norms of A", a)?, of("norms of B", b)?))
}

/// Where the launches of the windows put what they found.
pub struct Windows {
    /// First window of each group in `differences` and `gates`.
    starts: Vec<u64>,
    per_row: u64,
}

impl Windows {
    /// Enqueues the windows of every group.
    pub fn enqueue(
        device: &Device,
        shop: &Workshop,
        groups: &[Place<'_>],
        large: &Large,
        report: &Report,
    ) -> Result<Windows> {
        let Some(any) = groups.first() else {
            return Ok(Windows {
                starts: Vec::new(),
                per_row: 1,
            });
        };
        let n = any.case.problem.n as u64;
        let per_row = n.div_ceil(WINDOW as u64);
        let mut total = 0;
        let starts: Vec<u64> = groups
            .iter()
            .map(|place| {
                let start = total;
                total += place.rows as u64 * per_row;
                start
            })
            .collect();
        let differences = shop.scratch.take(device, "differences", 8 * total)?;
        let gates = shop.scratch.take(device, "gates", 8 * total)?;
        let signs = shop.scratch.take(device, "signs", 4 * n)?;
        let seed = mixed_seed(any.case.seed, Stream::Check);
        shop.check("drawSigns", linear(n)?, &[&seed, &n, &signs])?;
        for (place, start) in groups.iter().zip(&starts) {
            if place.rows > 0 {
                let to = (differences + 8 * start, gates + 8 * start);
                let first = report.first_window(place.group);
                let matrices = &large.matrices[place.group];
                one_group(device, shop, place, matrices, (signs, per_row), (first, to))?;
            }
        }
        Ok(Windows { starts, per_row })
    }

    pub fn collect(
        &self,
        shop: &Workshop,
        groups: &[Place<'_>],
        words: &Words,
        checked: &mut Checked,
    ) -> Result<()> {
        for (place, &start) in groups.iter().zip(&self.starts) {
            let total = place.rows as u64 * self.per_row;
            if total == 0 {
                continue;
            }
            let range = |at: u64, count: u64| 8 * (start + at)..8 * (start + at + count);
            if let Some(first) = words.first_window(place.group) {
                let one =
                    |name| anyhow::Ok(doubles(&shop.scratch.download(name, range(first, 1))?)[0]);
                let (row, window) = (first / self.per_row, first % self.per_row);
                let col = window as usize * WINDOW;
                let (difference, gate) = (one("differences")?, one("gates")?);
                let message = window_message(col, place.case.problem.n, difference, gate);
                checked.findings.push(Finding {
                    place: Some(gate::Place {
                        group: place.group,
                        row: row as usize,
                        col,
                    }),
                    ..Finding::sentence(place.check(), message)
                });
            }
            let count = total.min(SAMPLE);
            let mut sample = doubles(&shop.scratch.download("gates", range(0, count))?);
            sample.sort_by(f64::total_cmp);
            checked.smallest_fault = checked.smallest_fault.max(median_fault(&sample));
            checked.windows += total as usize;
            checked.elements += place.rows * place.case.problem.n;
        }
        Ok(())
    }
}

/// Twice the median gate; infinity where the gates are NaN, because C is.
fn median_fault(sorted_gates: &[f64]) -> f64 {
    match sorted_gates.get(sorted_gates.len() / 2) {
        Some(gate) if gate.is_finite() => 2.0 * gate,
        _ => f64::INFINITY,
    }
}

fn one_group(
    device: &Device,
    shop: &Workshop,
    place: &Place<'_>,
    matrices: &(DeviceMatrix, DeviceMatrix),
    (signs, windows): (u64, u64),
    (first, (differences, gates)): (u64, (u64, u64)),
) -> Result<()> {
    let (a, b) = matrices;
    let (rows, depth) = (place.rows as u64, place.depth as u64);
    let (norms_a, norms_b) = norms(device, shop, matrices)?;
    let signed = shop
        .scratch
        .take(device, "signed columns", 8 * windows * depth)?;
    if depth > 0 {
        let arguments: [&dyn Argument; 5] = [&b.argument, &b.codes, &b.scales, &signs, &signed];
        let blocks = grid(depth.div_ceil(16).div_ceil(64), windows, 64)?;
        shop.check("signedColumns", blocks, &arguments)?;
    }
    let wanted = shop.scratch.take(device, "wanted", 8 * windows * rows)?;
    let step = panel_rows(rows, depth);
    let panel = shop
        .scratch
        .take(device, "FP64 panel of A", 8 * step * depth)?;
    let mut row = 0;
    while row < rows {
        let count = step.min(rows - row);
        if depth > 0 {
            a.dequantise(shop, row, count, panel)?;
        }
        let product = Fp64Gemm {
            m: count,
            n: windows,
            k: depth,
            a: panel,
            b: signed,
            d: wanted + 8 * row * windows,
        };
        shop.product(device, &product)?;
        row += count;
    }
    // Sixteen lanes a window, whole warps.
    let per_block = windows.next_multiple_of(2).min(16);
    let blocks = grid(
        rows.div_ceil(ROWS_PER_BLOCK),
        windows.div_ceil(per_block),
        16 * per_block as u32,
    )?;
    let arguments: [&dyn Argument; 10] = [
        &place.result,
        &place.model,
        &windows,
        &signs,
        &wanted,
        &norms_a,
        &norms_b,
        &first,
        &differences,
        &gates,
    ];
    shop.check("judgeWindows", blocks, &arguments)
}
