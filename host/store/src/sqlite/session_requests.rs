//! Requests to sessions that another process has open. The processes that share a file find them by searching.

use super::SqliteStore;
use super::failure::Failure;
use super::owners::{Liveness, Owner};
use super::queries::{collect, now, session_number, sql_limit, unsigned};
use super::writer::Effort;
use crate::announcements::{Announcement, Announcements};
use crate::encoding::values::{check_list_length, check_request_size};
use crate::session_requests::{
    ClaimedRequest, KEPT_AFTER_EXPIRY, LISTED_PER_SESSION, Occupied, RequestAnswer, RequestKey, RequestState,
    SessionRequests, StoredRequest,
};
use crate::{Lease, StoreError};
use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use tokio::sync::broadcast;

#[async_trait]
impl SessionRequests for SqliteStore {
    async fn post_request(&self, key: &RequestKey, content: &str, valid_for: Duration) -> Result<(), StoreError> {
        check_request_size(content)?;
        let (key, content) = (key.clone(), content.to_owned());
        self.write(Effort::of(content.len()), move |connection| {
            let (session, time) = (session_number(connection, &key.session)?, now());
            let expired =
                "DELETE FROM requests WHERE expires < ?1 AND (expires < ?2 OR NOT (claimed OR answer IS NOT NULL))";
            connection.prepare_cached(expired)?.execute([time, time - KEPT_AFTER_EXPIRY])?;
            occupied(connection, session, &key.id)?.check_room(&key.session, content.len())?;
            let expires = time.saturating_add(i64::try_from(valid_for.as_micros()).unwrap_or(i64::MAX));
            let sql = "INSERT INTO requests (session, id, posted, expires, content) VALUES (?1, ?2, ?3, ?4, ?5)
                       ON CONFLICT (session, id) DO NOTHING";
            connection.prepare_cached(sql)?.execute(params![session, key.id, time, expires, content])?;
            Ok(())
        })
        .await
    }

    async fn pending_requests(&self, agents: &[String], limit: usize) -> Result<Vec<StoredRequest>, StoreError> {
        check_list_length("a list of agents", agents.len())?;
        let (agents, owner): (HashSet<String>, _) = (agents.iter().cloned().collect(), self.owner.clone());
        self.read(move |connection| {
            let sql = "SELECT subject, id, agent, user, bytes, owner FROM (
                           SELECT s.subject, r.id, s.agent, s.user, octet_length(r.content) AS bytes, s.owner, r.posted,
                               row_number() OVER (PARTITION BY r.session ORDER BY r.posted, r.id) AS place
                           FROM requests r JOIN sessions s ON s.id = r.session
                           WHERE r.answer IS NULL AND r.expires > ?1
                       ) WHERE place <= ?2
                       ORDER BY row_number() OVER (PARTITION BY agent, user ORDER BY posted, id), posted, id LIMIT ?3";
            let (listed, most) = (sql_limit(LISTED_PER_SESSION), sql_limit(crate::MAX_PAGE));
            let found = collect(connection, sql, params![now(), listed, most], |row| {
                let key = RequestKey { session: row.get(0)?, id: row.get(1)? };
                let bytes = unsigned(row.get(4)?);
                let stored = StoredRequest { key, agent: row.get(2)?, user: row.get(3)?, bytes };
                Ok((stored, row.get::<_, Option<String>>(5)?))
            })?;
            let mut open_elsewhere = HashMap::new();
            let mut requests = Vec::new();
            for (stored, holder) in found {
                if requests.len() == limit.min(crate::MAX_PAGE) {
                    break;
                }
                if agents.contains(&stored.agent) && !is_open_elsewhere(&owner, holder, &mut open_elsewhere) {
                    requests.push(stored);
                }
            }
            Ok(requests)
        })
        .await
    }

    async fn claim_request(&self, key: &RequestKey) -> Result<Option<ClaimedRequest>, StoreError> {
        let (key, owner) = (key.clone(), self.owner.clone());
        self.write(Effort::Short, move |connection| {
            let sql = "UPDATE requests SET claimed = 1 WHERE id = ?2 AND answer IS NULL AND expires > ?3
                       AND session = (SELECT id FROM sessions WHERE subject = ?1 AND owner = ?4) RETURNING content, expires";
            let time = now();
            let claimed = |row: &Row<'_>| {
                let valid_for = Duration::from_micros(unsigned(row.get::<_, i64>(1)?.saturating_sub(time)));
                Ok(ClaimedRequest { content: row.get(0)?, valid_for })
            };
            let parameters = params![key.session, key.id, time, owner.id()];
            Ok(connection.prepare_cached(sql)?.query_row(parameters, claimed).optional()?)
        })
        .await
    }

    async fn answer_request(&self, key: &RequestKey, answer: &str) -> Result<(), StoreError> {
        check_request_size(answer)?;
        let (key, answer) = (key.clone(), answer.to_owned());
        self.write(Effort::of(answer.len()), move |connection| {
            let sql = "UPDATE requests SET answer = ?3, content = '' WHERE id = ?2 AND answer IS NULL
                       AND session = (SELECT id FROM sessions WHERE subject = ?1)";
            connection.prepare_cached(sql)?.execute(params![key.session, key.id, answer])?;
            Ok(())
        })
        .await
    }

    async fn request_state(&self, key: &RequestKey) -> Result<RequestState, StoreError> {
        let key = key.clone();
        self.read(move |connection| state(connection, &key)).await
    }

    async fn withdraw_request(&self, key: &RequestKey) -> Result<RequestState, StoreError> {
        let key = key.clone();
        self.write(Effort::Short, move |connection| {
            let found = state(connection, &key)?;
            if matches!(found, RequestState::Waiting | RequestState::Answered(_)) {
                remove(connection, &key)?;
            }
            Ok(found)
        })
        .await
    }

    async fn remove_request(&self, key: &RequestKey) -> Result<(), StoreError> {
        let key = key.clone();
        self.write(Effort::Short, move |connection| remove(connection, &key)).await
    }

    async fn lost_leases(&self, leases: &[Lease]) -> Result<Vec<Lease>, StoreError> {
        let (leases, owner) = (leases.to_vec(), self.owner.clone());
        self.read(move |connection| {
            let sql = "SELECT epoch FROM sessions WHERE subject = ?1 AND owner = ?2";
            let mut statement = connection.prepare_cached(sql)?;
            let mut lost = Vec::new();
            for lease in leases {
                let epoch = statement.query_row(params![lease.session, owner.id()], |row| row.get(0)).optional()?;
                if epoch.map(unsigned) != Some(lease.epoch) {
                    lost.push(lease);
                }
            }
            Ok(lost)
        })
        .await
    }
}

