//! The question to the user at the terminal about missing grants at a plugin's first use. The question is asked before
//! the store records that the call is about to run (P6).

use crate::agent::LiveAgent;
use agent_plugins::{CallEffect, Grants, LoadedPlugin, PluginIdentity, ProtectedPath, UnmetNeed, needed};
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// Sender for questions about a plugin's first use. The receiving task answers the questions one after another.
pub type FirstUses = mpsc::Sender<FirstUse>;

/// A question about the first use of a plugin that lacks grants. The agent's configuration does not give the missing
/// grants, but allows the question. The receiver answers the question by adding grants to the [agent](FirstUse::agent).
/// The turn continues when this value is dropped.
pub struct FirstUse {
    /// The agent that uses the plugin. [`LiveAgent::answer`] adds grants to this agent. These grants also apply to
    /// open turns.
    pub agent: LiveAgent,
    /// Id (subject) of the session.
    pub session: String,
    /// The plugin that is about to be used.
    pub plugin: PluginIdentity,
    /// The tool that is called, or `None` if the plugin builds the context.
    pub tool: Option<String>,
    /// The resources that the call needs and that no grant covers.
    pub lacking: Vec<UnmetNeed>,
    /// Paths that the host protects, so that they cannot be granted to any plugin.
    pub protected: Vec<ProtectedPath>,
    /// Arguments of the call, or null if the plugin builds the context.
    pub arguments: Value,
    pub(super) effect: CallEffect,
    pub(super) component: Arc<LoadedPlugin>,
    /// Closed when the call no longer waits for an answer.
    pub(super) answered: oneshot::Sender<()>,
}

impl FirstUse {
    /// Returns whether the call still waits for an answer. The call's turn may have been cancelled in the meantime.
    pub fn is_pending(&self) -> bool {
        !self.answered.is_closed()
    }

    /// Returns the grants that the plugin had before some of them were revoked in this process. If grants of a kind
    /// were revoked, the question may not ask for more grants of this kind than the plugin had (row 48).
    pub fn revoked(&self) -> Grants {
        self.agent.revoked(&self.plugin.name)
    }

    /// Returns those needs in `lacking` that are still not granted. The user may have granted some of them in the
    /// meantime, in answer to a question about another call of the plugin.
    pub fn still_lacking(&self) -> Vec<UnmetNeed> {
        let agent = self.agent.current();
        let nothing = Grants::default();
        let granted = agent.grants_of(&self.plugin.name).unwrap_or(&nothing);
        let still_lacking = needed(&self.plugin.name, &self.component.unmet(granted), granted, self.effect);
        still_lacking
            .into_iter()
            .filter(|unmet| self.lacking.iter().any(|lacking| lacking.need == unmet.need))
            .collect()
    }
}
