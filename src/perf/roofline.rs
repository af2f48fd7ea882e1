//! The roofline: which limit binds a case, how near it came, and which times are
//! impossible.

use serde::{Deserialize, Serialize};

use super::peaks::{Peaks, Unit};
use super::stopwatch::Cache;

/// The work of one launch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Floating-point operations, 2 a multiply-add; 0 where they do not matter.
    pub flops: f64,
    /// Compulsory traffic in bytes: every operand once.
    pub read: f64,
    pub written: f64,
    /// What does the arithmetic.
    pub unit: Unit,
}

impl Work {
    pub fn bytes(&self) -> f64 {
        self.read + self.written
    }

    /// Operations for each byte of compulsory traffic.
    pub fn intensity(&self) -> f64 {
        self.flops / self.bytes()
    }
}

/// Which limit binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    Memory,
    Compute,
}

/// Where a case stands against the limits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Standing {
    pub limit: Limit,
    /// Microseconds at both peaks: what 100 % of the roofline means.
    pub ideal_us: f64,
}

/// The time at the peaks; `None` where a peak that is needed is not known.
pub fn standing(work: &Work, peaks: &Peaks) -> Option<Standing> {
    let memory = work.bytes() / (peaks.bandwidth? * 1e3);
    let compute = match work.flops > 0.0 {
        true => work.flops / (peaks.tflops(work.unit)? * 1e6),
        false => 0.0,
    };
    Some(Standing {
        limit: if compute > memory {
            Limit::Compute
        } else {
            Limit::Memory
        },
        ideal_us: memory.max(compute),
    })
}

/// Microseconds below which no correct run can be: a shorter time means that the
/// work was not done or not timed. Generous on purpose: L2 may hold all it can of
/// the operands (warm) or of the results that were not yet written back (cold), and
/// the clock may be at its highest.
pub fn floor_us(work: &Work, peaks: &Peaks, cache: Cache, l2: u64, max_mhz: Option<f64>) -> f64 {
    let l2 = l2 as f64;
    let traffic = match cache {
        Cache::Cold => work.read + (work.written - l2).max(0.0),
        Cache::Warm => (work.bytes() - l2).max(0.0),
    };
    let slack = if peaks.measured { 1.25 } else { 1.0 };
    let memory = peaks
        .bandwidth
        .map_or(0.0, |gbs| traffic / (gbs * slack * 1e3));
    let boost = match (max_mhz, peaks.boost_mhz) {
        (Some(max), Some(boost)) => (max / boost).max(1.0),
        // Without clocks leave room for the usual gap between boost and highest.
        _ => 1.25,
    };
    let compute = peaks
        .tflops(work.unit)
        .map_or(0.0, |tflops| work.flops / (tflops * boost * 1e6));
    memory.max(compute)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::peaks::lookup;

    fn gemm(m: f64, n: f64, k: f64) -> Work {
        Work {
            flops: 2.0 * m * n * k,
            read: (m + n) * k,
            written: 2.0 * m * n,
            unit: Unit::Fp8,
        }
    }

    #[test]
    fn a_tall_gemm_is_bound_by_compute_and_one_row_by_memory() {
        let peaks = lookup("NVIDIA H200").unwrap();
        let tall = standing(&gemm(4096.0, 7168.0, 16384.0), &peaks).unwrap();
        assert_eq!(tall.limit, Limit::Compute);
        assert!((tall.ideal_us - 486.1).abs() < 0.1, "{}", tall.ideal_us);
        let row = standing(&gemm(1.0, 7168.0, 16384.0), &peaks).unwrap();
        assert_eq!(row.limit, Limit::Memory);
        assert!((row.ideal_us - 24.5).abs() < 0.1, "{}", row.ideal_us);
    }

    #[test]
    fn the_floor_lets_real_times_pass_and_stops_impossible_ones() {
        let peaks = lookup("NVIDIA H200").unwrap();
        let l2 = 50 << 20;
        // Measured: 640 us for the first, 41.6 us for the second (facts: DeepGEMM).
        for (work, real) in [
            (gemm(4096.0, 7168.0, 16384.0), 640.0),
            (gemm(1.0, 7168.0, 16384.0), 41.6),
        ] {
            let floor = floor_us(&work, &peaks, Cache::Cold, l2, Some(1980.0));
            assert!(floor < real && floor > real / 2.0, "{floor} {real}");
            assert!(floor_us(&work, &peaks, Cache::Warm, l2, Some(1980.0)) <= floor);
        }
    }

    #[test]
    fn an_unknown_peak_gives_no_standing_and_no_floor() {
        let nothing = Peaks {
            fp8: None,
            bandwidth: None,
            ..lookup("NVIDIA H200").unwrap()
        };
        let work = gemm(64.0, 64.0, 64.0);
        assert_eq!(standing(&work, &nothing), None);
        assert_eq!(floor_us(&work, &nothing, Cache::Cold, 0, None), 0.0);
    }
}
