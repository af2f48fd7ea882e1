//! Inputs whose every sum is exact in `f32`, so that a difference is a bug.
//!
//! All values are halves. A sum of halves is exact, in any order, while it stays
//! at or below 2^24 halves (2^23): then a check may ask for gate zero, and any
//! disagreement is an element missed, read twice or read from the wrong place.

use std::fmt;

/// The longest structural input: one half an element fills the exact range.
pub const LONGEST_EXACT: usize = 1 << 24;

/// The largest number of halves that `f32` still counts one by one.
const EXACT_HALVES: usize = 1 << 24;

/// Period of the lesson's input; a prime, so no power of two aligns with it.
const PERIOD: usize = 97;

/// The lesson's input: element `i` is half of `i` modulo 97.
///
/// Its sum is exact in `f32` up to n ≈ 350,000. Some elements are zero, so a
/// kernel that drops one of those is not caught; [`structural`] has no zeros.
pub fn halves(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i % PERIOD) as f32 * 0.5).collect()
}

/// An input of `n` elements whose sum is exact in `f32` in any order and in
/// which no element is zero: dropping any element changes the sum.
///
/// The values count up from one half and start again; the period shrinks as `n`
/// grows so that the total stays in the exact range.
///
/// # Errors
/// [`InputError`] for no elements, and for more than [`LONGEST_EXACT`]: with
/// every element at least one half the sum would leave the exact range.
pub fn structural(n: usize) -> Result<Vec<f32>, InputError> {
    if n == 0 || n > LONGEST_EXACT {
        return Err(InputError { n });
    }
    // Mean of 1..=period is (period + 1) / 2 halves; keep n times that in range.
    // A last, incomplete period only lowers the mean.
    let period = (2 * EXACT_HALVES / n - 1).clamp(1, PERIOD - 1);
    Ok((0..n).map(|i| (1 + i % period) as f32 * 0.5).collect())
}

/// A copy in which the first and the last `count` elements have traded places.
///
/// A fixed permutation and not a random shuffle: a failure is the same number
/// every time. Where the two ends would overlap, as much as fits is traded.
pub fn swap_ends(input: &[f32], count: usize) -> Vec<f32> {
    let mut swapped = input.to_vec();
    let count = count.min(input.len() / 2);
    let tail = input.len() - count;
    swapped[..count].copy_from_slice(&input[tail..]);
    swapped[tail..].copy_from_slice(&input[..count]);
    swapped
}

/// A copy with every element multiplied by `factor`. Exact when the factor is a
/// power of two and nothing overflows.
pub fn scaled(input: &[f32], factor: f32) -> Vec<f32> {
    input.iter().map(|value| value * factor).collect()
}

/// No exact input of this length exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputError {
    /// The length asked for.
    pub n: usize,
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "an exact input has 1 to {} elements, not {}",
            super::figures::count(LONGEST_EXACT),
            super::figures::count(self.n)
        )
    }
}

impl std::error::Error for InputError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{ladder::Ladder, oracle};

    /// Three orders that a kernel might use, all in `f32`.
    fn f32_sums(input: &[f32]) -> [f32; 3] {
        let forward = input.iter().sum();
        let backward = input.iter().rev().sum();
        let lanes = (0..32)
            .map(|lane| input.iter().skip(lane).step_by(32).sum::<f32>())
            .sum();
        [forward, backward, lanes]
    }

    #[test]
    fn structural_sums_are_exact_in_f32_in_every_order() {
        let mut sizes = Ladder::for_tiles(&[32, 256, 1_024]).sizes();
        sizes.extend([350_000, (1 << 20) + 99, LONGEST_EXACT]);
        for n in sizes {
            let input = structural(n).unwrap();
            let want = oracle::sum(&input);
            for got in f32_sums(&input) {
                assert_eq!(f64::from(got), want, "n = {n}");
            }
        }
    }

    #[test]
    fn no_structural_element_can_be_dropped_unseen() {
        for n in [1, 2, 96, 97, 255, 611, (1 << 20) + 99] {
            let input = structural(n).unwrap();
            assert_eq!(input.len(), n);
            assert!(input.iter().all(|&value| value >= 0.5), "n = {n}");
        }
        // The lesson's input does hold such elements.
        assert_eq!(halves(98)[97], 0.0);
    }

    #[test]
    fn lengths_without_an_exact_input_are_refused() {
        for n in [0, LONGEST_EXACT + 1, usize::MAX] {
            assert_eq!(structural(n), Err(InputError { n }));
        }
    }

    #[test]
    fn halves_stop_being_exact_where_the_docs_say() {
        let exact = |n: usize| f64::from(f32_sums(&halves(n))[0]) == oracle::sum(&halves(n));
        assert!(exact(349_000));
        assert!(!exact(360_000));
    }

    #[test]
    fn swapping_ends_moves_both_ends_and_keeps_every_element() {
        let input: Vec<f32> = (0..7).map(|i| i as f32).collect();
        assert_eq!(swap_ends(&input, 2), [5.0, 6.0, 2.0, 3.0, 4.0, 0.0, 1.0]);
        assert_eq!(swap_ends(&input, 99), [4.0, 5.0, 6.0, 3.0, 0.0, 1.0, 2.0]);
        assert_eq!(swap_ends(&[], 3), Vec::<f32>::new());
    }
}
