//! The supplied suite and the hardened one.

use crate::harness::check::{Gate, compare_one};
use crate::harness::inputs;
use crate::harness::ladder::Ladder;
use crate::harness::oracle;
use crate::harness::property;
use crate::harness::tolerance::SumTolerance;
use crate::lessons::reduction::{LaunchError, Sum, THREADS};
use crate::lessons::suite::{Test, TestResult};

/// What drop-tail gave at 611 elements on the day somebody captured it: the sum of
/// elements 0 to 511. The sum of all 611 is 14,171.
pub const GOLDEN_611: f64 = 11_815.5;

/// The sizes of the lesson: two ragged ones, and one that 256 divides.
const LESSON_SIZES: [usize; 3] = [611, 1_024, 16_483];

/// A size at which the scaled gate is wider than the dropped tail.
pub const BLIND_AT: usize = (1 << 20) + 99;

/// How many elements trade places: the tail that drop-tail loses at 16,483.
const SWAPPED: usize = 99;

/// The suite as the kernel's author left it. All four pass drop-tail.
pub fn supplied() -> Vec<Test> {
    vec![
        Test::new(
            "golden_snapshot",
            "Any kernel whose sum at 611 is not the captured one, the right kernel included; \
             never the kernel that it was captured from.",
            [611],
            golden_snapshot,
        ),
        Test::new(
            "determinism",
            "A kernel that loses an update on some runs; never one that is wrong in the same \
             way every time.",
            [16_483],
            determinism,
        ),
        Test::new(
            "loose_oracle",
            "A kernel that reads only the first half of its input; never one that is off by \
             less than one percent.",
            [16_483],
            loose_oracle,
        ),
        Test::new(
            "linearity",
            "A kernel whose accumulator starts from one instead of zero; never one that drops \
             elements, which is linear.",
            [1_024],
            linearity,
        ),
    ]
}

/// The suite that rejects drop-tail.
///
/// The structural test comes first: exact inputs and gate zero at every size. The
/// scaled oracle then asks about rounding, on the lesson's sizes.
pub fn hardened() -> Vec<Test> {
    vec![
        structural_on_the_ladder(),
        Test::new(
            "scaled_oracle",
            "A kernel that drops the last 99 elements of 611 or of 16,483, or whose rounding \
             is worse than its order of summation explains.",
            LESSON_SIZES,
            scaled_oracle,
        ),
        Test::new(
            "swap_ends",
            "A kernel that treats the tail of its input differently from the head.",
            [16_483],
            swap_ends,
        ),
        Test::new(
            "linearity",
            "A kernel whose accumulator starts from one instead of zero.",
            LESSON_SIZES,
            linearity,
        ),
    ]
}

/// Exact inputs and gate zero at every size of the ladder for one block.
pub fn structural_on_the_ladder() -> Test {
    let mut sizes = Ladder::for_tile(THREADS).sizes();
    sizes.push(BLIND_AT);
    Test::new(
        "structural",
        "A kernel that misses or repeats a single element at any size.",
        sizes,
        structural,
    )
}

/// Tautological: the constant came from the kernel under test.
fn golden_snapshot(sum: &mut dyn Sum, n: usize) -> TestResult {
    let got = sum.sum(&inputs::halves(n))?;
    Ok(compare_one(got, GOLDEN_611, Gate::Exact))
}

fn determinism(sum: &mut dyn Sum, n: usize) -> TestResult {
    property::determinism(&inputs::halves(n), one(sum))
}

/// A true reference behind a gate of one percent, "to be safe with floats".
fn loose_oracle(sum: &mut dyn Sum, n: usize) -> TestResult {
    against_oracle(sum, &inputs::halves(n), Gate::Relative(1e-2))
}

fn linearity(sum: &mut dyn Sum, n: usize) -> TestResult {
    property::linearity(&inputs::halves(n), one(sum))
}

fn structural(sum: &mut dyn Sum, n: usize) -> TestResult {
    against_oracle(sum, &inputs::structural(n)?, Gate::Exact)
}

fn scaled_oracle(sum: &mut dyn Sum, n: usize) -> TestResult {
    let gate = SumTolerance::for_terms(n).as_gate();
    against_oracle(sum, &inputs::halves(n), gate)
}

fn swap_ends(sum: &mut dyn Sum, n: usize) -> TestResult {
    let gate = SumTolerance::for_terms(n).as_gate();
    property::swap_ends(&inputs::halves(n), SWAPPED, gate, one(sum))
}

