//! A line of block characters: one a round, so that drift is seen at a glance.

use super::stats::median_of;

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Spread below which a line stays flat: noise must not look like a trend.
const FLAT: f64 = 0.01;

/// The medians of the rounds, lowest to highest; at least 1 % from bottom to top.
pub fn spark(rounds: &[Vec<f64>]) -> String {
    let medians: Vec<f64> = rounds
        .iter()
        .map(|round| median_of(round.clone()))
        .collect();
    let least = medians.iter().copied().fold(f64::INFINITY, f64::min);
    let most = medians.iter().copied().fold(0.0, f64::max);
    let span = (most - least).max(FLAT * least);
    medians
        .iter()
        .map(|x| match x.is_finite() && span > 0.0 {
            true => BLOCKS[((x - least) / span * 7.0).round() as usize],
            false => '?',
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drift_rises_noise_stays_low_and_nothing_is_a_question() {
        let line = |levels: &[f64]| spark(&levels.iter().map(|&x| vec![x]).collect::<Vec<_>>());
        assert_eq!(line(&[100.0, 110.0, 120.0]), "▁▅█");
        assert_eq!(line(&[100.0, 100.1]), "▁▂");
        assert_eq!(line(&[100.0]), "▁");
        assert_eq!(spark(&[vec![]]), "?");
    }
}
