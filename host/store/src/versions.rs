//! Which versions of plugins a directory of plugins has served, and which were taken back (P10).

use crate::StoreError;
use agent_core::message::Digest;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// Where a version comes from that serves in place of what the plugin's file holds.
pub const STORED: &str = "plugin store";

/// Versions of plugins, by directory and plugin.
#[async_trait]
pub trait PluginVersions: Send + Sync {
    /// Says what a directory serves from now on, all of it: versions that are new begin, those that are not among it any
    /// more end, and their trials with them. What served already goes on. Returns what that has changed, by plugin; of two
    /// processes that say the same, one changes it.
    async fn serve(&self, directory: &str, serving: Vec<ServedPlugin>) -> Result<Vec<Succession>, StoreError>;

    /// What a directory serves, by plugin.
    async fn served(&self, directory: &str) -> Result<Vec<(String, Digest)>, StoreError>;

    /// Versions, the latest first, at most `limit`.
    async fn versions(&self, which: VersionFilter, limit: usize) -> Result<Vec<PluginVersion>, StoreError>;

    /// Components that must be kept: what serves, the last versions of each plugin, and what rollbacks serve instead.
    async fn needed_versions(&self, last: u32) -> Result<Vec<Digest>, StoreError>;

    /// Versions of a directory that serve and are on trial.
    async fn trials(&self, directory: &str) -> Result<Vec<StoredTrial>, StoreError>;

    /// Adds calls to a trial, and says how it stands then; none where that version is not on trial (any more).
    async fn count_trial(&self, counted: CountedTrial) -> Result<Option<StoredTrial>, StoreError>;

    /// Ends a version's trial, whatever it came to.
    async fn end_trial(&self, directory: &str, plugin: &str) -> Result<(), StoreError>;

    /// Takes a version back. One that was there for the plugin before is replaced.
    async fn roll_back(&self, rollback: Rollback) -> Result<(), StoreError>;

    /// Lets the plugin's file decide again; says whether it did not.
    async fn undo_rollback(&self, directory: &str, plugin: &str) -> Result<bool, StoreError>;

    /// Records that a turn of the agent begins with these components. What is known already is not written again.
    async fn note_begun(&self, agent: &str, plugins: Vec<(String, Digest)>) -> Result<(), StoreError>;

    /// Those of these components with which no turn of the agent has begun on this store under that name (row 38).
    async fn never_begun(
        &self,
        agent: &str,
        plugins: Vec<(String, Digest)>,
    ) -> Result<Vec<(String, Digest)>, StoreError>;

    /// What is taken back in a directory, by plugin.
    async fn rollbacks(&self, directory: &str) -> Result<Vec<Rollback>, StoreError>;
}

/// Which versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionFilter {
    /// Of this directory. None: of all.
    pub directory: Option<String>,
    /// Of this plugin. None: of all.
    pub plugin: Option<String>,
}

/// A plugin that serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedPlugin {
    /// Its name.
    pub plugin: String,
    /// Its component.
    pub digest: Digest,
    /// Where it came from: a file, or `plugin store`.
    pub origin: String,
    /// Why the version before it ends, if there is one.
    pub instead: VersionEnd,
    /// The version that it is on trial in place of, if it begins now. None: it is not on trial.
    pub trial: Option<Digest>,
}

/// One plugin that is served in another version than before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Succession {
    /// Its name.
    pub plugin: String,
    /// What served. None: nothing.
    pub from: Option<Digest>,
    /// What serves. None: nothing.
    pub to: Option<Digest>,
}

/// A version on trial, with what its calls have come to in all processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTrial {
    /// The plugin's name.
    pub plugin: String,
    /// What is on trial.
    pub digest: Digest,
    /// What served before it.
    pub before: Digest,
    /// Calls so far.
    pub calls: u32,
    /// Those of them that trapped.
    pub traps: u32,
}

/// Calls to add to a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedTrial {
    /// The plugins' directory.
    pub directory: String,
    /// The plugin's name.
    pub plugin: String,
    /// What was called.
    pub digest: Digest,
    /// How often.
    pub calls: u32,
    /// How often it trapped.
    pub traps: u32,
}

/// Why a version serves no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VersionEnd {
    /// Its file has another version.
    Replaced,
    /// Its file is gone.
    Removed,
    /// It trapped too often.
    Trapped,
    /// Somebody took it back, or let the file decide again.
    Asked,
}

impl VersionEnd {
    /// The word that is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            VersionEnd::Replaced => "replaced",
            VersionEnd::Removed => "removed",
            VersionEnd::Trapped => "trapped",
            VersionEnd::Asked => "asked",
        }
    }
}

/// A version with its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PluginVersion {
    /// From 1, never given twice.
    pub number: u64,
    /// The plugins' directory.
    pub directory: String,
    /// The plugin's name.
    pub plugin: String,
    /// Its component.
    pub digest: Digest,
    /// A file, or `plugin store`.
    pub origin: String,
    /// When it began to serve; RFC 3339 in UTC.
    pub began: String,
    /// When it ended. None: it serves.
    pub ended: Option<String>,
    /// Why it ended.
    pub why: Option<VersionEnd>,
}

/// A version that was taken back: as long as the plugin's file holds it, an earlier one serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rollback {
    /// The plugins' directory.
    pub directory: String,
    /// The plugin's name.
    pub plugin: String,
    /// What the file holds.
    pub from: Digest,
    /// What serves instead.
    pub to: Digest,
    /// [`VersionEnd::Trapped`] or [`VersionEnd::Asked`].
    pub why: VersionEnd,
}
