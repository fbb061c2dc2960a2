//! Parses an expression from left to right, and calculates the value of the expression during parsing. The grammar is:
//!
//! ```text
//! sum     = product { ("+" | "-") product }
//! product = sign { ("*" | "/" | "%") sign }
//! sign    = { "+" | "-" } power
//! power   = postfix [ "^" sign ]                 right to left: 2^3^2 = 2^9; -2^2 = -4
//! postfix = atom { "!" }
//! atom    = number | name "(" sum { "," sum } ")" | "(" sum ")"
//! ```

use crate::number::{Number, NumberError, ten_to};
use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::Zero;

/// Maximum length of an expression, in bytes.
pub const MAX_LENGTH: usize = 4_000;

/// Maximum nesting depth of parentheses, signs and powers.
const MAX_DEPTH: u32 = 100;

/// Maximum exponent of a number in the expression, such as `1.5e300`, and maximum number of digits of a number in the
/// expression.
const MAX_NUMBER_DIGITS: usize = 2_000;

/// The list of all functions and their arguments, for error messages and for the description of the tool.
pub const FUNCTIONS: &str = "abs(x), min(x, …), max(x, …), floor(x), ceil(x), round(x), round(x, digits), \
                             gcd(a, b, …), lcm(a, b, …), factorial(n), sqrt(x)";

/// The reason why an expression cannot be calculated, with the position of the problem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} (at character {position}: {excerpt})")]
pub struct ExpressionError {
    /// Position of the problem in the expression, in characters. The first character has position 1.
    pub position: usize,
    /// Description of the problem, and advice on how to correct the expression.
    pub message: String,
    /// An excerpt of the expression around the position, with `▸` before the character at the position.
    pub excerpt: String,
}

/// Calculates an expression. Irrational roots are rounded, but to more than `digits` significant digits.
pub fn evaluate(expression: &str, digits: u32) -> Result<Number, ExpressionError> {
    let mut parser = Parser { text: expression, offset: 0, depth: 0, digits };
    if expression.len() > MAX_LENGTH {
        return Err(parser.error(0, format!("the expression is longer than {MAX_LENGTH} bytes")));
    }
    let value = parser.sum()?;
    match parser.peek() {
        None => Ok(value),
        Some(',') => Err(parser.error_here("`,` only separates arguments; write 1000 or 1_000 for a thousand")),
        Some(')') => Err(parser.error_here("this `)` has no matching `(`")),
        Some(other) => Err(parser.error_here(&format!("expected an operator or the end, found `{other}`"))),
    }
}

struct Parser<'a> {
    text: &'a str,
    offset: usize,
    depth: u32,
    digits: u32,
}

type Parsed = Result<Number, ExpressionError>;

