//! The session log: acquiring leases, and reading one session. Commits are in `commit.rs`.

use super::PostgresStore;
use super::blobs::delete_unreferenced;
use super::commit::PreparedCommit;
use super::connections::{Connection, Transaction};
use super::failure::Failure;
use super::objects::Uploads;
use super::owner::Owner;
use super::queries::{
    CALL_COLUMNS, CALL_OF_MESSAGE, MESSAGE_COLUMNS, NOW, RECORD_COLUMNS, call, check_session, message, number,
    of_session, page_of_session, small, value,
};
use super::text::{Text, list, optional, optional_text, text};
use crate::encoding::values::{check_list_length, from_json, invalid, rfc3339, signed, sql_limit, with_view};
use crate::{
    CallFilter, Commit, Deletion, Lease, MAX_PAGE, MessageRange, OpenMode, OpenedSession, RecordRange, SessionLog,
    SessionMeta, SessionState, StepRecord, StoreError, StoredRecord, TimedEvent,
};
use agent_core::change::{CallRecord, HiddenMessage, HideReason};
use agent_core::event::Event;
use agent_core::message::{MessageId, StoredMessage};
use async_trait::async_trait;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// Number of earlier leases of a session whose last commits are kept.
const KEPT_LEASES: i64 = 100;

#[async_trait]
impl SessionLog for PostgresStore {
    fn is_shared_by_machines(&self) -> bool {
        true
    }

    async fn open(&self, session: &str, mode: OpenMode, meta: SessionMeta) -> Result<OpenedSession, StoreError> {
        if session.is_empty() {
            return Err(invalid("a session", "its subject is empty"));
        }
        // If the connection broke when the lease was stored, the next attempt finds this epoch.
        let attempted = AtomicU64::new(0);
        self.run_repeatable(|| self.acquire(session, (mode, &meta), &attempted)).await
    }

    async fn release(&self, lease: Lease) -> Result<(), StoreError> {
        self.run_repeatable(|| async {
            let sql = "UPDATE sessions SET owner = NULL WHERE session = $1 AND epoch = $2 AND owner = $3";
            let connection = self.connection().await?;
            connection.execute(sql, &[&Text(&lease.session), &signed(lease.epoch), &self.owner.id()]).await?;
            Ok(())
        })
        .await
    }

    async fn commit(&self, lease: &Lease, expected_revision: u64, commit: Commit) -> Result<u64, StoreError> {
        let prepared = PreparedCommit::new(lease, expected_revision, commit, Uploads::of(self))?;
        let begun = Instant::now();
        let revision = self.store_commit(&prepared).await.map_err(|failure| failure.into_error(&self.path))?;
        self.writes.durations.add(begun.elapsed());
        self.writes.commits.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(revision)
    }

    async fn messages(&self, session: &str, range: MessageRange) -> Result<Vec<StoredMessage>, StoreError> {
        self.run(|| async {
            let connection = self.connection().await?;
            match &range {
                MessageRange::Ids(ids) => messages_by_id(&connection, session, ids).await,
                MessageRange::After { id, limit } => {
                    let sql = format!(
                        "SELECT {MESSAGE_COLUMNS} FROM messages m {CALL_OF_MESSAGE}
                         WHERE m.session = $1 AND m.id > $2 ORDER BY m.id LIMIT $3"
                    );
                    let bounds = (signed(*id), sql_limit(*limit));
                    let read = |row: &Row| message(row, 0);
                    page_of_session(&connection, (session, &sql), bounds, (read, |found: &StoredMessage| found.id))
                        .await
                }
            }
        })
        .await
    }

    async fn snapshot(&self, session: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.run(|| async {
            let sql = "SELECT run FROM snapshots WHERE session = $1";
            let connection = self.connection().await?;
            let read = |row: &Row| value::<Vec<u8>>(row, 0);
            Ok(of_session(&connection, session, (sql, &[&Text(session)]), read).await?.pop())
        })
        .await
    }

    async fn hidden(&self, session: &str, after: MessageId, limit: usize) -> Result<Vec<HiddenMessage>, StoreError> {
        self.run(|| async {
            let sql = "SELECT id, seen_count, why FROM hidden WHERE session = $1 AND id > $2 ORDER BY id LIMIT $3";
            let connection = self.connection().await?;
            let read = |row: &Row| {
                let why = HideReason::parse(value(row, 2)?).unwrap_or_default();
                Ok(HiddenMessage { id: number(row, 0)?, seen_count: small(row, 1)?, why })
            };
            let (after, limit) = (signed(after), sql_limit(limit));
            of_session(&connection, session, (sql, &[&Text(session), &after, &limit]), read).await
        })
        .await
    }

