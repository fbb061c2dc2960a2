//! Call arguments in approvals: one canonical text for equal arguments, and a description of what a user edited.

use serde_json::Value;

/// Maximum number of characters of a value that the note shows.
const SHOWN_VALUE: usize = 200;
/// Maximum number of changed fields that the note names.
const SHOWN_FIELDS: usize = 10;

/// JSON in canonical form: without spaces and with the keys in byte order. Equal data gives the same text.
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
                separate(index, text);
                write(item, text);
            }
            text.push(']');
        }
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_unstable_by_key(|(name, _)| name.as_bytes());
            text.push('{');
            for (index, (name, field)) in fields.into_iter().enumerate() {
                separate(index, text);
                text.push_str(&Value::from(name.as_str()).to_string());
                text.push(':');
                write(field, text);
            }
            text.push('}');
        }
        single => text.push_str(&single.to_string()),
    }
}

fn separate(index: usize, text: &mut String) {
    if index > 0 {
        text.push(',');
    }
}

/// Tells the model which arguments a user changed before the call ran. The text precedes the call's result and is
/// shortened, so that the result stays visible.
pub fn edit_note(written: &Value, edited: &Value) -> String {
    let changes = match (written, edited) {
        (Value::Object(before), Value::Object(after)) => {
            let set = after.iter().filter(|(name, value)| before.get(*name) != Some(value));
            let set = set.map(|(name, value)| format!("{name} = {}", shortened(value)));
            let removed = before.keys().filter(|name| !after.contains_key(*name)).map(|name| format!("without {name}"));
            let mut changes: Vec<_> = set.chain(removed).collect();
            if changes.len() > SHOWN_FIELDS {
                let more = changes.split_off(SHOWN_FIELDS).len();
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
    match text.char_indices().nth(SHOWN_VALUE) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// L17
    #[test]
    fn l17_equal_arguments_have_one_form() {
        let one: Value = serde_json::from_str(r#"{"b": [1, {"y": null, "x": "ä\n"}], "a": {}}"#).unwrap();
        let other: Value = serde_json::from_str(r#"{"a":{},"b":[1,{"x":"\u00e4\u000a","y":null}]}"#).unwrap();
        assert_eq!(canonical_json(&one), r#"{"a":{},"b":[1,{"x":"ä\n","y":null}]}"#);
        assert_eq!(canonical_json(&one), canonical_json(&other));
        for different in [json!([1, 2]), json!([2, 1]), json!({"a": 1}), json!({"a": "1"}), json!("{\"a\":1}")] {
            assert_ne!(canonical_json(&different), canonical_json(&json!({"a": 1.5})));
            let read: Value = serde_json::from_str(&canonical_json(&different)).unwrap();
            assert_eq!(read, different, "nothing is lost");
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
