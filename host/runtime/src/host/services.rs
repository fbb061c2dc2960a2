//! The services that the sessions of a process share, and the services that a session provides to its running calls.

use super::checkpoint::{Checkpoint, CheckpointObserver};
use super::first_use::FirstUses;
use super::key_values::StoredValues;
use super::plugin_model::{AgentModel, ModelLedger};
use super::trace;
use crate::agent::{Agent, AnsweredGrants, LiveAgent, MemoryUse};
use crate::media::{Downscaler, OutgoingMedia, StoredMedia};
use agent_core::message::CallId;
use agent_core::model::Downscaled;
use agent_core::plugin::Scope;
use agent_core::run::Run;
use agent_plugins::{Grants, HttpPort, MediaPort, ModelPort, PluginSetup, Ports, Sandbox, TreeGrant, trees_within};
use agent_store::{MemoryFilter, MemoryScope, Store};
use std::borrow::Cow;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Services that all sessions of a process share.
#[derive(Clone)]
pub struct Host {
    /// The store of all sessions.
    pub store: Arc<dyn Store>,
    /// The sandbox that runs plugins.
    pub sandbox: Sandbox,
    /// Scales pictures down for models.
    pub downscaler: Downscaler,
    /// Called at every checkpoint, in tests. `None`: there is no observer.
    pub checkpoint: Option<CheckpointObserver>,
    /// Receives the questions about missing grants at a plugin's first use (P6). `None`: nobody can answer.
    pub first_uses: Option<FirstUses>,
    /// Answers the HTTP requests of plugins instead of the network. `None`: requests go to the network.
    pub http: Option<Arc<dyn HttpPort>>,
    /// Cancelled when the process shuts down. Turns then stop as in a crash and can be continued later. They are not
    /// stored as cancelled ([`TurnResult::Interrupted`](crate::TurnResult::Interrupted)).
    pub leaving: CancellationToken,
}

/// The services of a session that its calls use.
#[derive(Clone)]
pub(crate) struct SessionServices {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) sandbox: Sandbox,
    /// The agent of the open turn. It stays the same until the turn ends.
    pub(crate) agent: Arc<Agent>,
    /// The current agent, which the next turn will use. The grants of the open turn are limited to its grants.
    pub(crate) live: LiveAgent,
    pub(crate) media: Arc<dyn MediaPort>,
    /// The ports for plugins.
    pub(crate) ports: Ports,
    /// The questions of plugins to the agent's model.
    pub(crate) ledger: Arc<ModelLedger>,
    pub(crate) downscaler: Downscaler,
    pub(crate) subject: String,
    /// Suffix of the ids of the session's calls.
    pub(crate) id_ending: String,
    /// Subject of the session that delegated the work (L16).
    pub(crate) delegated_by: Option<String>,
    pub(crate) checkpoint: Option<CheckpointObserver>,
    pub(crate) first_uses: Option<FirstUses>,
    /// Cancelled when the process shuts down.
    pub(crate) leaving: CancellationToken,
}

