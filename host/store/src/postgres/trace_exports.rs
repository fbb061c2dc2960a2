//! How far each session was exported, and the part of the session log that follows.

use super::PostgresStore;
use super::failure::Failure;
use super::owner::Owner;
use super::queries::{RECORD_COLUMNS, check_session, number, small, value};
use super::sessions::stored_record;
use super::text::{Text, list, optional_text, text};
use crate::encoding::values::{from_json, rfc3339, signed, sql_limit};
use crate::{ExportPosition, SessionState, StoreError, StoredTurn, TimedEvent, TraceExports};
use agent_core::event::Event;
use async_trait::async_trait;
use std::collections::HashSet;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// Counts everything that is stored for the selected sessions as exported. The first event of an open turn stays known,
/// because the span of the turn begins with it.
const SKIP: &str = "
    INSERT INTO trace_exports (session, event, record, turn_start)
    SELECT s.session, s.last_event,
        (SELECT coalesce(max(r.number), 0) FROM records r WHERE r.session = s.session),
        coalesce(CASE WHEN s.state IN ('running', 'suspended') THEN (
            SELECT min(e.sequence) - 1 FROM events e WHERE e.session = s.session AND e.turn = s.turns
        ) END, s.last_event)
    FROM sessions s WHERE";

#[async_trait]
impl TraceExports for PostgresStore {
    async fn begin_trace_export(&self, agent: &str) -> Result<(), StoreError> {
        self.run_repeatable(|| async {
            let transaction = self.transaction().await?;
            let sql = "INSERT INTO traced_agents (agent) VALUES ($1) ON CONFLICT DO NOTHING";
            if transaction.execute(sql, &[&Text(agent)]).await? > 0 {
                let sql = format!("{SKIP} s.agent = $1 ON CONFLICT DO NOTHING");
                transaction.execute(&sql, &[&Text(agent)]).await?;
            }
            transaction.commit().await
        })
        .await
    }

    async fn unexported_sessions(
        &self,
        agents: &[String],
        after: &str,
        limit: usize,
    ) -> Result<Vec<String>, StoreError> {
        self.run(|| async {
            let alive = Owner::is_alive("t.owner", "$5");
            let sql = format!(
                "SELECT s.session FROM sessions s LEFT JOIN trace_exports t ON t.session = s.session
                 WHERE s.last_event > coalesce(t.event, 0) AND s.state <> $1 AND s.agent = ANY($2) AND s.session > $3
                 AND (t.owner IS NOT DISTINCT FROM $5 OR NOT {alive}) ORDER BY s.session LIMIT $4"
            );
            let (incomplete, limit) = (SessionState::Incomplete.as_str(), sql_limit(limit));
            let parameters: [&(dyn ToSql + Sync); 5] =
                [&incomplete, &list(agents), &Text(after), &limit, &self.owner.id()];
            self.connection().await?.query(&sql, &parameters).await?.iter().map(|row| text(row, 0)).collect()
        })
        .await
    }

    async fn claim_trace_exports(&self, sessions: &[String]) -> Result<Vec<(String, ExportPosition)>, StoreError> {
        self.run_repeatable(|| self.claim(sessions)).await
    }

    async fn set_export_positions(&self, positions: &[(String, ExportPosition)]) -> Result<Vec<String>, StoreError> {
        let column = |value: fn(&ExportPosition) -> u64| -> Vec<i64> {
            positions.iter().map(|(_, position)| signed(value(position))).collect()
        };
        let events = column(|position| position.event);
        let records = column(|position| position.record);
        let starts = column(|position| position.turn_start);
        self.run_repeatable(|| async {
            let sql = "UPDATE trace_exports t SET event = n.event, record = n.record, turn_start = n.turn_start
                       FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[])
                           AS n (session, event, record, turn_start)
                       WHERE t.session = n.session AND t.owner = $1 RETURNING t.session";
            let sessions = list(positions.iter().map(|(session, _)| session));
            let parameters: [&(dyn ToSql + Sync); 5] = [&self.owner.id(), &sessions, &events, &records, &starts];
            let rows = self.connection().await?.query(sql, &parameters).await?;
            let stored = rows.iter().map(|row| text(row, 0)).collect::<Result<HashSet<_>, _>>()?;
            let lost = positions.iter().map(|(session, _)| session).filter(|session| !stored.contains(*session));
            Ok(lost.cloned().collect())
        })
        .await
    }

    async fn skip_trace_export(&self, session: &str) -> Result<(), StoreError> {
        self.run_repeatable(|| async {
            let connection = self.connection().await?;
            let sql = format!(
                "{SKIP} s.session = $1 ON CONFLICT (session) DO UPDATE SET event = excluded.event,
                 record = excluded.record, turn_start = excluded.turn_start"
            );
            if connection.execute(&sql, &[&Text(session)]).await? == 0 {
                check_session(&connection, session).await?;
            }
            Ok(())
        })
        .await
    }

    async fn turn_after(&self, session: &str, position: ExportPosition) -> Result<Option<StoredTurn>, StoreError> {
        self.run(|| self.read_turn_after(session, position)).await
    }
}

