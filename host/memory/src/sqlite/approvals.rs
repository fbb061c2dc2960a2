//! Lasting approvals: one row per grant, named by the digest of what it says.

use super::SqliteStore;
use super::audit;
use super::failure::{Failure, invalid};
use super::queries::{collect, now, page, rfc3339};
use super::writer::Effort;
use crate::{Approvals, Deed, MAX_PAGE, StoreError, StoredGrant, digest_of};
use agent_core::approval::LastingGrant;
use agent_core::message::Digest;
use async_trait::async_trait;
use rusqlite::{Row, params};

#[async_trait]
impl Approvals for SqliteStore {
    async fn allow(&self, grant: LastingGrant) -> Result<(), StoreError> {
        let id = id_of(&grant)?;
        self.write(Effort::Short, move |connection| {
            let LastingGrant { agent, tool, digest, arguments } = &grant;
            let arguments = arguments.as_ref().map(Digest::as_str);
            connection
                .prepare_cached(
                    "INSERT INTO approvals (id, agent, tool, digest, arguments, given) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                     ON CONFLICT (id) DO NOTHING",
                )?
                .execute(params![id, agent, tool, digest.as_str(), arguments, now()])?;
            Ok(())
        })
        .await
    }

    async fn allowed(&self, agent: &str) -> Result<Vec<StoredGrant>, StoreError> {
        let agent = agent.to_owned();
        self.read(move |connection| {
            let sql = "SELECT id, agent, tool, digest, arguments, given FROM approvals
                       WHERE agent = ?1 ORDER BY given DESC, id LIMIT ?2";
            collect(connection, sql, params![agent, page(MAX_PAGE)], stored_grant)
        })
        .await
    }

    async fn revoke(&self, id: &str) -> Result<bool, StoreError> {
        let id = id.to_owned();
        self.write(Effort::Short, move |connection| {
            let sql = "DELETE FROM approvals WHERE id = ?1 RETURNING id, agent, tool, digest, arguments, given";
            let Some(StoredGrant { id, grant, .. }) = collect(connection, sql, [id], stored_grant)?.pop() else {
                return Ok(false);
            };
            audit::insert(connection, &Deed::Revoked { id, grant }, now())?;
            Ok(true)
        })
        .await
    }
}

/// The digits of the digest of its JSON, whose keys have one order.
fn id_of(grant: &LastingGrant) -> Result<String, StoreError> {
    let json = serde_json::to_vec(grant).map_err(|error| invalid("a lasting approval", error.to_string()))?;
    Ok(digest_of(&json).hex().to_owned())
}

fn stored_grant(row: &Row<'_>) -> Result<StoredGrant, Failure> {
    let digest = |text: String| Digest::parse(&text).map_err(|error| Failure::Unreadable(error.to_string()));
    Ok(StoredGrant {
        id: row.get(0)?,
        grant: LastingGrant {
            agent: row.get(1)?,
            tool: row.get(2)?,
            digest: digest(row.get(3)?)?,
            arguments: row.get::<_, Option<String>>(4)?.map(digest).transpose()?,
        },
        given: rfc3339(row.get(5)?)?,
    })
}
