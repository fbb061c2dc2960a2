//! Asks people about plugins at their first use while a turn runs (P6).

use crate::host::{PluginUse, SessionServices};
use agent_core::change::CallRecord;
use agent_core::tool::ToolSource;
use agent_plugins::CallEffect;
use futures::future::BoxFuture;
use serde_json::Value;
use std::collections::BTreeMap;

/// The open question and the plugins that were already asked about while a turn runs.
#[derive(Default)]
pub(crate) struct FirstUseQuestions {
    open: Option<BoxFuture<'static, ()>>,
    asked: BTreeMap<String, CallEffect>,
}

impl FirstUseQuestions {
    /// Whether a question is open.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Waits until the open question is answered. Never returns if no question is open.
    pub(crate) async fn answered(&mut self) {
        match &mut self.open {
            Some(open) => open.await,
            None => std::future::pending().await,
        }
        self.open = None;
    }

    /// Whether a call of this tool may be dispatched now. If not, a question about its plugin is opened first or is already open.
    pub(crate) fn admit(&mut self, services: &SessionServices, call: &CallRecord) -> bool {
        let tool = call.name.as_str();
        let Some(ToolSource::Plugin { plugin, .. }) = services.agent.registry().source_of(tool) else { return true };
        let definition = services.agent.registry().get(tool).map(|tool| &tool.definition);
        let reads = definition.is_some_and(|definition| definition.traits.read_only);
        let reach = if reads { CallEffect::Reads } else { CallEffect::Changes };
        let is_asked = self.asked.get(plugin).is_some_and(|asked| *asked >= reach);
        let plugin_use = PluginUse { tool: Some(tool), arguments: call.effective_arguments(), reach };
        let question = if is_asked { None } else { services.ask_at_first_use(plugin, &plugin_use) };
        match question {
            // Another question is open, or the question about this plugin is not answered yet.
            _ if self.is_open() && (is_asked || question.is_some()) => false,
            None => true,
            Some(question) => {
                self.asked.insert(plugin.clone(), reach);
                self.open = Some(question);
                false
            }
        }
    }
}

/// Asks about the context builder before the first turn that uses it.
pub(crate) async fn ask_about_builder(services: &SessionServices) {
    let builder = services.agent.config().context_builder.as_deref();
    let building = PluginUse { tool: None, arguments: &Value::Null, reach: CallEffect::Changes };
    if let Some(question) = builder.and_then(|builder| services.ask_at_first_use(builder, &building)) {
        question.await;
    }
}
