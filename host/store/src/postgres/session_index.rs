//! Lists sessions from the table `sessions`, and searches messages.

use super::PostgresStore;
use super::failure::Failure;
use super::owner::Owner;
use super::queries::{number, small, value};
use super::search::{self, Searched};
use super::text::{Text, list, optional, optional_text, text};
use super::usage::{self, SUM_COLUMNS, SUMS};
use crate::encoding::values::{check_list_length, rfc3339, session_state, signed, sql_limit};
use crate::{
    ContinuableSession, ContinuationReason, ListPosition, MessageHit, SearchedSessions, SessionFilter, SessionIndex,
    SessionState, SessionSummary, StoreError, Unowned, UsageTotal,
};
use async_trait::async_trait;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

#[async_trait]
impl SessionIndex for PostgresStore {
    async fn sessions(&self, filter: SessionFilter, limit: usize) -> Result<Vec<SessionSummary>, StoreError> {
        self.run(|| async {
            let SessionFilter { subject, agent, user, unowned, state, delegated_by } = &filter;
            let texts = [subject, agent, user, delegated_by].map(|text| optional(text.as_deref()));
            let (shown, state) = (*unowned == Unowned::Shown, state.map(SessionState::as_str));
            let [subject, agent, user, parent] = &texts;
            let parameters: [&(dyn ToSql + Sync); 8] =
                [subject, agent, user, parent, &shown, &state, &sql_limit(limit), &self.owner.id()];
            let rows = self.connection().await?.query(&list_sessions(&filter), &parameters).await?;
            rows.iter().map(|row| self.summary(row)).collect()
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
        check_list_length("a list of agents", agents.len())?;
        self.run(|| async {
            let (agents, user) = (list(agents), optional(user));
            // Places are unique, because they come from a sequence.
            let after = after.map_or(i64::MIN, |after| after.place);
            let conditions = "s.state IN ('running', 'suspended') AND s.state = 'suspended' AND s.agent = ANY($1) AND ($2::text IS NULL OR s.user_name = $2) AND s.place > $3";
            let sql = summaries((conditions, "s.place"), ("$4", "$5"));
            let parameters: [&(dyn ToSql + Sync); 5] = [&agents, &user, &after, &sql_limit(limit), &self.owner.id()];
            let rows = self.connection().await?.query(&sql, &parameters).await?;
            let read = |row: &Row| {
                let position = ListPosition { place: value(row, SUM_COLUMNS + 16)?, number: 0 };
                Ok((position, self.summary(row)?))
            };
            rows.iter().map(read).collect()
        })
        .await
    }

    async fn latest(&self, agent: &str) -> Result<Option<String>, StoreError> {
        self.run(|| async {
            let sql = "SELECT session FROM sessions WHERE agent = $1 AND delegated_by IS NULL AND revision > 0
                       AND state <> 'incomplete' ORDER BY place DESC LIMIT 1";
            let row = self.connection().await?.query_opt(sql, &[&Text(agent)]).await?;
            row.map(|row| text(&row, 0)).transpose()
        })
        .await
    }

    async fn unfinished(&self, after: &str, limit: usize) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.run(|| async {
            let sql = "SELECT s.session, p.run FROM sessions s JOIN snapshots p ON p.session = s.session
                       WHERE s.session > $1 AND s.state IN ('running', 'suspended') ORDER BY s.session LIMIT $2";
            let rows = self.connection().await?.query(sql, &[&Text(after), &sql_limit(limit)]).await?;
            rows.iter().map(|row| Ok((text(row, 0)?, value(row, 1)?))).collect()
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
        check_list_length("a list of agents", agents.len())?;
        self.run(|| async {
            let (now, limit) = (signed(now), sql_limit(limit));
            let parameters: [&(dyn ToSql + Sync); 5] = [&list(agents), &now, &Text(after), &limit, &self.owner.id()];
            let rows = self.connection().await?.query(&continuable(), &parameters).await?;
            let read = |row: &Row| {
                let reason = match value::<i32>(row, 2)? {
                    1 => ContinuationReason::ParentEnded,
                    2 => ContinuationReason::Due,
                    _ => ContinuationReason::ChildEnded,
                };
                Ok(ContinuableSession {
                    subject: text(row, 0)?,
                    agent: text(row, 1)?,
                    user: optional_text(row, 3)?,
                    reason,
                })
            };
            rows.iter().map(read).collect()
        })
        .await
    }

    async fn last_events(&self, sessions: &[String]) -> Result<Vec<(String, u64)>, StoreError> {
        check_list_length("a list of sessions", sessions.len())?;
        self.run(|| async {
            let sql = "SELECT session, last_event FROM sessions WHERE session = ANY($1)";
            let rows = self.connection().await?.query(sql, &[&list(sessions)]).await?;
            rows.iter().map(|row| Ok((text(row, 0)?, number(row, 1)?))).collect()
        })
        .await
    }

    async fn usage(&self, agents: &[String], user: Option<&str>) -> Result<Vec<UsageTotal>, StoreError> {
        self.run(|| async { usage::totals(&self.connection().await?, agents, user).await }).await
    }

    async fn search_messages_of(
        &self,
        sessions: &SearchedSessions,
        query: &str,
        limit: usize,
    ) -> Result<Vec<MessageHit>, StoreError> {
        check_list_length("a list of agents", sessions.agents.as_ref().map_or(0, Vec::len))?;
        self.run(|| async {
            search::messages(&self.connection().await?, Searched::Sessions(sessions), query, limit).await
        })
        .await
    }

    async fn search_evicted(&self, session: &str, query: &str, limit: usize) -> Result<Vec<MessageHit>, StoreError> {
        self.run(|| async {
            search::messages(&self.connection().await?, Searched::EvictedOf(session), query, limit).await
        })
        .await
    }
}

/// Returns the statement that lists sessions. It contains a condition on a column only if the filter restricts that
/// column, so that the database can use the index of the column.
fn list_sessions(filter: &SessionFilter) -> String {
    let condition = |is_set: bool, column: &str, parameter: &str| {
        if is_set { format!("s.{column} = {parameter}") } else { format!("{parameter}::text IS NULL") }
    };
    let conditions = [
        condition(filter.subject.is_some(), "session", "$1"),
        condition(filter.agent.is_some(), "agent", "$2"),
        "($3::text IS NULL OR s.user_name = $3 OR ($5::boolean AND s.user_name IS NULL))".to_owned(),
        condition(filter.delegated_by.is_some(), "delegated_by", "$4"),
        condition(filter.state.is_some(), "state", "$6"),
    ];
    summaries((&conditions.join(" AND "), "s.place DESC"), ("$7", "$8"))
}

/// Returns the statement that reads summaries of the sessions that satisfy the conditions, in this order. `limit` and `owner`
/// are the parameters with the number of sessions and with the store's own owner.
fn summaries((conditions, order): (&str, &str), (limit, owner): (&str, &str)) -> String {
    let alive = Owner::is_alive("s.owner", owner);
    format!(
        "SELECT {SUMS}, s.session, s.agent, s.user_name, s.created, s.updated, s.revision, s.turns, s.last_message,
                s.state, s.title, s.delegated_by, {alive}, s.owner, o.process, o.machine, o.host, s.place
         FROM (SELECT * FROM sessions s WHERE {conditions} ORDER BY {order} LIMIT {limit}) s
         LEFT JOIN turn_usage u ON u.session = s.session LEFT JOIN owners o ON o.id = s.owner
         GROUP BY s.session, s.agent, s.user_name, s.created, s.updated, s.revision, s.turns, s.last_message, s.state,
             s.title, s.delegated_by, s.owner, s.place, o.process, o.machine, o.host
         ORDER BY {order}"
    )
}

/// The statement that finds sessions that can continue without an answer. A session may be listed for several reasons.
/// Only the first reason in the order of the query is returned.
fn continuable() -> String {
    let alive = Owner::is_alive("s.owner", "$5");
    format!(
        "WITH candidates (session, reason) AS (
             SELECT c.session, 1 FROM sessions c JOIN sessions p ON p.session = c.delegated_by
                 WHERE c.delegated_by IS NOT NULL AND c.state IN ('running', 'suspended')
                 AND p.state IN ('cancelled', 'failed') AND c.turns <= 1
             UNION ALL
             SELECT session, 2 FROM sessions WHERE continues_at IS NOT NULL AND continues_at <= $2
             UNION ALL
             SELECT p.session, 3 FROM sessions c JOIN sessions p ON p.session = c.delegated_by
                 WHERE c.delegated_by IS NOT NULL AND c.turns > 0 AND c.state IN ('idle', 'failed', 'cancelled')
                 AND p.state = 'suspended' AND c.updated >= p.updated
         )
         SELECT s.session, s.agent, min(c.reason), s.user_name FROM candidates c JOIN sessions s ON s.session = c.session
         WHERE s.agent = ANY($1) AND s.session > $3 AND NOT {alive}
         GROUP BY s.session, s.agent, s.user_name ORDER BY s.session LIMIT $4"
    )
}

impl PostgresStore {
    fn summary(&self, row: &Row) -> Result<SessionSummary, Failure> {
        let column = |column: usize| SUM_COLUMNS + column;
        let open_in = if value(row, column(11))? { Some(self.owner.holder(row, column(12))?) } else { None };
        Ok(SessionSummary {
            subject: text(row, column(0))?,
            agent: text(row, column(1))?,
            user: optional_text(row, column(2))?,
            delegated_by: optional_text(row, column(10))?,
            created: rfc3339(value(row, column(3))?)?,
            updated: rfc3339(value(row, column(4))?)?,
            revision: number(row, column(5))?,
            turns: small(row, column(6))?,
            messages: number(row, column(7))?,
            state: session_state(value(row, column(8))?)?,
            open_in,
            title: optional_text(row, column(9))?,
            usage: usage::summed_usage(row, 0)?,
        })
    }
}
