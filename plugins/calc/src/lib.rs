//! A tool for exact arithmetic with integers, decimals and fractions, without the errors of floating-point numbers.

pub mod format;
pub mod number;
pub mod parse;

use agent_host_sdk::prelude::*;
use format::{Forms, forms};
use number::Exactness;

/// Number of digits after the decimal point if the call does not set `digits`.
const DEFAULT_DIGITS: u32 = 15;

/// Arguments of `calc.evaluate`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Evaluate {
    /// For example `(19.99 * 3 + 4.95) / 2`, `2^64 - 1`, `round(100 / 7, 2)` or `-7 % 3`.
    #[schemars(length(min = 1, max = 4000))]
    expression: String,
    /// Digits after the decimal point. Default: 15.
    #[schemars(range(max = 1000))]
    digits: Option<u32>,
}

/// The structured result of `calc.evaluate`.
#[derive(Serialize, JsonSchema)]
struct Evaluation {
    /// The exact value, an integer or a fraction such as `-3/4`. None if the expression contains an irrational root.
    exact: Option<String>,
    /// The value as a decimal number.
    decimal: String,
    /// Whether `decimal` is rounded. The last digit is rounded half away from zero.
    rounded: bool,
    /// The exact decimal with its repeating digits in parentheses, such as `0.1(6)`, if there are few.
    repeating: Option<String>,
}

/// The plugin, whose only tool is `calc.evaluate`.
pub struct Calc;

impl ToolPlugin for Calc {
    fn tools() -> Tools {
        let description = format!(
            "Calculates an arithmetic expression exactly, with integers, decimals and fractions of up to 5,000 digits. \
             Operators: + - * / ^ (integer exponents), % (remainder, with the sign of the divisor), ! (factorial), \
             parentheses. Functions: {}. round rounds half away from zero. Returns the exact value (as a fraction if \
             it is not an integer) and a decimal, and says whether the decimal is rounded.",
            parse::FUNCTIONS
        );
        Tools::new().tool(
            Tool::new("calc.evaluate", description)
                .title("Calculate")
                .read_only()
                .output::<Evaluation>()
                .run(|arguments: Evaluate, _: &Call| evaluate(&arguments)),
        )
    }
}

agent_host_sdk::export_tools!(Calc);

fn evaluate(arguments: &Evaluate) -> Result<Done, ToolError> {
    let digits = arguments.digits.unwrap_or(DEFAULT_DIGITS);
    if digits > 1_000 {
        return Err(ToolError::invalid("/digits", "must be at most 1000"));
    }
    let number = parse::evaluate(&arguments.expression, digits)
        .map_err(|error| ToolError::invalid("/expression", error.to_string()))?;
    let forms = forms(&number, digits);
    let summary = forms.summary(digits);
    let Forms { exact, decimal, exactness, repeating } = forms;
    Done::structured(&Evaluation { exact, decimal, rounded: exactness == Exactness::Rounded, repeating }, summary)
}
