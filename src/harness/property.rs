//! What must hold without knowing the right answer.
//!
//! A property turns away one class of bug each; the docs of each function name
//! it. The kernel under test is a function from an input to an output; `E` is
//! what can stop it from running.

use super::check::{Gate, compare, same_bits};
use super::inputs;
use super::verdict::Verdict;

/// Two runs over one input give the same bits.
///
/// Turns away kernels whose answer depends on timing. A wrong answer that is the
/// same every time passes.
pub fn determinism<E>(
    input: &[f32],
    mut run: impl FnMut(&[f32]) -> Result<Vec<f32>, E>,
) -> Result<Verdict, E> {
    let first = run(input)?;
    let second = run(input)?;
    Ok(same_bits(&second, &first))
}

/// Doubling the input doubles the output, exactly: a factor of two moves only the
/// exponent.
///
/// Turns away kernels that add something the input did not bring, such as an
/// accumulator that does not start at zero. Dropping elements is itself linear
/// and passes.
pub fn linearity<E>(
    input: &[f32],
    mut run: impl FnMut(&[f32]) -> Result<Vec<f32>, E>,
) -> Result<Verdict, E> {
    let once = run(input)?;
    let twice = run(&inputs::scaled(input, 2.0))?;
    let want: Vec<f64> = once.iter().map(|&value| 2.0 * f64::from(value)).collect();
    Ok(compare(&twice, &want, Gate::Exact))
}

/// A reduction gives the same result after the first and last `count` elements
/// trade places.
///
/// Turns away kernels that treat one end of the input differently: whatever they
/// do to the tail, they now do to other values.
pub fn swap_ends<E>(
    input: &[f32],
    count: usize,
    gate: Gate,
    mut run: impl FnMut(&[f32]) -> Result<Vec<f32>, E>,
) -> Result<Verdict, E> {
    let plain = run(input)?;
    let swapped = run(&inputs::swap_ends(input, count))?;
    let want: Vec<f64> = plain.iter().copied().map(f64::from).collect();
    Ok(compare(&swapped, &want, gate))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    type Run = Box<dyn FnMut(&[f32]) -> Result<Vec<f32>, Infallible>>;

    fn kernel(mut body: impl FnMut(&[f32]) -> f32 + 'static) -> Run {
        Box::new(move |input| Ok(vec![body(input)]))
    }

    fn verdicts(mut make: impl FnMut() -> Run) -> [bool; 3] {
        let input: Vec<f32> = (1..=8).map(|i| i as f32).collect();
        let Ok(determinism) = determinism(&input, make());
        let Ok(linearity) = linearity(&input, make());
        let Ok(swap) = swap_ends(&input, 2, Gate::Exact, make());
        [determinism, linearity, swap].map(|verdict| verdict.passed())
    }

    #[test]
    fn each_property_turns_away_its_own_class_of_bug() {
        let right = || kernel(|x| x.iter().sum());
        let drops_tail = || kernel(|x| x[..x.len() - 1].iter().sum());
        let offset = || kernel(|x| 1.0 + x.iter().sum::<f32>());
        let drifting = || {
            let mut calls = 0.0;
            kernel(move |x| {
                calls += 1.0;
                x.iter().sum::<f32>() * calls
            })
        };
        assert_eq!(verdicts(right), [true, true, true]);
        assert_eq!(verdicts(drops_tail), [true, true, false]);
        assert_eq!(verdicts(offset), [true, false, true]);
        assert!(!verdicts(drifting)[0]);
    }

    #[test]
    fn an_output_of_zeros_nans_or_nothing_has_no_property() {
        let zeros = || kernel(|_| 0.0);
        let nans = || kernel(|_| f32::NAN);
        let nothing = || -> Run { Box::new(|_| Ok(vec![])) };
        assert_eq!(verdicts(zeros), [false; 3]);
        assert_eq!(verdicts(nans), [false; 3]);
        assert_eq!(verdicts(nothing), [false; 3]);
    }
}
