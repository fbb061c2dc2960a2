//! The arguments of calls that need an approval: the arguments' canonical JSON, and the note that tells the model which
//! arguments a user edited.

use serde_json::Value;

/// Maximum number of characters of each changed value that are shown in the note about edited arguments.
const MAX_VALUE_LENGTH: usize = 200;
/// Maximum number of changed fields whose names are shown in the note about edited arguments.
const MAX_NAMED_FIELDS: usize = 10;

/// Returns the canonical JSON of a value: without spaces and with the keys in byte order. Equal values have the same
/// canonical JSON.
pub fn canonical_json(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    text
}

fn write(value: &Value, text: &mut String) {
    match value {
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                push_comma(index, text);
                write(item, text);
            }
            text.push(']');
        }
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_unstable_by_key(|(name, _)| name.as_bytes());
            text.push('{');
            for (index, (name, field)) in fields.into_iter().enumerate() {
                push_comma(index, text);
                text.push_str(&Value::from(name.as_str()).to_string());
                text.push(':');
                write(field, text);
            }
            text.push('}');
        }
        scalar => text.push_str(&scalar.to_string()),
    }
}

/// Writes a comma before an element, unless the element is the first.
fn push_comma(index: usize, text: &mut String) {
    if index > 0 {
        text.push(',');
    }
}

/// Returns a note that tells the model which arguments a user changed before the call ran. The note precedes the call's
/// result. The length of the note is limited, so that the note leaves room for the result.
pub fn edit_note(written: &Value, edited: &Value) -> String {
    let changes = match (written, edited) {
        (Value::Object(before), Value::Object(after)) => {
            let set = after.iter().filter(|(name, value)| before.get(*name) != Some(value));
            let set = set.map(|(name, value)| format!("{name} = {}", shortened(value)));
            let removed = before.keys().filter(|name| !after.contains_key(*name)).map(|name| format!("without {name}"));
            let mut changes: Vec<_> = set.chain(removed).collect();
            if changes.len() > MAX_NAMED_FIELDS {
                let more = changes.split_off(MAX_NAMED_FIELDS).len();
                changes.push(format!("{more} more"));
            }
            changes.join("; ")
        }
        _ => shortened(edited),
    };
    format!("[a person allowed this call with changed arguments: {changes}]")
}

fn shortened(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(MAX_VALUE_LENGTH) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn l17_equal_arguments_have_the_same_canonical_json() {
        let value: Value = serde_json::from_str(r#"{"b": [1, {"y": null, "x": "ä\n"}], "a": {}}"#).unwrap();
        let same: Value = serde_json::from_str(r#"{"a":{},"b":[1,{"x":"\u00e4\u000a","y":null}]}"#).unwrap();
        assert_eq!(canonical_json(&value), r#"{"a":{},"b":[1,{"x":"ä\n","y":null}]}"#);
        assert_eq!(canonical_json(&value), canonical_json(&same));
        for different in [json!([1, 2]), json!([2, 1]), json!({"a": 1}), json!({"a": "1"}), json!("{\"a\":1}")] {
            assert_ne!(canonical_json(&different), canonical_json(&json!({"a": 1.5})));
            let read: Value = serde_json::from_str(&canonical_json(&different)).unwrap();
            assert_eq!(read, different, "canonical JSON preserves the value");
        }
    }

    #[test]
    fn l17_the_model_is_told_which_arguments_changed() {
        let note = edit_note(&json!({"to": "x", "amount": 5, "note": "n"}), &json!({"to": "x", "amount": 1}));
        assert_eq!(note, "[a person allowed this call with changed arguments: amount = 1; without note]");
        let long = edit_note(&json!({}), &json!({"text": "x".repeat(10_000)}));
        assert!(long.chars().count() < 300, "{long}");
        let many: serde_json::Map<_, _> = (0..50).map(|n| (format!("f{n}"), json!(n))).collect();
        assert!(edit_note(&json!({}), &Value::Object(many)).ends_with("; 40 more]"));
    }
}
