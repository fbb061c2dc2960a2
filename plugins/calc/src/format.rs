//! Formats numbers as fractions, decimals and repeating decimals.

use crate::number::{Exactness, Number, ten_to};
use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{Signed, Zero};

/// Maximum number of digits after the decimal point of a repeating decimal. A repeating decimal with more digits is
/// not shown.
const MAX_REPEATING: usize = 60;

/// The text forms of a number: fraction, decimal and repeating decimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forms {
    /// The exact value, such as `7` or `-3/4`. None if the number depends on an irrational root.
    pub exact: Option<String>,
    /// The decimal with at most the requested number of digits.
    pub decimal: String,
    /// Whether `decimal` is exact.
    pub exactness: Exactness,
    /// The decimal with its repeating digits in parentheses, such as `0.1(6)`. None if no digits repeat, or if the
    /// decimal would have more than 60 digits after the point.
    pub repeating: Option<String>,
}

impl Forms {
    /// Returns a line for the model that contains the decimal, the exact value (if it is known) and the repeating
    /// decimal (if there is one).
    pub fn summary(&self, digits: u32) -> String {
        let rounded = || format!("{} (rounded to {digits} digits)", self.decimal);
        match (&self.exact, self.exactness) {
            (Some(exact), Exactness::Exact) if *exact == self.decimal => exact.clone(),
            (Some(exact), Exactness::Exact) => format!("{} = {exact}", self.decimal),
            (Some(exact), Exactness::Rounded) => match &self.repeating {
                Some(repeating) => format!("{exact} = {repeating} ≈ {}", rounded()),
                None => format!("{exact} ≈ {}", rounded()),
            },
            (None, _) => format!("≈ {}", rounded()),
        }
    }
}

/// Formats a number. `digits` is the maximum number of digits after the decimal point. If the number is between -1 and
/// 1, the zeros directly after the decimal point are not counted.
pub fn forms(number: &Number, digits: u32) -> Forms {
    let value = &number.value;
    let places = digits + leading_zeros(value);
    let scaled = value * BigRational::from_integer(ten_to(places));
    let decimal = without_trailing_zeros(decimal_text(&scaled.round().to_integer(), places));
    if number.exactness == Exactness::Rounded {
        return Forms { exact: None, decimal, exactness: Exactness::Rounded, repeating: None };
    }
    let (exactness, repeating) =
        if scaled.is_integer() { (Exactness::Exact, None) } else { (Exactness::Rounded, repeating(value)) };
    Forms { exact: Some(value.to_string()), decimal, exactness, repeating }
}

/// Returns the number of zeros between the decimal point and the first digit that is not 0.
fn leading_zeros(value: &BigRational) -> u32 {
    if value.is_zero() || value.numer().magnitude() >= value.denom().magnitude() {
        return 0;
    }
    let inverse = value.denom() / value.numer().abs();
    u32::try_from(inverse.to_string().len()).unwrap_or(u32::MAX).saturating_sub(1)
}

/// Formats the number `unscaled / 10^places` as a decimal.
fn decimal_text(unscaled: &BigInt, places: u32) -> String {
    let digits = unscaled.magnitude().to_string();
    let places = places as usize;
    let padded = format!("{digits:0>width$}", width = places + 1);
    let (whole, fraction) = padded.split_at(padded.len() - places);
    let sign = if unscaled.is_negative() { "-" } else { "" };
    if places == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

fn without_trailing_zeros(decimal: String) -> String {
    if !decimal.contains('.') {
        return decimal;
    }
    decimal.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Finds the repeating digits by long division, which ends when a remainder occurs for the second time.
fn repeating(value: &BigRational) -> Option<String> {
    let ten = BigInt::from(10);
    let whole = value.trunc().to_integer();
    let mut remainder = value.fract().numer().abs();
    let mut remainders: Vec<BigInt> = Vec::new();
    let mut digits = String::new();
    while !remainder.is_zero() {
        if let Some(start) = remainders.iter().position(|earlier| *earlier == remainder) {
            let sign = if value.is_negative() { "-" } else { "" };
            return Some(format!("{sign}{}.{}({})", whole.abs(), &digits[..start], &digits[start..]));
        }
        if digits.len() == MAX_REPEATING {
            return None;
        }
        remainders.push(remainder.clone());
        let shifted = remainder * &ten;
        digits.push_str(&(&shifted / value.denom()).to_string());
        remainder = shifted % value.denom();
    }
    None
}
