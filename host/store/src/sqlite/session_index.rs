//! Lists sessions from the `sessions` table, and searches messages with the full-text index.

use super::failure::Failure;
use super::owners::{Liveness, Owner};
use super::queries::{collect, rfc3339, session_state, sql_limit, unsigned};
use super::search;
use super::usage;
use super::writer::Effort;
use super::{Access, SqliteStore};
use crate::{MessageHit, SessionFilter, SessionIndex, SessionState, SessionSummary, StoreError, Unowned};
use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params};

#[async_trait]
impl SessionIndex for SqliteStore {
    async fn sessions(&self, filter: SessionFilter, limit: usize) -> Result<Vec<SessionSummary>, StoreError> {
        let owner = self.owner.clone();
        self.read(move |connection| {
            let SessionFilter { subject, agent, user, unowned, state, delegated_by } = filter;
            // Add the condition on a column only if the filter restricts that column, so that SQLite can use the
            // column's index.
            let by_subject = if subject.is_some() { "subject = ?6" } else { "?6 IS NULL" };
            let by_parent = if delegated_by.is_some() { "delegated_by = ?4" } else { "?4 IS NULL" };
            let sql = format!(
                "SELECT subject, agent, user, created, updated, revision, turns, last_message, state, title, owner,
                 delegated_by, id FROM sessions WHERE (?1 IS NULL OR agent = ?1) AND (?2 IS NULL OR user = ?2 OR (?7 AND user IS NULL))
                 AND (?3 IS NULL OR state = ?3) AND {by_parent} AND {by_subject}
                 ORDER BY place DESC, id DESC LIMIT ?5"
            );
            let parameters = params![agent, user, state.map(SessionState::as_str), delegated_by, sql_limit(limit), subject, unowned == Unowned::Shown];
            collect(connection, &sql, parameters, |row| summary(connection, &owner, row))
        })
        .await
    }

    async fn latest(&self, agent: &str) -> Result<Option<String>, StoreError> {
        let agent = agent.to_owned();
        self.read(move |connection| {
            let sql = "SELECT subject FROM sessions WHERE agent = ?1 AND delegated_by IS NULL AND revision > 0
                       AND state <> 'incomplete' ORDER BY place DESC, id DESC LIMIT 1";
            Ok(connection.prepare_cached(sql)?.query_row([agent], |row| row.get(0)).optional()?)
        })
        .await
    }

    async fn unfinished(&self, after: &str, limit: usize) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let after = after.to_owned();
        self.read(move |connection| {
            let sql = "SELECT s.subject, p.run FROM sessions s JOIN snapshots p ON p.session = s.id
                       WHERE s.subject > ?1 AND s.state IN ('running', 'suspended') ORDER BY s.subject LIMIT ?2";
            collect(connection, sql, params![after, sql_limit(limit)], |row| Ok((row.get(0)?, row.get(1)?)))
        })
        .await
    }

    async fn search_messages(&self, query: &str, limit: usize) -> Result<Vec<MessageHit>, StoreError> {
        // Commits do not update the search index, so each search first updates the index.
        self.update_message_index().await?;
        let query = query.to_owned();
        self.read(move |connection| search::messages(connection, &query, limit)).await
    }

    async fn search_evicted(&self, session: &str, query: &str, limit: usize) -> Result<Vec<MessageHit>, StoreError> {
        self.update_message_index().await?;
        let (session, query) = (session.to_owned(), query.to_owned());
        self.read(move |connection| search::evicted(connection, &session, &query, limit)).await
    }
}

impl SqliteStore {
    /// Adds all committed messages to the search index. A read-only store searches only the messages that are
    /// already indexed.
    async fn update_message_index(&self) -> Result<(), StoreError> {
        if self.access == Access::ReadOnly {
            return Ok(());
        }
        while self.write(Effort::Long, search::index_next_batch).await? == search::Progress::Indexed {}
        Ok(())
    }
}

fn summary(connection: &Connection, owner: &Owner, row: &Row<'_>) -> Result<SessionSummary, Failure> {
    let stored_owner: Option<String> = row.get(10)?;
    let open_in = match stored_owner.map(|stored| owner.liveness(&stored)) {
        Some(Liveness::Alive(holder)) => Some(holder),
        Some(Liveness::Dead) | None => None,
    };
    Ok(SessionSummary {
        subject: row.get(0)?,
        agent: row.get(1)?,
        user: row.get(2)?,
        delegated_by: row.get(11)?,
        created: rfc3339(row.get(3)?)?,
        updated: rfc3339(row.get(4)?)?,
        revision: unsigned(row.get(5)?),
        turns: row.get(6)?,
        messages: unsigned(row.get(7)?),
        state: session_state(&row.get::<_, String>(8)?)?,
        open_in,
        title: row.get(9)?,
        usage: usage::of_session(connection, row.get(12)?)?,
    })
}
