//! Edge values and random draws of each operand type and named set.

use super::SplitMix;
use super::edges::{BF16, F16, F32, F64, ROUND, SHIFTS};
use crate::forms::signature::{Operand, Type};

/// The edge values of an operand, the most telling first.
pub(super) fn edges(operand: &Operand) -> Vec<u64> {
    match (operand.set.as_str(), operand.ty) {
        ("shift", _) => SHIFTS.to_vec(),
        ("bit", _) => vec![0, 1],
        ("nonzero", ty) => of_type(ty)
            .into_iter()
            .filter(|v| keep(*v, ty) != 0)
            .collect(),
        ("lane" | "halflane" | "segment" | "few" | "small" | "sparse" | "warpbit", _) => {
            let mut random = SplitMix(7);
            (0..24)
                .map(|case| draw(operand, case, &mut random))
                .collect()
        }
        ("bytes", _) => vec![0x0302_0180, 0x8f7f_ff00, 0x7654_3210, 0xfedc_ba98],
        ("exponent", _) => {
            let mut list = F32.to_vec();
            list.extend([126.0f32, -126.0, 127.5, 128.0, -149.0, -150.0, -127.3].map(bits32));
            list
        }
        ("angle", _) => {
            let mut list = vec![0, 0x8000_0000, 0x7f80_0000, 0x7fc0_0000, 1, 0x0080_0000];
            list.extend(
                [
                    0.5f32,
                    -0.5,
                    1.570_796_4,
                    std::f32::consts::PI,
                    std::f32::consts::TAU,
                    -std::f32::consts::TAU,
                ]
                .map(bits32),
            );
            list
        }
        ("divisor", _) => F32.iter().copied().filter(|v| divisor(*v)).collect(),
        ("round", ty) => {
            let mut list = of_type(ty);
            list.extend(ROUND.map(|v| from_f64(v, ty)));
            list
        }
        ("narrow", ty) => {
            let mut list = of_type(ty);
            list.extend(limits().into_iter().map(|v| from_f64(v, ty)));
            list
        }
        (_, ty) => of_type(ty),
    }
}

/// One random value: an edge, a value near the edges' scale, or plain bits.
pub(super) fn draw(operand: &Operand, case: usize, random: &mut SplitMix) -> u64 {
    let ty = operand.ty;
    let value = match operand.set.as_str() {
        "shift" if random.below(2) == 0 => random.below(70),
        "shift" => random.pick(&SHIFTS),
        "bit" => random.below(2),
        "lane" => random.below(32),
        "halflane" => random.below(16),
        // Clamp in bits 0..5, segment mask in bits 8..13.
        "segment" => random.pick(&[
            0x1f, 0x1f, 0x00, 0x101f, 0x1000, 0x181f, 0x1c1f, 0x1e1f, 0x0f,
        ]),
        "few" => random.pick(&[0, 1, 0xffff_ffff_ffff_ffff]),
        "small" => random.below(9).wrapping_sub(4),
        // Nearly all bits set or clear, so that `and` and `or` of 32 lanes vary.
        "sparse" if (case / 32).is_multiple_of(2) => {
            !(random.next() & random.next() & random.next() & random.next() & random.next())
        }
        "sparse" => random.next() & random.next() & random.next() & random.next() & random.next(),
        // Whole warps of zeros, of ones, and mixtures.
        "warpbit" => match (case / 32) % 4 {
            0 => 0,
            1 => 1,
            2 => u64::from(case % 32 == 17),
            _ => random.below(2),
        },
        "nonzero" => loop {
            let value = any(ty, random);
            if keep(value, ty) != 0 {
                break value;
            }
        },
        "exponent" => bits32((random.below(600_000) as f32 - 300_000.0) / 1000.0),
        "angle" => bits32((random.below(12_566_370) as f32 - 6_283_185.0) / 1.0e6),
        "divisor" => loop {
            let value = any(ty, random);
            if divisor(value) {
                break value;
            }
        },
        "round" if random.below(4) != 0 => {
            let scale = random.pick(&[16, 1024, 1 << 18, 1 << 34, 1 << 35]);
            from_f64((random.below(scale) as f64 - scale as f64 / 2.0) / 4.0, ty)
        }
        "narrow" if random.below(4) != 0 => tie(ty, random),
        "mma" => matrix_element(operand, case, random),
        _ => any(ty, random),
    };
    keep(value, ty)
}

