//! Plugin versions: one row for each period in which a version was used, one row for each trial, and one row for
//! each rollback.

use super::SqliteStore;
use super::failure::Failure;
use super::queries::{collect, now, rfc3339, sql_limit, unsigned};
use super::writer::Effort;
use crate::encoding::versions::{EndedVersion, ServingChanges, parse_version_end};
use crate::versions::MAX_SOURCE_BYTES;
use crate::{
    MAX_PAGE, PLUGIN_STORE_ORIGIN, PluginSource, PluginVersion, PluginVersions, Rollback, ServedPlugin, StoreError,
    StoredTrial, TrialCalls, VersionChange, VersionEndReason, VersionFilter,
};
use agent_core::message::Digest;
use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params};

#[async_trait]
impl PluginVersions for SqliteStore {
    async fn set_serving(&self, directory: &str, serving: Vec<ServedPlugin>) -> Result<Vec<VersionChange>, StoreError> {
        let directory = directory.to_owned();
        let (path, wanted) = (directory.clone(), serving.clone());
        // Usually, the versions have not changed since the previous start of the host, and nothing must be written.
        if self.read(move |connection| Ok(changes(connection, &path, &wanted)?.is_empty())).await? {
            return Ok(Vec::new());
        }
        self.write(Effort::Short, move |connection| {
            let changes = changes(connection, &directory, &serving)?;
            write_changes(connection, &directory, &changes)?;
            Ok(changes.version_changes())
        })
        .await
    }

    async fn serving(&self, directory: &str) -> Result<Vec<(String, Digest)>, StoreError> {
        let directory = directory.to_owned();
        self.read(move |connection| {
            let sql =
                "SELECT plugin, digest FROM plugin_versions WHERE directory = ?1 AND ended IS NULL ORDER BY plugin";
            collect(connection, sql, [directory], |row| Ok((row.get(0)?, digest(row.get(1)?)?)))
        })
        .await
    }

    async fn versions(&self, which: VersionFilter, limit: usize) -> Result<Vec<PluginVersion>, StoreError> {
        self.read(move |connection| {
            let sql = "SELECT number, directory, plugin, digest, origin, began, ended, why FROM plugin_versions
                       WHERE (?1 IS NULL OR directory = ?1) AND (?2 IS NULL OR plugin = ?2)
                       ORDER BY number DESC LIMIT ?3";
            collect(connection, sql, params![which.directory, which.plugin, sql_limit(limit)], version)
        })
        .await
    }

