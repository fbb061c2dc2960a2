//! The words of queries, and the texts of messages that can be searched.

use agent_core::message::{Content, Part, StoredMessage};

/// Maximum number of words in a query. If a query has more words, the additional words are ignored.
const MAX_WORDS: usize = 64;

/// Maximum number of results of one search.
pub(crate) const MAX_HITS: usize = 1000;

/// Maximum number of characters in an excerpt.
const EXCERPT_CHARACTERS: usize = 200;

/// Maximum number of characters that an excerpt contains before the first matching word.
const CHARACTERS_BEFORE_WORD: usize = 60;

/// Splits a query into distinct words, which are runs of letters and digits. All other characters are separators, so
/// that the result contains no operators of the index's query language.
pub(crate) fn words(query: &str) -> Vec<&str> {
    let mut words: Vec<&str> = Vec::new();
    for word in query.split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty()) {
        if words.len() == MAX_WORDS {
            break;
        }
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words
}

/// Converts a BM25 rank, which is negative and lower for a better match, to a score from 0 to 1, which is higher for a
/// better match.
pub(crate) fn score(rank: f64) -> f32 {
    let relevance = (-rank).max(0.0);
    (relevance / (1.0 + relevance)) as f32
}

/// Returns the text of a message for the index: texts, JSON values, names of media, calls, and results of calls.
pub(crate) fn searchable_text(message: &StoredMessage) -> String {
    let mut text = String::new();
    for part in &message.parts {
        match part {
            Part::Text(part) => add_line(&mut text, part),
            Part::Json(json) => add_line(&mut text, &json.to_string()),
            Part::Media(media) => add_line(&mut text, media.name.as_deref().unwrap_or_default()),
            Part::Preface(_) | Part::Replay(_) => {}
            Part::ToolCall(call) => add_line(&mut text, &format!("{} {}", call.name, call.arguments)),
            Part::ToolResult(result) => result.content.iter().for_each(|content| match content {
                Content::Text(content) => add_line(&mut text, content),
                Content::Json(json) => add_line(&mut text, &json.to_string()),
                Content::Media(media) => add_line(&mut text, media.name.as_deref().unwrap_or_default()),
            }),
        }
    }
    text
}

fn add_line(text: &mut String, line: &str) {
    if !text.is_empty() && !line.is_empty() {
        text.push('\n');
    }
    text.push_str(line);
}

/// Returns the part of the text around the first matching word, or the start of the text if no word matches.
pub(crate) fn excerpt(text: &str, words: &[&str]) -> String {
    let position = words.iter().filter_map(|word| find_word(text, word)).min().unwrap_or_default();
    let start =
        text[..position].char_indices().rev().take(CHARACTERS_BEFORE_WORD).last().map_or(position, |(index, _)| index);
    text[start..].chars().take(EXCERPT_CHARACTERS).collect()
}

/// Returns the byte position of the first run of letters and digits that starts with the word, ignoring case.
fn find_word(text: &str, word: &str) -> Option<usize> {
    let mut previous = ' ';
    text.char_indices().find_map(|(index, character)| {
        let starts_word = !previous.is_alphanumeric();
        previous = character;
        (starts_word && starts_with_word(&text[index..], word)).then_some(index)
    })
}

fn starts_with_word(text: &str, word: &str) -> bool {
    let mut characters = text.chars().flat_map(char::to_lowercase);
    word.chars().flat_map(char::to_lowercase).all(|expected| characters.next() == Some(expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Limit 26: the operators of the index's query language are removed from a query.
    #[test]
    fn query_is_reduced_to_words() {
        assert_eq!(
            words("\"a* OR b\" NEAR(c, 2) col:d ^e -f a"),
            ["a", "OR", "b", "NEAR", "c", "2", "col", "d", "e", "f"]
        );
        assert!(words("\"\0*()-+^:{}").is_empty());
        assert_eq!(words(&"x1 x2 ".repeat(100)).len(), 2);
        let many: String = (0..200).map(|number| format!("w{number} ")).collect();
        assert_eq!(words(&many).len(), MAX_WORDS);
    }

    /// D4: a better match has a higher score, and no score is above 1.
    #[test]
    fn score_is_between_0_and_1() {
        assert!(score(-8.0) > score(-1.0) && score(-1.0) > score(-1e-6));
        assert!(score(-1e9) <= 1.0);
        assert_eq!(score(0.0), 0.0);
    }

    #[test]
    fn excerpt_shows_the_word() {
        let text = format!("{} Grüße aus Köln {}", "ä".repeat(500), "z".repeat(500));
        let excerpt = excerpt(&text, &["grüße"]);
        assert!(excerpt.contains("Grüße aus Köln"), "{excerpt}");
        assert_eq!(excerpt.chars().count(), EXCERPT_CHARACTERS);
        assert_eq!(super::excerpt("short", &["missing"]), "short");
    }
}
