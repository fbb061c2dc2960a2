//! Counts for monitoring.

use super::SqliteStore;
use super::queries::{collect, session_state, unsigned};
use crate::{Monitoring, SessionCount, StoreError, Undelivered, WriteStatistics};
use async_trait::async_trait;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[async_trait]
impl Monitoring for SqliteStore {
    async fn session_counts(&self) -> Result<Vec<SessionCount>, StoreError> {
        self.read(|connection| {
            let sql = "SELECT agent, state, count(*) FROM sessions WHERE revision > 0 GROUP BY agent, state
                       ORDER BY agent, state";
            collect(connection, sql, [], |row| {
                let state = session_state(&row.get::<_, String>(1)?)?;
                Ok(SessionCount { agent: row.get(0)?, state, sessions: unsigned(row.get(2)?) })
            })
        })
        .await
    }

    async fn undelivered(&self) -> Result<Undelivered, StoreError> {
        self.read(|connection| {
            let sql = "SELECT count(*), (SELECT created FROM outbox WHERE delivered IS NULL ORDER BY number LIMIT 1)
                       FROM outbox WHERE delivered IS NULL";
            let read = |row: &rusqlite::Row<'_>| Ok((unsigned(row.get(0)?), row.get::<_, Option<i64>>(1)?));
            let (items, created) = connection.prepare_cached(sql)?.query_row([], read)?;
            let created = created.map(|created| UNIX_EPOCH + Duration::from_micros(unsigned(created)));
            let oldest = created.and_then(|created| SystemTime::now().duration_since(created).ok());
            Ok(Undelivered { items, oldest: oldest.unwrap_or_default() })
        })
        .await
    }

    fn write_statistics(&self) -> WriteStatistics {
        let stats = self.stats();
        let (durations, total) = self.counters.durations.read();
        WriteStatistics {
            commits: stats.commits,
            transactions: stats.transactions,
            waiting: self.writer.waiting() as u64,
            durations,
            total,
        }
    }
}
