//! Binary formats and one correctly rounded conversion into any of them.
//!
//! A finite number is `mantissa * 2^exponent` with an integer mantissa, plus a
//! sticky flag for a non-zero remainder below it. [`Format::round`] is the only
//! place in the driver that rounds in software.

/// Rounding directions in PTX's names. Integers so that they can be constants
/// of a type.
pub type Rounding = u8;
/// To nearest, ties to even.
pub const RN: Rounding = 0;
/// Towards zero.
pub const RZ: Rounding = 1;
/// Towards minus infinity.
pub const RM: Rounding = 2;
/// Towards plus infinity.
pub const RP: Rounding = 3;
/// To nearest, ties away from zero.
pub const RNA: Rounding = 4;

/// What the largest exponent of a format means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Top {
    /// IEEE: infinities and NaNs.
    Ieee,
    /// E4M3: one NaN, otherwise ordinary numbers.
    OneNan,
    /// E2M1 and the 6-bit formats: only numbers.
    Finite,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    pub exponent_bits: u32,
    pub mantissa_bits: u32,
    pub top: Top,
}

pub const F64: Format = Format::new(11, 52, Top::Ieee);
pub const F32: Format = Format::new(8, 23, Top::Ieee);
pub const TF32: Format = Format::new(8, 10, Top::Ieee);
pub const F16: Format = Format::new(5, 10, Top::Ieee);
pub const BF16: Format = Format::new(8, 7, Top::Ieee);
pub const E5M2: Format = Format::new(5, 2, Top::Ieee);
pub const E4M3: Format = Format::new(4, 3, Top::OneNan);
pub const E2M1: Format = Format::new(2, 1, Top::Finite);
pub const E2M3: Format = Format::new(2, 3, Top::Finite);
pub const E3M2: Format = Format::new(3, 2, Top::Finite);

/// A number taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parts {
    Nan,
    Infinite {
        negative: bool,
    },
    /// Zero has mantissa 0.
    Finite {
        negative: bool,
        mantissa: u64,
        exponent: i32,
    },
}

impl Format {
    const fn new(exponent_bits: u32, mantissa_bits: u32, top: Top) -> Self {
        Self {
            exponent_bits,
            mantissa_bits,
            top,
        }
    }

