//! Requests to sessions that another process has open (F2). All times are those of the database's clock.

use super::PostgresStore;
use super::connections::{Connection, Transaction};
use super::failure::Failure;
use super::owner::{Owner, microseconds};
use super::queries::NOW;
use super::text::{Text, list, optional_text, text};
use crate::encoding::values::{self, check_list_length, check_request_size, signed, sql_limit};
use crate::session_requests::{
    ClaimedRequest, KEPT_AFTER_EXPIRY, LISTED_PER_SESSION, Occupied, RequestAnswer, RequestKey, RequestState,
    SessionRequests, StoredRequest,
};
use crate::{Lease, StoreError};
use async_trait::async_trait;
use std::time::Duration;
use tokio_postgres::Row;

#[async_trait]
impl SessionRequests for PostgresStore {
    async fn post_request(&self, key: &RequestKey, content: &str, valid_for: Duration) -> Result<(), StoreError> {
        check_request_size(content)?;
        self.run_repeatable(|| async {
            let connection = self.connection().await?;
            connection.execute(&delete_expired(), &[&KEPT_AFTER_EXPIRY]).await?;
            occupied(&connection, key).await?.check_room(&key.session, content.len())?;
            // The lock lets a deletion of the session wait, so that no request without a session stays behind.
            let sql = format!(
                "WITH found AS (SELECT session FROM sessions WHERE session = $1 FOR KEY SHARE), posted AS (
                     INSERT INTO requests (session, id, posted, expires, content)
                     SELECT session, $2, {NOW}, {NOW} + $3, $4 FROM found ON CONFLICT (session, id) DO NOTHING)
                 SELECT count(*) FROM found"
            );
            let (session, id) = (Text(&key.session), Text(&key.id));
            let row = connection.query_one(&sql, &[&session, &id, &microseconds(valid_for), &Text(content)]).await?;
            match row.try_get::<_, i64>(0)? {
                0 => Err(StoreError::NoSession { session: key.session.clone() }.into()),
                _ => Ok(()),
            }
        })
        .await
    }

    async fn pending_requests(&self, agents: &[String], limit: usize) -> Result<Vec<StoredRequest>, StoreError> {
        check_list_length("a list of agents", agents.len())?;
        self.run(|| async {
            let alive = Owner::is_alive("s.owner", "$2");
            let sql = format!(
                "SELECT session, id, agent, user_name, bytes FROM (
                     SELECT r.session, r.id, s.agent, s.user_name, r.posted, octet_length(r.content)::bigint AS bytes,
                         row_number() OVER (PARTITION BY r.session ORDER BY r.posted, r.id) AS place
                     FROM requests r JOIN sessions s ON s.session = r.session
                     WHERE r.answer IS NULL AND r.expires > {NOW} AND s.agent = ANY($1) AND (s.owner = $2 OR NOT {alive})
                 ) waiting WHERE place <= $4
                 ORDER BY row_number() OVER (PARTITION BY agent, user_name ORDER BY posted, id), posted, id LIMIT $3"
            );
            let (limit, listed) = (sql_limit(limit), sql_limit(LISTED_PER_SESSION));
            let connection = self.connection().await?;
            let rows = connection.query(&sql, &[&list(agents), &self.owner.id(), &limit, &listed]).await?;
            let stored = |row: &Row| {
                let key = RequestKey { session: text(row, 0)?, id: text(row, 1)? };
                Ok(StoredRequest { key, agent: text(row, 2)?, user: optional_text(row, 3)?, bytes: unsigned(row, 4)? })
            };
            rows.iter().map(stored).collect()
        })
        .await
    }

    async fn claim_request(&self, key: &RequestKey) -> Result<Option<ClaimedRequest>, StoreError> {
        self.run_repeatable(|| async {
            let sql = format!(
                "UPDATE requests SET claimed = true WHERE session = $1 AND id = $2 AND answer IS NULL AND expires > {NOW}
                 AND EXISTS (SELECT 1 FROM sessions s WHERE s.session = $1 AND s.owner = $3)
                 RETURNING content, expires - {NOW}"
            );
            let (session, id) = (Text(&key.session), Text(&key.id));
            let row = self.connection().await?.query_opt(&sql, &[&session, &id, &self.owner.id()]).await?;
            let Some(row) = row else { return Ok(None) };
            let valid_for = Duration::from_micros(unsigned(&row, 1)?);
            Ok(Some(ClaimedRequest { content: text(&row, 0)?, valid_for }))
        })
        .await
    }

    async fn answer_request(&self, key: &RequestKey, answer: &str) -> Result<(), StoreError> {
        check_request_size(answer)?;
        self.run_repeatable(|| async {
            let connection = self.connection().await?;
            connection.execute(SET_ANSWER, &[&Text(&key.session), &Text(&key.id), &Text(answer)]).await?;
            Ok(())
        })
        .await
    }

    async fn request_state(&self, key: &RequestKey) -> Result<RequestState, StoreError> {
        self.run(|| async {
            let sql = "SELECT claimed, answer FROM requests WHERE session = $1 AND id = $2";
            let row = self.connection().await?.query_opt(sql, &[&Text(&key.session), &Text(&key.id)]).await?;
            let Some(row) = row else { return Ok(RequestState::Gone) };
            state_of(row.try_get(0)?, optional_text(&row, 1)?)
        })
        .await
    }

    async fn withdraw_request(&self, key: &RequestKey) -> Result<RequestState, StoreError> {
        let removed = self
            .run(|| async {
                let sql = "DELETE FROM requests WHERE session = $1 AND id = $2 AND (answer IS NOT NULL OR NOT claimed)
                           RETURNING claimed, answer";
                let row = self.connection().await?.query_opt(sql, &[&Text(&key.session), &Text(&key.id)]).await?;
                let Some(row) = row else { return Ok(None) };
                state_of(row.try_get(0)?, optional_text(&row, 1)?).map(Some)
            })
            .await?;
        match removed {
            Some(state) => Ok(state),
            None => self.request_state(key).await,
        }
    }

    async fn remove_request(&self, key: &RequestKey) -> Result<(), StoreError> {
        self.run_repeatable(|| async {
            let sql = "DELETE FROM requests WHERE session = $1 AND id = $2";
            self.connection().await?.execute(sql, &[&Text(&key.session), &Text(&key.id)]).await?;
            Ok(())
        })
        .await
    }

    async fn lost_leases(&self, leases: &[Lease]) -> Result<Vec<Lease>, StoreError> {
        check_list_length("a list of leases", leases.len())?;
        self.run(|| async {
            let sql = "SELECT l.number FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY l (session, epoch, number)
                       WHERE NOT EXISTS (SELECT 1 FROM sessions s
                           WHERE s.session = l.session AND s.epoch = l.epoch AND s.owner = $3)";
            let sessions = list(leases.iter().map(|lease| &lease.session));
            let epochs: Vec<i64> = leases.iter().map(|lease| signed(lease.epoch)).collect();
            let rows = self.connection().await?.query(sql, &[&sessions, &epochs, &self.owner.id()]).await?;
            let mut lost = Vec::new();
            for row in &rows {
                let number = usize::try_from(row.try_get::<_, i64>(0)?).unwrap_or_default();
                lost.extend(leases.get(number.wrapping_sub(1)).cloned());
            }
            Ok(lost)
        })
        .await
    }
}

