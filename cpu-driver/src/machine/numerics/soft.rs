//! Add, multiply, fused multiply-add, divide and square root with any rounding
//! direction, in integer arithmetic.
//!
//! Slow and simple: used for the directed roundings, which ordinary code meets
//! rarely, and as the reference of the fast paths.

use super::formats::{Format, Parts, RM, Rounding};

/// A finite number or the special result that an operation has already.
struct Number {
    negative: bool,
    mantissa: u128,
    exponent: i32,
}

fn finite(parts: Parts) -> Option<Number> {
    match parts {
        Parts::Finite {
            negative,
            mantissa,
            exponent,
        } => Some(Number {
            negative,
            mantissa: u128::from(mantissa),
            exponent,
        }),
        _ => None,
    }
}

fn infinite(format: Format, negative: bool) -> u64 {
    format.infinity() | if negative { format.sign_bit() } else { 0 }
}

fn negative_of(parts: Parts) -> bool {
    match parts {
        Parts::Nan => false,
        Parts::Infinite { negative } | Parts::Finite { negative, .. } => negative,
    }
}

fn is_zero(parts: Parts) -> bool {
    matches!(parts, Parts::Finite { mantissa: 0, .. })
}

/// `a + b`
pub fn add(format: Format, a: u64, b: u64, rounding: Rounding) -> u64 {
    let (x, y) = (format.split(a), format.split(b));
    match (x, y) {
        (Parts::Nan, _) | (_, Parts::Nan) => format.canonical_nan(),
        (Parts::Infinite { negative: p }, Parts::Infinite { negative: q }) if p != q => {
            format.canonical_nan()
        }
        (Parts::Infinite { negative }, _) | (_, Parts::Infinite { negative }) => {
            infinite(format, negative)
        }
        _ => match (finite(x), finite(y)) {
            (Some(x), Some(y)) => sum(format, x, y, rounding),
            _ => format.canonical_nan(),
        },
    }
}

/// `a * b`
pub fn multiply(format: Format, a: u64, b: u64, rounding: Rounding) -> u64 {
    let (x, y) = (format.split(a), format.split(b));
    let negative = negative_of(x) != negative_of(y);
    match (x, y) {
        (Parts::Nan, _) | (_, Parts::Nan) => format.canonical_nan(),
        (Parts::Infinite { .. }, other) | (other, Parts::Infinite { .. }) => {
            if is_zero(other) {
                format.canonical_nan()
            } else {
                infinite(format, negative)
            }
        }
        _ => match (finite(x), finite(y)) {
            (Some(x), Some(y)) => {
                let p = product(&x, &y);
                format.round(negative, p.mantissa, p.exponent, false, rounding, false)
            }
            _ => format.canonical_nan(),
        },
    }
}

/// `a * b + c`, rounded once.
pub fn fused(format: Format, a: u64, b: u64, c: u64, rounding: Rounding) -> u64 {
    let (x, y, z) = (format.split(a), format.split(b), format.split(c));
    let negative = negative_of(x) != negative_of(y);
    match (x, y, z) {
        (Parts::Nan, _, _) | (_, Parts::Nan, _) | (_, _, Parts::Nan) => format.canonical_nan(),
        (Parts::Infinite { .. }, other, _) | (other, Parts::Infinite { .. }, _) => match z {
            _ if is_zero(other) => format.canonical_nan(),
            Parts::Infinite { negative: n } if n != negative => format.canonical_nan(),
            _ => infinite(format, negative),
        },
        (_, _, Parts::Infinite { negative }) => infinite(format, negative),
        _ => match (finite(x), finite(y), finite(z)) {
            (Some(x), Some(y), Some(z)) => sum(format, product(&x, &y), z, rounding),
            _ => format.canonical_nan(),
        },
    }
}

