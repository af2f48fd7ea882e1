//! What tensor cores compute: `D = A·B + C` for `mma.sync`.
//!
//! Integers are exact. Floats follow the fused, truncating model: in steps of
//! [`step`] products, all products and the accumulator are aligned to the
//! largest exponent among them, cut (towards zero) at [`FRACTION`] bits below
//! it, added exactly, and the sum is cut to `f32` (or rounded to nearest for an
//! `f16` accumulator). Products are exact and their exponents are the sums of
//! the factors' exponents, before normalisation. A NaN, 0·∞ or ∞ − ∞ gives the
//! canonical NaN.
//!
//! FP8 operands are widened to `f16`, as ptxas for sm_90 does (`F2FP.UNPACK`,
//! two `HMMA` from zero): one step over the lower two bytes of every register,
//! one over the upper two; C is added last, rounded to nearest. `f64` is a
//! chain of fused operations.
//!
//! The model and its parameters for Hopper are those of arXiv 2511.10909; every
//! bit recorded on an H200 (`forms/mma`) agrees. Other architectures are
//! unmeasured: they get the same arithmetic here.

pub use super::element::{Element, Kind};
use super::formats::{self, Format, Parts, RN, RZ};
use super::fused;
use super::half::FP8_AS_F16;
use super::single::fused64;
use crate::machine::ops::mma::Shape;
use crate::ptx::ast::ScalarType;

/// Fraction bits kept below the largest exponent.
pub const FRACTION: i32 = 25;

/// Products that are summed at once.
pub fn step(shape: &Shape) -> usize {
    match shape.a {
        Element::TF32 => shape.k.min(8),
        Element::E4M3 | Element::E5M2 => shape.k / 2,
        _ => shape.k.min(16),
    }
}

/// `m × 8` results as bits. A and B have k innermost.
pub fn multiply(shape: &Shape, a: &[u64], b: &[u64], c: &[u64]) -> Vec<u64> {
    match shape.kind {
        Kind::Float => floats(shape, a, b, c),
        Kind::Double => each(shape, c, |i, j, c| double(shape.k, &a[i..], &b[j..], c)),
        Kind::Integer => each(shape, c, |i, j, c| {
            let sum: i64 = (0..shape.k)
                .map(|k| shape.a.integer(a[i + k]) * shape.b.integer(b[j + k]))
                .sum();
            whole(sum, c, shape.saturate)
        }),
        Kind::XorCount | Kind::AndCount => each(shape, c, |i, j, c| {
            let sum: i64 = (0..shape.k)
                .map(|k| {
                    let (x, y) = (a[i + k], b[j + k]);
                    (if shape.kind == Kind::XorCount {
                        x ^ y
                    } else {
                        x & y
                    }) as i64
                })
                .sum();
            whole(sum, c, false)
        }),
    }
}

/// Every element of the result from where its row of A and column of B start.
fn each(shape: &Shape, c: &[u64], f: impl Fn(usize, usize, u64) -> u64) -> Vec<u64> {
    (0..shape.m * 8)
        .map(|at| f(at / 8 * shape.k, at % 8 * shape.k, c[at]))
        .collect()
}

fn whole(sum: i64, c: u64, saturate: bool) -> u64 {
    let total = sum + i64::from(c as u32 as i32);
    let value = if saturate {
        total.clamp(i32::MIN.into(), i32::MAX.into()) as i32
    } else {
        total as i32
    };
    u64::from(value as u32)
}

/// A chain of fused operations in the order of k. At each link a NaN of B wins
/// over one in the sum, which wins over one of A (a scalar `fma.f64` prefers
/// the sum to B).
fn double(k: usize, a: &[u64], b: &[u64], c: u64) -> u64 {
    let nan = |bits: &u64| f64::from_bits(*bits).is_nan();
    let mut sum = c;
    for (a, b) in a[..k].iter().zip(&b[..k]) {
        sum = match [*b, sum, *a].into_iter().find(nan) {
            Some(first) => first | 1 << 51,
            None => {
                let [a, b, c] = [*a, *b, sum].map(f64::from_bits);
                fused64::<RN>(a, b, c).to_bits()
            }
        };
    }
    sum
}

