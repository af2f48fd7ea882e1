//! Is B slower than A? A verdict that a reviewer can take apart.
//!
//! SLOWER or FASTER needs all of these; whatever is missing is named:
//!
//! 1. the rank test, adjusted for the number of cases, finds a difference;
//! 2. the medians differ by at least the effect floor;
//! 3. at least four rounds in five show half of it in the same direction;
//! 4. where the clock is known, clock cycles (time × SM clock) agree: a kernel that
//!    takes longer because the clock fell has not become worse.
//!
//! SAME needs the whole interval of the difference inside the floor. Anything else
//! is INCONCLUSIVE, which is not a pass.

use serde::{Deserialize, Serialize};

use super::stats::{effect_interval, holm, mann_whitney, median_of};

/// Adjusted p-value below which a difference counts as found.
pub const SIGNIFICANCE: f64 = 0.01;
/// Share of rounds that must agree.
pub const AGREEMENT: f64 = 0.8;
/// Rounds and samples below which nothing is concluded.
pub const LEAST_ROUNDS: usize = 4;
pub const LEAST_SAMPLES: usize = 20;

/// Timings of one side of a comparison, round by round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timings {
    pub microseconds: Vec<Vec<f64>>,
    /// SM clock in MHz beside each sample; empty where it is not known.
    pub megahertz: Vec<Vec<f64>>,
}

impl Timings {
    /// Clock cycles of each sample; `None` where a clock is missing.
    fn cycles(&self) -> Option<Vec<f64>> {
        let (time, clock) = (self.microseconds.concat(), self.megahertz.concat());
        let known = time.len() == clock.len() && clock.iter().all(|&mhz| mhz > 0.0);
        known.then(|| time.iter().zip(&clock).map(|(t, c)| t * c).collect())
    }
}

/// How a comparison ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    Same,
    Faster,
    Slower,
    Inconclusive,
}

impl Verdict {
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Same => "SAME",
            Verdict::Faster => "FASTER",
            Verdict::Slower => "SLOWER",
            Verdict::Inconclusive => "INCONCLUSIVE",
        }
    }
}

/// How sides are compared.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Smallest relative difference that matters, such as 0.01.
    pub floor: f64,
    /// Round i of both sides ran interleaved.
    pub paired: bool,
    pub seed: u64,
}

/// One case, compared.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    pub case: String,
    pub verdict: Verdict,
    /// median(B) / median(A) − 1; positive is slower.
    pub effect: f64,
    /// 95 % interval of the effect.
    pub interval: (f64, f64),
    /// Adjusted for all cases of the run.
    pub p: f64,
    /// Rounds that show the effect, of how many.
    pub rounds: (usize, usize),
    /// The effect in clock cycles, where clocks are known.
    pub cycles: Option<f64>,
    /// What decided, or what is missing.
    pub reason: String,
}

/// Compares cases given as (name, A, B).
pub fn compare(cases: &[(String, Timings, Timings)], rules: &Rules) -> Vec<Comparison> {
    let raw: Vec<f64> = cases
        .iter()
        .map(|(_, a, b)| mann_whitney(&a.microseconds.concat(), &b.microseconds.concat()))
        .collect();
    cases
        .iter()
        .zip(holm(&raw))
        .map(|((case, a, b), p)| one(case, a, b, p, rules))
        .collect()
}

fn one(case: &str, a: &Timings, b: &Timings, p: f64, rules: &Rules) -> Comparison {
    let (x, y) = (&a.microseconds, &b.microseconds);
    let effect = median_of(y.concat()) / median_of(x.concat()) - 1.0;
    let cycles = a
        .cycles()
        .zip(b.cycles())
        .map(|(a, b)| median_of(b) / median_of(a) - 1.0);
    let mut comparison = Comparison {
        case: case.to_owned(),
        verdict: Verdict::Inconclusive,
        effect,
        interval: (f64::NAN, f64::NAN),
        p,
        rounds: (0, 0),
        cycles,
        reason: String::new(),
    };
    if let Some(reason) = too_few(x).or_else(|| too_few(y)) {
        comparison.reason = reason;
        return comparison;
    }
    comparison.interval = effect_interval(x, y, rules.paired, rules.seed);
    comparison.rounds = agreeing_rounds(x, y, effect, rules);
    let (verdict, reason) = decide(&comparison, rules.floor);
    comparison.verdict = verdict;
    comparison.reason = reason;
    comparison
}

fn too_few(rounds: &[Vec<f64>]) -> Option<String> {
    let samples = rounds.concat();
    if rounds.len() < LEAST_ROUNDS || samples.len() < LEAST_SAMPLES {
        return Some(format!(
            "{} samples in {} rounds: expected at least {LEAST_SAMPLES} in {LEAST_ROUNDS}",
            samples.len(),
            rounds.len()
        ));
    }
    let usable = samples.iter().all(|x| x.is_finite() && *x > 0.0);
    (!usable).then(|| "a sample is no positive number".to_owned())
}

