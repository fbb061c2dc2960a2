//! Types for the JSON of one chunk of a stream or of one complete reply, in the Chat Completions API and its dialects.
//! Strings without escapes are not copied, and fields that are rarely needed are parsed only when they are used.

use super::StreamError;
use super::lenient_fields::{Content, Count, Text};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Chunk<'a> {
    #[serde(borrow)]
    pub(super) id: Text<'a>,
    #[serde(borrow)]
    pub(super) model: Text<'a>,
    /// Some servers set this field to `error` in a chunk that reports an error.
    #[serde(borrow)]
    pub(super) object: Text<'a>,
    /// Some servers set this field to `error` in a chunk that reports an error.
    #[serde(borrow)]
    pub(super) r#type: Text<'a>,
    #[serde(borrow)]
    pub(super) choices: Option<Vec<Choice<'a>>>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) x_groq: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Choice<'a> {
    pub(super) index: Count,
    #[serde(borrow)]
    pub(super) delta: Option<MessageFields<'a>>,
    /// A complete reply has this field instead of `delta`. One server sends both fields in a stream, and its `message`
    /// repeats all earlier content.
    #[serde(borrow)]
    pub(super) message: Option<MessageFields<'a>>,
    #[serde(borrow)]
    pub(super) finish_reason: Text<'a>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// Output of the model: the complete output in a document, or one piece of the output in a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct MessageFields<'a> {
    #[serde(borrow)]
    pub(super) content: Content<'a>,
    #[serde(borrow)]
    pub(super) refusal: Text<'a>,
    #[serde(borrow)]
    pub(super) reasoning_content: Content<'a>,
    #[serde(borrow)]
    pub(super) reasoning: Content<'a>,
    #[serde(borrow)]
    pub(super) reasoning_details: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) tool_calls: Option<Vec<Option<ToolCallDelta<'a>>>>,
    #[serde(borrow)]
    pub(super) extra_content: Option<&'a RawValue>,
}

/// A complete tool call in a document, or one piece of a tool call in a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ToolCallDelta<'a> {
    pub(super) index: Count,
    #[serde(borrow)]
    pub(super) id: Text<'a>,
    #[serde(borrow)]
    pub(super) function: Option<Function<'a>>,
    #[serde(borrow)]
    pub(super) extra_content: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Function<'a> {
    #[serde(borrow)]
    pub(super) name: Text<'a>,
    /// JSON text in a string, which may arrive in pieces. Some servers send the JSON value directly instead of a string
    /// that contains it.
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
}

/// JSON object in a `usage` field. Chat Completions and newer APIs use different names for the same counts.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireUsage {
    pub(super) prompt_tokens: Count,
    pub(super) completion_tokens: Count,
    pub(super) input_tokens: Count,
    pub(super) output_tokens: Count,
}

/// JSON object in the `x_groq` field, in which Groq sends usage and errors.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct GroqExtension<'a> {
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// Parses a chunk and passes the parsed chunk to `handle`.
pub(super) fn with_chunk(
    json: &str,
    handle: impl FnOnce(Chunk<'_>) -> Result<(), StreamError>,
) -> Result<(), StreamError> {
    // Check that the JSON is an object, because Serde would accept an array as well and use its items as the values of
    // the fields, in order.
    if json.trim_ascii_start().starts_with('{')
        && let Ok(chunk) = serde_json::from_str(json)
    {
        return handle(chunk);
    }
    let repaired = repair(json)?;
    match serde_json::from_str(&repaired) {
        Ok(chunk) => handle(chunk),
        Err(error) => Err(StreamError::invalid(format!("it is not a Chat Completions reply ({error})"), json)),
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

/// Replaces each unpaired surrogate escape by U+FFFD. Servers produce unpaired surrogate escapes if they split text
/// between the two halves of a surrogate pair (RFC 8259, section 8.2). Returns `None` if the JSON contains no unpaired
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

    fn read(json: &str) -> Result<String, StreamError> {
        let mut text = String::new();
        with_chunk(json, |chunk| {
            text = chunk.id.0.into_owned();
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
