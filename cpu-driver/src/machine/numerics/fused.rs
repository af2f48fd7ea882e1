//! The fused dot product of [`super::dot`] for finite operands, eight columns
//! at a time. Gives the bits of `dot::fused_step`, which tests hold it to.

use super::dot::{FRACTION, Factor, Plan, aligned, factor};
use super::formats::{self, Format};
use super::half::{F16, Half, to_odd};
use crate::machine::lanes::has_wide;

/// Exponent of a zero: below every other.
const NOWHERE: i32 = -(1 << 20);

/// Mantissas and exponents of A (row by row) and B (eight columns a k).
struct Operands {
    a: Vec<(i32, i32)>,
    b_mantissa: Vec<[i32; 8]>,
    b_exponent: Vec<[i32; 8]>,
}

fn numbers(f: &Factor) -> (i32, i32) {
    if f.mantissa == 0 {
        (0, NOWHERE)
    } else {
        (f.mantissa as i32, f.exponent)
    }
}

/// `m × 8` results. A has `m` rows, B eight columns, both k innermost.
pub fn finite(plan: &Plan, a: &[Factor], b: &[Factor], c: &[u64]) -> Vec<u64> {
    let mut operands = Operands {
        a: a.iter().map(numbers).collect(),
        b_mantissa: vec![[0; 8]; plan.k],
        b_exponent: vec![[0; 8]; plan.k],
    };
    for column in 0..8 {
        for k in 0..plan.k {
            let (mantissa, exponent) = numbers(&b[column * plan.k + k]);
            operands.b_mantissa[k][column] = mantissa;
            operands.b_exponent[k][column] = exponent;
        }
    }
    let mut out = vec![0; c.len()];
    for (row, (c, out)) in c.chunks_exact(8).zip(out.chunks_exact_mut(8)).enumerate() {
        let a = &operands.a[row * plan.k..(row + 1) * plan.k];
        let mut format = if plan.late { plan.to } else { plan.from };
        let mut sum: [u64; 8] = std::array::from_fn(|j| if plan.late { 0 } else { c[j] });
        for start in (0..plan.k).step_by(plan.step) {
            let span = start..start + plan.step;
            let (bm, be) = (
                &operands.b_mantissa[span.clone()],
                &operands.b_exponent[span.clone()],
            );
            let parts = sum.map(|bits| factor(format, bits));
            let (total, largest) = step(plan.fraction, &a[span], bm, be, &parts, format);
            for j in 0..8 {
                sum[j] = rounded(total[j], largest[j], plan.to);
            }
            format = plan.to;
        }
        for j in 0..8 {
            out[j] = if plan.late {
                plan.add_late(sum[j], c[j])
            } else {
                sum[j]
            };
        }
    }
    out
}

type Columns = ([i64; 8], [i32; 8]);

fn step(
    fraction: i32,
    a: &[(i32, i32)],
    bm: &[[i32; 8]],
    be: &[[i32; 8]],
    c: &[Factor; 8],
    format: Format,
) -> Columns {
    if has_wide() {
        // SAFETY: the features were just found to be there.
        unsafe { step_wide(fraction, a, bm, be, c, format) }
    } else {
        step_body(fraction, a, bm, be, c, format)
    }
}

#[target_feature(enable = "avx2,fma,f16c,bmi2")]
unsafe fn step_wide(
    fraction: i32,
    a: &[(i32, i32)],
    bm: &[[i32; 8]],
    be: &[[i32; 8]],
    c: &[Factor; 8],
    format: Format,
) -> Columns {
    step_body(fraction, a, bm, be, c, format)
}

#[inline(always)]
fn step_body(
    fraction: i32,
    a: &[(i32, i32)],
    bm: &[[i32; 8]],
    be: &[[i32; 8]],
    c: &[Factor; 8],
    format: Format,
) -> Columns {
    let mut largest: [i32; 8] = std::array::from_fn(|j| numbers(&c[j]).1);
    for ((_, exponent), be) in a.iter().zip(be) {
        for j in 0..8 {
            largest[j] = largest[j].max(exponent + be[j]);
        }
    }
    let bits = format.mantissa_bits as i32;
    let mut sum: [i64; 8] = std::array::from_fn(|j| {
        // Beside products that are all zero a zero has nothing to be aligned to.
        if c[j].mantissa == 0 {
            0
        } else {
            aligned(c[j].mantissa, bits, largest[j] - c[j].exponent)
        }
    });
    let up = (FRACTION - fraction) as u32;
    for (((mantissa, exponent), bm), be) in a.iter().zip(bm).zip(be) {
        for j in 0..8 {
            let product = mantissa * bm[j];
            let down = (largest[j] - (exponent + be[j])).min(63) as u32;
            let magnitude = (u64::from(product.unsigned_abs()) << up) >> down;
            sum[j] += if product < 0 {
                -(magnitude as i64)
            } else {
                magnitude as i64
            };
        }
    }
    (sum, largest)
}

/// The sum in its format: cut to `f32`, rounded to nearest in `f16`.
fn rounded(sum: i64, largest: i32, to: Format) -> u64 {
    if sum == 0 {
        return 0;
    }
    // Fewer than 53 bits and a moderate exponent: exact.
    let scale = f64::from_bits(((largest - FRACTION + 1023) as u64) << 52);
    let exact = sum as f64 * scale;
    if to == formats::F16 {
        return F16::nearest(to_odd(exact)).bits().into();
    }
    let near = exact as f32;
    let bits = near.to_bits();
    if exact.abs() >= 2f64.powi(128) || f64::from(near).abs() <= exact.abs() {
        bits.into()
    } else {
        (bits - 1).into()
    }
}