/// Rounds whose medians differ in the direction of `effect` by half the floor.
fn agreeing_rounds(x: &[Vec<f64>], y: &[Vec<f64>], effect: f64, rules: &Rules) -> (usize, usize) {
    let whole = median_of(x.concat());
    let ratios: Vec<f64> = y
        .iter()
        .enumerate()
        .map(|(i, round)| {
            let beside = if rules.paired && x.len() == y.len() {
                median_of(x[i].clone())
            } else {
                whole
            };
            median_of(round.clone()) / beside - 1.0
        })
        .collect();
    let agree = ratios
        .iter()
        .filter(|&&ratio| ratio * effect.signum() >= rules.floor / 2.0)
        .count();
    (agree, ratios.len())
}

fn decide(c: &Comparison, floor: f64) -> (Verdict, String) {
    let percent = |x: f64| format!("{:+.2} %", 100.0 * x);
    let inconclusive = |reason: String| (Verdict::Inconclusive, reason);
    let (low, high) = c.interval;
    if -floor < low && high < floor {
        let reason = format!(
            "the difference is within {} to {}, inside the floor of {}",
            percent(low),
            percent(high),
            percent(floor)
        );
        return (Verdict::Same, reason);
    }
    let found = c.p < SIGNIFICANCE;
    if !found {
        return inconclusive(format!(
            "the rank test finds no difference (p = {:.2}), yet {} to {} is too wide to say SAME",
            c.p,
            percent(low),
            percent(high)
        ));
    }
    let large = c.effect.abs() >= floor;
    if !large {
        return inconclusive(format!(
            "{} is below the floor of {}, but its interval ends at {} and {}",
            percent(c.effect),
            percent(floor),
            percent(low),
            percent(high)
        ));
    }
    let (agree, of) = c.rounds;
    if (agree as f64) < AGREEMENT * of as f64 {
        return inconclusive(format!("only {agree} of {of} rounds show it"));
    }
    if let Some(cycles) = c.cycles {
        let agrees = cycles * c.effect.signum() >= floor / 2.0;
        if !agrees {
            return inconclusive(format!(
                "time changed by {}, clock cycles by {}: the clock moved, not the kernel",
                percent(c.effect),
                percent(cycles)
            ));
        }
    }
    let verdict = if c.effect > 0.0 {
        Verdict::Slower
    } else {
        Verdict::Faster
    };
    let cycles = match c.cycles {
        Some(cycles) => format!("cycles {}", percent(cycles)),
        None => "clock unknown".to_owned(),
    };
    let reason = format!(
        "{} ({} to {}), p = {:.1e}, {agree} of {of} rounds, {cycles}",
        percent(c.effect),
        percent(low),
        percent(high),
        c.p
    );
    (verdict, reason)
}

