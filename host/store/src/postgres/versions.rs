//! Plugin versions: one row for each period in which a version was used, one row for each trial, and one row for
//! each rollback.

use super::PostgresStore;
use super::connections::{Connection, Transaction};
use super::failure::Failure;
use super::queries::{NOW, number, small, value};
use super::text::{Text, optional, optional_text, text};
use crate::encoding::values::{digest, rfc3339, sql_limit};
use crate::encoding::versions::{EndedVersion, ServingChanges, parse_version_end};
use crate::versions::MAX_SOURCE_BYTES;
use crate::{
    MAX_PAGE, PLUGIN_STORE_ORIGIN, PluginSource, PluginVersion, PluginVersions, Rollback, ServedPlugin, StoreError,
    StoredTrial, TrialCalls, VersionChange, VersionEndReason, VersionFilter,
};
use agent_core::message::Digest;
use async_trait::async_trait;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

#[async_trait]
impl PluginVersions for PostgresStore {
    async fn set_serving(&self, directory: &str, serving: Vec<ServedPlugin>) -> Result<Vec<VersionChange>, StoreError> {
        self.run(|| async {
            // Usually, the versions have not changed since the previous start of the host, and nothing must be written.
            let rows = serving_rows(&self.connection().await?, directory).await?;
            if ServingChanges::of(&rows, &serving).is_empty() {
                return Ok(Vec::new());
            }
            let transaction = self.transaction().await?;
            lock_directory(&transaction, directory).await?;
            let rows = serving_rows(&transaction, directory).await?;
            let changes = ServingChanges::of(&rows, &serving);
            write_changes(&transaction, directory, &changes).await?;
            transaction.commit().await?;
            Ok(changes.version_changes())
        })
        .await
    }

    async fn serving(&self, directory: &str) -> Result<Vec<(String, Digest)>, StoreError> {
        self.run(|| async {
            let sql =
                "SELECT plugin, digest FROM plugin_versions WHERE directory = $1 AND ended IS NULL ORDER BY plugin";
            let rows = self.connection().await?.query(sql, &[&Text(directory)]).await?;
            rows.iter().map(|row| Ok((text(row, 0)?, digest(value(row, 1)?)?))).collect()
        })
        .await
    }

    async fn versions(&self, which: VersionFilter, limit: usize) -> Result<Vec<PluginVersion>, StoreError> {
        self.run(|| async {
            let sql = "SELECT number, directory, plugin, digest, origin, began, ended, why FROM plugin_versions
                       WHERE ($1::text IS NULL OR directory = $1) AND ($2::text IS NULL OR plugin = $2)
                       ORDER BY number DESC LIMIT $3";
            let (directory, plugin) = (optional(which.directory.as_deref()), optional(which.plugin.as_deref()));
            let rows = self.connection().await?.query(sql, &[&directory, &plugin, &sql_limit(limit)]).await?;
            rows.iter().map(version).collect()
        })
        .await
    }

