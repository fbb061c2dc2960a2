//! The services that all sessions of a process share, and the services that one session provides to its plugin
//! and model calls.

use super::abandoned_calls::AbandonedCalls;
use super::budget::{BudgetGate, CallsInFlight};
use super::checkpoint::{Checkpoint, CheckpointObserver};
use super::file_changes::FileChanges;
use super::first_use::FirstUses;
use super::key_values::StoredValues;
use super::observer::{CommittedEvents, Observation, Observer};
use super::plugin_model::{AgentModel, ModelLedger};
use crate::agent::{Agent, AnsweredGrants, LiveAgent, MemoryUse};
use crate::fleet::Fleet;
use crate::media::{AttachError, Downscaler, OutgoingMedia, StoredMedia, describe};
use crate::news::SessionNews;
use crate::open_sessions::OpenSessions;
use agent_core::event::Event;
use agent_core::message::{CallId, Media};
use agent_core::model::Downscaled;
use agent_core::plugin::{Scope, TraceContext};
use agent_core::run::Run;
use agent_core::trace::{SpanKey, TurnName};
use agent_plugins::{
    Grants, HttpPort, MediaPort, ModelPort, NewMediaItem, PluginSetup, Ports, Sandbox, TreeGrant, intersect_trees,
};
use agent_store::{Blobs, MemoryFilter, MemoryScope, Store};
use std::borrow::Cow;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The project of a filter that selects only memories without a project. No project folder has an empty path.
const NO_PROJECT: &str = "";

/// Services that all sessions of a process share.
#[derive(Clone)]
pub struct Host {
    /// The store in which all sessions are kept.
    pub store: Arc<dyn Store>,
    /// The sandbox that runs plugins.
    pub sandbox: Sandbox,
    /// Scales down pictures that are too large for a model.
    pub downscaler: Downscaler,
    /// Function that is called at every checkpoint. Only tests set this field.
    pub checkpoint: Option<CheckpointObserver>,
    /// Function that is called when something has happened, for example to export traces and to count metrics (O1, O2).
    pub observer: Option<Observer>,
    /// Channel for the questions that ask the user, at a plugin's first use, to give missing grants (P6). `None` if
    /// nobody can answer questions.
    pub first_uses: Option<FirstUses>,
    /// Collects the changes that calls make to files, for a user interface that shows them. `None` if nobody wants to see
    /// the changes; the files are then not read.
    pub file_changes: Option<FileChanges>,
    /// Answers the HTTP requests of plugins in place of the network. If `None`, the requests are sent over the network.
    pub http: Option<Arc<dyn HttpPort>>,
    /// Token that is cancelled when the process shuts down. Open turns then stop in the same way as if the process had
    /// crashed, and can be continued later. Open turns are not stored as cancelled. Instead, each open
    /// turn has the result [`TurnResult::Interrupted`](crate::TurnResult::Interrupted).
    pub leaving: CancellationToken,
    /// The sessions of this process that are open or watched.
    pub sessions: OpenSessions,
    /// Notified when a session has committed events that must be sent to a server.
    pub outbox_changed: Arc<Notify>,
    /// What other processes that share the store are told about the sessions of this process (F1).
    pub news: SessionNews,
    /// The connection to the other processes of a fleet that uses NATS. `None` without NATS.
    pub fleet: Option<Fleet>,
    /// The model calls that are running, which count towards budgets until their usage is stored (O4).
    pub calls_in_flight: CallsInFlight,
}

impl Host {
    /// Creates the services of a host that asks no questions before a plugin's first use, and whose plugins use the
    /// network.
    pub fn new(store: Arc<dyn Store>, sandbox: Sandbox) -> Self {
        Self {
            store,
            sandbox,
            downscaler: Downscaler::default(),
            checkpoint: None,
            observer: None,
            first_uses: None,
            file_changes: None,
            http: None,
            leaving: CancellationToken::new(),
            sessions: OpenSessions::default(),
            outbox_changed: Arc::default(),
            news: SessionNews::default(),
            fleet: None,
            calls_in_flight: CallsInFlight::default(),
        }
    }
}

