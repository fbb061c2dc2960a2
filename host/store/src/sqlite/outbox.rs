//! The outbox: rows that are written by commits, with the time at which each item was delivered.

use super::SqliteStore;
use super::failure::Failure;
use super::queries::{collect, now, rfc3339, session_number, signed, sql_limit, unsigned};
use super::writer::Effort;
use crate::encoding::outbox::{OutboxRow, effect};
use crate::{Outbox, OutboxFilter, StoreError, StoredOutboxItem};
use agent_core::change::OutboxItem;
use async_trait::async_trait;
use rusqlite::{Connection, Row, params};

#[async_trait]
impl Outbox for SqliteStore {
    async fn outbox(
        &self,
        session: Option<&str>,
        which: OutboxFilter,
        after: u64,
        limit: usize,
    ) -> Result<Vec<StoredOutboxItem>, StoreError> {
        let session = session.map(str::to_owned);
        self.read(move |connection| {
            let session = session.map(|session| session_number(connection, &session)).transpose()?;
            // Build a separate statement for each combination of filters, so that SQLite can use an index for
            // these filters.
            let pending = match which {
                OutboxFilter::Pending => "AND delivered IS NULL",
                OutboxFilter::All => "",
            };
            let of_session = if session.is_some() { "AND o.session = ?3" } else { "AND ?3 IS NULL" };
            let sql = format!(
                "SELECT o.number, s.subject, o.id, o.kind, o.body, o.created, o.delivered, s.agent, o.failed_attempts, o.problem
                 FROM outbox o JOIN sessions s ON s.id = o.session
                 WHERE o.number > ?1 {pending} {of_session} ORDER BY o.number LIMIT ?2"
            );
            collect(connection, &sql, params![signed(after), sql_limit(limit), session], stored_item)
        })
        .await
    }

    async fn mark_delivered(&self, number: u64) -> Result<(), StoreError> {
        self.write(Effort::Short, move |connection| {
            connection
                .prepare_cached(
                    "UPDATE outbox SET delivered = ?2 WHERE number = ?1 AND delivered IS NULL AND kind <> 'remember'",
                )?
                .execute(params![signed(number), now()])?;
            Ok(())
        })
        .await
    }

    async fn note_failed_delivery(&self, number: u64, problem: &str) -> Result<(), StoreError> {
        let problem = problem.to_owned();
        self.write(Effort::Short, move |connection| {
            let sql = "UPDATE outbox SET failed_attempts = failed_attempts + 1, problem = ?2
                       WHERE number = ?1 AND delivered IS NULL";
            connection.prepare_cached(sql)?.execute(params![signed(number), problem])?;
            Ok(())
        })
        .await
    }
}

/// Writes the outbox items. Skips each item whose id already belongs to an item of the session.
pub(super) fn insert(connection: &Connection, session: i64, rows: &[OutboxRow], time: i64) -> Result<(), Failure> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut statement = connection.prepare_cached(
        "INSERT INTO outbox (session, id, kind, body, created) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (session, id) DO NOTHING",
    )?;
    for OutboxRow { id, kind, body } in rows {
        statement.execute(params![session, id, kind, body, time])?;
    }
    Ok(())
}

fn stored_item(row: &Row<'_>) -> Result<StoredOutboxItem, Failure> {
    let effect = effect(&row.get::<_, String>(3)?, &row.get::<_, String>(4)?)?;
    Ok(StoredOutboxItem {
        number: unsigned(row.get(0)?),
        session: row.get(1)?,
        item: OutboxItem { id: row.get(2)?, effect },
        created: rfc3339(row.get(5)?)?,
        delivered: row.get::<_, Option<i64>>(6)?.map(rfc3339).transpose()?,
        agent: row.get(7)?,
        failed_attempts: row.get(8)?,
        problem: row.get(9)?,
    })
}
