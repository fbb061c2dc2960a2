//! The outbox: rows that are written by commits, with the time at which each item was delivered.

use super::PostgresStore;
use super::connections::ASYNCHRONOUS_COMMIT;
use super::failure::Failure;
use super::queries::{NOW, check_session, number, small, value};
use super::text::{Text, optional_text, text};
use crate::encoding::outbox::effect;
use crate::encoding::values::{rfc3339, signed, sql_limit};
use crate::{Outbox, OutboxFilter, StoreError, StoredOutboxItem};
use agent_core::change::OutboxItem;
use async_trait::async_trait;
use tokio_postgres::Row;

#[async_trait]
impl Outbox for PostgresStore {
    async fn outbox(
        &self,
        session: Option<&str>,
        which: OutboxFilter,
        after: u64,
        limit: usize,
    ) -> Result<Vec<StoredOutboxItem>, StoreError> {
        self.run(|| async {
            let connection = self.connection().await?;
            let pending = match which {
                OutboxFilter::Pending => "AND o.delivered IS NULL",
                OutboxFilter::All => "",
            };
            let of_session = if session.is_some() { "AND o.session = $3" } else { "AND $3::text IS NULL" };
            let sql = format!(
                "SELECT o.number, o.session, o.id, o.kind, o.body, o.created, o.delivered, s.agent, o.failed_attempts,
                        o.problem
                 FROM outbox o JOIN sessions s ON s.session = o.session
                 WHERE o.number > $1 {pending} {of_session} ORDER BY o.number LIMIT $2"
            );
            let parameter = session.map(Text);
            let rows = connection.query(&sql, &[&signed(after), &sql_limit(limit), &parameter]).await?;
            if let Some(session) = session.filter(|_| rows.is_empty()) {
                check_session(&connection, session).await?;
            }
            rows.iter().map(stored_item).collect()
        })
        .await
    }

    async fn mark_delivered(&self, number: u64) -> Result<(), StoreError> {
        self.run_repeatable(|| async {
            let sql = format!(
                "UPDATE outbox SET delivered = {NOW} FROM {ASYNCHRONOUS_COMMIT}
                 WHERE number = $1 AND delivered IS NULL AND kind <> 'remember'"
            );
            self.connection().await?.execute(&sql, &[&signed(number)]).await?;
            Ok(())
        })
        .await
    }

    async fn note_failed_delivery(&self, number: u64, problem: &str) -> Result<(), StoreError> {
        self.run(|| async {
            let sql = "UPDATE outbox SET failed_attempts = failed_attempts + 1, problem = $2
                       WHERE number = $1 AND delivered IS NULL";
            self.connection().await?.execute(sql, &[&signed(number), &Text(problem)]).await?;
            Ok(())
        })
        .await
    }
}

fn stored_item(row: &Row) -> Result<StoredOutboxItem, Failure> {
    Ok(StoredOutboxItem {
        number: number(row, 0)?,
        session: text(row, 1)?,
        item: OutboxItem { id: text(row, 2)?, effect: effect(value(row, 3)?, value(row, 4)?)? },
        created: rfc3339(value(row, 5)?)?,
        delivered: value::<Option<i64>>(row, 6)?.map(rfc3339).transpose()?,
        agent: text(row, 7)?,
        failed_attempts: small(row, 8)?,
        problem: optional_text(row, 9)?,
    })
}