    async fn needed_versions(&self, last: u32) -> Result<Vec<Digest>, StoreError> {
        self.run(|| async {
            let sql = "SELECT digest FROM (
                           SELECT digest, ended, row_number() OVER (
                               PARTITION BY directory, plugin ORDER BY number DESC
                           ) AS age FROM plugin_versions
                       ) aged WHERE ended IS NULL OR age <= $1
                       UNION SELECT serving FROM plugin_rollbacks UNION SELECT rolled_back FROM plugin_rollbacks
                       UNION SELECT before FROM plugin_trials ORDER BY 1";
            let rows = self.connection().await?.query(sql, &[&i64::from(last)]).await?;
            rows.iter().map(|row| Ok(digest(value(row, 0)?)?)).collect()
        })
        .await
    }

    async fn trials(&self, directory: &str) -> Result<Vec<StoredTrial>, StoreError> {
        self.run(|| async {
            let sql = "SELECT plugin, digest, before, calls, traps FROM plugin_trials
                       WHERE directory = $1 ORDER BY plugin LIMIT $2";
            let rows = self.connection().await?.query(sql, &[&Text(directory), &sql_limit(MAX_PAGE)]).await?;
            rows.iter().map(trial).collect()
        })
        .await
    }

    async fn add_trial_calls(&self, counted: TrialCalls) -> Result<Option<StoredTrial>, StoreError> {
        self.run(|| async {
            let TrialCalls { directory, plugin, digest, calls, traps } = &counted;
            let sql = "UPDATE plugin_trials SET calls = calls + $4, traps = traps + $5
                       WHERE directory = $1 AND plugin = $2 AND digest = $3
                       RETURNING plugin, digest, before, calls, traps";
            let (calls, traps) = (i64::from(*calls), i64::from(*traps));
            let parameters: [&(dyn ToSql + Sync); 5] =
                [&Text(directory), &Text(plugin), &digest.as_str(), &calls, &traps];
            let row = self.connection().await?.query_opt(sql, &parameters).await?;
            row.map(|row| trial(&row)).transpose()
        })
        .await
    }

    async fn end_trial(&self, directory: &str, plugin: &str) -> Result<(), StoreError> {
        self.run_repeatable(|| async {
            let connection = self.connection().await?;
            connection.execute(DELETE_TRIAL, &[&Text(directory), &Text(plugin)]).await?;
            Ok(())
        })
        .await
    }

    async fn record_turn_plugins(&self, agent: &str, mut plugins: Vec<(String, Digest)>) -> Result<(), StoreError> {
        // Rows of `turn_plugins` are never deleted, so no query is needed for components that are in this
        // process's cache.
        self.turn_plugins.retain_uncached(agent, &mut plugins);
        if plugins.is_empty() {
            return Ok(());
        }
        let new = self.plugins_without_turns(agent, plugins.clone()).await?;
        if !new.is_empty() {
            self.run_repeatable(|| async {
                let sql = "INSERT INTO turn_plugins (agent, plugin, digest)
                           SELECT $1::text, * FROM unnest($2::text[], $3::text[]) ON CONFLICT DO NOTHING";
                let (names, digests) = columns(&new);
                self.connection().await?.execute(sql, &[&Text(agent), &names, &digests]).await?;
                Ok(())
            })
            .await?;
        }
        self.turn_plugins.add(agent, plugins);
        Ok(())
    }

    async fn plugins_without_turns(
        &self,
        agent: &str,
        plugins: Vec<(String, Digest)>,
    ) -> Result<Vec<(String, Digest)>, StoreError> {
        self.run(|| async {
            let sql = "SELECT given.plugin, given.digest
                       FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS given (plugin, digest, position)
                       WHERE NOT EXISTS (SELECT 1 FROM turn_plugins t WHERE t.agent = $1 AND t.plugin = given.plugin
                                         AND t.digest = given.digest) ORDER BY given.position";
            let (names, digests) = columns(&plugins);
            let rows = self.connection().await?.query(sql, &[&Text(agent), &names, &digests]).await?;
            rows.iter().map(|row| Ok((text(row, 0)?, digest(value(row, 1)?)?))).collect()
        })
        .await
    }

    async fn roll_back(&self, rollback: Rollback) -> Result<(), StoreError> {
        self.run_repeatable(|| async {
            let Rollback { directory, plugin, from, to, why } = &rollback;
            let transaction = self.transaction().await?;
            lock_directory(&transaction, directory).await?;
            let sql = format!(
                "INSERT INTO plugin_rollbacks (directory, plugin, rolled_back, serving, why, time)
                 VALUES ($1, $2, $3, $4, $5, {NOW}) ON CONFLICT (directory, plugin) DO UPDATE
                 SET rolled_back = excluded.rolled_back, serving = excluded.serving, why = excluded.why,
                     time = excluded.time"
            );
            let parameters: [&(dyn ToSql + Sync); 5] =
                [&Text(directory), &Text(plugin), &from.as_str(), &to.as_str(), &why.as_str()];
            transaction.execute(&sql, &parameters).await?;
            replace_serving(&transaction, (directory, plugin), (to, PLUGIN_STORE_ORIGIN), *why).await?;
            transaction.commit().await
        })
        .await
    }

    async fn undo_rollback(&self, directory: &str, plugin: &str) -> Result<bool, StoreError> {
        self.run(|| async {
            let transaction = self.transaction().await?;
            lock_directory(&transaction, directory).await?;
            let sql = "DELETE FROM plugin_rollbacks WHERE directory = $1 AND plugin = $2 RETURNING rolled_back";
            let Some(row) = transaction.query_opt(sql, &[&Text(directory), &Text(plugin)]).await? else {
                transaction.roll_back().await?;
                return Ok(false);
            };
            let rolled_back = digest(value(&row, 0)?)?;
            let sql = "SELECT origin FROM plugin_versions WHERE directory = $1 AND plugin = $2 AND digest = $3
                       ORDER BY number DESC LIMIT 1";
            let parameters: [&(dyn ToSql + Sync); 3] = [&Text(directory), &Text(plugin), &rolled_back.as_str()];
            let origin = transaction.query_opt(sql, &parameters).await?;
            let origin = origin.map(|row| text(&row, 0)).transpose()?.unwrap_or_default();
            let why = VersionEndReason::Requested;
            replace_serving(&transaction, (directory, plugin), (&rolled_back, &origin), why).await?;
            transaction.commit().await?;
            Ok(true)
        })
        .await
    }

    async fn rollbacks(&self, directory: &str) -> Result<Vec<Rollback>, StoreError> {
        self.run(|| async {
            let sql = "SELECT directory, plugin, rolled_back, serving, why FROM plugin_rollbacks
                       WHERE directory = $1 ORDER BY plugin LIMIT $2";
            let rows = self.connection().await?.query(sql, &[&Text(directory), &sql_limit(MAX_PAGE)]).await?;
            let read = |row: &Row| {
                Ok(Rollback {
                    directory: text(row, 0)?,
                    plugin: text(row, 1)?,
                    from: digest(value(row, 2)?)?,
                    to: digest(value(row, 3)?)?,
                    why: parse_version_end(value(row, 4)?)?,
                })
            };
            rows.iter().map(read).collect()
        })
        .await
    }

    async fn record_plugin_sources(&self, sources: Vec<PluginSource>) -> Result<(), StoreError> {
        if sources.is_empty() {
            return Ok(());
        }
        self.run_repeatable(|| async {
            // Rows are locked in one order, so that two processes that start at the same time do not wait for each other.
            let sql = "INSERT INTO plugin_sources (plugin, digest, statements)
                       SELECT * FROM unnest($1::text[], $2::text[], $3::text[]) AS given (plugin, digest, statements)
                       ORDER BY given.plugin, given.digest
                       ON CONFLICT (plugin, digest) DO UPDATE SET statements =
                         CASE WHEN octet_length(plugin_sources.statements) + octet_length(excluded.statements) <= $4
                              THEN plugin_sources.statements || excluded.statements ELSE excluded.statements END
                       WHERE strpos(plugin_sources.statements, excluded.statements) = 0";
            let plugins: Vec<_> = sources.iter().map(|source| Text(&source.plugin)).collect();
            let digests: Vec<_> = sources.iter().map(|source| source.digest.as_str()).collect();
            let statements: Vec<_> = sources.iter().map(|source| Text(&source.statements)).collect();
            self.connection().await?.execute(sql, &[&plugins, &digests, &statements, &MAX_SOURCE_BYTES]).await?;
            Ok(())
        })
        .await
    }

    async fn plugin_source(&self, plugin: &str, digest: &Digest) -> Result<Option<String>, StoreError> {
        self.run(|| async {
            let sql = "SELECT statements FROM plugin_sources
                       WHERE plugin = $1 AND digest = $2 AND octet_length(statements) <= $3";
            let parameters: [&(dyn ToSql + Sync); 3] = [&Text(plugin), &digest.as_str(), &MAX_SOURCE_BYTES];
            let row = self.connection().await?.query_opt(sql, &parameters).await?;
            row.map(|row| text(&row, 0)).transpose()
        })
        .await
    }
}

