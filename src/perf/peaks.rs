//! What a device can do at most: datasheet peaks, each with its source.
//!
//! An unknown device is never guessed: its peaks are measured, or given with
//! `--peaks FILE`. Tensor figures are dense (without sparsity), at `boost_mhz`.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// Number formats that have a peak of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// FP8 tensor cores.
    Fp8,
    /// FP16 or BF16 tensor cores with FP32 sums.
    Fp16,
    /// Ordinary FP32 units.
    Fp32,
}

impl Unit {
    pub fn name(self) -> &'static str {
        match self {
            Unit::Fp8 => "fp8",
            Unit::Fp16 => "fp16",
            Unit::Fp32 => "fp32",
        }
    }
}

/// What a product reached.
#[derive(Debug, Clone, PartialEq)]
pub struct Rate {
    pub unit: Unit,
    /// Which.
    pub case: String,
    pub tflops: f64,
}

/// The peaks of one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peaks {
    /// Name of the device, or the start of it.
    pub name: String,
    /// TFLOPS; none where the device lacks the unit or nothing is known.
    pub fp8: Option<f64>,
    pub fp16: Option<f64>,
    pub fp32: Option<f64>,
    /// GB/s, 10^9 bytes.
    pub bandwidth: Option<f64>,
    /// SM clock in MHz at which the TFLOPS hold; none where the vendor does not say.
    pub boost_mhz: Option<f64>,
    /// Measured, not promised: a good kernel may exceed it a little.
    #[serde(default)]
    pub measured: bool,
    /// Where the figures are from.
    pub source: String,
}

impl Peaks {
    /// TFLOPS of `unit`.
    pub fn tflops(&self, unit: Unit) -> Option<f64> {
        match unit {
            Unit::Fp8 => self.fp8,
            Unit::Fp16 => self.fp16,
            Unit::Fp32 => self.fp32,
        }
    }

    /// TFLOPS of `unit` when the clock is `mhz`.
    pub fn tflops_at(&self, unit: Unit, mhz: f64) -> Option<f64> {
        Some(self.tflops(unit)? * mhz / self.boost_mhz?)
    }

    /// Of a device of which nothing is known.
    pub fn unknown(name: &str) -> Peaks {
        Peaks {
            name: name.to_owned(),
            fp8: None,
            fp16: None,
            fp32: None,
            bandwidth: None,
            boost_mhz: None,
            measured: true,
            source: String::new(),
        }
    }

    /// What was measured on a device: the bandwidth of a copy of so many bytes, and
    /// of each unit the fastest product. A unit that nobody used has no peak.
    pub fn measured(name: &str, bandwidth: f64, copied: u64, rates: &[Rate]) -> Peaks {
        let best = |unit: Unit| {
            let of_unit = rates.iter().filter(|rate| rate.unit == unit);
            of_unit.max_by(|a, b| a.tflops.total_cmp(&b.tflops))
        };
        let units = [Unit::Fp8, Unit::Fp16, Unit::Fp32];
        let from: Vec<String> = units
            .into_iter()
            .filter_map(|unit| {
                let rate = best(unit)?;
                let name = unit.name();
                Some(format!("{name} {:.1} TFLOPS by {}", rate.tflops, rate.case))
            })
            .collect();
        let matrix = match from.as_slice() {
            [] => "no product ran, so there are no TFLOPS to compare with".to_owned(),
            _ => from.join(", "),
        };
        let tflops = |unit| best(unit).map(|rate| rate.tflops);
        Peaks {
            fp8: tflops(Unit::Fp8),
            fp16: tflops(Unit::Fp16),
            fp32: tflops(Unit::Fp32),
            bandwidth: Some(bandwidth),
            source: format!(
                "measured here, no datasheet: {bandwidth:.0} GB/s by a copy of {copied} bytes, \
                 {matrix}; shares of these are shares of what runs here, not of what the chip \
                 could do (--peaks FILE gives a datasheet's)"
            ),
            ..Peaks::unknown(name)
        }
    }

    /// Reads `--peaks FILE`: TOML with the fields of this struct.
    pub fn from_toml(text: &str) -> Result<Peaks> {
        let peaks: Peaks = toml::from_str(text).context(
            "expected TOML with name, source and any of fp8, fp16, fp32 (TFLOPS), \
             bandwidth (GB/s), boost_mhz",
        )?;
        for (what, value) in [
            ("fp8", peaks.fp8),
            ("fp16", peaks.fp16),
            ("fp32", peaks.fp32),
            ("bandwidth", peaks.bandwidth),
            ("boost_mhz", peaks.boost_mhz),
        ] {
            if value.is_some_and(|x| !x.is_finite() || x <= 0.0) {
                bail!("{what} is {value:?}: expected a positive number");
            }
        }
        if peaks.source.trim().is_empty() {
            bail!("source is empty: say where the figures are from");
        }
        Ok(peaks)
    }
}

