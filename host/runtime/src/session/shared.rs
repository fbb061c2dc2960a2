//! What the calls of a session share with it, and sessions with their process.

use super::Session;
use crate::agent::{Agent, Answered};
use crate::checkpoint::{Checkpoint, CheckpointObserver};
use crate::first_use::FirstUses;
use crate::host_model::{AgentModel, ModelLedger};
use crate::live::LiveAgent;
use crate::media::Downscaler;
use agent_core::message::CallId;
use agent_plugins::{Grants, HttpPort, MediaPort, ModelPort, PluginSetup, Ports, Sandbox, TreeGrant, trees_within};
use agent_store::Store;
use std::borrow::Cow;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// What all sessions of a process share.
#[derive(Clone)]
pub struct Host {
    /// What outlives a turn.
    pub store: Arc<dyn Store>,
    /// Where plugins run.
    pub sandbox: Sandbox,
    /// Makes pictures smaller for models.
    pub downscaler: Downscaler,
    /// Told of every named point, in tests.
    pub checkpoint: Option<CheckpointObserver>,
    /// Who is asked for what plugins lack at their first use (P6). None: nobody is there.
    pub first_uses: Option<FirstUses>,
    /// Answers the requests of plugins in the place of the network. None: the network does.
    pub http: Option<Arc<dyn HttpPort>>,
    /// Cancelled when the process is to end. Turns then stop as they would in a crash, and can go on later: nothing that is
    /// stored says that anybody cancelled them ([`TurnResult::Interrupted`](super::TurnResult::Interrupted)).
    pub leaving: CancellationToken,
}

/// What a running call needs of its session.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) sandbox: Sandbox,
    /// The open turn's, whole, until the turn ends.
    pub(crate) agent: Arc<Agent>,
    /// What the agent is now: the next turn's, and the grants of this one are no more than its own.
    pub(crate) live: LiveAgent,
    pub(crate) media: Arc<dyn MediaPort>,
    /// What plugins reach.
    pub(crate) ports: Ports,
    /// What plugins have asked of the agent's model.
    pub(crate) ledger: Arc<ModelLedger>,
    pub(crate) downscaler: Downscaler,
    pub(crate) subject: String,
    /// What the ids of the session's calls end with.
    pub(crate) id_ending: String,
    /// Subject of the session that delegated the work (L16).
    pub(crate) delegated_by: Option<String>,
    pub(crate) checkpoint: Option<CheckpointObserver>,
    pub(crate) first_uses: Option<FirstUses>,
    /// The process is to end.
    pub(crate) leaving: CancellationToken,
}

impl Shared {
    /// The ids that somebody may mean by `id`: itself, or one whose ending was left out.
    pub(crate) fn call_ids(&self, id: &str) -> Vec<CallId> {
        vec![CallId(id.to_owned()), CallId(format!("{id}_{}", self.id_ending))]
    }

    /// What other sessions of this process share with this one.
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

    /// A plugin of the turn, granted what the turn began with and what a person has answered since, as far as it still is
    /// granted (P6, P10).
    pub(crate) fn setup<'s>(&self, pinned: &'s PluginSetup) -> Cow<'s, PluginSetup> {
        let now = self.live.current();
        let name = pinned.plugin().name();
        let (granted, granted_now) = (self.agent.grants_of(name), now.grants_of(name));
        if Arc::ptr_eq(&now, &self.agent) || granted_now == granted {
            return Cow::Borrowed(pinned);
        }
        let nothing = Grants::default();
        let within_now = |setup: &PluginSetup| Cow::Owned(setup.within(granted_now.unwrap_or(&nothing)));
        match now.answered_about(name) {
            None => within_now(pinned),
            Some(Answered { for_this_run, for_good }) => {
                let granted = granted.cloned().unwrap_or_default().and(for_this_run).and(for_good);
                within_now(&pinned.granted(granted))
            }
        }
    }

    /// What the host's own file tools may read: what the turn began with as far as it still is granted.
    pub(crate) fn host_trees(&self) -> Vec<TreeGrant> {
        trees_within(&self.agent.config().host_trees, &self.live.current().config().host_trees)
    }

    pub(crate) fn pass(&self, checkpoint: Checkpoint<'_>) {
        if let Some(observer) = &self.checkpoint {
            observer(checkpoint);
        }
    }
}

impl Session {
    /// Takes another agent for what follows.
    pub(super) fn use_agent(&mut self, agent: Arc<Agent>) {
        if Arc::ptr_eq(&agent, &self.shared.agent) {
            return;
        }
        let shared = &self.shared;
        let model = Some(model_of(&agent, &shared.ledger, &shared.subject));
        let ports = Ports { model, ..shared.ports.clone() };
        self.shared = Arc::new(Shared {
            store: shared.store.clone(),
            sandbox: shared.sandbox.clone(),
            agent,
            live: shared.live.clone(),
            media: shared.media.clone(),
            ports,
            ledger: shared.ledger.clone(),
            downscaler: shared.downscaler.clone(),
            subject: shared.subject.clone(),
            id_ending: shared.id_ending.clone(),
            delegated_by: shared.delegated_by.clone(),
            checkpoint: shared.checkpoint.clone(),
            first_uses: shared.first_uses.clone(),
            leaving: shared.leaving.clone(),
        });
    }
}

/// The agent's model for its plugins.
pub(super) fn model_of(agent: &Agent, ledger: &Arc<ModelLedger>, session: &str) -> Arc<dyn ModelPort> {
    let (models, reply_tokens) = (agent.models().clone(), agent.config().reply_tokens);
    Arc::new(AgentModel { models, ledger: ledger.clone(), reply_tokens, session: session.to_owned() })
}