const DELETE_TRIAL: &str = "DELETE FROM plugin_trials WHERE directory = $1 AND plugin = $2";

fn columns(plugins: &[(String, Digest)]) -> (Vec<Text<'_>>, Vec<&str>) {
    plugins.iter().map(|(plugin, digest)| (Text(plugin), digest.as_str())).unzip()
}

/// Lets one process at a time change the versions of a directory.
async fn lock_directory(transaction: &Transaction, directory: &str) -> Result<(), Failure> {
    let sql = "SELECT pg_advisory_xact_lock(hashtextextended('plugins ' || $1, 0))";
    transaction.query_one(sql, &[&Text(directory)]).await?;
    Ok(())
}

/// If a version of the plugin other than `to` is in use, ends that version and starts the version `to`. The history
/// is therefore correct even before the host starts again.
async fn replace_serving(
    transaction: &Transaction,
    (directory, plugin): (&str, &str),
    (to, origin): (&Digest, &str),
    why: VersionEndReason,
) -> Result<(), Failure> {
    let sql = format!(
        "UPDATE plugin_versions SET ended = {NOW}, why = $4
         WHERE directory = $1 AND plugin = $2 AND digest <> $3 AND ended IS NULL"
    );
    let parameters: [&(dyn ToSql + Sync); 4] = [&Text(directory), &Text(plugin), &to.as_str(), &why.as_str()];
    if transaction.execute(&sql, &parameters).await? > 0 {
        begin_version(transaction, (directory, plugin), (to, origin)).await?;
        transaction.execute(DELETE_TRIAL, &[&Text(directory), &Text(plugin)]).await?;
    }
    Ok(())
}