    async fn needed_versions(&self, last: u32) -> Result<Vec<Digest>, StoreError> {
        self.read(move |connection| {
            let sql = "SELECT digest FROM (
                           SELECT digest, ended, row_number() OVER (
                               PARTITION BY directory, plugin ORDER BY number DESC
                           ) AS age FROM plugin_versions
                       ) WHERE ended IS NULL OR age <= ?1
                       UNION SELECT serving FROM plugin_rollbacks UNION SELECT rolled_back FROM plugin_rollbacks
                       UNION SELECT before FROM plugin_trials";
            collect(connection, sql, [last], |row| digest(row.get(0)?))
        })
        .await
    }

    async fn trials(&self, directory: &str) -> Result<Vec<StoredTrial>, StoreError> {
        let directory = directory.to_owned();
        self.read(move |connection| {
            let sql = "SELECT plugin, digest, before, calls, traps FROM plugin_trials
                       WHERE directory = ?1 ORDER BY plugin LIMIT ?2";
            collect(connection, sql, params![directory, sql_limit(MAX_PAGE)], trial)
        })
        .await
    }

    async fn add_trial_calls(&self, counted: TrialCalls) -> Result<Option<StoredTrial>, StoreError> {
        self.write(Effort::Short, move |connection| {
            let TrialCalls { directory, plugin, digest, calls, traps } = &counted;
            let sql = "UPDATE plugin_trials SET calls = calls + ?4, traps = traps + ?5
                       WHERE directory = ?1 AND plugin = ?2 AND digest = ?3
                       RETURNING plugin, digest, before, calls, traps";
            let parameters = params![directory, plugin, digest.as_str(), calls, traps];
            Ok(collect(connection, sql, parameters, trial)?.pop())
        })
        .await
    }

    async fn end_trial(&self, directory: &str, plugin: &str) -> Result<(), StoreError> {
        let (directory, plugin) = (directory.to_owned(), plugin.to_owned());
        self.write(Effort::Short, move |connection| {
            let sql = "DELETE FROM plugin_trials WHERE directory = ?1 AND plugin = ?2";
            connection.prepare_cached(sql)?.execute([&directory, &plugin])?;
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
            let agent = agent.to_owned();
            self.write(Effort::Short, move |connection| {
                let sql = "INSERT INTO turn_plugins (agent, plugin, digest) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
                let mut statement = connection.prepare_cached(sql)?;
                for (plugin, digest) in &new {
                    statement.execute([agent.as_str(), plugin, digest.as_str()])?;
                }
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
        let agent = agent.to_owned();
        self.read(move |connection| {
            let sql = "SELECT 1 FROM turn_plugins WHERE agent = ?1 AND plugin = ?2 AND digest = ?3";
            let mut statement = connection.prepare_cached(sql)?;
            let mut unknown = Vec::new();
            for (plugin, digest) in plugins {
                if !statement.exists([agent.as_str(), &plugin, digest.as_str()])? {
                    unknown.push((plugin, digest));
                }
            }
            Ok(unknown)
        })
        .await
    }

    async fn roll_back(&self, rollback: Rollback) -> Result<(), StoreError> {
        self.write(Effort::Short, move |connection| {
            let Rollback { directory, plugin, from, to, why } = &rollback;
            connection
                .prepare_cached(
                    "INSERT INTO plugin_rollbacks (directory, plugin, rolled_back, serving, why, time)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (directory, plugin) DO UPDATE
                     SET rolled_back = ?3, serving = ?4, why = ?5, time = ?6",
                )?
                .execute(params![directory, plugin, from.as_str(), to.as_str(), why.as_str(), now()])?;
            replace_serving(connection, (directory, plugin), (to, PLUGIN_STORE_ORIGIN), *why)
        })
        .await
    }

    async fn undo_rollback(&self, directory: &str, plugin: &str) -> Result<bool, StoreError> {
        let (directory, plugin) = (directory.to_owned(), plugin.to_owned());
        self.write(Effort::Short, move |connection| {
            let sql = "DELETE FROM plugin_rollbacks WHERE directory = ?1 AND plugin = ?2 RETURNING rolled_back";
            let undone = collect(connection, sql, [&directory, &plugin], |row| digest(row.get(0)?))?;
            for rolled_back in &undone {
                let sql = "SELECT origin FROM plugin_versions WHERE directory = ?1 AND plugin = ?2 AND digest = ?3
                           ORDER BY number DESC LIMIT 1";
                let origin =
                    collect(connection, sql, params![directory, plugin, rolled_back.as_str()], |row| Ok(row.get(0)?))?;
                let origin: String = origin.into_iter().next().unwrap_or_default();
                replace_serving(
                    connection,
                    (&directory, &plugin),
                    (rolled_back, &origin),
                    VersionEndReason::Requested,
                )?;
            }
            Ok(!undone.is_empty())
        })
        .await
    }

    async fn rollbacks(&self, directory: &str) -> Result<Vec<Rollback>, StoreError> {
        let directory = directory.to_owned();
        self.read(move |connection| {
            let sql = "SELECT directory, plugin, rolled_back, serving, why FROM plugin_rollbacks
                       WHERE directory = ?1 ORDER BY plugin LIMIT ?2";
            collect(connection, sql, params![directory, sql_limit(MAX_PAGE)], |row| {
                Ok(Rollback {
                    directory: row.get(0)?,
                    plugin: row.get(1)?,
                    from: digest(row.get(2)?)?,
                    to: digest(row.get(3)?)?,
                    why: parse_version_end(&row.get::<_, String>(4)?)?,
                })
            })
        })
        .await
    }

    async fn record_plugin_sources(&self, sources: Vec<PluginSource>) -> Result<(), StoreError> {
        if sources.is_empty() {
            return Ok(());
        }
        self.write(Effort::Short, move |connection| {
            let sql = "INSERT INTO plugin_sources (plugin, digest, statements) VALUES (?1, ?2, ?3)
                       ON CONFLICT (plugin, digest) DO UPDATE SET statements =
                         CASE WHEN octet_length(statements) + octet_length(excluded.statements) <= ?4
                              THEN statements || excluded.statements ELSE excluded.statements END
                       WHERE instr(statements, excluded.statements) = 0";
            let mut statement = connection.prepare_cached(sql)?;
            for PluginSource { plugin, digest, statements } in &sources {
                statement.execute(params![plugin, digest.as_str(), statements, MAX_SOURCE_BYTES])?;
            }
            Ok(())
        })
        .await
    }

    async fn plugin_source(&self, plugin: &str, digest: &Digest) -> Result<Option<String>, StoreError> {
        let (plugin, digest) = (plugin.to_owned(), digest.as_str().to_owned());
        self.read(move |connection| {
            let sql = "SELECT statements FROM plugin_sources
                       WHERE plugin = ?1 AND digest = ?2 AND octet_length(statements) <= ?3";
            let mut statement = connection.prepare_cached(sql)?;
            Ok(statement.query_row(params![plugin, digest, MAX_SOURCE_BYTES], |row| row.get(0)).optional()?)
        })
        .await
    }
}

/// If a version of the plugin other than `to` is in use, ends that version and starts the version `to`. The history
/// is therefore correct even before the host starts again.
fn replace_serving(
    connection: &Connection,
    (directory, plugin): (&str, &str),
    (to, origin): (&Digest, &str),
    why: VersionEndReason,
) -> Result<(), Failure> {
    let sql = "UPDATE plugin_versions SET ended = ?4, why = ?5
               WHERE directory = ?1 AND plugin = ?2 AND digest <> ?3 AND ended IS NULL";
    let time = now();
    let ended = connection.prepare_cached(sql)?.execute(params![directory, plugin, to.as_str(), time, why.as_str()])?;
    if ended > 0 {
        let sql = "INSERT INTO plugin_versions (directory, plugin, digest, origin, began) VALUES (?1, ?2, ?3, ?4, ?5)";
        connection.prepare_cached(sql)?.execute(params![directory, plugin, to.as_str(), origin, time])?;
        let sql = "DELETE FROM plugin_trials WHERE directory = ?1 AND plugin = ?2";
        connection.prepare_cached(sql)?.execute([directory, plugin])?;
    }
    Ok(())
}

/// Returns the differences between the stored and the served versions of a directory.
fn changes<'s>(
    connection: &Connection,
    directory: &str,
    serving: &'s [ServedPlugin],
) -> Result<ServingChanges<'s>, Failure> {
    let sql = "SELECT number, plugin, digest FROM plugin_versions WHERE directory = ?1 AND ended IS NULL";
    let rows = collect(connection, sql, [directory], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, digest(row.get(2)?)?))
    })?;
    Ok(ServingChanges::of(&rows, serving))
}

