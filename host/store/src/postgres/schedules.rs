//! Schedules: one row per schedule of an agent.

use super::PostgresStore;
use super::queries::value;
use super::text::{Text, optional, optional_text, text};
use crate::encoding::values::sql_limit;
use crate::{MAX_PAGE, ScheduleState, Schedules, StoreError};
use async_trait::async_trait;
use tokio_postgres::types::ToSql;

#[async_trait]
impl Schedules for PostgresStore {
    async fn schedules(&self, agent: &str) -> Result<Vec<ScheduleState>, StoreError> {
        self.run(|| async {
            let sql = "SELECT agent, name, definition, due, last_run, last_session FROM schedules
                       WHERE agent = $1 ORDER BY name LIMIT $2";
            let rows = self.connection().await?.query(sql, &[&Text(agent), &sql_limit(MAX_PAGE)]).await?;
            let read = |row| {
                Ok(ScheduleState {
                    agent: text(row, 0)?,
                    name: text(row, 1)?,
                    definition: text(row, 2)?,
                    due: value(row, 3)?,
                    last_run: value(row, 4)?,
                    last_session: optional_text(row, 5)?,
                })
            };
            rows.iter().map(read).collect()
        })
        .await
    }

    async fn set_schedule(&self, state: ScheduleState) -> Result<(), StoreError> {
        self.run_repeatable(|| async {
            let ScheduleState { agent, name, definition, due, last_run, last_session } = &state;
            let sql = "INSERT INTO schedules (agent, name, definition, due, last_run, last_session)
                       VALUES ($1, $2, $3, $4, $5, $6)
                       ON CONFLICT (agent, name) DO UPDATE SET definition = excluded.definition, due = excluded.due,
                           last_run = excluded.last_run, last_session = excluded.last_session";
            let session = optional(last_session.as_deref());
            let parameters: [&(dyn ToSql + Sync); 6] =
                [&Text(agent), &Text(name), &Text(definition), due, last_run, &session];
            self.connection().await?.execute(sql, &parameters).await?;
            Ok(())
        })
        .await
    }

    async fn remove_schedule(&self, agent: &str, name: &str) -> Result<(), StoreError> {
        self.run_repeatable(|| async {
            let sql = "DELETE FROM schedules WHERE agent = $1 AND name = $2";
            self.connection().await?.execute(sql, &[&Text(agent), &Text(name)]).await?;
            Ok(())
        })
        .await
    }
}