async fn begin_version(
    transaction: &Transaction,
    (directory, plugin): (&str, &str),
    (digest, origin): (&Digest, &str),
) -> Result<(), Failure> {
    let sql = format!(
        "INSERT INTO plugin_versions (directory, plugin, digest, origin, began) VALUES ($1, $2, $3, $4, {NOW})"
    );
    let parameters: [&(dyn ToSql + Sync); 4] = [&Text(directory), &Text(plugin), &digest.as_str(), &Text(origin)];
    transaction.execute(&sql, &parameters).await?;
    Ok(())
}

async fn serving_rows(connection: &Connection, directory: &str) -> Result<Vec<(i64, String, Digest)>, Failure> {
    let sql =
        "SELECT number, plugin, digest FROM plugin_versions WHERE directory = $1 AND ended IS NULL ORDER BY number";
    let rows = connection.query(sql, &[&Text(directory)]).await?;
    rows.iter().map(|row| Ok((value(row, 0)?, text(row, 1)?, digest(value(row, 2)?)?))).collect()
}

async fn write_changes(
    transaction: &Transaction,
    directory: &str,
    ServingChanges { ended, started }: &ServingChanges<'_>,
) -> Result<(), Failure> {
    for EndedVersion { number, plugin, why, .. } in ended {
        let sql = format!("UPDATE plugin_versions SET ended = {NOW}, why = $2 WHERE number = $1");
        transaction.execute(&sql, &[number, &why.as_str()]).await?;
        transaction.execute(DELETE_TRIAL, &[&Text(directory), &Text(plugin)]).await?;
    }
    for ServedPlugin { plugin, digest, origin, trial, .. } in started {
        begin_version(transaction, (directory, plugin), (digest, origin)).await?;
        if let Some(before) = trial {
            let sql = "INSERT INTO plugin_trials (directory, plugin, digest, before, calls, traps)
                       VALUES ($1, $2, $3, $4, 0, 0) ON CONFLICT (directory, plugin) DO UPDATE
                       SET digest = excluded.digest, before = excluded.before, calls = 0, traps = 0";
            let parameters: [&(dyn ToSql + Sync); 4] =
                [&Text(directory), &Text(plugin), &digest.as_str(), &before.as_str()];
            transaction.execute(sql, &parameters).await?;
        }
    }
    Ok(())
}

fn version(row: &Row) -> Result<PluginVersion, Failure> {
    Ok(PluginVersion {
        number: number(row, 0)?,
        directory: text(row, 1)?,
        plugin: text(row, 2)?,
        digest: digest(value(row, 3)?)?,
        origin: text(row, 4)?,
        began: rfc3339(value(row, 5)?)?,
        ended: value::<Option<i64>>(row, 6)?.map(rfc3339).transpose()?,
        why: optional_text(row, 7)?.as_deref().map(parse_version_end).transpose()?,
    })
}

fn trial(row: &Row) -> Result<StoredTrial, Failure> {
    Ok(StoredTrial {
        plugin: text(row, 0)?,
        digest: digest(value(row, 1)?)?,
        before: digest(value(row, 2)?)?,
        calls: small(row, 3)?,
        traps: small(row, 4)?,
    })
}
