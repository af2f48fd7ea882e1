//! The eight- and four-bit floating-point formats of low-precision GEMM.
//!
//! Source: OCP 8-bit Floating Point Specification 1.0 (E4M3, E5M2) and OCP
//! Microscaling Formats 1.0 (E2M1). All three are sign, biased exponent,
//! mantissa, with subnormals; they differ in what the top codes mean:
//!
//! | format | bias | largest | infinities | NaN |
//! |--------|------|---------|------------|-----|
//! | E4M3   | 7    | 448     | none       | S.1111.111 |
//! | E5M2   | 15   | 57,344  | S.11111.00 | S.11111.01 and up |
//! | E2M1   | 1    | 6       | none       | none |
//!
//! Encoding saturates, as `cvt.rn.satfinite` does: a value beyond the largest
//! becomes the largest, infinities included.
//!
//! The crate `float8` is right for E4M3 and E5M2 and stands as the independent
//! oracle in the tests. It has no E2M1 and no choice of tie rule, and one
//! description for the three formats is shorter than two implementations.

/// One format. The constants [`E4M3`], [`E5M2`] and [`E2M1`] are all there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Minifloat {
    pub name: &'static str,
    /// Bits of one code, the sign included: 8 or 4.
    pub bits: u32,
    mantissa: u32,
    bias: i32,
    /// Code of the largest finite magnitude.
    largest: u8,
    /// Code of NaN, where there is one.
    nan: Option<u8>,
    /// Code of infinity, where there is one.
    infinity: Option<u8>,
}

pub const E4M3: Minifloat = Minifloat {
    name: "e4m3",
    bits: 8,
    mantissa: 3,
    bias: 7,
    largest: 0x7e,
    nan: Some(0x7f),
    infinity: None,
};

pub const E5M2: Minifloat = Minifloat {
    name: "e5m2",
    bits: 8,
    mantissa: 2,
    bias: 15,
    largest: 0x7b,
    nan: Some(0x7f),
    infinity: Some(0x7c),
};

pub const E2M1: Minifloat = Minifloat {
    name: "e2m1",
    bits: 4,
    mantissa: 1,
    bias: 1,
    largest: 0x7,
    nan: None,
    infinity: None,
};

/// What happens halfway between two codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ties {
    /// To the even mantissa: IEEE 754 and every `cvt.rn`.
    Even,
    /// To the smaller magnitude: the widely copied FP4 recipe that compares
    /// with the midpoints .25 .75 1.25 1.75 2.5 3.5 5 by "greater than".
    SmallerMagnitude,
}