/// One line of [`TABLE`]: name, FP8, FP16, FP32, GB/s, boost MHz, source.
type Line = (
    &'static str,
    Option<f64>,
    f64,
    f64,
    f64,
    Option<f64>,
    &'static str,
);

/// Names as the driver gives them. The longest that a name starts with counts.
const TABLE: [Line; 15] = [
    (
        "Tesla T4",
        None,
        65.0,
        8.1,
        320.0,
        Some(1590.0),
        "NVIDIA T4 datasheet (2019); boost clock: NVIDIA T4 product brief PB-09256",
    ),
    (
        "NVIDIA A100-SXM4-40GB",
        None,
        312.0,
        19.5,
        1555.0,
        Some(1410.0),
        "NVIDIA A100 datasheet (2021); boost clock: A100 whitepaper, table 1",
    ),
    (
        "NVIDIA A100-SXM4-80GB",
        None,
        312.0,
        19.5,
        2039.0,
        Some(1410.0),
        "NVIDIA A100 datasheet (2021); boost clock: A100 whitepaper, table 1",
    ),
    (
        "NVIDIA A100-PCIE-40GB",
        None,
        312.0,
        19.5,
        1555.0,
        Some(1410.0),
        "NVIDIA A100 datasheet (2021); boost clock: A100 whitepaper, table 1",
    ),
    (
        "NVIDIA A100 80GB PCIe",
        None,
        312.0,
        19.5,
        1935.0,
        Some(1410.0),
        "NVIDIA A100 datasheet (2021); boost clock: A100 whitepaper, table 1",
    ),
    (
        "NVIDIA L4",
        Some(242.5),
        121.0,
        30.3,
        300.0,
        Some(2040.0),
        "NVIDIA L4 datasheet (2023), tensor figures halved from its sparse ones; boost clock: L4 product brief",
    ),
    (
        "NVIDIA L40S",
        Some(733.0),
        362.05,
        91.6,
        864.0,
        Some(2520.0),
        "NVIDIA L40S datasheet (2023); boost clock: L40S product brief",
    ),
    (
        "NVIDIA H100 80GB HBM3",
        Some(1979.0),
        989.5,
        67.0,
        3350.0,
        Some(1830.0),
        "NVIDIA H100 datasheet (2023), SXM, tensor figures halved from its sparse ones; clock: 132 SM x 8192 FP8 FLOP a cycle gives 1.83 GHz",
    ),
    (
        "NVIDIA H100 PCIe",
        Some(1513.0),
        756.5,
        51.0,
        2000.0,
        Some(1620.0),
        "NVIDIA H100 datasheet (2022), PCIe, tensor figures halved; clock: 114 SM x 8192 FP8 FLOP a cycle gives 1.62 GHz",
    ),
    (
        "NVIDIA H100 NVL",
        Some(1671.0),
        835.5,
        60.0,
        3900.0,
        Some(1545.0),
        "NVIDIA H100 datasheet (2024), NVL, tensor figures halved; clock: 132 SM x 8192 FP8 FLOP a cycle gives 1.545 GHz",
    ),
    (
        "NVIDIA H200",
        Some(1979.0),
        989.5,
        67.0,
        4800.0,
        Some(1830.0),
        "NVIDIA H200 datasheet (2024), SXM, tensor figures halved from its sparse ones; clock: 132 SM x 8192 FP8 FLOP a cycle gives 1.83 GHz",
    ),
    (
        "NVIDIA H200 NVL",
        Some(1671.0),
        835.5,
        60.0,
        4800.0,
        Some(1545.0),
        "NVIDIA H200 datasheet (2024), NVL, tensor figures halved; clock: 132 SM x 8192 FP8 FLOP a cycle gives 1.545 GHz",
    ),
    (
        "NVIDIA GH200 480GB",
        Some(1979.0),
        989.5,
        67.0,
        4000.0,
        Some(1830.0),
        "NVIDIA GH200 datasheet (2023), HBM3, tensor figures halved; clock as H100 SXM",
    ),
    (
        "NVIDIA B200",
        Some(4500.0),
        2250.0,
        75.0,
        8000.0,
        None,
        "NVIDIA HGX B200 datasheet (2025): an eighth of the board, dense; the clock is not given",
    ),
    (
        "Tesla V100-SXM2",
        None,
        125.0,
        15.7,
        900.0,
        Some(1530.0),
        "NVIDIA V100 datasheet (2020)",
    ),
];

