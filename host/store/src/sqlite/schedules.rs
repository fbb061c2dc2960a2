//! Schedules: one row per schedule of an agent.

use super::SqliteStore;
use super::queries::{collect, sql_limit};
use super::writer::Effort;
use crate::{MAX_PAGE, ScheduleState, Schedules, StoreError};
use async_trait::async_trait;
use rusqlite::params;

#[async_trait]
impl Schedules for SqliteStore {
    async fn schedules(&self, agent: &str) -> Result<Vec<ScheduleState>, StoreError> {
        let agent = agent.to_owned();
        self.read(move |connection| {
            let sql = "SELECT agent, name, definition, due, last_run, last_session FROM schedules
                       WHERE agent = ?1 ORDER BY name LIMIT ?2";
            collect(connection, sql, params![agent, sql_limit(MAX_PAGE)], |row| {
                Ok(ScheduleState {
                    agent: row.get(0)?,
                    name: row.get(1)?,
                    definition: row.get(2)?,
                    due: row.get(3)?,
                    last_run: row.get(4)?,
                    last_session: row.get(5)?,
                })
            })
        })
        .await
    }

    async fn set_schedule(&self, state: ScheduleState) -> Result<(), StoreError> {
        self.write(Effort::Short, move |connection| {
            let ScheduleState { agent, name, definition, due, last_run, last_session } = &state;
            let sql = "INSERT INTO schedules (agent, name, definition, due, last_run, last_session)
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                       ON CONFLICT (agent, name) DO UPDATE SET definition = excluded.definition, due = excluded.due,
                           last_run = excluded.last_run, last_session = excluded.last_session";
            connection.prepare_cached(sql)?.execute(params![agent, name, definition, due, last_run, last_session])?;
            Ok(())
        })
        .await
    }

    async fn remove_schedule(&self, agent: &str, name: &str) -> Result<(), StoreError> {
        let (agent, name) = (agent.to_owned(), name.to_owned());
        self.write(Effort::Short, move |connection| {
            let sql = "DELETE FROM schedules WHERE agent = ?1 AND name = ?2";
            connection.prepare_cached(sql)?.execute(params![agent, name])?;
            Ok(())
        })
        .await
    }
}