    async fn calls(&self, session: &str, filter: CallFilter) -> Result<Vec<CallRecord>, StoreError> {
        self.run(|| async {
            let connection = self.connection().await?;
            calls(&connection, session, &filter).await
        })
        .await
    }

    async fn events(&self, session: &str, after: u64, limit: usize) -> Result<Vec<TimedEvent>, StoreError> {
        self.run(|| async {
            let sql = "SELECT sequence, turn, time, kind FROM events
                       WHERE session = $1 AND sequence > $2 ORDER BY sequence LIMIT $3";
            let connection = self.connection().await?;
            let read = |row: &Row| timed_event(row, session);
            let bounds = (signed(after), sql_limit(limit));
            let sequence = |found: &TimedEvent| found.event.sequence;
            page_of_session(&connection, (session, sql), bounds, (read, sequence)).await
        })
        .await
    }

    async fn records(&self, session: &str, range: RecordRange) -> Result<Vec<StoredRecord>, StoreError> {
        self.run(|| async {
            let connection = self.connection().await?;
            records(&connection, session, range).await
        })
        .await
    }

    async fn delete(&self, session: &str) -> Result<Deletion, StoreError> {
        self.run(|| self.delete_session(session)).await
    }
}

impl PostgresStore {
    async fn acquire(
        &self,
        session: &str,
        (mode, meta): (OpenMode, &SessionMeta),
        attempted: &AtomicU64,
    ) -> Result<OpenedSession, Failure> {
        let transaction = self.unopened_transaction().await?;
        let result = self.acquire_in(&transaction, session, (mode, meta), attempted).await;
        transaction.end(result).await
    }

    async fn acquire_in(
        &self,
        transaction: &Transaction,
        session: &str,
        (mode, meta): (OpenMode, &SessionMeta),
        attempted: &AtomicU64,
    ) -> Result<OpenedSession, Failure> {
        transaction.prepare(&[&create_session(), LOCK_SESSION]).await?;
        let created =
            async { if mode == OpenMode::Existing { Ok(()) } else { create(transaction, session, meta).await } };
        let key: [&(dyn ToSql + Sync); 1] = [&Text(session)];
        let locked = transaction.query_opt(LOCK_SESSION, &key);
        let ((), (), row) = tokio::try_join!(biased; transaction.open("BEGIN"), created, locked)?;
        let row = row.ok_or_else(|| StoreError::NoSession { session: session.to_owned() })?;
        let (epoch, revision, owner) = (number(&row, 0)?, number(&row, 1)?, optional_text(&row, 3)?);
        // Epoch 0 means that this transaction has created the session.
        let is_new = epoch == 0;
        let is_own_attempt = epoch != 0 && epoch == attempted.load(Ordering::Relaxed);
        if !is_new && !is_own_attempt {
            if mode == OpenMode::CreateNew {
                return Err(StoreError::SessionExists { session: session.to_owned() }.into());
            }
            self.refuse_if_open(transaction, session, owner.as_deref()).await?;
            if value::<&str>(&row, 2)? == SessionState::Incomplete.as_str() {
                return Err(StoreError::Incomplete { session: session.to_owned() }.into());
            }
        }
        let epoch = if is_own_attempt { epoch } else { epoch + 1 };
        attempted.store(epoch, Ordering::Relaxed);
        let begun = async {
            if is_own_attempt { Ok(()) } else { self.begin_lease(transaction, session, (epoch, revision)).await }
        };
        let ((), opened) = tokio::try_join!(begun, load(transaction, (session, epoch)))?;
        Ok(opened)
    }

    /// Stores this store as the owner, and keeps the id of the last commit of the lease before.
    async fn begin_lease(
        &self,
        transaction: &Transaction,
        session: &str,
        (epoch, revision): (u64, u64),
    ) -> Result<(), Failure> {
        if epoch > 1 {
            let sql = "INSERT INTO ended_leases (session, epoch, last_commit, revision)
                       SELECT session, epoch, last_commit, $2::bigint FROM sessions WHERE session = $1";
            transaction.execute(sql, &[&Text(session), &signed(revision)]).await?;
            let sql = "DELETE FROM ended_leases WHERE session = $1 AND epoch < $2";
            transaction.execute(sql, &[&Text(session), &(signed(epoch) - KEPT_LEASES)]).await?;
        }
        let sql = "UPDATE sessions SET epoch = $2, owner = $3 WHERE session = $1";
        transaction.execute(sql, &[&Text(session), &signed(epoch), &self.owner.id()]).await?;
        Ok(())
    }

