//! The question to the user at the terminal about missing grants at a plugin's first use. The question is asked before
//! the intent of the call is committed (P6).

use crate::agent::LiveAgent;
use agent_plugins::{CallEffect, Grants, LoadedPlugin, PluginIdentity, ProtectedPath, UnmetNeed, needed};
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// Sender for first-use questions. The receiver answers the questions one after another.
pub type FirstUses = mpsc::Sender<FirstUse>;

/// A question about the first use of a plugin that lacks grants. The agent's configuration neither gives nor refuses
/// these grants. The receiver answers by changing the [agent](FirstUse::agent). The turn continues when this value
/// is dropped.
pub struct FirstUse {
    /// The agent that uses the plugin. [`LiveAgent::answer`] adds grants to this agent. The grants also apply to
    /// open turns.
    pub agent: LiveAgent,
    /// Subject of the session.
    pub session: String,
    /// The plugin that is about to be used.
    pub plugin: PluginIdentity,
    /// The tool that is called, or `None` if the plugin builds the context.
    pub tool: Option<String>,
    /// The resources that the call needs and that no grant covers.
    pub lacking: Vec<UnmetNeed>,
    /// Protected paths, which cannot be granted.
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

    /// Returns the grants that the plugin had before revocations in this process. For the revoked kinds
    /// of grants, the question may not ask for more than these grants (row 48).
    pub fn revoked(&self) -> Grants {
        self.agent.revoked(&self.plugin.name)
    }

    /// Returns the needs in `lacking` that are still not granted. An answer for another call of the plugin may have
    /// granted some of these needs.
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
