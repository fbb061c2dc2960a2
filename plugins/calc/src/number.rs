//! Exact numbers of limited size. Because the size is limited, every expression is calculated quickly.

use num_bigint::{BigInt, Sign};
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};

/// Maximum size of a numerator or denominator, in bits: about 5,000 decimal digits.
pub const MAX_BITS: u64 = 16_610;

/// Maximum argument of `factorial`. 1500! has 4,115 digits.
pub const MAX_FACTORIAL: u32 = 1_500;

/// An irrational root is calculated with this number of digits more than the call requests.
const GUARD_DIGITS: u32 = 20;

/// A rational number that is exact, or that approximates an irrational root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Number {
    /// The exact value, or an approximation of the exact value.
    pub value: BigRational,
    /// Whether `value` is exact.
    pub exactness: Exactness,
}

/// Whether a number is exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exactness {
    /// The number is exact.
    Exact,
    /// The number is rounded, because it depends on an irrational root.
    Rounded,
}

/// The reason why an operation has no result. The parser adds the position of the operation to the error message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumberError {
    /// The divisor is zero.
    #[error("division by zero")]
    DivisionByZero,
    /// The result would be larger than [`MAX_BITS`].
    #[error("the result would have more than 5,000 digits; use smaller numbers")]
    TooLarge,
    /// The operation is not defined for one of the arguments, such as the square root of a negative number. The variant
    /// contains the error message.
    #[error("{0}")]
    Domain(String),
}

type Result<T> = std::result::Result<T, NumberError>;

impl Number {
    /// Creates a number that is exact.
    pub fn exact(value: BigRational) -> Self {
        Self { value, exactness: Exactness::Exact }
    }

