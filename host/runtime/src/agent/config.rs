//! What is configured for an agent, and what is made of it once, however often its plugins change.

use super::AgentError;
use crate::approvals;
use crate::builtins;
use crate::delegation::Delegate;
use crate::outbox::OutboxConfig;
use crate::registry::Availability;
use crate::remember::MemoryUse;
use crate::services::ServiceConfig;
use crate::summary::SummaryWriter;
use agent_core::approval::ApprovalRules;
use agent_core::loop_break::Finish;
use agent_core::prompt::PromptParts;
use agent_core::run::LoopConfig;
use agent_core::schema::Schema;
use agent_core::text_dialect::ToolDialect;
use agent_core::tool::{ToolDefinition, ToolSource};
use agent_mcp::ServerConfig;
use agent_plugins::{CallLimits, GivenTo, Grants, KnownSecrets, TreeGrant, Vetting};
use agent_store::digest_of;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Tokens kept for the reply unless configured otherwise.
pub const DEFAULT_REPLY_TOKENS: u32 = 4_096;

/// Tools that are offered at most unless configured otherwise (L25).
pub const DEFAULT_OFFERED_TOOLS: u32 = 15;

/// What an agent allows one plugin.
#[derive(Clone, Debug, Default)]
pub struct PluginAllowance {
    /// What it may reach. Default: nothing.
    pub grants: Grants,
    /// Of each of its calls.
    pub limits: CallLimits,
    /// Whether somebody at a terminal is asked for what it lacks at its first use.
    pub asking: Asking,
    /// What a person has answered while the host ran. Turns that are open have it, too.
    pub answered: Answered,
}

/// Whether somebody is asked for what a plugin lacks (P6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asking {
    /// At its first use, where somebody is there.
    #[default]
    AtFirstUse,
    /// What is not granted is refused.
    Never,
}

/// Grants that a person gave to a plugin at its first use.
#[derive(Clone, Debug, Default)]
pub struct Answered {
    /// For as long as the host runs, whatever the configuration says meanwhile.
    pub for_this_run: Grants,
    /// For good: they stand in the configuration, and when they are taken out of it, they end.
    pub for_good: Grants,
}

/// What a rule that allows a tool by its exact name is bound to (row 52).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RuleBinding {
    /// The component by its digest, or the server by how it is reached.
    #[default]
    Identity,
    /// The plugin's name: while its author develops it, each build is another component.
    Name,
}

/// What is configured for one agent.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// Its name; also the beginning of its sessions' subjects.
    pub name: String,
    /// Its file, where it has one. Approvals and rules belong to the agent of this file (row 52).
    pub file: Option<PathBuf>,
    /// What rules that allow a tool by its exact name are bound to. Default: the component or server that offers it.
    pub rule_binding: RuleBinding,
    /// Is asked about its components beside the host's own vetting: an agent below another one may demand more. Default: nobody.
    pub vetting: Option<Arc<dyn Vetting>>,
    /// Whose long-term memory it uses. None: nobody's.
    pub user: Option<String>,
    /// What of it (D4). Default: the answers of all agents of the user, and what its own tools brought.
    pub memory: MemoryUse,
    /// Of each turn.
    pub bounds: LoopConfig,
    /// For the prompt.
    pub prompt: PromptParts,
    /// Most tokens of a reply. Default 4,096.
    pub reply_tokens: u32,
    /// Who summarises what leaves the prompt (L27). Default: a model.
    pub summary: SummaryWriter,
    /// How its models call tools (L20). Default: by their providers' own means.
    pub tool_dialect: ToolDialect,
    /// With more tools than this, only so many are offered: those nearest to the input (L25). Default 15.
    pub offered_tools: u32,
    /// Whether the output holds the turn's messages (L13).
    pub include_history: bool,
    /// JSON Schema of the output (L12).
    pub output_schema: Option<Value>,
    /// Grants and limits by plugin name. A plugin that is not named is granted nothing, and has the agent's limits.
    pub plugins: BTreeMap<String, PluginAllowance>,
    /// Limits of the calls of plugins that are not named.
    pub limits: CallLimits,
    /// What the host's own file tools may read.
    pub host_trees: Vec<TreeGrant>,
    /// The plugin that builds the context. None: the host's own assembly.
    pub context_builder: Option<String>,
    /// Plugins that validate the output, in order.
    pub validators: Vec<String>,
    /// Plugin by the provider's name (P4).
    pub media_policies: BTreeMap<String, String>,
    /// Services by the name of their tool (L7).
    pub services: BTreeMap<String, ServiceConfig>,
    /// Where events go (I6).
    pub outbox: OutboxConfig,
    /// Agents that it may delegate to, by the name of their tool (L16). Default: none.
    pub delegates: BTreeMap<String, Delegate>,
    /// MCP servers whose tools it has (I5).
    pub mcp: Vec<ServerConfig>,
    /// Which tools may run unasked (L17). Default: those that don't ask for an approval themselves.
    pub approvals: ApprovalRules,
}

