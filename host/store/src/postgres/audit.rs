//! The audit log: one row per entry. The row with the hash of the last entry is locked while entries are added, so that all
//! processes add to one chain.

use super::PostgresStore;
use super::connections::{Connection, Transaction};
use super::failure::Failure;
use super::queries::{NOW, number, value};
use super::text::{Text, text};
use crate::audit::chain::{StoredAuditEntry, hash_of};
use crate::encoding::audit::{Body, chain_time};
use crate::encoding::values::{from_json, rfc3339, signed, sql_limit};
use crate::{Audit, AuditAction, AuditEntry, MAX_PAGE_BYTES, StoreError};
use agent_core::message::CallId;
use agent_core::tool::ToolSource;
use async_trait::async_trait;
use std::time::Duration;
use tokio::sync::MutexGuard;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// Maximum time that a transaction waits for its turn to add audit entries.
const LONGEST_TURN_WAIT: Duration = Duration::from_secs(3);

#[async_trait]
impl Audit for PostgresStore {
    async fn audit(&self, actions: Vec<AuditAction>) -> Result<(), StoreError> {
        self.run(|| async {
            // Usually, the grants have not changed since the previous start of the host, so no entry needs to be written.
            if new_actions(&self.connection().await?, &actions).await?.is_empty() {
                return Ok(());
            }
            let transaction = self.unopened_transaction().await?;
            let turn = self.audit_turn().await?;
            transaction.open("BEGIN").await?;
            lock_head(&transaction).await?;
            let time: i64 = transaction.query_one(&format!("SELECT {NOW}"), &[]).await?.try_get(0)?;
            let new = new_actions(&transaction, &actions).await?;
            insert(&transaction, &new, time, &turn).await?;
            transaction.commit().await
        })
        .await
    }

    async fn audit_entries(&self, since: i64, after: u64, limit: usize) -> Result<Vec<AuditEntry>, StoreError> {
        self.run(|| async {
            let sql = "SELECT number, time, body FROM audit WHERE number > $1 AND time >= $2 ORDER BY number LIMIT $3";
            let rows = self.connection().await?.query(sql, &[&signed(after), &since, &sql_limit(limit)]).await?;
            let read = |row: &Row| {
                let (time, action) = (rfc3339(value(row, 1)?)?, from_json(value(row, 2)?)?);
                Ok(AuditEntry { number: number(row, 0)?, time, action })
            };
            rows.iter().map(read).collect()
        })
        .await
    }

    async fn stored_audit_entries(&self, after: u64, limit: usize) -> Result<Vec<StoredAuditEntry>, StoreError> {
        self.run(|| async {
            // A page has as many entries as fit, and at least one.
            let sql = "SELECT number, time, kind, subject, body, hash FROM (
                           SELECT *, sum(octet_length(body)) OVER (ORDER BY number) - octet_length(body) AS before FROM (
                               SELECT * FROM audit WHERE number > $1 ORDER BY number LIMIT $2) page) sized
                       WHERE before < $3 ORDER BY number";
            let bytes = MAX_PAGE_BYTES as i64;
            let rows = self.connection().await?.query(sql, &[&signed(after), &sql_limit(limit), &bytes]).await?;
            rows.iter().map(stored_entry).collect()
        })
        .await
    }

    async fn last_audit_number(&self) -> Result<u64, StoreError> {
        self.run(|| async {
            number(&self.connection().await?.query_one("SELECT number FROM audit_head", &[]).await?, 0)
        })
        .await
    }
}

/// The right of one transaction of this process to add audit entries. It is kept until the transaction has ended, unless the
/// transaction fails.
///
/// Such a transaction locks the last entry of the log for all processes. If the process is stopped meanwhile, the server ends the
/// transaction. Without this order, the next waiting transaction of the stopped process would then get the lock, and so on, and
/// other processes would wait for all of them.
pub(super) struct AuditTurn<'s>(#[expect(dead_code, reason = "it ends when it is dropped")] MutexGuard<'s, ()>);