/// A factor: `mantissa · 2^(exponent - fraction bits)`, with the exponent of
/// the leading bit's place (not normalised for subnormals).
#[derive(Clone, Copy)]
pub struct Factor {
    pub mantissa: i64,
    pub exponent: i32,
    pub special: Special,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Special {
    No,
    Nan,
    Infinite,
}

#[inline(always)]
pub fn factor(format: Format, bits: u64) -> Factor {
    match format.split(bits) {
        Parts::Nan => Factor {
            mantissa: 0,
            exponent: 0,
            special: Special::Nan,
        },
        Parts::Infinite { negative } => Factor {
            mantissa: if negative { -1 } else { 1 },
            exponent: 0,
            special: Special::Infinite,
        },
        Parts::Finite {
            negative,
            mantissa,
            exponent,
        } => Factor {
            mantissa: if negative {
                -(mantissa as i64)
            } else {
                mantissa as i64
            },
            exponent: exponent + format.mantissa_bits as i32,
            special: Special::No,
        },
    }
}

fn factors(element: Element, bits: &[u64]) -> Vec<Factor> {
    let format = element.format();
    bits.iter()
        .map(|bits| match element {
            // The last 13 bits of the register are ignored.
            Element::TF32 => factor(format, bits >> 13),
            Element::E4M3 => factor(format, FP8_AS_F16[0][*bits as usize & 255].into()),
            Element::E5M2 => factor(format, FP8_AS_F16[1][*bits as usize & 255].into()),
            _ => factor(format, *bits),
        })
        .collect()
}

/// How the products of one `mma` are summed.
pub struct Plan {
    pub k: usize,
    /// Products added at once.
    pub step: usize,
    /// Fraction bits of a product.
    pub fraction: i32,
    /// The sum starts at zero and C is added last.
    pub late: bool,
    pub from: Format,
    pub to: Format,
}

impl Plan {
    fn of(shape: &Shape) -> Self {
        let eight_bits = matches!(shape.a, Element::E4M3 | Element::E5M2);
        Self {
            k: shape.k,
            step: if eight_bits { shape.k / 2 } else { step(shape) },
            fraction: (shape.a.format().mantissa_bits + shape.b.format().mantissa_bits) as i32,
            late: eight_bits,
            from: accumulator(shape.c),
            to: accumulator(shape.d),
        }
    }