impl AgentConfig {
    /// Whether the configuration says something about a plugin: what it may do, or which part of the work it has.
    pub fn names(&self, plugin: &str) -> bool {
        let mut roles = self.context_builder.iter().chain(&self.validators).chain(self.media_policies.values());
        self.plugins.contains_key(plugin) || roles.any(|name| name == plugin)
    }

    /// An agent with all defaults.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            file: None,
            rule_binding: RuleBinding::default(),
            vetting: None,
            user: None,
            memory: MemoryUse::default(),
            bounds: LoopConfig::default(),
            prompt: PromptParts::default(),
            reply_tokens: DEFAULT_REPLY_TOKENS,
            summary: SummaryWriter::default(),
            tool_dialect: ToolDialect::Native,
            offered_tools: DEFAULT_OFFERED_TOOLS,
            include_history: false,
            output_schema: None,
            plugins: BTreeMap::new(),
            limits: CallLimits::default(),
            host_trees: Vec::new(),
            context_builder: None,
            validators: Vec::new(),
            media_policies: BTreeMap::new(),
            services: BTreeMap::new(),
            outbox: OutboxConfig::default(),
            delegates: BTreeMap::new(),
            mcp: Vec::new(),
            approvals: ApprovalRules::default(),
        }
    }
}

impl AgentConfig {
    /// The agent as the store's records of approvals and components name it: a file elsewhere is another agent.
    pub(crate) fn record_name(&self) -> String {
        let file = self.file.as_deref().map(|file| file.to_string_lossy().into_owned());
        file.map_or_else(|| self.name.clone(), |file| format!("{} {file}", self.name))
    }

    /// What the plugin is allowed.
    pub(crate) fn allowance(&self, plugin: &str) -> PluginAllowance {
        self.plugins.get(plugin).cloned().unwrap_or_else(|| PluginAllowance::with(self.limits))
    }

    /// The same, to be changed.
    pub(super) fn allowance_mut(&mut self, plugin: &str) -> &mut PluginAllowance {
        let limits = self.limits;
        self.plugins.entry(plugin.to_owned()).or_insert_with(|| PluginAllowance::with(limits))
    }
}

impl PluginAllowance {
    fn with(limits: CallLimits) -> Self {
        Self { limits, ..Self::default() }
    }
}

/// A configuration that was checked, with what depends on nothing else.
pub(super) struct Configured {
    pub(super) config: AgentConfig,
    pub(super) output_schema: Option<Schema>,
    pub(super) fingerprint: String,
    /// The host's own tools, agents that it may delegate to, and services.
    pub(super) tools: Vec<(ToolDefinition, ToolSource, Availability)>,
    /// Of its plugins and MCP servers.
    pub(super) secrets: KnownSecrets,
}

impl Configured {
    pub(super) fn new(config: AgentConfig) -> Result<Arc<Self>, AgentError> {
        for (name, service) in &config.services {
            let wrong = |(event_type, error)| AgentError::Service { name: name.clone(), event_type, error };
            service.check().map_err(wrong)?;
        }
        let output_schema = config.output_schema.as_ref().map(Schema::compile).transpose()?;
        let fingerprint = digest_of(format!("{config:?}").as_bytes()).to_string();
        let own = builtins::definitions(!config.host_trees.is_empty());
        let finishing = match config.bounds.finish {
            Finish::Tool => builtins::finishing_definitions(config.output_schema.as_ref()),
            Finish::Text => Vec::new(),
        };
        let offered = Availability::Offered;
        let delegates = config.delegates.iter();
        let delegates = delegates.map(|(name, to)| (to.definition(name), to.source(), offered.clone()));
        let services = config.services.iter();
        let services = services.map(|(name, service)| (service.definition(name), service.source(), offered.clone()));
        let all = own.into_iter().chain(finishing).chain(delegates).chain(services);
        let tools = all.map(|(tool, source, otherwise)| {
            let availability = approvals::availability(&config.approvals, (&tool, &source), otherwise);
            (tool, source, availability)
        });
        let tools = tools.collect();
        let secrets = secrets_of(&config);
        Ok(Arc::new(Self { config, output_schema, fingerprint, tools, secrets }))
    }
}

fn secrets_of(config: &AgentConfig) -> KnownSecrets {
    let granted = config.plugins.values().flat_map(|allowance| {
        let answered = [&allowance.answered.for_this_run, &allowance.answered.for_good];
        std::iter::once(&allowance.grants).chain(answered).flat_map(|grants| &grants.secrets)
    });
    config.mcp.iter().fold(KnownSecrets::new(granted), |known, server| {
        // Nobody knows which servers a program asks.
        let given_to = agent_mcp::host_of(server).map_or(GivenTo::Somebody, GivenTo::Host);
        known.with(&agent_mcp::secrets_of(server), &given_to)
    })
}