/// An answer never replaces an answer, because the first one may belong to a commit.
const SET_ANSWER: &str =
    "UPDATE requests SET answer = $3, content = '' WHERE session = $1 AND id = $2 AND answer IS NULL";

/// Deletes requests that have expired. The parameter `$1` is [`KEPT_AFTER_EXPIRY`].
fn delete_expired() -> String {
    format!(
        "DELETE FROM requests WHERE expires < {NOW}
         AND (expires < {NOW} - $1 OR NOT (claimed OR answer IS NOT NULL))"
    )
}

/// Returns what the other requests occupy.
async fn occupied(connection: &Connection, key: &RequestKey) -> Result<Occupied, Failure> {
    let sql = "SELECT count(*) FILTER (WHERE session = $1 AND answer IS NULL),
                   coalesce(sum(bytes) FILTER (WHERE session = $1), 0)::bigint, count(*), coalesce(sum(bytes), 0)::bigint
               FROM (SELECT session, answer, octet_length(content)::bigint + coalesce(octet_length(answer), 0) AS bytes
                     FROM requests WHERE NOT (session = $1 AND id = $2)) others";
    let row = connection.query_one(sql, &[&Text(&key.session), &Text(&key.id)]).await?;
    Ok(Occupied {
        session_requests: unsigned(&row, 0)?,
        session_bytes: unsigned(&row, 1)?,
        requests: unsigned(&row, 2)?,
        bytes: unsigned(&row, 3)?,
    })
}

/// Reads a number that is not negative.
fn unsigned(row: &Row, column: usize) -> Result<u64, Failure> {
    Ok(values::unsigned(row.try_get(column)?))
}

fn state_of(is_claimed: bool, answer: Option<String>) -> Result<RequestState, Failure> {
    Ok(match (answer, is_claimed) {
        (Some(answer), _) => RequestState::Answered(answer),
        (None, true) => RequestState::Claimed,
        (None, false) => RequestState::Waiting,
    })
}

/// Stores the answer to a request in the transaction of the commit that carries the request out.
pub(super) async fn write_answer(
    transaction: &Transaction,
    session: &str,
    answer: &RequestAnswer,
) -> Result<(), Failure> {
    transaction.execute(SET_ANSWER, &[&Text(session), &Text(&answer.id), &Text(&answer.content)]).await?;
    Ok(())
}
