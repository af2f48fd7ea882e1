//! The quantised operands of a case, on the host.

use anyhow::{Context, Result};

use super::case::Case;
use super::inputs::{self, Input, Stream};
use super::problem::{Problem, Segment};
use crate::lowp::{Quantised, Recipe, ScaleFormat, Ties};

/// The operands of one group.
#[derive(Debug, Clone)]
pub struct SegmentOperands {
    pub segment: Segment,
    /// `rows` × depth: the rows that count, without what masking leaves over.
    pub a: Quantised,
    /// n × depth.
    pub b: Quantised,
    /// rows × n, what C holds before an accumulating kernel; else empty.
    pub c: Vec<f32>,
    /// A and B before quantising, for gates that compare with that; empty where
    /// the codes were made directly.
    pub raw_a: Vec<f32>,
    pub raw_b: Vec<f32>,
}

/// The operands of a case, group by group.
#[derive(Debug, Clone)]
pub struct Operands {
    pub segments: Vec<SegmentOperands>,
}

/// Multiplies A's scales below the normal floats, and B's back up.
pub(super) const DENORMAL_DOWN: i32 = -125;

/// Each group draws from sequences of its own.
pub(super) fn group_seed(seed: u64, group: usize) -> u64 {
    seed.wrapping_add((group as u64) << 32)
}

/// C's start values are −2, −1, 1 and 2 times this.
pub(super) fn c_unit(input: Input) -> f32 {
    if input == Input::Integers { 1.0 } else { 0.5 }
}

impl Operands {
    /// Generates and quantises. Deterministic in the case.
    pub fn generate(case: &Case) -> Result<Operands> {
        case.problem.check()?;
        let segments = case
            .problem
            .segments()
            .into_iter()
            .enumerate()
            .map(|(index, segment)| generate_segment(case, index, segment))
            .collect::<Result<Vec<_>>>()?;
        Ok(Operands { segments })
    }

    /// Bytes of host memory that operands and reference of `problem` take: codes
    /// and raw values, four f64 matrices of the operands, three of the result.
    pub fn host_bytes(problem: &Problem) -> u128 {
        problem
            .segments()
            .iter()
            .map(|s| {
                let operand = (s.rows + problem.n) as u128 * s.depth as u128;
                operand * (1 + 4 + 16) + s.rows as u128 * problem.n as u128 * (24 + 4)
            })
            .sum()
    }
}

fn generate_segment(case: &Case, index: usize, segment: Segment) -> Result<SegmentOperands> {
    let problem = &case.problem;
    let seed = group_seed(case.seed, index);
    let Segment { rows, depth, .. } = segment;
    let make = |recipe: &Recipe, stream, scale, rows| {
        if case.input == Input::Integers {
            Ok((
                integers(recipe, seed, stream, scale, rows, depth),
                Vec::new(),
            ))
        } else {
            quantised(recipe, case.input, seed, stream, rows, depth)
        }
    };
    let (mut a, raw_a) =
        make(&problem.a, Stream::A, Stream::AScale, rows).context("while quantising A")?;
    let (mut b, raw_b) =
        make(&problem.b, Stream::B, Stream::BScale, problem.n).context("while quantising B")?;
    if case.input == Input::DenormalScales {
        shift_scales(&mut a, DENORMAL_DOWN);
        shift_scales(&mut b, -DENORMAL_DOWN);
    }
    let c = if problem.accumulate {
        (0..rows * problem.n)
            .map(|i| initial_c(case.input, seed, i as u64))
            .collect()
    } else {
        Vec::new()
    };
    Ok(SegmentOperands {
        segment,
        a,
        b,
        c,
        raw_a,
        raw_b,
    })
}

/// Small integers, exact in every output type.
pub(super) fn initial_c(input: Input, seed: u64, index: u64) -> f32 {
    let bits = inputs::mix(seed, Stream::C, index);
    inputs::integer(bits) * c_unit(input)
}

fn quantised(
    recipe: &Recipe,
    input: Input,
    seed: u64,
    stream: Stream,
    rows: usize,
    cols: usize,
) -> Result<(Quantised, Vec<f32>)> {
    let raw: Vec<f32> = (0..rows * cols)
        .map(|i| inputs::value(input, seed, stream, i / cols, i % cols, cols))
        .collect();
    Ok((recipe.quantise(&raw, rows, cols)?, raw))
}

/// Codes of ±1 and ±2 under scales of ½, 1 and 2, made without quantising: the
/// scales must differ from group to group for a wrong scale to be seen.
fn integers(
    recipe: &Recipe,
    seed: u64,
    stream: Stream,
    scale: Stream,
    rows: usize,
    cols: usize,
) -> Quantised {
    let (group_rows, group_cols) = recipe.granularity.group(rows, cols);
    let (scale_rows, scale_cols) = (rows.div_ceil(group_rows), cols.div_ceil(group_cols));
    let codes = (0..rows * cols)
        .map(|i| {
            let value = inputs::small_integer(seed, stream, i as u64);
            let code = recipe.format.encode(value, Ties::Even);
            code.expect("small integers have codes in every format")
        })
        .collect();
    let scales = (0..scale_rows * scale_cols)
        .map(|i| inputs::power(inputs::mix(seed, scale, i as u64)))
        .collect();
    Quantised {
        rows,
        cols,
        recipe: *recipe,
        codes,
        scales,
        scale_rows,
        scale_cols,
    }
}

/// Scales times 2^exponent; UE8M0 stays within its own range.
fn shift_scales(matrix: &mut Quantised, exponent: i32) {
    let factor = 2f64.powi(exponent);
    let smallest = match matrix.recipe.scale {
        ScaleFormat::F32 => 0.0,
        ScaleFormat::Ue8m0 => 2f64.powi(-127),
    };
    for scale in &mut matrix.scales {
        *scale = (f64::from(*scale) * factor).max(smallest) as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::problem::Form;
    use crate::lowp::OutputType;

    #[test]
    fn the_same_case_gives_the_same_operands_and_another_seed_others() {
        let problem = Problem::dense(5, 7, 130, OutputType::F32);
        for input in Input::ALL {
            let case = |seed| Case::new("test", problem.clone(), input, seed);
            let codes = |seed| {
                let operands = Operands::generate(&case(seed)).unwrap();
                let segment = &operands.segments[0];
                (segment.a.codes.clone(), segment.b.scales.clone())
            };
            assert_eq!(codes(1), codes(1));
            assert!(
                codes(1) != codes(2) || input == Input::Equal,
                "{}",
                input.name()
            );
        }
    }

    #[test]
    fn denormal_scales_are_denormal_and_the_product_is_in_range() {
        let problem = Problem::dense(5, 7, 300, OutputType::F16);
        let case = Case::new("test", problem, Input::DenormalScales, 3);
        let operands = Operands::generate(&case).unwrap();
        let segment = &operands.segments[0];
        assert!(segment.a.scales.iter().all(|s| s.is_subnormal()));
        let product = segment.a.scales[0] * segment.b.scales[0];
        assert!(product > 1e-6 && product < 1.0, "{product}");
    }

    #[test]
    fn groups_draw_different_values() {
        let problem = Problem::dense(0, 7, 64, OutputType::F32)
            .with_form(Form::Contiguous { rows: vec![4, 4] });
        let case = Case::new("test", problem, Input::Normal, 3);
        let operands = Operands::generate(&case).unwrap();
        assert_ne!(operands.segments[0].b.codes, operands.segments[1].b.codes);
    }
}