impl SessionServices {
    /// The services of a session with this state.
    pub(crate) fn new(host: &Host, live: LiveAgent, subject: String, run: &Run) -> Self {
        let agent = live.current();
        let media: Arc<dyn MediaPort> = Arc::new(StoredMedia(host.store.clone()));
        let ledger = Arc::new(ModelLedger::default());
        Self {
            store: host.store.clone(),
            sandbox: host.sandbox.clone(),
            media: media.clone(),
            ports: Ports {
                media: Some(media),
                key_value: Some(Arc::new(StoredValues(host.store.clone()))),
                model: Some(model_of(&agent, &ledger, &subject)),
                http: host.http.clone(),
                replay: None,
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
        }
    }

    /// The same services for another agent.
    pub(crate) fn with_agent(&self, agent: Arc<Agent>) -> Self {
        let model = Some(model_of(&agent, &self.ledger, &self.subject));
        let ports = Ports { model, ..self.ports.clone() };
        Self { agent, ports, ..self.clone() }
    }

    /// The scope of a plugin call in the open turn, with a new trace span.
    pub(crate) fn scope(&self, run: &Run) -> Scope {
        let trace = run.turn.as_ref().map_or_else(trace::root, |turn| trace::child(&turn.trace));
        Scope {
            agent: run.agent.clone(),
            session: run.session.clone(),
            delegated_by: run.delegated_by.clone(),
            user: self.agent.config().user.clone(),
            turn: run.turns,
            trace,
        }
    }

    /// Selects the memories that the session may recall, or `None` if it may recall nothing. Results of tools are
    /// recalled only by the agent whose grants they were made with. A delegated session recalls nothing, because its
    /// task contains everything it needs (L16). Memories of the session itself are left out, because they are in its
    /// history.
    pub(crate) fn recall_filter(&self) -> Option<MemoryFilter> {
        let config = self.agent.config();
        let user = config.user.clone().filter(|_| self.delegated_by.is_none())?;
        let scope = match config.memory {
            MemoryUse::User => MemoryScope::OwnAndOtherResults(config.name.clone()),
            MemoryUse::Agent => MemoryScope::OwnOnly(config.name.clone()),
            MemoryUse::Off => return None,
        };
        Some(MemoryFilter { user, scope, excluded_session: Some(self.subject.clone()) })
    }

    /// The call ids that `id` may refer to: `id` itself, or `id` with the session's suffix, if that was left out.
    pub(crate) fn call_ids(&self, id: &str) -> Vec<CallId> {
        vec![CallId(id.to_owned()), CallId(format!("{id}_{}", self.id_ending))]
    }

    /// The services that this session shares with the other sessions of the process.
    pub(crate) fn host(&self) -> Host {
        Host {
            store: self.store.clone(),
            sandbox: self.sandbox.clone(),
            downscaler: self.downscaler.clone(),
            checkpoint: self.checkpoint.clone(),
            first_uses: self.first_uses.clone(),
            http: self.ports.http.clone(),
            leaving: self.leaving.clone(),
        }
    }

    /// A plugin of the turn with its current grants: those that the turn began with, and those that a person has given
    /// since, as far as they have not been revoked (P6, P10).
    pub(crate) fn current_setup<'s>(&self, pinned: &'s PluginSetup) -> Cow<'s, PluginSetup> {
        let now = self.live.current();
        let name = pinned.plugin().name();
        let (granted, granted_now) = (self.agent.grants_of(name), now.grants_of(name));
        if Arc::ptr_eq(&now, &self.agent) || granted_now == granted {
            return Cow::Borrowed(pinned);
        }
        let nothing = Grants::default();
        let within_now = |setup: &PluginSetup| Cow::Owned(setup.within(granted_now.unwrap_or(&nothing)));
        match now.answered_grants(name) {
            None => within_now(pinned),
            Some(AnsweredGrants { for_this_run, for_good }) => {
                let granted = granted.cloned().unwrap_or_default().and(for_this_run).and(for_good);
                within_now(&pinned.with_grants(granted))
            }
        }
    }

    /// File trees that the host's own file tools may read: those that the turn began with, as far as they have not been
    /// revoked.
    pub(crate) fn current_host_trees(&self) -> Vec<TreeGrant> {
        trees_within(&self.agent.config().host_trees, &self.live.current().config().host_trees)
    }

    /// The source of a model request's media bytes.
    pub(crate) fn outgoing_media<'m>(&'m self, downscaled: &'m [Downscaled]) -> OutgoingMedia<'m> {
        OutgoingMedia { store: &*self.store, session: &self.subject, downscaler: &self.downscaler, downscaled }
    }

    pub(crate) fn reach_checkpoint(&self, checkpoint: Checkpoint<'_>) {
        if let Some(observer) = &self.checkpoint {
            observer(checkpoint);
        }
    }
}

/// The model port for the agent's plugins.
fn model_of(agent: &Agent, ledger: &Arc<ModelLedger>, session: &str) -> Arc<dyn ModelPort> {
    let (models, reply_tokens) = (agent.models().clone(), agent.config().reply_tokens);
    Arc::new(AgentModel { models, ledger: ledger.clone(), reply_tokens, session: session.to_owned() })
}
