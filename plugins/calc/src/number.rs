//! Exact numbers with a bound on their size, so that no expression can make the machine work for long.

use num_bigint::{BigInt, Sign};
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};

/// Largest numerator or denominator: about 5,000 decimal digits.
pub const MAX_BITS: u64 = 16_610;

/// `factorial` takes at most this; 1500! has 4,115 digits.
pub const MAX_FACTORIAL: u32 = 1_500;

/// Digits that an irrational root is calculated to beyond those that are shown.
const GUARD_DIGITS: u32 = 20;

/// A number, and whether it stands for itself or for a root that no fraction can express.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Number {
    /// The value; of an inexact number, its nearest known fraction.
    pub value: BigRational,
    /// Whether `value` is the result itself.
    pub exactness: Exactness,
}

/// Whether a number is what was asked for, or near to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exactness {
    /// The number itself.
    Exact,
    /// An irrational root went into it.
    Rounded,
}

/// Why an operation has no result. The parser adds the position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumberError {
    /// The divisor is zero.
    #[error("division by zero")]
    DivisionByZero,
    /// The result would be larger than [`MAX_BITS`].
    #[error("the result would have more than 5,000 digits; use smaller numbers")]
    TooLarge,
    /// An argument is outside of what the operation takes.
    #[error("{0}")]
    Domain(String),
}

type Result<T> = std::result::Result<T, NumberError>;

impl Number {
    /// An exact number.
    pub fn exact(value: BigRational) -> Self {
        Self { value, exactness: Exactness::Exact }
    }

    fn from_parts(value: BigRational, operands: &[&Number]) -> Result<Self> {
        if value.numer().bits() > MAX_BITS || value.denom().bits() > MAX_BITS {
            return Err(NumberError::TooLarge);
        }
        let exactness = if operands.iter().all(|operand| operand.exactness == Exactness::Exact) {
            Exactness::Exact
        } else {
            Exactness::Rounded
        };
        Ok(Self { value, exactness })
    }

    /// Sum.
    pub fn add(&self, other: &Number) -> Result<Number> {
        Self::from_parts(&self.value + &other.value, &[self, other])
    }

    /// Difference.
    pub fn subtract(&self, other: &Number) -> Result<Number> {
        Self::from_parts(&self.value - &other.value, &[self, other])
    }

    /// Product.
    pub fn multiply(&self, other: &Number) -> Result<Number> {
        Self::from_parts(&self.value * &other.value, &[self, other])
    }

    /// Quotient, as a fraction.
    pub fn divide(&self, other: &Number) -> Result<Number> {
        if other.value.is_zero() {
            return Err(NumberError::DivisionByZero);
        }
        Self::from_parts(&self.value / &other.value, &[self, other])
    }

    /// Remainder of the floored division: it has the sign of the divisor, so `-7 % 3` is 2.
    pub fn remainder(&self, other: &Number) -> Result<Number> {
        let quotient = self.divide(other)?.floor()?;
        self.subtract(&other.multiply(&quotient)?)
    }

    /// Power with an integer exponent. `0^0` is 1.
    pub fn power(&self, exponent: &Number) -> Result<Number> {
        let exponent_value = exponent.integer("the exponent")?;
        if self.value.is_zero() && exponent_value.is_negative() {
            return Err(NumberError::DivisionByZero);
        }
        let (numerator, denominator) = (self.value.numer(), self.value.denom());
        if numerator.magnitude() <= BigInt::one().magnitude() && denominator.is_one() {
            // 0, 1 and -1 stay small whatever the exponent is.
            let odd = exponent_value.bit(0);
            let negative_one = numerator.sign() == Sign::Minus && odd;
            let zero = numerator.is_zero() && !exponent_value.is_zero();
            let value = if zero {
                0
            } else if negative_one {
                -1
            } else {
                1
            };
            return Self::from_parts(BigRational::from_integer(value.into()), &[self]);
        }
        let times = exponent_value.abs().to_u64().ok_or(NumberError::TooLarge)?;
        let bits = numerator.bits().max(denominator.bits()) - 1;
        // A number of b + 1 bits is at least 2^b, so its power has at least b * times bits.
        if bits.saturating_mul(times) > MAX_BITS {
            return Err(NumberError::TooLarge);
        }
        let times = u32::try_from(times).map_err(|_| NumberError::TooLarge)?;
        let mut value = BigRational::new_raw(numerator.pow(times), denominator.pow(times));
        if exponent_value.is_negative() {
            value = value.recip();
        }
        Self::from_parts(value, &[self])
    }

    /// The number with its sign turned.
    pub fn negate(&self) -> Number {
        Self { value: -self.value.clone(), exactness: self.exactness }
    }

    /// Distance from zero.
    pub fn absolute(&self) -> Number {
        Self { value: self.value.abs(), exactness: self.exactness }
    }

