//! The history of plugin versions in each plugin directory, and the rollbacks (P10).

use crate::StoreError;
use agent_core::message::Digest;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// Origin of a version that serves instead of the one in the plugin's file.
pub const PLUGIN_STORE_ORIGIN: &str = "plugin store";

/// Stores the plugin versions of each plugin directory.
#[async_trait]
pub trait PluginVersions: Send + Sync {
    /// Stores which versions a directory serves from now on. `serving` lists all of them: new versions start, versions that
    /// are missing end together with their trials, and versions that already serve continue. Returns what changed, by plugin.
    /// If two processes store the same set, only one of them gets the changes.
    async fn set_serving(&self, directory: &str, serving: Vec<ServedPlugin>) -> Result<Vec<VersionChange>, StoreError>;

    /// Returns the versions that a directory serves, ordered by plugin.
    async fn serving(&self, directory: &str) -> Result<Vec<(String, Digest)>, StoreError>;

    /// Returns versions, newest first, at most `limit`.
    async fn versions(&self, which: VersionFilter, limit: usize) -> Result<Vec<PluginVersion>, StoreError>;

    /// Returns the components that must be kept: versions that serve, the last `last` versions of each plugin, and both
    /// versions of each rollback and trial.
    async fn needed_versions(&self, last: u32) -> Result<Vec<Digest>, StoreError>;

    /// Returns the versions of a directory that serve and are on trial.
    async fn trials(&self, directory: &str) -> Result<Vec<StoredTrial>, StoreError>;

    /// Adds calls to a trial and returns the new totals, or `None` if the version is not on trial (any more).
    async fn count_trial(&self, counted: TrialCalls) -> Result<Option<StoredTrial>, StoreError>;

    /// Ends the trial of a plugin's version, whatever its result.
    async fn end_trial(&self, directory: &str, plugin: &str) -> Result<(), StoreError>;

    /// Rolls a plugin back. This replaces an existing rollback of the plugin.
    async fn roll_back(&self, rollback: Rollback) -> Result<(), StoreError>;

    /// Removes a rollback, so that the plugin's file serves again. Returns whether there was one.
    async fn undo_rollback(&self, directory: &str, plugin: &str) -> Result<bool, StoreError>;

    /// Records that a turn of the agent starts with these components, given as plugin name and digest.
    async fn record_turn_plugins(&self, agent: &str, plugins: Vec<(String, Digest)>) -> Result<(), StoreError>;

    /// Returns those of these components that no turn of the agent has ever started with under that plugin name (row 38).
    async fn plugins_without_turns(
        &self,
        agent: &str,
        plugins: Vec<(String, Digest)>,
    ) -> Result<Vec<(String, Digest)>, StoreError>;

    /// Returns the rollbacks of a directory, ordered by plugin.
    async fn rollbacks(&self, directory: &str) -> Result<Vec<Rollback>, StoreError>;
}

/// Selects versions to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionFilter {
    /// Only versions of this plugin directory. `None`: of all directories.
    pub directory: Option<String>,
    /// Only versions of this plugin. `None`: of all plugins.
    pub plugin: Option<String>,
}

/// A plugin version that serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedPlugin {
    /// Name of the plugin.
    pub plugin: String,
    /// Digest of the plugin's component.
    pub digest: Digest,
    /// Where the version came from: a file, or [`PLUGIN_STORE_ORIGIN`].
    pub origin: String,
    /// If there was a previous version: why it stops serving.
    pub instead: VersionEnd,
    /// The version that it replaces on trial, if it starts now. `None`: it is not on trial.
    pub trial: Option<Digest>,
}

/// A change of the version that a plugin serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionChange {
    /// Name of the plugin.
    pub plugin: String,
    /// Digest of the version that served before. `None` if there was none.
    pub from: Option<Digest>,
    /// Digest of the version that serves now. `None` if there is none.
    pub to: Option<Digest>,
}

/// A version on trial, with the totals of its calls in all processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTrial {
    /// Name of the plugin.
    pub plugin: String,
    /// Digest of the version on trial.
    pub digest: Digest,
    /// Digest of the version that served before.
    pub before: Digest,
    /// Number of calls so far.
    pub calls: u32,
    /// Number of calls that trapped.
    pub traps: u32,
}

/// Calls to add to a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrialCalls {
    /// Path of the plugin directory.
    pub directory: String,
    /// Name of the plugin.
    pub plugin: String,
    /// Digest of the version that was called.
    pub digest: Digest,
    /// Number of calls to add.
    pub calls: u32,
    /// Number of these calls that trapped.
    pub traps: u32,
}

/// Why a version no longer serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VersionEnd {
    /// The plugin's file contains another version.
    Replaced,
    /// The plugin's file was removed.
    Removed,
    /// The version trapped too often.
    Trapped,
    /// A person rolled the plugin back, or undid a rollback.
    #[serde(rename = "asked")]
    Requested,
}

impl VersionEnd {
    /// Returns the word that is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            VersionEnd::Replaced => "replaced",
            VersionEnd::Removed => "removed",
            VersionEnd::Trapped => "trapped",
            VersionEnd::Requested => "asked",
        }
    }
}

/// A plugin version with the times at which it served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PluginVersion {
    /// Number of the entry. Numbers start at 1 and are never reused.
    pub number: u64,
    /// Path of the plugin directory.
    pub directory: String,
    /// Name of the plugin.
    pub plugin: String,
    /// Digest of the plugin's component.
    pub digest: Digest,
    /// Where the version came from: a file, or [`PLUGIN_STORE_ORIGIN`].
    pub origin: String,
    /// Time at which the version started to serve, as RFC 3339 in UTC.
    pub began: String,
    /// Time at which the version ended, as RFC 3339 in UTC. `None` if it serves.
    pub ended: Option<String>,
    /// Why the version ended. `None` if it serves.
    pub why: Option<VersionEnd>,
}

/// A rollback: while the plugin's file contains the version `from`, the earlier version `to` serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rollback {
    /// Path of the plugin directory.
    pub directory: String,
    /// Name of the plugin.
    pub plugin: String,
    /// Digest of the version in the plugin's file.
    pub from: Digest,
    /// Digest of the version that serves instead.
    pub to: Digest,
    /// [`VersionEnd::Trapped`] or [`VersionEnd::Requested`].
    pub why: VersionEnd,
}