fn of_type(ty: Type) -> Vec<u64> {
    match ty {
        Type::F32 => F32.to_vec(),
        Type::F64 => F64.to_vec(),
        Type::F16 => F16.to_vec(),
        Type::BF16 => BF16.to_vec(),
        Type::F16x2 => pairs(&F16),
        Type::BF16x2 => pairs(&BF16),
        Type::E4M3x2 | Type::E5M2x2 => {
            let codes = [
                0x00, 0x80, 0x7f, 0x7e, 0x01, 0x38, 0x7c, 0x7d, 0xff, 0x08, 0x07, 0xfe, 0x7b,
            ];
            pairs_of(&codes, 8)
        }
        Type::E4M3x4 | Type::E5M2x4 | Type::Pred => vec![0],
        Type::Int { bits, .. } => integers(bits),
    }
}

fn integers(bits: u32) -> Vec<u64> {
    let (max, min) = ((1u64 << (bits - 1)) - 1, 1u64 << (bits - 1));
    let all = max | min;
    let mut list = vec![
        0,
        1,
        all,
        max,
        min,
        2,
        all - 1,
        0x55,
        0xaa,
        min + 1,
        3,
        7,
        31,
        32,
        0x7f,
        0x80,
    ];
    list.extend([
        0xff,
        0x7fff,
        0x8000,
        0xffff,
        0x1_0000,
        0xff_ffff,
        0x100_0000,
        0x8000_0000,
        10,
        all - 9,
    ]);
    list.extend([
        0x5555_5555_5555_5555,
        0xaaaa_aaaa_aaaa_aaaa,
        0x0123_4567_89ab_cdef,
    ]);
    let mut seen = Vec::new();
    for value in list.into_iter().map(|v| v & all) {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

fn pairs(codes: &[u64]) -> Vec<u64> {
    pairs_of(codes, 16)
}

/// Each code in the low half beside another in the high half.
fn pairs_of(codes: &[u64], shift: u32) -> Vec<u64> {
    let n = codes.len();
    (0..n)
        .map(|k| codes[k] | codes[(k * 5 + 3) % n] << shift)
        .collect()
}

fn any(ty: Type, random: &mut SplitMix) -> u64 {
    match ty {
        Type::F32 => float(random, 8, 23, &F32),
        Type::F64 => float(random, 11, 52, &F64),
        Type::F16 => float(random, 5, 10, &F16),
        Type::BF16 => float(random, 8, 7, &BF16),
        Type::F16x2 => any(Type::F16, random) | any(Type::F16, random) << 16,
        Type::BF16x2 => any(Type::BF16, random) | any(Type::BF16, random) << 16,
        Type::Int { bits, .. } => match random.below(4) {
            0 => random.pick(&integers(bits)),
            1 => random.next() >> random.below(u64::from(bits)).min(63),
            _ => random.next(),
        },
        _ => random.next(),
    }
}

/// Plain bits, an edge, a value near one, or one with few significant bits
/// (those meet rounding ties).
fn float(random: &mut SplitMix, exponent: u32, mantissa: u32, edges: &[u64]) -> u64 {
    let bias = (1u64 << (exponent - 1)) - 1;
    let near = |random: &mut SplitMix| {
        let span = bias.min(6);
        let e = bias - span + random.below(2 * span);
        let sign = random.below(2) << (exponent + mantissa);
        sign | e << mantissa
    };
    let fraction = random.next() & ((1 << mantissa) - 1);
    match random.below(8) {
        0 => random.pick(edges),
        1..=3 => near(random) | fraction,
        4 | 5 => near(random) | (fraction & !((1u64 << (mantissa * 2 / 3)) - 1)),
        _ => random.next(),
    }
}

fn divisor(bits: u64) -> bool {
    let magnitude = f32::from_bits(bits as u32).abs();
    !magnitude.is_finite() || magnitude == 0.0 || (1.2e-38..=8.5e37).contains(&magnitude)
}

/// Largest finite values and least subnormals of the narrow formats, and the
/// midpoints at which they round.
fn limits() -> Vec<f64> {
    let mut list = Vec::new();
    let formats: [(f64, f64); 5] = [
        (65504.0, 2f64.powi(-24)),
        (448.0, 2f64.powi(-9)),
        (57344.0, 2f64.powi(-16)),
        (3.389_531_389_251_535_5e38, 9.183_549_615_799_121e-41),
        (f64::from(f32::MAX), f64::from(f32::from_bits(1))),
    ];
    for (largest, least) in formats {
        list.extend([largest, largest * 1.02, largest * 1.07, -largest * 1.2]);
        list.extend([
            least,
            least * 0.5,
            least * 0.500_001,
            -least * 0.75,
            least * 1.5,
        ]);
    }
    list
}

/// A value with 11, 8, 4 or 3 significant bits plus half a unit, so that
/// narrowing must break a tie; sometimes just off the tie.
fn tie(ty: Type, random: &mut SplitMix) -> u64 {
    let bits = random.pick(&[11, 8, 4, 3, 24]) as i32;
    let significand = (1u64 << (bits - 1)) + random.below(1 << (bits - 1));
    let off = [0.5, 0.5, 0.25, 0.500_000_1, 0.499_999_9][random.below(5) as usize];
    let exponent = random.below(44) as i32 - 26;
    let sign = if random.below(2) == 0 { 1.0 } else { -1.0 };
    from_f64(
        sign * (significand as f64 + off) * 2f64.powi(exponent - bits),
        ty,
    )
}

/// Thirds of the warps: small integers, ordinary values, anything at all.
fn matrix_element(operand: &Operand, case: usize, random: &mut SplitMix) -> u64 {
    let kind = (case / 32) % 3;
    let ty = operand.ty;
    let one = |element: Type, random: &mut SplitMix| match kind {
        0 => from_f64(random.below(9) as f64 - 4.0, element),
        1 => from_f64(ordinary(random), element),
        _ => any(element, random),
    };
    match ty {
        Type::F16x2 => one(Type::F16, random) | one(Type::F16, random) << 16,
        Type::BF16x2 => one(Type::BF16, random) | one(Type::BF16, random) << 16,
        Type::E4M3x4 | Type::E5M2x4 => (0..4).fold(0, |word, _| {
            let (zero, top) = if ty == Type::E4M3x4 {
                (0x38, 0x7e)
            } else {
                (0x3c, 0x7b)
            };
            let code = match kind {
                0 => random.pick(&[0, zero, zero + 0x80, 0x40, 0xc0, 0x44]),
                1 => random.below(top) | random.below(2) << 7,
                _ => random.below(256),
            };
            word << 8 | code
        }),
        // tf32 operands travel as f32 bits.
        Type::Int { .. } => one(Type::F32, random),
        _ => one(ty, random),
    }
}

/// Roughly normal, unit variance.
fn ordinary(random: &mut SplitMix) -> f64 {
    let sum: f64 = (0..6)
        .map(|_| random.below(1 << 30) as f64 / f64::from(1 << 30))
        .sum();
    (sum - 3.0) * 1.4
}

fn bits32(value: f32) -> u64 {
    u64::from(value.to_bits())
}

/// Nearest value of `ty`; narrow types are cut, which is good enough for an
/// input.
fn from_f64(value: f64, ty: Type) -> u64 {
    match ty {
        Type::F64 => value.to_bits(),
        Type::BF16 => bits32(value as f32) >> 16,
        Type::F16 => cut_to_f16(value as f32),
        _ => bits32(value as f32),
    }
}

fn cut_to_f16(value: f32) -> u64 {
    let bits = u64::from(value.to_bits());
    let (sign, exponent, fraction) = (
        bits >> 16 & 0x8000,
        (bits >> 23 & 0xff) as i64 - 112,
        bits >> 13 & 0x3ff,
    );
    match exponent {
        31.. => sign | 0x7bff,
        1..=30 => sign | (exponent as u64) << 10 | fraction,
        -9..=0 => sign | (0x400 | fraction) >> (1 - exponent),
        _ => sign,
    }
}

/// The low bits that a register of this type holds.
fn keep(value: u64, ty: Type) -> u64 {
    match ty.bytes() {
        1 => value & 0xff,
        2 => value & 0xffff,
        4 => value & 0xffff_ffff,
        _ => value,
    }
}