    /// Largest integer that is not larger.
    pub fn floor(&self) -> Result<Number> {
        self.to_whole(|value| value.floor())
    }

    /// Smallest integer that is not smaller.
    pub fn ceiling(&self) -> Result<Number> {
        self.to_whole(|value| value.ceil())
    }

    /// Nearest number with so many digits after the point; halves go away from zero. Negative digits round to tens …
    pub fn round(&self, digits: &Number) -> Result<Number> {
        let places = digits.integer("the number of digits")?;
        let places = places
            .to_i32()
            .filter(|places| places.abs() <= 1_000)
            .ok_or_else(|| NumberError::Domain("the number of digits must lie between -1000 and 1000".into()))?;
        let power = BigRational::from_integer(ten_to(places.unsigned_abs()));
        let unit = if places >= 0 { power.recip() } else { power };
        let scaled = Self { value: &self.value / &unit, exactness: self.exactness };
        let whole = scaled.to_whole(|value| value.round())?;
        Self::from_parts(whole.value * unit, &[])
    }

    /// Applies a step function, which is exact again unless the rounding error could have crossed a step.
    fn to_whole(&self, step: impl Fn(&BigRational) -> BigRational) -> Result<Number> {
        if self.exactness == Exactness::Rounded {
            let error =
                BigRational::new(BigInt::one(), ten_to(GUARD_DIGITS / 2)) * (self.value.abs() + BigRational::one());
            if step(&(&self.value - &error)) != step(&(&self.value + &error)) {
                return Err(NumberError::Domain(
                    "the value is a rounded root so near to a step that its integer part is not certain".into(),
                ));
            }
        }
        Self::from_parts(step(&self.value), &[])
    }

    /// Square root: exact if it is a fraction, else to `digits` significant digits and some more.
    pub fn square_root(&self, digits: u32) -> Result<Number> {
        if self.value.is_negative() {
            return Err(NumberError::Domain("a negative number has no real square root".into()));
        }
        let (numerator, denominator) = (self.value.numer(), self.value.denom());
        let (top, bottom) = (numerator.sqrt(), denominator.sqrt());
        if &(&top * &top) == numerator && &(&bottom * &bottom) == denominator {
            return Self::from_parts(BigRational::new(top, bottom), &[self]);
        }
        // sqrt(n/d) = sqrt(n*d*10^2k) / (d*10^k): whole-number arithmetic with k digits after the point.
        let leading_zeros = denominator.bits().saturating_sub(numerator.bits()) / 6;
        let places = digits + GUARD_DIGITS + u32::try_from(leading_zeros).map_err(|_| NumberError::TooLarge)?;
        let scale = ten_to(places);
        let root = (numerator * denominator * &scale * &scale).sqrt();
        let mut result = Self::from_parts(BigRational::new(root, denominator * scale), &[self])?;
        result.exactness = Exactness::Rounded;
        Ok(result)
    }

    /// Product of the integers from 1 to this one.
    pub fn factorial(&self) -> Result<Number> {
        let count = self.integer("the argument of factorial")?.to_u32().filter(|count| *count <= MAX_FACTORIAL);
        let count =
            count.ok_or_else(|| NumberError::Domain(format!("factorial takes integers from 0 to {MAX_FACTORIAL}")))?;
        let product = (2..=count).fold(BigInt::one(), |product, factor| product * factor);
        Self::from_parts(BigRational::from_integer(product), &[])
    }

    /// Greatest common divisor of two integers; never negative.
    pub fn greatest_common_divisor(&self, other: &Number) -> Result<Number> {
        let mut larger = self.integer("each argument of gcd")?.abs();
        let mut smaller = other.integer("each argument of gcd")?.abs();
        while !smaller.is_zero() {
            let rest = &larger % &smaller;
            larger = std::mem::replace(&mut smaller, rest);
        }
        Self::from_parts(BigRational::from_integer(larger), &[])
    }

    /// Least common multiple of two integers; never negative.
    pub fn least_common_multiple(&self, other: &Number) -> Result<Number> {
        let divisor = self.greatest_common_divisor(other)?;
        if divisor.value.is_zero() {
            return Ok(divisor);
        }
        Ok(self.divide(&divisor)?.multiply(other)?.absolute())
    }

    fn integer(&self, what: &str) -> Result<BigInt> {
        if self.exactness == Exactness::Rounded {
            return Err(NumberError::Domain(format!("{what} must be an exact integer, not a rounded root")));
        }
        if !self.value.is_integer() {
            return Err(NumberError::Domain(format!("{what} must be an integer, not {}", self.value)));
        }
        Ok(self.value.to_integer())
    }
}

/// 10 to the power of `places`.
pub fn ten_to(places: u32) -> BigInt {
    BigInt::from(10).pow(places)
}