    /// Two numbers of at most 24 bits: `f64` is wide enough for a second
    /// rounding to do no harm.
    pub fn add_late(&self, sum: u64, c: u64) -> u64 {
        let total = self.to.to_f64(sum) + self.from.to_f64(c);
        self.to.from_f64(total, RN, false)
    }
}

/// The order in which sm_90 takes FP8 products: every register's lower two
/// bytes make one step of `f16` products, the upper two the next.
fn lower_bytes_first(factors: &[Factor], k: usize) -> Vec<Factor> {
    let mut ordered = Vec::with_capacity(factors.len());
    for line in factors.chunks_exact(k) {
        for half in [0, 2] {
            ordered.extend(line.chunks_exact(4).flat_map(|four| &four[half..half + 2]));
        }
    }
    ordered
}

fn floats(shape: &Shape, a: &[u64], b: &[u64], c: &[u64]) -> Vec<u64> {
    let plan = Plan::of(shape);
    let (mut a, mut b) = (factors(shape.a, a), factors(shape.b, b));
    if plan.late {
        a = lower_bytes_first(&a, plan.k);
        b = lower_bytes_first(&b, plan.k);
    }
    let special = a.iter().chain(&b).any(|f| f.special != Special::No)
        || c.iter()
            .any(|bits| factor(plan.from, *bits).special != Special::No);
    // Between two steps an `f16` sum may have become infinite.
    let overflows_midway = plan.step < plan.k && plan.to == formats::F16;
    if special || overflows_midway {
        one_by_one(&plan, &a, &b, c)
    } else {
        fused::finite(&plan, &a, &b, c)
    }
}

/// Every result by itself; infinities and NaNs included.
fn one_by_one(plan: &Plan, a: &[Factor], b: &[Factor], c: &[u64]) -> Vec<u64> {
    let one = |at: usize| {
        let (row, column) = (
            &a[at / 8 * plan.k..][..plan.k],
            &b[at % 8 * plan.k..][..plan.k],
        );
        let mut sum = if plan.late { 0 } else { c[at] };
        let mut format = if plan.late { plan.to } else { plan.from };
        for (row, column) in row
            .chunks_exact(plan.step)
            .zip(column.chunks_exact(plan.step))
        {
            sum = fused_step(row, column, plan.fraction, format, sum, plan.to);
            format = plan.to;
        }
        if plan.late {
            plan.add_late(sum, c[at])
        } else {
            sum
        }
    };
    (0..c.len()).map(one).collect()
}

fn accumulator(ty: ScalarType) -> Format {
    if ty == ScalarType::F16 {
        formats::F16
    } else {
        formats::F32
    }
}

/// One step: the products of `row` and `column` and the accumulator `c`.
fn fused_step(
    row: &[Factor],
    column: &[Factor],
    fraction: i32,
    from: Format,
    c: u64,
    to: Format,
) -> u64 {
    let c = factor(from, c);
    if let Some(special) = special_sum(row, column, c) {
        return special.bits(to);
    }
    let mut largest = if c.mantissa == 0 {
        i32::MIN
    } else {
        c.exponent
    };
    for (x, y) in row.iter().zip(column) {
        if x.mantissa != 0 && y.mantissa != 0 {
            largest = largest.max(x.exponent + y.exponent);
        }
    }
    if largest == i32::MIN {
        return 0;
    }
    // A zero has an exponent of its own, which the products may lie far below.
    let mut sum = match c.mantissa {
        0 => 0,
        mantissa => aligned(mantissa, from.mantissa_bits as i32, largest - c.exponent),
    };
    for (x, y) in row.iter().zip(column) {
        let product = x.mantissa * y.mantissa;
        if product != 0 {
            sum += aligned(product, fraction, largest - x.exponent - y.exponent);
        }
    }
    let rounding = if to == formats::F16 { RN } else { RZ };
    let bits = to.round(
        sum < 0,
        u128::from(sum.unsigned_abs()),
        largest - FRACTION,
        false,
        rounding,
        false,
    );
    // Cutting does not stop at the largest number.
    if bits & !to.sign_bit() == to.largest() && overflows(sum, largest, to) {
        bits + 1
    } else {
        bits
    }
}

/// True where the sum has a larger exponent than the format.
fn overflows(sum: i64, largest: i32, to: Format) -> bool {
    let highest = 63 - sum.unsigned_abs().leading_zeros() as i32 + largest - FRACTION;
    highest > (1 << (to.exponent_bits - 1)) - 1
}

/// `value`, not 0, with `fraction` fraction bits, moved `down` places, at least
/// 0, and cut.
#[inline(always)]
pub fn aligned(value: i64, fraction: i32, down: i32) -> i64 {
    let magnitude = value.unsigned_abs();
    let shift = FRACTION - fraction - down;
    let moved = if shift >= 0 {
        magnitude << shift
    } else if shift > -64 {
        magnitude >> -shift
    } else {
        0
    };
    if value < 0 {
        -(moved as i64)
    } else {
        moved as i64
    }
}

enum SpecialSum {
    Nan,
    Infinite(bool),
}

impl SpecialSum {
    fn bits(&self, to: Format) -> u64 {
        match self {
            SpecialSum::Nan => to.canonical_nan(),
            SpecialSum::Infinite(false) => to.infinity(),
            SpecialSum::Infinite(true) => to.infinity() | to.sign_bit(),
        }
    }
}

/// NaN or infinity, where any operand is one.
fn special_sum(row: &[Factor], column: &[Factor], c: Factor) -> Option<SpecialSum> {
    let any = row.iter().chain(column).any(|f| f.special != Special::No);
    if !any && c.special == Special::No {
        return None;
    }
    let (mut up, mut down) = (false, false);
    let mut see = |negative: bool| {
        up |= !negative;
        down |= negative;
    };
    match c.special {
        Special::Nan => return Some(SpecialSum::Nan),
        Special::Infinite => see(c.mantissa < 0),
        Special::No => {}
    }
    for (x, y) in row.iter().zip(column) {
        match (x.special, y.special) {
            (Special::Nan, _) | (_, Special::Nan) => return Some(SpecialSum::Nan),
            (Special::No, Special::No) => {}
            _ if x.mantissa == 0 || y.mantissa == 0 => return Some(SpecialSum::Nan),
            _ => see((x.mantissa < 0) != (y.mantissa < 0)),
        }
    }
    match (up, down) {
        (true, true) => Some(SpecialSum::Nan),
        (false, false) => None,
        _ => Some(SpecialSum::Infinite(down)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random finite bits of a format.
    fn finite_bits(format: Format, state: &mut u64) -> u64 {
        loop {
            *state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let bits = (*state >> 33) & (2 * format.sign_bit() - 1);
            if factor(format, bits).special == Special::No {
                return bits;
            }
        }
    }

    /// Found by damaged kernels: the shift of the zero overflowed.
    #[test]
    fn products_far_below_a_zero_sum_are_kept() {
        let plan = Plan {
            k: 8,
            step: 8,
            fraction: 14,
            late: false,
            from: formats::F32,
            to: formats::F32,
        };
        // 2^-133 · 2^-8 in the first product, zero in the others.
        let mut a = vec![factor(formats::BF16, 0); 16 * 8];
        let mut b = vec![factor(formats::BF16, 0); 8 * 8];
        a[0] = factor(formats::BF16, 1);
        b[0] = factor(formats::BF16, 0x3b80);
        let found = one_by_one(&plan, &a, &b, &[0; 128]);
        let slowly = 2f64.powi(-133) * 2f64.powi(-8);
        assert_eq!(f32::from_bits(found[0] as u32), slowly as f32);
        // Far below what `f32` holds: zero, and no overflow.
        b[0] = factor(formats::BF16, 1);
        assert_eq!(one_by_one(&plan, &a, &b, &[0; 128])[0], 0);
    }

    #[test]
    fn eight_columns_at_a_time_give_the_bits_of_one_result_at_a_time() {
        let mut state = 20_261_130;
        for (format, step, late, to) in [
            (formats::F16, 16, false, formats::F32),
            (formats::F16, 8, true, formats::F32),
            (formats::F16, 16, false, formats::F16),
            (formats::BF16, 16, false, formats::F32),
            (formats::TF32, 8, false, formats::F32),
        ] {
            let plan = Plan {
                k: 16,
                step,
                fraction: 2 * format.mantissa_bits as i32,
                late,
                from: to,
                to,
            };
            for _ in 0..200 {
                let mut side = |rows: usize| -> Vec<Factor> {
                    (0..rows * 16)
                        .map(|_| factor(format, finite_bits(format, &mut state)))
                        .collect()
                };
                let (a, b) = (side(16), side(8));
                let c: Vec<u64> = (0..128).map(|_| finite_bits(to, &mut state)).collect();
                let slow = one_by_one(&plan, &a, &b, &c);
                // A sum that overflows midway goes through infinities.
                let ordinary = slow.iter().all(|s| factor(to, *s).special == Special::No);
                if ordinary || step == 16 {
                    assert_eq!(fused::finite(&plan, &a, &b, &c), slow);
                }
            }
        }
    }
}
