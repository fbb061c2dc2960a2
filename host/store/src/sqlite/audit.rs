//! The audit log: one row per entry. Some audit entries are derived from the events and outbox items of a commit.

use super::SqliteStore;
use super::failure::Failure;
use super::queries::{collect, from_json, now, rfc3339, signed, sql_limit, to_json, unsigned};
use super::writer::Effort;
use crate::{Audit, AuditAction, AuditEntry, StoreError};
use agent_core::change::{OutboxEffect, OutboxItem};
use agent_core::event::EventKind;
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
}

/// An event that the audit log records.
#[derive(Clone, Debug)]
pub(super) struct AuditedEvent(EventKind);

impl AuditedEvent {
    /// Returns the event if the audit log records events of its kind.
    pub(super) fn of(kind: &EventKind) -> Option<Self> {
        matches!(kind, EventKind::Denied { .. } | EventKind::ApprovalResolved { .. }).then(|| Self(kind.clone()))
    }

    /// Writes the audit entry for the event. The record of the event's call must be written first, because that record
    /// contains the source of the tool.
    pub(super) fn write(&self, connection: &Connection, session: (i64, &str), time: i64) -> Result<(), Failure> {
        let (number, subject) = session;
        let source = |call: &CallId| source_of(connection, number, call);
        let session = subject.to_owned();
        let action = match &self.0 {
            EventKind::Denied { call, denial } => {
                let source = call.as_ref().map(source).transpose()?.flatten();
                AuditAction::Denied { session, source, call: call.clone(), denial: denial.clone() }
            }
            EventKind::ApprovalResolved { call, name, verdict } => AuditAction::Approval {
                session,
                source: source(call)?,
                call: call.clone(),
                tool: name.clone(),
                verdict: *verdict,
            },
            _ => return Ok(()),
        };
        insert(connection, &action, time)
    }
}

/// A service event that was requested by a call in the commit.
#[derive(Clone, Debug)]
pub(super) struct ServiceEvent {
    call: CallId,
    event_type: String,
}

impl ServiceEvent {
    /// Returns the event of an outbox item if the item is a service event. The item's id is the id of the call that
    /// requested the event.
    pub(super) fn of(item: &OutboxItem) -> Option<Self> {
        match &item.effect {
            OutboxEffect::Event(event) => {
                Some(Self { call: CallId(item.id.clone()), event_type: event.event_type.clone() })
            }
            OutboxEffect::Allow(_) | OutboxEffect::Remember { .. } | OutboxEffect::Forget { .. } => None,
        }
    }

    /// Writes the audit entry if a plugin requested the event. No entry is needed for an event that the model itself
    /// requested, because the session log contains the model's call.
    pub(super) fn write(&self, connection: &Connection, session: (i64, &str), time: i64) -> Result<(), Failure> {
        let (number, subject) = session;
        let Some(source @ ToolSource::Plugin { .. }) = source_of(connection, number, &self.call)? else {
            return Ok(());
        };
        let (call, event_type) = (self.call.clone(), self.event_type.clone());
        insert(connection, &AuditAction::Emitted { session: subject.to_owned(), call, source, event_type }, time)
    }
}

/// Returns the source of a call's tool, or `None` if the call or its source is not stored.
fn source_of(connection: &Connection, session: i64, call: &CallId) -> Result<Option<ToolSource>, Failure> {
    let mut statement = connection.prepare_cached("SELECT source FROM calls WHERE session = ?1 AND id = ?2")?;
    let found = statement.query_row(params![session, call.0], |row| row.get::<_, Option<String>>(0));
    found.optional()?.flatten().as_deref().map(from_json).transpose()
}

pub(super) fn insert(connection: &Connection, action: &AuditAction, time: i64) -> Result<(), Failure> {
    let body = to_json("an entry of the audit log", action)?;
    connection
        .prepare_cached("INSERT INTO audit (time, kind, subject, body) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![time, action.kind(), action.subject(), body])?;
    Ok(())
}

/// Returns the actions that need a new entry: all actions except grants that equal the last recorded grants.
fn new_actions<'d>(connection: &Connection, actions: &'d [AuditAction]) -> Result<Vec<&'d AuditAction>, Failure> {
    let mut new = Vec::new();
    for action in actions {
        let is_recorded = match action {
            AuditAction::Granted { .. } => last_of_kind(connection, action)?.as_ref() == Some(action),
            AuditAction::HostGranted { grants, .. } => {
                last_of_kind(connection, action)?.map_or(grants.is_empty(), |last| last == *action)
            }
            _ => false,
        };
        if !is_recorded {
            new.push(action);
        }
    }
    Ok(new)
}

/// Returns the action of the last entry that has the same kind and subject as `action`.
fn last_of_kind(connection: &Connection, action: &AuditAction) -> Result<Option<AuditAction>, Failure> {
    let sql = "SELECT body FROM audit WHERE kind = ?1 AND subject = ?2 ORDER BY number DESC LIMIT 1";
    let mut statement = connection.prepare_cached(sql)?;
    let last =
        statement.query_row(params![action.kind(), action.subject()], |row| row.get::<_, String>(0)).optional()?;
    last.as_deref().map(from_json).transpose()
}

fn entry(row: &Row<'_>) -> Result<AuditEntry, Failure> {
    let body: String = row.get(2)?;
    Ok(AuditEntry { number: unsigned(row.get(0)?), time: rfc3339(row.get(1)?)?, action: from_json(&body)? })
}
