//! Keeps keys out of messages and records, also where a server sends them back (limits and threats, row 16).

use crate::configuration::ProviderConfig;
use serde_json::Value;
use url::Url;

/// What stands where a secret stood.
const MARK: &str = "(secret)";

/// Shorter values are no secrets, but words such as `none` that stand in place of a key.
const SHORTEST: usize = 8;

/// So many characters of a secret at a text's end are what is left of it.
const SHORTEST_PART: usize = 6;

/// What must not be shown.
#[derive(Clone)]
pub(crate) struct Redaction {
    /// Longest first, so that one within another leaves nothing.
    secrets: Vec<String>,
}

impl Redaction {
    /// The key, every configured header, and the credentials in the base URL.
    pub(crate) fn new(config: &ProviderConfig, base_url: &Url) -> Self {
        let mut secrets: Vec<String> = Vec::new();
        let values = config.key.iter().chain(config.headers.iter().map(|(_, value)| value));
        for value in values.map(|value| value.reveal().trim()) {
            secrets.push(value.to_owned());
            // `Bearer KEY` in a configured header: the key alone is as secret.
            secrets.extend(value.split_once(' ').map(|(_, rest)| rest.trim().to_owned()));
        }
        secrets.extend(base_url.password().map(str::to_owned));
        secrets.extend(base_url.query_pairs().filter(|(name, _)| name != "api-version").map(|(_, value)| value.into()));
        secrets.retain(|secret| secret.len() >= SHORTEST);
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self { secrets }
    }

    /// The text without secrets, also where it was cut off in the middle of one.
    pub(crate) fn text(&self, mut text: String) -> String {
        if let Some(length) = self.secrets.iter().filter_map(|secret| part_at_end(&text, secret)).max() {
            text.replace_range(text.len() - length.., MARK);
        }
        let whole =
            |text: String, secret: &String| if text.contains(secret) { text.replace(secret, MARK) } else { text };
        self.secrets.iter().fold(text, whole)
    }

    /// The value without secrets, in its keys and texts.
    pub(crate) fn value(&self, value: Value) -> Value {
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
}

/// The length of the secret's beginning with which the text ends, if it is long enough to matter.
fn part_at_end(text: &str, secret: &str) -> Option<usize> {
    let lengths = (SHORTEST_PART..secret.len()).rev();
    lengths.filter(|length| secret.is_char_boundary(*length)).find(|length| text.ends_with(&secret[..*length]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::{Secret, Timeouts};
    use serde_json::json;

    /// Row 16
    #[test]
    fn row16_secrets_are_replaced_wherever_they_stand() {
        let base_url = "https://me:pass-in-url@x.example/v1?code=query-secret&api-version=2024-10-21";
        let config = ProviderConfig {
            name: "x".into(),
            base_url: base_url.into(),
            key: Some(Secret::new("sk-canary-1 ")),
            key_advice: String::new(),
            headers: vec![
                ("x-key".into(), Secret::new("sk-canary-1-longer")),
                ("authorization".into(), Secret::new("Bearer other-canary")),
                ("x-short".into(), Secret::new("none")),
            ],
            timeouts: Timeouts::default(),
            models: Default::default(),
        };
        let redaction = Redaction::new(&config, &Url::parse(base_url).unwrap());
        let text = "sk-canary-1 sk-canary-1-longer other-canary pass-in-url query-secret 2024-10-21 none";
        assert_eq!(redaction.text(text.into()), "(secret) (secret) (secret) (secret) (secret) 2024-10-21 none");
        assert_eq!(redaction.text("cut off: sk-canary-1-lon".into()), "cut off: (secret)");
        assert_eq!(redaction.text("cut off: sk-can".into()), "cut off: (secret)");
        assert_eq!(redaction.text("sk-ca".into()), "sk-ca");
        let value = json!({"a sk-canary-1": ["x", {"b": "=sk-canary-1="}], "n": 1});
        assert_eq!(redaction.value(value), json!({"a (secret)": ["x", {"b": "=(secret)="}], "n": 1}));
        assert!(!format!("{config:?}").contains("canary"));
    }
}
