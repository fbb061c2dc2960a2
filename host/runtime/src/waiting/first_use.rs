//! Asks the user for missing grants at the first use of plugins while a turn runs (P6).

use crate::host::{PluginUse, SessionServices};
use agent_core::change::CallRecord;
use agent_core::tool::ToolSource;
use agent_plugins::{CallEffect, CallNeeds};
use futures::future::BoxFuture;
use serde_json::Value;
use std::collections::BTreeMap;

/// The first-use questions of a running turn: the open question, and the plugins that the user was already asked about.
#[derive(Default)]
pub(crate) struct FirstUseQuestions {
    open: Option<BoxFuture<'static, ()>>,
    /// Names of the plugins that the user was already asked about, each with the needs of the calls that caused the
    /// questions.
    asked_plugins: BTreeMap<String, CallNeeds>,
}

impl FirstUseQuestions {
    /// Returns whether a first-use question is open, which means that it waits for the user's answer.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Waits until the open question is answered. If no question is open, the future never completes.
    pub(crate) async fn answered(&mut self) {
        match &mut self.open {
            Some(open) => open.await,
            None => std::future::pending().await,
        }
        self.open = None;
    }

    /// Returns whether a call may be dispatched now. The result is `false` if a first-use question about the call's
    /// plugin must be answered first. If no question is open, this method opens the question about the plugin.
    pub(crate) fn may_dispatch(&mut self, services: &SessionServices, call: &CallRecord) -> bool {
        let tool = call.name.as_str();
        let Some(ToolSource::Plugin { plugin, .. }) = services.agent.registry().source_of(tool) else { return true };
        let needs = services.needs_of(call);
        let is_asked = self.asked_plugins.get(plugin).is_some_and(|asked| needs.is_within(asked));
        let plugin_use = PluginUse { tool: Some(tool), arguments: call.effective_arguments(), call: &needs };
        let question = if is_asked { None } else { services.ask_at_first_use(plugin, &plugin_use) };
        match question {
            // Either the open question is about this plugin, or the open question must be answered before a question
            // about this plugin can be asked.
            _ if self.is_open() && (is_asked || question.is_some()) => false,
            None => true,
            Some(question) => {
                self.asked_plugins.entry(plugin.clone()).and_modify(|asked| asked.add(&needs)).or_insert(needs);
                self.open = Some(question);
                false
            }
        }
    }
}

/// Asks the user for the missing grants of the context builder, before the first turn in which the context builder
/// is used.
pub(crate) async fn ask_about_builder(services: &SessionServices) {
    let builder = services.agent.config().context_builder.as_deref();
    let needs = CallNeeds::new(CallEffect::Changes, &Value::Null);
    let building = PluginUse { tool: None, arguments: &Value::Null, call: &needs };
    if let Some(question) = builder.and_then(|builder| services.ask_at_first_use(builder, &building)) {
        question.await;
    }
}
