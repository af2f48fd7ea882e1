//! UE8M0: an unsigned power of two in one byte, the scale format of OCP
//! Microscaling. Code c means 2^(c − 127); 0xFF is NaN; there is no zero.

use super::minifloat::{exponent_of, power_of_two};

/// The code of NaN.
pub const NAN: u8 = 0xff;

/// The value of `code` as f32. Code 0 is 2^-127, a subnormal f32.
pub fn decode(code: u8) -> f32 {
    if code == NAN {
        f32::NAN
    } else {
        power_of_two(i32::from(code) - 127) as f32
    }
}

/// Smallest power of two that is not below `x`: the rounding that recipes use
/// for scales, because rounding down would push the largest element past the
/// format's range. Saturates at 2^-127 and 2^127; NaN, negative values and
/// infinity give [`NAN`].
pub fn encode_up(x: f32) -> u8 {
    if x.is_nan() || x.is_infinite() || x < 0.0 {
        return NAN;
    }
    if x == 0.0 {
        return 0;
    }
    let wide = f64::from(x);
    let exponent = exponent_of(wide);
    let exponent = if wide == power_of_two(exponent) {
        exponent
    } else {
        exponent + 1
    };
    (exponent.clamp(-127, 127) + 127) as u8
}

/// Nearest power of two; halfway (1.5 · 2^e) goes up, as the even code is not
/// defined for a format without mantissa. Saturation and NaN as [`encode_up`].
pub fn encode_nearest(x: f32) -> u8 {
    if x.is_nan() || x.is_infinite() || x < 0.0 {
        return NAN;
    }
    if x == 0.0 {
        return 0;
    }
    let wide = f64::from(x);
    let exponent = exponent_of(wide);
    let exponent = if wide < 1.5 * power_of_two(exponent) {
        exponent
    } else {
        exponent + 1
    };
    (exponent.clamp(-127, 127) + 127) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All values by doubling from 2^-127, built from an f32 literal.
    fn table() -> Vec<f32> {
        let mut values = vec![f32::from_bits(0x0040_0000)];
        for _ in 1..255 {
            values.push(values.last().unwrap() * 2.0);
        }
        values
    }

    #[test]
    fn every_code_is_twice_the_one_before_and_the_last_is_nan() {
        let values = table();
        assert_eq!(values.len(), 255);
        for (code, &want) in values.iter().enumerate() {
            assert_eq!(decode(code as u8), want);
        }
        assert!(decode(NAN).is_nan());
        assert_eq!(decode(127), 1.0);
        assert_eq!(decode(254), 2f32.powi(127));
    }

    #[test]
    fn rounding_up_gives_the_first_code_that_is_not_below() {
        let values = table();
        for &value in &values {
            for x in [value.next_down(), value, value.next_up(), value * 1.5] {
                let want = values
                    .iter()
                    .position(|&power| power >= x)
                    .unwrap_or(values.len() - 1);
                assert_eq!(usize::from(encode_up(x)), want, "{x:e}");
            }
        }
    }

    #[test]
    fn nearest_picks_the_closer_power() {
        let values = table();
        for pair in values.windows(2) {
            let middle = pair[0] * 1.5;
            let low = encode_nearest(middle.next_down());
            assert_eq!(decode(low), pair[0]);
            assert_eq!(decode(encode_nearest(middle)), pair[1]);
            assert_eq!(decode(encode_nearest(pair[0])), pair[0]);
        }
    }

    #[test]
    fn what_is_not_a_scale_is_nan_and_zero_saturates() {
        for encode in [encode_up, encode_nearest] {
            for x in [f32::NAN, f32::INFINITY, -1.0, f32::NEG_INFINITY] {
                assert_eq!(encode(x), NAN);
            }
            assert_eq!(encode(0.0), 0);
            assert_eq!(encode(-0.0), 0);
            assert_eq!(encode(1e-45), 0);
            assert_eq!(encode(f32::MAX), 254);
        }
    }
}
