//! Exact decimal numbers. A number is stored as an integer without the decimal point, and the number of digits after
//! the decimal point.

use num_bigint::{BigInt, Sign};
use std::cmp::Ordering;
use std::fmt;

/// Maximum number of digits of a number. A text with more digits is probably an identifier, and is not converted to
/// a number.
const MAX_DIGITS: usize = 60;

/// Maximum number of digits after the decimal point of a mean.
pub const MEAN_DIGITS: u32 = 12;

/// The number `unscaled / 10^scale`. Trailing zeros after the decimal point are removed, so that numbers that are equal
/// are always equal values of this type.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Decimal {
    unscaled: BigInt,
    scale: u32,
}

/// Whether a mean is exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// The mean is exact.
    Exact,
    /// The mean is rounded to [`MEAN_DIGITS`] digits after the decimal point. Halves are rounded away from zero.
    Rounded,
}

impl Decimal {
    /// Parses numbers such as `12`, `-0.50` and `1.5e3`. Returns None for text that would look different after a
    /// conversion to a number, such as `007`, `+1`, `1,000`, `.5`, `1.`, `0x1F` and `NaN`, and for text with more than
    /// 60 digits.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(unsigned) => (true, unsigned),
            None => (false, text),
        };
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, parse_exponent(exponent)?),
            None => (unsigned, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
        let all_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let leading_zero = whole.len() > 1 && whole.starts_with('0');
        if !all_digits(whole) || !all_digits(fraction) || leading_zero || whole.len() + fraction.len() > MAX_DIGITS {
            return None;
        }
        let digits = BigInt::parse_bytes(format!("{whole}{fraction}").as_bytes(), 10)?;
        let unscaled = if negative { -digits } else { digits };
        let scale = i64::try_from(fraction.len()).ok()? - exponent;
        if scale >= 0 {
            Some(Self { unscaled, scale: u32::try_from(scale).ok()? }.trimmed())
        } else {
            Some(Self { unscaled: unscaled * ten_to(u32::try_from(-scale).ok()?), scale: 0 })
        }
    }

    /// Returns the exact sum of two numbers.
    pub fn plus(&self, other: &Decimal) -> Decimal {
        let scale = self.scale.max(other.scale);
        Decimal { unscaled: self.at_scale(scale) + other.at_scale(scale), scale }.trimmed()
    }

    /// Divides this number, which is the sum of `count` values, by `count`. `count` must not be 0.
    pub fn mean_of(&self, count: u64) -> (Decimal, Precision) {
        let scale = self.scale.max(MEAN_DIGITS);
        let count = BigInt::from(count);
        let scaled = self.at_scale(scale);
        let quotient = &scaled / &count;
        let remainder = &scaled % &count;
        if remainder.sign() == Sign::NoSign {
            return (Decimal { unscaled: quotient, scale }.trimmed(), Precision::Exact);
        }
        let rounds_away = (remainder * 2u32).magnitude() >= count.magnitude();
        let step = if !rounds_away {
            0
        } else if scaled.sign() == Sign::Minus {
            -1
        } else {
            1
        };
        (Decimal { unscaled: quotient + step, scale }.trimmed(), Precision::Rounded)
    }

    /// Returns whether the number is an integer.
    pub fn is_integer(&self) -> bool {
        self.scale == 0
    }

    fn at_scale(&self, scale: u32) -> BigInt {
        &self.unscaled * ten_to(scale - self.scale)
    }

    fn trimmed(mut self) -> Self {
        while self.scale > 0 {
            let tenth = &self.unscaled / 10u32;
            if &tenth * 10u32 != self.unscaled {
                break;
            }
            self.unscaled = tenth;
            self.scale -= 1;
        }
        self
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        let scale = self.scale.max(other.scale);
        self.at_scale(scale).cmp(&other.at_scale(scale))
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.unscaled.magnitude().to_string();
        let places = self.scale as usize;
        let padded = format!("{digits:0>width$}", width = places + 1);
        let (whole, fraction) = padded.split_at(padded.len() - places);
        let sign = if self.unscaled.sign() == Sign::Minus { "-" } else { "" };
        let point = if places == 0 { "" } else { "." };
        write!(formatter, "{sign}{whole}{point}{fraction}")
    }
}

fn parse_exponent(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || digits.len() > 2 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

fn ten_to(places: u32) -> BigInt {
    BigInt::from(10u32).pow(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Decimal {
        Decimal::parse(text).unwrap_or_else(|| panic!("{text} is a number"))
    }

    #[test]
    fn sums_are_exact() {
        let sum = (0..10).fold(Decimal::default(), |sum, _| sum.plus(&decimal("0.1")));
        assert_eq!(sum.to_string(), "1");
        let large = decimal("9007199254740993").plus(&decimal("0.000000000000000001"));
        assert_eq!(large.to_string(), "9007199254740993.000000000000000001");
    }

    #[test]
    fn parses_only_plain_numbers() {
        for (text, expected) in
            [("0", "0"), ("-0.50", "-0.5"), ("1.5e3", "1500"), ("2E-3", "0.002"), ("-0", "0"), ("100", "100")]
        {
            assert_eq!(decimal(text).to_string(), expected);
        }
        let words = ["", "-", "007", "+1", "1,000", ".5", "1.", "0x1F", "NaN", "1e", "1e999", "١٢", " 1", "--1", "e5"];
        for text in words {
            assert_eq!(Decimal::parse(text), None, "{text:?}");
        }
        assert_eq!(Decimal::parse(&"9".repeat(61)), None);
    }

    #[test]
    fn the_mean_states_whether_it_is_rounded() {
        for (sum, count, mean, precision) in [
            ("1", 4, "0.25", Precision::Exact),
            ("1", 3, "0.333333333333", Precision::Rounded),
            ("-2", 3, "-0.666666666667", Precision::Rounded),
            ("0", 7, "0", Precision::Exact),
        ] {
            assert_eq!(decimal(sum).mean_of(count), (decimal(mean), precision), "{sum} / {count}");
        }
    }

    #[test]
    fn compares_across_scales() {
        assert!(decimal("10") > decimal("9.99"));
        assert!(decimal("-10") < decimal("-9.99"));
        assert_eq!(decimal("1.0"), decimal("1"));
    }
}
