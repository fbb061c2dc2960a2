//! Helpers for all code that reads or writes tables.

use super::connections::{Connection, Parameters};
use super::failure::Failure;
use super::text::{Text, optional_text, text};
use crate::encoding::values::{call_state, from_json, role, unsigned};
use crate::{MAX_PAGE_BYTES, StoreError};
use agent_core::change::{CallRecord, CallResult};
use agent_core::message::{CallId, Part, StoredMessage, ToolResult};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, ToSql};

/// The current time of the database in microseconds since 1970. All stored times come from this clock, so that the clocks
/// of the processes do not matter.
pub(super) const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// Columns that [`message`] reads. A query that selects these columns must contain the join [`CALL_OF_MESSAGE`].
pub(super) const MESSAGE_COLUMNS: &str = "m.id, m.turn, m.role, m.tokens, m.parts, m.call, c.name, c.result";

/// SQL join that adds the call whose result is the content of a message.
pub(super) const CALL_OF_MESSAGE: &str = "LEFT JOIN calls c ON c.session = m.session AND c.id = m.call";

/// Columns that [`call`] reads.
pub(super) const CALL_COLUMNS: &str = "id, turn, step, name, state, attempt, source, arguments, result, edited";

/// Columns that [`super::sessions::stored_record`] reads.
pub(super) const RECORD_COLUMNS: &str = "number, turn, step, kind, time, body";

/// Fails with [`StoreError::NoSession`] if the session does not exist.
pub(super) async fn check_session(connection: &Connection, session: &str) -> Result<(), Failure> {
    let sql = "SELECT 1 FROM sessions WHERE session = $1";
    match connection.query_opt(sql, &[&Text(session)]).await? {
        Some(_) => Ok(()),
        None => Err(StoreError::NoSession { session: session.to_owned() }.into()),
    }
}

/// Like [`check_session`], and prevents that the session is deleted before the end of the transaction.
pub(super) async fn keep_session(connection: &Connection, session: &str) -> Result<(), Failure> {
    let sql = "SELECT 1 FROM sessions WHERE session = $1 FOR KEY SHARE";
    match connection.query_opt(sql, &[&Text(session)]).await? {
        Some(_) => Ok(()),
        None => Err(StoreError::NoSession { session: session.to_owned() }.into()),
    }
}

/// Runs a query about one session. If it finds nothing, checks whether the session exists.
pub(super) async fn of_session<T>(
    connection: &Connection,
    session: &str,
    (sql, parameters): (&str, Parameters<'_>),
    read: impl FnMut(&Row) -> Result<T, Failure>,
) -> Result<Vec<T>, Failure> {
    let rows = connection.query(sql, parameters).await?;
    if rows.is_empty() {
        check_session(connection, session).await?;
    }
    rows.iter().map(read).collect()
}

/// Number of rows that a page reads at first, and after each read.
const PAGE_STEP: i64 = 100;

/// Reads rows in steps until there are no more rows, the limit is reached, or the rows that have been read have more than
/// [`MAX_PAGE_BYTES`] bytes. The statement has the parameters `$1` for the session, `$2` for the number after which the
/// rows start, and `$3` for the number of rows. `number` reads the number of a row.
pub(super) async fn page_of_session<T>(
    connection: &Connection,
    (session, sql): (&str, &str),
    (mut after, limit): (i64, i64),
    (read, number): (impl Fn(&Row) -> Result<T, Failure>, impl Fn(&T) -> u64),
) -> Result<Vec<T>, Failure> {
    let (mut found, mut bytes, mut step) = (Vec::new(), 0_usize, 1);
    loop {
        // If the rows are long, only as many rows are read as the page probably needs.
        let average = bytes / found.len().max(1);
        let needed = ((MAX_PAGE_BYTES - bytes) / average.max(1)) as i64 + 1;
        let count = step.min(needed).min(limit - found.len() as i64);
        step = PAGE_STEP.min(step * 4);
        if count <= 0 {
            break;
        }
        let parameters: [&(dyn ToSql + Sync); 3] = [&Text(session), &after, &count];
        let rows = connection.query(sql, &parameters).await?;
        for row in &rows {
            found.push(read(row)?);
            bytes += row_bytes(row);
            if bytes > MAX_PAGE_BYTES {
                return Ok(found);
            }
        }
        if (rows.len() as i64) < count {
            break;
        }
        after = found.last().map_or(after, |last| crate::encoding::values::signed(number(last)));
    }
    if found.is_empty() {
        check_session(connection, session).await?;
    }
    Ok(found)
}

/// Returns the size of the text columns of a row.
fn row_bytes(row: &Row) -> usize {
    let size = |column: usize| row.try_get::<_, Option<&str>>(column).ok().flatten().map_or(0, str::len);
    (0..row.len()).map(size).sum()
}

/// Reads a number that is never negative.
pub(super) fn number(row: &Row, column: usize) -> Result<u64, Failure> {
    Ok(unsigned(row.try_get(column)?))
}

/// Reads a number that may be null.
pub(super) fn optional_number(row: &Row, column: usize) -> Result<Option<u64>, Failure> {
    Ok(row.try_get::<_, Option<i64>>(column)?.map(unsigned))
}

/// Reads a number of up to 32 bits.
pub(super) fn small(row: &Row, column: usize) -> Result<u32, Failure> {
    let number: i64 = row.try_get(column)?;
    u32::try_from(number).map_err(|_| Failure::Unreadable(format!("the stored number {number} is out of range")))
}

/// Reads a column of another type.
pub(super) fn value<'r, T: FromSql<'r>>(row: &'r Row, column: usize) -> Result<T, Failure> {
    Ok(row.try_get(column)?)
}

/// Reads a message from [`MESSAGE_COLUMNS`], which start at column `first` of the row.
pub(super) fn message(row: &Row, first: usize) -> Result<StoredMessage, Failure> {
    let parts = match row.try_get::<_, Option<&str>>(first + 4)? {
        Some(parts) => from_json(parts)?,
        None => {
            let missing = || Failure::Unreadable("a message refers to a call that has no result".to_owned());
            let result = row.try_get::<_, Option<&str>>(first + 7)?.ok_or_else(missing)?;
            let name = optional_text(row, first + 6)?.ok_or_else(missing)?;
            vec![tool_result(CallId(text(row, first + 5)?), name, result)?]
        }
    };
    Ok(StoredMessage {
        id: number(row, first)?,
        turn: small(row, first + 1)?,
        role: role(value(row, first + 2)?)?,
        parts,
        tokens: small(row, first + 3)?,
    })
}

/// Returns the part of a message that contains the result of a call. `json` is the stored result.
pub(super) fn tool_result(call_id: CallId, name: String, json: &str) -> Result<Part, Failure> {
    let CallResult { content, is_error, .. } = from_json(json)?;
    Ok(Part::ToolResult(ToolResult { call_id, name, content, is_error }))
}

/// Reads a call from [`CALL_COLUMNS`].
pub(super) fn call(row: &Row) -> Result<CallRecord, Failure> {
    let optional = |column: usize| row.try_get::<_, Option<&str>>(column);
    Ok(CallRecord {
        id: CallId(text(row, 0)?),
        turn: small(row, 1)?,
        step: small(row, 2)?,
        name: text(row, 3)?,
        state: call_state(value(row, 4)?)?,
        attempt: small(row, 5)?,
        source: optional(6)?.map(from_json).transpose()?,
        arguments: from_json(value(row, 7)?)?,
        edited: optional(9)?.map(from_json).transpose()?,
        result: optional(8)?.map(from_json).transpose()?,
    })
}
