//! An agent that can change while it is in use. To change the agent, the host atomically replaces its current snapshot
//! (P10, invariant 5).

use super::{Agent, AgentError, AnsweredGrants};
use agent_core::message::Digest;
use agent_plugins::{CurrentGrants, Grants, Trial};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// A shared pointer to the current snapshot of an agent. A turn reads the snapshot once when it begins, and uses this
/// snapshot until it ends. All clones share one pointer: if the snapshot is replaced through one clone, all other
/// clones return the new snapshot.
///
/// A live agent can belong to a session, see [`LiveAgent::for_session`]. The temporary grants that users give to it then
/// apply to this session only, and its snapshot is the shared snapshot with these grants.
#[derive(Clone)]
pub struct LiveAgent {
    shared: Arc<SharedAgent>,
    /// Id (subject) of the session to which temporary grants are bound. `None` means that they apply to all sessions.
    session: Option<Arc<str>>,
}

struct SharedAgent {
    current: watch::Sender<Arc<Agent>>,
    /// Number of times that the agent was replaced since this value was created.
    version: AtomicU64,
    /// For each plugin name, the grants that were revoked from the plugin since this process started.
    revoked: Mutex<BTreeMap<String, Grants>>,
    /// The temporary grants that apply to one session only, by the id of the session.
    sessions: Mutex<BTreeMap<Arc<str>, SessionGrants>>,
    /// Locked while the agent is replaced, so that two concurrent changes do not overwrite each other. Readers do not
    /// lock this mutex.
    changing: Mutex<()>,
}

/// The temporary grants of one session.
#[derive(Default)]
struct SessionGrants {
    /// Grants by the name of the plugin.
    plugins: BTreeMap<String, Grants>,
    /// A shared snapshot, and the same snapshot with the grants of the session.
    built: Option<(Arc<Agent>, Arc<Agent>)>,
}

