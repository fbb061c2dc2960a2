//! The audit log: one row per entry, and the entries that a commit's own events make.

use super::SqliteStore;
use super::failure::Failure;
use super::queries::{collect, from_json, now, page, rfc3339, signed, to_json, unsigned};
use super::writer::Effort;
use crate::{Audit, AuditEntry, Deed, StoreError};
use agent_core::change::{OutboxEffect, OutboxItem};
use agent_core::event::EventKind;
use agent_core::message::CallId;
use agent_core::tool::ToolSource;
use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params};

#[async_trait]
impl Audit for SqliteStore {
    async fn audit(&self, deeds: Vec<Deed>) -> Result<(), StoreError> {
        let asked = deeds.clone();
        // Most starts grant what was granted before, and then nothing is written.
        if self.read(move |connection| Ok(new_ones(connection, &asked)?.is_empty())).await? {
            return Ok(());
        }
        self.write(Effort::Short, move |connection| {
            let time = now();
            new_ones(connection, &deeds)?.into_iter().try_for_each(|deed| insert(connection, deed, time))
        })
        .await
    }

    async fn audited(&self, since: i64, after: u64, limit: usize) -> Result<Vec<AuditEntry>, StoreError> {
        self.read(move |connection| {
            let sql = "SELECT number, time, body FROM audit WHERE number > ?1 AND time >= ?2 ORDER BY number LIMIT ?3";
            collect(connection, sql, params![signed(after), since, page(limit)], entry)
        })
        .await
    }
}

/// What of an event is an entry, but for its session.
#[derive(Clone, Debug)]
pub(super) struct AuditedEvent(EventKind);

impl AuditedEvent {
    /// Of an event that is worth an entry.
    pub(super) fn of(kind: &EventKind) -> Option<Self> {
        matches!(kind, EventKind::Denied { .. } | EventKind::ApprovalResolved { .. }).then(|| Self(kind.clone()))
    }

    /// Writes the entry. The call's source is in its record, which was written before.
    pub(super) fn write(&self, connection: &Connection, session: (i64, &str), time: i64) -> Result<(), Failure> {
        let (number, subject) = session;
        let source = |call: &CallId| source_of(connection, number, call);
        let session = subject.to_owned();
        let deed = match &self.0 {
            EventKind::Denied { call, denial } => {
                let source = call.as_ref().map(source).transpose()?.flatten();
                Deed::Denied { session, source, call: call.clone(), denial: denial.clone() }
            }
            EventKind::ApprovalResolved { call, name, verdict } => Deed::Approval {
                session,
                source: source(call)?,
                call: call.clone(),
                tool: name.clone(),
                verdict: *verdict,
            },
            _ => return Ok(()),
        };
        insert(connection, &deed, time)
    }
}

/// A service event of a commit, by the call that asked for it.
#[derive(Clone, Debug)]
pub(super) struct SentEvent {
    call: CallId,
    event_type: String,
}

impl SentEvent {
    /// Of an item of the outbox that a call asked for: the item's id is the call's.
    pub(super) fn of(item: &OutboxItem) -> Option<Self> {
        match &item.effect {
            OutboxEffect::Event(event) => {
                Some(Self { call: CallId(item.id.clone()), event_type: event.event_type.clone() })
            }
            OutboxEffect::Allow(_) | OutboxEffect::Remember { .. } | OutboxEffect::Forget { .. } => None,
        }
    }

    /// Writes the entry where a plugin asked for the event. What the model itself asks of a service is its call.
    pub(super) fn write(&self, connection: &Connection, session: (i64, &str), time: i64) -> Result<(), Failure> {
        let (number, subject) = session;
        let Some(source @ ToolSource::Plugin { .. }) = source_of(connection, number, &self.call)? else {
            return Ok(());
        };
        let (call, event_type) = (self.call.clone(), self.event_type.clone());
        insert(connection, &Deed::Emitted { session: subject.to_owned(), call, source, event_type }, time)
    }
}

/// Where the tool of a call comes from.
fn source_of(connection: &Connection, session: i64, call: &CallId) -> Result<Option<ToolSource>, Failure> {
    let mut statement = connection.prepare_cached("SELECT source FROM calls WHERE session = ?1 AND id = ?2")?;
    let found = statement.query_row(params![session, call.0], |row| row.get::<_, Option<String>>(0));
    found.optional()?.flatten().as_deref().map(from_json).transpose()
}

pub(super) fn insert(connection: &Connection, deed: &Deed, time: i64) -> Result<(), Failure> {
    let body = to_json("an entry of the audit log", deed)?;
    connection
        .prepare_cached("INSERT INTO audit (time, kind, subject, body) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![time, deed.word(), deed.subject(), body])?;
    Ok(())
}

fn new_ones<'d>(connection: &Connection, deeds: &'d [Deed]) -> Result<Vec<&'d Deed>, Failure> {
    let mut new = Vec::new();
    for deed in deeds {
        let is_told = match deed {
            Deed::Granted { .. } => last(connection, deed)?.as_ref() == Some(deed),
            Deed::HostGranted { grants, .. } => last(connection, deed)?.map_or(grants.is_empty(), |last| last == *deed),
            _ => false,
        };
        if !is_told {
            new.push(deed);
        }
    }
    Ok(new)
}

/// The last entry about the same.
fn last(connection: &Connection, deed: &Deed) -> Result<Option<Deed>, Failure> {
    let sql = "SELECT body FROM audit WHERE kind = ?1 AND subject = ?2 ORDER BY number DESC LIMIT 1";
    let mut statement = connection.prepare_cached(sql)?;
    let last = statement.query_row(params![deed.word(), deed.subject()], |row| row.get::<_, String>(0)).optional()?;
    last.as_deref().map(from_json).transpose()
}

fn entry(row: &Row<'_>) -> Result<AuditEntry, Failure> {
    let body: String = row.get(2)?;
    Ok(AuditEntry { number: unsigned(row.get(0)?), time: rfc3339(row.get(1)?)?, deed: from_json(&body)? })
}
