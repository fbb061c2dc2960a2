//! Opens a session: acquires its lease and continues where another process stopped.

use super::work_clock::WorkClock;
use super::{LogWriter, ModelRetry, Session, SessionError};
use crate::agent::{LiveAgent, UserName, pinned};
use crate::events::Watchers;
use crate::history::LoadedHistory;
use crate::host::{Host, SessionServices};
use crate::outbox::{DeferredDelivery, deliver_session};
use crate::records::CommitNotes;
use agent_core::message::ID_SUFFIX_LENGTH;
use agent_core::prompt::system_sections;
use agent_core::run::{Input, Run, TurnError};
use agent_plugins::Generation;
use agent_store::{OpenMode, SessionMeta};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use uuid::Uuid;

/// Which session is opened, and whether the open turn of that session must be able to continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenSession {
    /// Create a new session, which belongs to the user in the agent's configuration.
    New,
    /// Create a new session, which belongs to this user.
    NewOf(UserName),
    /// Open the session with this subject, or create it. A new session belongs to the owner, or else to the user in the
    /// agent's configuration. An existing session keeps its owner.
    Named {
        /// The subject. It begins with the name of the agent and `/`.
        subject: String,
        /// The user to whom a new session belongs.
        owner: Option<UserName>,
    },
    /// Open the session with this subject.
    Existing(String),
    /// Open the session with this subject in order to make a decision about its open turn. The turn is not continued,
    /// so the session can be opened even if the turn's plugins cannot be loaded.
    ToDecide(String),
}

/// The purpose for which a session is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OpenPurpose {
    Continue,
    Decide,
}

impl Session {
    /// Acquires the lease of a session and opens the session. Work that was running when the session's previous host
    /// process ended unexpectedly is recovered (D3).
    pub async fn open(host: &Host, agent: impl Into<LiveAgent>, open: OpenSession) -> Result<Self, SessionError> {
        let agent = agent.into();
        let name = agent.current().config().name.clone();
        let mut user = agent.current().config().user.clone();
        let (subject, mode, purpose) = match open {
            OpenSession::New => (new_subject(&name), OpenMode::CreateNew, OpenPurpose::Continue),
            OpenSession::NewOf(owner) => {
                user = Some(owner.as_str().to_owned());
                (new_subject(&name), OpenMode::CreateNew, OpenPurpose::Continue)
            }
            OpenSession::Named { subject, owner } => {
                user = owner.map(|owner| owner.as_str().to_owned()).or(user);
                (subject, OpenMode::Either, OpenPurpose::Continue)
            }
            OpenSession::Existing(subject) => (subject, OpenMode::Existing, OpenPurpose::Continue),
            OpenSession::ToDecide(subject) => (subject, OpenMode::Existing, OpenPurpose::Decide),
        };
        Self::open_for(host, agent, (Run::new(subject, name), mode, user), (Watchers::new(), purpose)).await
    }

    /// Opens a session. If nothing is stored for the session yet, it starts in the state `new_run`.
    pub(crate) async fn open_as(
        host: &Host,
        live: LiveAgent,
        (new_run, mode): (Run, OpenMode),
        watchers: Watchers,
    ) -> Result<Self, SessionError> {
        let user = live.current().config().user.clone();
        Self::open_for(host, live, (new_run, mode, user), (watchers, OpenPurpose::Continue)).await
    }

