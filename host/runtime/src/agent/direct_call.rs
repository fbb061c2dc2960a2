//! The variant of an agent that runs one tool call which a program has requested (I4). The variant has the tools, grants,
//! approvals, limits and MCP servers of the agent. It leaves out everything that only serves a conversation with a model.

use super::config::{AgentConfig, Configured, MemoryUse, SummaryWriter};
use super::{Agent, AgentError};
use crate::tools::CommandTools;
use crate::tools::builtins::name;
use agent_core::loop_break::{Finish, LoopBreak};
use agent_core::message::TurnInput;
use agent_core::model::OfferedTool;
use agent_core::prompt::PromptParts;
use agent_core::run::LoopConfig;
use agent_core::text_dialect::ToolDialect;
use agent_core::tool::{ToolDefinition, ToolSource};
use agent_models::direct_call::DirectCall;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum length of the part of a result that is sent to the provider, which does not read it, in characters. The stored
/// result is complete.
const SENT_RESULT_CHARACTERS: u32 = 200;

/// Built-in tools that only serve a conversation, in addition to the tools that end a turn. A program must not call them:
/// one of them searches what the host remembers of a user.
const CONVERSATION_TOOLS: [&str; 2] = [name::READ_RESULT, name::MEMORY_SEARCH];

impl Agent {
    /// Returns the tools that a program may call directly with [`TurnInput::Call`], each with its definition, sorted by
    /// name. Whether a call then runs depends on the same grants, approvals and limits as the call of a model.
    pub fn direct_tools(&self) -> Vec<(&OfferedTool, &Arc<ToolDefinition>)> {
        let tools = self.registry.offered().iter().filter_map(|offered| {
            let tool = self.registry.get(&offered.author_name)?;
            let serves_a_conversation = tool.source == ToolSource::BuiltIn
                && (CONVERSATION_TOOLS.contains(&offered.author_name.as_str())
                    || LoopBreak::of_tool(&offered.author_name).is_some());
            (!serves_a_conversation).then_some((offered, &tool.definition))
        });
        tools.collect()
    }

    /// Returns the agent that runs a turn with this input: this agent, or its variant for direct calls.
    pub(crate) fn for_input(self: &Arc<Self>, input: &TurnInput) -> Result<Arc<Self>, AgentError> {
        let TurnInput::Call { tool, arguments } = input else { return Ok(self.clone()) };
        let configured = match self.direct_calls.get() {
            Some(configured) => configured.clone(),
            None => {
                let configured = Configured::new(without_conversation(self.config()))?;
                self.direct_calls.get_or_init(|| configured).clone()
            }
        };
        let models = self.models.for_direct_call(Arc::new(DirectCall::new(tool.clone(), arguments)));
        Self::build(configured, models, self.parts()).map(Arc::new)
    }
}

fn without_conversation(config: &AgentConfig) -> AgentConfig {
    let defaults = LoopConfig::default();
    let bounds = LoopConfig {
        max_interactions: defaults.max_interactions,
        at_limit: defaults.at_limit,
        result_characters: SENT_RESULT_CHARACTERS,
        finish: Finish::Text,
        persistence: false,
        fallback: None,
        ..config.bounds.clone()
    };
    AgentConfig {
        bounds,
        memory: MemoryUse::Off,
        prompt: PromptParts::default(),
        summary: SummaryWriter::Extract,
        tool_dialect: ToolDialect::Native,
        offered_tools: u32::MAX,
        command_tools: CommandTools::Each,
        include_history: false,
        output_schema: None,
        context_builder: None,
        validators: Vec::new(),
        media_policies: BTreeMap::new(),
        ..config.clone()
    }
}
