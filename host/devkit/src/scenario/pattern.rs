//! Patterns: expectations about a text or a JSON value in a scenario.

use crate::diff::diff;
use regex::Regex;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// A message without a diff shows at most this number of characters of the actual text.
const MAX_EXCERPT: usize = 600;

/// An expectation about a text, or about the JSON value that the text contains.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Pattern(Parts);

/// The parts of a pattern. A text matches the pattern if it matches every part that is set.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Parts {
    /// The text to which the actual text must be equal. Line breaks at the end of the texts are ignored.
    text: Option<String>,
    /// Strings that the text must contain.
    contains: Texts,
    /// Strings that the text must not contain.
    lacks: Texts,
    /// Regular expressions, each of which must match a part of the text.
    matches: Texts,
    /// The JSON value to which the actual value must be equal.
    json: Option<Value>,
    /// The JSON value that the actual value must include. The objects of the actual value may have additional keys,
    /// and the lists of the actual value may have additional items at the end.
    includes: Option<Value>,
    /// The expected values of parts of the JSON value. The keys are JSON pointers to these parts.
    at: BTreeMap<String, Value>,
    /// Regular expressions that parts of the JSON value must match. The keys are JSON pointers to these parts. A
    /// regular expression is applied to the content of a string, and to the JSON text of any other value.
    at_matches: BTreeMap<String, String>,
}

/// A list of strings. In the file, a single string may be written instead of a list.
#[derive(Clone, Debug, Default, PartialEq)]
struct Texts(Vec<String>);

/// A difference between a pattern and the actual text or value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mismatch {
    pub(crate) expected: String,
    pub(crate) found: String,
    pub(crate) diff: Option<String>,
}

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMore;
        impl<'de> Visitor<'de> for OneOrMore {
            type Value = Texts;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string, or a list of strings")
            }
            fn visit_str<E>(self, text: &str) -> Result<Texts, E> {
                Ok(Texts(vec![text.to_owned()]))
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut list: A) -> Result<Texts, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = list.next_element()? {
                    texts.push(text);
                }
                Ok(Texts(texts))
            }
        }
        deserializer.deserialize_any(OneOrMore)
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrTable;
        impl<'de> Visitor<'de> for TextOrTable {
            type Value = Pattern;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("the whole text, or a table such as { contains = \"…\" }")
            }
            fn visit_str<E>(self, text: &str) -> Result<Pattern, E> {
                Ok(Pattern(Parts { text: Some(text.to_owned()), ..Parts::default() }))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Pattern, A::Error> {
                Parts::deserialize(MapAccessDeserializer::new(map)).map(Pattern)
            }
        }
        deserializer.deserialize_any(TextOrTable)
    }
}

impl Pattern {
    /// Returns a pattern that requires exactly the given JSON value.
    pub(crate) fn exact_json(value: Value) -> Self {
        Self(Parts { json: Some(value), ..Parts::default() })
    }

    /// Returns the reason why the pattern is invalid, or None if the pattern is valid. The reason is the end of a
    /// sentence that starts with the pattern's key.
    pub(crate) fn problem(&self) -> Option<String> {
        if self.0 == Parts::default() {
            return Some("is empty: set `text`, `contains`, `lacks`, `matches`, `json`, `includes` or `at`".into());
        }
        let wrong =
            |pattern: &String| Regex::new(pattern).err().map(|error| format!("is not a regular expression: {error}"));
        let pointers = self.0.at.keys().chain(self.0.at_matches.keys());
        let is_invalid = |pointer: &String| !pointer.is_empty() && !pointer.starts_with('/');
        let pointer = pointers.clone().find(|pointer| is_invalid(pointer));
        let pointer = pointer.map(|pointer| format!("has {pointer:?}, which is not a JSON pointer: start it with `/`"));
        let wrong = self.0.matches.0.iter().chain(self.0.at_matches.values()).find_map(wrong);
        wrong.or(pointer).or_else(|| self.0.useless_part())
    }

