//! The history of plugin versions in each plugin directory, and the rollbacks (P10).

use crate::StoreError;
use agent_core::message::Digest;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// Origin of a version that is used because of a rollback. The host loads this version from the plugin store instead of
/// the plugin's file.
pub const PLUGIN_STORE_ORIGIN: &str = "plugin store";

/// Stores the plugin versions of each plugin directory.
#[async_trait]
pub trait PluginVersions: Send + Sync {
    /// Stores the set of versions of a directory that are in use from now on. If a version in `serving` was not in use,
    /// its period of use starts. If a version was in use but is missing from `serving`, this call ends
    /// the version's period of use and its trial. Nothing changes for a version in `serving` that is already in use. Returns one change for each plugin whose
    /// version changed. If two processes store the same set, only one of them gets the changes.
    async fn set_serving(&self, directory: &str, serving: Vec<ServedPlugin>) -> Result<Vec<VersionChange>, StoreError>;

    /// Returns the versions of a directory that are in use, ordered by plugin.
    async fn serving(&self, directory: &str) -> Result<Vec<(String, Digest)>, StoreError>;

    /// Returns up to `limit` versions that the filter selects, newest first.
    async fn versions(&self, which: VersionFilter, limit: usize) -> Result<Vec<PluginVersion>, StoreError>;

    /// Returns the digests of the components that must be kept: versions in use, the `last` most recent versions of
    /// each plugin, and both versions of each rollback and trial.
    async fn needed_versions(&self, last: u32) -> Result<Vec<Digest>, StoreError>;

    /// Returns the versions of a directory that are in use and on trial.
    async fn trials(&self, directory: &str) -> Result<Vec<StoredTrial>, StoreError>;

    /// Adds calls to a trial and returns the new totals. Returns `None` if the version is not on trial.
    async fn add_trial_calls(&self, counted: TrialCalls) -> Result<Option<StoredTrial>, StoreError>;

    /// Ends the trial of a plugin's version, regardless of the trial's outcome.
    async fn end_trial(&self, directory: &str, plugin: &str) -> Result<(), StoreError>;

    /// Records that a plugin is rolled back to an earlier version. The new rollback replaces an existing rollback of
    /// the plugin.
    async fn roll_back(&self, rollback: Rollback) -> Result<(), StoreError>;

    /// Removes a rollback, so that the version in the plugin's file is used again. Returns false
    /// if no rollback of the plugin was recorded.
    async fn undo_rollback(&self, directory: &str, plugin: &str) -> Result<bool, StoreError>;

    /// Records that a turn of the agent started with these components. Each component is a pair of the plugin's name
    /// and the component's digest.
    async fn record_turn_plugins(&self, agent: &str, plugins: Vec<(String, Digest)>) -> Result<(), StoreError>;

    /// Returns the components in `plugins` that were never in use when a turn of the agent started. A component that
    /// was used only under a different plugin name is also returned (row 38).
    async fn plugins_without_turns(
        &self,
        agent: &str,
        plugins: Vec<(String, Digest)>,
    ) -> Result<Vec<(String, Digest)>, StoreError>;

    /// Returns the rollbacks of a directory, ordered by plugin.
    async fn rollbacks(&self, directory: &str) -> Result<Vec<Rollback>, StoreError>;

    /// Stores where versions come from, so that another machine can fetch them, in addition to what was stored for the same
    /// version of the same plugin. If it would become longer than 64 KiB, replaces what was stored.
    async fn record_plugin_sources(&self, sources: Vec<PluginSource>) -> Result<(), StoreError>;

    /// Returns the statements that were stored for this version of a plugin. `None` if no process has stored any, which is
    /// the case for plugins that were built on a machine, or if they are longer than 64 KiB.
    async fn plugin_source(&self, plugin: &str, digest: &Digest) -> Result<Option<String>, StoreError>;
}

/// Maximum size of the statements about a version, in bytes. Fits into an `i32`, which PostgreSQL compares with lengths.
pub(crate) const MAX_SOURCE_BYTES: i32 = 64 << 10;

/// Where a version of a plugin comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginSource {
    /// Name of the plugin.
    pub plugin: String,
    /// Digest of the version's component.
    pub digest: Digest,
    /// Statements about the component's origin: entries of lock files, as the process stored them with the component.
    /// Whoever can write to the database can change them, so a reader must verify what it fetches.
    pub statements: String,
}