/// Two to the power `exponent`, exactly; within the normal range of f64.
pub(crate) fn power_of_two(exponent: i32) -> f64 {
    debug_assert!((-1022..=1023).contains(&exponent));
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// floor(log2 |x|) for a finite x other than zero, by its bits.
pub(crate) fn exponent_of(x: f64) -> i32 {
    let field = ((x.to_bits() >> 52) & 0x7ff) as i32;
    if field == 0 {
        // Subnormal f64: no f32 is that small, but do not be wrong about it.
        exponent_of(x * power_of_two(64)) - 64
    } else {
        field - 1023
    }
}

impl Minifloat {
    fn sign_bit(&self) -> u8 {
        1 << (self.bits - 1)
    }

    /// How many codes there are: 256 or 16.
    pub fn codes(&self) -> u16 {
        1 << self.bits
    }

    /// Largest finite value.
    pub fn max(&self) -> f64 {
        self.decode_wide(self.largest)
    }

    /// The value of `code`, exactly; bits above the format's own are ignored.
    pub fn decode(&self, code: u8) -> f32 {
        // Every value of every format is an f32.
        self.decode_wide(code) as f32
    }

    fn decode_wide(&self, code: u8) -> f64 {
        let magnitude = code & (self.sign_bit() - 1);
        let sign = if code & self.sign_bit() != 0 {
            -1.0
        } else {
            1.0
        };
        if Some(magnitude) == self.infinity {
            return sign * f64::INFINITY;
        }
        if magnitude > self.largest {
            return f64::NAN;
        }
        let exponent = i32::from(magnitude >> self.mantissa);
        let fraction = f64::from(magnitude & ((1 << self.mantissa) - 1));
        let ulp_of_one = power_of_two(-(self.mantissa as i32));
        sign * if exponent == 0 {
            fraction * ulp_of_one * power_of_two(1 - self.bias)
        } else {
            (1.0 + fraction * ulp_of_one) * power_of_two(exponent - self.bias)
        }
    }

    /// The code nearest to `x`; ties as told, saturating, the sign of zero kept.
    ///
    /// NaN gives the NaN code (with the sign bit clear). E2M1 has none: there
    /// the answer is `None`, and the caller must refuse the input.
    pub fn encode(&self, x: f32, ties: Ties) -> Option<u8> {
        if x.is_nan() {
            return self.nan;
        }
        let sign = if x.is_sign_negative() {
            self.sign_bit()
        } else {
            0
        };
        let magnitude = f64::from(x.abs());
        if magnitude >= self.max() {
            return Some(sign | self.largest);
        }
        if magnitude == 0.0 {
            return Some(sign);
        }
        // Below the smallest normal the spacing no longer shrinks.
        let smallest_normal = 1 - self.bias;
        let exponent = exponent_of(magnitude).max(smallest_normal);
        // Exact: a power of two scales an f32 inside f64 without rounding.
        let steps = magnitude * power_of_two(self.mantissa as i32 - exponent);
        let rounded = match ties {
            Ties::Even => steps.round_ties_even(),
            Ties::SmallerMagnitude => (steps - 0.5).ceil(),
        };
        // `rounded` holds the implicit bit for normals, so a carry into the next
        // binade and the step from subnormal to normal need no special case.
        let code = (exponent - smallest_normal) * (1 << self.mantissa) + rounded as i32;
        Some(sign | (code as u8).min(self.largest))
    }
}

/// Packs E2M1 codes two a byte along each row; the low nibble is the even
/// column. An odd row ends in a zero nibble. `codes` is rows × cols.
pub fn pack_nibbles(codes: &[u8], cols: usize) -> Vec<u8> {
    if cols == 0 {
        return Vec::new();
    }
    codes
        .chunks(cols)
        .flat_map(|row| {
            row.chunks(2)
                .map(|pair| (pair[0] & 0xf) | (pair.get(1).map_or(0, |high| high & 0xf) << 4))
        })
        .collect()
}

/// The inverse of [`pack_nibbles`].
pub fn unpack_nibbles(bytes: &[u8], cols: usize) -> Vec<u8> {
    if cols == 0 {
        return Vec::new();
    }
    bytes
        .chunks(cols.div_ceil(2))
        .flat_map(|row| (0..cols).map(move |col| (row[col / 2] >> (4 * (col % 2))) & 0xf))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMATS: [Minifloat; 3] = [E4M3, E5M2, E2M1];

    /// The formats' value tables from their specification: subnormal spacing,
    /// then one binade after the other.
    fn table(format: &Minifloat) -> Vec<f64> {
        let (spacing, per_binade, binades, missing): (f64, usize, usize, usize) = match format.name
        {
            "e4m3" => (2f64.powi(-9), 8, 15, 1),
            "e5m2" => (2f64.powi(-16), 4, 30, 0),
            "e2m1" => (0.5, 2, 3, 0),
            other => panic!("no table for {other}"),
        };
        // Zero and the subnormals, then each binade at twice the spacing of the
        // one before; never a look at the bits of a code.
        let mut values: Vec<f64> = (0..per_binade).map(|i| i as f64 * spacing).collect();
        values.push(per_binade as f64 * spacing);
        for binade in 0..binades {
            let step = spacing * 2f64.powi(binade as i32);
            for _ in 0..per_binade {
                values.push(values.last().unwrap() + step);
            }
        }
        // E4M3 gives its top code to NaN.
        values.truncate(per_binade * (binades + 1) - missing);
        values
    }

    #[test]
    fn every_code_decodes_to_the_table_of_the_specification() {
        for format in FORMATS {
            let values = table(&format);
            assert_eq!(
                values.len() - 1,
                usize::from(format.largest),
                "{}",
                format.name
            );
            for (code, &want) in values.iter().enumerate() {
                let code = code as u8;
                assert_eq!(
                    f64::from(format.decode(code)),
                    want,
                    "{} {code:#x}",
                    format.name
                );
                let negative = format.decode(code | format.sign_bit());
                assert_eq!(f64::from(negative), -want);
                assert!(negative.is_sign_negative());
            }
        }
        assert_eq!(E4M3.max(), 448.0);
        assert_eq!(E5M2.max(), 57344.0);
        let fp4: Vec<f32> = (0..8).map(|code| E2M1.decode(code)).collect();
        assert_eq!(fp4, [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]);
    }

    #[test]
    fn codes_above_the_largest_are_nan_or_infinity() {
        for sign in [0, 0x80] {
            assert!(E4M3.decode(0x7f | sign).is_nan());
            assert!(E5M2.decode(0x7c | sign).is_infinite());
            for code in 0x7d..=0x7f {
                assert!(E5M2.decode(code | sign).is_nan());
            }
        }
        assert!((0..16).all(|code| E2M1.decode(code).is_finite()));
    }

    #[test]
    fn every_finite_code_survives_a_round_trip_including_minus_zero() {
        for format in FORMATS {
            for code in 0..format.codes() {
                let code = code as u8;
                let value = format.decode(code);
                if value.is_finite() {
                    for ties in [Ties::Even, Ties::SmallerMagnitude] {
                        assert_eq!(format.encode(value, ties), Some(code), "{}", format.name);
                    }
                }
            }
        }
    }

    /// Nearest by exhaustive search over the table; ties by the rule given.
    fn nearest(format: &Minifloat, values: &[f64], x: f32, ties: Ties) -> u8 {
        let magnitude = f64::from(x.abs()).min(format.max());
        let best = values
            .iter()
            .map(|value| (value - magnitude).abs())
            .fold(f64::INFINITY, f64::min);
        let winners: Vec<usize> = (0..values.len())
            .filter(|&code| (values[code] - magnitude).abs() == best)
            .collect();
        let code = match (winners.as_slice(), ties) {
            ([only], _) => *only,
            ([low, _], Ties::SmallerMagnitude) => *low,
            ([low, high], Ties::Even) => {
                if low % 2 == 0 {
                    *low
                } else {
                    *high
                }
            }
            other => panic!("{other:?} are all nearest to {x}"),
        };
        code as u8
            | if x.is_sign_negative() {
                format.sign_bit()
            } else {
                0
            }
    }

    #[test]
    fn encoding_is_the_nearest_code_at_every_code_midpoint_and_neighbouring_float() {
        for format in FORMATS {
            let values = table(&format);
            let mut probes: Vec<f32> = vec![0.0, f32::MIN_POSITIVE, 1e-45, f32::MAX, f32::INFINITY];
            for pair in values.windows(2) {
                for x in [pair[0], pair[1], (pair[0] + pair[1]) / 2.0] {
                    let x = x as f32;
                    probes.extend([x, x.next_up()]);
                    if x > 0.0 {
                        probes.push(x.next_down());
                    }
                }
            }
            for x in probes {
                for x in [x, -x] {
                    for ties in [Ties::Even, Ties::SmallerMagnitude] {
                        assert_eq!(
                            format.encode(x, ties),
                            Some(nearest(&format, &values, x, ties)),
                            "{} {x:e} {ties:?}",
                            format.name
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn fp4_midpoints_go_to_the_smaller_magnitude_in_the_recipe_and_to_even_in_hardware() {
        let midpoints = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0];
        let encode = |ties| midpoints.map(|x| E2M1.decode(E2M1.encode(x, ties).unwrap()));
        assert_eq!(
            encode(Ties::SmallerMagnitude),
            [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0]
        );
        assert_eq!(encode(Ties::Even), [0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0]);
    }

    #[test]
    fn too_large_saturates_and_nan_stays_nan_or_is_refused() {
        for format in FORMATS {
            let max = format.max() as f32;
            for x in [max * 1.01, 1e30, f32::INFINITY] {
                assert_eq!(format.decode(format.encode(x, Ties::Even).unwrap()), max);
                assert_eq!(format.decode(format.encode(-x, Ties::Even).unwrap()), -max);
            }
        }
        for format in [E4M3, E5M2] {
            let code = format.encode(f32::NAN, Ties::Even).unwrap();
            assert!(format.decode(code).is_nan());
        }
        assert_eq!(E2M1.encode(f32::NAN, Ties::Even), None);
    }

    /// The crate `float8`, an implementation that shares nothing with ours, is
    /// right for both eight-bit formats; the one difference is which NaN it
    /// picks for E5M2 (0x7e; `cvt.rn.satfinite.e5m2x2` gives 0x7f).
    #[test]
    fn the_crate_float8_gives_the_same_codes_and_values() {
        type Codec = (Minifloat, fn(u8) -> f32, fn(f32) -> u8);
        let theirs: [Codec; 2] = [
            (
                E4M3,
                |code| float8::F8E4M3::from_bits(code).to_f32(),
                |x| float8::F8E4M3::from_f32(x).to_bits(),
            ),
            (
                E5M2,
                |code| float8::F8E5M2::from_bits(code).to_f32(),
                |x| float8::F8E5M2::from_f32(x).to_bits(),
            ),
        ];
        for (format, decode, encode) in theirs {
            for code in 0..=255u8 {
                let (ours, theirs) = (format.decode(code), decode(code));
                assert!(ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan());
            }
            for bits in (0..=0x7f80_0000u32).step_by(40_961) {
                for x in [f32::from_bits(bits), -f32::from_bits(bits)] {
                    assert_eq!(format.encode(x, Ties::Even), Some(encode(x)), "{x:e}");
                }
            }
        }
    }

    #[test]
    fn the_low_nibble_is_the_even_column_and_odd_rows_are_padded() {
        assert_eq!(
            pack_nibbles(&[1, 2, 3, 4, 5, 6], 3),
            [0x21, 0x03, 0x54, 0x06]
        );
        for cols in [1, 2, 3, 8, 15] {
            let codes: Vec<u8> = (0..cols * 4).map(|i| (i * 7 % 16) as u8).collect();
            assert_eq!(unpack_nibbles(&pack_nibbles(&codes, cols), cols), codes);
        }
    }
}
