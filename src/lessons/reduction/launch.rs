//! Grid arithmetic, launch and fold.

use crate::device::DeviceError;
use crate::harness::inputs::InputError;
use crate::harness::{figures, poison};
use std::fmt;

/// Threads of a block, and so elements that one block adds.
pub const THREADS: usize = 256;

/// A sum of floats: the launch and the kernel as one thing under test.
pub trait Sum {
    /// The sum of `input` as the variant computes it.
    ///
    /// # Errors
    /// [`LaunchError`] when nothing could be launched or nothing was written.
    fn sum(&mut self, input: &[f32]) -> Result<f32, LaunchError>;
}

/// Where `blockTreeSum` runs.
pub trait BlockTree {
    /// Launches `blocks` blocks of [`THREADS`] threads over `input` and returns one
    /// partial a block. The output is poisoned before the launch, so a block that
    /// did not write leaves poison.
    fn partials(&mut self, input: &[f32], blocks: usize) -> Result<Vec<f32>, DeviceError>;

    /// The first line of a program's output: what this runs on.
    fn banner(&self) -> String;
}

/// Deliberate bug: the division rounds down, so the last `n % 256` elements belong
/// to no block. Where 256 divides `n` the answer is right. Below 256 elements
/// there is no block at all.
pub fn drop_tail(n: usize) -> usize {
    n / THREADS
}

/// The fix: a last, partly filled block takes the tail, and the kernel's guard
/// keeps its spare threads off the memory behind it.
pub fn guarded(n: usize) -> usize {
    n.div_ceil(THREADS)
}

/// One way of launching `blockTreeSum`: a tree to run on, and the grid arithmetic.
pub struct Launch<'a> {
    tree: &'a mut dyn BlockTree,
    blocks_for: fn(usize) -> usize,
}

impl<'a> Launch<'a> {
    /// `blocks_for` maps the number of elements to the number of blocks.
    pub fn new(tree: &'a mut dyn BlockTree, blocks_for: fn(usize) -> usize) -> Self {
        Self { tree, blocks_for }
    }
}

impl Sum for Launch<'_> {
    fn sum(&mut self, input: &[f32]) -> Result<f32, LaunchError> {
        let n = input.len();
        let blocks = (self.blocks_for)(n);
        if blocks == 0 {
            return Err(LaunchError::NoBlocks { n });
        }
        if blocks > n {
            return Err(LaunchError::TooManyBlocks { n, blocks });
        }
        let partials = self.tree.partials(input, blocks)?;
        if let Some(block) = poison::untouched_float(&partials) {
            return Err(LaunchError::Unwritten { block, blocks });
        }
        // In order, in f32: part of what is under test.
        Ok(partials.iter().sum())
    }
}

/// Why a variant gave no sum.
#[derive(Clone, Debug, PartialEq)]
pub enum LaunchError {
    /// The grid arithmetic gave zero blocks.
    NoBlocks {
        /// Elements to add.
        n: usize,
    },
    /// The grid arithmetic gave more blocks than elements.
    TooManyBlocks {
        /// Elements to add.
        n: usize,
        /// Blocks asked for.
        blocks: usize,
    },
    /// A block left its output as it was before the launch.
    Unwritten {
        /// The first such block.
        block: usize,
        /// Blocks launched.
        blocks: usize,
    },
    /// The test asks for an input that does not exist.
    Input(InputError),
    /// The device failed; not the variant's fault.
    Device(DeviceError),
}

impl From<InputError> for LaunchError {
    fn from(error: InputError) -> Self {
        LaunchError::Input(error)
    }
}

impl From<DeviceError> for LaunchError {
    fn from(error: DeviceError) -> Self {
        LaunchError::Device(error)
    }
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LaunchError::NoBlocks { n } => write!(
                f,
                "nothing to launch: the grid arithmetic gives zero blocks for {} elements ({}), \
                 and a grid needs at least one; round the division up",
                figures::count(*n),
                if *n < THREADS {
                    format!("fewer than the {THREADS} of one block")
                } else {
                    "though they would fill a block".to_owned()
                }
            ),
            LaunchError::TooManyBlocks { n, blocks } => write!(
                f,
                "the grid arithmetic gives {} blocks for {} elements; at most one block an \
                 element can have work",
                figures::count(*blocks),
                figures::count(*n)
            ),
            LaunchError::Unwritten { block, blocks } => write!(
                f,
                "block {block} of {blocks} left its partial unwritten: the poison from before \
                 the launch is still there"
            ),
            LaunchError::Input(error) => write!(f, "{error}"),
            LaunchError::Device(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for LaunchError {}

#[cfg(test)]
mod tests {
    use super::super::HostTree;
    use super::*;
    use crate::harness::inputs;

    #[test]
    fn the_two_variants_agree_exactly_where_256_divides_n() {
        for n in [1, 255, 256, 257, 511, 512, 611, 1_024, 16_483] {
            let agree = drop_tail(n) == guarded(n);
            assert_eq!(agree, n % THREADS == 0, "n = {n}");
        }
    }

    #[test]
    fn below_one_block_drop_tail_is_an_error_that_says_zero_blocks() {
        for n in [0, 1, 200, 255] {
            let error = Launch::new(&mut HostTree, drop_tail)
                .sum(&inputs::halves(n))
                .unwrap_err();
            assert_eq!(error, LaunchError::NoBlocks { n });
            assert!(error.to_string().contains("zero blocks"), "{error}");
        }
        let guarded = Launch::new(&mut HostTree, guarded).sum(&[1.5]);
        assert_eq!(guarded, Ok(1.5));
    }

    struct NeverRuns;
    impl BlockTree for NeverRuns {
        fn partials(&mut self, _: &[f32], blocks: usize) -> Result<Vec<f32>, DeviceError> {
            Ok(poison::floats(blocks))
        }
        fn banner(&self) -> String {
            String::new()
        }
    }

    #[test]
    fn a_kernel_that_never_ran_gives_no_sum() {
        let error = Launch::new(&mut NeverRuns, guarded)
            .sum(&inputs::halves(611))
            .unwrap_err();
        assert_eq!(
            error,
            LaunchError::Unwritten {
                block: 0,
                blocks: 3
            }
        );
    }

    #[test]
    fn an_absurd_grid_is_refused_before_anything_is_allocated() {
        let error = Launch::new(&mut HostTree, |_| usize::MAX)
            .sum(&inputs::halves(611))
            .unwrap_err();
        assert!(matches!(error, LaunchError::TooManyBlocks { .. }));
    }
}