/// Selects the plugin versions to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionFilter {
    /// Path of a plugin directory, whose versions are selected. `None` selects the versions of all directories.
    pub directory: Option<String>,
    /// Name of a plugin, whose versions are selected. `None` selects the versions of all plugins.
    pub plugin: Option<String>,
}

/// A plugin version that is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedPlugin {
    /// Name of the plugin.
    pub plugin: String,
    /// Digest of the plugin's component.
    pub digest: Digest,
    /// Path of the file that the version was loaded from, or [`PLUGIN_STORE_ORIGIN`].
    pub origin: String,
    /// Reason why the plugin's previous version is no longer used. The reason is ignored if no version of the plugin
    /// is replaced.
    pub instead: VersionEndReason,
    /// If this version starts on trial, the digest of the version that it replaces. `None` if this version is not on
    /// trial. This field is ignored if this version is already in use.
    pub trial: Option<Digest>,
}

/// The change of one plugin from the version that was used before to the version that is used now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionChange {
    /// Name of the plugin.
    pub plugin: String,
    /// Digest of the version that was used before. `None` if no version was used.
    pub from: Option<Digest>,
    /// Digest of the version that is used now. `None` if no version is used any more.
    pub to: Option<Digest>,
}

/// A version on trial, with the totals of its calls in all processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTrial {
    /// Name of the plugin.
    pub plugin: String,
    /// Digest of the version on trial.
    pub digest: Digest,
    /// Digest of the version that was used before the version on trial.
    pub before: Digest,
    /// Number of calls to the version since its trial started.
    pub calls: u32,
    /// Number of calls that trapped since the trial started.
    pub traps: u32,
}

/// Counts of calls that are added to the totals of a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrialCalls {
    /// Path of the plugin directory.
    pub directory: String,
    /// Name of the plugin.
    pub plugin: String,
    /// Digest of the version that was called.
    pub digest: Digest,
    /// Number of calls that are added to the total of the trial.
    pub calls: u32,
    /// How many of these calls trapped.
    pub traps: u32,
}

/// The reason why a version is no longer used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VersionEndReason {
    /// The plugin's file was replaced by a file with a different version.
    Replaced,
    /// The plugin's file was removed.
    Removed,
    /// The version trapped too often.
    Trapped,
    /// A user rolled the plugin back, or undid a rollback.
    #[serde(rename = "asked")]
    Requested,
}

impl VersionEndReason {
    /// Returns the word that the store saves for this reason.
    pub fn as_str(self) -> &'static str {
        match self {
            VersionEndReason::Replaced => "replaced",
            VersionEndReason::Removed => "removed",
            VersionEndReason::Trapped => "trapped",
            VersionEndReason::Requested => "asked",
        }
    }
}

/// A plugin version, and the period in which it was used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PluginVersion {
    /// Number that identifies this entry of the history. The numbers of entries start at 1 and are never reused.
    pub number: u64,
    /// Path of the plugin directory.
    pub directory: String,
    /// Name of the plugin.
    pub plugin: String,
    /// Digest of the plugin's component.
    pub digest: Digest,
    /// Path of the file that the version was loaded from, or [`PLUGIN_STORE_ORIGIN`].
    pub origin: String,
    /// Time from which the version was used, as RFC 3339 in UTC.
    pub began: String,
    /// Time until which the version was used, as RFC 3339 in UTC. `None` if the version is still in use.
    pub ended: Option<String>,
    /// Reason why the version is no longer used. `None` if the version is still in use.
    pub why: Option<VersionEndReason>,
}

/// A rollback: while the plugin's file contains the version `from`, the earlier version `to` is used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rollback {
    /// Path of the plugin directory.
    pub directory: String,
    /// Name of the plugin.
    pub plugin: String,
    /// Digest of the version in the plugin's file.
    pub from: Digest,
    /// Digest of the earlier version, which is used instead of the version `from`.
    pub to: Digest,
    /// Reason for the rollback: [`VersionEndReason::Trapped`] or [`VersionEndReason::Requested`].
    pub why: VersionEndReason,
}
