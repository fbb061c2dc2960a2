//! Recognises errors that a provider sends instead of a reply. Different servers use different JSON structures
//! for errors.

use super::{StreamError, excerpt};
use agent_core::visible::visible_line;
use serde_json::Value;
use serde_json::value::RawValue;

/// A provider's error message is cut after this many characters.
const MAX_MESSAGE_CHARACTERS: usize = 2000;

/// Maximum number of errors, each nested in the previous one, that are searched for a message, code or status.
const MAX_DEPTH: usize = 4;

/// Returns the error that the `error` field of a chunk describes. If the field is missing, null, false or empty,
/// returns `Ok`.
pub(super) fn from_field(error: Option<&RawValue>) -> Result<(), StreamError> {
    let Some(error) = error else { return Ok(()) };
    match serde_json::from_str(error.get()) {
        Ok(Value::Null | Value::Bool(false)) => Ok(()),
        Ok(Value::String(message)) if message.is_empty() => Ok(()),
        Ok(Value::Object(fields)) if fields.is_empty() => Ok(()),
        Ok(error) => Err(from_value(&error)),
        Err(_) => Err(from_text(error.get())),
    }
}

/// Returns the error that `text` describes. `text` is the data of an `error` event or a whole error document.
pub(super) fn from_text(text: &str) -> StreamError {
    match serde_json::from_str(text) {
        Ok(error) => from_value(&error),
        Err(_) => StreamError::Provider { status: None, code: None, message: truncate(text.trim()) },
    }
}

/// Returns the error in a document that does not contain a reply, or `None` if the document contains no error either.
pub(super) fn from_document(text: &str) -> Option<StreamError> {
    let document: Value = serde_json::from_str(text).ok()?;
    message(&document, 0).is_some().then(|| from_value(&document))
}

/// Returns the error for a finish reason that marks the reply as failed.
pub(super) fn from_finish_reason(reason: &str) -> StreamError {
    let message = format!("the provider ended the reply with finish_reason `{}`", excerpt(reason));
    StreamError::Provider { status: None, code: Some(truncate(reason)), message }
}

/// Returns an error with the given code and message of the provider.
pub(super) fn with_code(code: &str, message: &str) -> StreamError {
    StreamError::Provider { status: None, code: Some(truncate(code)), message: truncate(&visible_line(message)) }
}

fn from_value(error: &Value) -> StreamError {
    let message = message(error, 0).unwrap_or_else(|| error.to_string());
    StreamError::Provider { status: status(error, 0), code: code(error, 0), message: truncate(&message) }
}

/// Finds the provider's error message in the JSON of an error.
fn message(error: &Value, depth: usize) -> Option<String> {
    if depth > MAX_DEPTH {
        return None;
    }
    match error {
        Value::String(message) => Some(message.clone()).filter(|message| !message.trim().is_empty()),
        Value::Array(errors) => message(errors.first()?, depth + 1),
        Value::Object(fields) => {
            let keys = ["error", "message", "detail", "msg", "error_msg", "errors"];
            let text = keys.iter().find_map(|key| message(fields.get(*key)?, depth + 1))?;
            // OpenRouter puts the message of the underlying provider into `metadata.raw`.
            let raw = error.pointer("/metadata/raw").and_then(Value::as_str).filter(|raw| !text.contains(raw));
            Some(raw.map_or_else(|| text.clone(), |raw| format!("{text}: {raw}")))
        }
        _ => None,
    }
}

/// Finds the HTTP status in the JSON of an error. The status may be a number or a string.
fn status(error: &Value, depth: usize) -> Option<u16> {
    let number = |value: &Value| match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    let is_status = |status: &u16| (400..600).contains(status);
    let keys = ["code", "status", "status_code", "http_status"];
    let found = keys.iter().find_map(|key| u16::try_from(number(error.get(*key)?)?).ok().filter(is_status));
    found.or_else(|| status(nested_error(error, depth)?, depth + 1))
}

/// Finds the provider's error code in the JSON of an error. Codes that are numbers are ignored, because such numbers
/// are HTTP statuses.
fn code(error: &Value, depth: usize) -> Option<String> {
    if let Some(inner) = nested_error(error, depth) {
        return code(inner, depth + 1);
    }
    let is_name = |name: &&str| !name.is_empty() && *name != "error" && name.parse::<u16>().is_err();
    let name = ["code", "status", "type"].iter().find_map(|key| error.get(*key)?.as_str().filter(is_name));
    name.map(truncate)
}

/// Returns the error that is nested in `error`, if there is one.
fn nested_error(error: &Value, depth: usize) -> Option<&Value> {
    let inner = match error {
        Value::Array(errors) => errors.first(),
        error => error.get("error").filter(|error| error.is_object()),
    };
    inner.filter(|_| depth < MAX_DEPTH)
}

fn truncate(text: &str) -> String {
    text.chars().take(MAX_MESSAGE_CHARACTERS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// M5: the provider's message, code and status are found in all known JSON structures of errors.
    #[test]
    fn m5_errors_of_all_shapes_are_recognised() {
        let cases = [
            (json!({"message": "slow", "type": "rate", "code": "rate_limit"}), (None, Some("rate_limit"), "slow")),
            (json!({"message": "slow", "type": "rate", "code": null}), (None, Some("rate"), "slow")),
            (json!({"error": {"message": "bad", "code": 400}}), (Some(400), None, "bad")),
            (json!({"error": "gone", "status": "503"}), (Some(503), None, "gone")),
            (
                json!([{"error": {"code": 429, "message": "quota", "status": "RESOURCE_EXHAUSTED"}}]),
                (Some(429), Some("RESOURCE_EXHAUSTED"), "quota"),
            ),
            (
                json!({"message": "Provider returned error", "code": 502, "metadata": {"raw": "no capacity"}}),
                (Some(502), None, "Provider returned error: no capacity"),
            ),
            (
                json!({"object": "error", "message": "too long", "type": "Bad", "code": 400}),
                (Some(400), Some("Bad"), "too long"),
            ),
            (
                json!({"type": "error", "error": {"type": "overloaded_error", "message": "o"}}),
                (None, Some("overloaded_error"), "o"),
            ),
            (json!("just words"), (None, None, "just words")),
            (json!({"code": 7}), (None, None, "{\"code\":7}")),
            (json!({"detail": [{"msg": "field required"}]}), (None, None, "field required")),
        ];
        for (error, (status, code, message)) in cases {
            let code = code.map(str::to_owned);
            let expected = StreamError::Provider { status, code, message: message.to_owned() };
            assert_eq!(from_value(&error), expected, "{error}");
        }
        let StreamError::Provider { message, .. } = from_text("Internal Server Error\n") else { panic!() };
        assert_eq!(message, "Internal Server Error");
    }

    #[test]
    fn m5_empty_error_fields_are_not_errors() {
        for empty in ["null", "false", "\"\"", "{}"] {
            let field = serde_json::from_str::<&RawValue>(empty).unwrap();
            assert_eq!(from_field(Some(field)), Ok(()), "{empty}");
        }
        assert!(from_document(r#"{"type": "ping"}"#).is_none());
    }
}
