//! The input values of a form: a function of its name and header alone, so
//! that every machine computes the same ones.
//!
//! `cross` takes the edge values of each operand against those of the others
//! (the first few of each where the product would be large) and adds draws
//! from the full edge lists and from random values; `cross N` makes N cases,
//! four fifths of them from the product. `random N` draws N cases.
//! `every` runs one 16-bit operand through all of its values.

mod edges;
mod pools;

use super::signature::{SLOT, Signature};
use anyhow::{Context, Result, bail};

/// Cases of a `cross` without a number, and of one with a single operand.
const CASES: usize = 512;
const CASES_OF_ONE: usize = 192;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inputs {
    Cross(usize),
    Random(usize),
    Every,
}

impl Inputs {
    /// # Errors
    /// Anything but `cross`, `cross N`, `every` and `random N`, N at least 1.
    pub fn parse(text: &str) -> Result<Inputs> {
        match text.split_once(' ') {
            None if text == "cross" => Ok(Inputs::Cross(CASES)),
            None if text == "every" => Ok(Inputs::Every),
            Some((kind @ ("cross" | "random"), count)) => {
                let count = count
                    .trim()
                    .parse()
                    .with_context(|| format!("count of `{text}`"))?;
                match (kind, count) {
                    (_, 0) => bail!("`{text}` would compare nothing"),
                    ("cross", _) => Ok(Inputs::Cross(count)),
                    _ => Ok(Inputs::Random(count)),
                }
            }
            _ => bail!("unknown inputs `{text}`: expected cross, cross N, every or random N"),
        }
    }
}

/// One row a case, one value an input operand, in the order of the signature.
pub type Cases = Vec<Vec<u64>>;

/// The cases of the form `name`, filled up to whole blocks of `block` threads.
pub fn cases(name: &str, signature: &Signature, inputs: Inputs, block: u32) -> Cases {
    let operands = &signature.inputs;
    let mut random = SplitMix(super::digest(&[name.as_bytes()]));
    let mut cases: Cases = match inputs {
        Inputs::Every => (0..=0xffff).map(|code| vec![code]).collect(),
        Inputs::Random(_) => Vec::new(),
        Inputs::Cross(count) => {
            let pools: Vec<Vec<u64>> = operands.iter().map(pools::edges).collect();
            product(&pools, count * 4 / 5)
        }
    };
    let wanted = match inputs {
        Inputs::Every => cases.len(),
        Inputs::Random(count) => count,
        Inputs::Cross(count) if operands.len() < 2 => count.min(CASES_OF_ONE),
        Inputs::Cross(count) => count,
    };
    let wanted = wanted.max(cases.len()).next_multiple_of(block as usize);
    while cases.len() < wanted {
        let case = cases.len();
        let draw = |o| pools::draw(o, case, &mut random);
        let row: Vec<u64> = operands.iter().map(draw).collect();
        cases.push(row);
    }
    cases
}

/// The buffer a kernel reads: one slot of eight bytes a value.
pub fn buffer(cases: &Cases) -> Vec<u8> {
    let width = cases.first().map_or(1, |c| c.len().max(1));
    let mut bytes = Vec::with_capacity(cases.len() * width * SLOT);
    for row in cases {
        for value in row {
            bytes.extend_from_slice(&value.to_le_bytes());
        }
        if row.is_empty() {
            bytes.extend_from_slice(&[0; SLOT]);
        }
    }
    bytes
}

/// All combinations of the first values of each pool, at most `most`.
fn product(pools: &[Vec<u64>], most: usize) -> Cases {
    if pools.is_empty() {
        return Vec::new();
    }
    let mut take: Vec<usize> = pools.iter().map(Vec::len).collect();
    while take.iter().product::<usize>() > most.max(1) {
        // Shorten the longest list; the most telling values stand first.
        if let Some(longest) = take.iter_mut().max() {
            *longest -= 1;
        }
    }
    let total: usize = take.iter().product();
    let row = |mut index: usize| {
        let pick = |(pool, take): (&Vec<u64>, &usize)| {
            let value = pool[index % take];
            index /= take;
            value
        };
        pools.iter().zip(&take).map(pick).collect()
    };
    (0..total).map(row).collect()
}

/// Steele, Lea and Flood's SplitMix64: tiny, and the same everywhere.
pub(super) struct SplitMix(u64);

impl SplitMix {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    pub(super) fn pick(&mut self, list: &[u64]) -> u64 {
        list[self.below(list.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_floats_meet_every_pair_of_zero_infinity_and_nan() -> Result<()> {
        let signature = Signature::parse("a:f32 b:f32 -> d:f32")?;
        let cases = cases("x", &signature, Inputs::Cross(512), 64);
        let edges = [0u64, 0x8000_0000, 0x7f80_0000, 0x7fc0_0000];
        for a in edges {
            for b in edges {
                assert!(cases.contains(&vec![a, b]), "{a:08x} {b:08x}");
            }
        }
        Ok(())
    }

    #[test]
    fn the_same_name_gives_the_same_cases_and_another_name_others() -> Result<()> {
        let signature = Signature::parse("a:u32 b:u32 -> d:u32")?;
        let of = |name| cases(name, &signature, Inputs::Random(64), 64);
        assert_eq!(of("x"), of("x"));
        assert_ne!(of("x"), of("y"));
        Ok(())
    }

    #[test]
    fn a_divisor_is_never_zero() -> Result<()> {
        let signature = Signature::parse("a:s16 b:s16/nonzero -> d:s16")?;
        let cases = cases("div.s16", &signature, Inputs::Cross(512), 64);
        assert!(cases.iter().all(|row| row[1] & 0xffff != 0));
        Ok(())
    }
}
