//! Helpers for all code that reads or writes tables: they run queries and convert between rows and values.

use super::failure::Failure;
use crate::encoding::values::{call_state, role};
pub(super) use crate::encoding::values::{
    from_json, now, rfc3339, session_state, signed, sql_limit, to_json, unsigned,
};
use crate::{MAX_PAGE_BYTES, StoreError};
use agent_core::change::{CallRecord, CallResult};
use agent_core::message::{CallId, Part, StoredMessage, ToolResult};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Params, Row};

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
