//! How far each session was exported, and the part of the session log that follows.

use super::SqliteStore;
use super::failure::{Failure, invalid};
use super::owners::{Liveness, Owner};
use super::queries::{collect, from_json, rfc3339, session_number, signed, sql_limit, unsigned};
use super::sessions::stored_record;
use super::writer::Effort;
use crate::{ExportPosition, SessionState, StoreError, StoredTurn, TimedEvent, TraceExports};
use agent_core::event::Event;
use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, params};

/// Counts everything that is stored for the selected sessions as exported. The first event of an open turn stays known,
/// because the span of the turn begins with it.
const SKIP: &str = "
    INSERT INTO trace_exports (session, event, record, turn_start)
    SELECT s.id, s.last_event,
        (SELECT coalesce(max(r.number), 0) FROM records r WHERE r.session = s.id),
        coalesce(CASE WHEN s.state IN ('running', 'suspended') THEN (
            SELECT min(e.sequence) - 1 FROM events e WHERE e.session = s.id AND e.turn = s.turns
        ) END, s.last_event)
    FROM sessions s WHERE";

#[async_trait]
impl TraceExports for SqliteStore {
    async fn begin_trace_export(&self, agent: &str) -> Result<(), StoreError> {
        let agent = agent.to_owned();
        self.write(Effort::Long, move |connection| {
            let sql = "INSERT INTO traced_agents (agent) VALUES (?1) ON CONFLICT DO NOTHING";
            if connection.prepare_cached(sql)?.execute([&agent])? > 0 {
                let sql = format!("{SKIP} s.agent = ?1 ON CONFLICT DO NOTHING");
                connection.prepare_cached(&sql)?.execute([&agent])?;
            }
            Ok(())
        })
        .await
    }

    async fn unexported_sessions(
        &self,
        agents: &[String],
        after: &str,
        limit: usize,
    ) -> Result<Vec<String>, StoreError> {
        let (owner, after) = (self.owner.clone(), after.to_owned());
        let agents = serde_json::to_string(agents).map_err(|error| invalid("a list of agents", error.to_string()))?;
        self.read(move |connection| unexported(connection, &owner, (&agents, &after), limit)).await
    }

    async fn claim_trace_exports(&self, sessions: &[String]) -> Result<Vec<(String, ExportPosition)>, StoreError> {
        let (sessions, owner) = (sessions.to_vec(), self.owner.clone());
        self.write(Effort::Long, move |connection| {
            let claims = sessions.iter().map(|session| {
                let position = claim(connection, &owner, session)?;
                Ok(position.map(|position| (session.clone(), position)))
            });
            claims.filter_map(Result::transpose).collect()
        })
        .await
    }

    async fn set_export_positions(&self, positions: &[(String, ExportPosition)]) -> Result<Vec<String>, StoreError> {
        let (positions, owner) = (positions.to_vec(), self.owner.clone());
        self.write(Effort::Long, move |connection| {
            let sql = "UPDATE trace_exports SET event = ?3, record = ?4, turn_start = ?5
                       WHERE session = (SELECT id FROM sessions WHERE subject = ?1) AND owner = ?2";
            let mut statement = connection.prepare_cached(sql)?;
            let mut lost = Vec::new();
            for (session, ExportPosition { event, record, turn_start }) in &positions {
                let values = params![session, owner.id(), signed(*event), signed(*record), signed(*turn_start)];
                if statement.execute(values)? == 0 {
                    lost.push(session.clone());
                }
            }
            Ok(lost)
        })
        .await
    }

    async fn skip_trace_export(&self, session: &str) -> Result<(), StoreError> {
        let session = session.to_owned();
        self.write(Effort::Short, move |connection| {
            let sql = format!(
                "{SKIP} s.id = ?1 ON CONFLICT (session) DO UPDATE SET event = excluded.event,
                 record = excluded.record, turn_start = excluded.turn_start"
            );
            connection.prepare_cached(&sql)?.execute([session_number(connection, &session)?])?;
            Ok(())
        })
        .await
    }

    async fn turn_after(&self, session: &str, position: ExportPosition) -> Result<Option<StoredTurn>, StoreError> {
        let session = session.to_owned();
        self.read(move |connection| turn_after(connection, &session, position)).await
    }
}

