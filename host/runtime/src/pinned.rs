//! What an open turn keeps of its agent, and the agent as such a turn has it after a restart: what the current configuration
//! says, narrowed to what the turn began with (P10, P14).

use crate::agent::{Agent, AgentConfig, AgentError, PluginAllowance};
use crate::builtins::loop_break;
use crate::registry::{Availability, RegisteredTool};
use agent_core::message::Digest;
use agent_core::run::{PinnedAgent, Turn};
use agent_core::tool::ToolSource;
use agent_plugins::{Generation, Grants, PinnedGrants};
use agent_store::{Store, StoreError};
use serde_json::Value;
use std::collections::BTreeMap;

/// Tools by what they were when the turn began, by name.
type Definitions = BTreeMap<String, Digest>;

/// Those of a turn: a snapshot of all that it could call beside its plugins.
#[derive(Clone, Debug, Default)]
pub(crate) struct PinnedTools {
    own: Definitions,
    /// By server. None: the turn did not keep them.
    servers: Option<BTreeMap<String, Definitions>>,
}

impl PinnedTools {
    /// What a turn that keeps this tool by its definition has of it; `None`: it does not keep such tools. Plugins are kept
    /// by their components, and to end a turn must always be possible.
    fn of(&self, tool: &RegisteredTool) -> Option<Option<&Digest>> {
        let name = &tool.definition.name;
        match &tool.source {
            ToolSource::Mcp { server, .. } => {
                let servers = self.servers.as_ref()?;
                Some(servers.get(server).and_then(|tools| tools.get(name)))
            }
            _ => is_own(tool).then(|| self.own.get(name)),
        }
    }

    /// Tools of servers that there were, by name, each with its server.
    pub(crate) fn of_servers(&self) -> impl Iterator<Item = (&str, &str)> {
        let servers = self.servers.iter().flatten();
        servers.flat_map(|(server, tools)| tools.keys().map(|name| (name.as_str(), server.as_str())))
    }
}

fn is_own(tool: &RegisteredTool) -> bool {
    let is_own = matches!(tool.source, ToolSource::Service { .. } | ToolSource::Agent { .. } | ToolSource::BuiltIn);
    is_own && loop_break(tool).is_none()
}

/// A tool that is another one than the turn began with, or came later, is the next turn's: its calls are told so (row 19).
pub(crate) fn availability(tool: &RegisteredTool, pinned: &PinnedTools) -> Availability {
    let name = &tool.definition.name;
    let what = match pinned.of(tool) {
        None => return tool.availability.clone(),
        Some(Some(digest)) if *digest == tool.digest => return tool.availability.clone(),
        Some(Some(_)) => "was changed since this turn began",
        Some(None) => "is there only since this turn began",
    };
    let message = format!("`{name}` of {} {what}: go on without it; the next turn can call it", tool.source);
    let advice = "begin another turn: it has the tool as it is now".to_owned();
    match tool.source {
        ToolSource::Mcp { .. } => Availability::Renewed { message, advice },
        _ => Availability::Withheld { message, advice },
    }
}

/// What a turn that begins now keeps.
pub(crate) fn pins_of(agent: &Agent) -> PinnedAgent {
    let config = agent.config();
    let grants = config.plugins.iter().filter(|(name, _)| agent.generation().plugin(name).is_some());
    let definition = |tool: &RegisteredTool| (tool.definition.name.clone(), tool.digest.clone());
    let mut servers: BTreeMap<String, Definitions> = BTreeMap::new();
    for tool in agent.registry().tools() {
        if let ToolSource::Mcp { server, .. } = &tool.source {
            servers.entry(server.clone()).or_default().extend([definition(tool)]);
        }
    }
    let host = Grants { trees: config.host_trees.clone(), ..Grants::default() };
    PinnedAgent {
        grants: grants.map(|(name, allowance)| (name.clone(), written(&allowance.grants))).collect(),
        host_grants: written(&host),
        context_builder: config.context_builder.clone(),
        validators: config.validators.clone(),
        media_policies: config.media_policies.clone(),
        tools: agent.registry().tools().filter(|tool| is_own(tool)).map(|tool| definition(tool)).collect(),
        servers: Some(servers),
    }
}

/// The agent as a turn has it that began with these plugins. The configuration of now decides who builds the context,
/// validates the output and prepares media, and with which values; what the turn kept only narrows its grants (P14).
pub(crate) fn resumed(
    current: &Agent,
    generation: Generation,
    pinned: Option<&PinnedAgent>,
) -> Result<Agent, AgentError> {
    let now = current.config();
    let generation = with_roles(generation, current);
    let Some(pinned) = pinned else { return current.with_generation(generation) };
    let plugins = now.plugins.iter().map(|(name, allowance)| {
        let grants = pinned.grants.get(name).map(|grants| read(grants).narrowing(&allowance.grants));
        (name.clone(), PluginAllowance { grants: grants.unwrap_or_default(), ..allowance.clone() })
    });
    let host = Grants { trees: now.host_trees.clone(), ..Grants::default() };
    let config = AgentConfig {
        plugins: plugins.collect(),
        host_trees: read(&pinned.host_grants).narrowing(&host).trees,
        ..now.clone()
    };
    let tools = PinnedTools { own: pinned.tools.clone(), servers: pinned.servers.clone() };
    current.resumed(config, generation, tools)
}

/// The same plugins, and those of the current agent that judge or prepare for it and that the turn did not begin with.
fn with_roles(generation: Generation, current: &Agent) -> Generation {
    let config = current.config();
    let named = config.context_builder.iter().chain(&config.validators).chain(config.media_policies.values());
    let missing: Vec<_> = named
        .filter(|name| generation.plugin(name).is_none())
        .filter_map(|name| current.generation().plugin(name).cloned())
        .collect();
    match missing.is_empty() {
        true => generation,
        false => Generation::new(generation.plugins().cloned().chain(missing)),
    }
}

/// Components that a stored turn names and that this host cannot vouch for: they neither serve the agent now under that
/// name, nor has a turn of the agent begun with them here. A turn that kept nothing of its agent may only name what serves.
pub(crate) async fn unknown_components(
    store: &dyn Store,
    current: &Agent,
    (turn, named): (&Turn, &[(String, Digest)]),
) -> Result<Vec<(String, Digest)>, StoreError> {
    let serves = |(name, digest): &&(String, Digest)| {
        current.generation().plugin(name).is_some_and(|plugin| plugin.digest() == digest)
    };
    let others: Vec<_> = named.iter().filter(|component| !serves(component)).cloned().collect();
    match turn.pinned {
        _ if others.is_empty() => Ok(others),
        Some(_) => store.never_begun(&current.config().record_name(), others).await,
        None => Ok(others),
    }
}

fn written(grants: &Grants) -> Value {
    serde_json::to_value(grants.pinned()).expect("names and paths serialise")
}

/// What cannot be read grants nothing.
fn read(grants: &Value) -> PinnedGrants {
    serde_json::from_value(grants.clone()).unwrap_or_default()
}
