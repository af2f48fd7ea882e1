//! Wrong variants, one class of bug each, to show what a test turns away.
//!
//! A test is worth the wrong kernels it rejects. Each specimen is right in every
//! respect but one, so a test that rejects it has seen that one.

use super::launch::{BlockTree, Launch, LaunchError, Sum, drop_tail, guarded};

/// A variant by name.
#[derive(Clone, Copy)]
pub struct Specimen {
    /// Name in reports and in answers files.
    pub name: &'static str,
    /// What is wrong with it, in one line.
    pub bug: &'static str,
    run: fn(&mut dyn BlockTree, &[f32], calls: usize) -> Result<f32, LaunchError>,
}

/// The bug of the lesson.
pub const DROP_TAIL: &str = "drop-tail";
/// The fix.
pub const GUARDED: &str = "guarded";

/// Every wrong variant. The right one is [`RIGHT`].
pub const WRONG: [Specimen; 4] = [
    Specimen {
        name: DROP_TAIL,
        bug: "launches n / 256 blocks: the last n % 256 elements are never read",
        run: |tree, input, _| Launch::new(tree, drop_tail).sum(input),
    },
    Specimen {
        name: "first-half",
        bug: "launches half of the blocks: the second half of the input is never read",
        run: |tree, input, _| Launch::new(tree, |n| (guarded(n) / 2).max(1)).sum(input),
    },
    Specimen {
        name: "offset",
        bug: "starts from one instead of zero",
        run: |tree, input, _| Ok(Launch::new(tree, guarded).sum(input)? + 1.0),
    },
    Specimen {
        name: "racy",
        bug: "loses one update on every second run, as a race may",
        run: |tree, input, calls| {
            let lost = if calls % 2 == 1 { 0.5 } else { 0.0 };
            Ok(Launch::new(tree, guarded).sum(input)? - lost)
        },
    },
];

/// The right variant.
pub const RIGHT: Specimen = Specimen {
    name: GUARDED,
    bug: "none",
    run: |tree, input, _| Launch::new(tree, guarded).sum(input),
};

impl Specimen {
    /// The specimen running on `tree`.
    pub fn on<'a>(&self, tree: &'a mut dyn BlockTree) -> Running<'a> {
        Running {
            run: self.run,
            tree,
            calls: 0,
        }
    }
}

/// A specimen with the tree that it runs on.
pub struct Running<'a> {
    run: fn(&mut dyn BlockTree, &[f32], usize) -> Result<f32, LaunchError>,
    tree: &'a mut dyn BlockTree,
    calls: usize,
}

impl Sum for Running<'_> {
    fn sum(&mut self, input: &[f32]) -> Result<f32, LaunchError> {
        let calls = self.calls;
        self.calls += 1;
        (self.run)(self.tree, input, calls)
    }
}

#[cfg(test)]
mod tests {
    use super::super::HostTree;
    use super::*;
    use crate::harness::{inputs, oracle};

    #[test]
    fn every_specimen_is_wrong_on_some_run_and_the_right_one_never() {
        let input = inputs::halves(611);
        let wrong_runs = |specimen: &Specimen| {
            let mut tree = HostTree;
            let mut running = specimen.on(&mut tree);
            (0..4)
                .map(|_| f64::from(running.sum(&input).unwrap()))
                .filter(|&got| got != oracle::sum(&input))
                .count()
        };
        for specimen in &WRONG {
            assert!(wrong_runs(specimen) > 0, "{}", specimen.name);
        }
        assert_eq!(wrong_runs(&RIGHT), 0);
    }
}
