//! Numbers as the lessons print them: thousands separated, no trailing zeros.

/// `1234567` as `1,234,567`.
pub fn count(value: usize) -> String {
    grouped(&value.to_string())
}

/// A value with thousands separated: `11815.5` as `11,815.5`, `14171` as `14,171`.
///
/// Uses the shortest digits that read back as the same `f64`, so two different
/// values never print alike.
pub fn value(value: f64) -> String {
    let magnitude = value.abs();
    if !value.is_finite() || (magnitude != 0.0 && !(1e-4..1e16).contains(&magnitude)) {
        return format!("{value:e}");
    }
    grouped(&value.to_string())
}

fn grouped(digits: &str) -> String {
    let (sign, rest) = match digits.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", digits),
    };
    let (whole, fraction) = match rest.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (rest, None),
    };
    let mut out = String::from(sign);
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_grouped_in_threes_and_keep_their_fraction() {
        for (given, want) in [
            (0.0, "0"),
            (88.0, "88"),
            (999.0, "999"),
            (11_815.5, "11,815.5"),
            (14_171.0, "14,171"),
            (395_434.5, "395,434.5"),
            (-1_234_567.25, "-1,234,567.25"),
            (1.5e-7, "1.5e-7"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(value(given), want);
        }
        assert_eq!(count(1_048_675), "1,048,675");
    }
}
