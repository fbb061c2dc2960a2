//! Trust in the files of agents that are used without being named on the command line. The user decides about a file
//! once. The decision is bound to the file's path and to the contents of all files that determine what the agent may do.

mod authority;
mod records;

pub use authority::AgentAuthority;
pub(crate) use authority::permissions_of_file;
pub use records::TrustRecord;

use crate::error::ConfigError;
use crate::text::shell_word;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// Name of the folder in the data folder that contains the decisions.
pub const TRUST_FOLDER: &str = "trust";

/// The stored decisions to trust agents' files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustStore {
    folder: PathBuf,
}

/// Whether an agent's file may be used without a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrustState {
    /// The user has trusted exactly these files, or has written them with `config init`.
    Trusted,
    /// The user has never decided about this path.
    Unknown,
    /// The user has trusted an earlier version of the files.
    Changed(TrustChange),
}

/// What has changed since the user trusted an agent's file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustChange {
    /// Permissions that the agent has now, and did not have before.
    pub added: Vec<String>,
    /// Permissions that the agent had before, and no longer has.
    pub removed: Vec<String>,
    /// Files that were changed, added or removed.
    pub files: Vec<PathBuf>,
}

impl TrustStore {
    /// Returns the decisions in a data folder. Nothing is created until a decision is stored.
    pub fn in_data_folder(root: &Path) -> Self {
        Self { folder: root.join(TRUST_FOLDER) }
    }

    /// Compares the files of an agent with the stored decision.
    pub fn state(&self, authority: &AgentAuthority) -> TrustState {
        let Some(record) = records::read(&self.folder, &authority.path) else { return TrustState::Unknown };
        // The permissions are compared as well, because a granted folder can be replaced by a link to another folder.
        if record.files == authority.files && record.permissions == authority.permissions {
            return TrustState::Trusted;
        }
        let before: BTreeSet<&String> = record.permissions.iter().collect();
        let now: BTreeSet<&String> = authority.permissions.iter().collect();
        let names: BTreeSet<&String> = record.files.keys().chain(authority.files.keys()).collect();
        let differs = |name: &&&String| record.files.get(**name) != authority.files.get(**name);
        TrustState::Changed(TrustChange {
            added: authority.permissions.iter().filter(|line| !before.contains(line)).cloned().collect(),
            removed: record.permissions.iter().filter(|line| !now.contains(line)).cloned().collect(),
            files: names.iter().filter(differs).map(|name| PathBuf::from(name.as_str())).collect(),
        })
    }

    /// Stores the decision to trust these files.
    pub fn trust(&self, authority: &AgentAuthority) -> io::Result<()> {
        records::write(&self.folder, authority)
    }

    /// Withdraws the trust in the file at `path`. Returns false if there was no decision about this path.
    pub fn forget(&self, path: &Path) -> io::Result<bool> {
        records::remove(&self.folder, &authority::location(path))
    }

    /// Returns all stored decisions, sorted by path.
    pub fn list(&self) -> io::Result<Vec<TrustRecord>> {
        records::list(&self.folder)
    }

    /// Returns what the file at `path` allows, if the user has trusted it and all files that it names as they are now.
    pub fn trusted(&self, path: &Path) -> Option<AgentAuthority> {
        AgentAuthority::of(path).ok().filter(|authority| self.state(authority) == TrustState::Trusted)
    }

    /// Trusts an agent's file again after agent-host itself has changed some of its files on behalf of the user. `before` is
    /// the result of [`TrustStore::trusted`] before the change. A file that was not trusted stays untrusted, and so does a
    /// file if anything has changed except the files for which `is_expected` returns true.
    pub fn keep(&self, before: Option<AgentAuthority>, is_expected: &dyn Fn(&Path) -> bool) {
        let Some(before) = before else { return };
        let Ok(now) = AgentAuthority::of(&before.path) else { return };
        let is_as_before =
            |(name, digest): (&String, &String)| is_expected(Path::new(name)) || before.files.get(name) == Some(digest);
        if !now.files.iter().all(is_as_before) {
            return;
        }
        if let Err(error) = self.trust(&now) {
            tracing::warn!(%error, "the trust in the changed agent's file could not be stored, so the host asks again");
        }
    }
}

/// The trusted file from which an agent was started, and the decisions that cover it. While an agent runs, its files are
/// read only in the versions that the user has trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedStart {
    /// The stored decisions.
    pub store: TrustStore,
    /// Path of the agent's file.
    pub path: PathBuf,
}

impl TrustedStart {
    /// Fails if the user has not trusted this text of the file at `path`, which is the agent's file or the file of one of
    /// its delegates.
    pub fn verify(&self, path: &Path, text: &str) -> Result<(), ConfigError> {
        let record = records::read(&self.store.folder, &authority::location(&self.path));
        let digest = authority::digest(text.as_bytes());
        let name = authority::location(path).to_string_lossy().into_owned();
        if record.is_some_and(|record| record.files.get(&name) == Some(&digest)) {
            return Ok(());
        }
        let (shown, root) = (path.display(), shell_word(&self.path.display().to_string()));
        Err(ConfigError::settings(format!(
            "`{shown}` has changed and is not trusted in its new version; `agent-host trust add {root}` shows what it allows and \
             trusts it"
        )))
    }
}

#[cfg(test)]
mod tests;