fn write_changes(
    connection: &Connection,
    directory: &str,
    ServingChanges { ended, started }: &ServingChanges<'_>,
) -> Result<(), Failure> {
    let time = now();
    let mut end = connection.prepare_cached("UPDATE plugin_versions SET ended = ?2, why = ?3 WHERE number = ?1")?;
    let mut end_trial = connection.prepare_cached("DELETE FROM plugin_trials WHERE directory = ?1 AND plugin = ?2")?;
    for EndedVersion { number, plugin, why, .. } in ended {
        end.execute(params![number, time, why.as_str()])?;
        end_trial.execute(params![directory, plugin])?;
    }
    let mut begin = connection.prepare_cached(
        "INSERT INTO plugin_versions (directory, plugin, digest, origin, began) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    let mut begin_trial = connection.prepare_cached(
        "INSERT OR REPLACE INTO plugin_trials (directory, plugin, digest, before, calls, traps)
         VALUES (?1, ?2, ?3, ?4, 0, 0)",
    )?;
    for ServedPlugin { plugin, digest, origin, trial, .. } in started {
        begin.execute(params![directory, plugin, digest.as_str(), origin, time])?;
        if let Some(before) = trial {
            begin_trial.execute(params![directory, plugin, digest.as_str(), before.as_str()])?;
        }
    }
    Ok(())
}

fn version(row: &Row<'_>) -> Result<PluginVersion, Failure> {
    Ok(PluginVersion {
        number: unsigned(row.get(0)?),
        directory: row.get(1)?,
        plugin: row.get(2)?,
        digest: digest(row.get(3)?)?,
        origin: row.get(4)?,
        began: rfc3339(row.get(5)?)?,
        ended: row.get::<_, Option<i64>>(6)?.map(rfc3339).transpose()?,
        why: row.get::<_, Option<String>>(7)?.as_deref().map(parse_version_end).transpose()?,
    })
}

fn trial(row: &Row<'_>) -> Result<StoredTrial, Failure> {
    Ok(StoredTrial {
        plugin: row.get(0)?,
        digest: digest(row.get(1)?)?,
        before: digest(row.get(2)?)?,
        calls: row.get(3)?,
        traps: row.get(4)?,
    })
}

fn digest(text: String) -> Result<Digest, Failure> {
    Ok(crate::encoding::values::digest(&text)?)
}
