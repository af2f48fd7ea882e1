//! One line of a benchmark: everything that a reader needs to doubt it.

use serde::{Deserialize, Serialize};

use super::compare::Timings;
use super::measure::{Limits, Measured};
use super::roofline::{Limit, standing};
use super::stats::{Summary, median_of};
use super::stopwatch::Cache;
use super::telemetry::{Conditions, throttle_verdict};
use super::workload::About;

/// Clock readings beside the samples, in MHz.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Clock {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

/// Where a measurement was taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Place {
    pub device: String,
    /// The CUDA version that the driver serves.
    pub cuda: String,
    pub conditions: Conditions,
    /// Commit of the build; `unknown` where nothing says it.
    pub commit: String,
    /// Microseconds between two events, already taken off every time.
    pub event_overhead_us: f64,
}

/// One measured case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Case and state of the cache: unique in a run.
    pub id: String,
    #[serde(flatten)]
    pub about: About,
    pub cache: Cache,
    pub time: Summary,
    /// 2mnk / t for a GEMM.
    pub tflops: Option<f64>,
    /// Compulsory bytes / t.
    pub gbs: f64,
    /// Share of the datasheet's TFLOPS.
    pub mfu: Option<f64>,
    /// Share of what the datasheet promises at the clock that was measured.
    pub mfu_at_clock: Option<f64>,
    /// Share of the roofline: time at both peaks over time measured.
    pub roofline: Option<f64>,
    pub limit: Option<Limit>,
    pub floor_us: f64,
    pub clock_mhz: Option<Clock>,
    pub watts: Option<f64>,
    pub celsius: Option<f64>,
    pub power_state: String,
    pub throttle: String,
    /// What the check after timing compared.
    pub check: String,
    pub compared: usize,
    /// Why the case failed; its times mean nothing then.
    pub failure: Option<String>,
    pub place: Place,
    /// Where the peaks are from.
    pub peaks_source: String,
    pub timings: Timings,
}

impl Record {
    /// # Errors
    /// A sentence when the samples have no summary.
    pub fn new(
        about: &About,
        cache: Cache,
        measured: Measured,
        limits: &Limits,
        power_state: String,
        place: &Place,
    ) -> Result<Record, String> {
        let failure = measured.failure();
        let time = Summary::of(&measured.timings.microseconds, 1)
            .ok_or_else(|| format!("{}: no usable time among the samples", about.case))?;
        let clock = clock(&measured.timings.megahertz);
        let (work, peaks) = (&about.work, &limits.peaks);
        let tflops = (work.flops > 0.0).then(|| work.flops / time.median / 1e6);
        let standing = standing(work, peaks);
        let median = |values: Vec<f64>| (!values.is_empty()).then(|| median_of(values));
        let readings = &measured.readings;
        Ok(Record {
            id: format!("{}/{}", about.case, cache.name()),
            about: about.clone(),
            cache,
            tflops,
            gbs: work.bytes() / time.median / 1e3,
            mfu: tflops.and_then(|t| Some(t / peaks.tflops(work.unit)?)),
            mfu_at_clock: tflops
                .zip(clock)
                .and_then(|(t, clock)| Some(t / peaks.tflops_at(work.unit, clock.median)?)),
            roofline: standing.map(|s| s.ideal_us / time.median),
            limit: standing.map(|s| s.limit),
            floor_us: measured.floor_us,
            clock_mhz: clock,
            watts: median(readings.iter().filter_map(|r| r.watts).collect()),
            celsius: median(
                readings
                    .iter()
                    .filter_map(|r| r.celsius.map(f64::from))
                    .collect(),
            ),
            power_state,
            throttle: throttle_verdict(&readings.iter().map(|r| r.throttle).collect::<Vec<_>>()),
            check: measured.checked.strength,
            compared: measured.checked.compared,
            failure,
            place: place.clone(),
            peaks_source: peaks.source.clone(),
            time,
            timings: measured.timings,
        })
    }

    /// One JSON line.
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("a record holds nothing that JSON lacks")
    }
}

fn clock(megahertz: &[Vec<f64>]) -> Option<Clock> {
    let all = megahertz.concat();
    (!all.is_empty()).then(|| Clock {
        least: all.iter().copied().fold(f64::INFINITY, f64::min),
        most: all.iter().copied().fold(0.0, f64::max),
        median: median_of(all),
    })
}