/// The services that a session provides to its plugin and model calls.
#[derive(Clone)]
pub(crate) struct SessionServices {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) sandbox: Sandbox,
    /// The agent of the open turn, which stays the same until the turn ends.
    pub(crate) agent: Arc<Agent>,
    /// The current agent, which the next turn will use. A grant that was revoked from this agent is not available in
    /// the open turn either.
    pub(crate) live: LiveAgent,
    pub(crate) media: Arc<dyn MediaPort>,
    /// The host functions that plugins may call, for example access to media or key-value data.
    pub(crate) ports: Ports,
    /// The token usage and the uncommitted questions of plugins that have asked the agent's model.
    pub(crate) ledger: Arc<ModelLedger>,
    /// The usage of model calls of the session's turns that ended without a reply.
    pub(crate) abandoned: AbandonedCalls,
    pub(crate) downscaler: Downscaler,
    pub(crate) subject: String,
    /// Suffix of the ids of all calls of the session.
    pub(crate) id_ending: String,
    /// Id (subject) of the session that delegated its task to this session (L16). `None` if the session does not work
    /// on a delegated task.
    pub(crate) delegated_by: Option<String>,
    pub(crate) checkpoint: Option<CheckpointObserver>,
    pub(crate) observer: Option<Observer>,
    pub(crate) first_uses: Option<FirstUses>,
    pub(crate) file_changes: Option<FileChanges>,
    /// Token that is cancelled when the process shuts down, or when another process has taken the session over.
    pub(crate) leaving: CancellationToken,
    /// The sessions of this process that are open or watched.
    pub(crate) sessions: OpenSessions,
    /// Notified when the session has committed events that must be sent to a server.
    pub(crate) outbox_changed: Arc<Notify>,
    /// What other processes that share the store are told about the session.
    pub(crate) news: SessionNews,
    /// The connection to the other processes of a fleet that uses NATS.
    pub(crate) fleet: Option<Fleet>,
    /// Decides whether budgets allow model calls (O4).
    pub(crate) budget_gate: BudgetGate,
}

/// Returns the time of the store's clock in milliseconds since the start of 1970 (UTC).
pub(crate) fn now_ms(store: &dyn Store) -> u64 {
    u64::try_from(store.now() / 1_000).unwrap_or_default()
}

impl SessionServices {
    /// Creates the services of a session. `run` is the current state of the session.
    pub(crate) fn new(host: &Host, live: LiveAgent, subject: String, run: &Run) -> Self {
        let agent = live.current();
        let media: Arc<dyn MediaPort> = Arc::new(StoredMedia(host.store.clone()));
        let ledger = Arc::new(ModelLedger::default());
        let budget_gate = BudgetGate { store: host.store.clone(), calls: host.calls_in_flight.clone() };
        Self {
            store: host.store.clone(),
            sandbox: host.sandbox.clone(),
            media: media.clone(),
            ports: Ports {
                media: Some(media),
                key_value: Some(Arc::new(StoredValues(host.store.clone()))),
                model: Some(model_port(&agent, (&ledger, &budget_gate), &subject)),
                http: host.http.clone(),
                replay: None,
                grants: Some(Arc::new(live.clone())),
                stopped: Some(Arc::default()),
            },
            live,
            agent,
            ledger,
            abandoned: AbandonedCalls::default(),
            downscaler: host.downscaler.clone(),
            subject,
            id_ending: run.id_ending.clone(),
            delegated_by: run.delegated_by.clone(),
            checkpoint: host.checkpoint.clone(),
            observer: host.observer.clone(),
            first_uses: host.first_uses.clone(),
            file_changes: host.file_changes.clone(),
            leaving: host.leaving.child_token(),
            sessions: host.sessions.clone(),
            outbox_changed: host.outbox_changed.clone(),
            news: host.news.clone(),
            fleet: host.fleet.clone(),
            budget_gate,
        }
    }

    /// Returns the time of the store's clock in milliseconds since the start of 1970 (UTC).
    pub(crate) fn now_ms(&self) -> u64 {
        now_ms(&*self.store)
    }

    /// Returns a copy of these services that uses `agent` for the open turn.
    pub(crate) fn with_agent(&self, agent: Arc<Agent>) -> Self {
        let model = Some(model_port(&agent, (&self.ledger, &self.budget_gate), &self.subject));
        let ports = Ports { model, ..self.ports.clone() };
        Self { agent, ports, ..self.clone() }
    }

    /// Returns the scope that a plugin call in the open turn receives: the agent, session, user and turn, and the trace
    /// context of the part `part` of the turn, or of the whole turn.
    pub(crate) fn scope(&self, run: &Run, part: Option<SpanKey<'_>>) -> Scope {
        let Run { session, id_ending, turns, .. } = run;
        let of_turn = || TraceContext::of_turn(TurnName { session, id_ending, turn: *turns }, None);
        let turn = run.turn.as_ref().map_or_else(of_turn, |turn| turn.trace.clone());
        let trace = part.map_or_else(|| turn.clone(), |part| turn.part(part));
        Scope {
            agent: run.agent.clone(),
            session: run.session.clone(),
            delegated_by: run.delegated_by.clone(),
            user: self.agent.config().user.clone(),
            turn: run.turns,
            trace,
        }
    }

    /// Reports a commit of the session.
    pub(crate) fn report_commit(&self, run: &Run, events: &[Event]) {
        if let Some(observer) = &self.observer {
            let (agent, session) = (self.agent.config().name.as_str(), self.subject.as_str());
            let trace = run.turn.as_ref().map(|turn| &turn.trace);
            observer.observe(&Observation::Committed(CommittedEvents {
                agent,
                session,
                trace,
                events,
                tools: &self.agent,
            }));
        }
    }