impl SessionGrants {
    /// Returns the snapshot with the grants of the session.
    fn apply(&mut self, shared: &Arc<Agent>) -> Result<Arc<Agent>, AgentError> {
        if let Some((_, built)) = self.built.as_ref().filter(|(of, _)| Arc::ptr_eq(of, shared)) {
            return Ok(Arc::clone(built));
        }
        let mut agent = Arc::clone(shared);
        for (plugin, temporary) in &self.plugins {
            let answered = AnsweredGrants { temporary: temporary.clone(), ..AnsweredGrants::default() };
            agent = Arc::new(agent.with_answer(plugin, &answered)?);
        }
        self.built = Some((Arc::clone(shared), Arc::clone(&agent)));
        Ok(agent)
    }
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
        let shared = SharedAgent {
            current: watch::Sender::new(agent),
            version: AtomicU64::new(0),
            revoked: Mutex::default(),
            sessions: Mutex::default(),
            changing: Mutex::default(),
        };
        Self { shared: Arc::new(shared), session: None }
    }

    /// Returns the same agent for a session. Temporary grants that users give to the returned agent apply only to this
    /// session and to the sessions to which it delegates, until [`LiveAgent::end_temporary_grants`] ends them.
    #[must_use]
    pub fn for_session(&self, session: &str) -> Self {
        Self { shared: Arc::clone(&self.shared), session: Some(Arc::from(session)) }
    }

    /// Returns the same agent for the session to which `delegating` belongs.
    pub(crate) fn in_session_of(&self, delegating: &LiveAgent) -> Self {
        Self { shared: Arc::clone(&self.shared), session: delegating.session.clone() }
    }

    /// Returns the id of the session to which temporary grants are bound. `None` means that they apply to all sessions.
    pub fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// Returns the current snapshot of the agent.
    pub fn current(&self) -> Arc<Agent> {
        let shared = self.shared_snapshot();
        let Some(session) = &self.session else { return shared };
        let mut sessions = lock(&self.shared.sessions);
        match sessions.get_mut(session) {
            // If the grants do not fit to a new snapshot, the plugins do not get them.
            Some(granted) => granted.apply(&shared).unwrap_or(shared),
            None => shared,
        }
    }

    fn shared_snapshot(&self) -> Arc<Agent> {
        self.shared.current.borrow().clone()
    }

    /// Returns a receiver that is notified whenever the agent is replaced.
    pub fn changes(&self) -> watch::Receiver<Arc<Agent>> {
        self.shared.current.subscribe()
    }

    /// Atomically replaces the agent with the result of `next`. If `next` fails, the agent is not changed.
    pub fn change(&self, next: impl FnOnce(&Agent) -> Result<Agent, AgentError>) -> Result<Arc<Agent>, AgentError> {
        let _changing = lock(&self.shared.changing);
        // The grants of a session are no part of the shared snapshot.
        let before = self.shared_snapshot();
        let next = Arc::new(next(&before)?);
        self.record_revocations(&before, &next);
        self.replace(next.clone());
        Ok(next)
    }

    fn replace(&self, next: Arc<Agent>) {
        self.shared.current.send_replace(next);
        self.note_change();
    }

    /// The version is incremented after a change, so that a reader that sees the new number also sees the new agent.
    fn note_change(&self) {
        self.shared.version.fetch_add(1, Ordering::SeqCst);
    }

    /// For each plugin that has fewer grants in `next` than in `before`, records the plugin's earlier grants of the
    /// affected kinds. If the user is later asked for grants of an affected kind, the question offers at most the
    /// recorded grants (row 48).
    fn record_revocations(&self, before: &Agent, next: &Agent) {
        let nothing = Grants::default();
        for (plugin, allowance) in &before.config().plugins {
            let next_grants = next.grants_of(plugin).unwrap_or(&nothing);
            self.record_lost(plugin, &allowance.grants.revoked_by(next_grants));
        }
    }

    fn record_lost(&self, plugin: &str, lost: &Grants) {
        if *lost != Grants::default() {
            let mut revoked = lock(&self.shared.revoked);
            let others = revoked.remove(plugin).unwrap_or_default().without_kinds_of(lost);
            revoked.insert(plugin.to_owned(), lost.clone().and(&others));
        }
    }

    /// For each kind of grant that was reduced or revoked since this process started, returns the grants of this kind
    /// that the plugin had before the latest reduction. Kinds that were never reduced are not in the result.
    pub fn revoked(&self, plugin: &str) -> Grants {
        let revoked = lock(&self.shared.revoked);
        revoked.get(plugin).cloned().unwrap_or_default()
    }

    /// Adds the grants in a user's answer to the grants of a plugin. Unlike all other changes, an answer also applies
    /// to open turns, because the turns were paused until the user answered (P6).
    pub fn answer(&self, plugin: &str, answered: &AnsweredGrants) -> Result<Arc<Agent>, AgentError> {
        let Some(session) = &self.session else {
            return self.change(|agent| agent.with_answer(plugin, answered));
        };
        let AnsweredGrants { temporary, permanent } = answered;
        if *permanent != Grants::default() {
            let permanent = AnsweredGrants { permanent: permanent.clone(), ..AnsweredGrants::default() };
            self.change(|agent| agent.with_answer(plugin, &permanent))?;
        }
        if *temporary != Grants::default() {
            let shared = self.shared_snapshot();
            let mut sessions = lock(&self.shared.sessions);
            let mut plugins = sessions.get(session).map(|granted| granted.plugins.clone()).unwrap_or_default();
            let granted = plugins.remove(plugin).unwrap_or_default().and(temporary);
            plugins.insert(plugin.to_owned(), granted);
            let mut granted = SessionGrants { plugins, built: None };
            granted.apply(&shared)?;
            sessions.insert(Arc::clone(session), granted);
        }
        self.note_change();
        Ok(self.current())
    }

    /// Ends the grants that users gave only until they leave the session. A later question may offer these grants again,
    /// because nobody has revoked them.
    pub fn end_temporary_grants(&self) -> Result<Arc<Agent>, AgentError> {
        if let Some(session) = &self.session {
            lock(&self.shared.sessions).remove(session);
            self.note_change();
            return Ok(self.shared_snapshot());
        }
        let _changing = lock(&self.shared.changing);
        let next = Arc::new(self.shared_snapshot().without_temporary_grants()?);
        self.replace(next.clone());
        Ok(next)
    }

    /// Returns whether users gave temporary grants to the session to which this agent belongs.
    pub(crate) fn has_session_grants(&self) -> bool {
        self.session.as_ref().is_some_and(|session| lock(&self.shared.sessions).contains_key(session))
    }
}

impl LiveAgent {
    /// Reduces the grants of a plugin to the part that `reduced` returns, until the host process exits or a user grants
    /// more. The change also applies to open turns and to calls that are running (P10).
    pub fn revoke(&self, plugin: &str, reduced: &dyn Fn(&Grants) -> Grants) -> Result<Arc<Agent>, AgentError> {
        // The grants of sessions are reduced first, so that no session keeps them if the change fails.
        for granted in lock(&self.shared.sessions).values_mut() {
            if let Some(grants) = granted.plugins.get_mut(plugin) {
                let kept = reduced(grants);
                self.record_lost(plugin, &grants.revoked_by(&kept));
                (*grants, granted.built) = (kept, None);
            }
        }
        self.change(|agent| agent.with_reduced_grants(plugin, reduced))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CurrentGrants for LiveAgent {
    fn version(&self) -> u64 {
        self.shared.version.load(Ordering::SeqCst)
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