impl PostgresStore {
    /// Claims sessions. All transactions lock rows in the order of the sessions, so that they never wait for each other in a
    /// circle.
    async fn claim(&self, sessions: &[String]) -> Result<Vec<(String, ExportPosition)>, Failure> {
        let transaction = self.transaction().await?;
        let sql = "SELECT session FROM sessions WHERE session = ANY($1) AND state <> $2 ORDER BY session FOR KEY SHARE";
        let incomplete = SessionState::Incomplete.as_str();
        let rows = transaction.query(sql, &[&list(sessions), &incomplete]).await?;
        let existing = rows.iter().map(|row| text(row, 0)).collect::<Result<Vec<_>, _>>()?;
        let existing = list(&existing);
        let sql = "INSERT INTO trace_exports (session, event, record, turn_start)
                   SELECT session, 0, 0, 0 FROM unnest($1::text[]) AS n (session) ORDER BY session
                   ON CONFLICT (session) DO NOTHING";
        transaction.execute(sql, &[&existing]).await?;
        // The rows are locked first, so that the owners are checked with the newest data.
        let sql = "SELECT 1 FROM trace_exports WHERE session = ANY($1) ORDER BY session FOR UPDATE";
        transaction.query(sql, &[&existing]).await?;
        let alive = Owner::is_alive("t.owner", "$2");
        let sql = format!(
            "UPDATE trace_exports t SET owner = $2
             WHERE session = ANY($1) AND (t.owner IS NOT DISTINCT FROM $2 OR NOT {alive})
             RETURNING session, event, record, turn_start"
        );
        let rows = transaction.query(&sql, &[&existing, &self.owner.id()]).await?;
        transaction.commit().await?;
        let claim = |row: &Row| {
            let position =
                ExportPosition { event: number(row, 1)?, record: number(row, 2)?, turn_start: number(row, 3)? };
            Ok((text(row, 0)?, position))
        };
        rows.iter().map(claim).collect()
    }

    async fn read_turn_after(&self, session: &str, position: ExportPosition) -> Result<Option<StoredTurn>, Failure> {
        let transaction = self.snapshot_of_all().await?;
        let sql = "SELECT s.agent, s.user_name, (SELECT e.turn FROM events e WHERE e.session = s.session
                   AND e.sequence > $2 ORDER BY e.sequence LIMIT 1) FROM sessions s WHERE s.session = $1";
        let event = signed(position.event);
        let row = transaction.query_opt(sql, &[&Text(session), &event]).await?;
        let row = row.ok_or_else(|| StoreError::NoSession { session: session.to_owned() })?;
        let (agent, user) = (text(&row, 0)?, optional_text(&row, 1)?);
        let Some(number) = value::<Option<i64>>(&row, 2)? else {
            transaction.roll_back().await?;
            return Ok(None);
        };
        let turn = small(&row, 2)?;
        let sql = "SELECT sequence, time, kind FROM events
                   WHERE session = $1 AND sequence > $2 AND turn = $3 ORDER BY sequence";
        let from = signed(position.turn_start.min(position.event));
        let rows = transaction.query(sql, &[&Text(session), &from, &number]).await?;
        let events = rows.iter().map(|row| event_of_turn(row, session, turn)).collect::<Result<Vec<_>, _>>()?;
        let sql = format!(
            "SELECT {RECORD_COLUMNS} FROM records
             WHERE session = $1 AND turn = $2 AND (number > $3 OR kind = 'trace') ORDER BY number"
        );
        let rows = transaction.query(&sql, &[&Text(session), &number, &signed(position.record)]).await?;
        let records = rows.iter().map(stored_record).collect::<Result<Vec<_>, _>>()?;
        let last = signed(events.last().map_or(position.event, |event| event.event.sequence));
        let sql = "SELECT EXISTS (SELECT 1 FROM events WHERE session = $1 AND sequence > $2)";
        let is_followed = transaction.query_one(sql, &[&Text(session), &last]).await?.try_get(0)?;
        transaction.roll_back().await?;
        Ok(Some(StoredTurn { turn, agent, user, events, records, is_followed }))
    }
}

fn event_of_turn(row: &Row, session: &str, turn: u32) -> Result<TimedEvent, Failure> {
    let (sequence, kind) = (number(row, 0)?, from_json(value(row, 2)?)?);
    let event = Event { session: session.to_owned(), turn, sequence, provisional: None, kind };
    Ok(TimedEvent { event, time: rfc3339(value(row, 1)?)? })
}