    /// Returns the filter for the memories that the session may recall, or `None` if it may recall no memories. A
    /// tool result is recalled only by the agent that called the tool, because the result depends on the agent's
    /// grants. By default, memories of other projects are not recalled. A delegated session recalls no memories, because the
    /// task contains everything that the session needs
    /// (L16). Memories that were stored by this session are excluded, because the session's history already
    /// contains their content.
    pub(crate) fn recall_filter(&self) -> Option<MemoryFilter> {
        let config = self.agent.config();
        let user = config.user.clone().filter(|_| self.delegated_by.is_none())?;
        let (scope, project) = match config.memory {
            MemoryUse::Project => match &config.project {
                Some(project) => (MemoryScope::OwnAndOtherResults(config.name.clone()), Some(project.clone())),
                // A server works for people who may use one agent only. They must not learn what the user has told other agents,
                // or what the user has said in projects.
                None => (MemoryScope::OwnOnly(config.name.clone()), Some(NO_PROJECT.to_owned())),
            },
            MemoryUse::User => (MemoryScope::OwnAndOtherResults(config.name.clone()), None),
            MemoryUse::Agent => (MemoryScope::OwnOnly(config.name.clone()), None),
            MemoryUse::Off => return None,
        };
        Some(MemoryFilter { user, scope, project, excluded_session: Some(self.subject.clone()) })
    }

    /// Returns the call ids that a user or service may mean by `id`. The first id is `id` itself. The second
    /// id is `id` with the session's suffix, because the user or service may have omitted the suffix.
    pub(crate) fn call_ids(&self, id: &str) -> Vec<CallId> {
        vec![CallId(id.to_owned()), CallId(format!("{id}_{}", self.id_ending))]
    }

    /// Returns the services that this session shares with the other sessions of the process.
    pub(crate) fn host(&self) -> Host {
        Host {
            store: self.store.clone(),
            sandbox: self.sandbox.clone(),
            downscaler: self.downscaler.clone(),
            checkpoint: self.checkpoint.clone(),
            observer: self.observer.clone(),
            first_uses: self.first_uses.clone(),
            file_changes: self.file_changes.clone(),
            http: self.ports.http.clone(),
            leaving: self.leaving.clone(),
            sessions: self.sessions.clone(),
            outbox_changed: self.outbox_changed.clone(),
            news: self.news.clone(),
            fleet: self.fleet.clone(),
            calls_in_flight: self.budget_gate.calls.clone(),
        }
    }

    /// Returns a plugin of the open turn with the grants that are currently in force for the turn (P6, P10): the grants
    /// with which the turn began, plus grants that users have given since then, minus grants that have been revoked.
    pub(crate) fn current_setup<'s>(&self, pinned: &'s PluginSetup) -> Cow<'s, PluginSetup> {
        let current = self.live.current();
        let name = pinned.plugin().name();
        let (granted, current_grants) = (self.agent.grants_of(name), current.grants_of(name));
        if Arc::ptr_eq(&current, &self.agent) || current_grants == granted {
            return Cow::Borrowed(pinned);
        }
        let nothing = Grants::default();
        let narrowed = |setup: &PluginSetup| Cow::Owned(setup.within(current_grants.unwrap_or(&nothing)));
        match current.answered_grants(name) {
            None => narrowed(pinned),
            Some(AnsweredGrants { temporary, permanent }) => {
                let granted = granted.cloned().unwrap_or_default().and(temporary).and(permanent);
                narrowed(&pinned.with_grants(granted))
            }
        }
    }

    /// Returns the directories that the host's own file tools may read. These are the directories that were granted
    /// when the turn began, except those whose grant has been revoked since then.
    pub(crate) fn current_host_trees(&self) -> Vec<TreeGrant> {
        intersect_trees(&self.agent.config().host_trees, &self.live.current().config().host_trees)
    }

    /// Returns the object from which a model provider reads the bytes of the media in a request.
    pub(crate) fn outgoing_media<'m>(&'m self, downscaled: &'m [Downscaled]) -> OutgoingMedia<'m> {
        OutgoingMedia { store: &*self.store, session: &self.subject, downscaler: &self.downscaler, downscaled }
    }

    /// Stores a media item in the session. If several items have the same bytes, the bytes are stored once.
    pub(crate) async fn attach(&self, medium: NewMediaItem) -> Result<Media, AttachError> {
        let NewMediaItem { bytes, mime_type, name } = medium;
        let about = describe(&bytes, &mime_type, name).map_err(AttachError::Refused)?;
        Ok(Blobs::put(&*self.store, &self.subject, bytes, about).await?)
    }

    pub(crate) fn reach_checkpoint(&self, checkpoint: Checkpoint<'_>) {
        if let Some(observer) = &self.checkpoint {
            observer(checkpoint);
        }
    }
}

/// Creates the model port for the agent's plugins.
fn model_port(
    agent: &Agent,
    (ledger, budget_gate): (&Arc<ModelLedger>, &BudgetGate),
    session: &str,
) -> Arc<dyn ModelPort> {
    let (models, reply_tokens) = (agent.models().clone(), agent.config().reply_tokens);
    let (ledger, budget_gate) = (ledger.clone(), budget_gate.clone());
    Arc::new(AgentModel { models, ledger, budget_gate, reply_tokens, session: session.to_owned() })
}