    /// Fails with [`StoreError::Busy`] if the owner of a session is alive.
    async fn refuse_if_open(
        &self,
        transaction: &Transaction,
        session: &str,
        owner: Option<&str>,
    ) -> Result<(), Failure> {
        let Some(owner) = owner else { return Ok(()) };
        let alive = Owner::is_alive("$1::text", "$2::text");
        let sql = format!(
            "SELECT o.id, o.process, o.machine, o.host FROM (SELECT $1::text AS id) asked
             LEFT JOIN owners o ON o.id = asked.id WHERE {alive}"
        );
        match transaction.query_opt(&sql, &[&Text(owner), &self.owner.id()]).await? {
            Some(row) => {
                let holder = self.owner.holder(&row, 0)?;
                Err(StoreError::Busy { session: session.to_owned(), holder }.into())
            }
            None => Ok(()),
        }
    }

    async fn delete_session(&self, session: &str) -> Result<Deletion, Failure> {
        let transaction = self.transaction().await?;
        let sql = "SELECT owner FROM sessions WHERE session = $1 FOR UPDATE";
        let row = transaction.query_opt(sql, &[&Text(session)]).await?;
        let row = row.ok_or_else(|| StoreError::NoSession { session: session.to_owned() })?;
        self.refuse_if_open(&transaction, session, optional_text(&row, 0)?.as_deref()).await?;
        let sql = "DELETE FROM blob_references WHERE session = $1 RETURNING digest";
        let digests = transaction.query(sql, &[&Text(session)]).await?;
        let digests = digests.iter().map(|row| value::<Vec<u8>>(row, 0)).collect::<Result<Vec<_>, _>>()?;
        for table in TABLES_OF_SESSIONS {
            transaction.execute(&format!("DELETE FROM {table} WHERE session = $1"), &[&Text(session)]).await?;
        }
        let memories = transaction.execute("DELETE FROM memories WHERE session = $1", &[&Text(session)]).await?;
        delete_unreferenced(&transaction, digests).await?;
        transaction.commit().await?;
        Ok(Deletion { memories })
    }
}

/// The tables whose rows are deleted with their session, in addition to references to blobs.
const TABLES_OF_SESSIONS: [&str; 15] = [
    "requests",
    "snapshots",
    "view_pieces",
    "messages",
    "message_words",
    "hidden",
    "calls",
    "events",
    "records",
    "outbox",
    "turn_usage",
    "session_charges",
    "trace_exports",
    "ended_leases",
    "sessions",
];

/// Statement that creates a session with epoch 0, if it does not exist.
fn create_session() -> String {
    format!(
        "INSERT INTO sessions (session, agent, user_name, delegated_by, created, updated, place)
         SELECT $1, $2, $3, $4, now.time, now.time, nextval('session_places') FROM (SELECT {NOW} AS time) now
         WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE session = $1) ON CONFLICT DO NOTHING"
    )
}

/// The row is locked when a session is opened, so that the owner is checked with the newest data.
const LOCK_SESSION: &str =
    "SELECT s.epoch, s.revision, s.state, s.owner FROM sessions s WHERE s.session = $1 FOR UPDATE";

async fn create(transaction: &Transaction, session: &str, meta: &SessionMeta) -> Result<(), Failure> {
    let SessionMeta { agent, user, delegated_by } = meta;
    let (user, parent) = (optional(user.as_deref()), optional(delegated_by.as_deref()));
    transaction.execute(&create_session(), &[&Text(session), &Text(agent), &user, &parent]).await?;
    Ok(())
}

/// Queries that load a session. All of them use primary keys that begin with the session.
pub(super) const LOAD_SESSION: &str = "SELECT revision, agent, user_name, delegated_by, last_message, last_event
                                       FROM sessions WHERE session = $1";
pub(super) const LOAD_SNAPSHOT: &str = "SELECT run FROM snapshots WHERE session = $1";
pub(super) const LOAD_VIEW: &str = "SELECT items FROM view_pieces WHERE session = $1 ORDER BY number";

/// Loads a session that is locked by the transaction, and whose lease has this epoch.
async fn load(connection: &Connection, (session, epoch): (&str, u64)) -> Result<OpenedSession, Failure> {
    let key = Text(session);
    let parameters: [&(dyn ToSql + Sync); 1] = [&key];
    let (row, snapshot, pieces) = tokio::try_join!(
        connection.query_one(LOAD_SESSION, &parameters),
        connection.query_opt(LOAD_SNAPSHOT, &parameters),
        connection.query(LOAD_VIEW, &parameters),
    )?;
    let snapshot = snapshot.map(|row| value::<Vec<u8>>(&row, 0)).transpose()?;
    let pieces = pieces.iter().map(|row| {
        let items = std::str::from_utf8(value(row, 0)?);
        items.map_err(|_| Failure::Unreadable("a part of a session's view is not UTF-8 text".to_owned()))
    });
    let pieces = pieces.collect::<Result<Vec<_>, _>>()?;
    let view = (!pieces.is_empty()).then(|| pieces.join(","));
    Ok(OpenedSession {
        lease: Lease { session: session.to_owned(), epoch },
        revision: number(&row, 0)?,
        snapshot: with_view(snapshot, view),
        meta: SessionMeta {
            agent: text(&row, 1)?,
            user: optional_text(&row, 2)?,
            delegated_by: optional_text(&row, 3)?,
        },
        last_message: number(&row, 4)?,
        last_event: number(&row, 5)?,
    })
}

