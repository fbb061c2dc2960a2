//! An agent: a configuration, a model, and one generation of plugins with the registry of their tools.

mod config;

pub use self::config::{
    AgentConfig, Answered, Asking, DEFAULT_OFFERED_TOOLS, DEFAULT_REPLY_TOKENS, PluginAllowance, RuleBinding,
};

use self::config::Configured;
use crate::approvals;
use crate::live::Standing;
use crate::models::Models;
use crate::offering::ToolVectors;
use crate::pinned::{self, PinnedTools};
use crate::registry::{Availability, Registry, RegistryError};
use agent_core::plugin::OutputData;
use agent_core::redaction::Redaction;
use agent_core::run::{LoopConfig, PinnedPlugin};
use agent_core::schema::{Schema, SchemaError};
use agent_core::tool::{ToolSource, Violation};
use agent_mcp::{Catalogue, McpConfigError, McpError, McpServers, McpTool};
use agent_plugins::{Generation, Grants, Kind, KnownSecrets, PluginSetup};
use agent_store::digest_of;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A configuration that does not fit the plugins that are there.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Tools that cannot stand beside each other.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A key of the configuration names a plugin that is not loaded.
    #[error("`{key}` names the plugin `{plugin}`, which is not loaded; loaded are: {loaded}")]
    NoPlugin {
        /// The key.
        key: &'static str,
        /// The name.
        plugin: String,
        /// Those that are.
        loaded: String,
    },
    /// It names a plugin of another kind.
    #[error("`{key}` names the plugin {plugin}, which exports no {kind}")]
    WrongKind {
        /// The key.
        key: &'static str,
        /// `name@digest`.
        plugin: String,
        /// What it would have to export.
        kind: Kind,
    },
    /// The output schema cannot be used.
    #[error("`output_schema`: {0}")]
    OutputSchema(#[from] SchemaError),
    /// What a service says of its answers cannot be used.
    #[error("`services.{name}`: `emits` for `{event_type}`: {error}")]
    Service {
        /// Of the tool.
        name: String,
        /// Of the answer.
        event_type: String,
        /// What is wrong.
        error: SchemaError,
    },
    /// The fixed text is no output that the schema takes.
    #[error("`fallback_text` must be JSON that `output_schema` takes: {0}")]
    FallbackText(String),
    /// An MCP server that cannot be reached as it is configured.
    #[error(transparent)]
    Mcp(#[from] McpConfigError),
}

/// An agent, ready to take sessions.
pub struct Agent {
    configured: Arc<Configured>,
    models: Models,
    generation: Generation,
    standing: Arc<Standing>,
    setups: BTreeMap<String, PluginSetup>,
    servers: McpServers,
    catalogue: Option<Arc<Catalogue>>,
    registry: Arc<Registry>,
    /// MCP servers whose tools are left out, since one of them has a name that exists already; each with the two tools.
    crowded_out: BTreeMap<String, RegistryError>,
    /// Of a turn that began before this process: the tools that it began with.
    began_with: Option<Arc<PinnedTools>>,
    tool_vectors: ToolVectors,
    /// What nobody else is to see: of its plugins, its MCP servers and its models.
    secrets: Arc<KnownSecrets>,
}

/// What an agent is made of beside its configuration and models.
struct Parts {
    generation: Generation,
    standing: Arc<Standing>,
    servers: McpServers,
    catalogue: Option<Arc<Catalogue>>,
    began_with: Option<Arc<PinnedTools>>,
    /// The registry that this one comes after, if any.
    known: Option<Arc<Registry>>,
    /// What was secret before: whoever was told it may still say it.
    secrets: Arc<KnownSecrets>,
}

impl Agent {
    /// Checks the configuration against the plugins and builds the registry of tools. The tools of MCP servers come into
    /// it when a turn begins: no server is asked before.
    pub fn new(config: AgentConfig, models: impl Into<Models>, generation: Generation) -> Result<Self, AgentError> {
        let servers = McpServers::new(config.mcp.iter().cloned())?;
        let (standing, catalogue, began_with, known) = (Arc::default(), None, None, None);
        let secrets = Arc::default();
        let parts = Parts { generation, standing, servers, catalogue, began_with, known, secrets };
        Self::build(Configured::new(config)?, models.into(), parts)
    }

    fn build(configured: Arc<Configured>, models: Models, parts: Parts) -> Result<Self, AgentError> {
        let Parts { generation, standing, servers, catalogue, began_with, known, secrets } = parts;
        let secrets = Arc::new(
            models.secrets().into_iter().fold(secrets.and(&configured.secrets), |known, (redaction, given_to)| {
                known.with(&redaction, &given_to)
            }),
        );
        let absent = catalogue.iter().flat_map(|catalogue| catalogue.problems()).filter_map(McpError::absent);
        let absent = absent.map(|(server, reason)| (server.to_owned(), reason));
        let found = Found { generation: &generation, catalogue: catalogue.as_deref(), earlier: known.as_deref() };
        let (registry, crowded_out) = registry_without_newcomers(&configured, &found)?;
        let registry = registry.without(absent);
        let registry = match &began_with {
            // Before the servers have said what they have now, nothing of theirs is gone.
            Some(tools) if catalogue.is_none() && !configured.config.mcp.is_empty() => {
                registry.withholding(|tool| pinned::availability(tool, tools))
            }
            Some(tools) => {
                registry.withholding(|tool| pinned::availability(tool, tools)).without_gone(tools.of_servers())
            }
            None => registry,
        };
        let setups = generation.plugins().map(|plugin| {
            let PluginAllowance { grants, limits, .. } = configured.config.allowance(plugin.name());
            let on_trial = standing.trials.get(plugin.name()).filter(|on_trial| on_trial.digest == *plugin.digest());
            let trial = on_trial.map(|on_trial| on_trial.trial.clone());
            (
                plugin.name().to_owned(),
                PluginSetup::new(plugin.clone(), grants, limits).on_trial(trial).knowing(&secrets),
            )
        });
        let setups = setups.collect();
        let tool_vectors = ToolVectors::default();
        let registry = Arc::new(registry);
        let agent = Self {
            configured,
            models,
            generation,
            standing,
            setups,
            servers,
            catalogue,
            registry,
            crowded_out,
            began_with,
            tool_vectors,
            secrets,
        };
        agent.check_names()?;
        agent.fallback()?;
        Ok(agent)
    }

    /// The same agent with other plugins: those that a turn is pinned to.
    pub fn with_generation(&self, generation: Generation) -> Result<Self, AgentError> {
        self.with_plugins(generation, Standing::default())
    }

    /// The same agent with other plugins, and with how their versions stand.
    pub fn with_plugins(&self, generation: Generation, standing: Standing) -> Result<Self, AgentError> {
        let parts = Parts { generation, standing: Arc::new(standing), ..self.parts() };
        Self::build(self.configured.clone(), self.models.clone(), parts)
    }

    /// The same agent with another configuration. Its MCP servers stay those that it was made with.
    pub fn with_config(&self, config: AgentConfig) -> Result<Self, AgentError> {
        Self::build(Configured::new(config)?, self.models.clone(), self.parts())
    }

    /// The same agent as it is configured now, with what persons have answered meanwhile. Its MCP servers and the agents
    /// that it may delegate to stay those that it was made with.
    pub fn reconfigured(&self, config: AgentConfig, models: Models) -> Result<Self, AgentError> {
        let (mcp, delegates) = (self.config().mcp.clone(), self.config().delegates.clone());
        let mut config = AgentConfig { mcp, delegates, ..config };
        for (plugin, PluginAllowance { answered, .. }) in &self.config().plugins {
            let allowance = config.allowance_mut(plugin);
            allowance.grants = std::mem::take(&mut allowance.grants).and(&answered.for_this_run);
            allowance.answered = answered.clone();
        }
        Self::build(Configured::new(config)?, models, self.parts())
    }

    /// The same agent with what a person has granted a plugin (P6).
    pub(crate) fn with_answer(&self, plugin: &str, answered: &Answered) -> Result<Self, AgentError> {
        let mut config = self.config().clone();
        let allowance = config.allowance_mut(plugin);
        let Answered { for_this_run, for_good } = std::mem::take(&mut allowance.answered);
        let for_this_run = for_this_run.and(&answered.for_this_run);
        let for_good = for_good.and(&answered.for_good);
        allowance.grants = std::mem::take(&mut allowance.grants).and(&answered.for_this_run).and(&answered.for_good);
        allowance.answered = Answered { for_this_run, for_good };
        self.with_config(config)
    }

    /// The same agent with the tools that its MCP servers have now.
    pub fn with_catalogue(&self, catalogue: Arc<Catalogue>) -> Result<Self, AgentError> {
        let parts = Parts { catalogue: Some(catalogue), ..self.parts() };
        Self::build(self.configured.clone(), self.models.clone(), parts)
    }

    /// The same agent with the tools that its MCP servers have now; those that run for a turn only are closed again.
    pub async fn with_servers(&self) -> Result<Self, AgentError> {
        let held = self.servers.acquire().await;
        let agent = self.with_catalogue(held.catalogue().clone());
        held.release().await;
        agent
    }

    /// The same processes and connections, whatever else differs.
    fn parts(&self) -> Parts {
        Parts {
            generation: self.generation.clone(),
            standing: self.standing.clone(),
            servers: self.servers.clone(),
            catalogue: self.catalogue.clone(),
            began_with: self.began_with.clone(),
            known: Some(self.registry.clone()),
            secrets: self.secrets.clone(),
        }
    }

    /// The same agent as a turn has it that began before this process did.
    pub(crate) fn resumed(
        &self,
        config: AgentConfig,
        generation: Generation,
        tools: PinnedTools,
    ) -> Result<Self, AgentError> {
        let (standing, began_with) = (Arc::default(), Some(Arc::new(tools)));
        Self::build(
            Configured::new(config)?,
            self.models.clone(),
            Parts { generation, standing, began_with, ..self.parts() },
        )
    }

    /// Its MCP servers. All agents that were made of one another share them.
    pub fn servers(&self) -> &McpServers {
        &self.servers
    }

    /// The tools of its MCP servers; none before they were asked.
    pub fn catalogue(&self) -> Option<&Arc<Catalogue>> {
        self.catalogue.as_ref()
    }

    /// MCP servers whose tools are left out, since one of them has a name that exists already (row 55).
    pub(crate) fn crowded_out(&self) -> &BTreeMap<String, RegistryError> {
        &self.crowded_out
    }

    /// The tool of an MCP server, by the name under which it is offered.
    pub(crate) fn mcp_tool(&self, name: &str) -> Option<&McpTool> {
        self.catalogue.as_ref()?.tool(name)
    }

    /// What each of its MCP servers says of its tools, as a digest: a part of its generation (P10).
    pub(crate) fn server_digests(&self) -> BTreeMap<&str, String> {
        let mut said: BTreeMap<&str, String> = BTreeMap::new();
        for tool in self.registry.tools() {
            if let ToolSource::Mcp { server, .. } = &tool.source {
                let said = said.entry(server).or_default();
                said.push_str(&format!("{} {}\n", tool.definition.name, tool.digest));
            }
        }
        said.into_iter().map(|(server, said)| (server, digest_of(said.as_bytes()).to_string())).collect()
    }

    /// What is configured.
    pub fn config(&self) -> &AgentConfig {
        &self.configured.config
    }

    /// The same agent with other models.
    pub fn with_models(&self, models: impl Into<Models>) -> Result<Self, AgentError> {
        Self::build(self.configured.clone(), models.into(), self.parts())
    }

    /// The same agent, working for that user: itself where it does already.
    pub(crate) fn for_user(self: &Arc<Self>, user: Option<&str>) -> Result<Arc<Self>, AgentError> {
        if self.config().user.as_deref() == user {
            return Ok(self.clone());
        }
        let config = AgentConfig { user: user.map(str::to_owned), ..self.config().clone() };
        Self::build(Configured::new(config)?, self.models.clone(), self.parts()).map(Arc::new)
    }

    /// Who answers.
    pub fn models(&self) -> &Models {
        &self.models
    }

    /// The bounds of a turn, with what ends it when no model answers.
    pub(crate) fn bounds(&self) -> LoopConfig {
        let (user, announced) = (self.config().user.clone(), self.config().outbox.announced);
        let fallback = self.fallback().unwrap_or_default();
        LoopConfig { user, fallback, announced, ..self.config().bounds.clone() }
    }

    /// The fixed text as an output: with an output schema, data that satisfies it.
    fn fallback(&self) -> Result<Option<OutputData>, AgentError> {
        let Some(text) = &self.models.fallback_text else { return Ok(None) };
        let Some(schema) = &self.configured.output_schema else { return Ok(Some(OutputData::Text(text.clone()))) };
        let json = serde_json::from_str(text).map_err(|error| AgentError::FallbackText(error.to_string()))?;
        let explained = |problems: Vec<Violation>| {
            let problems = problems.iter().map(|problem| format!("{} {}", problem.pointer, problem.message));
            AgentError::FallbackText(problems.collect::<Vec<_>>().join("; "))
        };
        schema.check(&json).map_err(explained)?;
        Ok(Some(OutputData::Json(json)))
    }

    /// Takes out of texts what nobody else is to see.
    pub fn redaction(&self) -> &Redaction {
        self.secrets.redaction()
    }

    /// Its plugins.
    pub fn generation(&self) -> &Generation {
        &self.generation
    }

    /// Its tools.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    pub(crate) fn tool_vectors(&self) -> &ToolVectors {
        &self.tool_vectors
    }

    /// Digest of the configuration, for the step records (D1).
    pub fn fingerprint(&self) -> &str {
        &self.configured.fingerprint
    }

    pub(crate) fn output_schema(&self) -> Option<&Schema> {
        self.configured.output_schema.as_ref()
    }

    /// The plugins as a turn is pinned to them (P10).
    pub fn pins(&self) -> Vec<PinnedPlugin> {
        let identities = self.generation.plugins().map(|plugin| plugin.identity());
        let pins = identities.map(|id| PinnedPlugin {
            name: id.name.clone(),
            digest: id.digest.clone(),
            instead_of: self.standing.rolled_back.get(&id.name).cloned(),
        });
        pins.collect()
    }

    /// How the versions of its plugins stand.
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// What the configuration grants a plugin, whatever it asks for.
    pub(crate) fn grants_of(&self, plugin: &str) -> Option<&Grants> {
        self.config().plugins.get(plugin).map(|allowance| &allowance.grants)
    }

    /// What persons have granted a plugin by their answers.
    pub(crate) fn answered_about(&self, plugin: &str) -> Option<&Answered> {
        self.config().plugins.get(plugin).map(|allowance| &allowance.answered)
    }

    /// Whether somebody may be asked for what a plugin lacks.
    pub(crate) fn asking_about(&self, plugin: &str) -> Asking {
        self.config().plugins.get(plugin).map(|allowance| allowance.asking).unwrap_or_default()
    }

    /// Its plugins with what it allows them, by name.
    pub fn setups(&self) -> &BTreeMap<String, PluginSetup> {
        &self.setups
    }

    pub(crate) fn context_builder(&self) -> Option<&PluginSetup> {
        self.config().context_builder.as_deref().and_then(|name| self.setups.get(name))
    }

    pub(crate) fn validators(&self) -> impl Iterator<Item = &PluginSetup> {
        self.config().validators.iter().filter_map(|name| self.setups.get(name))
    }

    pub(crate) fn media_policy(&self, provider: &str) -> Option<&PluginSetup> {
        let name = self.config().media_policies.get(provider)?;
        self.setups.get(name)
    }

    fn check_names(&self) -> Result<(), AgentError> {
        let builder = self.config().context_builder.iter().map(|name| ("context_builder", name, Kind::ContextBuilder));
        let validators = self.config().validators.iter().map(|name| ("validators", name, Kind::OutputValidator));
        let policies = self.config().media_policies.values().map(|name| ("media_policies", name, Kind::MediaPolicy));
        for (key, name, kind) in builder.chain(validators).chain(policies) {
            let Some(plugin) = self.generation.plugin(name) else {
                let loaded = self.generation.plugins().map(|plugin| plugin.identity().name.as_str());
                let loaded = loaded.collect::<Vec<_>>().join(", ");
                return Err(AgentError::NoPlugin { key, plugin: name.clone(), loaded });
            };
            if !plugin.kinds().contains(&kind) {
                return Err(AgentError::WrongKind { key, plugin: plugin.identity().to_string(), kind });
            }
        }
        Ok(())
    }
}