    async fn open_for(
        host: &Host,
        live: LiveAgent,
        (new_run, mode, user): (Run, OpenMode, Option<String>),
        (watchers, purpose): (Watchers, OpenPurpose),
    ) -> Result<Self, SessionError> {
        let subject = new_run.session.clone();
        let delegated_by = new_run.delegated_by.clone();
        let meta = SessionMeta { agent: new_run.agent.clone(), user, delegated_by };
        let opened = host.store.open(&subject, mode, meta).await?;
        let run = match opened.revision {
            0 => Ok(new_run.with_id_ending(new_id_ending())),
            _ => Run::restore(opened.snapshot.as_deref()),
        };
        let run = match run {
            Ok(run) => run,
            Err(error) => {
                host.store.release(opened.lease).await?;
                return Err(SessionError::Restore { session: subject, error });
            }
        };
        let services = Arc::new(SessionServices::new(host, live, subject.clone(), &run));
        let watchers = Arc::new(watchers);
        let inbox = host.sessions.register(watchers.handle(), opened.lease.clone(), services.leaving.clone());
        let mut session = Self {
            history: LoadedHistory::new(services.store.clone(), subject),
            services,
            run,
            watchers,
            last_event: None,
            model_retry: ModelRetry::default(),
            reservation: None,
            work_clock: WorkClock::default(),
            was_interrupted: false,
            deferred: DeferredDelivery::Nothing,
            denied: Vec::new(),
            held_requests: HashMap::new(),
            unverified: HashSet::new(),
            held_servers: None,
            opened_at: opened.last_event,
            incoming_trace: None,
            ended_at_opening: false,
            log: LogWriter::new(&opened),
            stored_texts: HashSet::new(),
            inbox,
            owner: opened.meta.user.clone(),
            client_tools: Vec::new(),
            start_reply: None,
            cancel_replies: Vec::new(),
        };
        match session.resume(purpose).await {
            Ok(()) => {
                // Deliver the outbox items that the previous process committed but did not deliver.
                if session.log.revision() > 0 {
                    deliver_session(&session.services).await;
                }
                Ok(session)
            }
            Err(error) => {
                session.close().await?;
                Err(error)
            }
        }
    }

    /// Continues the open turn where another process stopped: loads the plugins of the turn and decides what happens to
    /// the calls that were running. The agent settings in the stored turn can only reduce what the current
    /// configuration allows (P14).
    async fn resume(&mut self, purpose: OpenPurpose) -> Result<(), SessionError> {
        if !self.run.is_open() {
            return Ok(());
        }
        let resumed = self.resume_turn(purpose).await;
        self.ended_at_opening = !self.run.is_open();
        resumed
    }

    async fn resume_turn(&mut self, purpose: OpenPurpose) -> Result<(), SessionError> {
        if let Some(user) = self.run.turn.as_ref().and_then(|turn| turn.config.user.clone()) {
            self.use_agent(self.services.agent.for_user(Some(&user))?);
        }
        if let Some(turn) = &self.run.turn {
            let agent = self.services.agent.for_input(&turn.input)?;
            self.use_agent(agent);
        }
        if purpose == OpenPurpose::Continue {
            self.run.narrow(&self.services.agent.bounds());
        }
        self.recover().await?;
        self.expire_overdue_calls().await?;
        self.unverified = self.run.claimed_calls().map(|(call, ..)| call.clone()).collect();
        if !self.run.is_open() {
            return Ok(());
        }
        self.resume_agent(purpose).await?;
        if purpose == OpenPurpose::Continue {
            self.complete_imported_turn().await?;
        }
        Ok(())
    }