    fn from_operands(value: BigRational, operands: &[&Number]) -> Result<Self> {
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

    /// Adds two numbers.
    pub fn add(&self, other: &Number) -> Result<Number> {
        Self::from_operands(&self.value + &other.value, &[self, other])
    }

    /// Subtracts `other` from this number.
    pub fn subtract(&self, other: &Number) -> Result<Number> {
        Self::from_operands(&self.value - &other.value, &[self, other])
    }

    /// Multiplies two numbers.
    pub fn multiply(&self, other: &Number) -> Result<Number> {
        Self::from_operands(&self.value * &other.value, &[self, other])
    }

    /// Divides this number by `other`. The quotient is a fraction and is not rounded.
    pub fn divide(&self, other: &Number) -> Result<Number> {
        if other.value.is_zero() {
            return Err(NumberError::DivisionByZero);
        }
        Self::from_operands(&self.value / &other.value, &[self, other])
    }

    /// Returns the remainder of the floored division of this number by `other`. The remainder has the sign of `other`,
    /// so `-7 % 3` is 2.
    pub fn remainder(&self, other: &Number) -> Result<Number> {
        let quotient = self.divide(other)?.floor()?;
        self.subtract(&other.multiply(&quotient)?)
    }

    /// Raises this number to an integer power. `0^0` is 1.
    pub fn power(&self, exponent: &Number) -> Result<Number> {
        let exponent_value = exponent.integer("the exponent")?;
        if self.value.is_zero() && exponent_value.is_negative() {
            return Err(NumberError::DivisionByZero);
        }
        let (numerator, denominator) = (self.value.numer(), self.value.denom());
        if numerator.magnitude() <= BigInt::one().magnitude() && denominator.is_one() {
            // The powers of 0, 1 and -1 are calculated separately, because the result is small even if the exponent is
            // very large.
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
            return Self::from_operands(BigRational::from_integer(value.into()), &[self]);
        }
        let times = exponent_value.abs().to_u64().ok_or(NumberError::TooLarge)?;
        let bits = numerator.bits().max(denominator.bits()) - 1;
        // A number with `bits + 1` bits is at least 2^bits, so raising the number to the power `times` gives at
        // least 2^(bits*times).
        if bits.saturating_mul(times) > MAX_BITS {
            return Err(NumberError::TooLarge);
        }
        let times = u32::try_from(times).map_err(|_| NumberError::TooLarge)?;
        let mut value = BigRational::new_raw(numerator.pow(times), denominator.pow(times));
        if exponent_value.is_negative() {
            value = value.recip();
        }
        Self::from_operands(value, &[self])
    }

    /// Returns the number with the opposite sign.
    pub fn negate(&self) -> Number {
        Self { value: -self.value.clone(), exactness: self.exactness }
    }

    /// Returns the absolute value.
    pub fn absolute(&self) -> Number {
        Self { value: self.value.abs(), exactness: self.exactness }
    }

    /// Returns the largest integer that is not larger than this number.
    pub fn floor(&self) -> Result<Number> {
        self.to_whole(|value| value.floor())
    }

    /// Returns the smallest integer that is not smaller than this number.
    pub fn ceiling(&self) -> Result<Number> {
        self.to_whole(|value| value.ceil())
    }

    /// Rounds to `digits` digits after the decimal point. Halves are rounded away from zero. If `digits` is negative,
    /// the number is rounded to tens, hundreds and so on.
    pub fn round(&self, digits: &Number) -> Result<Number> {
        let places = digits.integer("the number of digits")?;
        let places = places
            .to_i32()
            .filter(|places| places.abs() <= 1_000)
            .ok_or_else(|| NumberError::Domain("the number of digits must be between -1000 and 1000".into()))?;
        let power = BigRational::from_integer(ten_to(places.unsigned_abs()));
        let unit = if places >= 0 { power.recip() } else { power };
        let scaled = Self { value: &self.value / &unit, exactness: self.exactness };
        let whole = scaled.to_whole(|value| value.round())?;
        Self::from_operands(whole.value * unit, &[])
    }

    /// Applies a function that returns an integer, such as `floor`. Fails if the number depends on a rounded root and
    /// the integer could be wrong because of the rounding.
    fn to_whole(&self, step: impl Fn(&BigRational) -> BigRational) -> Result<Number> {
        if self.exactness == Exactness::Rounded {
            let error =
                BigRational::new(BigInt::one(), ten_to(GUARD_DIGITS / 2)) * (self.value.abs() + BigRational::one());
            if step(&(&self.value - &error)) != step(&(&self.value + &error)) {
                return Err(NumberError::Domain(
                    "the value is a rounded root that is too close to a whole number, so its integer part is not certain".into(),
                ));
            }
        }
        Self::from_operands(step(&self.value), &[])
    }

    /// Returns the square root. If the root is irrational, the result is rounded, but to more than `digits`
    /// significant digits.
    pub fn square_root(&self, digits: u32) -> Result<Number> {
        if self.value.is_negative() {
            return Err(NumberError::Domain("a negative number has no real square root".into()));
        }
        let (numerator, denominator) = (self.value.numer(), self.value.denom());
        let (numerator_root, denominator_root) = (numerator.sqrt(), denominator.sqrt());
        if &(&numerator_root * &numerator_root) == numerator && &(&denominator_root * &denominator_root) == denominator
        {
            return Self::from_operands(BigRational::new(numerator_root, denominator_root), &[self]);
        }
        // sqrt(n/d) = sqrt(n*d*10^2k) / (d*10^k). The right side of this equation can be calculated with integers, and
        // has k digits after the point.
        let leading_zeros = denominator.bits().saturating_sub(numerator.bits()) / 6;
        let places = digits + GUARD_DIGITS + u32::try_from(leading_zeros).map_err(|_| NumberError::TooLarge)?;
        let scale = ten_to(places);
        let root = (numerator * denominator * &scale * &scale).sqrt();
        let mut result = Self::from_operands(BigRational::new(root, denominator * scale), &[self])?;
        result.exactness = Exactness::Rounded;
        Ok(result)
    }

    /// Returns the product of the integers from 1 to this number.
    pub fn factorial(&self) -> Result<Number> {
        let count = self.integer("the argument of factorial")?.to_u32().filter(|count| *count <= MAX_FACTORIAL);
        let count =
            count.ok_or_else(|| NumberError::Domain(format!("factorial takes integers from 0 to {MAX_FACTORIAL}")))?;
        let product = (2..=count).fold(BigInt::one(), |product, factor| product * factor);
        Self::from_operands(BigRational::from_integer(product), &[])
    }

    /// Returns the greatest common divisor of two integers. The result is never negative.
    pub fn greatest_common_divisor(&self, other: &Number) -> Result<Number> {
        let mut larger = self.integer("each argument of gcd")?.abs();
        let mut smaller = other.integer("each argument of gcd")?.abs();
        while !smaller.is_zero() {
            let remainder = &larger % &smaller;
            larger = std::mem::replace(&mut smaller, remainder);
        }
        Self::from_operands(BigRational::from_integer(larger), &[])
    }

    /// Returns the least common multiple of two integers. The result is never negative.
    pub fn least_common_multiple(&self, other: &Number) -> Result<Number> {
        let divisor = self.greatest_common_divisor(other)?;
        if divisor.value.is_zero() {
            return Ok(divisor);
        }
        Ok(self.divide(&divisor)?.multiply(other)?.absolute())
    }

    fn integer(&self, operand: &str) -> Result<BigInt> {
        if self.exactness == Exactness::Rounded {
            return Err(NumberError::Domain(format!("{operand} must be an exact integer, not a rounded root")));
        }
        if !self.value.is_integer() {
            return Err(NumberError::Domain(format!("{operand} must be an integer, not {}", self.value)));
        }
        Ok(self.value.to_integer())
    }
}

/// Returns 10 to the power of `places`.
pub fn ten_to(places: u32) -> BigInt {
    BigInt::from(10).pow(places)
}
