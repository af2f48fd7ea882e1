//! One case, measured: rounds of fresh inputs, samples, then the check.
//!
//! A round: new inputs, poisoned outputs, warm-up, samples, check of what the last
//! sample left. A wrong result, or a time under the physical floor, makes the case
//! FAILED; its times are then of no interest and are not reported.

use anyhow::Result;

use super::compare::Timings;
use super::peaks::Peaks;
use super::roofline::floor_us;
use super::stopwatch::{Cache, Sample, Stopwatch};
use super::telemetry::Reading;
use super::workload::{Checked, Workload};

/// How often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    pub rounds: usize,
    /// Samples a round.
    pub runs: usize,
    /// Launches before the samples of a round.
    pub warmup: usize,
    pub seed: u64,
}

/// The limits that times are held against.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    pub peaks: Peaks,
    pub l2_bytes: u64,
    pub max_sm_mhz: Option<u32>,
}

/// What a case gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    pub timings: Timings,
    pub readings: Vec<Reading>,
    pub checked: Checked,
    /// Microseconds under which a time is impossible.
    pub floor_us: f64,
}

impl Measured {
    /// Why the case failed; `None` when its result is right and its times possible.
    pub fn failure(&self) -> Option<String> {
        if let Some(failure) = &self.checked.failure {
            return Some(format!("wrong result after timing: {failure}"));
        }
        let fastest = self
            .timings
            .microseconds
            .iter()
            .flatten()
            .fold(f64::INFINITY, |m, &x| m.min(x));
        let possible = fastest >= self.floor_us && fastest > 0.0;
        (!possible).then(|| {
            format!(
                "a sample took {fastest:.2} us; less than {:.2} us is not physically possible, \
                 so the work was not done or not timed",
                self.floor_us
            )
        })
    }
}

/// Measures one workload.
///
/// # Errors
/// Failed launches and anything that keeps the case from being measured; a wrong
/// result is no error but a [`Measured::failure`].
pub fn measure(
    stopwatch: &Stopwatch<'_>,
    workload: &mut dyn Workload,
    cache: Cache,
    plan: &Plan,
    limits: &Limits,
) -> Result<Measured> {
    let mut all = Collected::new(workload, cache, limits);
    for round in 0..plan.rounds {
        workload.refresh(plan.seed.wrapping_add(round as u64 + 1))?;
        stopwatch.warm_up(&mut || workload.launch(), plan.warmup)?;
        let samples = stopwatch.samples(&mut || workload.launch(), cache, plan.runs)?;
        all.add(&samples);
        let checked = workload.verify()?;
        let wrong = checked.failure.is_some();
        all.measured.checked = checked;
        if wrong {
            break;
        }
    }
    Ok(all.measured)
}

/// Measures two workloads sample by sample in turn, so that whatever drifts hits
/// both. The order within a pair alternates.
pub fn measure_pair(
    stopwatch: &Stopwatch<'_>,
    pair: [&mut dyn Workload; 2],
    cache: Cache,
    plan: &Plan,
    limits: &Limits,
) -> Result<[Measured; 2]> {
    let [a, b] = pair;
    let mut all = [
        Collected::new(a, cache, limits),
        Collected::new(b, cache, limits),
    ];
    for round in 0..plan.rounds {
        let seed = plan.seed.wrapping_add(round as u64 + 1);
        a.refresh(seed)?;
        b.refresh(seed)?;
        stopwatch.warm_up(&mut || a.launch(), plan.warmup)?;
        stopwatch.warm_up(&mut || b.launch(), plan.warmup)?;
        let mut samples = [Vec::new(), Vec::new()];
        for run in 0..plan.runs {
            for turn in 0..2 {
                let which = (turn + run + round) % 2;
                let side: &dyn Workload = if which == 0 { a } else { b };
                samples[which].push(stopwatch.sample(&mut || side.launch(), cache)?);
            }
        }
        all[0].add(&samples[0]);
        all[1].add(&samples[1]);
        // The first and the last round: a check costs more than a round of samples.
        if round == 0 || round + 1 == plan.rounds {
            all[0].measured.checked = a.verify()?;
            all[1].measured.checked = b.verify()?;
            if all.iter().any(|c| c.measured.checked.failure.is_some()) {
                break;
            }
        }
    }
    let [a, b] = all;
    Ok([a.measured, b.measured])
}

struct Collected {
    measured: Measured,
}

impl Collected {
    fn new(workload: &dyn Workload, cache: Cache, limits: &Limits) -> Collected {
        let max_mhz = limits.max_sm_mhz.map(f64::from);
        Collected {
            measured: Measured {
                timings: Timings {
                    microseconds: Vec::new(),
                    megahertz: Vec::new(),
                },
                readings: Vec::new(),
                checked: Checked {
                    compared: 0,
                    strength: "none".to_owned(),
                    failure: Some("nothing was checked".to_owned()),
                },
                floor_us: floor_us(
                    &workload.about().work,
                    &limits.peaks,
                    cache,
                    limits.l2_bytes,
                    max_mhz,
                ),
            },
        }
    }

    fn add(&mut self, samples: &[Sample]) {
        let m = &mut self.measured;
        m.timings
            .microseconds
            .push(samples.iter().map(|s| s.microseconds).collect());
        // A sample without a clock leaves a gap that makes cycles unknown.
        let clocks = samples.iter().filter_map(|s| s.reading.sm_mhz);
        m.timings.megahertz.push(clocks.map(f64::from).collect());
        m.readings.extend(samples.iter().map(|s| s.reading));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(times: Vec<f64>, floor_us: f64, failure: Option<&str>) -> Measured {
        Measured {
            timings: Timings {
                microseconds: vec![times],
                megahertz: vec![],
            },
            readings: vec![],
            checked: Checked {
                compared: 1,
                strength: "test".to_owned(),
                failure: failure.map(str::to_owned),
            },
            floor_us,
        }
    }

    #[test]
    fn a_time_under_the_floor_fails_the_case_and_so_does_a_wrong_result() {
        assert_eq!(measured(vec![10.0, 11.0], 9.0, None).failure(), None);
        let impossible = measured(vec![10.0, 8.0], 9.0, None).failure().unwrap();
        assert!(
            impossible.contains("not physically possible"),
            "{impossible}"
        );
        assert!(measured(vec![0.0], 0.0, None).failure().is_some());
        let wrong = measured(vec![10.0], 9.0, Some("C[0, 0]"))
            .failure()
            .unwrap();
        assert!(wrong.contains("wrong result"), "{wrong}");
    }
}