fn unexported(
    connection: &Connection,
    owner: &Owner,
    (agents, after): (&str, &str),
    limit: usize,
) -> Result<Vec<String>, Failure> {
    let owners = collect(connection, "SELECT DISTINCT owner FROM trace_exports WHERE owner IS NOT NULL", [], |row| {
        Ok(row.get::<_, String>(0)?)
    })?;
    let others: Vec<String> = owners.into_iter().filter(|holder| !is_free(owner, Some(holder))).collect();
    let others = serde_json::to_string(&others).map_err(|error| invalid("a list of owners", error.to_string()))?;
    let sql = "
        SELECT s.subject FROM sessions s LEFT JOIN trace_exports t ON t.session = s.id
        WHERE s.last_event > coalesce(t.event, 0) AND s.state <> ?1
        AND s.agent IN (SELECT value FROM json_each(?2)) AND s.subject > ?3
        AND (t.owner IS NULL OR t.owner NOT IN (SELECT value FROM json_each(?5)))
        ORDER BY s.subject LIMIT ?4";
    let parameters = params![SessionState::Incomplete.as_str(), agents, after, sql_limit(limit), others];
    collect(connection, sql, parameters, |row| Ok(row.get::<_, String>(0)?))
}

fn claim(connection: &Connection, owner: &Owner, session: &str) -> Result<Option<ExportPosition>, Failure> {
    let sql = "SELECT s.id, t.event, t.record, t.turn_start, t.owner
               FROM sessions s LEFT JOIN trace_exports t ON t.session = s.id WHERE s.subject = ?1 AND s.state <> ?2";
    let row = connection.prepare_cached(sql)?.query_row(params![session, SessionState::Incomplete.as_str()], |row| {
        let number = |column| Ok::<_, rusqlite::Error>(unsigned(row.get::<_, Option<i64>>(column)?.unwrap_or(0)));
        let position = ExportPosition { event: number(1)?, record: number(2)?, turn_start: number(3)? };
        Ok((row.get::<_, i64>(0)?, position, row.get::<_, Option<String>>(4)?))
    });
    let Some((number, position, holder)) = row.optional()? else { return Ok(None) };
    if !is_free(owner, holder.as_deref()) {
        return Ok(None);
    }
    if holder.as_deref() != Some(owner.id()) {
        let sql = "INSERT INTO trace_exports (session, event, record, turn_start, owner) VALUES (?1, 0, 0, 0, ?2)
                   ON CONFLICT (session) DO UPDATE SET owner = excluded.owner";
        connection.prepare_cached(sql)?.execute(params![number, owner.id()])?;
    }
    Ok(Some(position))
}

/// Whether this store instance may export a session that the instance with the id `holder` has claimed.
fn is_free(owner: &Owner, holder: Option<&str>) -> bool {
    holder.is_none_or(|holder| holder == owner.id() || owner.liveness(holder) == Liveness::Dead)
}

fn turn_after(connection: &Connection, session: &str, position: ExportPosition) -> Result<Option<StoredTurn>, Failure> {
    let number = session_number(connection, session)?;
    let sql = "SELECT turn FROM events WHERE session = ?1 AND sequence > ?2 ORDER BY sequence LIMIT 1";
    let turn: Option<u32> = connection
        .prepare_cached(sql)?
        .query_row(params![number, signed(position.event)], |row| row.get(0))
        .optional()?;
    let Some(turn) = turn else { return Ok(None) };
    let sql = "SELECT agent, user FROM sessions WHERE id = ?1";
    let (agent, user) = connection.prepare_cached(sql)?.query_row([number], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let sql = "SELECT sequence, time, kind FROM events
               WHERE session = ?1 AND sequence > ?2 AND turn = ?3 ORDER BY sequence";
    let from = signed(position.turn_start.min(position.event));
    let events: Vec<TimedEvent> = collect(connection, sql, params![number, from, turn], |row| {
        let (sequence, kind) =
            (unsigned(row.get(0)?), from_json(row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?)?);
        let event = Event { session: session.to_owned(), turn, sequence, provisional: None, kind };
        Ok(TimedEvent { event, time: rfc3339(row.get(1)?)? })
    })?;
    let sql = "SELECT number, turn, step, kind, time, body FROM records
               WHERE session = ?1 AND turn = ?2 AND (number > ?3 OR kind = 'trace') ORDER BY number";
    let records = collect(connection, sql, params![number, turn, signed(position.record)], stored_record)?;
    let last = events.last().map_or(position.event, |event| event.event.sequence);
    let sql = "SELECT EXISTS (SELECT 1 FROM events WHERE session = ?1 AND sequence > ?2)";
    let is_followed = connection.prepare_cached(sql)?.query_row(params![number, signed(last)], |row| row.get(0))?;
    Ok(Some(StoredTurn { turn, agent, user, events, records, is_followed }))
}
