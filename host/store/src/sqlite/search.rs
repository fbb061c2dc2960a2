//! Full-text search. The index of messages is updated after commits: when the writer is idle, or before a search.

use super::failure::Failure;
use super::queries::{CALL_OF_MESSAGE, MESSAGE_COLUMNS, collect, message};
use crate::encoding::search::{MAX_HITS, excerpt, score, searchable_text, words};
use crate::{MessageHit, Unowned};
use rusqlite::{Connection, ToSql, params};

/// Maximum number of messages that are indexed in one transaction. The number is limited because other writers wait
/// until the transaction ends.
const MAX_INDEXED_MESSAGES: usize = 256;

/// Number of bytes of text after which an indexing transaction ends, even if the transaction has indexed fewer than
/// [`MAX_INDEXED_MESSAGES`] messages.
const MAX_INDEXED_BYTES: usize = 2 << 20;

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

/// Returns up to `limit` messages of the sessions of these agents and of this user that contain every word of the query, best
/// match first. `agents` is a list in JSON, or `None` for all agents.
pub(super) fn messages(
    connection: &Connection,
    (agents, user, unowned): (Option<&str>, Option<&str>, Unowned),
    query: &str,
    limit: usize,
) -> Result<Vec<MessageHit>, Failure> {
    let condition = "(?3 IS NULL OR s.agent IN (SELECT value FROM json_each(?3)))
        AND (?4 IS NULL OR s.user = ?4 OR (?5 AND s.user IS NULL))";
    let values: [&dyn ToSql; 3] = [&agents, &user, &(unowned == Unowned::Shown)];
    search_where(connection, (condition, &values), (query, RequiredWords::Every), limit)
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
    search_where(connection, (condition, &[&session]), (query, RequiredWords::Any), limit)
}

/// Searches the messages that satisfy an SQL condition. In the condition, `?3` is the first of the values.
fn search_where(
    connection: &Connection,
    (condition, values): (&str, &[&dyn ToSql]),
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
    let (expression, limit) = (match_expression(&words, required), limit.min(MAX_HITS) as i64);
    let mut parameters: Vec<&dyn ToSql> = vec![&expression, &limit];
    parameters.extend(values);
    collect(connection, &sql, parameters.as_slice(), |row| {
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

/// Builds the expression with which SQLite searches the full-text index, such as `"red" AND "blue"`. Words are quoted,
/// so that `AND`, `OR`, `NOT` and `NEAR` are ordinary words.
pub(super) fn match_expression(words: &[&str], required: RequiredWords) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    match required {
        RequiredWords::Every => quoted.join(" AND "),
        RequiredWords::Any => quoted.join(" OR "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Limit 26: words are quoted, so that no word is an operator.
    #[test]
    fn words_are_quoted() {
        assert_eq!(match_expression(&["a", "OR"], RequiredWords::Every), "\"a\" AND \"OR\"");
    }
}
