//! Lasting approvals: one row per grant. A grant's id is the digest of its content.

use super::SqliteStore;
use super::audit;
use super::failure::Failure;
use super::queries::{collect, now, rfc3339, sql_limit};
use super::writer::Effort;
use crate::encoding::values::grant_id;
use crate::{Approvals, AuditAction, MAX_PAGE, NamedRule, StoreError, StoredGrant};
use agent_core::approval::{ApprovalScope, LastingGrant};
use agent_core::message::Digest;
use async_trait::async_trait;
use rusqlite::{Connection, Row, params};

#[async_trait]
impl Approvals for SqliteStore {
    async fn allow(&self, grant: LastingGrant) -> Result<(), StoreError> {
        let id = grant_id(&grant)?;
        self.write(Effort::Short, move |connection| {
            let LastingGrant { agent, tool, digest, arguments, scope } = &grant;
            let arguments = arguments.as_ref().map(Digest::as_str);
            let identity = scope.as_ref().map(|scope| scope.identity.as_str());
            let grants = scope.as_ref().map(|scope| scope.grants.as_str());
            let sql = "INSERT INTO approvals (id, agent, tool, digest, arguments, given, identity, grants)
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (id) DO NOTHING";
            let parameters = params![id, agent, tool, digest.as_str(), arguments, now(), identity, grants];
            connection.prepare_cached(sql)?.execute(parameters)?;
            Ok(())
        })
        .await
    }

    async fn allowed(&self, agent: &str) -> Result<Vec<StoredGrant>, StoreError> {
        let agent = agent.to_owned();
        self.read(move |connection| {
            let sql = "SELECT id, agent, tool, digest, arguments, given, identity, grants FROM approvals
                       WHERE agent = ?1 ORDER BY given DESC, id LIMIT ?2";
            collect(connection, sql, params![agent, sql_limit(MAX_PAGE)], stored_grant)
        })
        .await
    }

    async fn agents_with_grants(&self) -> Result<Vec<String>, StoreError> {
        self.read(|connection| {
            collect(connection, "SELECT DISTINCT agent FROM approvals ORDER BY agent", [], |row| Ok(row.get(0)?))
        })
        .await
    }

    async fn revoke(&self, id: &str) -> Result<bool, StoreError> {
        let id = id.to_owned();
        self.write(Effort::Short, move |connection| {
            let sql = "DELETE FROM approvals WHERE id = ?1
                       RETURNING id, agent, tool, digest, arguments, given, identity, grants";
            let Some(StoredGrant { id, grant, .. }) = collect(connection, sql, [&id], stored_grant)?.pop() else {
                return Ok(false);
            };
            audit::insert(connection, &AuditAction::Revoked { id, grant }, now())?;
            Ok(true)
        })
        .await
    }

    async fn bind_rule(&self, rule: NamedRule, identity: Digest) -> Result<Digest, StoreError> {
        let named = rule.clone();
        if let Some(bound) = self.read(move |connection| bound_identity(connection, &named)).await? {
            return Ok(bound);
        }
        self.write(Effort::Short, move |connection| {
            let sql = "INSERT INTO rule_bindings (agent, tool, identity, bound) VALUES (?1, ?2, ?3, ?4)
                       ON CONFLICT (agent, tool) DO NOTHING";
            connection.prepare_cached(sql)?.execute(params![rule.agent, rule.tool, identity.as_str(), now()])?;
            Ok(bound_identity(connection, &rule)?.unwrap_or(identity.clone()))
        })
        .await
    }
}

fn bound_identity(connection: &Connection, rule: &NamedRule) -> Result<Option<Digest>, Failure> {
    let sql = "SELECT identity FROM rule_bindings WHERE agent = ?1 AND tool = ?2";
    Ok(collect(connection, sql, [&rule.agent, &rule.tool], |row| parse_digest(row.get(0)?))?.pop())
}

fn parse_digest(text: String) -> Result<Digest, Failure> {
    Digest::parse(&text).map_err(|error| Failure::Unreadable(error.to_string()))
}

fn stored_grant(row: &Row<'_>) -> Result<StoredGrant, Failure> {
    let optional = |text: Option<String>| text.map(parse_digest).transpose();
    let scope = match (optional(row.get(6)?)?, optional(row.get(7)?)?) {
        (Some(identity), Some(grants)) => Some(ApprovalScope { identity, grants }),
        _ => None,
    };
    Ok(StoredGrant {
        id: row.get(0)?,
        grant: LastingGrant {
            agent: row.get(1)?,
            tool: row.get(2)?,
            digest: parse_digest(row.get(3)?)?,
            arguments: optional(row.get(4)?)?,
            scope,
        },
        given: rfc3339(row.get(5)?)?,
    })
}
