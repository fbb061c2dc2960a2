//! Decides which content of a session leaves the host, and removes secrets from it.

use agent_core::redaction::Redaction;
use regex::{Regex, RegexBuilder};
use serde_json::Value;

/// Replaces the parts of a text that match a configured pattern.
const REDACTED: &str = "(redacted)";
/// Maximum size of a compiled pattern in bytes.
const MAX_PATTERN_BYTES: usize = 1 << 20;
/// Maximum length of a name, such as the name of a tool, in characters.
const MAX_LABEL_CHARACTERS: usize = 256;

/// How much content the spans contain: inputs, outputs, messages, arguments, results, paths, URLs and error messages.
/// Names, times, tokens and costs are always exported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ContentLevel {
    /// No content.
    Off,
    /// The first 1,000 characters of each text, and the last 10 messages of each prompt.
    #[default]
    Shortened,
    /// All content, but at most 64 KiB per text, 1 MiB per span and 200 messages per prompt.
    Complete,
}

impl ContentLevel {
    /// Maximum length of a text in bytes.
    fn text_bytes(self) -> usize {
        match self {
            Self::Off => 0,
            Self::Shortened => 4_000,
            Self::Complete => 64 << 10,
        }
    }

    fn text_characters(self) -> usize {
        match self {
            Self::Off => 0,
            Self::Shortened => 1_000,
            Self::Complete => usize::MAX,
        }
    }

    /// Maximum total length of the texts of a span in bytes.
    pub(crate) fn span_bytes(self) -> usize {
        match self {
            Self::Off => 0,
            Self::Shortened => 64 << 10,
            Self::Complete => 1 << 20,
        }
    }

    /// Maximum number of messages of a prompt. The latest messages are exported.
    pub(crate) fn messages(self) -> usize {
        match self {
            Self::Off => 0,
            Self::Shortened => 10,
            Self::Complete => 200,
        }
    }
}

/// A pattern that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{pattern}` is not a usable regular expression: {problem}")]
pub struct InvalidPattern {
    /// The pattern.
    pub pattern: String,
    /// Why it cannot be used.
    problem: String,
}

/// Removes secrets and the matches of configured patterns from every text of a span, and shortens the texts.
#[derive(Clone, Debug, Default)]
pub struct Scrubber {
    level: ContentLevel,
    redaction: Redaction,
    patterns: Vec<Regex>,
}

impl Scrubber {
    /// Creates a scrubber. Patterns are regular expressions, which are matched in linear time.
    pub fn new(level: ContentLevel, redaction: Redaction, patterns: &[String]) -> Result<Self, InvalidPattern> {
        let compiled = patterns.iter().map(|pattern| {
            let regex = RegexBuilder::new(pattern).size_limit(MAX_PATTERN_BYTES).build();
            regex.map_err(|error| InvalidPattern { pattern: pattern.clone(), problem: error.to_string() })
        });
        Ok(Self { level, redaction, patterns: compiled.collect::<Result<_, _>>()? })
    }

    /// How much content is exported.
    pub fn level(&self) -> ContentLevel {
        self.level
    }

    /// Returns a scrubber that exports this much content.
    #[must_use]
    pub fn with_level(&self, level: ContentLevel) -> Self {
        Self { level, ..self.clone() }
    }

    /// Returns a scrubber that also removes the matches of the other scrubber's patterns.
    #[must_use]
    pub fn with_patterns_of(&self, other: &Self) -> Self {
        let patterns = self.patterns.iter().chain(&other.patterns).cloned().collect();
        Self { patterns, ..self.clone() }
    }

    /// Returns a scrubber that also removes these secrets.
    #[must_use]
    pub fn with_secrets(&self, secrets: &Redaction) -> Self {
        Self { redaction: self.redaction.and(secrets), ..self.clone() }
    }

    /// Returns content of the session as it may leave the host. Returns `None` if no content may leave. Secrets are
    /// removed before the text is shortened, because a part of a secret would not be found.
    pub(crate) fn content(&self, text: impl Into<String>) -> Option<String> {
        if self.level == ContentLevel::Off {
            return None;
        }
        let text = self.redacted(text.into());
        let bytes = text.floor_char_boundary(self.level.text_bytes().min(text.len()));
        let characters = text.char_indices().nth(self.level.text_characters()).map_or(text.len(), |(end, _)| end);
        Some(match bytes.min(characters) {
            end if end == text.len() => text,
            end => format!("{}… [{} of {} bytes]", &text[..end], end, text.len()),
        })
    }