    const fn bias(self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    /// Exponent of the lowest mantissa bit of a subnormal.
    const fn lowest(self) -> i32 {
        1 - self.bias() - self.mantissa_bits as i32
    }

    /// Bits of the smallest normal number as an `f32`.
    pub const fn smallest_normal_f32(self) -> u32 {
        ((128 - self.bias()) as u32) << 23
    }

    pub const fn sign_bit(self) -> u64 {
        1 << (self.exponent_bits + self.mantissa_bits)
    }

    /// Bits of the largest finite number.
    pub const fn largest(self) -> u64 {
        match self.top {
            Top::Ieee => self.infinity() - 1,
            Top::OneNan => self.sign_bit() - 2,
            Top::Finite => self.sign_bit() - 1,
        }
    }

    /// Exponent field all ones, mantissa zero: infinity in IEEE formats.
    pub const fn infinity(self) -> u64 {
        ((1 << self.exponent_bits) - 1) << self.mantissa_bits
    }

    /// NVIDIA's canonical NaN: all ones below the sign, but for doubles.
    pub const fn canonical_nan(self) -> u64 {
        if self.mantissa_bits == 52 {
            return 0xfff8_0000_0000_0000;
        }
        self.sign_bit() - 1
    }

    #[inline(always)]
    pub const fn split(self, bits: u64) -> Parts {
        let negative = bits & self.sign_bit() != 0;
        let fraction = bits & ((1 << self.mantissa_bits) - 1);
        let field = (bits & (self.sign_bit() - 1)) >> self.mantissa_bits;
        let top = field == (1 << self.exponent_bits) - 1;
        match self.top {
            Top::Ieee if top && fraction == 0 => return Parts::Infinite { negative },
            Top::Ieee if top => return Parts::Nan,
            Top::OneNan if top && fraction == (1 << self.mantissa_bits) - 1 => return Parts::Nan,
            _ => {}
        }
        let (mantissa, exponent) = if field == 0 {
            (fraction, self.lowest())
        } else {
            (
                fraction | (1 << self.mantissa_bits),
                self.lowest() + field as i32 - 1,
            )
        };
        Parts::Finite {
            negative,
            mantissa,
            exponent,
        }
    }

    /// Rounds `±(mantissa + sticky·ε)·2^exponent`. Overflow gives infinity, the
    /// largest number where the direction or the format asks for it, or, with
    /// `saturate`, always the largest number.
    #[inline]
    pub fn round(
        self,
        negative: bool,
        mantissa: u128,
        exponent: i32,
        sticky: bool,
        rounding: Rounding,
        saturate: bool,
    ) -> u64 {
        let sign = if negative { self.sign_bit() } else { 0 };
        if mantissa == 0 && !sticky {
            return sign;
        }
        let highest = if mantissa == 0 {
            i32::MIN / 2
        } else {
            exponent.saturating_add(127 - mantissa.leading_zeros() as i32)
        };
        let unit = (highest - self.mantissa_bits as i32).max(self.lowest());
        let (kept, half, below) = shift_right(mantissa, i64::from(unit) - i64::from(exponent));
        let inexact_below = below || sticky;
        let away = match rounding {
            RN => half && (inexact_below || kept & 1 != 0),
            RNA => half,
            RM => negative && (half || inexact_below),
            RP => !negative && (half || inexact_below),
            _ => false,
        };
        let kept = kept as u64 + u64::from(away);
        let steps = (unit - self.lowest()) as u64;
        // The implicit bit of `kept` carries into the exponent field.
        let overflowed = steps >= 1 << self.exponent_bits;
        let bits = if overflowed {
            u64::MAX >> 1
        } else {
            (steps << self.mantissa_bits) + kept
        };
        if bits <= self.largest() {
            return sign | bits;
        }
        let to_largest = saturate
            || self.top == Top::Finite
            || match rounding {
                RZ => true,
                RM => !negative,
                RP => negative,
                _ => false,
            };
        if to_largest {
            sign | self.largest()
        } else if self.top == Top::OneNan {
            sign | self.canonical_nan()
        } else {
            sign | self.infinity()
        }
    }

    /// Converts the bits of a number of this format to an exact `f64`; NaNs
    /// become some NaN.
    #[inline(always)]
    pub fn to_f64(self, bits: u64) -> f64 {
        match self.split(bits) {
            Parts::Nan => f64::NAN,
            Parts::Infinite { negative } => {
                if negative {
                    f64::NEG_INFINITY
                } else {
                    f64::INFINITY
                }
            }
            Parts::Finite {
                negative,
                mantissa,
                exponent,
            } => {
                // Every format here but F64 itself lies well inside f64's range.
                let scale = f64::from_bits(((exponent + 1023) as u64) << 52);
                let magnitude = mantissa as f64 * scale;
                if negative { -magnitude } else { magnitude }
            }
        }
    }

    /// A NaN of `f64` cut to this format and made quiet, sign kept.
    pub const fn cut_nan(self, bits: u64) -> u64 {
        let quiet = 1 << (self.mantissa_bits - 1);
        let payload = (bits & ((1 << 52) - 1)) >> (52 - self.mantissa_bits);
        let sign = if bits >> 63 != 0 { self.sign_bit() } else { 0 };
        sign | self.infinity() | quiet | payload
    }

    /// Rounds an `f64` into this format. NaN gives the canonical NaN (in a
    /// format without NaN the largest number, as the hardware does).
    pub fn from_f64(self, value: f64, rounding: Rounding, saturate: bool) -> u64 {
        match F64.split(value.to_bits()) {
            Parts::Nan if self.top == Top::Finite => self.largest(),
            Parts::Nan => self.canonical_nan(),
            Parts::Infinite { negative } => {
                let sign = if negative { self.sign_bit() } else { 0 };
                if saturate || self.top == Top::Finite {
                    sign | self.largest()
                } else if self.top == Top::OneNan {
                    sign | self.canonical_nan()
                } else {
                    sign | self.infinity()
                }
            }
            Parts::Finite {
                negative,
                mantissa,
                exponent,
            } => self.round(
                negative,
                u128::from(mantissa),
                exponent,
                false,
                rounding,
                saturate,
            ),
        }
    }
}

/// Shifts right by `by` (left where negative): kept bits, the first bit lost,
/// and whether any bit below that one was set.
fn shift_right(mantissa: u128, by: i64) -> (u128, bool, bool) {
    if by <= 0 {
        return (mantissa << (-by).min(127), false, false);
    }
    if by > 128 {
        return (0, false, mantissa != 0);
    }
    let half = mantissa >> (by - 1) & 1 != 0;
    let below = by > 1 && mantissa << (129 - by) != 0;
    let kept = if by == 128 { 0 } else { mantissa >> by };
    (kept, half, below)
}