/// The datasheet peaks of a device by its driver name; `None` for a name that is
/// not in the table.
pub fn lookup(name: &str) -> Option<Peaks> {
    TABLE
        .iter()
        .filter(|line| {
            // `NVIDIA L4` must not answer for `NVIDIA L40`.
            name.strip_prefix(line.0)
                .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
        })
        .max_by_key(|line| line.0.len())
        .map(
            |&(name, fp8, fp16, fp32, bandwidth, boost_mhz, source)| Peaks {
                name: name.to_owned(),
                fp8,
                fp16: Some(fp16),
                fp32: Some(fp32),
                bandwidth: Some(bandwidth),
                boost_mhz,
                measured: false,
                source: source.to_owned(),
            },
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_found_by_the_longest_name_and_a_neighbour_is_not_guessed() {
        let bandwidth = |name: &str| lookup(name).and_then(|p| p.bandwidth);
        assert_eq!(bandwidth("NVIDIA H200"), Some(4800.0));
        assert_eq!(lookup("NVIDIA H200 NVL").unwrap().fp8, Some(1671.0));
        assert_eq!(bandwidth("NVIDIA L4"), Some(300.0));
        assert_eq!(bandwidth("NVIDIA L40S"), Some(864.0));
        assert_eq!(bandwidth("NVIDIA L40"), None);
        assert_eq!(bandwidth("NVIDIA H100 80GB HBM3"), Some(3350.0));
        assert_eq!(bandwidth("NVIDIA GeForce RTX 4090"), None);
        assert_eq!(bandwidth(""), None);
    }

    #[test]
    fn every_line_names_a_source_and_positive_figures() {
        for line in TABLE {
            let peaks = lookup(line.0).unwrap();
            assert!(peaks.source.contains("NVIDIA"), "{}", peaks.name);
            let figures = [
                peaks.fp8,
                peaks.fp16,
                peaks.fp32,
                peaks.bandwidth,
                peaks.boost_mhz,
            ];
            assert!(figures.iter().flatten().all(|x| *x > 0.0), "{}", peaks.name);
            assert!(peaks.fp16 > peaks.fp32, "{}", peaks.name);
        }
    }

    #[test]
    fn the_peak_follows_the_clock() {
        let h200 = lookup("NVIDIA H200").unwrap();
        let at = h200.tflops_at(Unit::Fp8, 915.0).unwrap();
        assert!((at - 989.5).abs() < 1e-9, "{at}");
        assert_eq!(
            lookup("NVIDIA B200").unwrap().tflops_at(Unit::Fp8, 1000.0),
            None
        );
    }

    #[test]
    fn an_override_must_be_complete_and_say_its_source() {
        let good = "name = \"X\"\nfp8 = 100.0\nbandwidth = 500.0\nsource = \"my datasheet\"";
        assert_eq!(Peaks::from_toml(good).unwrap().fp8, Some(100.0));
        for bad in [
            "name = \"X\"\nsource = \"\"",
            "name = \"X\"\nfp8 = -1.0\nsource = \"s\"",
            "name = \"X\"\nfp9 = 1.0\nsource = \"s\"",
            "not toml",
        ] {
            assert!(Peaks::from_toml(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_unknown_device_gets_what_was_measured_and_nothing_else() {
        let name = "Somebody's Accelerator 9";
        assert_eq!(lookup(name), None);
        let rate = |unit, case: &str, tflops| Rate {
            unit,
            case: case.to_owned(),
            tflops,
        };
        let rates = [
            rate(Unit::Fp8, "mma", 200.0),
            rate(Unit::Fp8, "cublaslt", 900.0),
            rate(Unit::Fp32, "simt", 30.0),
        ];
        let peaks = Peaks::measured(name, 2000.0, 1 << 28, &rates);
        assert_eq!(
            (peaks.fp8, peaks.fp16, peaks.fp32),
            (Some(900.0), None, Some(30.0))
        );
        assert_eq!(peaks.bandwidth, Some(2000.0));
        assert!(peaks.measured);
        assert!(
            peaks.source.contains("900.0 TFLOPS by cublaslt"),
            "{}",
            peaks.source
        );
        assert!(!peaks.source.contains("mma"), "{}", peaks.source);
        // No clock is known at which they would hold.
        assert_eq!(peaks.tflops_at(Unit::Fp8, 1000.0), None);
        let none = Peaks::measured(name, 2000.0, 1 << 28, &[]);
        assert_eq!((none.fp8, none.fp32), (None, None));
        assert!(none.source.contains("no product ran"));
    }

    /// A ceiling of our own kernels may be passed a little: the floor leaves room.
    #[test]
    fn a_measured_ceiling_does_not_make_a_slightly_faster_run_impossible() {
        use crate::perf::roofline::{Work, floor_us};
        use crate::perf::stopwatch::Cache;
        let rates = [Rate {
            unit: Unit::Fp32,
            case: "simt".to_owned(),
            tflops: 30.0,
        }];
        let peaks = Peaks::measured("X", 2000.0, 1 << 28, &rates);
        let work = Work {
            flops: 30e6 * 100.0,
            read: 1.0,
            written: 1.0,
            unit: Unit::Fp32,
        };
        let floor = floor_us(&work, &peaks, Cache::Cold, 0, Some(2000.0));
        assert!((floor - 80.0).abs() < 1e-9, "{floor}");
    }
}
