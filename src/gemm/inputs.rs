//! Input values, by a counter-based generator: the value of element i is a
//! function of (seed, stream, i) alone, so any element can be made again anywhere.
//! Four elements share a hash, sixteen bits each: on a device hashing is most of the
//! cost of making an operand.
//!
//! Distributions are tables of 4,096 quantiles, indexed by the hash. That keeps
//! transcendental functions out of the generator: host and device give the same
//! bits. Crates (`rand`, …) generate sequences, and their samplers call `ln`/`cos`.

use std::sync::LazyLock;

/// What the elements look like, and what that shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Input {
    /// Standard normal: what most suites use.
    Normal,
    /// Uniform in (0, 1): nothing cancels, so a missing promotion shows.
    Positive,
    /// ±1 and ±2 with power-of-two scales: every sum is exact, the gate is zero.
    Integers,
    /// Normal, and one element a row a thousand times larger.
    Outlier,
    /// Student's t with two degrees of freedom: infinite variance.
    HeavyTailed,
    /// All ones.
    Equal,
    /// Every other run of 16 along k is zero, the others are normal.
    HalfZero,
    /// Normal, with A's scales moved below the smallest normal float and B's up.
    DenormalScales,
}

impl Input {
    pub const ALL: [Input; 8] = [
        Input::Normal,
        Input::Positive,
        Input::Integers,
        Input::Outlier,
        Input::HeavyTailed,
        Input::Equal,
        Input::HalfZero,
        Input::DenormalScales,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Input::Normal => "normal",
            Input::Positive => "positive",
            Input::Integers => "integers",
            Input::Outlier => "outlier",
            Input::HeavyTailed => "heavy-tailed",
            Input::Equal => "equal",
            Input::HalfZero => "half-zero",
            Input::DenormalScales => "denormal-scales",
        }
    }

    /// Whether every product sum is exact in FP32, so that the gate is zero.
    pub fn is_exact(self) -> bool {
        self == Input::Integers
    }
}

impl std::str::FromStr for Input {
    type Err = String;

    fn from_str(text: &str) -> Result<Input, String> {
        Input::ALL
            .into_iter()
            .find(|input| input.name() == text)
            .ok_or_else(|| {
                let names: Vec<&str> = Input::ALL.iter().map(|input| input.name()).collect();
                format!("`{text}`: expected one of {}", names.join(", "))
            })
    }
}

/// Independent sequences of one seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    A,
    B,
    AScale,
    BScale,
    C,
    /// Signs of the Freivalds check and its sample positions.
    Check,
}

/// Seed and stream in one number: what a device needs to make the same bits.
pub fn mixed_seed(seed: u64, stream: Stream) -> u64 {
    finalise(seed ^ (stream as u64 + 1).wrapping_mul(0xd1b5_4a32_d192_ed03))
}

