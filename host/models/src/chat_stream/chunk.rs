//! One chunk of a stream, or one whole reply, as Chat Completions and its dialects write it. Nothing is copied that has
//! no escapes; what is rarely there or rarely needed stays JSON until it is.

use super::StreamError;
use super::lenient::{Content, Count, Text};
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
    /// `error` in the errors of some servers.
    #[serde(borrow)]
    pub(super) object: Text<'a>,
    /// The same, of others.
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
    pub(super) delta: Option<Said<'a>>,
    /// In place of `delta` in a whole reply. Beside it, one server repeats here what it has said so far.
    #[serde(borrow)]
    pub(super) message: Option<Said<'a>>,
    #[serde(borrow)]
    pub(super) finish_reason: Text<'a>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// What the model said: a piece of it, or all.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Said<'a> {
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
    pub(super) tool_calls: Option<Vec<Option<CallPiece<'a>>>>,
    #[serde(borrow)]
    pub(super) extra_content: Option<&'a RawValue>,
}

/// A tool call, or a piece of one.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CallPiece<'a> {
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
    /// A text with JSON in it, in pieces; of some servers, the JSON itself.
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
}

/// `usage`, by the names of Chat Completions or of newer APIs.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireUsage {
    pub(super) prompt_tokens: Count,
    pub(super) completion_tokens: Count,
    pub(super) input_tokens: Count,
    pub(super) output_tokens: Count,
}

/// `x_groq`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Groq<'a> {
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// Reads a chunk, and hands it to `take`.
pub(super) fn with_chunk(
    json: &str,
    take: impl FnOnce(Chunk<'_>) -> Result<(), StreamError>,
) -> Result<(), StreamError> {
    // An array would be read as the fields in their order.
    if json.trim_ascii_start().starts_with('{')
        && let Ok(chunk) = serde_json::from_str(json)
    {
        return take(chunk);
    }
    let repaired = repaired(json)?;
    match serde_json::from_str(&repaired) {
        Ok(chunk) => take(chunk),
        Err(error) => Err(StreamError::invalid(format!("it is no Chat Completions reply ({error})"), json)),
    }
}

/// Where a key is given twice the last one counts, as in most JSON libraries; of a list, as one provider sends its errors
/// in, the first item does.
fn repaired(json: &str) -> Result<String, StreamError> {
    let value: Value = match serde_json::from_str(json) {
        Ok(value) => value,
        Err(error) if error.is_eof() => return Err(StreamError::Cut),
        Err(error) => {
            let whole = with_whole_characters(json).and_then(|json| serde_json::from_str(&json).ok());
            whole.ok_or_else(|| StreamError::invalid(format!("it is no JSON ({error})"), json))?
        }
    };
    let value = match value {
        Value::Array(items) => items.into_iter().next().unwrap_or_default(),
        value => value,
    };
    if value.is_object() {
        Ok(value.to_string())
    } else {
        Err(StreamError::invalid("it is no JSON object".to_owned(), json))
    }
}

/// Puts U+FFFD for each escaped half of a surrogate pair that stands alone, as a server writes it that cuts its text between the two
/// halves (RFC 8259, section 8.2). None where there is no such half.
fn with_whole_characters(json: &str) -> Option<String> {
    let mut whole = String::with_capacity(json.len());
    let (mut rest, mut found) = (json, false);
    while let Some(place) = rest.find('\\') {
        let (before, escape) = rest.split_at(place);
        whole.push_str(before);
        let length = match (surrogate(escape), escape.get(6..).and_then(surrogate)) {
            (Some(Surrogate::High), Some(Surrogate::Low)) => 12,
            (Some(_), _) => {
                (whole, found) = (whole + "\\ufffd", true);
                rest = &escape[6..];
                continue;
            }
            // The escaped character may be a backslash itself.
            (None, _) => escape.char_indices().nth(2).map_or(escape.len(), |(place, _)| place),
        };
        whole.push_str(&escape[..length]);
        rest = &escape[length..];
    }
    whole.push_str(rest);
    found.then_some(whole)
}

enum Surrogate {
    High,
    Low,
}

/// Which half the text begins with, if it begins with one.
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

    /// Row 26: half a character costs that character, and not the reply.
    #[test]
    fn row_26_lone_surrogates_are_replaced() {
        for (given, expected) in [
            (r"\ud83d\ude00", "\u{1f600}"),
            (r"a\ud83d", "a\u{fffd}"),
            (r"\ude00b", "\u{fffd}b"),
            (r"\ud83d\ud83d\ude00", "\u{fffd}\u{1f600}"),
            (r"\ud83d\n\ude00", "\u{fffd}\n\u{fffd}"),
            (r"\\ud83d\ud83d", "\\ud83d\u{fffd}"),
            (r"\\\ud83d", "\\\u{fffd}"),
        ] {
            let json = format!("{{\"id\":\"{given}\"}}");
            assert_eq!(read(&json).unwrap(), expected, "{given}");
        }
        for broken in [r#"{"id":"\ud83"}"#, r#"{"id":"\ud83d"#, r#"{"id":"\udzzz"}"#, "{\"id\":\"\\"] {
            assert!(read(broken).is_err(), "{broken}");
        }
    }
}
