//! At the first use of a plugin, asks the user at the terminal whether to give the plugin its missing grants. The host
//! asks this question before the store records that the plugin's call is about to run (P6).

use crate::agent::LiveAgent;
use agent_plugins::{CallEffect, CallNeeds, Grants, LoadedPlugin, PluginIdentity, ProtectedPath, TreeGrant, UnmetNeed};
use serde_json::Value;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Sends questions about the first use of a plugin to the task that asks the user these questions one after another.
pub type FirstUses = mpsc::Sender<FirstUse>;

/// A question to the user about a plugin that is about to be used for the first time and lacks grants. The agent's
/// configuration does not give the missing grants, but permits the host to ask for them. The task that receives this
/// value asks the user, and then changes the [agent](FirstUse::agent) so that it has the grants that the user gave. The
/// turn continues when this value is dropped.
pub struct FirstUse {
    /// The agent that uses the plugin. [`LiveAgent::answer`] adds grants to this agent. The added grants also apply to
    /// turns that are already open.
    pub agent: LiveAgent,
    /// Id (subject) of the session.
    pub session: String,
    /// The plugin that is about to be used.
    pub plugin: PluginIdentity,
    /// The tool that is called, or `None` if the plugin builds the context.
    pub tool: Option<String>,
    /// Whether the user has asked for this question, and the plugin is not about to be used.
    pub by_user: bool,
    /// The resources that the call needs and that no grant covers.
    pub lacking: Vec<UnmetNeed>,
    /// Protected paths of the host, which cannot be granted to any plugin.
    pub protected: Vec<ProtectedPath>,
    /// Arguments of the call, or null if the plugin builds the context.
    pub arguments: Value,
    /// What is known about the needs of the call.
    pub call: CallNeeds,
    pub(super) component: Arc<LoadedPlugin>,
    /// Closed when the call is not waiting for an answer any more.
    pub(super) answered: mpsc::Sender<Infallible>,
}

impl FirstUse {
    /// Creates a question about everything that a plugin requests and does not have, for a user who wants to grant it
    /// although the plugin is not about to be used. Returns `None` if the agent has no plugin with this name. The question
    /// is open while the receiver exists.
    pub fn requested_by_user(
        agent: &LiveAgent,
        session: &str,
        (plugin, protected): (&str, Vec<ProtectedPath>),
    ) -> Option<(Self, mpsc::Receiver<Infallible>)> {
        let current = agent.current();
        let setup = current.setups().get(plugin)?;
        let (answered, answer) = mpsc::channel(1);
        let question = Self {
            agent: agent.clone(),
            session: session.to_owned(),
            plugin: setup.plugin().identity().clone(),
            tool: None,
            by_user: true,
            lacking: setup.unmet().to_vec(),
            protected,
            arguments: Value::Null,
            call: CallNeeds::new(CallEffect::Changes, &Value::Null),
            component: setup.plugin().clone(),
            answered,
        };
        Some((question, answer))
    }

    /// Returns whether the call is still waiting for the answer. The call stops waiting if, for example, its
    /// turn is cancelled.
    pub fn is_pending(&self) -> bool {
        !self.answered.is_closed()
    }

    /// Waits until the call is not waiting for the answer any more.
    pub async fn ended(&self) {
        self.answered.closed().await;
    }

    /// For each kind of grant that was reduced or revoked since this process started, returns the grants of this kind
    /// that the plugin had before the latest reduction. For each of these kinds, the question must not
    /// offer more grants than the plugin had (row 48).
    pub fn revoked(&self) -> Grants {
        self.agent.revoked(&self.plugin.name)
    }

    /// Returns the folders that the plugin may use now.
    pub fn granted_folders(&self) -> Vec<TreeGrant> {
        let agent = self.agent.current();
        agent.grants_of(&self.plugin.name).map(|granted| granted.trees.clone()).unwrap_or_default()
    }

    /// Returns those needs in `lacking` that are still not granted. Since this question was created, the user may have
    /// granted some of the needs in answer to a question about a different call of the plugin.
    pub fn still_lacking(&self) -> Vec<UnmetNeed> {
        let agent = self.agent.current();
        let nothing = Grants::default();
        let granted = agent.grants_of(&self.plugin.name).unwrap_or(&nothing);
        let still_lacking = self.component.needed(granted, &self.call);
        still_lacking
            .into_iter()
            .filter(|unmet| self.lacking.iter().any(|lacking| lacking.need == unmet.need))
            .collect()
    }
}
