//! What a library that rounds the product before it adds C's old value may return,
//! against results of cuBLASLt on an H200.

use super::*;
use crate::gemm::inputs::{Stream, integer, mix};
use crate::gemm::operands::group_seed;
use crate::gemm::problem::tensor_recipes;

const LIBRARY: Accumulator = Accumulator::PromotedThenRounded { promote: 128 };

fn arithmetic(accumulator: Accumulator, output: OutputType) -> Arithmetic {
    let problem = Problem::dense(1, 1, 1152, output)
        .with_recipes(tensor_recipes())
        .accumulating();
    Arithmetic::of(&problem, 1152, accumulator)
}

/// Integers, BF16, C += : what a correct gate of one rounding called wrong.
/// (seed, group, row, n, column, got, want)
const MEASURED: [(u64, usize, usize, usize, usize, f64, f64); 6] = [
    (89, 0, 4, 13824, 852, 352.0, 350.25),
    (451, 0, 119, 2704, 551, -207.0, -206.5),
    (598, 0, 6, 4296, 977, -157.0, -156.5),
    (598, 1, 10, 4296, 1132, -183.0, -183.5),
    (598, 2, 0, 4296, 1779, 179.0, 179.5),
    (598, 3, 0, 4296, 874, 254.0, 255.0),
];

#[test]
fn every_result_measured_on_an_h200_is_the_product_rounded_and_then_the_sum() {
    let output = OutputType::Bf16;
    for (seed, group, row, n, col, got, want) in MEASURED {
        let bits = mix(group_seed(seed, group), Stream::C, (row * n + col) as u64);
        let held = f64::from(integer(bits));
        let product = want - held;
        let twice = output.round_wide(output.round_wide(product) + held);
        assert_eq!(twice, got, "{product} + {held}");
        assert_ne!(output.round_wide(want), got, "one rounding explains it");
        let admits = |accumulator, got: f64| {
            arithmetic(accumulator, output)
                .bound_over(want, held, 0.0)
                .admits(got)
        };
        assert!(admits(LIBRARY, got) && admits(LIBRARY, output.round_wide(want)));
        assert!(!admits(
            Accumulator::TruncatingPromoted { promote: 128 },
            got
        ));
        // Still no room for the next values on either side.
        let step = 2.0 * output.half_ulp(want);
        for beyond in [
            got.max(output.round_wide(want)) + step,
            got.min(output.round_wide(want)) - step,
        ] {
            assert!(!admits(LIBRARY, beyond), "{beyond} for {want}");
        }
        let (at_product, at_sum) = (output.half_ulp(product), output.half_ulp(want));
        assert!((got - want).abs() <= at_product + at_sum);
    }
}

#[test]
fn a_kernel_that_rounds_once_or_stores_fp32_gets_no_second_rounding() {
    let f32_out = arithmetic(LIBRARY, OutputType::F32).bound_over(350.25, -1.0, 0.0);
    assert_eq!((f32_out.low, f32_out.high), (350.25, 350.25));
    let plain = Problem::dense(1, 1, 1152, OutputType::Bf16).with_recipes(tensor_recipes());
    assert!(!Arithmetic::of(&plain, 1152, LIBRARY).rounds_product);
    let once = arithmetic(Accumulator::Fp32, OutputType::Bf16);
    assert_eq!(once.bound_over(350.25, -1.0, 0.0), once.bound(350.25, 0.0));
    assert_eq!(once.product_rounding(352.0, -1.0), 0.0);
}

/// Both orders of rounding, at every product and old value around three binades and
/// with an error before rounding: all inside, by as much as was charged.
#[test]
fn results_of_either_order_lie_inside_and_the_window_charges_enough_for_them() {
    for output in [OutputType::Bf16, OutputType::F16] {
        let model = arithmetic(LIBRARY, output);
        for quarter in -4200..4200 {
            let product = f64::from(quarter) / 4.0;
            for held in [-2.0, -1.0, 1.0, 2.0] {
                for error in [0.0, 0.3, -0.3] {
                    let stored = output.round_wide(product + error);
                    let got = output.round_wide(stored + held);
                    let once = output.round_wide(product + error + held);
                    let bound = model.bound_over(product + held, held, f64::abs(error));
                    assert!(bound.admits(got) && bound.admits(once));
                    let charged = error.abs()
                        + output.half_ulp(got.abs() + error.abs())
                        + model.product_rounding(got, held);
                    assert!((got - product - held).abs() <= charged);
                }
            }
        }
    }
}