/// Where the tools of an agent are found, beside its configuration.
struct Found<'f> {
    generation: &'f Generation,
    catalogue: Option<&'f Catalogue>,
    /// The registry that served before.
    earlier: Option<&'f Registry>,
}

/// The registry, without the MCP servers that offer a name that exists already, and those servers with the reason. A server
/// that served a name before keeps it: then it is the other tool that cannot stand beside it (row 55).
fn registry_without_newcomers(
    configured: &Configured,
    found: &Found<'_>,
) -> Result<(Registry, BTreeMap<String, RegistryError>), RegistryError> {
    let mut left_out = BTreeMap::new();
    loop {
        let error = match registry(configured, found, &left_out) {
            Ok(registry) => return Ok((registry, left_out)),
            Err(error) => error,
        };
        match newcomer(&error, found.earlier) {
            Some(server) => left_out.insert(server, error),
            None => return Err(error),
        };
    }
}

/// The MCP server that offers a name which exists already; none where it is not a server's tool, or it served this name before.
fn newcomer(error: &RegistryError, earlier: Option<&Registry>) -> Option<String> {
    let RegistryError::Duplicate { name, second, .. } = error else { return None };
    let ToolSource::Mcp { server, .. } = &**second else { return None };
    let before = earlier.and_then(|earlier| earlier.source_of(name));
    let served = matches!(before, Some(ToolSource::Mcp { server: before, .. }) if before == server);
    (!served).then(|| server.clone())
}

