//! Helpers for all code that reads or writes tables: they run queries and convert between rows and values.

use super::failure::{Failure, invalid};
use crate::{MAX_JSON_DEPTH, MAX_PAGE, MAX_PAGE_BYTES, SessionState, StoreError};
use agent_core::change::{CallRecord, CallResult, CallState};
use agent_core::message::{CallId, Part, Role, StoredMessage, ToolResult};
use jiff::Timestamp;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Params, Row};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Columns that [`message`] reads. A query that selects these columns must contain the join [`CALL_OF_MESSAGE`].
pub(super) const MESSAGE_COLUMNS: &str = "m.id, m.turn, m.role, m.tokens, m.parts, m.call, c.name, c.result";

/// SQL join that adds the call whose result is the content of a message.
pub(super) const CALL_OF_MESSAGE: &str = "LEFT JOIN calls c ON c.session = m.session AND c.id = m.call";

/// Columns that [`call`] reads.
pub(super) const CALL_COLUMNS: &str = "id, turn, step, name, state, attempt, source, arguments, result, edited";

/// Returns the row number of a session, or [`StoreError::NoSession`] if the session does not exist.
pub(super) fn session_number(connection: &Connection, session: &str) -> Result<i64, Failure> {
    let mut statement = connection.prepare_cached("SELECT id FROM sessions WHERE subject = ?1")?;
    let number = statement.query_row([session], |row| row.get(0)).optional()?;
    number.ok_or_else(|| StoreError::NoSession { session: session.to_owned() }.into())
}

/// Runs a cached statement and reads all of its rows.
pub(super) fn collect<T>(
    connection: &Connection,
    sql: &str,
    parameters: impl Params,
    mut read: impl FnMut(&Row<'_>) -> Result<T, Failure>,
) -> Result<Vec<T>, Failure> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(parameters)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read(row)?);
    }
    Ok(found)
}

/// Like [`collect`], but stops when the text columns of the rows that have been read have more than [`MAX_PAGE_BYTES`]
/// bytes in total.
pub(super) fn collect_page<T>(
    connection: &Connection,
    sql: &str,
    parameters: impl Params,
    mut read: impl FnMut(&Row<'_>) -> Result<T, Failure>,
) -> Result<Vec<T>, Failure> {
    let mut statement = connection.prepare_cached(sql)?;
    let columns = statement.column_count();
    let mut rows = statement.query(parameters)?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        found.push(read(row)?);
        for column in 0..columns {
            if let ValueRef::Text(text) = row.get_ref(column)? {
                bytes += text.len();
            }
        }
        if bytes > MAX_PAGE_BYTES {
            break;
        }
    }
    Ok(found)
}

/// Reads a message from [`MESSAGE_COLUMNS`], which start at column `first` of the row.
pub(super) fn message(row: &Row<'_>, first: usize) -> Result<StoredMessage, Failure> {
    let parts = match row.get_ref(first + 4)?.as_str_or_null().map_err(rusqlite::Error::from)? {
        Some(parts) => from_json(parts)?,
        None => vec![Part::ToolResult(tool_result(row, first)?)],
    };
    Ok(StoredMessage {
        id: unsigned(row.get(first)?),
        turn: row.get(first + 1)?,
        role: role(row.get_ref(first + 2)?.as_str().map_err(rusqlite::Error::from)?)?,
        parts,
        tokens: row.get(first + 3)?,
    })
}

fn tool_result(row: &Row<'_>, first: usize) -> Result<ToolResult, Failure> {
    let missing = || Failure::Unreadable("a message refers to a call that has no result".to_owned());
    let name: Option<String> = row.get(first + 6)?;
    let result = row.get_ref(first + 7)?.as_str_or_null().map_err(rusqlite::Error::from)?.ok_or_else(missing)?;
    let result: CallResult = from_json(result)?;
    Ok(ToolResult {
        call_id: CallId(row.get(first + 5)?),
        name: name.ok_or_else(missing)?,
        content: result.content,
        is_error: result.is_error,
    })
}

