//! Where the exact dots are: never where the input makes them zero.

use super::*;
use crate::gemm::case::Case;
use crate::gemm::operands::Operands;
use crate::gemm::problem::Form;

/// The k-groups of the case that had nothing but zeros sampled, and others.
#[test]
fn half_zero_is_sampled_only_where_it_is_not_zero() {
    let problem = Problem::dense(21, 161, 0, OutputType::F32).with_form(Form::KGrouped {
        depths: vec![40, 16, 1, 17, 130],
    });
    for seed in 900..950 {
        let case = Case::new("test", problem.clone(), Input::HalfZero, seed);
        for operands in &Operands::generate(&case).unwrap().segments {
            let depth = operands.segment.depth;
            let (a, b) = (operands.a.dequantise(), operands.b.dequantise());
            for left in [0, 128] {
                let size = (21, 161, depth);
                let (row, col) = dot_place(size, (0, left), Input::HalfZero, seed);
                assert!(row < 21 && (left..(left + WINDOW).min(161)).contains(&col));
                let dot: f64 = (0..depth)
                    .map(|k| a[row * depth + k] * b[col * depth + k])
                    .sum();
                assert!(dot != 0.0, "seed {seed}, depth {depth}: ({row}, {col})");
            }
        }
    }
}

#[test]
fn odd_rows_of_half_zero_are_sampled_too_where_they_hold_something() {
    let rows = |depth| {
        (0..100).filter(move |&seed| {
            let place = dot_place((64, 64, depth), (0, 0), Input::HalfZero, seed);
            place.0 % 2 == 1
        })
    };
    assert!((20..80).contains(&rows(32).count()));
    assert_eq!(rows(16).count(), 0);
    // One column: only even rows meet it.
    for seed in 0..20 {
        let place = dot_place((64, 1, 32), (0, 0), Input::HalfZero, seed);
        assert_eq!((place.0 % 2, place.1), (0, 0));
    }
}

/// Windows at the sampled strength: a library's sums rounded twice pass, with no
/// other error at all, and the same results are wrong for a kernel that claims one
/// rounding, or when two spacings are added.
#[test]
fn sums_of_integers_rounded_twice_pass_for_the_library_alone() {
    let output = OutputType::Bf16;
    let problem = Problem::dense(20, 300, 1152, output).accumulating();
    let case = Case::new("test", problem.clone(), Input::Integers, 31);
    let operands = Operands::generate(&case).unwrap();
    let segment = &operands.segments[0];
    let reference =
        crate::gemm::reference::SegmentReference::compute(&problem, segment, Accumulator::Fp32);
    let got: Vec<f64> = reference
        .want
        .iter()
        .zip(&segment.c)
        .map(|(want, &c)| {
            let c = f64::from(c);
            output.round_wide(output.round_wide(want - c) + c)
        })
        .collect();
    let library = Accumulator::PromotedThenRounded { promote: 128 };
    let judge = |accumulator, got: &[f64]| {
        let found = check(&problem, segment, accumulator, Input::Integers, got, 31);
        found.window.is_none() && found.dot.is_none()
    };
    assert!(judge(library, &got));
    let elementwise = |accumulator, got: &[f64]| {
        let reference =
            crate::gemm::reference::SegmentReference::compute(&problem, segment, accumulator);
        (0..got.len())
            .filter(|&i| !reference.bound(i, 0.0).admits(got[i]))
            .count()
    };
    assert_eq!(elementwise(library, &got), 0);
    assert!(elementwise(Accumulator::Fp32, &got) > 20);
    let mut off = got.clone();
    off[77] += 4.0 * output.half_ulp(off[77].abs().max(1.0));
    assert_eq!(elementwise(library, &off), 1);
    // A product that never met C's old value.
    let dropped: Vec<f64> = got
        .iter()
        .zip(&segment.c)
        .map(|(x, &c)| x - f64::from(c))
        .collect();
    assert!(!judge(library, &dropped));
}
