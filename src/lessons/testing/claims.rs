//! What the lesson states, from what was observed.

use super::suites::{
    BLIND_AT, below_one_block, hardened, orders_bitwise, scaled_oracle_where_it_is_blind, supplied,
};
use crate::device::DeviceError;
use crate::harness::verdict::Failure;
use crate::harness::{Claims, Outcome, Verdict, figures};
use crate::lessons::reduction::Sum;
use crate::lessons::suite;
use serde::Serialize;

/// Everything that was run on one variant.
#[derive(Clone, Debug, Serialize)]
pub struct Observed {
    /// The supplied suite.
    pub supplied: Vec<Outcome>,
    /// The hardened suite.
    pub hardened: Vec<Outcome>,
    /// The scaled oracle where it is blind.
    pub blind: Vec<Outcome>,
    /// Both orders of the input, bit for bit.
    pub orders: Vec<Outcome>,
    /// Fewer elements than one block has threads.
    pub below_one_block: Vec<Outcome>,
}

/// Runs everything on one variant.
///
/// # Errors
/// [`DeviceError`] when the device fails under it.
pub fn observe(sum: &mut dyn Sum) -> Result<Observed, DeviceError> {
    Ok(Observed {
        supplied: suite::run(&supplied(), sum)?,
        hardened: suite::run(&hardened(), sum)?,
        blind: suite::run(&[scaled_oracle_where_it_is_blind()], sum)?,
        orders: suite::run(&[orders_bitwise()], sum)?,
        below_one_block: suite::run(&[below_one_block()], sum)?,
    })
}

/// States the claims of the lesson.
pub fn state(drop_tail: &Observed, guarded: &Observed) -> Claims {
    let mut claims = Claims::default();
    about_the_supplied_suite(&mut claims, drop_tail, guarded);
    about_the_hardened_oracle(&mut claims, drop_tail);
    about_properties(&mut claims, drop_tail, guarded);
    about_the_structural_test(&mut claims, drop_tail, guarded);
    claims.expect(
        "hardened-passes-guarded",
        "the hardened suite passes guarded",
        all_pass(&guarded.hardened),
        tally(&guarded.hardened),
    );
    claims
}

fn about_the_supplied_suite(claims: &mut Claims, drop_tail: &Observed, guarded: &Observed) {
    claims.expect(
        "supplied-passes-drop-tail",
        "the supplied suite passes drop-tail, 4 of 4",
        drop_tail.supplied.len() == 4 && all_pass(&drop_tail.supplied),
        tally(&drop_tail.supplied),
    );
    let golden = verdict(&guarded.supplied, "golden_snapshot", 611);
    claims.expect(
        "golden-rejects-fix",
        "the golden snapshot rejects guarded, the fix",
        golden.failed(),
        golden,
    );
}

fn about_the_hardened_oracle(claims: &mut Claims, drop_tail: &Observed) {
    for (id, n) in [
        ("oracle-rejects-611", 611),
        ("oracle-rejects-16483", 16_483),
    ] {
        let verdict = verdict(&drop_tail.hardened, "scaled_oracle", n);
        claims.expect(
            id,
            format!(
                "the hardened oracle rejects drop-tail at {}",
                figures::count(n)
            ),
            verdict.mismatch().is_some(),
            verdict,
        );
    }
    let verdict = verdict(&drop_tail.hardened, "scaled_oracle", 1_024);
    claims.expect(
        "oracle-passes-1024",
        "the hardened oracle passes drop-tail at 1,024, where no tail is left",
        verdict.passed(),
        verdict,
    );
}

