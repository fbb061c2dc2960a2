//! The audit log: one row per entry. Some audit entries are derived from the events and outbox items of a commit.

use super::SqliteStore;
use super::failure::Failure;
use super::queries::{collect, collect_page, from_json, now, rfc3339, signed, sql_limit, unsigned};
use super::writer::Effort;
use crate::audit::chain::{StoredAuditEntry, hash_of, no_entry};
use crate::encoding::audit::{AuditedEvent, Body, ServiceEvent, chain_time};
use crate::{Audit, AuditAction, AuditEntry, MAX_PAGE, StoreError};
use agent_core::approval::canonical_json;
use agent_core::message::CallId;
use agent_core::tool::ToolSource;
use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params};

#[async_trait]
impl Audit for SqliteStore {
    async fn audit(&self, actions: Vec<AuditAction>) -> Result<(), StoreError> {
        let candidates = actions.clone();
        // Usually, the grants have not changed since the previous start of the host, so no entry needs to be written.
        if self.read(move |connection| Ok(new_actions(connection, &candidates)?.is_empty())).await? {
            return Ok(());
        }
        self.write(Effort::Short, move |connection| {
            let time = now();
            new_actions(connection, &actions)?.into_iter().try_for_each(|action| insert(connection, action, time))
        })
        .await
    }

    async fn audit_entries(&self, since: i64, after: u64, limit: usize) -> Result<Vec<AuditEntry>, StoreError> {
        self.read(move |connection| {
            let sql = "SELECT number, time, body FROM audit WHERE number > ?1 AND time >= ?2 ORDER BY number LIMIT ?3";
            collect(connection, sql, params![signed(after), since, sql_limit(limit)], entry)
        })
        .await
    }

    async fn stored_audit_entries(&self, after: u64, limit: usize) -> Result<Vec<StoredAuditEntry>, StoreError> {
        self.read(move |connection| {
            let sql = format!("SELECT {STORED_COLUMNS} FROM audit WHERE number > ?1 ORDER BY number LIMIT ?2");
            collect_page(connection, &sql, params![signed(after), sql_limit(limit)], stored_entry)
        })
        .await
    }

    async fn last_audit_number(&self) -> Result<u64, StoreError> {
        self.read(last_number).await
    }
}

/// Writes the audit entry for an event. The record of the event's call must be written first, because that record
/// contains the source of the tool.
pub(super) fn write_event(
    connection: &Connection,
    event: &AuditedEvent,
    (number, session): (i64, &str),
    time: i64,
) -> Result<(), Failure> {
    let source = event.call().map(|call| source_of(connection, number, call)).transpose()?.flatten();
    event.action(session, source).map_or(Ok(()), |action| insert(connection, &action, time))
}

/// Writes the audit entry for a service event that a plugin requested.
pub(super) fn write_service_event(
    connection: &Connection,
    event: &ServiceEvent,
    (number, session): (i64, &str),
    time: i64,
) -> Result<(), Failure> {
    let source = source_of(connection, number, &event.call)?;
    event.action(session, source).map_or(Ok(()), |action| insert(connection, &action, time))
}

/// Returns the source of a call's tool, or `None` if the call or its source is not stored.
fn source_of(connection: &Connection, session: i64, call: &CallId) -> Result<Option<ToolSource>, Failure> {
    let mut statement = connection.prepare_cached("SELECT source FROM calls WHERE session = ?1 AND id = ?2")?;
    let found = statement.query_row(params![session, call.0], |row| row.get::<_, Option<String>>(0));
    Ok(found.optional()?.flatten().as_deref().map(from_json).transpose()?)
}

