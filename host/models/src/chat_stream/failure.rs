//! Errors that a provider sends where a reply should be, in the shapes that servers give them.

use super::{StreamError, excerpt};
use serde_json::Value;
use serde_json::value::RawValue;

/// Most characters of a provider's message.
const MESSAGE_LIMIT: usize = 2000;

/// How deep an error may stand in errors.
const DEPTH: usize = 4;

/// The error that the field `error` of a chunk holds; none where it holds nothing.
pub(super) fn of_field(error: Option<&RawValue>) -> Result<(), StreamError> {
    let Some(error) = error else { return Ok(()) };
    match serde_json::from_str(error.get()) {
        Ok(Value::Null | Value::Bool(false)) => Ok(()),
        Ok(Value::String(message)) if message.is_empty() => Ok(()),
        Ok(Value::Object(fields)) if fields.is_empty() => Ok(()),
        Ok(error) => Err(of_value(&error)),
        Err(_) => Err(of_text(error.get())),
    }
}

/// The error that an event named `error`, or a document without a reply, is.
pub(super) fn of_text(text: &str) -> StreamError {
    match serde_json::from_str(text) {
        Ok(error) => of_value(&error),
        Err(_) => StreamError::Provider { status: None, code: None, message: bounded(text.trim()) },
    }
}

/// The error that a whole document without a reply describes; none where it describes none.
pub(super) fn of_document(text: &str) -> Option<StreamError> {
    let document: Value = serde_json::from_str(text).ok()?;
    message(&document, 0).is_some().then(|| of_value(&document))
}

/// The model's server ended the reply for a reason that makes it no reply.
pub(super) fn of_finish_reason(reason: &str) -> StreamError {
    let message = format!("the provider ended the reply with finish_reason `{}`", excerpt(reason));
    StreamError::Provider { status: None, code: Some(bounded(reason)), message }
}

fn of_value(error: &Value) -> StreamError {
    let message = message(error, 0).unwrap_or_else(|| error.to_string());
    StreamError::Provider { status: status(error, 0), code: code(error, 0), message: bounded(&message) }
}

fn message(error: &Value, depth: usize) -> Option<String> {
    if depth > DEPTH {
        return None;
    }
    match error {
        Value::String(message) => Some(message.clone()).filter(|message| !message.trim().is_empty()),
        Value::Array(errors) => message(errors.first()?, depth + 1),
        Value::Object(fields) => {
            let said = ["error", "message", "detail", "msg", "error_msg", "errors"];
            let said = said.iter().find_map(|key| message(fields.get(*key)?, depth + 1))?;
            // OpenRouter says in `metadata.raw` what the provider behind it said.
            let raw = error.pointer("/metadata/raw").and_then(Value::as_str).filter(|raw| !said.contains(raw));
            Some(raw.map_or_else(|| said.clone(), |raw| format!("{said}: {raw}")))
        }
        _ => None,
    }
}

/// An HTTP status, as a number or as a text with one.
fn status(error: &Value, depth: usize) -> Option<u16> {
    let number = |value: &Value| match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    let is_status = |status: &u16| (400..600).contains(status);
    let own = ["code", "status", "status_code", "http_status"];
    let own = own.iter().find_map(|key| u16::try_from(number(error.get(*key)?)?).ok().filter(is_status));
    own.or_else(|| status(inner(error, depth)?, depth + 1))
}

/// The provider's short name of the error.
fn code(error: &Value, depth: usize) -> Option<String> {
    if let Some(inner) = inner(error, depth) {
        return code(inner, depth + 1);
    }
    let is_name = |name: &&str| !name.is_empty() && *name != "error" && name.parse::<u16>().is_err();
    let name = ["code", "status", "type"].iter().find_map(|key| error.get(*key)?.as_str().filter(is_name));
    name.map(bounded)
}

fn inner(error: &Value, depth: usize) -> Option<&Value> {
    let inner = match error {
        Value::Array(errors) => errors.first(),
        error => error.get("error").filter(|error| error.is_object()),
    };
    inner.filter(|_| depth < DEPTH)
}

fn bounded(text: &str) -> String {
    text.chars().take(MESSAGE_LIMIT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// M5: the provider's own words, its code and its status, wherever they stand.
    #[test]
    fn m5_errors_in_all_shapes() {
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
        for (given, (status, code, message)) in cases {
            let code = code.map(str::to_owned);
            let expected = StreamError::Provider { status, code, message: message.to_owned() };
            assert_eq!(of_value(&given), expected, "{given}");
        }
        let StreamError::Provider { message, .. } = of_text("Internal Server Error\n") else { panic!() };
        assert_eq!(message, "Internal Server Error");
    }

    #[test]
    fn m5_some_fields_say_that_nothing_is_wrong() {
        for nothing in ["null", "false", "\"\"", "{}"] {
            let field = serde_json::from_str::<&RawValue>(nothing).unwrap();
            assert_eq!(of_field(Some(field)), Ok(()), "{nothing}");
        }
        assert!(of_document(r#"{"type": "ping"}"#).is_none());
    }
}