fn about_properties(claims: &mut Claims, drop_tail: &Observed, guarded: &Observed) {
    let swap = verdict(&drop_tail.hardened, "swap_ends", 16_483);
    claims.expect(
        "swap-ends-rejects-by-88",
        "swap-ends rejects drop-tail, by exactly 88",
        swap.mismatch().is_some_and(|m| m.got - m.want == 88.0),
        swap,
    );
    let orders = verdict(&guarded.orders, "orders_bitwise", 16_483);
    claims.expect(
        "guarded-orders-bitwise-equal",
        "guarded gives the same bits for both orders",
        orders.passed(),
        orders,
    );
    for (id, name, observed) in [
        ("linearity-passes-drop-tail", "drop-tail", drop_tail),
        ("linearity-passes-guarded", "guarded", guarded),
    ] {
        let linear: Vec<Outcome> = observed
            .supplied
            .iter()
            .chain(&observed.hardened)
            .filter(|outcome| outcome.check.name == "linearity")
            .cloned()
            .collect();
        claims.expect(
            id,
            format!("linearity passes {name} at every size"),
            all_pass(&linear),
            tally(&linear),
        );
    }
}

fn about_the_structural_test(claims: &mut Claims, drop_tail: &Observed, guarded: &Observed) {
    let ragged_are_rejected = |observed: &Observed| {
        let mut structural = structural(observed).peekable();
        structural.peek().is_some()
            && structural.all(|outcome| outcome.verdict.failed() == (outcome.n % 256 != 0))
    };
    let of_drop_tail: Vec<Outcome> = structural(drop_tail).cloned().collect();
    claims.expect(
        "structural-rejects-every-ragged-size",
        "the structural test rejects drop-tail at every size that 256 does not divide, and \
         only there",
        ragged_are_rejected(drop_tail),
        tally(&of_drop_tail),
    );
    let of_guarded: Vec<Outcome> = structural(guarded).cloned().collect();
    claims.expect(
        "structural-passes-guarded",
        "the structural test passes guarded at every size",
        all_pass(&of_guarded),
        tally(&of_guarded),
    );
    let scaled = verdict(&drop_tail.blind, "scaled_oracle", BLIND_AT);
    let exact = verdict(&drop_tail.hardened, "structural", BLIND_AT);
    claims.expect(
        "scaled-gate-is-blind-at-a-million",
        format!(
            "at {} the scaled gate accepts drop-tail and the structural test rejects it",
            figures::count(BLIND_AT)
        ),
        scaled.passed() && exact.mismatch().is_some(),
        format!("scaled: {scaled}; structural: {exact}"),
    );
    let below = verdict(&drop_tail.below_one_block, "structural", 255);
    claims.expect(
        "zero-blocks-are-an-error",
        "below 256 elements drop-tail is refused before the launch",
        matches!(below, Verdict::Fail(Failure::Launch { .. })),
        below,
    );
}

fn structural(observed: &Observed) -> impl Iterator<Item = &Outcome> {
    let named = |outcome: &&Outcome| outcome.check.name == "structural";
    observed.hardened.iter().filter(named)
}

/// The verdict of one check at one size; a check that did not run is skipped,
/// which neither passes nor fails.
fn verdict(outcomes: &[Outcome], check: &str, n: usize) -> Verdict {
    outcomes
        .iter()
        .find(|outcome| outcome.check.name == check && outcome.n == n)
        .map_or_else(
            || Verdict::Skipped {
                reason: format!("{check} did not run at {n}"),
            },
            |outcome| outcome.verdict.clone(),
        )
}

fn all_pass(outcomes: &[Outcome]) -> bool {
    !outcomes.is_empty() && outcomes.iter().all(|outcome| outcome.verdict.passed())
}

