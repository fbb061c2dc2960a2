//! Counts for monitoring.

use super::PostgresStore;
use super::queries::{NOW, number, value};
use super::text::text;
use crate::encoding::values::session_state;
use crate::{Monitoring, SessionCount, StoreError, Undelivered, WriteStatistics};
use async_trait::async_trait;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[async_trait]
impl Monitoring for PostgresStore {
    async fn session_counts(&self) -> Result<Vec<SessionCount>, StoreError> {
        self.run(|| async {
            let sql = "SELECT agent, state, count(*) FROM sessions WHERE revision > 0 GROUP BY agent, state
                       ORDER BY agent, state";
            let rows = self.connection().await?.query(sql, &[]).await?;
            let read = |row: &tokio_postgres::Row| {
                let state = session_state(&text(row, 1)?)?;
                Ok(SessionCount { agent: text(row, 0)?, state, sessions: number(row, 2)? })
            };
            rows.iter().map(read).collect()
        })
        .await
    }

    async fn undelivered(&self) -> Result<Undelivered, StoreError> {
        self.run(|| async {
            let sql = format!(
                "SELECT count(*), {NOW} - (SELECT created FROM outbox WHERE delivered IS NULL ORDER BY number LIMIT 1)
                 FROM outbox WHERE delivered IS NULL"
            );
            let row = self.connection().await?.query_one(&sql, &[]).await?;
            let age = value::<Option<i64>>(&row, 1)?.and_then(|age| u64::try_from(age).ok()).unwrap_or_default();
            Ok(Undelivered { items: number(&row, 0)?, oldest: Duration::from_micros(age) })
        })
        .await
    }

    /// Counts the commits of sessions. Each of them is one transaction. The duration of a commit includes the requests to the
    /// database.
    fn write_statistics(&self) -> WriteStatistics {
        let (durations, total) = self.writes.durations.read();
        let commits = self.writes.commits.load(Ordering::Relaxed);
        let waiting = self.pool.status().waiting as u64;
        WriteStatistics { commits, transactions: commits, waiting, durations, total }
    }
}
