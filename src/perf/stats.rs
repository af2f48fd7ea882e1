//! Statistics of timings: medians, bootstrap intervals, rank tests.
//!
//! Timings are skewed, have outliers on one side and drift between rounds, so
//! nothing here assumes a normal distribution or takes a mean.
//!
//! - Interval: percentile bootstrap of the median in two levels. Rounds are drawn
//!   with replacement, then samples within each (Davison & Hinkley, *Bootstrap
//!   Methods*, ch. 3.8), because samples of one round share its clock and
//!   temperature.
//! - [`mann_whitney`]: normal approximation with ties and continuity corrected
//!   (Lehmann, *Nonparametrics*, ch. 1.4). Good from about eight samples a side.
//!   (statrs 0.18, the last for our Rust version, has no rank test.)
//! - [`holm`]: step-down adjustment for many cases in one run (Holm 1979).

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal};

/// Draws of a bootstrap.
const DRAWS: usize = 1000;
/// Share of the draws inside an interval.
const CONFIDENCE: f64 = 0.95;

/// What a set of timings says.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of samples.
    pub runs: usize,
    pub median: f64,
    /// 95 % bootstrap interval of the median.
    pub interval: (f64, f64),
    /// First and third quartile.
    pub quartiles: (f64, f64),
    /// Distance between the quartiles over the median.
    pub noise: f64,
}

impl Summary {
    /// Summarises `rounds` of samples; `None` without any sample, or with one that
    /// is not a positive finite number.
    pub fn of(rounds: &[Vec<f64>], seed: u64) -> Option<Summary> {
        let all = sorted(rounds.concat())?;
        let median = quantile(&all, 0.5);
        let quartiles = (quantile(&all, 0.25), quantile(&all, 0.75));
        let mut random = fastrand::Rng::with_seed(seed);
        let medians = (0..DRAWS)
            .map(|_| median_of(resample(rounds, &mut random)))
            .collect();
        Some(Summary {
            runs: all.len(),
            median,
            interval: interval(medians),
            quartiles,
            noise: (quartiles.1 - quartiles.0) / median,
        })
    }
}

/// Sorts positive finite numbers; `None` for none of them or for any other value.
fn sorted(mut values: Vec<f64>) -> Option<Vec<f64>> {
    if values.is_empty() || !values.iter().all(|x| x.is_finite() && *x > 0.0) {
        return None;
    }
    values.sort_by(f64::total_cmp);
    Some(values)
}

/// Quantile `q` of sorted values, linear between neighbours.
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    let at = q * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    low + (high - low) * at.fract()
}

/// The median of unsorted values; NaN for none.
pub fn median_of(mut values: Vec<f64>) -> f64 {
    if values.is_empty() {
        return f64::NAN;
    }
    let half = values.len() / 2;
    let upper = *values.select_nth_unstable_by(half, f64::total_cmp).1;
    if values.len() % 2 == 1 {
        return upper;
    }
    let lower = values[..half].iter().copied().fold(f64::MIN, f64::max);
    lower + (upper - lower) * 0.5
}

fn interval(mut draws: Vec<f64>) -> (f64, f64) {
    draws.sort_by(f64::total_cmp);
    let tail = (1.0 - CONFIDENCE) / 2.0;
    (quantile(&draws, tail), quantile(&draws, 1.0 - tail))
}

fn resample(rounds: &[Vec<f64>], random: &mut fastrand::Rng) -> Vec<f64> {
    let picks: Vec<usize> = (0..rounds.len())
        .map(|_| random.usize(0..rounds.len()))
        .collect();
    resample_rounds(rounds, &picks, random)
}

fn resample_rounds(rounds: &[Vec<f64>], picks: &[usize], random: &mut fastrand::Rng) -> Vec<f64> {
    picks
        .iter()
        .map(|&pick| &rounds[pick])
        .filter(|round| !round.is_empty())
        .flat_map(|round| {
            let draws: Vec<f64> = (0..round.len())
                .map(|_| round[random.usize(0..round.len())])
                .collect();
            draws
        })
        .collect()
}

/// 95 % bootstrap interval of median(b) / median(a) − 1.
///
/// `paired`: round i of `a` and of `b` ran side by side, so they are drawn together
/// and what they share cancels.
pub fn effect_interval(a: &[Vec<f64>], b: &[Vec<f64>], paired: bool, seed: u64) -> (f64, f64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let pick = |rounds: &[Vec<f64>], random: &mut fastrand::Rng| -> Vec<usize> {
        (0..rounds.len())
            .map(|_| random.usize(0..rounds.len()))
            .collect()
    };
    let draws = (0..DRAWS)
        .map(|_| {
            let of_a = pick(a, &mut random);
            let of_b = if paired && a.len() == b.len() {
                of_a.clone()
            } else {
                pick(b, &mut random)
            };
            let x = median_of(resample_rounds(a, &of_a, &mut random));
            let y = median_of(resample_rounds(b, &of_b, &mut random));
            y / x - 1.0
        })
        .collect();
    interval(draws)
}

