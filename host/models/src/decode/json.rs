//! Parses the JSON of events and documents, and repairs JSON that is nearly valid.

use super::StreamError;
use serde_json::Value;

/// Reason why a JSON object was not processed.
pub(super) enum Failure {
    /// The object does not have the expected types.
    Json(serde_json::Error),
    /// The object was read, and its content is an error.
    Stream(StreamError),
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::Json(error)
    }
}

impl From<StreamError> for Failure {
    fn from(error: StreamError) -> Self {
        Self::Stream(error)
    }
}

/// Passes the text of a JSON object to `handle`, which parses and processes it. If `handle` cannot parse the text, the
/// text is repaired and `handle` is called again. `handle` must not change any state before it has parsed the text.
/// `expected` names the kind of object for error messages.
pub(super) fn with_object(
    json: &str,
    expected: &str,
    mut handle: impl FnMut(&str) -> Result<(), Failure>,
) -> Result<(), StreamError> {
    // Check that the JSON is an object, because Serde would accept an array as well and use its items as the values of
    // the fields, in order.
    if json.trim_ascii_start().starts_with('{') {
        match handle(json) {
            Ok(()) => return Ok(()),
            Err(Failure::Stream(error)) => return Err(error),
            Err(Failure::Json(_)) => {}
        }
    }
    let repaired = repair(json)?;
    match handle(&repaired) {
        Ok(()) => Ok(()),
        Err(Failure::Stream(error)) => Err(error),
        Err(Failure::Json(error)) => Err(StreamError::invalid(format!("it is not {expected} ({error})"), json)),
    }
}

/// Repairs JSON that the typed parser rejects. If a key occurs more than once in an object, the last value of this key
/// is used, as in most JSON libraries. If the JSON is an array, the first item of this array is used, because one
/// provider sends its errors as arrays.
fn repair(json: &str) -> Result<String, StreamError> {
    let value: Value = match serde_json::from_str(json) {
        Ok(value) => value,
        Err(error) if error.is_eof() => return Err(StreamError::Truncated),
        Err(error) => {
            let repaired = replace_lone_surrogates(json).and_then(|json| serde_json::from_str(&json).ok());
            repaired.ok_or_else(|| StreamError::invalid(format!("it is not JSON ({error})"), json))?
        }
    };
    let value = match value {
        Value::Array(items) => items.into_iter().next().unwrap_or_default(),
        value => value,
    };
    if value.is_object() {
        Ok(value.to_string())
    } else {
        Err(StreamError::invalid("it is not a JSON object".to_owned(), json))
    }
}

/// Replaces each unpaired surrogate escape by U+FFFD. Servers produce such escapes if they split text between the
/// two halves of a surrogate pair (RFC 8259, section 8.2). Returns `None` if the JSON contains no unpaired
/// surrogate escapes.
fn replace_lone_surrogates(json: &str) -> Option<String> {
    let mut repaired = String::with_capacity(json.len());
    let (mut rest, mut has_replaced) = (json, false);
    while let Some(position) = rest.find('\\') {
        let (before, escape) = rest.split_at(position);
        repaired.push_str(before);
        let length = match (surrogate(escape), escape.get(6..).and_then(surrogate)) {
            (Some(Surrogate::High), Some(Surrogate::Low)) => 12,
            (Some(_), _) => {
                (repaired, has_replaced) = (repaired + "\\ufffd", true);
                rest = &escape[6..];
                continue;
            }
            // Copy the escaped character together with the backslash before it, because the escaped character may be a
            // backslash too.
            (None, _) => escape.char_indices().nth(2).map_or(escape.len(), |(position, _)| position),
        };
        repaired.push_str(&escape[..length]);
        rest = &escape[length..];
    }
    repaired.push_str(rest);
    has_replaced.then_some(repaired)
}

enum Surrogate {
    High,
    Low,
}

/// Returns the kind of the surrogate escape at the start of the text, if there is one.
fn surrogate(text: &str) -> Option<Surrogate> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    match u16::from_str_radix(digits, 16).ok()? {
        0xd800..=0xdbff => Some(Surrogate::High),
        0xdc00..=0xdfff => Some(Surrogate::Low),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn read(json: &str) -> Result<String, StreamError> {
        let mut text = String::new();
        with_object(json, "an object", |json| {
            let fields: HashMap<String, String> = serde_json::from_str(json)?;
            text = fields["id"].clone();
            Ok(())
        })?;
        Ok(text)
    }

    /// Row 26: an unpaired surrogate escape is replaced, and the other text of the reply does not change.
    #[test]
    fn row_26_lone_surrogates_are_replaced() {
        for (escaped, expected) in [
            (r"\ud83d\ude00", "\u{1f600}"),
            (r"a\ud83d", "a\u{fffd}"),
            (r"\ude00b", "\u{fffd}b"),
            (r"\ud83d\ud83d\ude00", "\u{fffd}\u{1f600}"),
            (r"\ud83d\n\ude00", "\u{fffd}\n\u{fffd}"),
            (r"\\ud83d\ud83d", "\\ud83d\u{fffd}"),
            (r"\\\ud83d", "\\\u{fffd}"),
        ] {
            let json = format!("{{\"id\":\"{escaped}\"}}");
            assert_eq!(read(&json).unwrap(), expected, "{escaped}");
        }
        for broken in [r#"{"id":"\ud83"}"#, r#"{"id":"\ud83d"#, r#"{"id":"\udzzz"}"#, "{\"id\":\"\\"] {
            assert!(read(broken).is_err(), "{broken}");
        }
    }
}