impl PostgresStore {
    /// Waits until no other transaction of this process adds audit entries. The caller must have its connection already, because
    /// those that wait for the turn may have all connections.
    ///
    /// The wait is shorter than the time after which the server ends a transaction that does nothing. After it, the transaction
    /// runs again.
    pub(super) async fn audit_turn(&self) -> Result<AuditTurn<'_>, Failure> {
        let turn = tokio::time::timeout(LONGEST_TURN_WAIT, self.audit_turn.lock()).await;
        turn.map(AuditTurn).map_err(|_| Failure::RunAgain)
    }
}

/// Returns the source of a call's tool, or `None` if the call or its source is not stored.
pub(super) async fn source_of(
    transaction: &Transaction,
    session: &str,
    call: &CallId,
) -> Result<Option<ToolSource>, Failure> {
    let sql = "SELECT source FROM calls WHERE session = $1 AND id = $2";
    let row = transaction.query_opt(sql, &[&Text(session), &Text(&call.0)]).await?;
    let Some(row) = row else { return Ok(None) };
    Ok(value::<Option<&str>>(&row, 0)?.map(from_json).transpose()?)
}

/// Locks the last entry, and returns its number and its hash.
async fn lock_head(transaction: &Transaction) -> Result<(u64, String), Failure> {
    let row = transaction.query_one("SELECT number, hash FROM audit_head FOR UPDATE", &[]).await?;
    Ok((number(&row, 0)?, text(&row, 1)?))
}

/// Adds entries, whose hashes cover the entries before them.
pub(super) async fn insert(
    transaction: &Transaction,
    actions: &[&AuditAction],
    time: i64,
    _turn: &AuditTurn<'_>,
) -> Result<(), Failure> {
    if actions.is_empty() {
        return Ok(());
    }
    let (mut number, mut hash) = lock_head(transaction).await?;
    for action in actions {
        let Body { text: body, subject } = Body::of(action)?;
        number += 1;
        let kind = action.kind().to_owned();
        let mut entry = StoredAuditEntry { number, time: chain_time(time), kind, subject, body, hash: String::new() };
        entry.hash = hash_of(&entry, &hash);
        let sql = "INSERT INTO audit (number, time, kind, subject, body, hash) VALUES ($1, $2, $3, $4, $5, $6)";
        let StoredAuditEntry { kind, subject, body, .. } = &entry;
        let parameters: [&(dyn ToSql + Sync); 6] =
            [&signed(number), &time, &Text(kind), &Text(subject), body, &entry.hash];
        transaction.execute(sql, &parameters).await?;
        hash = entry.hash;
    }
    transaction.execute("UPDATE audit_head SET number = $1, hash = $2", &[&signed(number), &hash]).await?;
    Ok(())
}

fn stored_entry(row: &Row) -> Result<StoredAuditEntry, Failure> {
    Ok(StoredAuditEntry {
        number: number(row, 0)?,
        time: chain_time(value(row, 1)?),
        kind: text(row, 2)?,
        subject: text(row, 3)?,
        body: value(row, 4)?,
        hash: text(row, 5)?,
    })
}

/// Returns the actions that need a new entry: all actions except grants that equal the last recorded grants.
async fn new_actions<'d>(connection: &Connection, actions: &'d [AuditAction]) -> Result<Vec<&'d AuditAction>, Failure> {
    let mut new = Vec::new();
    for action in actions {
        let is_recorded = match action {
            AuditAction::Granted { .. } => is_last_of_kind(connection, action).await?.unwrap_or(false),
            AuditAction::HostGranted { grants, .. } => {
                is_last_of_kind(connection, action).await?.unwrap_or(grants.is_empty())
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
async fn is_last_of_kind(connection: &Connection, action: &AuditAction) -> Result<Option<bool>, Failure> {
    let body = Body::of(action)?;
    // Subjects may be too long for an index, so their hashes are compared first.
    let sql = "SELECT body FROM audit WHERE kind = $1 AND md5(subject) = md5($2) AND subject = $2
               ORDER BY number DESC LIMIT 1";
    let row = connection.query_opt(sql, &[&action.kind(), &Text(&body.subject)]).await?;
    row.map(|row| value::<&str>(&row, 0).map(|last| last == body.text)).transpose()
}