/// Two-sided p-value that `a` and `b` come from one distribution. 1 for samples
/// that cannot tell, such as none.
pub fn mann_whitney(a: &[f64], b: &[f64]) -> f64 {
    let (n, m) = (a.len() as f64, b.len() as f64);
    let mut all: Vec<(f64, bool)> = a.iter().map(|&x| (x, true)).collect();
    all.extend(b.iter().map(|&x| (x, false)));
    all.sort_by(|x, y| x.0.total_cmp(&y.0));
    let (mut rank_sum, mut ties) = (0.0, 0.0);
    let mut start = 0;
    while start < all.len() {
        let same = all[start..]
            .iter()
            .take_while(|x| x.0.total_cmp(&all[start].0).is_eq())
            .count();
        // Equal values share the mean of their ranks.
        let rank = start as f64 + (same as f64 + 1.0) / 2.0;
        let of_a = all[start..start + same].iter().filter(|x| x.1).count();
        rank_sum += rank * of_a as f64;
        ties += (same as f64).powi(3) - same as f64;
        start += same;
    }
    let total = n + m;
    let u = rank_sum - n * (n + 1.0) / 2.0;
    let variance = n * m / 12.0 * (total + 1.0 - ties / (total * (total - 1.0)));
    let distance = ((u - n * m / 2.0).abs() - 0.5).max(0.0);
    let usable = variance > 0.0;
    if !usable {
        return 1.0;
    }
    2.0 * Normal::standard().sf(distance / variance.sqrt())
}

/// Holm's adjusted p-values, in the order given.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&i, &j| p[i].total_cmp(&p[j]));
    let mut adjusted = vec![1.0; p.len()];
    let mut largest: f64 = 0.0;
    for (rank, &i) in order.iter().enumerate() {
        largest = largest.max(((p.len() - rank) as f64 * p[i]).min(1.0));
        adjusted[i] = largest;
    }
    adjusted
}

/// Upper end of the 95 % interval (Clopper–Pearson, one-sided) for a rate that
/// showed `events` in `trials`.
pub fn rate_at_most(events: usize, trials: usize) -> f64 {
    use statrs::distribution::Beta;
    if events >= trials {
        return 1.0;
    }
    Beta::new(events as f64 + 1.0, (trials - events) as f64)
        .map_or(1.0, |beta| beta.inverse_cdf(0.95))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_and_median_are_those_of_the_sorted_samples() {
        let s = Summary::of(&[vec![5.0, 1.0], vec![4.0, 2.0, 3.0]], 1).unwrap();
        assert_eq!((s.median, s.quartiles, s.runs), (3.0, (2.0, 4.0), 5));
        assert_eq!(s.noise, 2.0 / 3.0);
        assert!(s.interval.0 <= 3.0 && 3.0 <= s.interval.1);
    }

    #[test]
    fn no_sample_and_impossible_samples_have_no_summary() {
        for bad in [
            vec![],
            vec![0.0],
            vec![-1.0],
            vec![f64::NAN],
            vec![f64::INFINITY],
        ] {
            assert_eq!(Summary::of(&[bad], 1), None);
        }
    }

    #[test]
    fn the_interval_covers_the_true_median_about_as_often_as_it_says() {
        let mut random = fastrand::Rng::with_seed(20);
        let trials = 100;
        let covered = (0..trials)
            .filter(|&trial| {
                // Skewed: 100 plus an exponential of mean 2; median 100 + 2 ln 2.
                let rounds: Vec<Vec<f64>> = (0..8)
                    .map(|_| {
                        (0..8)
                            .map(|_| 100.0 - 2.0 * random.f64().max(1e-12).ln())
                            .collect()
                    })
                    .collect();
                let s = Summary::of(&rounds, trial).unwrap();
                let truth = 100.0 + 2.0 * 2f64.ln();
                s.interval.0 <= truth && truth <= s.interval.1
            })
            .count();
        assert!(
            covered >= trials as usize * 90 / 100,
            "{covered} of {trials}"
        );
        // An interval that is always wide enough says nothing.
        assert!(covered < trials as usize, "{covered} of {trials}");
    }

    /// Reference: scipy.stats.mannwhitneyu(x, y, method="asymptotic"), values from
    /// its documentation: U = 17, p = 0.1114.
    #[test]
    fn the_rank_test_agrees_with_the_published_example() {
        let males = [19.0, 22.0, 16.0, 29.0, 24.0];
        let females = [20.0, 11.0, 17.0, 12.0];
        let p = mann_whitney(&males, &females);
        assert!((p - 0.111_346_886_5).abs() < 1e-8, "{p}");
        assert_eq!(p, mann_whitney(&females, &males));
    }

    #[test]
    fn the_rank_test_cannot_tell_equal_or_empty_samples_apart() {
        assert_eq!(mann_whitney(&[1.0; 9], &[1.0; 9]), 1.0);
        assert_eq!(mann_whitney(&[], &[1.0]), 1.0);
        assert!(mann_whitney(&[f64::NAN; 9], &[f64::NAN; 9]) > 0.5);
        assert!(mann_whitney(&[1.0; 30], &[2.0; 30]) < 1e-9);
    }

    #[test]
    fn holm_adjusts_step_by_step_and_keeps_the_order() {
        let p = holm(&[0.01, 0.04, 0.03, 0.005]);
        let want = [0.03, 0.06, 0.06, 0.02];
        for (p, want) in p.iter().zip(want) {
            assert!((p - want).abs() < 1e-12, "{p} {want}");
        }
        assert_eq!(holm(&[0.9, 0.9]), [1.0, 1.0]);
        assert!(holm(&[]).is_empty());
    }

    #[test]
    fn no_event_in_a_hundred_trials_bounds_the_rate_by_three_percent() {
        assert!((rate_at_most(0, 100) - 0.0295).abs() < 1e-3);
        assert!(rate_at_most(5, 100) > 0.05 && rate_at_most(5, 100) < 0.12);
        assert_eq!(rate_at_most(100, 100), 1.0);
    }
}