/// `a / b`
pub fn divide(format: Format, a: u64, b: u64, rounding: Rounding) -> u64 {
    let (x, y) = (format.split(a), format.split(b));
    let negative = negative_of(x) != negative_of(y);
    match (x, y) {
        (Parts::Nan, _) | (_, Parts::Nan) => format.canonical_nan(),
        (Parts::Infinite { .. }, Parts::Infinite { .. }) => format.canonical_nan(),
        (Parts::Infinite { .. }, _) => infinite(format, negative),
        (_, Parts::Infinite { .. }) => format.round(negative, 0, 0, false, rounding, false),
        _ if is_zero(y) && is_zero(x) => format.canonical_nan(),
        _ if is_zero(y) => infinite(format, negative),
        _ => match (finite(x), finite(y)) {
            (Some(x), Some(y)) => {
                // 2^63 * 2^64 / 2^53: at least 74 quotient bits.
                let shift = x.mantissa.leading_zeros().min(127) as i32 - 1;
                let top = x.mantissa << shift;
                let quotient = top / y.mantissa;
                let rest = !top.is_multiple_of(y.mantissa);
                let exponent = x.exponent - shift - y.exponent;
                format.round(negative, quotient, exponent, rest, rounding, false)
            }
            _ => format.canonical_nan(),
        },
    }
}

/// Square root.
pub fn square_root(format: Format, a: u64, rounding: Rounding) -> u64 {
    match format.split(a) {
        Parts::Nan => format.canonical_nan(),
        _ if is_zero(format.split(a)) => a,
        Parts::Infinite { negative: false } => a,
        Parts::Infinite { .. } | Parts::Finite { negative: true, .. } => format.canonical_nan(),
        Parts::Finite {
            mantissa, exponent, ..
        } => {
            let mut shift = u128::from(mantissa).leading_zeros() as i32 - 1;
            if (exponent - shift) % 2 != 0 {
                shift -= 1;
            }
            let wide = u128::from(mantissa) << shift;
            let root = wide.isqrt();
            let rest = root * root != wide;
            format.round(false, root, (exponent - shift) / 2, rest, rounding, false)
        }
    }
}

fn product(x: &Number, y: &Number) -> Number {
    Number {
        negative: x.negative != y.negative,
        mantissa: x.mantissa * y.mantissa,
        exponent: x.exponent + y.exponent,
    }
}

/// Sum of two exact numbers of at most 106 bits each, rounded once.
///
/// Both are moved to a common exponent with the larger one at bit 125. Bits of
/// the smaller one that fall off become the sticky flag; they can only fall off
/// when the exponents differ by more than 19, where no cancellation reaches
/// the rounding position.
fn sum(format: Format, x: Number, y: Number, rounding: Rounding) -> u64 {
    if x.mantissa == 0 && y.mantissa == 0 {
        let negative = if x.negative == y.negative {
            x.negative
        } else {
            rounding == RM
        };
        return format.round(negative, 0, 0, false, rounding, false);
    }
    if y.mantissa == 0 {
        return format.round(x.negative, x.mantissa, x.exponent, false, rounding, false);
    }
    if x.mantissa == 0 {
        return format.round(y.negative, y.mantissa, y.exponent, false, rounding, false);
    }
    let (x, y) = (normalised(x), normalised(y));
    let (big, small) = if (x.exponent, x.mantissa) >= (y.exponent, y.mantissa) {
        (x, y)
    } else {
        (y, x)
    };
    let distance = (big.exponent - small.exponent) as u32;
    let (moved, sticky) = if distance > 126 {
        (0, true)
    } else {
        let moved = small.mantissa >> distance;
        (moved, moved << distance != small.mantissa)
    };
    if big.negative == small.negative {
        let total = big.mantissa + moved;
        return format.round(big.negative, total, big.exponent, sticky, rounding, false);
    }
    // A lost remainder makes the difference a little smaller: borrow one unit
    // and keep the flag.
    let total = big.mantissa - moved - u128::from(sticky);
    let negative = if total == 0 && !sticky {
        rounding == RM
    } else {
        big.negative
    };
    format.round(negative, total, big.exponent, sticky, rounding, false)
}