/// Adds an entry whose hash covers the entry before it.
pub(super) fn insert(connection: &Connection, action: &AuditAction, time: i64) -> Result<(), Failure> {
    let body = Body::of(action)?;
    let number = last_number(connection)? + 1;
    let sql = "SELECT hash FROM audit ORDER BY number DESC LIMIT 1";
    let previous = connection.prepare_cached(sql)?.query_row([], |row| row.get(0)).optional()?;
    let (kind, time_text) = (action.kind().to_owned(), chain_time(time));
    let Body { text: body, subject } = body;
    let mut entry = StoredAuditEntry { number, time: time_text, kind, subject, body, hash: String::new() };
    entry.hash = hash_of(&entry, &previous.unwrap_or_else(|| no_entry().to_string()));
    connection
        .prepare_cached("INSERT INTO audit (number, time, kind, subject, body, hash) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
        .execute(params![signed(number), time, entry.kind, entry.subject, entry.body, entry.hash])?;
    Ok(())
}

const STORED_COLUMNS: &str = "number, time, kind, subject, body, hash";

fn stored_entry(row: &Row<'_>) -> Result<StoredAuditEntry, Failure> {
    Ok(StoredAuditEntry {
        number: unsigned(row.get(0)?),
        time: chain_time(row.get(1)?),
        kind: row.get(2)?,
        subject: row.get(3)?,
        body: row.get(4)?,
        hash: row.get(5)?,
    })
}

/// Returns the number of the last entry that was ever added. SQLite keeps this number when rows are deleted.
fn last_number(connection: &Connection) -> Result<u64, Failure> {
    let sql = "SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'audit'), 0),
                          coalesce((SELECT max(number) FROM audit), 0))";
    Ok(connection.prepare_cached(sql)?.query_row([], |row| row.get(0)).map(unsigned)?)
}

/// Adds hashes to all entries of an earlier version, and writes their bodies as canonical JSON. The migration that calls
/// this function has removed the trigger that forbids changes.
pub(super) fn add_hashes(connection: &Connection) -> Result<(), Failure> {
    let (mut after, mut previous) = (0, no_entry().to_string());
    let select = format!("SELECT {STORED_COLUMNS} FROM audit WHERE number > ?1 ORDER BY number LIMIT ?2");
    loop {
        let parameters = params![signed(after), sql_limit(MAX_PAGE)];
        let entries = collect_page(connection, &select, parameters, stored_entry)?;
        if entries.is_empty() {
            return Ok(());
        }
        for mut entry in entries {
            if let Ok(body) = serde_json::from_str(&entry.body) {
                entry.body = canonical_json(&body);
            }
            entry.hash = hash_of(&entry, &previous);
            let sql = "UPDATE audit SET body = ?2, hash = ?3 WHERE number = ?1";
            connection.prepare_cached(sql)?.execute(params![signed(entry.number), entry.body, entry.hash])?;
            (after, previous) = (entry.number, entry.hash);
        }
    }
}

/// Returns the actions that need a new entry: all actions except grants that equal the last recorded grants.
fn new_actions<'d>(connection: &Connection, actions: &'d [AuditAction]) -> Result<Vec<&'d AuditAction>, Failure> {
    let mut new = Vec::new();
    for action in actions {
        let is_recorded = match action {
            AuditAction::Granted { .. } => is_last_of_kind(connection, action)?.unwrap_or(false),
            AuditAction::HostGranted { grants, .. } => {
                is_last_of_kind(connection, action)?.unwrap_or(grants.is_empty())
            }
            _ => false,
        };
        if !is_recorded {
            new.push(action);
        }
    }
    Ok(new)
}

/// Returns whether the last entry with the same kind and subject contains the same action. `None` if there is no such
/// entry.
fn is_last_of_kind(connection: &Connection, action: &AuditAction) -> Result<Option<bool>, Failure> {
    let body = Body::of(action)?;
    let sql = "SELECT body FROM audit WHERE kind = ?1 AND subject = ?2 ORDER BY number DESC LIMIT 1";
    let mut statement = connection.prepare_cached(sql)?;
    let last = statement.query_row(params![action.kind(), body.subject], |row| row.get::<_, String>(0)).optional()?;
    Ok(last.map(|last| last == body.text))
}

fn entry(row: &Row<'_>) -> Result<AuditEntry, Failure> {
    let body: String = row.get(2)?;
    Ok(AuditEntry { number: unsigned(row.get(0)?), time: rfc3339(row.get(1)?)?, action: from_json(&body)? })
}