impl Parser<'_> {
    fn sum(&mut self) -> Parsed {
        let mut left = self.product()?;
        while let Some(operator @ ('+' | '-' | '−')) = self.peek() {
            let position = self.take(operator);
            let right = self.product()?;
            let result = if operator == '+' { left.add(&right) } else { left.subtract(&right) };
            left = self.with_position(position, result)?;
        }
        Ok(left)
    }

    fn product(&mut self) -> Parsed {
        let mut left = self.sign()?;
        while let Some(operator @ ('*' | '×' | '·' | '/' | '÷' | '%')) = self.peek() {
            let position = self.take(operator);
            let right = self.sign()?;
            let result = match operator {
                '/' | '÷' => left.divide(&right),
                '%' => left.remainder(&right),
                _ => left.multiply(&right),
            };
            left = self.with_position(position, result)?;
        }
        Ok(left)
    }

    fn sign(&mut self) -> Parsed {
        self.enter()?;
        let value = match self.peek() {
            Some(minus @ ('-' | '−')) => {
                self.take(minus);
                self.sign()?.negate()
            }
            Some('+') => {
                self.take('+');
                self.sign()?
            }
            _ => self.power()?,
        };
        self.depth -= 1;
        Ok(value)
    }

    fn power(&mut self) -> Parsed {
        let base = self.postfix()?;
        let doubled = self.text[self.offset..].starts_with("**");
        if !doubled && self.peek() != Some('^') {
            return Ok(base);
        }
        let position = self.offset;
        self.offset += if doubled { 2 } else { 1 };
        let exponent = self.sign()?;
        self.with_position(position, base.power(&exponent))
    }

    fn postfix(&mut self) -> Parsed {
        let mut value = self.atom()?;
        while self.peek() == Some('!') {
            let position = self.take('!');
            value = self.with_position(position, value.factorial())?;
        }
        // Skip white space, so that `power` recognises `**` even if white space precedes the operator.
        self.peek();
        Ok(value)
    }

    fn atom(&mut self) -> Parsed {
        match self.peek() {
            Some('(') => {
                let opened = self.take('(');
                let value = self.sum()?;
                self.close(opened)?;
                Ok(value)
            }
            Some(digit) if digit.is_ascii_digit() || digit == '.' => self.number(),
            Some(letter) if letter.is_alphabetic() => self.call(),
            Some(other) => Err(self.error_here(&format!("expected a number, a function or `(`, found `{other}`"))),
            None => Err(self.error_here("the expression ends, but a number is expected")),
        }
    }

    fn number(&mut self) -> Parsed {
        let start = self.offset;
        let mut digits = self.digit_sequence();
        let mut places = 0;
        if self.next_is('.') {
            self.offset += 1;
            let fraction = self.digit_sequence();
            places = fraction.len();
            digits.push_str(&fraction);
        }
        if digits.is_empty() {
            return Err(self.error(start, "a `.` without digits is not a number".into()));
        }
        let exponent = self.exponent(start)?;
        if digits.len() > MAX_NUMBER_DIGITS {
            return Err(self.error(start, format!("the number has more than {MAX_NUMBER_DIGITS} digits")));
        }
        let unscaled = BigInt::parse_bytes(digits.as_bytes(), 10).unwrap_or_else(BigInt::zero);
        let shift = exponent - places as i64;
        let scale = ten_to(shift.unsigned_abs() as u32);
        let value =
            if shift >= 0 { BigRational::from_integer(unscaled * scale) } else { BigRational::new(unscaled, scale) };
        Ok(Number::exact(value))
    }

    fn digit_sequence(&mut self) -> String {
        let remaining = &self.text[self.offset..];
        let length =
            remaining.find(|letter: char| !letter.is_ascii_digit() && letter != '_').unwrap_or(remaining.len());
        self.offset += length;
        remaining[..length].replace('_', "")
    }

    /// Parses the exponent of a number, such as `e-3` in `1.5e-3`. Returns 0 if there is no exponent.
    fn exponent(&mut self, start: usize) -> Result<i64, ExpressionError> {
        let remaining = &self.text.as_bytes()[self.offset..];
        let signed = usize::from(matches!(remaining.get(1), Some(b'+' | b'-')));
        if !matches!(remaining.first(), Some(b'e' | b'E')) || !remaining.get(1 + signed).is_some_and(u8::is_ascii_digit)
        {
            return Ok(0);
        }
        let negative = remaining[1] == b'-';
        self.offset += 1 + signed;
        let magnitude: i64 = self.digit_sequence().parse().unwrap_or(i64::MAX);
        if magnitude > MAX_NUMBER_DIGITS as i64 {
            return Err(self.error(start, format!("the exponent is larger than {MAX_NUMBER_DIGITS}")));
        }
        Ok(if negative { -magnitude } else { magnitude })
    }

    fn call(&mut self) -> Parsed {
        let start = self.offset;
        let remaining = &self.text[start..];
        let length =
            remaining.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(remaining.len());
        let name = remaining[..length].to_ascii_lowercase();
        self.offset += length;
        if self.peek() != Some('(') {
            return Err(
                self.error(start, format!("`{name}` is neither a number nor a function call; functions: {FUNCTIONS}"))
            );
        }
        let opened = self.take('(');
        let mut arguments = vec![self.sum()?];
        while self.peek() == Some(',') {
            self.take(',');
            arguments.push(self.sum()?);
        }
        self.close(opened)?;
        let result = self.apply(&name, &arguments);
        self.with_position(start, result)
    }

    fn apply(&self, name: &str, arguments: &[Number]) -> Result<Number, NumberError> {
        let fold = |step: fn(&Number, &Number) -> Result<Number, NumberError>| {
            let first = step(&arguments[0], &arguments[0])?;
            arguments[1..].iter().try_fold(first, |result, next| step(&result, next))
        };
        match (name, arguments) {
            ("abs", [value]) => Ok(value.absolute()),
            ("min", _) => Ok(best_argument(arguments, |new, old| new.value < old.value)),
            ("max", _) => Ok(best_argument(arguments, |new, old| new.value > old.value)),
            ("floor", [value]) => value.floor(),
            ("ceil", [value]) => value.ceiling(),
            ("round", [value]) => value.round(&Number::exact(BigRational::zero())),
            ("round", [value, digits]) => value.round(digits),
            ("gcd", _) => fold(Number::greatest_common_divisor),
            ("lcm", _) => fold(Number::least_common_multiple),
            ("factorial", [value]) => value.factorial(),
            ("sqrt", [value]) => value.square_root(self.digits),
            ("abs" | "floor" | "ceil" | "round" | "factorial" | "sqrt", _) => Err(NumberError::Domain(format!(
                "{name} does not take {} arguments; functions: {FUNCTIONS}",
                arguments.len()
            ))),
            _ => Err(NumberError::Domain(format!("there is no function `{name}`; functions: {FUNCTIONS}"))),
        }
    }

    fn enter(&mut self) -> Result<(), ExpressionError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error_here(&format!("the expression is nested more than {MAX_DEPTH} levels deep")));
        }
        Ok(())
    }

    fn close(&mut self, opened: usize) -> Result<(), ExpressionError> {
        match self.peek() {
            Some(')') => {
                self.take(')');
                Ok(())
            }
            None => Err(self.error(opened, "this `(` has no matching `)`".into())),
            Some(other) => Err(self.error_here(&format!("expected an operator, `,` or `)`, found `{other}`"))),
        }
    }

    /// Skips white space and returns the next character without consuming it.
    fn peek(&mut self) -> Option<char> {
        let remaining = &self.text[self.offset..];
        self.offset += remaining.len() - remaining.trim_start().len();
        self.text[self.offset..].chars().next()
    }

    fn next_is(&self, expected: char) -> bool {
        self.text[self.offset..].starts_with(expected)
    }

    /// Consumes the next character, which must be `symbol`, and returns the position of this character.
    fn take(&mut self, symbol: char) -> usize {
        let position = self.offset;
        self.offset += symbol.len_utf8();
        position
    }

    fn with_position(&self, position: usize, result: Result<Number, NumberError>) -> Parsed {
        result.map_err(|error| self.error(position, error.to_string()))
    }

    fn error_here(&self, message: &str) -> ExpressionError {
        self.error(self.offset, message.to_owned())
    }

    fn error(&self, position: usize, message: String) -> ExpressionError {
        let before: Vec<char> = self.text[..position].chars().collect();
        let start: String = before[before.len().saturating_sub(20)..].iter().collect();
        let remaining: String = self.text[position..].chars().take(20).collect();
        ExpressionError { position: before.len() + 1, message, excerpt: format!("{start}▸{remaining}") }
    }
}

fn best_argument(arguments: &[Number], better: fn(&Number, &Number) -> bool) -> Number {
    let mut best = &arguments[0];
    for argument in &arguments[1..] {
        if better(argument, best) {
            best = argument;
        }
    }
    best.clone()
}
