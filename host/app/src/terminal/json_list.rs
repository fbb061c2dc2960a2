//! Shows JSON results as lists that are easy to read, with one line for each entry.

use serde_json::{Map, Value};

/// Maximum depth of nested lists. Deeper values are shown as JSON.
const MAX_DEPTH: usize = 4;
/// Maximum number of lines, so that a large result costs little.
const MAX_LINES: usize = 10_000;
/// Maximum number of characters of an entry on one line. Longer entries are shown with one line for each field.
const MAX_ENTRY: usize = 160;

/// Returns the entries of a JSON array or object, with one line for each entry or field. Returns `None` if the text is not an
/// array or object.
pub(super) fn lines_of(text: &str) -> Option<Vec<String>> {
    if !text.trim_start().starts_with(['{', '[']) {
        return None;
    }
    let value: Value = serde_json::from_str(text).ok()?;
    let mut lines = Vec::new();
    match &value {
        Value::Array(entries) if entries.is_empty() => return None,
        Value::Array(entries) => add_entries(entries, 0, &mut lines),
        Value::Object(fields) if fields.is_empty() => return None,
        Value::Object(fields) => add_fields(fields, 0, &mut lines),
        _ => return None,
    }
    Some(lines)
}

fn add_entries(entries: &[Value], depth: usize, lines: &mut Vec<String>) {
    let indent = "  ".repeat(depth);
    for entry in entries.iter().take(MAX_LINES.saturating_sub(lines.len())) {
        match entry {
            Value::Object(fields) if one_line(fields).is_none() && depth < MAX_DEPTH => {
                let first = lines.len();
                add_fields(fields, depth + 1, lines);
                if let Some(line) = lines.get_mut(first) {
                    *line = format!("{indent}- {}", line.trim_start());
                }
            }
            Value::Object(fields) => {
                let entry = one_line(fields).unwrap_or_else(|| entry.to_string());
                lines.push(format!("{indent}- {entry}"));
            }
            _ => lines.push(format!("{indent}- {}", scalar(entry))),
        }
    }
}

fn add_fields(fields: &Map<String, Value>, depth: usize, lines: &mut Vec<String>) {
    let indent = "  ".repeat(depth);
    for (name, value) in fields.iter().take(MAX_LINES.saturating_sub(lines.len())) {
        match value {
            Value::Array(entries) if !entries.is_empty() && depth < MAX_DEPTH => {
                lines.push(format!("{indent}{name}:"));
                add_entries(entries, depth + 1, lines);
            }
            Value::Object(fields) if !fields.is_empty() && depth < MAX_DEPTH => {
                lines.push(format!("{indent}{name}:"));
                add_fields(fields, depth + 1, lines);
            }
            _ => lines.push(format!("{indent}{name}: {}", scalar(value))),
        }
    }
}

/// Returns the fields on one line, if all of them are short and not nested.
fn one_line(fields: &Map<String, Value>) -> Option<String> {
    if fields.is_empty() || fields.values().any(|value| value.is_array() || value.is_object()) {
        return None;
    }
    let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name}: {}", scalar(value))).collect();
    let line = fields.join(", ");
    (line.chars().count() <= MAX_ENTRY).then_some(line)
}

/// Returns a text of one line without quotation marks, and each other value as JSON.
fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) if is_plain(text) => text.clone(),
        _ => value.to_string(),
    }
}

/// Returns whether a text cannot be taken for another value, or for several fields.
fn is_plain(text: &str) -> bool {
    let is_other = text.parse::<f64>().is_ok() || ["true", "false", "null"].contains(&text);
    !is_other && !text.is_empty() && text.trim() == text && !text.contains(['\n', '\r', '"']) && !text.contains(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(value: &Value) -> String {
        lines_of(&value.to_string()).map(|lines| lines.join("\n")).unwrap_or_default()
    }

    #[test]
    fn shows_one_line_for_each_entry() {
        let entries = json!([
            {"kind": "file", "name": "a.txt", "size": 12},
            {"kind": "folder", "name": "b, c", "size": null},
            "plain",
            "12",
            [1, 2]
        ]);
        insta::assert_snapshot!(shown(&entries), @r#"
        - kind: file, name: a.txt, size: 12
        - kind: folder, name: "b, c", size: null
        - plain
        - "12"
        - [1,2]
        "#);
    }

    #[test]
    fn shows_nested_values_with_indentation() {
        let value =
            json!({"count": 2, "files": [{"name": "a", "tags": ["x", "y"]}], "more": {"next": "p2"}, "none": []});
        insta::assert_snapshot!(shown(&value), @r"
        count: 2
        files:
          - name: a
            tags:
              - x
              - y
        more:
          next: p2
        none: []
        ");
    }

    #[test]
    fn other_texts_are_not_changed() {
        for text in ["", "words", "{not json", "[]", "{}", "12", "\"text\"", "[1] and more"] {
            assert_eq!(lines_of(text), None, "{text}");
        }
        let deep = (0..100).fold(json!(1), |value, _| json!({ "a": value }));
        assert!(shown(&deep).lines().count() <= MAX_DEPTH + 1, "{}", shown(&deep));
    }
}
