//! The session log: acquiring leases, committing, and reading one session. Listing and searching are in
//! `session_index.rs`.

use super::SqliteStore;
use super::commit::PreparedCommit;
use super::failure::{Failure, invalid};
use super::memories::forget_session;
use super::owners::{Liveness, Owner};
use super::queries::{
    CALL_COLUMNS, CALL_OF_MESSAGE, MESSAGE_COLUMNS, call, collect, collect_page, from_json, message, now, rfc3339,
    session_number, signed, sql_limit, unsigned,
};
use super::search;
use super::writer::Effort;
use crate::encoding::values::{check_list_length, with_view};
use crate::{
    CallFilter, Commit, Deletion, Lease, MAX_PAGE, MessageRange, OpenMode, OpenedSession, RecordRange, SessionLog,
    SessionMeta, StepRecord, StoreError, StoredRecord, TimedEvent,
};
use agent_core::change::{CallRecord, HiddenMessage, HideReason};
use agent_core::event::Event;
use agent_core::message::{MessageId, StoredMessage};
use agent_core::session_state::SessionState;
use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::sync::atomic::Ordering;

#[async_trait]
impl SessionLog for SqliteStore {
    async fn open(&self, session: &str, mode: OpenMode, meta: SessionMeta) -> Result<OpenedSession, StoreError> {
        let (session, owner) = (session.to_owned(), self.owner.clone());
        self.write(Effort::Short, move |connection| acquire_lease(connection, &owner, &session, mode, &meta)).await
    }

    async fn release(&self, lease: Lease) -> Result<(), StoreError> {
        let owner = self.owner.clone();
        self.write(Effort::Short, move |connection| {
            connection
                .prepare_cached("UPDATE sessions SET owner = NULL WHERE subject = ?1 AND epoch = ?2 AND owner = ?3")?
                .execute(params![lease.session, signed(lease.epoch), owner.id()])?;
            Ok(())
        })
        .await
    }

    async fn commit(&self, lease: &Lease, expected_revision: u64, commit: Commit) -> Result<u64, StoreError> {
        let prepared = PreparedCommit::new(lease, expected_revision, commit)?;
        let owner = self.owner.clone();
        let revision = self.write(prepared.effort(), move |connection| prepared.write(connection, owner.id())).await?;
        self.counters.commits.fetch_add(1, Ordering::Relaxed);
        Ok(revision)
    }

    async fn messages(&self, session: &str, range: MessageRange) -> Result<Vec<StoredMessage>, StoreError> {
        let session = session.to_owned();
        self.read(move |connection| match range {
            MessageRange::Ids(ids) => messages_by_id(connection, &session, &ids),
            MessageRange::After { id, limit } => messages_after(connection, &session, id, limit),
        })
        .await
    }

    async fn snapshot(&self, session: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let session = session.to_owned();
        self.read(move |connection| {
            let number = session_number(connection, &session)?;
            let sql = "SELECT run FROM snapshots WHERE session = ?1";
            Ok(connection.prepare_cached(sql)?.query_row([number], |row| row.get(0)).optional()?)
        })
        .await
    }

    async fn hidden(&self, session: &str, after: MessageId, limit: usize) -> Result<Vec<HiddenMessage>, StoreError> {
        let session = session.to_owned();
        self.read(move |connection| {
            let sql = "SELECT id, seen_count, why FROM hidden WHERE session = ?1 AND id > ?2 ORDER BY id LIMIT ?3";
            let number = session_number(connection, &session)?;
            collect(connection, sql, params![number, signed(after), sql_limit(limit)], |row| {
                let why = HideReason::parse(&row.get::<_, String>(2)?).unwrap_or_default();
                Ok(HiddenMessage { id: unsigned(row.get(0)?), seen_count: row.get(1)?, why })
            })
        })
        .await
    }

    async fn calls(&self, session: &str, filter: CallFilter) -> Result<Vec<CallRecord>, StoreError> {
        let session = session.to_owned();
        self.read(move |connection| calls(connection, &session, &filter)).await
    }

    async fn events(&self, session: &str, after: u64, limit: usize) -> Result<Vec<TimedEvent>, StoreError> {
        let session = session.to_owned();
        self.read(move |connection| events(connection, &session, after, limit)).await
    }

    async fn records(&self, session: &str, range: RecordRange) -> Result<Vec<StoredRecord>, StoreError> {
        let session = session.to_owned();
        self.read(move |connection| records(connection, &session, range)).await
    }

    async fn delete(&self, session: &str) -> Result<Deletion, StoreError> {
        let (session, owner) = (session.to_owned(), self.owner.clone());
        let deleted = self.write(Effort::Long, move |connection| delete(connection, &owner, &session)).await?;
        self.empty_log().await;
        Ok(deleted)
    }
}

