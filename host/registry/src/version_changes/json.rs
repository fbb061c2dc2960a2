//! Compares two JSON documents, and names each difference by a JSON pointer (RFC 6901).

use serde::Serialize;
use serde_json::Value;
use std::collections::HashSet;

/// Maximum number of differences that are listed.
const MAX_DIFFERENCES: usize = 100;

/// A value that differs between two documents.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// JSON pointer to the value. For an entry of a list without a fixed order, such as `required`, the pointer names
    /// the list.
    pub pointer: String,
    /// The value in the old document. None if the old document has no such value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// The value in the new document. None if the new document has no such value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

/// Returns the differences between two documents in the order of their pointers, and the number of differences that are
/// not listed.
pub(super) fn differences(before: &Value, after: &Value) -> (Vec<Difference>, usize) {
    let mut found = Found::default();
    found.compare("", Some(before), Some(after));
    (found.listed, found.unlisted)
}

#[derive(Default)]
struct Found {
    listed: Vec<Difference>,
    unlisted: usize,
}

impl Found {
    /// Compares two values. The depth of the recursion is limited, because the JSON in tool definitions is.
    fn compare(&mut self, pointer: &str, before: Option<&Value>, after: Option<&Value>) {
        match (before, after) {
            (Some(Value::Object(old)), Some(Value::Object(new))) => {
                let mut keys: Vec<_> = old.keys().chain(new.keys()).collect();
                keys.sort();
                keys.dedup();
                for key in keys {
                    let below = format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"));
                    self.compare(&below, old.get(key), new.get(key));
                }
            }
            (Some(Value::Array(old)), Some(Value::Array(new))) if is_plain(old) && is_plain(new) => {
                // The order of `required`, `enum` and `type` has no meaning.
                let texts = |list: &[Value]| list.iter().map(Value::to_string).collect::<HashSet<_>>();
                let (old_texts, new_texts) = (texts(old), texts(new));
                let is_missing = |texts: &HashSet<String>, value: &&Value| !texts.contains(&value.to_string());
                old.iter()
                    .filter(|value| is_missing(&new_texts, value))
                    .for_each(|value| self.add(pointer, Some(value), None));
                new.iter()
                    .filter(|value| is_missing(&old_texts, value))
                    .for_each(|value| self.add(pointer, None, Some(value)));
            }
            (Some(Value::Array(old)), Some(Value::Array(new))) => {
                for index in 0..old.len().max(new.len()) {
                    self.compare(&format!("{pointer}/{index}"), old.get(index), new.get(index));
                }
            }
            (before, after) if before != after => self.add(pointer, before, after),
            _ => {}
        }
    }

    fn add(&mut self, pointer: &str, before: Option<&Value>, after: Option<&Value>) {
        if self.listed.len() >= MAX_DIFFERENCES {
            self.unlisted += 1;
            return;
        }
        self.listed.push(Difference { pointer: pointer.to_owned(), before: before.cloned(), after: after.cloned() });
    }
}

fn is_plain(list: &[Value]) -> bool {
    list.iter().all(|value| !value.is_array() && !value.is_object())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(before: &Value, after: &Value) -> Vec<String> {
        let side = |value: &Option<Value>| value.as_ref().map_or("-".to_owned(), Value::to_string);
        let (found, _) = differences(before, after);
        found.iter().map(|found| format!("{} {} {}", found.pointer, side(&found.before), side(&found.after))).collect()
    }

    #[test]
    fn p11_differences_are_named_by_pointers() {
        let before = json!({"a/b": 1, "same": [1, {"x": 2}], "required": ["p", "q"], "list": [{"x": 1}], "gone": {}});
        let after =
            json!({"a/b": 2, "same": [1, {"x": 2}], "required": ["r", "q"], "list": [{"x": 2}, 3], "new~": null});
        let expected = [
            "/a~1b 1 2",
            "/gone {} -",
            "/list/0/x 1 2",
            "/list/1 - 3",
            "/new~0 - null",
            "/required \"p\" -",
            "/required - \"r\"",
        ];
        assert_eq!(shown(&before, &after), expected);
        assert_eq!(shown(&json!({"enum": [1, 2]}), &json!({"enum": [2, 1]})), [""; 0]);
        assert_eq!(shown(&json!([1]), &json!({})), [" [1] {}"]);
    }

    #[test]
    fn the_number_of_differences_is_limited() {
        let many = |offset: usize| (0..1_000).map(|number| (number.to_string(), json!(number + offset))).collect();
        let (listed, unlisted) = differences(&Value::Object(many(0)), &Value::Object(many(1)));
        assert_eq!((listed.len(), unlisted), (MAX_DIFFERENCES, 1_000 - MAX_DIFFERENCES));
    }
}
