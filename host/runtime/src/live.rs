//! An agent that changes while it works: one pointer to what it is now (P10, invariant 5).

use crate::agent::{Agent, AgentError, Answered};
use agent_core::message::Digest;
use agent_plugins::{CurrentGrants, Grants, Trial};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// Holds what an agent is now. Who takes it keeps it: a turn takes it once, when it begins. Clones hold the same.
#[derive(Clone)]
pub struct LiveAgent(Arc<Holder>);

struct Holder {
    current: watch::Sender<Arc<Agent>>,
    /// Counts the changes.
    version: AtomicU64,
    /// What was taken away from plugins while this process runs, by plugin.
    revoked: Mutex<BTreeMap<String, Grants>>,
    /// Changes are made one after another, so that none is lost; readers don't wait for them.
    changing: Mutex<()>,
}

/// How an agent's plugins stand beside what their files hold.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// Versions that were taken back, by plugin: what its file holds.
    pub rolled_back: BTreeMap<String, Digest>,
    /// New versions whose calls are counted, by plugin.
    pub trials: BTreeMap<String, OnTrial>,
    /// Files whose version did not pass its canary when the agent was made, so that an earlier one serves.
    pub refused: BTreeMap<PathBuf, Digest>,
}

/// A version on trial.
#[derive(Clone, Debug)]
pub struct OnTrial {
    /// What is on trial.
    pub digest: Digest,
    /// What served before it.
    pub before: Digest,
    /// Its calls.
    pub trial: Arc<Trial>,
}

impl LiveAgent {
    /// Holds this one until it is changed.
    pub fn new(agent: Arc<Agent>) -> Self {
        Self(Arc::new(Holder {
            current: watch::Sender::new(agent),
            version: AtomicU64::new(0),
            revoked: Mutex::default(),
            changing: Mutex::default(),
        }))
    }

    /// What the agent is now, whole.
    pub fn current(&self) -> Arc<Agent> {
        self.0.current.borrow().clone()
    }

    /// Makes it what `next` makes of it, all at once; an error leaves it as it is.
    pub fn change(&self, next: impl FnOnce(&Agent) -> Result<Agent, AgentError>) -> Result<Arc<Agent>, AgentError> {
        let _changing = self.0.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.current();
        let next = Arc::new(next(&before)?);
        self.note_revocations(&before, &next);
        self.0.current.send_replace(next.clone());
        // Whoever sees the new number sees the new agent.
        self.0.version.fetch_add(1, Ordering::SeqCst);
        Ok(next)
    }

    /// Remembers what plugins had until now and have no longer: nobody is asked for more than that (row 48).
    fn note_revocations(&self, before: &Agent, next: &Agent) {
        let nothing = Grants::default();
        for (plugin, allowance) in &before.config().plugins {
            let now = next.grants_of(plugin).unwrap_or(&nothing);
            let lost = allowance.grants.revoked_by(now);
            if lost != nothing {
                let mut revoked = self.0.revoked.lock().unwrap_or_else(PoisonError::into_inner);
                let others = revoked.remove(plugin).unwrap_or_default().without_kinds_of(&lost);
                revoked.insert(plugin.clone(), lost.and(&others));
            }
        }
    }

    /// What a plugin had been granted of each kind when some of it was last taken away.
    pub fn revoked(&self, plugin: &str) -> Grants {
        let revoked = self.0.revoked.lock().unwrap_or_else(PoisonError::into_inner);
        revoked.get(plugin).cloned().unwrap_or_default()
    }

    /// Grants a plugin what a person has answered. Unlike any other change this is true of turns that are open, too: they
    /// were stopped for the answer (P6).
    pub fn answer(&self, plugin: &str, answered: &Answered) -> Result<Arc<Agent>, AgentError> {
        self.change(|agent| agent.with_answer(plugin, answered))
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