    /// Returns a mismatch for each part of the pattern that does not match the text. The parts for JSON values are
    /// compared with `structured` if it is set. If `structured` is not set, these parts are compared with the JSON
    /// value that the text contains.
    pub(crate) fn mismatches(&self, text: &str, structured: Option<&Value>) -> Vec<Mismatch> {
        let parts = &self.0;
        let mut found = Vec::new();
        if let Some(wanted) =
            parts.text.as_ref().filter(|wanted| wanted.trim_end_matches('\n') != text.trim_end_matches('\n'))
        {
            let expected = format!("the text {:?}", short(wanted));
            found.push(Mismatch { expected, found: quoted(text), diff: Some(diff(wanted, text)) });
        }
        for wanted in parts.contains.0.iter().filter(|wanted| !text.contains(wanted.as_str())) {
            found.push(Mismatch::of(format!("a text that contains {wanted:?}"), quoted(text)));
        }
        for unwanted in parts.lacks.0.iter().filter(|unwanted| text.contains(unwanted.as_str())) {
            found.push(Mismatch::of(format!("a text without {unwanted:?}"), quoted(text)));
        }
        for pattern in parts.matches.0.iter().filter(|pattern| !is_match(pattern, text)) {
            found.push(Mismatch::of(format!("a text that matches {pattern:?}"), quoted(text)));
        }
        if parts.wants_json() {
            let parsed = structured.cloned().or_else(|| serde_json::from_str(text).ok());
            match parsed {
                Some(json) => parts.mismatches_of(&json, &mut found),
                None => found.push(Mismatch::of("JSON".to_owned(), quoted(text))),
            }
        }
        found
    }
}

impl Parts {
    /// Returns a problem if a part of the pattern would match every text or no text.
    fn useless_part(&self) -> Option<String> {
        let lists = [("contains", &self.contains), ("lacks", &self.lacks), ("matches", &self.matches)];
        for (key, texts) in lists {
            if texts.0.iter().any(String::is_empty) {
                return Some(match key {
                    "lacks" => {
                        "has `lacks = \"\"`, which matches nothing: write the text that must be absent".to_owned()
                    }
                    _ => format!(
                        "has `{key} = \"\"`, which matches anything: write the expected text, or `text = \"\"` for an empty text"
                    ),
                });
            }
        }
        if matches!(&self.includes, Some(Value::Object(keys)) if keys.is_empty())
            || matches!(&self.includes, Some(Value::Array(items)) if items.is_empty())
        {
            return Some(
                "has an empty `includes`, which matches any table or list: write the expected content".to_owned(),
            );
        }
        let empty = self.at_matches.iter().find(|(_, pattern)| pattern.is_empty());
        if let Some((pointer, _)) = empty {
            return Some(format!(
                "has an empty regular expression at {pointer:?}, which matches anything: write the expected text"
            ));
        }
        None
    }

    fn wants_json(&self) -> bool {
        self.json.is_some() || self.includes.is_some() || !self.at.is_empty() || !self.at_matches.is_empty()
    }

    fn mismatches_of(&self, json: &Value, found: &mut Vec<Mismatch>) {
        if let Some(wanted) = self.json.as_ref().filter(|wanted| *wanted != json) {
            let diff = Some(diff(&pretty(wanted), &pretty(json)));
            found.push(Mismatch { expected: short(&wanted.to_string()), found: short(&json.to_string()), diff });
        }
        if let Some((pointer, wanted, actual)) = self.includes.as_ref().and_then(|wanted| missing(wanted, json, "")) {
            let actual = actual.map_or_else(|| "nothing".to_owned(), |actual| short(&actual.to_string()));
            let pointer = if pointer.is_empty() { "a value".to_owned() } else { pointer };
            found.push(Mismatch::of(format!("{pointer} that includes {wanted}"), actual));
        }
        for (pointer, wanted) in &self.at {
            match json.pointer(pointer) {
                Some(actual) if actual == wanted => {}
                actual => {
                    let actual = actual.map_or_else(
                        || format!("nothing at this pointer in {}", short(&json.to_string())),
                        Value::to_string,
                    );
                    found.push(Mismatch::of(format!("{wanted} at {pointer:?}"), actual));
                }
            }
        }
        for (pointer, pattern) in &self.at_matches {
            let actual =
                json.pointer(pointer).map(|actual| actual.as_str().map_or_else(|| actual.to_string(), str::to_owned));
            if !actual.as_deref().is_some_and(|actual| is_match(pattern, actual)) {
                let actual = actual.map_or_else(
                    || format!("nothing at this pointer in {}", short(&json.to_string())),
                    |actual| quoted(&actual),
                );
                found.push(Mismatch::of(format!("a match of {pattern:?} at {pointer:?}"), actual));
            }
        }
    }
}

impl Mismatch {
    fn of(expected: String, found: String) -> Self {
        Self { expected, found, diff: None }
    }
}