/// The verdict over all cases: a regression beats doubt, doubt beats success.
pub fn overall(comparisons: &[Comparison]) -> Verdict {
    let any = |verdict| comparisons.iter().any(|c| c.verdict == verdict);
    if any(Verdict::Slower) {
        Verdict::Slower
    } else if any(Verdict::Inconclusive) || comparisons.is_empty() {
        Verdict::Inconclusive
    } else if any(Verdict::Faster) {
        Verdict::Faster
    } else {
        Verdict::Same
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Timings like those of a GPU: 0.4 % of noise, a slow sample in thirty, a
    /// drift between rounds that interleaved sides share, and one that they do not.
    struct Model {
        random: fastrand::Rng,
        drift: Vec<f64>,
        own_drift: f64,
    }

    impl Model {
        fn new(seed: u64, own_drift: f64) -> Model {
            let mut model = Model {
                random: fastrand::Rng::with_seed(seed),
                drift: Vec::new(),
                own_drift,
            };
            model.drift = (0..8).map(|_| 0.01 * model.normal()).collect();
            model
        }

        fn normal(&mut self) -> f64 {
            (0..12).map(|_| self.random.f64()).sum::<f64>() - 6.0
        }

        fn side(&mut self, median: f64) -> Timings {
            let microseconds = (0..8)
                .map(|round| {
                    let own = self.own_drift * self.normal();
                    let level = median * (1.0 + self.drift[round] + own);
                    (0..8)
                        .map(|_| {
                            let spike = if self.random.usize(0..30) == 0 {
                                0.05
                            } else {
                                0.0
                            };
                            level * (1.0 + 0.004 * self.normal() + spike)
                        })
                        .collect()
                })
                .collect();
            Timings {
                microseconds,
                megahertz: vec![vec![1980.0; 8]; 8],
            }
        }
    }

    fn rules(seed: u64) -> Rules {
        Rules {
            floor: 0.01,
            paired: true,
            seed,
        }
    }

    fn verdicts(effect: f64, own_drift: f64, trials: u64) -> Vec<Verdict> {
        (0..trials)
            .map(|seed| {
                let mut model = Model::new(seed, own_drift);
                let cases = [(
                    "x".to_owned(),
                    model.side(100.0),
                    model.side(100.0 * (1.0 + effect)),
                )];
                compare(&cases, &rules(seed))[0].verdict
            })
            .collect()
    }

    fn count(verdicts: &[Verdict], which: Verdict) -> usize {
        verdicts.iter().filter(|&&v| v == which).count()
    }

    #[test]
    fn comparisons_of_a_kernel_with_itself_give_no_false_alarm() {
        let all = verdicts(0.0, 0.001, 120);
        assert_eq!(
            count(&all, Verdict::Slower) + count(&all, Verdict::Faster),
            0
        );
        // INCONCLUSIVE everywhere would be no false alarm either.
        assert!(
            count(&all, Verdict::Same) > 100,
            "{}",
            count(&all, Verdict::Same)
        );
    }

    #[test]
    fn three_percent_is_confirmed_and_three_permille_is_never_called() {
        let slower = verdicts(0.03, 0.001, 40);
        assert!(
            count(&slower, Verdict::Slower) >= 39,
            "{}",
            count(&slower, Verdict::Slower)
        );
        let faster = verdicts(-0.03, 0.001, 40);
        assert!(
            count(&faster, Verdict::Faster) >= 39,
            "{}",
            count(&faster, Verdict::Faster)
        );
        let hardly = verdicts(0.003, 0.001, 60);
        assert_eq!(count(&hardly, Verdict::Slower), 0);
        assert!(
            count(&hardly, Verdict::Same) > 45,
            "{}",
            count(&hardly, Verdict::Same)
        );
    }

    #[test]
    fn rounds_that_disagree_are_inconclusive_whatever_the_rank_test_says() {
        let mut model = Model::new(5, 0.0);
        let a = model.side(100.0);
        let mut b = model.side(100.0);
        // Five rounds of eight slower by 6 %: the median moves, the rounds do not agree.
        for round in &mut b.microseconds[..5] {
            round.iter_mut().for_each(|x| *x *= 1.06);
        }
        let c = &compare(&[("x".to_owned(), a, b)], &rules(1))[0];
        assert_eq!(c.verdict, Verdict::Inconclusive);
        assert!(c.reason.contains("5 of 8 rounds"), "{}", c.reason);
    }

    #[test]
    fn a_fallen_clock_is_not_a_regression() {
        let mut model = Model::new(6, 0.0);
        let a = model.side(100.0);
        let mut b = model.side(104.0);
        let slowed = compare(&[("x".to_owned(), a.clone(), b.clone())], &rules(1));
        assert_eq!(slowed[0].verdict, Verdict::Slower);
        b.megahertz = vec![vec![1980.0 / 1.04; 8]; 8];
        let c = &compare(&[("x".to_owned(), a, b)], &rules(1))[0];
        assert_eq!(c.verdict, Verdict::Inconclusive);
        assert!(c.reason.contains("the clock moved"), "{}", c.reason);
    }

    #[test]
    fn without_clocks_a_regression_is_still_found_and_says_so() {
        let mut model = Model::new(7, 0.0);
        let (mut a, mut b) = (model.side(100.0), model.side(104.0));
        a.megahertz.clear();
        b.megahertz.clear();
        let c = &compare(&[("x".to_owned(), a, b)], &rules(1))[0];
        assert_eq!(c.verdict, Verdict::Slower);
        assert!(c.reason.contains("clock unknown"), "{}", c.reason);
    }

    #[test]
    fn few_or_broken_samples_are_inconclusive_not_same() {
        let side = |rounds: usize, samples: usize, value: f64| Timings {
            microseconds: vec![vec![value; samples]; rounds],
            megahertz: vec![],
        };
        for (a, b) in [
            (side(8, 8, 1.0), side(2, 30, 1.0)),
            (side(5, 3, 1.0), side(8, 8, 1.0)),
            (side(8, 8, 1.0), side(8, 8, f64::NAN)),
            (side(0, 0, 1.0), side(8, 8, 1.0)),
        ] {
            let c = &compare(&[("x".to_owned(), a, b)], &rules(1))[0];
            assert_eq!(c.verdict, Verdict::Inconclusive, "{}", c.reason);
        }
        assert_eq!(overall(&[]), Verdict::Inconclusive);
    }
}
