//! Inputs that the device makes and the host can make again, element by element.
//!
//! Element i is `table[hash(seed, i)]`; `kernels/bench_inputs.cu` computes the same.
//! So a result of any size is checked without copying its operands back, and each
//! round of a measurement gets fresh ones.

use anyhow::{Result, ensure};
use statrs::distribution::{ContinuousCDF, Normal};

use crate::device::{Buffer, Device, Launch, Module};
use crate::kernels::BENCH_INPUTS;
use crate::lowp::{E4M3, Ties};

/// Entries of a table.
pub const SLOTS: usize = 4096;

/// Index into a table of `size` entries, a power of two.
pub fn slot(seed: u64, i: u64, size: usize) -> usize {
    let mut x = seed.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^= x >> 31;
    (x >> 32) as usize & (size - 1)
}

/// E4M3 codes of normal values as block quantisation leaves them: the largest of
/// 128 normals is about 2.6 and becomes 448.
pub fn normal_codes() -> Vec<u8> {
    let normal = Normal::standard();
    (0..SLOTS)
        .map(|i| {
            let x = normal.inverse_cdf((i as f64 + 0.5) / SLOTS as f64);
            let scaled = (x * 448.0 / 2.6).clamp(-448.0, 448.0) as f32;
            E4M3.encode(scaled, Ties::Even).unwrap_or(0)
        })
        .collect()
}

/// Scales between 0.75 and 1.25 of what block quantisation of normals gives.
pub fn scales() -> Vec<f32> {
    (0..SLOTS)
        .map(|i| (2.6 / 448.0) * (0.75 + 0.5 * i as f32 / SLOTS as f32))
        .collect()
}

/// Small integers as floats, of both signs and without zero: their sums are exact,
/// and data like zeros, which runs faster, is avoided.
pub fn small_integers() -> Vec<u32> {
    (0..SLOTS)
        .map(|i| {
            let value = [1.0f32, -1.0, 2.0, -2.0, 3.0, -3.0, 5.0, -5.0][i % 8];
            value.to_bits()
        })
        .collect()
}

/// Arbitrary words.
pub fn words() -> Vec<u32> {
    (0..SLOTS as u64)
        .map(|i| slot(77, i, 1 << 31) as u32)
        .collect()
}

/// Fills buffers on the device.
pub struct Filler {
    module: Module,
    grid: Launch,
}

impl Filler {
    pub fn new(device: &Device) -> Result<Filler> {
        Ok(Filler {
            module: device.load(&BENCH_INPUTS)?,
            grid: Launch::linear(device.hardware()?.multiprocessors.max(1) * 8, 256),
        })
    }

    /// Fills `out` with bytes of `table`.
    pub fn bytes(&self, out: &Buffer<u8>, table: &Buffer<u8>, seed: u64) -> Result<()> {
        self.fill(
            "fillBytes",
            out.address(),
            out.len(),
            table.address(),
            table.len(),
            seed,
        )
    }

    /// Fills `out` with words of `table`.
    pub fn words(&self, out: &Buffer<u32>, table: &Buffer<u32>, seed: u64) -> Result<()> {
        self.fill(
            "fillWords",
            out.address(),
            out.len(),
            table.address(),
            table.len(),
            seed,
        )
    }

    /// The same for floats, which are words to the device.
    pub fn floats(&self, out: &Buffer<f32>, table: &Buffer<f32>, seed: u64) -> Result<()> {
        self.fill(
            "fillWords",
            out.address(),
            out.len(),
            table.address(),
            table.len(),
            seed,
        )
    }

    fn fill(
        &self,
        kernel: &str,
        out: u64,
        len: usize,
        table: u64,
        size: usize,
        seed: u64,
    ) -> Result<()> {
        ensure!(size.is_power_of_two(), "a table of {size} entries");
        let kernel = self.module.kernel(kernel)?;
        kernel.launch(
            self.grid,
            &[&out, &(len as u64), &table, &(size as u32), &seed],
        )?;
        Ok(())
    }
}

/// Runs `part` on ranges of 0..`len` in all threads of the machine and returns what
/// each gave, in order.
pub fn in_parallel<T: Send>(len: u64, part: impl Fn(std::ops::Range<u64>) -> T + Sync) -> Vec<T> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()) as u64;
    let step = len.div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|t| (t * step).min(len)..((t + 1) * step).min(len))
            .filter(|range| !range.is_empty())
            .map(|range| scope.spawn(|| part(range)))
            .collect();
        handles
            .into_iter()
            .map(|handle| handle.join().expect("a part does not panic"))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_differ_between_seeds_and_are_spread_over_the_table() {
        let mut seen = vec![0usize; 64];
        for i in 0..6400 {
            seen[slot(1, i, 64)] += 1;
        }
        assert!(seen.iter().all(|&n| n > 50 && n < 160), "{seen:?}");
        let equal = (0..1000)
            .filter(|&i| slot(1, i, 4096) == slot(2, i, 4096))
            .count();
        assert!(equal < 10, "{equal}");
    }

    #[test]
    fn normal_codes_are_finite_symmetric_and_not_mostly_zero() {
        let codes = normal_codes();
        let values: Vec<f32> = codes.iter().map(|&c| E4M3.decode(c)).collect();
        assert!(values.iter().all(|x| x.is_finite()));
        assert!(values.iter().sum::<f32>().abs() < 1e-3);
        assert!(values.iter().filter(|x| **x == 0.0).count() < 10);
        assert_eq!(values.iter().fold(0f32, |m, x| m.max(x.abs())), 448.0);
    }

    #[test]
    fn parts_cover_the_range_once_and_in_order() {
        for len in [0u64, 1, 7, 1000] {
            let all: Vec<u64> = in_parallel(len, |r| r.collect::<Vec<_>>()).concat();
            assert_eq!(all, (0..len).collect::<Vec<_>>());
        }
    }
}
