//! Opening a session: under its lease, and where another process stopped.

use super::shared::{Host, Shared, model_of};
use super::{Notes, Session, SessionError};
use crate::events::Watchers;
use crate::host_model::ModelLedger;
use crate::key_values::StoredValues;
use crate::live::LiveAgent;
use crate::media::StoredMedia;
use crate::outbox::Owing;
use crate::pinned;
use agent_core::message::ID_ENDING;
use agent_core::prompt::system_sections;
use agent_core::run::{Input, Run, TurnError};
use agent_plugins::{Generation, MediaPort, Ports};
use agent_store::{OpenMode, SessionMeta};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use uuid::Uuid;

/// Which session to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenSession {
    /// A new one.
    New,
    /// That of this subject.
    Existing(String),
    /// The same, to decide something about its open turn, which cannot go on here. That its plugins cannot be loaded is
    /// no hindrance.
    ToDecide(String),
}

/// What a session is opened for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    GoOn,
    Decide,
}

impl Session {
    /// Opens a session under its lease. What was running when its last host died is taken up again (D3).
    pub async fn open(host: &Host, agent: impl Into<LiveAgent>, which: OpenSession) -> Result<Self, SessionError> {
        let agent = agent.into();
        let name = agent.current().config().name.clone();
        let (subject, mode, purpose) = match which {
            OpenSession::New => (new_subject(&name), OpenMode::CreateNew, Purpose::GoOn),
            OpenSession::Existing(subject) => (subject, OpenMode::Existing, Purpose::GoOn),
            OpenSession::ToDecide(subject) => (subject, OpenMode::Existing, Purpose::Decide),
        };
        Self::open_for(host, agent, (Run::new(subject, name), mode), (Watchers::new(), purpose)).await
    }

    /// The same for a session that is as `new` where nothing of it is stored yet.
    pub(crate) async fn open_as(
        host: &Host,
        live: LiveAgent,
        (new, mode): (Run, OpenMode),
        watchers: Watchers,
    ) -> Result<Self, SessionError> {
        Self::open_for(host, live, (new, mode), (watchers, Purpose::GoOn)).await
    }

    async fn open_for(
        host: &Host,
        live: LiveAgent,
        (new, mode): (Run, OpenMode),
        (watchers, purpose): (Watchers, Purpose),
    ) -> Result<Self, SessionError> {
        let agent = live.current();
        let subject = new.session.clone();
        let (user, delegated_by) = (agent.config().user.clone(), new.delegated_by.clone());
        let meta = SessionMeta { agent: new.agent.clone(), user, delegated_by };
        let opened = host.store.open(&subject, mode, meta).await?;
        let run = match opened.revision {
            0 => Ok(new.with_id_ending(new_id_ending())),
            _ => Run::restore(opened.snapshot.as_deref()),
        };
        let run = match run {
            Ok(run) => run,
            Err(error) => {
                host.store.release(opened.lease).await?;
                return Err(SessionError::Restore { session: subject, error });
            }
        };
        let media: Arc<dyn MediaPort> = Arc::new(StoredMedia(host.store.clone()));
        let ledger = Arc::new(ModelLedger::default());
        let shared = Shared {
            store: host.store.clone(),
            sandbox: host.sandbox.clone(),
            media: media.clone(),
            ports: Ports {
                media: Some(media),
                key_value: Some(Arc::new(StoredValues(host.store.clone()))),
                model: Some(model_of(&agent, &ledger, &subject)),
                http: host.http.clone(),
                then: None,
                grants: Some(Arc::new(live.clone())),
                stopped: Some(Arc::default()),
            },
            live,
            agent,
            ledger,
            downscaler: host.downscaler.clone(),
            subject,
            id_ending: run.id_ending.clone(),
            delegated_by: run.delegated_by.clone(),
            checkpoint: host.checkpoint.clone(),
            first_uses: host.first_uses.clone(),
            leaving: host.leaving.clone(),
        };
        let mut session = Self {
            shared: Arc::new(shared),
            run,
            watchers: Arc::new(watchers),
            last_event: None,
            asking_since: None,
            retry_at: None,
            was_left: false,
            ended_at_opening: false,
            incoming_trace: None,
            owing: Owing::Nothing,
            denied: Vec::new(),
            opened_at: opened.last_event,
            held_requests: HashMap::new(),
            held: None,
            lease: opened.lease,
            revision: opened.revision,
            view_is_stored: false,
            messages: HashMap::new(),
            calls: HashMap::new(),
            stored_texts: HashSet::new(),
            unverified: HashSet::new(),
        };
        match session.take_up(purpose).await {
            Ok(()) => {
                // What the process before this one could not deliver any more.
                if session.revision > 0 {
                    session.deliver().await;
                }
                Ok(session)
            }
            Err(error) => {
                session.close().await?;
                Err(error)
            }
        }
    }

    /// Goes on where another process stopped: with the plugins of the open turn, and with what was running decided. What
    /// the stored turn says of its agent only narrows what the configuration says (P14).
    async fn take_up(&mut self, purpose: Purpose) -> Result<(), SessionError> {
        if !self.run.is_open() {
            return Ok(());
        }
        let taken_up = self.take_up_turn(purpose).await;
        self.ended_at_opening = !self.run.is_open();
        taken_up
    }