/// 64 mixed bits of (seed, stream, index): two rounds of splitmix64's finaliser.
pub fn mix(seed: u64, stream: Stream, index: u64) -> u64 {
    finalise(mixed_seed(seed, stream).wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

fn finalise(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Sixteen mixed bits of an element.
fn draw(seed: u64, stream: Stream, index: u64) -> u64 {
    mix(seed, stream, index / 4) >> (16 * (index % 4)) & 0xffff
}

const QUANTILES: usize = 4096;

/// Quantiles of the standard normal at (i + ½)/4096, by integrating its density.
static NORMAL: LazyLock<Vec<f32>> = LazyLock::new(|| {
    let (step, from) = (1.0 / 4096.0, -6.0f64);
    let total = (2.0 * std::f64::consts::PI).sqrt();
    let (mut x, mut mass) = (from, 0.0);
    (0..QUANTILES)
        .map(|i| {
            let want = (i as f64 + 0.5) / QUANTILES as f64 * total;
            while mass < want {
                let middle = x + step / 2.0;
                mass += (-middle * middle / 2.0).exp() * step;
                x += step;
            }
            x as f32
        })
        .collect()
});

/// Quantiles of Student's t with two degrees of freedom, in closed form.
static HEAVY: LazyLock<Vec<f32>> = LazyLock::new(|| {
    (0..QUANTILES)
        .map(|i| {
            let p = (i as f64 + 0.5) / QUANTILES as f64;
            ((2.0 * p - 1.0) / (2.0 * p * (1.0 - p)).sqrt()) as f32
        })
        .collect()
});

/// The table that [`value`] draws from, for a device to draw from it too.
pub fn quantiles(input: Input) -> Vec<f32> {
    match input {
        Input::Positive => (0..QUANTILES)
            .map(|slot| (slot as f32 + 0.5) / QUANTILES as f32)
            .collect(),
        Input::HeavyTailed => HEAVY.clone(),
        Input::Equal => vec![1.0; QUANTILES],
        _ => NORMAL.clone(),
    }
}

/// Element (row, col) of a matrix with `cols` columns, before quantising.
///
/// [`Input::Integers`] has no values here: its codes and scales are made directly.
pub fn value(input: Input, seed: u64, stream: Stream, row: usize, col: usize, cols: usize) -> f32 {
    let index = row as u64 * cols as u64 + col as u64;
    let slot = draw(seed, stream, index) as usize % QUANTILES;
    match input {
        Input::Normal | Input::DenormalScales => NORMAL[slot],
        Input::Positive => (slot as f32 + 0.5) / QUANTILES as f32,
        Input::Outlier => {
            let at = mix(seed, stream, u64::MAX - row as u64) % cols as u64;
            if at == col as u64 {
                1000.0 * NORMAL[slot].abs().max(0.5)
            } else {
                NORMAL[slot]
            }
        }
        Input::HeavyTailed => HEAVY[slot],
        Input::Equal => 1.0,
        Input::HalfZero => {
            if (row + col / 16) % 2 == 1 {
                0.0
            } else {
                NORMAL[slot]
            }
        }
        Input::Integers => small_integer(seed, stream, index),
    }
}

/// Never zero: every dropped product is seen.
pub(super) const INTEGERS: [f32; 4] = [-2.0, -1.0, 1.0, 2.0];

/// One of −2, −1, 1, 2.
pub fn integer(bits: u64) -> f32 {
    INTEGERS[(bits >> 40) as usize % 4]
}

/// [`integer`] for element `index` of an operand.
pub fn small_integer(seed: u64, stream: Stream, index: u64) -> f32 {
    INTEGERS[draw(seed, stream, index) as usize % 4]
}

/// One of ½, 1, 2.
pub fn power(bits: u64) -> f32 {
    [0.5, 1.0, 2.0][(bits >> 24) as usize % 3]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(input: Input, stream: Stream) -> Vec<f64> {
        (0..40_000)
            .map(|i| f64::from(value(input, 7, stream, i / 200, i % 200, 200)))
            .collect()
    }

    fn moments(x: &[f64]) -> (f64, f64) {
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        let var = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64;
        (mean, var)
    }

    #[test]
    fn distributions_have_the_moments_they_are_named_for() {
        for (input, mean, var) in [
            (Input::Normal, 0.0, 1.0),
            (Input::Positive, 0.5, 1.0 / 12.0),
            (Input::HalfZero, 0.0, 0.5),
            (Input::Integers, 0.0, 2.5),
        ] {
            let (m, v) = moments(&draw(input, Stream::A));
            assert!((m - mean).abs() < 0.02, "{} mean {m}", input.name());
            assert!(
                (v - var).abs() < 0.03 * (1.0 + var),
                "{} variance {v}",
                input.name()
            );
        }
        let heavy = draw(Input::HeavyTailed, Stream::A);
        assert!(heavy.iter().any(|x| x.abs() > 30.0));
        assert!(
            draw(Input::Positive, Stream::B)
                .iter()
                .all(|&x| x > 0.0 && x < 1.0)
        );
    }

    #[test]
    fn streams_and_seeds_differ_and_an_element_does_not_depend_on_the_others() {
        assert_ne!(
            draw(Input::Normal, Stream::A),
            draw(Input::Normal, Stream::B)
        );
        assert_ne!(mix(1, Stream::A, 0), mix(2, Stream::A, 0));
        assert_eq!(
            value(Input::Normal, 3, Stream::A, 5, 2, 10),
            value(Input::Normal, 3, Stream::A, 5, 2, 10)
        );
    }

    #[test]
    fn the_outlier_is_one_a_row() {
        for row in 0..20 {
            let big = (0..50)
                .filter(|&col| value(Input::Outlier, 1, Stream::A, row, col, 50).abs() >= 500.0)
                .count();
            assert_eq!(big, 1);
        }
    }

    #[test]
    fn names_read_back() {
        for input in Input::ALL {
            assert_eq!(input.name().parse(), Ok(input));
        }
        assert!(
            "gauss"
                .parse::<Input>()
                .unwrap_err()
                .contains("heavy-tailed")
        );
    }
}