    /// Restores the agent that the open turn started with. If the agent cannot be restored, ends the turn.
    async fn resume_agent(&mut self, purpose: OpenPurpose) -> Result<(), SessionError> {
        let Some(turn) = &self.run.turn else { return Ok(()) };
        let plugins: Vec<_> = turn.plugins.iter().map(|pin| (pin.name.clone(), pin.digest.clone())).collect();
        let (current, pinned) = (self.services.agent.clone(), turn.pinned.clone());
        let is_current = plugins == current.generation().pinned();
        if is_current && pinned.as_ref().is_none_or(|pinned| *pinned == pinned::pins_of(&current)) {
            return Ok(());
        }
        let unknown = pinned::unknown_components(&*self.services.store, &current, (turn, &plugins)).await?;
        if !unknown.is_empty() && purpose == OpenPurpose::Continue {
            let versions: Vec<_> = unknown.iter().map(|(name, digest)| format!("{name}@{}", digest.short())).collect();
            let versions = versions.join(", ");
            // The agent's file may have another path on the machine where the turn began, so the turn stays open.
            if pinned.is_some() && self.services.store.is_shared_by_machines() {
                return Err(SessionError::UnknownPlugins { versions });
            }
            let reason = format!(
                "the stored turn uses {versions}, but no turn of this agent has started with these plugin versions on this \
                 host, so they are not loaded; start another turn",
            );
            return self.apply(Input::Failed(TurnError::PluginChanged { reason }), CommitNotes::default()).await;
        }
        let generation = match (is_current, unknown.is_empty()) {
            (_, false) => return Ok(()),
            (true, true) => Ok(current.generation().clone()),
            (false, true) => {
                let sandbox =
                    current.config().vetting.clone().map(|vetting| self.services.sandbox.verified_by(vetting));
                let sandbox = sandbox.as_ref().unwrap_or(&self.services.sandbox);
                match current.config().components.clone().filter(|_| purpose == OpenPurpose::Continue) {
                    Some(source) => Generation::from_source(sandbox, &plugins, source).await,
                    None => Generation::from_digests(sandbox, &plugins).await,
                }
            }
        };
        let agent = match generation {
            Ok(generation) => {
                pinned::resumed_agent(&current, generation, pinned.as_ref()).map_err(|error| error.to_string())
            }
            // Neither a decision about the turn nor its cancellation needs the turn's plugins.
            Err(error) if purpose == OpenPurpose::Decide => {
                tracing::info!(session = %self.run.session, %error, "the open turn's plugins are not loaded");
                return Ok(());
            }
            // Another machine may have the plugins, or a host that can load them, so the turn stays open.
            Err(error) if self.services.store.is_shared_by_machines() => return Err(error.into()),
            Err(error) if error.is_permanent() => Err(error.to_string()),
            // The plugins may become available later, so the turn stays open.
            Err(error) => return Err(error.into()),
        };
        match agent {
            Ok(agent) => self.use_agent(Arc::new(agent)),
            Err(_) if purpose == OpenPurpose::Decide => {}
            Err(reason) => {
                self.apply(Input::Failed(TurnError::PluginChanged { reason }), CommitNotes::default()).await?;
            }
        }
        Ok(())
    }

    /// Computes the data that an imported turn lacks: the turn's system sections, and the identities of the tools that
    /// the turn's approvals refer to.
    async fn complete_imported_turn(&mut self) -> Result<(), SessionError> {
        if !self.run.is_unpinned() {
            return Ok(());
        }
        let agent = self.services.agent.clone();
        if let Some(turn) = self.run.turn.as_mut().filter(|turn| turn.sections.is_empty() && turn.begun_until > 0) {
            let config = agent.config();
            turn.sections = system_sections(&config.prompt, config.bounds.finish, Vec::new());
        }
        let without_identity = self.run.approvals_without_identity();
        for record in self.history.load_calls(&without_identity).await? {
            if let Some(tool) = agent.registry().get(&record.name) {
                let identity = self.approvals().approval_scope(tool).identity;
                self.run.set_approval_identity(&record.id, identity);
            }
        }
        Ok(())
    }

    /// Recovers the calls of the open turn that were running when an earlier process stopped (D3).
    pub(crate) async fn recover(&mut self) -> Result<(), SessionError> {
        if self.run.is_open() {
            let mut after = self.run.clone();
            after.apply(Input::Recover)?;
            if after != self.run {
                self.apply(Input::Recover, CommitNotes::default()).await?;
            }
        }
        Ok(())
    }
}

/// Creates a subject that no other session has. If the subjects of an agent are sorted, they are in the order in which
/// they were created, as long as the system clock is correct.
pub(crate) fn new_subject(agent: &str) -> String {
    format!("{agent}/{}", uuid_at(SystemTime::now()))
}

/// Creates a version 7 UUID. A time before 1970 is replaced by 1970, because `Uuid::now_v7` would panic.
fn uuid_at(time: SystemTime) -> Uuid {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, since.as_secs(), since.subsec_nanos()))
}

/// Creates a random suffix for the ids of a session's calls, so that the ids differ from the call ids of
/// other sessions.
pub(crate) fn new_id_ending() -> String {
    let mut ending = Uuid::new_v4().simple().to_string();
    ending.truncate(ID_SUFFIX_LENGTH);
    ending
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A wrong system clock does not cause a panic, and the generated ids still differ.
    #[test]
    fn uuid_at_returns_distinct_ids_for_any_clock() {
        for time in [UNIX_EPOCH - Duration::from_secs(1 << 40), UNIX_EPOCH, UNIX_EPOCH + Duration::from_secs(1 << 40)] {
            assert_ne!(uuid_at(time), uuid_at(time), "{time:?}");
        }
    }
}
