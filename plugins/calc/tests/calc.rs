//! Tests of `calc.evaluate` (P2, S7): results, the text forms of results, and rejected expressions.

use agent_host_sdk::prelude::*;
use calc::Calc;

fn evaluate(expression: &str) -> Result<Outcome, ToolError> {
    Calc::tools().call("calc.evaluate", json!({ "expression": expression }))
}

fn text(expression: &str) -> String {
    evaluate(expression).unwrap_or_else(|error| panic!("{expression}: {}", error.message())).texts()
}

fn refusal(expression: &str) -> String {
    match evaluate(expression) {
        Err(ToolError::InvalidArguments(violations)) => {
            assert_eq!(violations[0].pointer, "/expression");
            violations[0].message.clone()
        }
        other => panic!("{expression}: {other:?}"),
    }
}

#[test]
fn s7_calculates_exactly() {
    for (expression, expected) in [
        ("1 + 2 * 3", "7"),
        ("(1 + 2) * 3", "9"),
        ("0.1 + 0.2", "0.3 = 3/10"),
        ("1/3 + 1/6", "0.5 = 1/2"),
        ("2^10", "1024"),
        ("2**10", "1024"),
        ("2^3^2", "512"),
        ("-2^2", "-4"),
        ("(-2)^3", "-8"),
        ("2^-2", "0.25 = 1/4"),
        ("(-1)^999999999999999999999", "-1"),
        ("0^0", "1"),
        ("1_000_000 * 1.5e3", "1500000000"),
        ("2.5e-3", "0.0025 = 1/400"),
        ("7 % 3", "1"),
        ("-7 % 3", "2"),
        ("5.5 % 2", "1.5 = 3/2"),
        ("6 × 7 − 4 ÷ 2", "40"),
        ("--3", "3"),
        ("3!", "6"),
        ("factorial(20)", "2432902008176640000"),
        ("sqrt(16/9)", "4/3 = 1.(3) ≈ 1.333333333333333 (rounded to 15 digits)"),
        ("sqrt(1.44)", "1.2 = 6/5"),
        ("abs(-3) + min(4, 2, 3) + max(1, 5)", "10"),
        ("floor(-1.5) + ceil(1.2)", "0"),
        ("round(2.5) + round(-2.5)", "0"),
        ("round(2/3, 2)", "0.67 = 67/100"),
        ("round(1250, -2)", "1300"),
        ("gcd(12, 18, 27)", "3"),
        ("lcm(4, 6)", "12"),
        ("gcd(0, 0) + lcm(0, 3)", "0"),
        ("GCD(8,12)", "4"),
    ] {
        assert_eq!(text(expression), expected, "{expression}");
    }
}

#[test]
fn reports_rounding_and_repeating_digits() {
    assert_eq!(text("1/3"), "1/3 = 0.(3) ≈ 0.333333333333333 (rounded to 15 digits)");
    assert_eq!(text("-1/6"), "-1/6 = -0.1(6) ≈ -0.166666666666667 (rounded to 15 digits)");
    assert_eq!(text("sqrt(2)"), "≈ 1.414213562373095 (rounded to 15 digits)");
    assert_eq!(text("sqrt(2)^2"), "≈ 2 (rounded to 15 digits)");
    assert_eq!(text("1/10^30"), "0.000000000000000000000000000001 = 1/1000000000000000000000000000000");
    let small = text("1/(3*10^20)");
    assert!(small.contains("0.00000000000000000000333333333333333 "), "small numbers keep their digits: {small}");
    let call = Calc::tools().call("calc.evaluate", json!({ "expression": "2/3", "digits": 3 })).unwrap();
    let expected = json!({ "exact": "2/3", "decimal": "0.667", "rounded": true, "repeating": "0.(6)" });
    assert_eq!(call.value(), Some(expected));
    let whole = Calc::tools().call("calc.evaluate", json!({ "expression": "7/2", "digits": 0 })).unwrap();
    assert_eq!(whole.value().unwrap()["decimal"], "4");
}

#[test]
fn rejects_operations_on_uncertain_roots() {
    assert_eq!(text("ceil(sqrt(10))"), "4");
    assert_eq!(text("round(sqrt(2), 3)"), "1.414 = 707/500");
    assert!(refusal("floor(sqrt(2) * sqrt(2))").contains("not certain"));
    assert!(refusal("gcd(sqrt(2), 2)").contains("exact integer"));
    assert!(refusal("2 ^ sqrt(2)").contains("exact integer"));
}

#[test]
fn errors_contain_the_position() {
    for (expression, position, message) in [
        ("", 1, "the expression ends"),
        ("1 +", 4, "the expression ends"),
        ("1 / 0", 3, "division by zero"),
        ("10 % (5 - 5)", 4, "division by zero"),
        ("0^-1", 2, "division by zero"),
        ("(1 + 2", 1, "no matching `)`"),
        ("1 + 2)", 6, "no matching `(`"),
        ("1,000", 2, "1_000"),
        ("2 3", 3, "expected an operator"),
        ("3 $ 4", 3, "found `$`"),
        ("ümlaut(1)", 1, "there is no function"),
        ("5 + pi", 5, "neither a number nor a function"),
        ("abs(1, 2)", 1, "does not take 2 arguments"),
        ("2 ^ 0.5", 3, "must be an integer, not 1/2"),
        ("sqrt(-4)", 1, "negative"),
        ("(-3)!", 5, "factorial takes"),
        ("factorial(1501)", 1, "factorial takes"),
        ("1.5!", 4, "must be an integer"),
        (".", 1, "not a number"),
        ("1e9999", 1, "exponent"),
        ("round(1, 5000)", 1, "between -1000 and 1000"),
    ] {
        let refusal = refusal(expression);
        assert!(refusal.contains(message), "{expression}: {refusal}");
        assert!(refusal.contains(&format!("at character {position}:")), "{expression}: {refusal}");
    }
}

#[test]
fn rejects_large_calculations_before_calculating() {
    for expression in ["9^9^9", "9^9^9^9^9", "1.0001^1000000000", "2^100000", "((9^4000)^2)^2", "0.5^99999"] {
        assert!(refusal(expression).contains("more than 5,000 digits"), "{expression}");
    }
    assert!(refusal(&"(".repeat(500)).contains("nested"));
    assert!(refusal(&"-".repeat(500)).contains("nested"));
    assert!(refusal(&"1+".repeat(2_001)).contains("longer than"));
    assert!(refusal(&"9".repeat(2_001)).contains("digits"));
    assert_eq!(text(&format!("{}1", "1+".repeat(1_900))), "1901");
}

#[test]
fn p2_checks_arguments() {
    let tools = Calc::tools();
    assert!(tools.call("calc.evaluate", json!({})).is_err());
    assert!(tools.call("calc.evaluate", json!({ "expression": "1", "digits": 1_001 })).is_err());
    assert!(tools.call("calc.evaluate", json!({ "expression": "1", "precision": 3 })).is_err());
    let definition = &tools.definitions()[0];
    let schema: Value = agent_host_sdk::serde_json::from_str(&definition.input_schema).unwrap();
    assert_eq!(schema["required"], json!(["expression"]));
    assert!(definition.description.len() <= 2_048);
}
