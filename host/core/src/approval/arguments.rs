//! Arguments as approvals see them: one text for equal arguments, and in words what a person has changed.

use serde_json::Value;

/// Characters of a value that the note shows.
const SHOWN_VALUE: usize = 200;
/// Changed fields that the note names.
const SHOWN_FIELDS: usize = 10;

/// JSON in one form: no spaces, and keys in the order of their bytes. Equal data give the same text, whoever wrote them.
pub fn canonical_json(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    text
}

fn write(value: &Value, text: &mut String) {
    match value {
        Value::Array(items) => {
            text.push('[');
            for (place, item) in items.iter().enumerate() {
                separate(place, text);
                write(item, text);
            }
            text.push(']');
        }
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_unstable_by_key(|(name, _)| name.as_bytes());
            text.push('{');
            for (place, (name, field)) in fields.into_iter().enumerate() {
                separate(place, text);
                text.push_str(&Value::from(name.as_str()).to_string());
                text.push(':');
                write(field, text);
            }
            text.push('}');
        }
        single => text.push_str(&single.to_string()),
    }
}

fn separate(place: usize, text: &mut String) {
    if place > 0 {
        text.push(',');
    }
}

/// For the model, before the result of a call that ran with other arguments than it wrote: which. Shortened, since the
/// result itself must still be seen.
pub fn edit_note(written: &Value, edited: &Value) -> String {
    let changes = match (written, edited) {
        (Value::Object(before), Value::Object(after)) => {
            let set = after.iter().filter(|(name, value)| before.get(*name) != Some(value));
            let set = set.map(|(name, value)| format!("{name} = {}", shortened(value)));
            let gone = before.keys().filter(|name| !after.contains_key(*name)).map(|name| format!("without {name}"));
            let mut changes: Vec<_> = set.chain(gone).collect();
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
    fn l17_the_model_is_told_what_was_changed() {
        let note = edit_note(&json!({"to": "x", "amount": 5, "note": "n"}), &json!({"to": "x", "amount": 1}));
        assert_eq!(note, "[a person allowed this call with changed arguments: amount = 1; without note]");
        let long = edit_note(&json!({}), &json!({"text": "x".repeat(10_000)}));
        assert!(long.chars().count() < 300, "{long}");
        let many: serde_json::Map<_, _> = (0..50).map(|n| (format!("f{n}"), json!(n))).collect();
        assert!(edit_note(&json!({}), &Value::Object(many)).ends_with("; 40 more]"));
    }
}