const SELECT_OPENED_SESSION: &str = "SELECT epoch, revision, run, agent, user, last_message, last_event, delegated_by,
                      (SELECT group_concat(CAST(items AS TEXT), ',' ORDER BY number) FROM view_pieces
                       WHERE view_pieces.session = sessions.id)
                      FROM sessions LEFT JOIN snapshots ON snapshots.session = sessions.id WHERE subject = ?1";

fn acquire_lease(
    connection: &Connection,
    owner: &Owner,
    session: &str,
    mode: OpenMode,
    meta: &SessionMeta,
) -> Result<OpenedSession, Failure> {
    if session.is_empty() {
        return Err(invalid("a session", "its subject is empty").into());
    }
    let existing = connection
        .prepare_cached("SELECT state, owner FROM sessions WHERE subject = ?1")?
        .query_row([session], |row| Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?)))
        .optional()?;
    match (existing, mode) {
        (Some(_), OpenMode::CreateNew) => {
            return Err(StoreError::SessionExists { session: session.to_owned() }.into());
        }
        (None, OpenMode::Existing) => {
            return Err(StoreError::NoSession { session: session.to_owned() }.into());
        }
        (Some((state, holder)), _) => {
            refuse_if_open(owner, session, holder)?;
            if state == SessionState::Incomplete.as_str() {
                return Err(StoreError::Incomplete { session: session.to_owned() }.into());
            }
        }
        (None, _) => {
            connection
                .prepare_cached(
                    "INSERT INTO sessions (subject, agent, user, delegated_by, created, updated, place)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?5, (SELECT coalesce(max(place), 0) + 1 FROM sessions))",
                )?
                .execute(params![session, meta.agent, meta.user, meta.delegated_by, now()])?;
        }
    }
    connection
        .prepare_cached("UPDATE sessions SET epoch = epoch + 1, owner = ?2 WHERE subject = ?1")?
        .execute(params![session, owner.id()])?;
    let opened = connection.prepare_cached(SELECT_OPENED_SESSION)?.query_row([session], |row| {
        Ok(OpenedSession {
            lease: Lease { session: session.to_owned(), epoch: unsigned(row.get(0)?) },
            revision: unsigned(row.get(1)?),
            snapshot: with_view(row.get(2)?, row.get(8)?),
            meta: SessionMeta { agent: row.get(3)?, user: row.get(4)?, delegated_by: row.get(7)? },
            last_message: unsigned(row.get(5)?),
            last_event: unsigned(row.get(6)?),
        })
    })?;
    Ok(opened)
}

fn refuse_if_open(owner: &Owner, session: &str, holder: Option<String>) -> Result<(), Failure> {
    match holder.map(|holder| owner.liveness(&holder)) {
        Some(Liveness::Alive(holder)) => Err(StoreError::Busy { session: session.to_owned(), holder }.into()),
        Some(Liveness::Dead) | None => Ok(()),
    }
}

fn messages_by_id(connection: &Connection, session: &str, ids: &[MessageId]) -> Result<Vec<StoredMessage>, Failure> {
    check_list_length("a list of message ids", ids.len())?;
    let number = session_number(connection, session)?;
    let sql = format!("SELECT {MESSAGE_COLUMNS} FROM messages m {CALL_OF_MESSAGE} WHERE m.session = ?1 AND m.id = ?2");
    let mut statement = connection.prepare_cached(&sql)?;
    let mut messages = Vec::with_capacity(ids.len());
    for id in ids {
        let mut rows = statement.query(params![number, signed(*id)])?;
        let row = rows.next()?.ok_or_else(|| StoreError::NoMessage { session: session.to_owned(), id: *id })?;
        messages.push(message(row, 0)?);
    }
    Ok(messages)
}

fn messages_after(
    connection: &Connection,
    session: &str,
    id: MessageId,
    limit: usize,
) -> Result<Vec<StoredMessage>, Failure> {
    let number = session_number(connection, session)?;
    let sql = format!(
        "SELECT {MESSAGE_COLUMNS} FROM messages m {CALL_OF_MESSAGE}
         WHERE m.session = ?1 AND m.id > ?2 ORDER BY m.id LIMIT ?3"
    );
    collect_page(connection, &sql, params![number, signed(id), sql_limit(limit)], |row| message(row, 0))
}