async fn messages_by_id(
    connection: &Connection,
    session: &str,
    ids: &[MessageId],
) -> Result<Vec<StoredMessage>, Failure> {
    check_list_length("a list of message ids", ids.len())?;
    let numbers: Vec<i64> = ids.iter().copied().map(signed).collect();
    let sql =
        format!("SELECT {MESSAGE_COLUMNS} FROM messages m {CALL_OF_MESSAGE} WHERE m.session = $1 AND m.id = ANY($2)");
    let rows = connection.query(&sql, &[&Text(session), &numbers]).await?;
    let found = rows.iter().map(|row| message(row, 0).map(|message| (message.id, message)));
    let found = found.collect::<Result<HashMap<_, _>, _>>()?;
    if found.is_empty() {
        check_session(connection, session).await?;
    }
    let of_id = |id: &MessageId| {
        let missing = || StoreError::NoMessage { session: session.to_owned(), id: *id };
        Ok(found.get(id).ok_or_else(missing)?.clone())
    };
    ids.iter().map(of_id).collect()
}

async fn calls(connection: &Connection, session: &str, filter: &CallFilter) -> Result<Vec<CallRecord>, Failure> {
    let select = |condition: &str| {
        format!("SELECT {CALL_COLUMNS} FROM calls WHERE session = $1 AND {condition} ORDER BY number")
    };
    match filter {
        CallFilter::Turn(turn) => {
            let (sql, turn) = (select("turn = $2"), i64::from(*turn));
            of_session(connection, session, (&sql, &[&Text(session), &turn]), call).await
        }
        CallFilter::Unfinished => {
            let sql = select("state <> 'finished'");
            of_session(connection, session, (&sql, &[&Text(session)]), call).await
        }
        CallFilter::Ids(ids) => {
            check_list_length("a list of call ids", ids.len())?;
            let (sql, ids) = (select("id = ANY($2)"), list(ids.iter().map(|id| &id.0)));
            of_session(connection, session, (&sql, &[&Text(session), &ids]), call).await
        }
    }
}

fn timed_event(row: &Row, session: &str) -> Result<TimedEvent, Failure> {
    let event = Event {
        session: session.to_owned(),
        turn: small(row, 1)?,
        sequence: number(row, 0)?,
        provisional: None,
        kind: from_json(value(row, 3)?)?,
    };
    Ok(TimedEvent { event, time: rfc3339(value(row, 2)?)? })
}

async fn records(connection: &Connection, session: &str, range: RecordRange) -> Result<Vec<StoredRecord>, Failure> {
    let select = |condition: &str| {
        format!("SELECT {RECORD_COLUMNS} FROM records WHERE session = $1 AND {condition} ORDER BY number LIMIT $3")
    };
    let all = sql_limit(MAX_PAGE);
    match range {
        RecordRange::Turn(turn) => {
            let (sql, turn) = (select("turn = $2"), i64::from(turn));
            of_session(connection, session, (&sql, &[&Text(session), &turn, &all]), stored_record).await
        }
        RecordRange::Kind(kind) => {
            let sql = select("kind = $2");
            of_session(connection, session, (&sql, &[&Text(session), &Text(kind), &all]), stored_record).await
        }
        RecordRange::After { number, limit } => {
            let (sql, bounds) = (select("number > $2"), (signed(number), sql_limit(limit)));
            let read = (stored_record, |found: &StoredRecord| found.number);
            page_of_session(connection, (session, &sql), bounds, read).await
        }
    }
}

/// Reads a record from [`RECORD_COLUMNS`].
pub(super) fn stored_record(row: &Row) -> Result<StoredRecord, Failure> {
    let body = from_json(value(row, 5)?)?;
    let record = StepRecord { turn: small(row, 1)?, step: small(row, 2)?, kind: text(row, 3)?, body };
    Ok(StoredRecord { number: number(row, 0)?, time: rfc3339(value(row, 4)?)?, record })
}