#[cfg(test)]
pub mod sample {
    //! A made-up record for the tests of what is done with records.
    use super::*;
    use crate::perf::peaks::{Unit, lookup};
    use crate::perf::roofline::Work;
    use crate::perf::workload::{Checked, Config};

    /// 4096³ GEMM at about `us` microseconds, eight rounds of eight.
    pub fn record(case: &str, us: f64, seed: u64) -> Record {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut rounds = |level: f64, spread: f64| -> Vec<Vec<f64>> {
            (0..8)
                .map(|_| {
                    (0..8)
                        .map(|_| level * (1.0 + spread * (random.f64() - 0.5)))
                        .collect()
                })
                .collect()
        };
        let n = 4096.0;
        let about = About {
            case: case.to_owned(),
            subject: "wgmma".to_owned(),
            form: "dense".to_owned(),
            shape: "4096x4096x4096".to_owned(),
            mnk: Some((4096, 4096, 4096)),
            dtype: "e4m3 x e4m3".to_owned(),
            recipe: "test".to_owned(),
            output: "bf16".to_owned(),
            config: Config {
                block_m: Some(256),
                ..Config::default()
            },
            work: Work {
                flops: 2.0 * n * n * n,
                read: 2.0 * n * n,
                written: 2.0 * n * n,
                unit: Unit::Fp8,
            },
            input: "normal".to_owned(),
            counted: "2mnk".to_owned(),
        };
        let measured = Measured {
            timings: Timings {
                microseconds: rounds(us, 0.01),
                megahertz: rounds(1980.0, 0.0),
            },
            readings: vec![],
            checked: Checked {
                compared: 1024,
                strength: "test".to_owned(),
                failure: None,
            },
            floor_us: 1.0,
        };
        let limits = Limits {
            peaks: lookup("NVIDIA H200").unwrap(),
            l2_bytes: 50 << 20,
            max_sm_mhz: Some(1980),
        };
        Record::new(
            &about,
            Cache::Cold,
            measured,
            &limits,
            "P0".to_owned(),
            &place(),
        )
        .unwrap()
    }

    pub fn place() -> Place {
        Place {
            device: "NVIDIA H200".to_owned(),
            cuda: "13.0".to_owned(),
            conditions: Conditions {
                driver: "580.159".to_owned(),
                max_sm_mhz: Some(1980),
                application_sm_mhz: Some(1980),
                memory_mhz: Some(3201),
                power_limit_mw: Some(700_000),
            },
            commit: "test".to_owned(),
            event_overhead_us: 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_follow_from_the_median_and_the_clock_scales_the_peak() {
        let r = sample::record("a/b", 100.0, 1);
        let tflops = r.tflops.unwrap();
        assert!((tflops - 2.0 * 4096f64.powi(3) / r.time.median / 1e6).abs() < 1e-9);
        assert!((r.mfu.unwrap() - tflops / 1979.0).abs() < 1e-12);
        assert!((r.mfu_at_clock.unwrap() - tflops / (1979.0 * 1980.0 / 1830.0)).abs() < 1e-12);
        assert_eq!(r.limit, Some(Limit::Compute));
        assert_eq!(r.id, "a/b/cold");
    }

    #[test]
    fn a_record_reads_back_and_names_every_field_that_a_reviewer_asks_for() {
        let r = sample::record("a/b", 100.0, 2);
        let json = r.json();
        assert_eq!(serde_json::from_str::<Record>(&json).unwrap(), r);
        for field in [
            "shape",
            "dtype",
            "recipe",
            "output",
            "subject",
            "block_m",
            "block_n",
            "block_k",
            "stages",
            "warps",
            "split",
            "median",
            "interval",
            "tflops",
            "gbs",
            "mfu",
            "mfu_at_clock",
            "roofline",
            "clock_mhz",
            "power_state",
            "throttle",
            "input",
            "check",
            "driver",
            "device",
            "commit",
            "counted",
            "cache",
            "noise",
            "quartiles",
        ] {
            assert!(
                json.contains(&format!("\"{field}\":")),
                "{field} is missing"
            );
        }
        assert!(!json.contains('\n'));
    }
}
