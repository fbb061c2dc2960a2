//! Lasting approvals: one row per grant. A grant's id is the digest of its content.

use super::PostgresStore;
use super::audit;
use super::failure::Failure;
use super::queries::{NOW, value};
use super::text::{Text, optional_text, text};
use crate::encoding::values::{digest, grant_id, rfc3339, sql_limit};
use crate::{Approvals, AuditAction, MAX_PAGE, NamedRule, StoreError, StoredGrant};
use agent_core::approval::{ApprovalScope, LastingGrant};
use agent_core::message::Digest;
use async_trait::async_trait;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

#[async_trait]
impl Approvals for PostgresStore {
    async fn allow(&self, grant: LastingGrant) -> Result<(), StoreError> {
        let id = grant_id(&grant)?;
        self.run_repeatable(|| async {
            let LastingGrant { agent, tool, digest, arguments, scope } = &grant;
            let arguments = arguments.as_ref().map(Digest::as_str);
            let identity = scope.as_ref().map(|scope| scope.identity.as_str());
            let grants = scope.as_ref().map(|scope| scope.grants.as_str());
            let sql = format!(
                "INSERT INTO approvals (id, agent, tool, digest, arguments, given, identity, grants)
                 VALUES ($1, $2, $3, $4, $5, {NOW}, $6, $7) ON CONFLICT (id) DO NOTHING"
            );
            let parameters: [&(dyn ToSql + Sync); 7] =
                [&id, &Text(agent), &Text(tool), &digest.as_str(), &arguments, &identity, &grants];
            self.connection().await?.execute(&sql, &parameters).await?;
            Ok(())
        })
        .await
    }

    async fn allowed(&self, agent: &str) -> Result<Vec<StoredGrant>, StoreError> {
        self.run(|| async {
            let sql = "SELECT id, agent, tool, digest, arguments, given, identity, grants FROM approvals
                       WHERE agent = $1 ORDER BY given DESC, id LIMIT $2";
            let rows = self.connection().await?.query(sql, &[&Text(agent), &sql_limit(MAX_PAGE)]).await?;
            rows.iter().map(stored_grant).collect()
        })
        .await
    }

    async fn agents_with_grants(&self) -> Result<Vec<String>, StoreError> {
        self.run(|| async {
            let sql = "SELECT DISTINCT agent FROM approvals ORDER BY agent";
            self.connection().await?.query(sql, &[]).await?.iter().map(|row| text(row, 0)).collect()
        })
        .await
    }

    async fn revoke(&self, id: &str) -> Result<bool, StoreError> {
        self.run(|| async {
            let transaction = self.unopened_transaction().await?;
            let turn = self.audit_turn().await?;
            transaction.open("BEGIN").await?;
            let sql = format!(
                "DELETE FROM approvals WHERE id = $1
                 RETURNING id, agent, tool, digest, arguments, given, identity, grants, {NOW}"
            );
            let Some(row) = transaction.query_opt(&sql, &[&Text(id)]).await? else {
                transaction.roll_back().await?;
                return Ok(false);
            };
            let StoredGrant { id, grant, .. } = stored_grant(&row)?;
            audit::insert(&transaction, &[&AuditAction::Revoked { id, grant }], value(&row, 8)?, &turn).await?;
            transaction.commit().await?;
            Ok(true)
        })
        .await
    }

    async fn bind_rule(&self, rule: NamedRule, identity: Digest) -> Result<Digest, StoreError> {
        self.run_repeatable(|| async {
            let connection = self.connection().await?;
            let sql = format!(
                "INSERT INTO rule_bindings (agent, tool, identity, bound)
                 SELECT $1, $2, $3, {NOW} WHERE NOT EXISTS (SELECT 1 FROM rule_bindings WHERE agent = $1 AND tool = $2)
                 ON CONFLICT (agent, tool) DO NOTHING"
            );
            let NamedRule { agent, tool } = &rule;
            connection.execute(&sql, &[&Text(agent), &Text(tool), &identity.as_str()]).await?;
            let sql = "SELECT identity FROM rule_bindings WHERE agent = $1 AND tool = $2";
            let row = connection.query_one(sql, &[&Text(agent), &Text(tool)]).await?;
            Ok(digest(value(&row, 0)?)?)
        })
        .await
    }
}

fn stored_grant(row: &Row) -> Result<StoredGrant, Failure> {
    let optional = |column| optional_text(row, column)?.map(|text| digest(&text)).transpose().map_err(Failure::from);
    let scope = match (optional(6)?, optional(7)?) {
        (Some(identity), Some(grants)) => Some(ApprovalScope { identity, grants }),
        _ => None,
    };
    Ok(StoredGrant {
        id: text(row, 0)?,
        grant: LastingGrant {
            agent: text(row, 1)?,
            tool: text(row, 2)?,
            digest: digest(value(row, 3)?)?,
            arguments: optional(4)?,
            scope,
        },
        given: rfc3339(value(row, 5)?)?,
    })
}
