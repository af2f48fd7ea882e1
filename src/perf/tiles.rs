//! The check of a timed GEMM: every element that is asked for must be finite (C starts
//! as NaN), every row that is not must still be NaN, and one element of each
//! 128 × 128 tile must lie within the bound of its exact f64 dot product. That turns
//! away every tile that is wrong as a whole, at any size; the full gate is
//! `kernelgate gemm check`.

use super::inputs::{in_parallel, slot};
use crate::gemm::bound::{Accumulator, Arithmetic};
use crate::gemm::problem::Problem;
use crate::lowp::OutputType;

/// Rows and columns of C that share one exact dot.
pub const TILE: usize = 128;
/// k of one scale.
const GROUP: usize = 128;

/// The exact result, element by element, from operands made again.
pub struct Expected<'a> {
    pub n: usize,
    pub k: usize,
    /// Of A, B and their scales.
    pub seeds: [u64; 4],
    pub codes: &'a [f64],
    pub scales: &'a [f64],
}

impl Expected<'_> {
    /// The exact value of column `col` of row `row` of all rows in memory, for the
    /// B of `group`; with Σ s|ab| and its form weighted along k.
    fn at(&self, group: usize, row: usize, col: usize, weights: Option<&[f64]>) -> [f64; 3] {
        let [a, b, a_scale, b_scale] = self.seeds;
        let (k, groups_k) = (self.k, self.k.div_ceil(GROUP));
        let b_row = group * self.n + col;
        let b_block = group * self.n.div_ceil(GROUP) + col / GROUP;
        let code = |seed, i: usize| self.codes[slot(seed, i as u64, self.codes.len())];
        let scale = |seed, i: usize| self.scales[slot(seed, i as u64, self.scales.len())];
        let (mut want, mut magnitude, mut weighted) = (0.0, 0.0, 0.0);
        for part in 0..groups_k {
            let factor =
                scale(a_scale, row * groups_k + part) * scale(b_scale, b_block * groups_k + part);
            for at in part * GROUP..((part + 1) * GROUP).min(k) {
                let product = factor * code(a, row * k + at) * code(b, b_row * k + at);
                want += product;
                magnitude += product.abs();
                weighted += weights.map_or(0.0, |w| w[at]) * product.abs();
            }
        }
        [want, magnitude, weighted]
    }
}

/// A tile of one group: its first row in memory and within the group, its columns.
struct Tile {
    group: usize,
    first: usize,
    rows: usize,
    columns: std::ops::Range<usize>,
}

fn tiles(problem: &Problem) -> Vec<Tile> {
    let mut all = Vec::new();
    let mut first = 0;
    for (group, segment) in problem.segments().iter().enumerate() {
        for row in (0..segment.rows).step_by(TILE) {
            for col in (0..problem.n).step_by(TILE) {
                all.push(Tile {
                    group,
                    first: first + row,
                    rows: TILE.min(segment.rows - row),
                    columns: col..(col + TILE).min(problem.n),
                });
            }
        }
        first += segment.allocated;
    }
    all
}

/// How many elements were compared with their exact value, and the first that is
/// outside its bound.
pub fn sampled(
    problem: &Problem,
    accumulator: Accumulator,
    expected: &Expected<'_>,
    seed: u64,
    c: &[u8],
) -> (usize, Option<String>) {
    let arithmetic = Arithmetic::of(problem, problem.k, accumulator);
    let weights = arithmetic.truncation_weights();
    let tiles = tiles(problem);
    let (output, size) = (problem.output, problem.output.size());
    let failures = in_parallel(tiles.len() as u64, |range| {
        range.into_iter().find_map(|index| {
            let tile = &tiles[index as usize];
            let pick = |salt, length: usize| slot(seed ^ salt, index, 1 << 20) % length;
            let row = tile.first + pick(11, tile.rows);
            let col = tile.columns.start + pick(12, tile.columns.len());
            let [want, magnitude, weighted] = expected.at(tile.group, row, col, weights.as_deref());
            let bound = arithmetic.bound(want, arithmetic.accumulation(magnitude, weighted));
            let at = (row * problem.n + col) * size;
            let got = output.widen(&c[at..at + size])[0];
            (!bound.admits(got)).then(|| {
                format!(
                    "C[{row}, {col}] is {got:e}, expected {want:e} within [{:e}, {:e}]",
                    bound.low, bound.high
                )
            })
        })
    });
    (tiles.len(), failures.into_iter().flatten().next())
}

/// The first element that is asked for and not finite, or in a row that is not asked
/// for and no longer poison.
pub fn misplaced(problem: &Problem, c: &[u8]) -> Option<String> {
    let counts: Vec<bool> = problem
        .segments()
        .iter()
        .flat_map(|s| (0..s.allocated).map(|row| row < s.rows))
        .collect();
    let row_bytes = problem.n * problem.output.size();
    let bad = in_parallel(counts.len() as u64, |range| {
        range.into_iter().find_map(|row| {
            let row = row as usize;
            let bytes = &c[row * row_bytes..(row + 1) * row_bytes];
            let mut elements = bytes.chunks_exact(problem.output.size());
            let col = elements.position(|x| is_finite(x, problem.output) != counts[row])?;
            Some(match counts[row] {
                true => format!("C[{row}, {col}] was not written, or is not finite"),
                false => format!("C[{row}, {col}] was written, in a row past its group's count"),
            })
        })
    });
    bad.into_iter().flatten().next()
}

fn is_finite(element: &[u8], output: OutputType) -> bool {
    match output {
        OutputType::F32 => f32::from_le_bytes(element.try_into().expect("four bytes")).is_finite(),
        OutputType::Bf16 => !(element[1] & 0x7f == 0x7f && element[0] & 0x80 != 0),
        OutputType::F16 => element[1] & 0x7c != 0x7c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::problem::Form;

    #[test]
    fn an_unwritten_element_and_a_written_unused_row_are_found_in_every_output_type() {
        for output in OutputType::ALL {
            let problem = Problem::dense(0, 50, 128, output).with_form(Form::Masked {
                max_rows: 10,
                rows: vec![10, 7],
            });
            let size = output.size();
            let mut c = output.bytes_of(1.5).repeat(17 * 50);
            c.extend(output.poison().repeat(3 * 50));
            assert_eq!(misplaced(&problem, &c), None, "{}", output.name());
            for (element, value, what) in [
                (777, output.poison(), "not written"),
                (17 * 50 + 1, output.bytes_of(0.0), "past its group's count"),
            ] {
                let mut c = c.clone();
                c[element * size..(element + 1) * size].copy_from_slice(&value);
                let found = misplaced(&problem, &c).unwrap();
                assert!(found.contains(what), "{}: {found}", output.name());
                assert!(found.contains(&format!("C[{}, {}]", element / 50, element % 50)));
            }
        }
    }

    #[test]
    fn tiles_cover_the_valid_rows_of_every_group_once() {
        let problem = Problem::dense(0, 300, 128, OutputType::F32).with_form(Form::Masked {
            max_rows: 200,
            rows: vec![200, 0, 1, 129],
        });
        let mut seen = vec![0; 800 * 300];
        for tile in tiles(&problem) {
            for row in tile.first..tile.first + tile.rows {
                for col in tile.columns.clone() {
                    seen[row * 300 + col] += 1;
                }
            }
        }
        let rows: Vec<i32> = seen.chunks(300).map(|row| row.iter().sum()).collect();
        for (row, sum) in rows.iter().enumerate() {
            let count = [200, 0, 1, 129][row / 200];
            assert_eq!(*sum, if row % 200 < count { 300 } else { 0 }, "row {row}");
        }
    }
}
