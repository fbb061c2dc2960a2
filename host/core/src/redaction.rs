//! Removes secrets from texts, including a secret that a component received and then returns (rows 16 and 41). Secrets
//! are found unencoded and in common encodings. `host/docs/guide/secrets.md` lists the forms of a secret that are
//! found, and examples of forms that are not found.

mod automaton;
mod encodings;
mod escapes;
mod stream;

pub use stream::{Edges, RedactionStream, Replacement};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use encodings::Patterns;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// The text that replaces a secret.
const MARK: &str = "(secret)";

/// Minimum length of a secret in bytes. Shorter values are usually not secrets but words such as `none`.
const MIN_SECRET_LENGTH: usize = 8;

/// Maximum length in bytes of the part of a secret that is searched for. The remaining bytes of a longer secret
/// are ignored.
const MAX_SEARCHED_LENGTH: usize = 16 * 1024;

/// The secrets that are removed from texts.
#[derive(Clone, Default)]
pub struct Redaction {
    values: Arc<BTreeSet<String>>,
    /// The compiled search patterns. `None` means that there are no secrets.
    patterns: Option<Arc<Patterns>>,
}

impl Redaction {
    /// Creates a redaction that removes these values. In a value such as `Bearer KEY`, only the part after the space
    /// is secret. If a value is text in Base64, such as a value for `Basic` authentication, the decoded text is
    /// secret too.
    pub fn new<'v>(values: impl IntoIterator<Item = &'v str>) -> Self {
        let mut secrets = BTreeSet::new();
        for value in values.into_iter().map(str::trim) {
            let secret = without_scheme(value);
            secrets.extend(texts_in_base64(secret));
            secrets.insert(secret.to_owned());
        }
        secrets.retain(|secret| secret.len() >= MIN_SECRET_LENGTH);
        Self::from_values(secrets)
    }

    fn from_values(values: BTreeSet<String>) -> Self {
        let bytes: Vec<_> =
            values.iter().map(|value| value.as_bytes()[..value.len().min(MAX_SEARCHED_LENGTH)].to_vec()).collect();
        let patterns = (!bytes.is_empty()).then(|| Arc::new(Patterns::new(&bytes)));
        Self { values: Arc::new(values), patterns }
    }

    /// Returns a redaction that removes the secrets of both `self` and `other`.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        if other.values.is_subset(&self.values) {
            return self.clone();
        }
        if self.values.is_subset(&other.values) {
            return other.clone();
        }
        Self::from_values(self.values.union(&other.values).cloned().collect())
    }

    /// Returns true if there are no secrets to search for.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_none()
    }

    /// Redacts a text that has not been cut.
    pub fn whole(&self, text: String) -> String {
        self.redacted_text(text, Edges::Whole)
    }

    /// Redacts a text whose beginning or end may have been cut off in the middle of a secret.
    pub fn text(&self, text: String) -> String {
        self.redacted_text(text, Edges::Cut)
    }

    /// Redacts bytes: each byte of a secret is replaced by `*`. `None` means that the bytes contain no secret.
    pub fn bytes(&self, bytes: &[u8], edges: Edges) -> Option<Vec<u8>> {
        if self.is_empty() || bytes.len() < MIN_SECRET_LENGTH {
            return None;
        }
        let mut stream = self.stream(Replacement::Stars, edges);
        let mut clean = stream.push(bytes);
        clean.extend(stream.finish());
        stream.found().then_some(clean)
    }

    /// Redacts the keys and strings of a JSON value. The strings may have been cut in the middle of a secret.
    pub fn value(&self, value: Value) -> Value {
        self.redacted_value(value, Edges::Cut)
    }

    /// Redacts the keys and strings of a JSON value whose strings are complete.
    pub fn whole_value(&self, value: Value) -> Value {
        self.redacted_value(value, Edges::Whole)
    }

    /// Whether the value contains no secret, not even the beginning or end of a secret that was cut.
    pub fn is_clean(&self, value: &Value) -> bool {
        let clean = |text: &String| self.bytes(text.as_bytes(), Edges::Cut).is_none();
        match value {
            Value::String(text) => clean(text),
            Value::Number(_) => !self.spells_secret(value),
            Value::Array(items) => !self.spells_secret(value) && items.iter().all(|item| self.is_clean(item)),
            Value::Object(fields) => fields.iter().all(|(name, value)| clean(name) && self.is_clean(value)),
            _ => true,
        }
    }

    /// Whether a number, a list of numbers or a list of short strings spells a secret.
    fn spells_secret(&self, value: &Value) -> bool {
        let is_short =
            |item: &Value| item.is_number() || item.as_str().is_some_and(|text| text.len() < MIN_SECRET_LENGTH);
        let may_spell_secret = match value {
            Value::Number(_) => true,
            Value::Array(items) => items.iter().all(is_short),
            _ => false,
        };
        may_spell_secret && {
            // The characters of a secret may be separate strings in the list, so the text of the list is also searched
            // without quotation marks, commas and brackets.
            let written = value.to_string();
            let joined: String =
                written.chars().filter(|character| !matches!(character, '"' | ',' | '[' | ']')).collect();
            [written, joined].iter().any(|text| self.bytes(text.as_bytes(), Edges::Whole).is_some())
        }
    }

    fn redacted_text(&self, text: String, edges: Edges) -> String {
        if self.is_empty() || text.len() < MIN_SECRET_LENGTH {
            return text;
        }
        let mut stream = self.stream(Replacement::Mark, edges);
        let mut clean = stream.push(text.as_bytes());
        clean.extend(stream.finish());
        if !stream.found() {
            return text;
        }
        String::from_utf8_lossy(&clean).into_owned()
    }

    fn redacted_value(&self, value: Value, edges: Edges) -> Value {
        if self.is_empty() {
            return value;
        }
        match value {
            Value::String(text) => Value::String(self.redacted_text(text, edges)),
            Value::Number(_) | Value::Array(_) if self.spells_secret(&value) => Value::String(MARK.to_owned()),
            Value::Array(items) => items.into_iter().map(|item| self.redacted_value(item, edges)).collect(),
            Value::Object(fields) => {
                let redacted_field =
                    |(name, value)| (self.redacted_text(name, edges), self.redacted_value(value, edges));
                fields.into_iter().map(redacted_field).collect()
            }
            other => other,
        }
    }
}

/// Removes the name of an authentication scheme from the beginning of a value.
fn without_scheme(value: &str) -> &str {
    match value.split_once(' ') {
        Some((scheme, rest)) if scheme.bytes().all(|byte| byte.is_ascii_alphabetic()) && !rest.trim().contains(' ') => {
            rest.trim()
        }
        _ => value,
    }
}

/// If a value is text in Base64, returns the decoded text. If the decoded text contains a colon, also returns the part
/// after the first colon, because this part may be a password.
fn texts_in_base64(value: &str) -> Vec<String> {
    let decoded = STANDARD.decode(value).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let Some(text) = decoded.filter(|text| !text.chars().any(char::is_control)) else { return Vec::new() };
    let password = text.split_once(':').map(|(_, password)| password.to_owned());
    std::iter::once(text).chain(password).collect()
}

impl PartialEq for Redaction {
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values
    }
}

impl Eq for Redaction {}

/// Shows the number of secrets, not the secrets themselves.
impl fmt::Debug for Redaction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Redaction({})", self.values.len())
    }
}

#[cfg(test)]
mod tests;