fn against_oracle(sum: &mut dyn Sum, input: &[f32], gate: Gate) -> TestResult {
    let got = sum.sum(input)?;
    Ok(compare_one(got, oracle::sum(input), gate))
}

/// The scaled oracle at [`BLIND_AT`], which drop-tail passes: the reason that the
/// structural test exists.
pub(super) fn scaled_oracle_where_it_is_blind() -> Test {
    Test::new(
        "scaled_oracle",
        "Bad rounding; no longer a dropped tail of 99, which is smaller than the gate here.",
        [BLIND_AT],
        scaled_oracle,
    )
}

/// Whether both orders of the input give the same bits.
pub(super) fn orders_bitwise() -> Test {
    Test::new(
        "orders_bitwise",
        "A kernel whose sum depends on where an element sits, by as little as one bit.",
        [16_483],
        |sum, n| property::swap_ends(&inputs::halves(n), SWAPPED, Gate::Bitwise, one(sum)),
    )
}

/// The structural test below one block, where drop-tail has nothing to launch.
pub(super) fn below_one_block() -> Test {
    Test::new(
        "structural",
        "A launch that rounds its grid down to zero blocks.",
        [THREADS - 1],
        structural,
    )
}

/// The structural test at one size of the user's choice.
pub(super) fn structural_at(n: usize) -> Test {
    Test::new(
        "structural",
        "A kernel that misses or repeats a single element.",
        [n],
        structural,
    )
}

/// A sum as a kernel with one output.
fn one(sum: &mut dyn Sum) -> impl FnMut(&[f32]) -> Result<Vec<f32>, LaunchError> {
    |input| Ok(vec![sum.sum(input)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Verdict;
    use crate::lessons::reduction::{HostTree, specimens};

    /// Whether `test` fails the named specimen at one of its sizes.
    fn rejects(test: &Test, specimen: &specimens::Specimen) -> bool {
        let mut tree = HostTree;
        let mut sum = specimen.on(&mut tree);
        test.sizes
            .iter()
            .any(|&n| test.at(n, &mut sum).unwrap().verdict.failed())
    }

    fn wrong(name: &str) -> specimens::Specimen {
        *specimens::WRONG
            .iter()
            .find(|specimen| specimen.name == name)
            .unwrap()
    }

    #[test]
    fn each_test_rejects_the_wrong_kernel_that_its_sentence_names() {
        let [golden, determinism, loose, linearity] = &supplied()[..] else {
            panic!("the supplied suite has four tests");
        };
        let [structural, scaled, swap, hard_linearity] = &hardened()[..] else {
            panic!("the hardened suite has four tests");
        };
        for (test, specimen) in [
            (golden, "first-half"),
            (determinism, "racy"),
            (loose, "first-half"),
            (linearity, "offset"),
            (structural, "drop-tail"),
            (scaled, "drop-tail"),
            (swap, "drop-tail"),
            (hard_linearity, "offset"),
            (&orders_bitwise(), "drop-tail"),
            (&below_one_block(), "drop-tail"),
            (&scaled_oracle_where_it_is_blind(), "first-half"),
        ] {
            assert!(!test.check.rejects.is_empty());
            assert!(
                rejects(test, &wrong(specimen)),
                "{} passes {specimen}",
                test.check.name
            );
        }
    }

    #[test]
    fn each_test_but_the_snapshot_passes_the_right_kernel() {
        for test in supplied().into_iter().chain(hardened()).chain([
            orders_bitwise(),
            below_one_block(),
            scaled_oracle_where_it_is_blind(),
        ]) {
            let is_snapshot = test.check.name == "golden_snapshot";
            assert_eq!(
                rejects(&test, &specimens::RIGHT),
                is_snapshot,
                "{}",
                test.check.name
            );
        }
    }

    #[test]
    fn no_supplied_test_rejects_drop_tail() {
        for test in supplied() {
            assert!(!rejects(&test, &wrong("drop-tail")), "{}", test.check.name);
        }
    }

    #[test]
    fn the_scaled_gate_accepts_drop_tail_at_a_million_and_the_exact_check_rejects_it() {
        let mut tree = HostTree;
        let mut sum = wrong("drop-tail").on(&mut tree);
        let scaled = scaled_oracle(&mut sum, BLIND_AT).unwrap();
        let exact = structural(&mut sum, BLIND_AT).unwrap();
        let Verdict::Pass(passed) = scaled else {
            panic!("{scaled}");
        };
        assert!(passed.worst.error > 9e-5, "the tail is missing: {passed:?}");
        assert!(exact.failed(), "{exact}");
        assert_eq!(exact.mismatch().unwrap().gate, Gate::Exact);
    }
}
