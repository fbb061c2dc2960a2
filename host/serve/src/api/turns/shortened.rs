//! Shortens texts of a session, so that an answer with many of them stays small.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// Maximum length of a text in an overview, in characters.
const MAX_CHARACTERS: usize = 2_000;
/// Maximum number of items of a list in an overview.
const MAX_ITEMS: usize = 50;

/// A text, or the beginning of a long text.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Shortened {
    /// The text, which has at most 2,000 characters.
    pub(crate) text: String,
    /// Whether the rest of the text was left out.
    pub(crate) cut: bool,
}

/// Shortens a text.
pub(crate) fn shortened(text: &str) -> Shortened {
    let (text, cut) = beginning(text, MAX_CHARACTERS);
    Shortened { text, cut }
}

/// Returns the beginning of a text, and whether something was left out.
pub(crate) fn beginning(text: &str, characters: usize) -> (String, bool) {
    match text.char_indices().nth(characters) {
        Some((end, _)) => (text[..end].to_owned(), true),
        None => (text.to_owned(), false),
    }
}

/// Shortens all texts and lists of a JSON value, whose depth the store limits.
pub(crate) fn shortened_value(value: Value) -> Value {
    match value {
        Value::String(text) => {
            let (mut text, cut) = beginning(&text, MAX_CHARACTERS);
            if cut {
                text.push('…');
            }
            Value::String(text)
        }
        Value::Array(items) => Value::Array(items.into_iter().take(MAX_ITEMS).map(shortened_value).collect()),
        Value::Object(fields) => {
            let fields = fields.into_iter().take(MAX_ITEMS);
            Value::Object(fields.map(|(name, value)| (name, shortened_value(value))).collect())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn texts_are_cut_between_characters() {
        let long = "ä".repeat(MAX_CHARACTERS + 1);
        let Shortened { text, cut } = shortened(&long);
        assert_eq!((text.chars().count(), cut), (MAX_CHARACTERS, true));
        assert!(!shortened(&long[..long.len() - 2]).cut);
    }

    #[test]
    fn values_are_shortened_at_every_depth() {
        let value = json!({"a": [{"b": "x".repeat(3_000)}], "c": vec![1; 60], "d": null});
        let value = shortened_value(value);
        assert_eq!(value["a"][0]["b"].as_str().map(|text| text.chars().count()), Some(MAX_CHARACTERS + 1));
        assert_eq!((value["c"].as_array().map(Vec::len), &value["d"]), (Some(MAX_ITEMS), &Value::Null));
    }
}
