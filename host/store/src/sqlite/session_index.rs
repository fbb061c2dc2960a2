//! Lists sessions from the `sessions` table, and searches messages with the full-text index.

use super::failure::{Failure, invalid};
use super::owners::{Liveness, Owner};
use super::queries::{collect, rfc3339, session_state, signed, sql_limit, to_json, unsigned};
use super::search;
use super::usage;
use super::writer::Effort;
use super::{Access, SqliteStore};
use crate::{
    ContinuableSession, ContinuationReason, ListPosition, MAX_PAGE, MessageHit, SearchedSessions, SessionFilter,
    SessionIndex, SessionState, SessionSummary, StoreError, Unowned, UsageTotal,
};
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
                "SELECT {SUMMARY_COLUMNS} FROM sessions WHERE (?1 IS NULL OR agent = ?1) AND (?2 IS NULL OR user = ?2 OR (?7 AND user IS NULL))
                 AND (?3 IS NULL OR state = ?3) AND {by_parent} AND {by_subject}
                 ORDER BY place DESC, id DESC LIMIT ?5"
            );
            let parameters = params![agent, user, state.map(SessionState::as_str), delegated_by, sql_limit(limit), subject, unowned == Unowned::Shown];
            collect(connection, &sql, parameters, |row| summary(connection, &owner, row))
        })
        .await
    }

    async fn suspended(
        &self,
        agents: &[String],
        user: Option<&str>,
        after: Option<ListPosition>,
        limit: usize,
    ) -> Result<Vec<(ListPosition, SessionSummary)>, StoreError> {
        let (owner, agents) = (self.owner.clone(), json_list("a list of agents", agents)?);
        let (user, after) = (user.map(str::to_owned), after.unwrap_or(ListPosition { place: i64::MIN, number: 0 }));
        self.read(move |connection| {
            // The first condition is that of the index of open turns. The signs keep SQLite from reading all sessions in the order
            // of their places instead.
            let sql = format!(
                "SELECT {SUMMARY_COLUMNS}, place FROM sessions
                 WHERE state IN ('running', 'suspended') AND state = 'suspended'
                 AND agent IN (SELECT value FROM json_each(?1)) AND (?2 IS NULL OR user = ?2)
                 AND (+place, +id) > (?3, ?4) ORDER BY +place, +id LIMIT ?5"
            );
            let parameters = params![agents, user, after.place, after.number, sql_limit(limit)];
            collect(connection, &sql, parameters, |row| {
                let position = ListPosition { place: row.get(13)?, number: row.get(12)? };
                Ok((position, summary(connection, &owner, row)?))
            })
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

    async fn continuable(
        &self,
        agents: &[String],
        now: u64,
        after: &str,
        limit: usize,
    ) -> Result<Vec<ContinuableSession>, StoreError> {
        let (owner, agents, after) = (self.owner.clone(), json_list("a list of agents", agents)?, after.to_owned());
        self.read(move |connection| continuable(connection, &owner, (&agents, now, &after), limit)).await
    }

    async fn last_events(&self, sessions: &[String]) -> Result<Vec<(String, u64)>, StoreError> {
        let sessions = json_list("a list of sessions", sessions)?;
        self.read(move |connection| {
            let sql = "SELECT subject, last_event FROM sessions WHERE subject IN (SELECT value FROM json_each(?1))";
            collect(connection, sql, [sessions], |row| Ok((row.get(0)?, unsigned(row.get(1)?))))
        })
        .await
    }

    async fn usage(&self, agents: &[String], user: Option<&str>) -> Result<Vec<UsageTotal>, StoreError> {
        let (agents, user) = (agents.to_vec(), user.map(str::to_owned));
        self.read(move |connection| usage::totals(connection, &agents, user.as_deref())).await
    }

    async fn search_messages_of(
        &self,
        sessions: &SearchedSessions,
        query: &str,
        limit: usize,
    ) -> Result<Vec<MessageHit>, StoreError> {
        let SearchedSessions { agents, user, unowned } = sessions.clone();
        let agents = agents.map(|agents| json_list("a list of agents", &agents)).transpose()?;
        // Commits do not update the search index, so each search first updates the index.
        self.update_message_index().await?;
        let query = query.to_owned();
        self.read(move |connection| {
            search::messages(connection, (agents.as_deref(), user.as_deref(), unowned), &query, limit)
        })
        .await
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

/// Converts a list of names to JSON, for a query that binds the whole list to one parameter.
fn json_list(what: &str, names: &[String]) -> Result<String, StoreError> {
    if names.len() > MAX_PAGE {
        return Err(invalid(what, format!("it has {} entries, and the maximum is {MAX_PAGE}", names.len())));
    }
    to_json(what, &names)
}

/// Finds sessions that can continue without an answer. Sessions of owners that are alive are skipped.
fn continuable(
    connection: &Connection,
    owner: &Owner,
    (agents, now, after): (&str, u64, &str),
    limit: usize,
) -> Result<Vec<ContinuableSession>, Failure> {
    let owners = collect(connection, "SELECT DISTINCT owner FROM sessions WHERE owner IS NOT NULL", [], |row| {
        Ok(row.get::<_, String>(0)?)
    })?;
    let alive: Vec<String> = owners.into_iter().filter(|id| owner.liveness(id) != Liveness::Dead).collect();
    let alive = to_json("a list of owners", &alive)?;
    // A session may be listed for several reasons. Only the first reason in the order of the query is returned.
    let sql = "
        WITH candidates (id, reason) AS (
            SELECT c.id, 1 FROM sessions c JOIN sessions p ON p.subject = c.delegated_by
                WHERE c.delegated_by IS NOT NULL AND c.state IN ('running', 'suspended')
                AND p.state IN ('cancelled', 'failed') AND c.turns <= 1
            UNION ALL
            SELECT id, 2 FROM sessions WHERE continues_at IS NOT NULL AND continues_at <= ?2
            UNION ALL
            SELECT p.id, 3 FROM sessions c JOIN sessions p ON p.subject = c.delegated_by
                WHERE c.delegated_by IS NOT NULL AND c.turns > 0 AND c.state IN ('idle', 'failed', 'cancelled')
                AND p.state IN ('running', 'suspended') AND p.state = 'suspended' AND c.updated >= p.updated
        )
        SELECT s.subject, s.agent, min(candidates.reason), s.user FROM candidates JOIN sessions s ON s.id = candidates.id
        WHERE s.agent IN (SELECT value FROM json_each(?1)) AND s.subject > ?3
        AND (s.owner IS NULL OR s.owner NOT IN (SELECT value FROM json_each(?5)))
        GROUP BY s.id ORDER BY s.subject LIMIT ?4";
    collect(connection, sql, params![agents, signed(now), after, sql_limit(limit), alive], |row| {
        let reason = match row.get::<_, i64>(2)? {
            1 => ContinuationReason::ParentEnded,
            2 => ContinuationReason::Due,
            _ => ContinuationReason::ChildEnded,
        };
        Ok(ContinuableSession { subject: row.get(0)?, agent: row.get(1)?, user: row.get(3)?, reason })
    })
}

/// The columns that [`summary`] reads.
const SUMMARY_COLUMNS: &str =
    "subject, agent, user, created, updated, revision, turns, last_message, state, title, owner, delegated_by, id";

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