/// How many passed, and the first that did not.
fn tally(outcomes: &[Outcome]) -> String {
    let passed = outcomes.iter().filter(|o| o.verdict.passed()).count();
    let count = format!("{passed} of {} pass", outcomes.len());
    match outcomes.iter().find(|outcome| !outcome.verdict.passed()) {
        None => count,
        Some(first) => format!(
            "{count}; first: {} at {}: {}",
            first.check.name,
            figures::count(first.n),
            first.verdict
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;
    use crate::lessons::reduction::{HostTree, LaunchError, specimens};
    use std::collections::BTreeSet;

    fn observed(specimen: &specimens::Specimen) -> Observed {
        observe(&mut specimen.on(&mut HostTree)).unwrap()
    }

    fn lesson() -> Claims {
        state(
            &observed(&specimens::WRONG[0]),
            &observed(&specimens::RIGHT),
        )
    }

    #[test]
    fn every_claim_holds_on_the_stand_in() {
        let claims = lesson();
        assert_eq!(claims.exit(), Exit::Held, "{claims}");
        assert_eq!(claims.ids().len(), 14);
    }

    #[test]
    fn flipping_any_one_claim_exits_1_with_its_gate_line() {
        let lesson = lesson();
        for id in lesson.ids() {
            let mut claims = lesson.clone();
            claims.flip(id).unwrap();
            assert_eq!(claims.exit(), Exit::Failed, "{id}");
            let text = claims.to_string();
            let gates: Vec<&str> = text.lines().filter(|l| l.starts_with("GATE:")).collect();
            assert_eq!(gates.len(), 1, "{text}");
            assert!(gates[0].contains(id), "{text}");
        }
    }

    /// A launch that answers NaN.
    struct NotANumber;
    impl Sum for NotANumber {
        fn sum(&mut self, _: &[f32]) -> Result<f32, LaunchError> {
            Ok(f32::NAN)
        }
    }

    /// Beyond the flip: for each claim there is a pair of launches that breaks it.
    #[test]
    fn every_claim_is_broken_by_some_wrong_pair_of_launches() {
        let variants: Vec<Observed> = specimens::WRONG
            .iter()
            .chain([&specimens::RIGHT])
            .map(observed)
            .chain([observe(&mut NotANumber).unwrap()])
            .collect();
        let mut broken = BTreeSet::new();
        for first in &variants {
            for second in &variants {
                let claims = state(first, second);
                broken.extend(claims.broken().map(|claim| claim.id));
            }
        }
        assert_eq!(broken, lesson().ids().into_iter().collect());
    }

    /// Reads ten elements: swap-ends rejects it by 391.5.
    struct FirstTen;
    impl Sum for FirstTen {
        fn sum(&mut self, input: &[f32]) -> Result<f32, LaunchError> {
            Ok(input.iter().take(10).sum())
        }
    }

    #[test]
    fn a_swap_difference_other_than_88_breaks_the_claim() {
        let ten = observe(&mut FirstTen).unwrap();
        let swap = verdict(&ten.hardened, "swap_ends", 16_483);
        let mismatch = swap.mismatch().unwrap();
        assert_eq!(mismatch.got - mismatch.want, 391.5);
        let claims = state(&ten, &observed(&specimens::RIGHT));
        let mut broken = claims.broken();
        assert!(broken.any(|claim| claim.id == "swap-ends-rejects-by-88"));
    }

    #[test]
    fn the_figures_of_the_lesson_stand_in_the_claims_to_the_digit() {
        let claims = lesson();
        for (id, figures) in [
            (
                "oracle-rejects-611",
                "got 11,815.5, want 14,171, relative error 1.662e-1, gate 1.179e-5",
            ),
            (
                "oracle-rejects-16483",
                "got 393,018, want 395,434.5, relative error 6.111e-3, gate 6.122e-5",
            ),
            (
                "oracle-passes-1024",
                "got 23,995.5, want 23,995.5, relative error 0, gate 1.526e-5",
            ),
            (
                "swap-ends-rejects-by-88",
                "got 393,106, want 393,018, relative error 2.239e-4, gate 6.122e-5",
            ),
            ("golden-rejects-fix", "got 14,171, want 11,815.5"),
            ("scaled-gate-is-blind-at-a-million", "gate 4.883e-4"),
            ("supplied-passes-drop-tail", "4 of 4 pass"),
        ] {
            let claim = claims.iter().find(|claim| claim.id == id).unwrap();
            assert!(claim.seen.contains(figures), "{id}: {}", claim.seen);
        }
    }
}
