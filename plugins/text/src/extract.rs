//! What a regular expression finds in a text, with its groups and where it stands.

use regex_lite::{Captures, Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

/// Longest pattern, in bytes.
const MAX_PATTERN: usize = 1_000;

/// Memory that a compiled pattern may take, so that `(a{1000}){1000}` is refused.
const MAX_COMPILED: usize = 1 << 20;

/// Text that all matches shown may have together, in bytes.
const MAX_SHOWN: usize = 256 * 1024;

/// Whether `a` also matches `A`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetterCase {
    /// `a` is not `A`.
    Distinct,
    /// `a` is `A`.
    Ignored,
}

/// What was found.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub struct Extraction {
    /// In the order of the text.
    pub matches: Vec<Match>,
    /// All matches, those left out included.
    pub match_count: usize,
    /// Matches beyond the limit.
    pub left_out: usize,
}

/// One place where the pattern matches.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub struct Match {
    /// Line of its first character, from 1.
    pub line: usize,
    /// Character of that line, from 1.
    pub column: usize,
    /// The whole match.
    pub text: String,
    /// By name, or by number where a group has none; null for a group that took no part. Empty without groups.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub groups: Map<String, Value>,
}

/// A pattern that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Not a regular expression of the supported syntax.
    #[error("not a regular expression: {0}. Look-around and back-references are not supported.")]
    Syntax(String),
    /// Longer than 1,000 bytes.
    #[error("the pattern has {0} bytes; at most {MAX_PATTERN} are taken")]
    TooLong(usize),
}

/// Finds all matches and shows at most `limit` of them. Time grows with the text, whatever the pattern is.
pub fn extract(text: &str, pattern: &str, case: LetterCase, limit: usize) -> Result<Extraction, PatternError> {
    if pattern.len() > MAX_PATTERN {
        return Err(PatternError::TooLong(pattern.len()));
    }
    let regex = RegexBuilder::new(pattern)
        .case_insensitive(case == LetterCase::Ignored)
        .multi_line(true)
        .size_limit(MAX_COMPILED)
        .build()
        .map_err(|error| PatternError::Syntax(error.to_string()))?;
    let mut place = Place { line: 1, line_start: 0, offset: 0 };
    let mut shown = 0;
    let mut matches = Vec::new();
    let mut match_count = 0;
    for captures in regex.captures_iter(text) {
        match_count += 1;
        let Some(whole) = captures.get(0) else { continue };
        shown += whole.as_str().len();
        if matches.len() < limit && shown <= MAX_SHOWN && match_count == matches.len() + 1 {
            place.advance(text, whole.start());
            let column = text[place.line_start..whole.start()].chars().count() + 1;
            let groups = groups(&regex, &captures);
            matches.push(Match { line: place.line, column, text: whole.as_str().to_owned(), groups });
        }
    }
    Ok(Extraction { left_out: match_count - matches.len(), matches, match_count })
}

struct Place {
    line: usize,
    line_start: usize,
    offset: usize,
}

impl Place {
    fn advance(&mut self, text: &str, to: usize) {
        let passed = &text[self.offset..to];
        self.line += passed.matches('\n').count();
        if let Some(last) = passed.rfind('\n') {
            self.line_start = self.offset + last + 1;
        }
        self.offset = to;
    }
}

fn groups(regex: &Regex, captures: &Captures<'_>) -> Map<String, Value> {
    let names = regex.capture_names().enumerate().skip(1);
    let entries = names.map(|(number, name)| {
        let name = name.map_or_else(|| number.to_string(), str::to_owned);
        let value = captures.get(number).map_or(Value::Null, |group| Value::String(group.as_str().to_owned()));
        (name, value)
    });
    entries.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(text: &str, pattern: &str) -> Value {
        let extraction = extract(text, pattern, LetterCase::Distinct, 100).expect("the pattern is good");
        serde_json::to_value(extraction).expect("an extraction is JSON")
    }

    #[test]
    fn finds_named_and_numbered_groups_with_their_place() {
        let text = "id: 7\nähm id: 12b\n";
        assert_eq!(
            found(text, r"id: (?<number>\d+)(b)?"),
            json!({
                "matches": [
                    { "line": 1, "column": 1, "text": "id: 7", "groups": { "number": "7", "2": null } },
                    { "line": 2, "column": 5, "text": "id: 12b", "groups": { "number": "12", "2": "b" } },
                ],
                "match_count": 2,
                "left_out": 0,
            })
        );
    }

    #[test]
    fn anchors_are_for_lines_and_empty_matches_are_found() {
        assert_eq!(found("a\nb\n", "^.$")["match_count"], 2);
        assert_eq!(found("ab", "x*")["match_count"], 3);
        assert_eq!(found("", "x")["match_count"], 0);
    }

    #[test]
    fn tells_how_many_are_left_out() {
        let extraction = extract("a a A a", "a", LetterCase::Ignored, 2).expect("the pattern is good");
        assert_eq!((extraction.matches.len(), extraction.match_count, extraction.left_out), (2, 4, 2));
        let large = "x".repeat(MAX_SHOWN / 2 + 1);
        let extraction = extract(&format!("{large} {large} y"), "x+|y", LetterCase::Distinct, 9).expect("good");
        assert_eq!((extraction.matches.len(), extraction.left_out), (1, 2), "the text shown is bounded too");
    }

    #[test]
    fn refuses_bad_and_explosive_patterns() {
        for pattern in ["(", "a{2,1}", r"(?=a)", r"(a)\1", "(a{900}){900}", "[z-a]"] {
            let error = extract("a", pattern, LetterCase::Distinct, 1);
            assert!(matches!(error, Err(PatternError::Syntax(_))), "{pattern}: {error:?}");
        }
        assert_eq!(extract("a", &"a".repeat(1_001), LetterCase::Distinct, 1), Err(PatternError::TooLong(1_001)));
    }

    #[test]
    fn nested_repetition_stays_linear() {
        let text = format!("{}b", "a".repeat(20_000));
        assert_eq!(found(&text, "^(a+)+$")["match_count"], 0);
    }
}