/// Returns whether another process that runs has the session open. Each holder is examined once.
fn is_open_elsewhere(owner: &Owner, holder: Option<String>, known: &mut HashMap<String, bool>) -> bool {
    let Some(holder) = holder.filter(|holder| holder != owner.id()) else { return false };
    *known.entry(holder).or_insert_with_key(|holder| owner.liveness(holder) != Liveness::Dead)
}

fn remove(connection: &Connection, key: &RequestKey) -> Result<(), Failure> {
    let sql = "DELETE FROM requests WHERE id = ?2 AND session = (SELECT id FROM sessions WHERE subject = ?1)";
    connection.prepare_cached(sql)?.execute(params![key.session, key.id])?;
    Ok(())
}

/// Returns what the other requests occupy.
fn occupied(connection: &Connection, session: i64, id: &str) -> Result<Occupied, Failure> {
    let sql = "SELECT count(*) FILTER (WHERE session = ?1 AND answer IS NULL),
                   coalesce(sum(bytes) FILTER (WHERE session = ?1), 0), count(*), coalesce(sum(bytes), 0)
               FROM (SELECT session, answer, octet_length(content) + coalesce(octet_length(answer), 0) AS bytes
                     FROM requests WHERE NOT (session = ?1 AND id = ?2))";
    Ok(connection.prepare_cached(sql)?.query_row(params![session, id], |row| {
        Ok(Occupied {
            session_requests: unsigned(row.get(0)?),
            session_bytes: unsigned(row.get(1)?),
            requests: unsigned(row.get(2)?),
            bytes: unsigned(row.get(3)?),
        })
    })?)
}

fn state(connection: &Connection, key: &RequestKey) -> Result<RequestState, Failure> {
    let sql = "SELECT r.claimed, r.answer FROM requests r JOIN sessions s ON s.id = r.session
               WHERE s.subject = ?1 AND r.id = ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement
        .query_row(params![key.session, key.id], |row| Ok((row.get::<_, bool>(0)?, row.get::<_, Option<String>>(1)?)));
    Ok(match found.optional()? {
        None => RequestState::Gone,
        Some((_, Some(answer))) => RequestState::Answered(answer),
        Some((true, None)) => RequestState::Claimed,
        Some((false, None)) => RequestState::Waiting,
    })
}

/// Stores the answer to a request in the transaction of the commit that carries the request out.
pub(super) fn write_answer(connection: &Connection, session: i64, answer: &RequestAnswer) -> Result<(), Failure> {
    let sql = "UPDATE requests SET answer = ?3, content = '' WHERE session = ?1 AND id = ?2 AND answer IS NULL";
    connection.prepare_cached(sql)?.execute(params![session, answer.id, answer.content])?;
    Ok(())
}

#[async_trait]
impl Announcements for SqliteStore {
    async fn announce(&self, _: Vec<Announcement>) {}

    fn announcements(&self) -> Option<broadcast::Receiver<Announcement>> {
        None
    }
}