    async fn take_up_turn(&mut self, purpose: Purpose) -> Result<(), SessionError> {
        if let Some(user) = self.run.turn.as_ref().and_then(|turn| turn.config.user.clone()) {
            self.use_agent(self.shared.agent.for_user(Some(&user))?);
        }
        if purpose == Purpose::GoOn {
            self.run.narrow(&self.shared.agent.bounds());
        }
        self.recover().await?;
        self.expire_due().await?;
        self.unverified = self.run.claimed_calls().map(|(call, ..)| call.clone()).collect();
        if !self.run.is_open() {
            return Ok(());
        }
        self.take_up_agent(purpose).await?;
        if purpose == Purpose::GoOn {
            self.take_up_imported().await?;
        }
        Ok(())
    }

    /// Takes the agent as the open turn has it, or ends the turn.
    async fn take_up_agent(&mut self, purpose: Purpose) -> Result<(), SessionError> {
        let Some(turn) = &self.run.turn else { return Ok(()) };
        let plugins: Vec<_> = turn.plugins.iter().map(|pin| (pin.name.clone(), pin.digest.clone())).collect();
        let (current, pinned) = (self.shared.agent.clone(), turn.pinned.clone());
        let is_current = plugins == current.generation().pinned();
        if is_current && pinned.as_ref().is_none_or(|pinned| *pinned == pinned::pins_of(&current)) {
            return Ok(());
        }
        let unknown = pinned::unknown_components(&*self.shared.store, &current, (turn, &plugins)).await?;
        if !unknown.is_empty() && purpose == Purpose::GoOn {
            let names: Vec<_> = unknown.iter().map(|(name, digest)| format!("{name}@{}", digest.short())).collect();
            let reason = format!(
                "the stored turn names {}, with which no turn of this agent has begun on this host, so it is not loaded; \
                 begin another turn",
                names.join(", ")
            );
            return self.apply(Input::Failed(TurnError::PluginChanged { reason }), Notes::default()).await;
        }
        let generation = match (is_current, unknown.is_empty()) {
            (_, false) => return Ok(()),
            (true, true) => Ok(current.generation().clone()),
            (false, true) => {
                let vetted = current.config().vetting.clone().map(|vetting| self.shared.sandbox.vetted_by(vetting));
                Generation::from_digests(vetted.as_ref().unwrap_or(&self.shared.sandbox), &plugins).await
            }
        };
        let agent = match generation {
            Ok(generation) => pinned::resumed(&current, generation, pinned.as_ref()).map_err(|error| error.to_string()),
            // What is decided about the turn needs none of them, least of all that it is cancelled.
            Err(error) if purpose == Purpose::Decide => {
                tracing::info!(session = %self.run.session, %error, "the open turn's plugins are not loaded");
                return Ok(());
            }
            Err(error) if error.is_lasting() => Err(error.to_string()),
            // It may be there the next time: the turn stays open.
            Err(error) => return Err(error.into()),
        };
        match agent {
            Ok(agent) => self.use_agent(Arc::new(agent)),
            Err(_) if purpose == Purpose::Decide => {}
            Err(reason) => {
                self.apply(Input::Failed(TurnError::PluginChanged { reason }), Notes::default()).await?;
            }
        }
        Ok(())
    }

    /// Derives again what an imported turn did not bring along: its system sections, and what approvals are about.
    async fn take_up_imported(&mut self) -> Result<(), SessionError> {
        if !self.run.is_unpinned() {
            return Ok(());
        }
        let agent = self.shared.agent.clone();
        if let Some(turn) = self.run.turn.as_mut().filter(|turn| turn.sections.is_empty() && turn.begun_until > 0) {
            let config = agent.config();
            turn.sections = system_sections(&config.prompt, config.bounds.finish, Vec::new());
        }
        let asking = self.run.asked_about_nothing();
        for record in self.load_calls(&asking).await? {
            if let Some(tool) = agent.registry().get(&record.name) {
                let identity = self.approval_scope(tool).identity;
                self.run.ask_about(&record.id, identity);
            }
        }
        Ok(())
    }

    /// Decides about calls that nothing runs any more (D3).
    pub(super) async fn recover(&mut self) -> Result<(), SessionError> {
        if self.run.is_open() {
            let mut after = self.run.clone();
            after.apply(Input::Recover)?;
            if after != self.run {
                self.apply(Input::Recover, Notes::default()).await?;
            }
        }
        Ok(())
    }
}

/// A subject that no session has. It sorts by time, as far as the clock is right.
pub(crate) fn new_subject(agent: &str) -> String {
    format!("{agent}/{}", uuid_at(SystemTime::now()))
}

/// Of a clock that is set before 1970 only the random part tells ids apart: `Uuid::now_v7` would panic.
fn uuid_at(time: SystemTime) -> Uuid {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, since.as_secs(), since.subsec_nanos()))
}

/// What the ids of a session's calls end with: nobody else has it.
pub(crate) fn new_id_ending() -> String {
    let mut ending = Uuid::new_v4().simple().to_string();
    ending.truncate(ID_ENDING);
    ending
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A clock that is set wrong is no reason to panic, and ids still differ.
    #[test]
    fn ids_are_made_with_any_clock() {
        for time in [UNIX_EPOCH - Duration::from_secs(1 << 40), UNIX_EPOCH, UNIX_EPOCH + Duration::from_secs(1 << 40)] {
            assert_ne!(uuid_at(time), uuid_at(time), "{time:?}");
        }
    }
}
