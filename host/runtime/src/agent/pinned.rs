//! Records the parts of an agent to which a turn is pinned when the turn begins, and builds the agent that the open
//! turn uses after a restart of the host. The agent after the restart has the current configuration, and at most the
//! grants and tools with which the turn began (P10, P14).

use super::{Agent, AgentConfig, AgentError, PluginAllowance};
use crate::tools::builtins::loop_break;
use crate::tools::registry::{Availability, RegisteredTool};
use agent_core::message::Digest;
use agent_core::run::{PinnedAgent, Turn};
use agent_core::tool::ToolSource;
use agent_plugins::{Generation, Grants, PinnedGrants};
use agent_store::{Store, StoreError};
use serde_json::Value;
use std::collections::BTreeMap;

/// Maps the name of each tool to the digest that its definition had when the turn began.
type Definitions = BTreeMap<String, Digest>;

/// The pinned tools of a turn: all tools that the turn could call when it began, except the tools of plugins.
#[derive(Clone, Debug, Default)]
pub(crate) struct PinnedTools {
    /// Tools of services, tools of delegates, tools of the client, and the host's own tools.
    by_definition: Definitions,
    /// Tools of MCP servers, by the name of the server. `None` if the stored turn does not list the tools of
    /// MCP servers.
    servers: Option<BTreeMap<String, Definitions>>,
}

impl PinnedTools {
    /// Returns the digest that the tool's definition had when the turn began. The result is `Some(None)` if the turn
    /// began without the tool, and `None` if the turn does not pin the tool. Tools of plugins are not pinned,
    /// because the turn pins the components of the plugins. Tools that end a turn are not pinned, because they must
    /// always be available.
    fn pinned_digest(&self, tool: &RegisteredTool) -> Option<Option<&Digest>> {
        let name = &tool.definition.name;
        match &tool.source {
            ToolSource::Mcp { server, .. } => {
                let servers = self.servers.as_ref()?;
                Some(servers.get(server).and_then(|tools| tools.get(name)))
            }
            _ => is_pinned_by_definition(tool).then(|| self.by_definition.get(name)),
        }
    }

    /// Returns the names of the pinned MCP tools, each with the name of its server.
    pub(crate) fn of_servers(&self) -> impl Iterator<Item = (&str, &str)> {
        let servers = self.servers.iter().flatten();
        servers.flat_map(|(server, tools)| tools.keys().map(|name| (name.as_str(), server.as_str())))
    }
}

fn is_pinned_by_definition(tool: &RegisteredTool) -> bool {
    let is_candidate = matches!(
        tool.source,
        ToolSource::Service { .. } | ToolSource::Agent { .. } | ToolSource::BuiltIn | ToolSource::Client
    );
    is_candidate && loop_break(&tool.definition, &tool.source).is_none()
}

/// Returns the availability of a tool in a resumed turn. If the tool was changed or added after the turn began, the
/// tool is not available until the next turn (row 19).
pub(crate) fn pinned_availability(tool: &RegisteredTool, pinned: &PinnedTools) -> Availability {
    let name = &tool.definition.name;
    let change = match pinned.pinned_digest(tool) {
        None => return tool.availability.clone(),
        Some(Some(digest)) if *digest == tool.digest => return tool.availability.clone(),
        Some(Some(_)) => "was changed since this turn began",
        Some(None) => "was added after this turn began",
    };
    let message = format!("`{name}` of {} {change}: continue without it; the next turn can call it", tool.source);
    let advice = "begin another turn: it can use the current version of the tool".to_owned();
    match tool.source {
        ToolSource::Mcp { .. } => Availability::Renewed { message, advice },
        _ => Availability::Withheld { message, advice },
    }
}

/// Returns the parts of the agent to which a turn that begins now is pinned.
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
        grants: grants.map(|(name, allowance)| (name.clone(), grants_to_json(&allowance.grants))).collect(),
        host_grants: grants_to_json(&host),
        context_builder: config.context_builder.clone(),
        validators: config.validators.clone(),
        media_policies: config.media_policies.clone(),
        tools: agent
            .registry()
            .tools()
            .filter(|tool| is_pinned_by_definition(tool))
            .map(|tool| definition(tool))
            .collect(),
        servers: Some(servers),
        client_tools: config.client_tools.clone(),
    }
}

/// Returns the agent for a resumed turn that began with these plugins. The plugins that build the context, validate
/// the output and decide about media, and the settings of these plugins, come from the current configuration and not
/// from the stored turn. The pinned grants can only narrow the current grants (P14).
pub(crate) fn resumed_agent(
    current: &Agent,
    generation: Generation,
    pinned: Option<&PinnedAgent>,
) -> Result<Agent, AgentError> {
    let config = current.config();
    let generation = with_roles(generation, current);
    let Some(pinned) = pinned else { return current.with_generation(generation) };
    let plugins = config.plugins.iter().map(|(name, allowance)| {
        let grants = pinned.grants.get(name).map(|grants| grants_from_json(grants).narrowing(&allowance.grants));
        (name.clone(), PluginAllowance { grants: grants.unwrap_or_default(), ..allowance.clone() })
    });
    let host = Grants { trees: config.host_trees.clone(), ..Grants::default() };
    let resumed_config = AgentConfig {
        plugins: plugins.collect(),
        host_trees: grants_from_json(&pinned.host_grants).narrowing(&host).trees,
        client_tools: pinned.client_tools.clone(),
        ..config.clone()
    };
    let tools = PinnedTools { by_definition: pinned.tools.clone(), servers: pinned.servers.clone() };
    current.resumed(resumed_config, generation, tools)
}

/// If the turn began without the current agent's context builder, validators or media policies, adds the missing
/// plugins to `generation`.
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

/// Returns the components of a stored turn that are unknown to this host. A component is known if the agent uses it now
/// under the same name. If the stored turn has pins, a component is also known if the store contains an earlier turn of
/// the agent on this host that began with this component.
pub(crate) async fn unknown_components(
    store: &dyn Store,
    current: &Agent,
    (turn, named): (&Turn, &[(String, Digest)]),
) -> Result<Vec<(String, Digest)>, StoreError> {
    let is_in_use = |(name, digest): &&(String, Digest)| {
        current.generation().plugin(name).is_some_and(|plugin| plugin.digest() == digest)
    };
    let others: Vec<_> = named.iter().filter(|component| !is_in_use(component)).cloned().collect();
    match turn.pinned {
        _ if others.is_empty() => Ok(others),
        Some(_) => store.plugins_without_turns(&current.config().record_name(), others).await,
        None => Ok(others),
    }
}

fn grants_to_json(grants: &Grants) -> Value {
    serde_json::to_value(grants.pinned()).expect("names and paths can be serialised")
}

/// Reads pinned grants from JSON. If the JSON is not in the expected form, the result contains no grants.
fn grants_from_json(grants: &Value) -> PinnedGrants {
    serde_json::from_value(grants.clone()).unwrap_or_default()
}
