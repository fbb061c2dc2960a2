//! Finds matches of a regular expression in a text, with the groups and the position of each match.

use regex_lite::{Captures, Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

/// The maximum length of a pattern in bytes.
const MAX_PATTERN: usize = 1_000;

/// The maximum memory of a compiled pattern in bytes. The limit rejects patterns such as `(a{1000}){1000}`.
const MAX_COMPILED: usize = 1 << 20;

/// The maximum total number of bytes of the matches that are returned.
const MAX_SHOWN: usize = 256 * 1024;

/// Whether upper and lower case are treated as the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetterCase {
    /// `a` does not match `A`.
    Distinct,
    /// `a` matches `A`.
    Ignored,
}

/// The matches of a pattern.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub struct Extraction {
    /// The matches in the order of the text.
    pub matches: Vec<Match>,
    /// Number of all matches, including those left out.
    pub match_count: usize,
    /// Number of matches that are not shown because of the limit.
    pub left_out: usize,
}

/// A match of the pattern.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub struct Match {
    /// Line of the first character, from 1.
    pub line: usize,
    /// Position of the first character in that line, from 1.
    pub column: usize,
    /// The whole match.
    pub text: String,
    /// The groups by name, or by number if a group has no name. A group that did not match is null. Empty if the
    /// pattern has no groups.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub groups: Map<String, Value>,
}

/// The reason why a pattern cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The text is not a regular expression of the supported syntax.
    #[error("not a regular expression: {0}. Look-around and back-references are not supported.")]
    Syntax(String),
    /// The pattern is longer than 1,000 bytes.
    #[error("the pattern has {0} bytes; at most {MAX_PATTERN} are allowed")]
    TooLong(usize),
}

/// Finds all matches and returns at most `limit` of them. For every pattern, the time is linear in the length of
/// the text.
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
    let mut position = Position { line: 1, line_start: 0, offset: 0 };
    let mut shown = 0;
    let mut matches = Vec::new();
    let mut match_count = 0;
    for captures in regex.captures_iter(text) {
        match_count += 1;
        let Some(whole) = captures.get(0) else { continue };
        shown += whole.as_str().len();
        if matches.len() < limit && shown <= MAX_SHOWN && match_count == matches.len() + 1 {
            position.advance(text, whole.start());
            let column = text[position.line_start..whole.start()].chars().count() + 1;
            let groups = groups(&regex, &captures);
            matches.push(Match { line: position.line, column, text: whole.as_str().to_owned(), groups });
        }
    }
    Ok(Extraction { left_out: match_count - matches.len(), matches, match_count })
}

/// A byte offset in the text, the number of the line at this offset, and the offset at which this line starts.
struct Position {
    line: usize,
    line_start: usize,
    offset: usize,
}

impl Position {
    /// Moves the position forward to this byte offset.
    fn advance(&mut self, text: &str, offset: usize) {
        let skipped = &text[self.offset..offset];
        self.line += skipped.matches('\n').count();
        if let Some(last) = skipped.rfind('\n') {
            self.line_start = self.offset + last + 1;
        }
        self.offset = offset;
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

    fn matches_of(text: &str, pattern: &str) -> Value {
        let extraction = extract(text, pattern, LetterCase::Distinct, 100).expect("the pattern is valid");
        serde_json::to_value(extraction).expect("an extraction is JSON")
    }

    #[test]
    fn finds_named_and_numbered_groups_with_their_positions() {
        let text = "id: 7\nähm id: 12b\n";
        assert_eq!(
            matches_of(text, r"id: (?<number>\d+)(b)?"),
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
    fn anchors_match_in_each_line_and_empty_matches_are_counted() {
        assert_eq!(matches_of("a\nb\n", "^.$")["match_count"], 2);
        assert_eq!(matches_of("ab", "x*")["match_count"], 3);
        assert_eq!(matches_of("", "x")["match_count"], 0);
    }

    #[test]
    fn reports_the_number_of_matches_left_out() {
        let extraction = extract("a a A a", "a", LetterCase::Ignored, 2).expect("the pattern is valid");
        assert_eq!((extraction.matches.len(), extraction.match_count, extraction.left_out), (2, 4, 2));
        let large = "x".repeat(MAX_SHOWN / 2 + 1);
        let extraction =
            extract(&format!("{large} {large} y"), "x+|y", LetterCase::Distinct, 9).expect("the pattern is valid");
        assert_eq!(
            (extraction.matches.len(), extraction.left_out),
            (1, 2),
            "the length of the shown text is also limited"
        );
    }

    #[test]
    fn rejects_invalid_and_too_large_patterns() {
        for pattern in ["(", "a{2,1}", r"(?=a)", r"(a)\1", "(a{900}){900}", "[z-a]"] {
            let error = extract("a", pattern, LetterCase::Distinct, 1);
            assert!(matches!(error, Err(PatternError::Syntax(_))), "{pattern}: {error:?}");
        }
        assert_eq!(extract("a", &"a".repeat(1_001), LetterCase::Distinct, 1), Err(PatternError::TooLong(1_001)));
    }

    #[test]
    fn nested_repetition_takes_linear_time() {
        let text = format!("{}b", "a".repeat(20_000));
        assert_eq!(matches_of(&text, "^(a+)+$")["match_count"], 0);
    }
}