/// One name space for the host's own tools, those of plugins, and those of MCP servers (L7).
fn registry(
    configured: &Configured,
    Found { generation, catalogue, earlier }: &Found<'_>,
    left_out: &BTreeMap<String, RegistryError>,
) -> Result<Registry, RegistryError> {
    let of_plugins = generation.plugins().flat_map(|plugin| {
        let identity = plugin.identity();
        let source = ToolSource::Plugin { plugin: identity.name.clone(), digest: identity.digest.clone() };
        plugin.tools().iter().map(move |tool| (tool, source.clone()))
    });
    let of_servers = catalogue.iter().flat_map(|catalogue| catalogue.tools());
    let of_servers = of_servers.filter(|tool| !left_out.contains_key(&tool.server));
    let of_servers = of_servers.map(|tool| (&tool.definition, ToolSource::of_server(&tool.server)));
    let found = of_plugins.chain(of_servers).map(|(tool, source)| {
        let rules = &configured.config.approvals;
        let availability = approvals::availability(rules, (tool, &source), Availability::Offered);
        (tool, source, availability)
    });
    let own = configured.tools.iter().map(|(tool, source, availability)| (tool, source.clone(), availability.clone()));
    let all = own.chain(found);
    Registry::after(*earlier, all.map(|(tool, source, availability)| (Cow::Borrowed(tool), source, availability)))
}