    /// Returns a name as it may leave the host. Names leave the host at each level.
    pub(crate) fn label(&self, text: impl Into<String>) -> String {
        let text = self.redacted(text.into());
        match text.char_indices().nth(MAX_LABEL_CHARACTERS) {
            None => text,
            Some((end, _)) => format!("{}…", &text[..end]),
        }
    }

    fn redacted(&self, text: String) -> String {
        let mut text = self.redaction.text(self.without_spelled_secrets(text));
        for pattern in &self.patterns {
            if let std::borrow::Cow::Owned(replaced) = pattern.replace_all(&text, REDACTED) {
                text = replaced;
            }
        }
        text
    }

    /// Removes secrets that JSON data spells as numbers or as short strings, which are not found in its text.
    fn without_spelled_secrets(&self, text: String) -> String {
        if self.redaction.is_empty() || !text.starts_with(['{', '[']) {
            return text;
        }
        match serde_json::from_str::<Value>(&text) {
            Ok(value) if !self.redaction.is_clean(&value) => self.redaction.value(value).to_string(),
            _ => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECRET: &str = "sk-canary-0123456789";

    fn scrubber(level: ContentLevel, patterns: &[&str]) -> Scrubber {
        let patterns: Vec<String> = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
        Scrubber::new(level, Redaction::new([SECRET]), &patterns).expect("valid patterns")
    }

    #[test]
    fn o1_content_is_off_shortened_or_complete() {
        let long = "ä".repeat(5_000);
        assert_eq!(scrubber(ContentLevel::Off, &[]).content(long.clone()), None);
        let short = scrubber(ContentLevel::Shortened, &[]).content(long.clone()).expect("content");
        assert_eq!(short, format!("{}… [2000 of 10000 bytes]", "ä".repeat(1_000)));
        assert_eq!(scrubber(ContentLevel::Complete, &[]).content(long.clone()), Some(long));
        let huge = scrubber(ContentLevel::Complete, &[]).content("ä".repeat(100_000)).expect("content");
        assert!(huge.len() < (64 << 10) + 40, "{}", huge.len());
        assert_eq!(scrubber(ContentLevel::Off, &[]).label("tool"), "tool");
    }

    #[test]
    fn o1_configured_patterns_are_removed_everywhere() {
        let scrubber = scrubber(ContentLevel::Complete, &[r"\b\d{4}-\d{4}\b", "(?i)patient [a-z]+"]);
        let text = scrubber.content("card 1234-5678 of Patient Smith").expect("content");
        assert_eq!(text, "card (redacted) of (redacted)");
        assert_eq!(scrubber.label("1234-5678"), "(redacted)");
        let error = Scrubber::new(ContentLevel::Off, Redaction::default(), &["(".to_owned()]).expect_err("invalid");
        assert!(error.to_string().starts_with("`(` is not a usable regular expression"), "{error}");
        let huge = Scrubber::new(ContentLevel::Off, Redaction::default(), &["(a{1000}){1000}".to_owned()]);
        assert!(huge.is_err(), "the size of patterns is bounded");
    }

    proptest! {
        // Row 16: a secret never leaves the host, wherever it is in a text and wherever the text is shortened.
        #[test]
        fn row_16_no_part_of_a_secret_leaves(before in "[a-z ]{0,1100}", after in "[a-z ]{0,200}", encoded: bool) {
            let secret = if encoded { SECRET.replace('-', "%2D") } else { SECRET.to_owned() };
            for level in [ContentLevel::Shortened, ContentLevel::Complete] {
                let scrubber = scrubber(level, &[]);
                for text in [scrubber.content(format!("{before}{secret}{after}")), Some(scrubber.label(secret.clone()))] {
                    let text = text.expect("content");
                    prop_assert!(!text.contains("canary") && !text.contains("0123456789"), "{}", text);
                }
            }
        }
    }
}
