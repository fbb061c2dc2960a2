//! Full-text search. The index of messages is updated after commits: when the writer is idle, or before a search.

use super::failure::Failure;
use super::queries::{CALL_OF_MESSAGE, MESSAGE_COLUMNS, collect, message};
use crate::MessageHit;
use agent_core::message::{Content, Part, StoredMessage};
use rusqlite::{Connection, params};

/// Maximum number of messages that are indexed in one transaction. The number is limited because other writers wait
/// until the transaction ends.
const MAX_INDEXED_MESSAGES: usize = 256;

/// Number of bytes of text after which an indexing transaction ends, even if the transaction has indexed fewer than
/// [`MAX_INDEXED_MESSAGES`] messages.
const MAX_INDEXED_BYTES: usize = 2 << 20;

/// Maximum number of words in a query. If a query has more words, the additional words are ignored.
const MAX_WORDS: usize = 64;

/// Maximum number of results of one search.
const MAX_HITS: usize = 1000;

/// Maximum number of characters in an excerpt.
const EXCERPT_CHARACTERS: usize = 200;

/// Maximum number of characters that an excerpt contains before the first matching word.
const CHARACTERS_BEFORE_WORD: usize = 60;

/// Whether a call to [`index_next_batch`] indexed any messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Some messages were indexed, and there may be further messages to index.
    Indexed,
    /// All messages are indexed.
    Done,
}

/// Whether a text must contain all words of a query, or at least one of the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequiredWords {
    /// The text must contain every word of the query.
    Every,
    /// The text must contain at least one word of the query.
    Any,
}

/// Indexes the next messages that are not in the index yet, up to [`MAX_INDEXED_MESSAGES`] messages.
pub(super) fn index_next_batch(connection: &Connection) -> Result<Progress, Failure> {
    let last_indexed: i64 =
        connection.prepare_cached("SELECT number FROM message_words_progress")?.query_row([], |row| row.get(0))?;
    let sql = format!(
        "SELECT m.number, {MESSAGE_COLUMNS} FROM messages m {CALL_OF_MESSAGE}
         WHERE m.number > ?1 ORDER BY m.number LIMIT ?2"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut insert = connection.prepare_cached("INSERT INTO message_words (rowid, text) VALUES (?1, ?2)")?;
    let mut rows = statement.query(params![last_indexed, MAX_INDEXED_MESSAGES as i64])?;
    let (mut last, mut bytes) = (last_indexed, 0);
    while let Some(row) = rows.next()? {
        last = row.get(0)?;
        let text = searchable_text(&message(row, 1)?);
        insert.execute(params![last, text])?;
        bytes += text.len();
        if bytes >= MAX_INDEXED_BYTES {
            break;
        }
    }
    if last == last_indexed {
        return Ok(Progress::Done);
    }
    connection.prepare_cached("UPDATE message_words_progress SET number = ?1")?.execute([last])?;
    Ok(Progress::Indexed)
}

/// Lowers the stored progress of the index after messages were deleted, because SQLite may use the row numbers of
/// these messages again.
pub(super) fn rewind_progress(connection: &Connection) -> Result<(), Failure> {
    connection.execute(
        "UPDATE message_words_progress SET number = min(number, (SELECT coalesce(max(number), 0) FROM messages))",
        [],
    )?;
    Ok(())
}

/// Returns up to `limit` messages that contain every word of the query, best match first.
pub(super) fn messages(connection: &Connection, query: &str, limit: usize) -> Result<Vec<MessageHit>, Failure> {
    search_where(connection, ("?3 IS NULL", None), (query, RequiredWords::Every), limit)
}

/// Searches the messages that were evicted from the view of a session. Returns up to `limit` messages that contain at
/// least one word of the query, best match first.
pub(super) fn evicted(
    connection: &Connection,
    session: &str,
    query: &str,
    limit: usize,
) -> Result<Vec<MessageHit>, Failure> {
    let condition = "s.subject = ?3 AND EXISTS
        (SELECT 1 FROM hidden h WHERE h.session = m.session AND h.id = m.id AND h.why = 'evicted')";
    search_where(connection, (condition, Some(session)), (query, RequiredWords::Any), limit)
}

/// Searches the messages that satisfy an SQL condition. In the condition, `?3` is the subject of the session.
fn search_where(
    connection: &Connection,
    (condition, session): (&str, Option<&str>),
    (query, required): (&str, RequiredWords),
    limit: usize,
) -> Result<Vec<MessageHit>, Failure> {
    let words = words(query);
    if words.is_empty() {
        return Ok(Vec::new());
    }
    let sql = format!(
        "SELECT s.subject, w.rank, {MESSAGE_COLUMNS} FROM message_words w
         JOIN messages m ON m.number = w.rowid JOIN sessions s ON s.id = m.session {CALL_OF_MESSAGE}
         WHERE message_words MATCH ?1 AND s.state <> 'incomplete' AND {condition} ORDER BY w.rank LIMIT ?2"
    );
    let parameters = params![match_expression(&words, required), limit.min(MAX_HITS) as i64, session];
    collect(connection, &sql, parameters, |row| {
        let message = message(row, 2)?;
        Ok(MessageHit {
            session: row.get(0)?,
            id: message.id,
            turn: message.turn,
            role: message.role,
            excerpt: excerpt(&searchable_text(&message), &words),
            score: score(row.get(1)?),
        })
    })
}

/// Splits a query into distinct words, which are runs of letters and digits. All other characters are separators, so
/// that the result contains no operators of the index's query language.
pub(super) fn words(query: &str) -> Vec<&str> {
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

/// Builds the expression with which SQLite searches the full-text index, such as `"red" AND "blue"`. Words are quoted,
/// so that `AND`, `OR`, `NOT` and `NEAR` are ordinary words.
pub(super) fn match_expression(words: &[&str], required: RequiredWords) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    match required {
        RequiredWords::Every => quoted.join(" AND "),
        RequiredWords::Any => quoted.join(" OR "),
    }
}

/// Converts the index's BM25 rank, which is negative and lower for a better match, to a score from 0 to 1, which is
/// higher for a better match.
pub(super) fn score(rank: f64) -> f32 {
    let relevance = (-rank).max(0.0);
    (relevance / (1.0 + relevance)) as f32
}

/// Returns the text of a message for the index: texts, JSON values, names of media, calls, and results of calls.
pub(super) fn searchable_text(message: &StoredMessage) -> String {
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
fn excerpt(text: &str, words: &[&str]) -> String {
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
        assert_eq!(match_expression(&["a", "OR"], RequiredWords::Every), "\"a\" AND \"OR\"");
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