fn calls(connection: &Connection, session: &str, filter: &CallFilter) -> Result<Vec<CallRecord>, Failure> {
    let number = session_number(connection, session)?;
    let select = |condition: &str| {
        format!("SELECT {CALL_COLUMNS} FROM calls WHERE session = ?1 AND {condition} ORDER BY number")
    };
    match filter {
        CallFilter::Turn(turn) => collect(connection, &select("turn = ?2"), params![number, turn], call),
        CallFilter::Unfinished => collect(connection, &select("state <> 'finished'"), params![number], call),
        CallFilter::Ids(ids) => {
            check_list_length("a list of call ids", ids.len())?;
            let ids = serde_json::to_string(ids).map_err(|error| invalid("a list of call ids", error.to_string()))?;
            collect(connection, &select("id IN (SELECT value FROM json_each(?2))"), params![number, ids], call)
        }
    }
}

fn events(connection: &Connection, session: &str, after: u64, limit: usize) -> Result<Vec<TimedEvent>, Failure> {
    let number = session_number(connection, session)?;
    let sql = "SELECT sequence, turn, time, kind FROM events
               WHERE session = ?1 AND sequence > ?2 ORDER BY sequence LIMIT ?3";
    collect_page(connection, sql, params![number, signed(after), sql_limit(limit)], |row| {
        let event = Event {
            session: session.to_owned(),
            turn: row.get(1)?,
            sequence: unsigned(row.get(0)?),
            provisional: None,
            kind: from_json(row.get_ref(3)?.as_str().map_err(rusqlite::Error::from)?)?,
        };
        Ok(TimedEvent { event, time: rfc3339(row.get(2)?)? })
    })
}

fn records(connection: &Connection, session: &str, range: RecordRange) -> Result<Vec<StoredRecord>, Failure> {
    let session = session_number(connection, session)?;
    let select = |condition: &str| {
        format!(
            "SELECT number, turn, step, kind, time, body FROM records
             WHERE session = ?1 AND {condition} ORDER BY number LIMIT ?3"
        )
    };
    match range {
        RecordRange::Turn(turn) => {
            collect(connection, &select("turn = ?2"), params![session, turn, sql_limit(MAX_PAGE)], stored_record)
        }
        RecordRange::Kind(kind) => {
            collect(connection, &select("kind = ?2"), params![session, kind, sql_limit(MAX_PAGE)], stored_record)
        }
        RecordRange::After { number, limit } => {
            let parameters = params![session, signed(number), sql_limit(limit)];
            collect_page(connection, &select("number > ?2"), parameters, stored_record)
        }
    }
}

pub(super) fn stored_record(row: &Row<'_>) -> Result<StoredRecord, Failure> {
    let body = from_json(row.get_ref(5)?.as_str().map_err(rusqlite::Error::from)?)?;
    let record = StepRecord { turn: row.get(1)?, step: row.get(2)?, kind: row.get(3)?, body };
    Ok(StoredRecord { number: unsigned(row.get(0)?), time: rfc3339(row.get(4)?)?, record })
}

/// Deletes a session. Because of the foreign keys, SQLite also deletes most of the session's data. Blobs, index entries
/// and memories are deleted explicitly.
fn delete(connection: &Connection, owner: &Owner, session: &str) -> Result<Deletion, Failure> {
    let number = session_number(connection, session)?;
    let holder = connection
        .prepare_cached("SELECT owner FROM sessions WHERE id = ?1")?
        .query_row([number], |row| row.get::<_, Option<String>>(0))?;
    refuse_if_open(owner, session, holder)?;
    connection.execute(
        "DELETE FROM message_words WHERE rowid IN (SELECT number FROM messages WHERE session = ?1)",
        [number],
    )?;
    let blobs = collect(connection, "SELECT blob FROM blob_references WHERE session = ?1", [number], |row| {
        Ok(row.get::<_, i64>(0)?)
    })?;
    connection.execute("DELETE FROM sessions WHERE id = ?1", [number])?;
    for blob in blobs {
        connection
            .prepare_cached(
                "DELETE FROM blobs WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM blob_references WHERE blob = ?1)",
            )?
            .execute([blob])?;
    }
    search::rewind_progress(connection)?;
    // Merging the index removes the data of entries that SQLite has only marked as deleted.
    connection.execute("INSERT INTO message_words (message_words) VALUES ('optimize')", [])?;
    Ok(Deletion { memories: forget_session(connection, session)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::StatementStatus::{RePrepare, Run};

    /// A statement is compiled only once, even if other values are bound to the statement later. Compiling a statement
    /// takes longer than running the statement.
    #[tokio::test]
    async fn statements_are_compiled_once() {
        let store = SqliteStore::open_in_memory().unwrap();
        for session in ["a", "b", "c"] {
            store.open(session, OpenMode::CreateNew, SessionMeta::default()).await.unwrap();
        }
        let counts = store.write(Effort::Short, |connection| {
            let statement = connection.prepare_cached(SELECT_OPENED_SESSION)?;
            Ok((statement.get_status(Run), statement.get_status(RePrepare)))
        });
        assert_eq!(counts.await, Ok((3, 0)));
    }
}
