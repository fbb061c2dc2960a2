//! Finding words. The index of messages is a projection: it follows the commits when nobody waits for the writer, or
//! when somebody searches.

use super::failure::Failure;
use super::queries::{CALL_OF_MESSAGE, MESSAGE_COLUMNS, collect, message};
use crate::MessageHit;
use agent_core::message::{Content, Part, StoredMessage};
use rusqlite::{Connection, params};

/// Messages, and bytes of text, that are indexed in one transaction at most: others wait for it.
const STRIDE_MESSAGES: usize = 256;
const STRIDE_BYTES: usize = 2 << 20;

/// Words of a query that count.
const MAX_WORDS: usize = 64;

/// Most hits of one search.
const MAX_HITS: usize = 1000;

/// Characters of an excerpt, and those of it before the word.
const EXCERPT: usize = 200;
const BEFORE_WORD: usize = 60;

/// Whether there was something to index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Something was; there may be more.
    Indexed,
    /// Nothing was.
    Done,
}

/// How the words of a query belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    /// All must be there.
    Every,
    /// One is enough.
    Any,
}

/// Indexes some of the messages that are not indexed yet.
pub(super) fn index_some(connection: &Connection) -> Result<Progress, Failure> {
    let known: i64 =
        connection.prepare_cached("SELECT number FROM message_words_progress")?.query_row([], |row| row.get(0))?;
    let sql = format!(
        "SELECT m.number, {MESSAGE_COLUMNS} FROM messages m {CALL_OF_MESSAGE}
         WHERE m.number > ?1 ORDER BY m.number LIMIT ?2"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut insert = connection.prepare_cached("INSERT INTO message_words (rowid, text) VALUES (?1, ?2)")?;
    let mut rows = statement.query(params![known, STRIDE_MESSAGES as i64])?;
    let (mut last, mut bytes) = (known, 0);
    while let Some(row) = rows.next()? {
        last = row.get(0)?;
        let text = text_of(&message(row, 1)?);
        insert.execute(params![last, text])?;
        bytes += text.len();
        if bytes >= STRIDE_BYTES {
            break;
        }
    }
    if last == known {
        return Ok(Progress::Done);
    }
    connection.prepare_cached("UPDATE message_words_progress SET number = ?1")?.execute([last])?;
    Ok(Progress::Indexed)
}

/// After messages have been removed, the numbers at the end may be given to others.
pub(super) fn forget_last(connection: &Connection) -> Result<(), Failure> {
    connection.execute(
        "UPDATE message_words_progress SET number = min(number, (SELECT coalesce(max(number), 0) FROM messages))",
        [],
    )?;
    Ok(())
}

/// Messages with every word of the query, nearest first.
pub(super) fn messages(connection: &Connection, query: &str, limit: usize) -> Result<Vec<MessageHit>, Failure> {
    hits(connection, ("?3 IS NULL", None), (query, Match::Every), limit)
}

/// Messages of a session with any word of the query that have left its view for want of room, nearest first.
pub(super) fn evicted(
    connection: &Connection,
    session: &str,
    query: &str,
    limit: usize,
) -> Result<Vec<MessageHit>, Failure> {
    let condition = "s.subject = ?3 AND EXISTS
        (SELECT 1 FROM hidden h WHERE h.session = m.session AND h.id = m.id AND h.why = 'evicted')";
    hits(connection, (condition, Some(session)), (query, Match::Any), limit)
}

/// Those that meet a condition, in which `?3` is the session.
fn hits(
    connection: &Connection,
    (condition, session): (&str, Option<&str>),
    (query, how): (&str, Match),
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
    let parameters = params![expression(&words, how), limit.min(MAX_HITS) as i64, session];
    collect(connection, &sql, parameters, |row| {
        let message = message(row, 2)?;
        Ok(MessageHit {
            session: row.get(0)?,
            id: message.id,
            turn: message.turn,
            role: message.role,
            excerpt: excerpt(&text_of(&message), &words),
            score: score(row.get(1)?),
        })
    })
}

/// A query's words, each once: runs of letters and digits. Everything else separates, so nothing that has a meaning to
/// the index remains.
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

/// The words as an expression of the index; quoted, so that `AND`, `OR`, `NOT` and `NEAR` are words too.
pub(super) fn expression(words: &[&str], how: Match) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    match how {
        Match::Every => quoted.join(" AND "),
        Match::Any => quoted.join(" OR "),
    }
}

/// BM25 as the index gives it (below 0, less is nearer) as a number from 0 to 1, where more is nearer.
pub(super) fn score(rank: f64) -> f32 {
    let relevance = (-rank).max(0.0);
    (relevance / (1.0 + relevance)) as f32
}

/// All that can be read in a message.
pub(super) fn text_of(message: &StoredMessage) -> String {
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

/// A piece of the text that shows the first of the words, or its beginning.
fn excerpt(text: &str, words: &[&str]) -> String {
    let place = words.iter().filter_map(|word| find(text, word)).min().unwrap_or_default();
    let start = text[..place].char_indices().rev().take(BEFORE_WORD).last().map_or(place, |(index, _)| index);
    text[start..].chars().take(EXCERPT).collect()
}

/// Where the word first begins a run of letters and digits, whatever its case.
fn find(text: &str, word: &str) -> Option<usize> {
    let mut before = ' ';
    text.char_indices().find_map(|(index, character)| {
        let begins = !before.is_alphanumeric();
        before = character;
        (begins && begins_with(&text[index..], word)).then_some(index)
    })
}

fn begins_with(text: &str, word: &str) -> bool {
    let mut characters = text.chars().flat_map(char::to_lowercase);
    word.chars().flat_map(char::to_lowercase).all(|expected| characters.next() == Some(expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Limit 26: nothing of the index's language is left of a query.
    #[test]
    fn queries_are_words_only() {
        assert_eq!(
            words("\"a* OR b\" NEAR(c, 2) col:d ^e -f a"),
            ["a", "OR", "b", "NEAR", "c", "2", "col", "d", "e", "f"]
        );
        assert!(words("\"\0*()-+^:{}").is_empty());
        assert_eq!(words(&"x1 x2 ".repeat(100)).len(), 2);
        assert_eq!(expression(&["a", "OR"], Match::Every), "\"a\" AND \"OR\"");
        let many: String = (0..200).map(|number| format!("w{number} ")).collect();
        assert_eq!(words(&many).len(), MAX_WORDS);
    }

    /// D4: nearer is more, and never above 1.
    #[test]
    fn scores_lie_between_0_and_1() {
        assert!(score(-8.0) > score(-1.0) && score(-1.0) > score(-1e-6));
        assert!(score(-1e9) <= 1.0);
        assert_eq!(score(0.0), 0.0);
    }

    #[test]
    fn excerpts_show_the_word() {
        let text = format!("{} Grüße aus Köln {}", "ä".repeat(500), "z".repeat(500));
        let excerpt = excerpt(&text, &["grüße"]);
        assert!(excerpt.contains("Grüße aus Köln"), "{excerpt}");
        assert_eq!(excerpt.chars().count(), EXCERPT);
        assert_eq!(super::excerpt("short", &["missing"]), "short");
    }
}