/// Reads a call from [`CALL_COLUMNS`].
pub(super) fn call(row: &Row<'_>) -> Result<CallRecord, Failure> {
    let optional = |column: usize| row.get_ref(column)?.as_str_or_null().map_err(rusqlite::Error::from);
    Ok(CallRecord {
        id: CallId(row.get(0)?),
        turn: row.get(1)?,
        step: row.get(2)?,
        name: row.get(3)?,
        state: call_state(row.get_ref(4)?.as_str().map_err(rusqlite::Error::from)?)?,
        attempt: row.get(5)?,
        source: optional(6)?.map(from_json).transpose()?,
        arguments: from_json(row.get_ref(7)?.as_str().map_err(rusqlite::Error::from)?)?,
        edited: optional(9)?.map(from_json).transpose()?,
        result: optional(8)?.map(from_json).transpose()?,
    })
}

/// Parses the text that [`Role::as_str`] returns.
pub(super) fn role(name: &str) -> Result<Role, Failure> {
    [Role::System, Role::User, Role::Assistant, Role::Tool]
        .into_iter()
        .find(|role| role.as_str() == name)
        .ok_or_else(|| Failure::Unreadable(format!("`{name}` is not a role")))
}

/// Parses the text that [`CallState::as_str`] returns.
fn call_state(name: &str) -> Result<CallState, Failure> {
    let states = [
        CallState::Waiting,
        CallState::AwaitingApproval,
        CallState::Outstanding,
        CallState::Started,
        CallState::OutcomeUnknown,
        CallState::Finished,
    ];
    states
        .into_iter()
        .find(|state| state.as_str() == name)
        .ok_or_else(|| Failure::Unreadable(format!("`{name}` is not a call's state")))
}

/// Parses the text that [`SessionState::as_str`] returns.
pub(super) fn session_state(text: &str) -> Result<SessionState, Failure> {
    SessionState::parse(text).ok_or_else(|| Failure::Unreadable(format!("`{text}` is not a session's state")))
}

/// Reads JSON that [`to_json`] wrote.
pub(super) fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, Failure> {
    serde_json::from_str(text).map_err(|error| Failure::Unreadable(format!("stored JSON cannot be read: {error}")))
}

/// Serialises a value as JSON. Fails if the JSON is nested more deeply than [`from_json`] can read.
pub(super) fn to_json(what: &str, value: &impl Serialize) -> Result<String, StoreError> {
    let text = serde_json::to_string(value).map_err(|error| invalid(what, error.to_string()))?;
    match depth(text.as_bytes()) {
        ..=MAX_JSON_DEPTH => Ok(text),
        depth => {
            let problem = format!("its JSON is nested {depth} levels deep, and the maximum is {MAX_JSON_DEPTH}");
            Err(invalid(what, problem))
        }
    }
}

/// Returns how deeply the brackets of valid JSON are nested.
fn depth(json: &[u8]) -> usize {
    let (mut open, mut deepest) = (0_usize, 0_usize);
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => {
                open += 1;
                deepest = deepest.max(open);
            }
            b']' | b'}' => open = open.saturating_sub(1),
            b'"' => skip_string(&mut bytes),
            _ => {}
        }
    }
    deepest
}

/// Advances past the closing quotation mark of a string.
fn skip_string(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => {
                bytes.next();
            }
            b'"' => return,
            _ => {}
        }
    }
}

/// Converts a number to the signed type of SQLite columns. The host never stores a number that is too large for the
/// signed type.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts a number from a SQLite column to an unsigned number. The numbers in these columns are never negative.
pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

/// Converts a caller's limit on the number of rows to an SQL number. A limit above [`MAX_PAGE`] is reduced to
/// [`MAX_PAGE`].
pub(super) fn sql_limit(limit: usize) -> i64 {
    limit.min(MAX_PAGE) as i64
}

/// Returns the current time in microseconds since 1970 in UTC.
pub(super) fn now() -> i64 {
    Timestamp::now().as_microsecond()
}

/// Formats a time in microseconds since 1970 as RFC 3339 in UTC.
pub(super) fn rfc3339(microseconds: i64) -> Result<String, Failure> {
    Timestamp::from_microsecond(microseconds)
        .map(|time| time.to_string())
        .map_err(|error| Failure::Unreadable(format!("a stored time is invalid: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Limit 26: brackets in JSON strings do not count as nesting, and escaped quotation marks do not end a string.
    #[test]
    fn depth_counts_brackets_outside_strings() {
        let cases =
            [("1", 0), ("[]", 1), ("[[],{\"a\":[1]}]", 3), (r#"["[[[[", "\"[[", "\\", []]"#, 2), (r#"{"{{":"}}"}"#, 1)];
        for (json, expected) in cases {
            assert_eq!(depth(json.as_bytes()), expected, "{json}");
        }
    }
}
