//! An agent consists of a configuration, models, one generation of plugins, and the registry of all tools.

mod client_tools;
mod config;
mod delegate;
mod direct_call;
mod live;
pub mod models;
pub(crate) mod pinned;
mod service;
mod triggers;
mod user;

pub use self::config::{
    AgentConfig, AnsweredGrants, AskPolicy, DEFAULT_OFFERED_TOOLS, DEFAULT_REPLY_TOKENS, MemoryUse, OutboxConfig,
    PluginAllowance, RuleBinding, SummaryWriter,
};
pub use client_tools::ClientToolsError;
pub use delegate::Delegate;
pub use live::{LiveAgent, PluginVersions, VersionTrial};
pub use models::{Models, PlanningModels};
pub use service::{ANY_TYPE, ServiceConfig};
pub use triggers::{EventInput, MissedRuns, Schedule, Webhook, WebhookAuthentication};
pub use user::{UserName, UserNameError};

use self::config::Configured;
use crate::tools::registry::{Availability, Registry, RegistryError};
use crate::tools::{CommandTools, ToolVectors, commands, rules};
use agent_core::plugin::OutputData;
use agent_core::redaction::Redaction;
use agent_core::run::{LoopConfig, PinnedPlugin};
use agent_core::schema::{Schema, SchemaError};
use agent_core::tool::{ToolDefinition, ToolSource, Violation};
use agent_mcp::{Catalogue, McpConfigError, McpError, McpServers, McpTool};
use agent_plugins::{Generation, Grants, Kind, KnownSecrets, PluginSetup, ProgramTool, TreeGrant};
use agent_store::digest_of;
use pinned::PinnedTools;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// The reason why an agent cannot be built from its configuration and the loaded plugins.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Two tools of the agent have the same name, or the schema of a tool is invalid.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A configuration key names a plugin that is not loaded.
    #[error("`{key}` names the plugin `{plugin}`, which is not loaded; the loaded plugins are: {loaded}")]
    NoPlugin {
        /// The configuration key that names the plugin.
        key: &'static str,
        /// Name of the plugin that is not loaded.
        plugin: String,
        /// Names of all loaded plugins, separated by commas.
        loaded: String,
    },
    /// The value of a configuration key is the name of a plugin that does not have the required kind.
    #[error("`{key}` names the plugin {plugin}, which does not export {kind}")]
    WrongKind {
        /// The configuration key that names the plugin.
        key: &'static str,
        /// The plugin that lacks the required kind, in the form `name@digest`.
        plugin: String,
        /// The kind of plugin that the configuration key requires, for example an output validator.
        kind: Kind,
    },
    /// The output schema in the agent's configuration is invalid.
    #[error("`output_schema`: {0}")]
    OutputSchema(#[from] SchemaError),
    /// A JSON Schema for the answers of a service is invalid.
    #[error("`services.{name}`: the schema in `emits` for `{event_type}` cannot be used: {error}")]
    Service {
        /// Name of the service's tool.
        name: String,
        /// The invalid schema applies to answers of this event type.
        event_type: String,
        /// The reason why the schema is invalid.
        error: SchemaError,
    },
    /// The fallback text is not JSON, or does not satisfy the output schema.
    #[error("`fallback_text` must be JSON that satisfies `output_schema`: {0}")]
    FallbackText(String),
    /// The tools of a client cannot be offered.
    #[error(transparent)]
    ClientTools(#[from] ClientToolsError),
    /// The configuration of an MCP server is invalid.
    #[error(transparent)]
    Mcp(#[from] McpConfigError),
}

/// An immutable snapshot of an agent that is ready to run sessions.
pub struct Agent {
    configured: Arc<Configured>,
    models: Models,
    generation: Generation,
    versions: Arc<PluginVersions>,
    setups: BTreeMap<String, PluginSetup>,
    servers: McpServers,
    catalogue: Option<Arc<Catalogue>>,
    registry: Arc<Registry>,
    /// MCP servers whose tools are left out of the registry, because at least one of the tools has the same name as
    /// another tool of the agent. Each entry maps the name of a server to the error that describes its name conflict.
    servers_left_out: BTreeMap<String, RegistryError>,
    /// The tools with which a resumed turn began. `None` if this agent is not the agent of a resumed turn.
    pinned_tools: Option<Arc<PinnedTools>>,
    tool_vectors: ToolVectors,
    /// Secrets of the plugins, MCP servers and models, which must not be disclosed.
    secrets: Arc<KnownSecrets>,
    /// The configuration of the variant that runs direct calls. It is created when it is used for the first time.
    direct_calls: OnceLock<Arc<Configured>>,
}

/// All parts from which an agent is built, except its configuration and its models.
struct AgentParts {
    generation: Generation,
    versions: Arc<PluginVersions>,
    servers: McpServers,
    catalogue: Option<Arc<Catalogue>>,
    pinned_tools: Option<Arc<PinnedTools>>,
    /// The tool registry of the agent that is being changed, or `None` if an agent is built for the first time. The new
    /// agent's registry reuses the unchanged parts of this registry.
    known: Option<Arc<Registry>>,
    /// Secrets that earlier configurations of the agent contained. A plugin or server that received a secret from an
    /// earlier configuration may still disclose it.
    secrets: Arc<KnownSecrets>,
}

impl Agent {
    /// Checks that the plugins fit the configuration, and builds the registry of tools. The MCP servers are not
    /// contacted here: their tools are added to the registry when a turn begins.
    pub fn new(config: AgentConfig, models: impl Into<Models>, generation: Generation) -> Result<Self, AgentError> {
        let servers = McpServers::new(config.mcp.iter().cloned())?;
        let (versions, catalogue, pinned_tools, known) = (Arc::default(), None, None, None);
        let secrets = Arc::default();
        let parts = AgentParts { generation, versions, servers, catalogue, pinned_tools, known, secrets };
        Self::build(Configured::new(config)?, models.into(), parts)
    }

    fn build(configured: Arc<Configured>, models: Models, parts: AgentParts) -> Result<Self, AgentError> {
        let AgentParts { generation, versions, servers, catalogue, pinned_tools, known, secrets } = parts;
        let secrets = Arc::new(
            models.secrets().into_iter().fold(secrets.and(&configured.secrets), |known, (redaction, given_to)| {
                known.with(&redaction, &given_to)
            }),
        );
        let absent =
            catalogue.iter().flat_map(|catalogue| catalogue.problems()).filter_map(McpError::unavailable_server);
        let absent = absent.map(|(server, reason)| (server.to_owned(), reason));
        let sources =
            ToolSources { generation: &generation, catalogue: catalogue.as_deref(), earlier: known.as_deref() };
        let (registry, servers_left_out) = registry_without_conflicting_servers(&configured, &sources)?;
        let registry = registry.with_absent_servers(absent);
        let registry = match &pinned_tools {
            // The MCP servers have not been queried yet, so none of their tools counts as missing.
            Some(tools) if catalogue.is_none() && !configured.config.mcp.is_empty() => {
                registry.with_availability(|tool| pinned::pinned_availability(tool, tools))
            }
            Some(tools) => registry
                .with_availability(|tool| pinned::pinned_availability(tool, tools))
                .with_missing_tools(tools.of_servers()),
            None => registry,
        };
        let setups = generation.plugins().map(|plugin| {
            let PluginAllowance { grants, limits, .. } = configured.config.allowance(plugin.name());
            let trial = versions.trials.get(plugin.name()).filter(|trial| trial.digest == *plugin.digest());
            let trial = trial.map(|trial| trial.calls.clone());
            (
                plugin.name().to_owned(),
                PluginSetup::new(plugin.clone(), grants, limits).on_trial(trial).with_secrets(&secrets),
            )
        });
        let setups = setups.collect();
        let tool_vectors = ToolVectors::default();
        let registry = Arc::new(registry);
        let agent = Self {
            configured,
            models,
            generation,
            versions,
            setups,
            servers,
            catalogue,
            registry,
            servers_left_out,
            pinned_tools,
            tool_vectors,
            secrets,
            direct_calls: OnceLock::new(),
        };
        agent.check_names()?;
        agent.fallback()?;
        Ok(agent)
    }

    /// Returns a copy of this agent that uses these plugins, for example the plugins that a turn is pinned to.
    pub fn with_generation(&self, generation: Generation) -> Result<Self, AgentError> {
        self.with_plugins(generation, PluginVersions::default())
    }

    /// Returns a copy of this agent that uses these plugins. `versions` states which plugin versions are on trial, and
    /// which plugin versions were rolled back.
    pub fn with_plugins(&self, generation: Generation, versions: PluginVersions) -> Result<Self, AgentError> {
        let parts = AgentParts { generation, versions: Arc::new(versions), ..self.parts() };
        Self::build(self.configured.clone(), self.models.clone(), parts)
    }

    /// Returns a copy of this agent with this configuration. The copy uses the MCP servers of this agent.
    pub fn with_config(&self, config: AgentConfig) -> Result<Self, AgentError> {
        Self::build(Configured::new(config)?, self.models.clone(), self.parts())
    }

    /// Returns a copy of this agent with this configuration and these models. The copy keeps the grants that users have
    /// given in answer to first-use questions, and the MCP servers and delegates of this agent.
    pub fn reconfigured(&self, config: AgentConfig, models: Models) -> Result<Self, AgentError> {
        let (mcp, delegates) = (self.config().mcp.clone(), self.config().delegates.clone());
        let mut config = AgentConfig { mcp, delegates, ..config };
        for (plugin, PluginAllowance { answered, ceiling, .. }) in &self.config().plugins {
            let allowance = config.allowance_mut(plugin);
            let configured = std::mem::take(&mut allowance.grants);
            let configured = ceiling.as_ref().map_or_else(|| configured.clone(), |ceiling| configured.within(ceiling));
            allowance.grants = configured.clone().and(&answered.temporary);
            (allowance.answered, allowance.ceiling) = (answered.clone(), ceiling.clone());
            allowance.lasting = Some(configured);
        }
        Self::build(Configured::new(config)?, models, self.parts())
    }

    /// Returns a copy of this agent in which a plugin has the grants in a user's answer in addition to the grants that
    /// it had before (P6).
    pub(crate) fn with_answer(&self, plugin: &str, answered: &AnsweredGrants) -> Result<Self, AgentError> {
        let mut config = self.config().clone();
        let allowance = config.allowance_mut(plugin);
        let before = std::mem::take(&mut allowance.grants);
        let lasting = allowance.lasting.take().unwrap_or_else(|| before.clone()).and(&answered.permanent);
        allowance.grants = before.and(&answered.temporary).and(&answered.permanent);
        allowance.lasting = Some(lasting);
        let AnsweredGrants { temporary, permanent } = std::mem::take(&mut allowance.answered);
        let (temporary, permanent) = (temporary.and(&answered.temporary), permanent.and(&answered.permanent));
        allowance.answered = AnsweredGrants { temporary, permanent };
        allowance.ceiling = allowance.ceiling.take().map(|ceiling| ceiling.and(&answered.permanent));
        self.with_config(config)
    }

    /// Returns a copy of this agent without the grants that were given only until the user leaves the session.
    pub(crate) fn without_temporary_grants(&self) -> Result<Self, AgentError> {
        let mut config = self.config().clone();
        for allowance in config.plugins.values_mut() {
            allowance.answered.temporary = Grants::default();
            if let Some(lasting) = allowance.lasting.take() {
                allowance.grants = lasting;
            }
        }
        self.with_config(config)
    }

    /// Returns a copy of this agent in which a plugin keeps only the part of its grants that `reduced` returns. Until the
    /// host process exits, changes of the configuration do not give the plugin more than that (P10).
    pub(crate) fn with_reduced_grants(
        &self,
        plugin: &str,
        reduced: &dyn Fn(&Grants) -> Grants,
    ) -> Result<Self, AgentError> {
        let mut config = self.config().clone();
        let allowance = config.allowance_mut(plugin);
        allowance.grants = reduced(&allowance.grants);
        let AnsweredGrants { temporary, permanent } = &allowance.answered;
        allowance.answered = AnsweredGrants { temporary: reduced(temporary), permanent: reduced(permanent) };
        allowance.lasting = allowance.lasting.as_ref().map(reduced);
        allowance.ceiling = Some(allowance.grants.clone());
        self.with_config(config)
    }

    /// Returns a copy of this agent that has the MCP tools in this catalogue.
    pub fn with_catalogue(&self, catalogue: Arc<Catalogue>) -> Result<Self, AgentError> {
        let parts = AgentParts { catalogue: Some(catalogue), ..self.parts() };
        Self::build(self.configured.clone(), self.models.clone(), parts)
    }

    /// Returns a copy of this agent that has the current tools of its MCP servers. Servers that run only during turns
    /// are started to read their tools, and are closed afterwards.
    pub async fn with_servers(&self) -> Result<Self, AgentError> {
        let held = self.servers.acquire().await;
        let agent = self.with_catalogue(held.catalogue().clone());
        held.release().await;
        agent
    }

    /// Returns the parts from which a changed copy of this agent can be built. The copy shares the MCP servers of
    /// this agent.
    fn parts(&self) -> AgentParts {
        AgentParts {
            generation: self.generation.clone(),
            versions: self.versions.clone(),
            servers: self.servers.clone(),
            catalogue: self.catalogue.clone(),
            pinned_tools: self.pinned_tools.clone(),
            known: Some(self.registry.clone()),
            secrets: self.secrets.clone(),
        }
    }

    /// Returns a copy of this agent for a turn that began in an earlier process. The copy has the plugins and tools of
    /// that turn.
    pub(crate) fn resumed(
        &self,
        config: AgentConfig,
        generation: Generation,
        tools: PinnedTools,
    ) -> Result<Self, AgentError> {
        let (versions, pinned_tools) = (Arc::default(), Some(Arc::new(tools)));
        Self::build(
            Configured::new(config)?,
            self.models.clone(),
            AgentParts { generation, versions, pinned_tools, ..self.parts() },
        )
    }

    /// Returns the agent's MCP servers. Agents that were derived from this agent share its servers.
    pub fn servers(&self) -> &McpServers {
        &self.servers
    }

    /// Returns the catalogue of the tools that the agent's MCP servers offer, or `None` if the servers have not been
    /// queried yet.
    pub fn catalogue(&self) -> Option<&Arc<Catalogue>> {
        self.catalogue.as_ref()
    }

    /// Returns the MCP servers whose tools are left out of the registry, because at least one of the tools has the
    /// same name as another tool of the agent (row 55). Each server is returned with the error that describes
    /// its name conflict.
    pub(crate) fn servers_left_out(&self) -> &BTreeMap<String, RegistryError> {
        &self.servers_left_out
    }

    /// Returns a tool of an MCP server by its name in the registry.
    pub(crate) fn mcp_tool(&self, name: &str) -> Option<&McpTool> {
        self.catalogue.as_ref()?.tool(name)
    }

    /// Returns the digest of each MCP server's tool definitions, by the name of the server. The digests are part of the
    /// agent's generation (P10).
    pub(crate) fn server_digests(&self) -> BTreeMap<String, String> {
        let mut definitions: BTreeMap<&str, String> = BTreeMap::new();
        for tool in self.registry.tools() {
            if let ToolSource::Mcp { server, .. } = &tool.source {
                let of_server = definitions.entry(server).or_default();
                of_server.push_str(&format!("{} {}\n", tool.definition.name, tool.digest));
            }
        }
        let digest = |(server, text): (&str, String)| (server.to_owned(), digest_of(text.as_bytes()).to_string());
        definitions.into_iter().map(digest).collect()
    }

    /// Returns the agent's configuration.
    pub fn config(&self) -> &AgentConfig {
        &self.configured.config
    }

    /// Returns a copy of this agent that uses these models.
    pub fn with_models(&self, models: impl Into<Models>) -> Result<Self, AgentError> {
        Self::build(self.configured.clone(), models.into(), self.parts())
    }

    /// Returns a copy of this agent that works on behalf of this user. If the agent already works for this user, the
    /// agent is returned unchanged.
    pub(crate) fn for_user(self: &Arc<Self>, user: Option<&str>) -> Result<Arc<Self>, AgentError> {
        if self.config().user.as_deref() == user {
            return Ok(self.clone());
        }
        let config = AgentConfig { user: user.map(str::to_owned), ..self.config().clone() };
        Self::build(Configured::new(config)?, self.models.clone(), self.parts()).map(Arc::new)
    }

    /// Returns the agent's models.
    pub fn models(&self) -> &Models {
        &self.models
    }

    /// Returns the settings and limits with which a turn of this agent runs. The settings include the fallback output,
    /// which becomes the output of the turn if no model replies.
    pub(crate) fn bounds(&self) -> LoopConfig {
        let (user, announced) = (self.config().user.clone(), self.config().outbox.announced);
        let fallback = self.fallback().unwrap_or_default();
        LoopConfig { user, fallback, announced, ..self.config().bounds.clone() }
    }

    /// Converts the fallback text to an output. If the agent has an output schema, the text is parsed as JSON and must
    /// satisfy the schema.
    fn fallback(&self) -> Result<Option<OutputData>, AgentError> {
        let Some(text) = &self.models.fallback_text else { return Ok(None) };
        let Some(schema) = &self.configured.output_schema else { return Ok(Some(OutputData::Text(text.clone()))) };
        let json = serde_json::from_str(text).map_err(|error| AgentError::FallbackText(error.to_string()))?;
        let schema_error = |problems: Vec<Violation>| {
            let problems = problems.iter().map(|problem| format!("{} {}", problem.pointer, problem.message));
            AgentError::FallbackText(problems.collect::<Vec<_>>().join("; "))
        };
        schema.check(&json).map_err(schema_error)?;
        Ok(Some(OutputData::Json(json)))
    }

    /// Returns the redaction that removes the agent's secrets from texts.
    pub fn redaction(&self) -> &Redaction {
        self.secrets.redaction()
    }

    /// Returns the agent's plugins.
    pub fn generation(&self) -> &Generation {
        &self.generation
    }

    /// Returns the registry of the agent's tools.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    pub(crate) fn tool_vectors(&self) -> &ToolVectors {
        &self.tool_vectors
    }

    /// Returns the digest of the configuration in the form in which step records store it (D1).
    pub fn fingerprint(&self) -> &str {
        &self.configured.fingerprint
    }

    pub(crate) fn output_schema(&self) -> Option<&Schema> {
        self.configured.output_schema.as_ref()
    }

    /// Returns the plugin versions to which a turn that begins with this agent is pinned (P10).
    pub fn pins(&self) -> Vec<PinnedPlugin> {
        let identities = self.generation.plugins().map(|plugin| plugin.identity());
        let pins = identities.map(|id| PinnedPlugin {
            name: id.name.clone(),
            digest: id.digest.clone(),
            instead_of: self.versions.rolled_back.get(&id.name).cloned(),
        });
        pins.collect()
    }

    /// Returns the plugin versions that were rolled back, the versions that are on trial, and the versions that
    /// were refused.
    pub fn versions(&self) -> &PluginVersions {
        &self.versions
    }

    /// Returns the grants that the configuration gives to a plugin, including grants that the plugin does not ask for.
    pub(crate) fn grants_of(&self, plugin: &str) -> Option<&Grants> {
        self.config().plugins.get(plugin).map(|allowance| &allowance.grants)
    }

    /// Returns the grants that users have given to a plugin at its first use.
    pub(crate) fn answered_grants(&self, plugin: &str) -> Option<&AnsweredGrants> {
        self.config().plugins.get(plugin).map(|allowance| &allowance.answered)
    }

    /// Returns whether the user may be asked for the grants that a plugin lacks.
    pub(crate) fn ask_policy(&self, plugin: &str) -> AskPolicy {
        self.config().plugins.get(plugin).map(|allowance| allowance.asking).unwrap_or_default()
    }

    /// Returns the agent's plugins with their grants and limits, by name.
    pub fn setups(&self) -> &BTreeMap<String, PluginSetup> {
        &self.setups
    }

    /// Returns the directories that the agent's plugins, the host's file tools and the agent's delegates may access, with
    /// absolute paths. A directory may occur several times.
    pub fn granted_trees(&self) -> Vec<TreeGrant> {
        let own = self.config().host_trees.iter().chain(self.setups.values().flat_map(|setup| &setup.grants().trees));
        let absolute = |tree: &TreeGrant| TreeGrant {
            host: std::path::absolute(&tree.host).unwrap_or_else(|_| tree.host.clone()),
            ..tree.clone()
        };
        let delegates = self.config().delegates.values().flat_map(|delegate| delegate.agent.current().granted_trees());
        own.map(absolute).chain(delegates).collect()
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

/// The parts of an agent from which its tools come, except the agent's configuration.
struct ToolSources<'f> {
    generation: &'f Generation,
    catalogue: Option<&'f Catalogue>,
    /// The tool registry that the agent had before the current change. `None` if the agent had no registry yet.
    earlier: Option<&'f Registry>,
}

/// Builds the tool registry. If an MCP server offers a tool whose name another tool already has, all tools of the
/// server are left out, and the server is returned together with the name conflict. If the server's tool already had
/// this name in the previous registry, the server is not left out, and the conflict is an error (row 55).
fn registry_without_conflicting_servers(
    configured: &Configured,
    sources: &ToolSources<'_>,
) -> Result<(Registry, BTreeMap<String, RegistryError>), RegistryError> {
    let mut left_out = BTreeMap::new();
    loop {
        let error = match registry(configured, sources, &left_out) {
            Ok(registry) => return Ok((registry, left_out)),
            Err(error) => error,
        };
        match conflicting_server(&error, sources.earlier) {
            Some(server) => left_out.insert(server, error),
            None => return Err(error),
        };
    }
}

/// Returns the MCP server whose tools must be left out of the registry to resolve a conflict between two tools of the
/// same name. Returns `None` if the second of these tools does not belong to an MCP server, or if the second tool's
/// server already had a tool of this name in the previous registry.
fn conflicting_server(error: &RegistryError, earlier: Option<&Registry>) -> Option<String> {
    let RegistryError::Duplicate { name, second, .. } = error else { return None };
    let ToolSource::Mcp { server, .. } = &**second else { return None };
    let earlier_source = earlier.and_then(|earlier| earlier.source_of(name));
    let had_name = matches!(earlier_source, Some(ToolSource::Mcp { server: earlier, .. }) if earlier == server);
    (!had_name).then(|| server.clone())
}

/// Builds one tool registry from the configured tools, the tools of plugins, and the tools of MCP servers (L7).
fn registry(
    configured: &Configured,
    ToolSources { generation, catalogue, earlier }: &ToolSources<'_>,
    left_out: &BTreeMap<String, RegistryError>,
) -> Result<Registry, RegistryError> {
    let programs: Vec<(&str, ProgramTool<'_>)> = match configured.config.command_tools {
        CommandTools::Each => Vec::new(),
        CommandTools::One => {
            generation.plugins().filter_map(|plugin| Some((plugin.name(), plugin.program()?))).collect()
        }
    };
    let is_run_by_name = |tool: &ToolDefinition, source: &ToolSource| {
        let ToolSource::Plugin { plugin, .. } = source else { return false };
        programs.iter().any(|(owner, program)| owner == plugin && program.name == tool.name)
    };
    let of_plugins = generation.plugins().flat_map(|plugin| {
        let identity = plugin.identity();
        let source = ToolSource::Plugin { plugin: identity.name.clone(), digest: identity.digest.clone() };
        plugin.tools().iter().map(move |tool| (tool, source.clone()))
    });
    let of_servers = catalogue.iter().flat_map(|catalogue| catalogue.tools());
    let of_servers = of_servers.filter(|tool| !left_out.contains_key(&tool.server));
    let of_servers = of_servers.map(|tool| (&tool.definition, ToolSource::of_server(&tool.server)));
    let external = of_plugins.chain(of_servers).map(|(tool, source)| {
        let approvals = &configured.config.approvals;
        let otherwise = if is_run_by_name(tool, &source) { Availability::RunByName } else { Availability::Offered };
        let availability = rules::availability(approvals, (tool, &source), otherwise);
        (tool, source, availability)
    });
    let external: Vec<_> = external.collect();
    let available = |program: &ProgramTool<'_>| {
        external
            .iter()
            .any(|(tool, _, availability)| tool.name == program.name && matches!(availability, Availability::RunByName))
    };
    let programs: Vec<_> =
        programs.into_iter().filter(|(_, program)| available(program)).map(|(_, program)| program).collect();
    let run_command = (!programs.is_empty()).then(|| {
        let (tool, source) = (commands::definition(&programs), ToolSource::BuiltIn);
        let availability = rules::availability(&configured.config.approvals, (&tool, &source), Availability::Offered);
        (Cow::Owned(tool), source, availability)
    });
    let own = configured.tools.iter().map(|(tool, source, availability)| (tool, source.clone(), availability.clone()));
    let borrowed = |(tool, source, availability)| (Cow::Borrowed(tool), source, availability);
    Registry::build(*earlier, own.map(borrowed).chain(run_command).chain(external.into_iter().map(borrowed)))
}