/// Highest mantissa bit at 125.
fn normalised(n: Number) -> Number {
    let shift = n.mantissa.leading_zeros() as i32 - 2;
    Number {
        negative: n.negative,
        mantissa: if shift >= 0 {
            n.mantissa << shift
        } else {
            n.mantissa >> -shift
        },
        exponent: n.exponent - shift,
    }
}

#[cfg(test)]
mod tests {
    use super::super::formats::{F32, F64, RM, RN, RP, RZ};
    use super::{add, divide, fused, multiply, square_root};

    /// SplitMix64 with edge values mixed in.
    struct Source(u64);

    impl Source {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ z >> 31
        }

        fn double(&mut self) -> f64 {
            let raw = self.next();
            let edges = [0.0, -0.0, 1.0, f64::MAX, f64::MIN_POSITIVE, 5e-324, 1e-310];
            match raw % 4 {
                0 => edges[(raw >> 8) as usize % edges.len()],
                // Near each other, so that sums cancel.
                1 => 1.0 + (raw >> 12) as f64 * 2f64.powi(-52),
                _ => f64::from_bits(raw),
            }
        }

        fn single(&mut self) -> f32 {
            match self.next() % 3 {
                0 => self.double() as f32,
                _ => f32::from_bits(self.next() as u32),
            }
        }
    }

    fn same64(got: u64, want: f64) -> bool {
        got == want.to_bits() || (f64::from_bits(got).is_nan() && want.is_nan())
    }

    fn same32(got: u64, want: f32) -> bool {
        got == u64::from(want.to_bits()) || (f32::from_bits(got as u32).is_nan() && want.is_nan())
    }

    #[test]
    fn rounding_to_nearest_agrees_with_the_processor() {
        let seed = 20_261_129;
        println!("seed {seed}");
        let mut source = Source(seed);
        for _ in 0..60_000 {
            let (a, b, c) = (source.double(), source.double(), source.double());
            let [x, y, z] = [a, b, c].map(f64::to_bits);
            assert!(same64(add(F64, x, y, RN), a + b), "{a:e} + {b:e}");
            assert!(same64(multiply(F64, x, y, RN), a * b), "{a:e} * {b:e}");
            assert!(same64(divide(F64, x, y, RN), a / b), "{a:e} / {b:e}");
            assert!(
                same64(fused(F64, x, y, z, RN), a.mul_add(b, c)),
                "{a:e} {b:e} {c:e}"
            );
            assert!(same64(square_root(F64, x, RN), a.sqrt()), "sqrt {a:e}");
            let (a, b, c) = (source.single(), source.single(), source.single());
            let [x, y, z] = [a, b, c].map(|v| u64::from(v.to_bits()));
            assert!(same32(add(F32, x, y, RN), a + b), "{a:e} + {b:e}");
            assert!(same32(multiply(F32, x, y, RN), a * b), "{a:e} * {b:e}");
            assert!(same32(divide(F32, x, y, RN), a / b), "{a:e} / {b:e}");
            assert!(
                same32(fused(F32, x, y, z, RN), a.mul_add(b, c)),
                "{a:e} {b:e} {c:e}"
            );
            assert!(same32(square_root(F32, x, RN), a.sqrt()), "sqrt {a:e}");
        }
    }

    #[test]
    fn directed_roundings_enclose_the_nearest_and_differ_by_one_place() {
        let mut source = Source(7);
        let mut inexact = 0;
        for _ in 0..20_000 {
            let (a, b) = (source.double(), source.double());
            let [x, y] = [a, b].map(f64::to_bits);
            if !(a + b).is_finite() || !a.is_finite() || !b.is_finite() {
                continue;
            }
            let [near, zero, down, up] =
                [RN, RZ, RM, RP].map(|r| f64::from_bits(add(F64, x, y, r)));
            assert!(down <= near && near <= up, "{a:e} + {b:e}");
            assert!(zero == if near > 0.0 { down } else { up }, "{a:e} + {b:e}");
            if down != up {
                inexact += 1;
                assert_eq!(down.next_up(), up, "{a:e} + {b:e}");
            }
        }
        assert!(
            inexact > 1000,
            "only {inexact} inexact sums: the test says nothing"
        );
    }
}
