//! An agent that can change while it is in use. To change the agent, the host atomically replaces its current snapshot
//! (P10, invariant 5).

use super::{Agent, AgentError, AnsweredGrants};
use agent_core::message::Digest;
use agent_plugins::{CurrentGrants, Grants, Trial};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// A shared pointer to the current snapshot of an agent. A turn reads the snapshot once when it begins, and uses this
/// snapshot until it ends. All clones share one pointer: if the snapshot is replaced through one clone, all other
/// clones return the new snapshot.
#[derive(Clone)]
pub struct LiveAgent(Arc<SharedAgent>);

struct SharedAgent {
    current: watch::Sender<Arc<Agent>>,
    /// Number of times that the agent was replaced since this value was created.
    version: AtomicU64,
    /// For each plugin name, the grants that were revoked from the plugin since this process started.
    revoked: Mutex<BTreeMap<String, Grants>>,
    /// Locked while the agent is replaced, so that two concurrent changes do not overwrite each other. Readers do not
    /// lock this mutex.
    changing: Mutex<()>,
}

/// Plugin versions that are in use although the plugin's file contains another version, and versions that are on trial.
#[derive(Clone, Debug, Default)]
pub struct PluginVersions {
    /// Digests of rolled-back versions, by the name of the plugin. The plugin's file contains the rolled-back version,
    /// but the host uses an earlier version.
    pub rolled_back: BTreeMap<String, Digest>,
    /// New versions that are on trial, by the name of the plugin.
    pub trials: BTreeMap<String, VersionTrial>,
    /// Plugin files whose version failed its canary call when the agent was built. The value is the digest of the
    /// failed version. Instead of the failed version, the host uses an earlier version of the plugin.
    pub refused: BTreeMap<PathBuf, Digest>,
}

/// A plugin version that is on trial.
#[derive(Clone, Debug)]
pub struct VersionTrial {
    /// Digest of the version on trial.
    pub digest: Digest,
    /// Digest of the version that was in use before the trial.
    pub before: Digest,
    /// How many calls the version on trial has handled so far, and how many of these calls trapped.
    pub calls: Arc<Trial>,
}

impl LiveAgent {
    /// Creates a live agent whose current snapshot is `agent`.
    pub fn new(agent: Arc<Agent>) -> Self {
        Self(Arc::new(SharedAgent {
            current: watch::Sender::new(agent),
            version: AtomicU64::new(0),
            revoked: Mutex::default(),
            changing: Mutex::default(),
        }))
    }

    /// Returns the current snapshot of the agent.
    pub fn current(&self) -> Arc<Agent> {
        self.0.current.borrow().clone()
    }

    /// Returns a receiver that is notified whenever the agent is replaced.
    pub fn changes(&self) -> watch::Receiver<Arc<Agent>> {
        self.0.current.subscribe()
    }

    /// Atomically replaces the agent with the result of `next`. If `next` fails, the agent is not changed.
    pub fn change(&self, next: impl FnOnce(&Agent) -> Result<Agent, AgentError>) -> Result<Arc<Agent>, AgentError> {
        let _changing = self.0.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.current();
        let next = Arc::new(next(&before)?);
        self.record_revocations(&before, &next);
        self.replace(next.clone());
        Ok(next)
    }

    fn replace(&self, next: Arc<Agent>) {
        self.0.current.send_replace(next);
        // The version is incremented last, so that a reader that sees the new number also sees the new agent.
        self.0.version.fetch_add(1, Ordering::SeqCst);
    }

    /// For each plugin that has fewer grants in `next` than in `before`, records the plugin's earlier grants of the
    /// affected kinds. If the user is later asked for grants of an affected kind, the question offers at most the
    /// recorded grants (row 48).
    fn record_revocations(&self, before: &Agent, next: &Agent) {
        let nothing = Grants::default();
        for (plugin, allowance) in &before.config().plugins {
            let next_grants = next.grants_of(plugin).unwrap_or(&nothing);
            let lost = allowance.grants.revoked_by(next_grants);
            if lost != nothing {
                let mut revoked = self.0.revoked.lock().unwrap_or_else(PoisonError::into_inner);
                let others = revoked.remove(plugin).unwrap_or_default().without_kinds_of(&lost);
                revoked.insert(plugin.clone(), lost.and(&others));
            }
        }
    }

    /// For each kind of grant that was reduced or revoked since this process started, returns the grants of this kind
    /// that the plugin had before the latest reduction. Kinds that were never reduced are not in the result.
    pub fn revoked(&self, plugin: &str) -> Grants {
        let revoked = self.0.revoked.lock().unwrap_or_else(PoisonError::into_inner);
        revoked.get(plugin).cloned().unwrap_or_default()
    }

    /// Adds the grants in a user's answer to the grants of a plugin. Unlike all other changes, an answer also applies
    /// to open turns, because the turns were paused until the user answered (P6).
    pub fn answer(&self, plugin: &str, answered: &AnsweredGrants) -> Result<Arc<Agent>, AgentError> {
        self.change(|agent| agent.with_answer(plugin, answered))
    }

    /// Ends the grants that users gave only until they leave the session. A later question may offer these grants again,
    /// because nobody has revoked them.
    pub fn end_temporary_grants(&self) -> Result<Arc<Agent>, AgentError> {
        let _changing = self.0.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let next = Arc::new(self.current().without_temporary_grants()?);
        self.replace(next.clone());
        Ok(next)
    }
}

impl LiveAgent {
    /// Reduces the grants of a plugin to the part that `reduced` returns, until the host process exits or a user grants
    /// more. The change also applies to open turns and to calls that are running (P10).
    pub fn revoke(&self, plugin: &str, reduced: &dyn Fn(&Grants) -> Grants) -> Result<Arc<Agent>, AgentError> {
        self.change(|agent| agent.with_reduced_grants(plugin, reduced))
    }
}

impl CurrentGrants for LiveAgent {
    fn version(&self) -> u64 {
        self.0.version.load(Ordering::SeqCst)
    }

    fn grants(&self, plugin: &str) -> Option<Grants> {
        self.current().grants_of(plugin).cloned()
    }
}

impl From<Arc<Agent>> for LiveAgent {
    fn from(agent: Arc<Agent>) -> Self {
        Self::new(agent)
    }
}

impl std::fmt::Debug for LiveAgent {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let current = self.current();
        let (name, generation) = (&current.config().name, current.generation().digest());
        formatter.debug_struct("LiveAgent").field("agent", name).field("generation", generation).finish()
    }
}
