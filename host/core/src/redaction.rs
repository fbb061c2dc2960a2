//! Removes secrets from texts, also if a component that was given a secret returns it (rows 16 and 41). It finds a
//! secret in plain form and in the usual encodings. `host/docs/guide/secrets.md` lists what it cannot find.

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

/// Replaces a secret.
const MARK: &str = "(secret)";

/// Shorter values are not secrets but words such as `none`.
const SHORTEST: usize = 8;

/// Only this many bytes of a longer secret are searched for.
const LONGEST: usize = 16 * 1024;

/// The secrets that must not be shown.
#[derive(Clone, Default)]
pub struct Redaction {
    values: Arc<BTreeSet<String>>,
    /// None: there are no secrets.
    patterns: Option<Arc<Patterns>>,
}

impl Redaction {
    /// Redacts these values. For a value such as `Bearer KEY`, the part after the space is the secret. For a `Basic`
    /// value, the text that it encodes in Base64 is a secret too.
    pub fn new<'v>(values: impl IntoIterator<Item = &'v str>) -> Self {
        let mut secrets = BTreeSet::new();
        for value in values.into_iter().map(str::trim) {
            let secret = without_scheme(value);
            secrets.extend(words_in_base64(secret));
            secrets.insert(secret.to_owned());
        }
        secrets.retain(|secret| secret.len() >= SHORTEST);
        Self::of(secrets)
    }

    fn of(values: BTreeSet<String>) -> Self {
        let bytes: Vec<_> = values.iter().map(|value| value.as_bytes()[..value.len().min(LONGEST)].to_vec()).collect();
        let patterns = (!bytes.is_empty()).then(|| Arc::new(Patterns::new(&bytes)));
        Self { values: Arc::new(values), patterns }
    }

    /// Combines the secrets of both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        if other.values.is_subset(&self.values) {
            return self.clone();
        }
        if self.values.is_subset(&other.values) {
            return other.clone();
        }
        Self::of(self.values.union(&other.values).cloned().collect())
    }

    /// Whether there are no secrets to search for.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_none()
    }

    /// Redacts a complete text.
    pub fn whole(&self, text: String) -> String {
        self.replaced(text, Edges::Whole)
    }

    /// Redacts a text that may have been cut in the middle of a secret.
    pub fn text(&self, text: String) -> String {
        self.replaced(text, Edges::Cut)
    }

    /// Redacts bytes: each byte of a secret becomes a star. None: there was no secret.
    pub fn bytes(&self, bytes: &[u8], edges: Edges) -> Option<Vec<u8>> {
        if self.is_empty() || bytes.len() < SHORTEST {
            return None;
        }
        let mut stream = self.stream(Replacement::Stars, edges);
        let mut clean = stream.push(bytes);
        clean.extend(stream.finish());
        stream.found().then_some(clean)
    }

    /// Redacts the keys and texts of a value. The texts may have been cut.
    pub fn value(&self, value: Value) -> Value {
        self.each_text(value, Edges::Cut)
    }

    /// Redacts the keys and texts of a value whose texts are complete.
    pub fn whole_value(&self, value: Value) -> Value {
        self.each_text(value, Edges::Whole)
    }

    /// Whether the value contains no secret and no part of a secret that was cut.
    pub fn is_clean(&self, value: &Value) -> bool {
        let clean = |text: &String| self.bytes(text.as_bytes(), Edges::Cut).is_none();
        match value {
            Value::String(text) => clean(text),
            Value::Number(_) => !self.is_in_digits(value),
            Value::Array(items) => !self.is_in_digits(value) && items.iter().all(|item| self.is_clean(item)),
            Value::Object(fields) => fields.iter().all(|(name, value)| clean(name) && self.is_clean(value)),
            _ => true,
        }
    }

    /// Whether a number, a list of numbers or a list of short texts spells a secret.
    fn is_in_digits(&self, value: &Value) -> bool {
        let is_short = |item: &Value| item.is_number() || item.as_str().is_some_and(|text| text.len() < SHORTEST);
        let may_be = match value {
            Value::Number(_) => true,
            Value::Array(items) => items.iter().all(is_short),
            _ => false,
        };
        may_be && {
            // For a list of characters, the separators are ignored.
            let written = value.to_string();
            let joined: String =
                written.chars().filter(|character| !matches!(character, '"' | ',' | '[' | ']')).collect();
            [written, joined].iter().any(|text| self.bytes(text.as_bytes(), Edges::Whole).is_some())
        }
    }

    fn replaced(&self, text: String, edges: Edges) -> String {
        if self.is_empty() || text.len() < SHORTEST {
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

    fn each_text(&self, value: Value, edges: Edges) -> Value {
        if self.is_empty() {
            return value;
        }
        match value {
            Value::String(text) => Value::String(self.replaced(text, edges)),
            Value::Number(_) | Value::Array(_) if self.is_in_digits(&value) => Value::String(MARK.to_owned()),
            Value::Array(items) => items.into_iter().map(|item| self.each_text(item, edges)).collect(),
            Value::Object(fields) => {
                let each = |(name, value)| (self.replaced(name, edges), self.each_text(value, edges));
                fields.into_iter().map(each).collect()
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

/// If a value is text in Base64, returns that text and the part after its colon, which is a password.
fn words_in_base64(value: &str) -> Vec<String> {
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

/// Does not show the secrets.
impl fmt::Debug for Redaction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Redaction({})", self.values.len())
    }
}

#[cfg(test)]
mod tests;
