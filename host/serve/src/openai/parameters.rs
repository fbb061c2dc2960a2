//! The parameters of requests that an agent decides itself. A parameter is ignored if its neglect is harmless, and refused if its
//! neglect would mislead the client. The guide lists them.

use super::error::OpenAiError;
use serde_json::Value;

const OUTPUT: &str =
    "the agent's configuration decides the form of the output; set `output_schema` in the agent's file";

/// Checks one parameter, which is accepted only if it is absent, `null`, `false` or empty, or if its value is one of `accepted`.
pub(super) fn refuse(param: &str, value: Option<&Value>, accepted: &[&str], reason: &str) -> Result<(), OpenAiError> {
    let is_harmless = match value {
        None | Some(Value::Null | Value::Bool(false)) => true,
        Some(Value::Array(values)) => values.is_empty(),
        Some(Value::Object(values)) => values.is_empty(),
        Some(Value::String(text)) => accepted.contains(&text.as_str()),
        Some(Value::Number(number)) => accepted.contains(&number.to_string().as_str()),
        Some(Value::Bool(true)) => false,
    };
    match is_harmless {
        true => Ok(()),
        false => Err(OpenAiError::unsupported(param, format!("`{param}` is not supported: {reason}"))),
    }
}

/// Refuses a form of the output other than text. `format` is an object with the field `type`.
pub(super) fn refuse_format(param: &str, format: Option<&Value>) -> Result<(), OpenAiError> {
    match format.and_then(|format| format.get("type")).and_then(Value::as_str) {
        Some("text") => Ok(()),
        _ => refuse(param, format, &[], OUTPUT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// I3: values that mean the same as an absent parameter are accepted.
    #[test]
    fn i3_only_parameters_with_a_meaning_are_refused() {
        for value in [json!(null), json!(false), json!([]), json!({}), json!("auto"), json!(1)] {
            assert!(refuse("p", Some(&value), &["auto", "1"], "why").is_ok(), "{value}");
        }
        for value in [json!(true), json!([1]), json!({"a": 1}), json!("required"), json!(2), json!(1.5)] {
            assert!(refuse("p", Some(&value), &["auto", "1"], "why").is_err(), "{value}");
        }
        assert!(refuse_format("f", Some(&json!({"type": "text"}))).is_ok());
        assert!(refuse_format("f", Some(&json!({"type": "json_object"}))).is_err());
    }
}
