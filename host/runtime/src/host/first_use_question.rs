//! Asks the user for missing grants before a plugin's first use (P6).

use super::first_use::FirstUse;
use super::services::SessionServices;
use crate::agent::AskPolicy;
use agent_core::change::CallRecord;
use agent_plugins::{CallEffect, CallNeeds};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use std::convert::Infallible;
use tokio::sync::mpsc;

/// Describes the call for which a plugin is about to be used.
pub(crate) struct PluginUse<'u> {
    /// The tool that is called. `None` if the plugin builds the context.
    pub(crate) tool: Option<&'u str>,
    pub(crate) arguments: &'u Value,
    pub(crate) call: &'u CallNeeds,
}

impl SessionServices {
    /// Asks the user for a plugin's missing grants before the plugin is used. The returned future completes when the
    /// user has answered, or when nobody can answer any more. Returns `None` if the plugin has all grants that it
    /// needs, if the agent's configuration forbids the question, or if nobody is at the terminal.
    pub(crate) fn ask_at_first_use(&self, plugin: &str, plugin_use: &PluginUse<'_>) -> Option<BoxFuture<'static, ()>> {
        let sender = self.first_uses.clone().filter(|sender| !sender.is_closed())?;
        let (question, mut answer) = self.first_use_of(plugin, plugin_use)?;
        let wait = async move {
            if sender.send(question).await.is_ok() {
                // No value is ever sent on this channel. The channel is closed when the question is dropped.
                let _ = answer.recv().await;
            }
        };
        Some(wait.boxed())
    }

    /// Returns what is known about the needs of a call before it runs.
    pub(crate) fn needs_of(&self, call: &CallRecord) -> CallNeeds {
        let tool = self.agent.registry().get(&call.name);
        let effect = match tool.is_some_and(|tool| tool.definition.traits.read_only) {
            true => CallEffect::Reads,
            false => CallEffect::Changes,
        };
        CallNeeds::new(effect, call.effective_arguments())
    }

    /// Returns the question about a plugin's missing grants, which is open while the receiver exists. Returns `None` if the plugin has
    /// all grants that it needs, or if the agent's configuration forbids the question.
    pub(crate) fn first_use_of(
        &self,
        plugin: &str,
        plugin_use: &PluginUse<'_>,
    ) -> Option<(FirstUse, mpsc::Receiver<Infallible>)> {
        let setup = self.current_setup(self.agent.setups().get(plugin)?);
        let lacking = setup.plugin().needed(setup.grants(), plugin_use.call);
        if lacking.is_empty() || self.live.current().ask_policy(plugin) == AskPolicy::Never {
            return None;
        }
        let (answered, answer) = mpsc::channel(1);
        let question = FirstUse {
            agent: self.live.clone(),
            session: self.subject.clone(),
            plugin: setup.plugin().identity().clone(),
            tool: plugin_use.tool.map(str::to_owned),
            by_user: false,
            lacking,
            protected: self.sandbox.protected(),
            arguments: plugin_use.arguments.clone(),
            call: plugin_use.call.clone(),
            component: setup.plugin().clone(),
            answered,
        };
        Some((question, answer))
    }
}
