//! Keeps secrets out of texts, also where somebody who was given one sends it back (limits and threats, row 16). Found is what
//! stands there as it is: what was encoded, or said in another way, is not.

use serde_json::Value;
use std::fmt;

/// What stands where a secret stood.
const MARK: &str = "(secret)";

/// Shorter values are no secrets, but words such as `none` that stand in place of one.
const SHORTEST: usize = 8;

/// So many characters of a secret at a cut text's end are what is left of it.
const SHORTEST_PART: usize = 6;

/// What must not be shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Redaction {
    /// Longest first, so that one within another leaves nothing.
    secrets: Vec<String>,
}

impl Redaction {
    /// Of these values. Of one such as `Bearer KEY` the part behind the space is as secret as the whole.
    pub fn new<'v>(values: impl IntoIterator<Item = &'v str>) -> Self {
        let mut secrets: Vec<String> = Vec::new();
        for value in values.into_iter().map(str::trim) {
            secrets.push(value.to_owned());
            secrets.extend(value.split_once(' ').map(|(_, rest)| rest.trim().to_owned()));
        }
        secrets.retain(|secret| secret.len() >= SHORTEST);
        secrets.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        secrets.dedup();
        Self { secrets }
    }

    /// Whether there is nothing to look for.
    pub fn is_empty(&self) -> bool {
        self.secrets.is_empty()
    }

    /// The text without secrets.
    pub fn whole(&self, text: String) -> String {
        let replace =
            |text: String, secret: &String| if text.contains(secret) { text.replace(secret, MARK) } else { text };
        self.secrets.iter().fold(text, replace)
    }

    /// The same of a text that may have been cut off in the middle of a secret.
    pub fn text(&self, mut text: String) -> String {
        if let Some(length) = self.secrets.iter().filter_map(|secret| part_at_end(&text, secret, SHORTEST_PART)).max() {
            text.replace_range(text.len() - length.., MARK);
        }
        self.whole(text)
    }

    /// The value without secrets, in its keys and texts.
    pub fn value(&self, value: Value) -> Value {
        if self.secrets.is_empty() {
            return value;
        }
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(items) => items.into_iter().map(|item| self.value(item)).collect(),
            Value::Object(fields) => {
                fields.into_iter().map(|(name, value)| (self.text(name), self.value(value))).collect()
            }
            other => other,
        }
    }

    /// Whether the value has none of them, and no part that was cut off.
    pub fn is_clean(&self, value: &Value) -> bool {
        let clean = |text: &String| {
            let found = |secret: &String| text.contains(secret) || part_at_end(text, secret, SHORTEST_PART).is_some();
            !self.secrets.iter().any(found)
        };
        match value {
            Value::String(text) => clean(text),
            Value::Array(items) => items.iter().all(|item| self.is_clean(item)),
            Value::Object(fields) => fields.iter().all(|(name, value)| clean(name) && self.is_clean(value)),
            _ => true,
        }
    }

    /// Bytes at the text's end that may be the beginning of a secret, whose rest has not come yet.
    pub fn unfinished(&self, text: &str) -> usize {
        self.secrets.iter().filter_map(|secret| part_at_end(text, secret, 1)).max().unwrap_or(0)
    }
}

/// Secrets are shown nowhere.
impl fmt::Debug for Redaction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Redaction({})", self.secrets.len())
    }
}

/// The length of the secret's beginning with which the text ends, if it is long enough to matter.
fn part_at_end(text: &str, secret: &str, shortest: usize) -> Option<usize> {
    let lengths = (shortest..secret.len()).rev();
    lengths.filter(|length| secret.is_char_boundary(*length)).find(|length| text.ends_with(&secret[..*length]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn row16_secrets_are_replaced_wherever_they_stand() {
        let redaction =
            Redaction::new(["sk-canary-1 ", "sk-canary-1-longer", "Bearer other-canary", "none", "sk-canary-1"]);
        let text = "sk-canary-1 sk-canary-1-longer other-canary none";
        assert_eq!(redaction.text(text.into()), "(secret) (secret) (secret) none");
        assert_eq!(redaction.text("cut off: sk-canary-1-lon".into()), "cut off: (secret)");
        assert_eq!(redaction.text("cut off: sk-can".into()), "cut off: (secret)");
        assert_eq!(redaction.whole("not cut off: sk-can".into()), "not cut off: sk-can");
        assert_eq!(redaction.text("sk-ca".into()), "sk-ca");
        let value = json!({"a sk-canary-1": ["x", {"b": "=sk-canary-1="}], "n": 1});
        assert_eq!(redaction.value(value), json!({"a (secret)": ["x", {"b": "=(secret)="}], "n": 1}));
        assert!(!redaction.is_clean(&json!([{"sk-canary-1": 1}])) && redaction.is_clean(&json!(["sk-ca", {"b": 1}])));
        assert_eq!(
            (redaction.unfinished("a s"), redaction.unfinished("a sk-can"), redaction.unfinished("a")),
            (1, 6, 0)
        );
        assert!(!format!("{redaction:?}").contains("canary"));
    }
}