/// Finds the first part of `wanted` that is missing in `json`. Returns the JSON pointer to the part, the value in
/// `wanted` at this pointer, and the value in `json` at this pointer (None if `json` has no such value).
fn missing<'v>(wanted: &'v Value, json: &'v Value, pointer: &str) -> Option<(String, &'v Value, Option<&'v Value>)> {
    let step = |key: &str| format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"));
    match (wanted, json) {
        (Value::Object(wanted), Value::Object(actual)) => {
            wanted.iter().find_map(|(key, value)| match actual.get(key) {
                Some(actual) => missing(value, actual, &step(key)),
                None => Some((step(key), value, None)),
            })
        }
        (Value::Array(wanted), Value::Array(actual)) => {
            wanted.iter().enumerate().find_map(|(index, value)| match actual.get(index) {
                Some(actual) => missing(value, actual, &step(&index.to_string())),
                None => Some((step(&index.to_string()), value, None)),
            })
        }
        _ => (wanted != json).then(|| (pointer.to_owned(), wanted, Some(json))),
    }
}

fn is_match(pattern: &str, text: &str) -> bool {
    // An invalid pattern never gets here, because it was rejected when the file was read.
    Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(text))
}

/// Quotes a text for a message. Long texts are shortened.
pub(crate) fn quoted(text: &str) -> String {
    format!("{:?}", short(text))
}

fn short(text: &str) -> String {
    match text.char_indices().nth(MAX_EXCERPT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(pattern: Value) -> Pattern {
        serde_json::from_value(pattern).expect("a pattern")
    }

    /// S4: each part of a pattern matches the expected text, and a mismatch reports the expectation.
    #[test]
    fn s4_patterns_match_or_report_mismatches() {
        let text = r#"{"name": "Ada", "tags": ["a", "b"], "n": 3}"#;
        let matching = [
            json!(text),
            json!({"contains": ["Ada", "tags"], "lacks": "Bob", "matches": "\"n\": [0-9]}$"}),
            json!({"json": {"name": "Ada", "tags": ["a", "b"], "n": 3}}),
            json!({"includes": {"tags": ["a"]}, "at": {"/tags/1": "b"}, "at_matches": {"/n": "^3$", "/name": "^A"}}),
        ];
        for pattern in matching {
            assert_eq!(of(pattern.clone()).mismatches(text, None), [], "{pattern}");
        }
        let not_matching = [
            (json!("Ada"), "the text \"Ada\""),
            (json!({"contains": "Bob"}), "a text that contains \"Bob\""),
            (json!({"lacks": "Ada"}), "a text without \"Ada\""),
            (json!({"matches": "^Ada"}), "a text that matches \"^Ada\""),
            (json!({"json": {"n": 3}}), "{\"n\":3}"),
            (json!({"includes": {"tags": ["b"]}}), "/tags/0 that includes \"b\""),
            (json!({"includes": {"tags": ["a", "b", "c"]}}), "/tags/2 that includes \"c\""),
            (json!({"at": {"/n": 4}}), "4 at \"/n\""),
            (json!({"at_matches": {"/x": "."}}), "a match of \".\" at \"/x\""),
        ];
        for (pattern, expected) in not_matching {
            let found: Vec<_> =
                of(pattern).mismatches(text, None).into_iter().map(|mismatch| mismatch.expected).collect();
            assert_eq!(found, [expected]);
        }
        assert_eq!(of(json!({"at": {"/a": 1}})).mismatches("not JSON", None)[0].expected, "JSON");
        assert_eq!(of(json!({"at": {"/a": 1}})).mismatches("not JSON", Some(&json!({"a": 1}))), []);
    }

    /// Invalid patterns, and patterns that would match every text or no text, are rejected.
    #[test]
    fn rejects_invalid_patterns() {
        let problem = |pattern: Value| of(pattern).problem().expect("a problem");
        assert!(problem(json!({})).starts_with("is empty"));
        assert!(problem(json!({"matches": "("})).starts_with("is not a regular expression"));
        assert!(problem(json!({"at": {"a": 1}})).contains("not a JSON pointer"));
        for useless in [
            json!({"contains": ""}),
            json!({"contains": ["a", ""]}),
            json!({"matches": ""}),
            json!({"at_matches": {"/a": ""}}),
        ] {
            let found = problem(useless);
            assert!(found.contains("anything"), "{found}");
        }
        assert!(problem(json!({"lacks": ""})).contains("matches nothing"));
        assert!(problem(json!({"contains": []})).starts_with("is empty"));
        assert!(problem(json!({"includes": {}})).contains("matches any"));
        assert_eq!(of(json!({"contains": "a"})).problem(), None);
        assert!(serde_json::from_value::<Pattern>(json!({"contain": "a"})).is_err());
    }
}
