//! The configuration of an agent, and the parts of an agent that depend only on the configuration.

use super::{AgentError, Delegate, EventInput, Schedule, ServiceConfig, Webhook};
use crate::http_sink::HttpSink;
use crate::tools::registry::Availability;
use crate::tools::{CommandTools, builtins, rules};
use agent_core::approval::ApprovalRules;
use agent_core::loop_break::Finish;
use agent_core::prompt::PromptParts;
use agent_core::run::{AnnouncedEvents, LoopConfig};
use agent_core::schema::Schema;
use agent_core::text_dialect::ToolDialect;
use agent_core::tool::{ClientTool, ToolDefinition, ToolSource};
use agent_mcp::ServerConfig;
use agent_plugins::{CallLimits, ComponentSource, ComponentVerifier, Grants, KnownSecrets, SecretHolder, TreeGrant};
use agent_store::digest_of;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Default for the maximum number of tokens of a model's reply. The host also keeps this many tokens of the
/// context window free for the reply.
pub const DEFAULT_REPLY_TOKENS: u32 = 4_096;

/// Default for the maximum number of tools that are offered to the model (L25).
pub const DEFAULT_OFFERED_TOOLS: u32 = 15;

/// The grants and limits that an agent gives to one plugin.
#[derive(Clone, Debug, Default)]
pub struct PluginAllowance {
    /// Resources that the plugin may access. By default, the plugin has no access.
    pub grants: Grants,
    /// Limits of each call to the plugin.
    pub limits: CallLimits,
    /// Whether the host asks the user for the grants that the plugin lacks when the plugin is used for the first time.
    pub asking: AskPolicy,
    /// Grants that users have given to the plugin since the host started. Unlike changes of the configuration, these
    /// grants apply to turns that are already open.
    pub answered: AnsweredGrants,
    /// The grants that remain when the temporary grants in `answered` end. `None` means that all of `grants` remain.
    pub lasting: Option<Grants>,
    /// The most that the plugin gets until the host process exits, whatever the configuration grants later. `None` means
    /// that no user has revoked grants of the plugin since the host started.
    pub ceiling: Option<Grants>,
}

/// Whether the user is asked to give the grants that a plugin lacks (P6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AskPolicy {
    /// If a user is at the terminal, the host asks this user when the plugin is used for the first time.
    #[default]
    AtFirstUse,
    /// The user is not asked for missing grants. Every access that the configuration does not grant is denied.
    Never,
}

/// Grants that a user gave in answer to the question at a plugin's first use.
#[derive(Clone, Debug, Default)]
pub struct AnsweredGrants {
    /// Grants that are valid until the user leaves the session, or until the host process exits, even if the
    /// configuration changes.
    pub temporary: Grants,
    /// Permanent grants, which are also written to the configuration file. A permanent grant is revoked when it is
    /// removed from the configuration file.
    pub permanent: Grants,
}

/// How the host identifies the plugin or MCP server to which a rule with a tool's exact name is bound (row 52).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RuleBinding {
    /// The rule is bound to the digest of the plugin's component, or to the transport of the MCP server.
    #[default]
    Identity,
    /// The rule is bound to the name of the plugin. This binding is meant for plugin development, where the digest of
    /// the component changes with each build.
    Name,
}

/// The part of the user's long-term memory that an agent uses (D4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryUse {
    /// As [`MemoryUse::User`], but the agent recalls only memories of its project folder and memories without a project
    /// folder. If the agent has no project folder, as in a server, it recalls only its own memories without a project folder.
    #[default]
    Project,
    /// The agent stores the results of its tools and how its turns ended. The agent recalls the results of its own
    /// tools, and how the turns of all agents of the user ended, in all projects.
    User,
    /// The agent recalls only memories that it has stored itself. Other agents of the user may still recall how this
    /// agent's turns ended.
    Agent,
    /// The agent neither recalls nor stores memories.
    Off,
}

/// The author of the summary of messages that are removed from the prompt: a model or the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SummaryWriter {
    /// The configured summary model writes the summary. If no summary model is configured, the model that answers the
    /// user writes the summary. If the model fails, the host extracts the summary from the messages.
    #[default]
    Model,
    /// The host extracts the summary from the messages, and no model is called.
    Extract,
}

/// Configuration of outgoing events: which events the host sends, and where it delivers them. An event is delivered when
/// all configured receivers have it. Without a receiver, events stay in the store.
#[derive(Clone, Debug, Default)]
pub struct OutboxConfig {
    /// Directory in which each event is written to a file.
    pub directory: Option<PathBuf>,
    /// Server to which each event is sent.
    pub server: Option<Arc<HttpSink>>,
    /// Subject of NATS to which each event is published.
    pub subject: Option<Arc<str>>,
    /// Whether the host sends an event when a turn ends, and whether it sends an event when calls need an approval
    /// (I6). If the host has sent an approval request as an event, an incoming event can answer the request. A change
    /// to this setting applies only to turns that begin after the change.
    pub announced: AnnouncedEvents,
}

impl OutboxConfig {
    /// Returns whether events are sent to a server, or published to a subject.
    pub(crate) fn is_sent(&self) -> bool {
        self.server.is_some() || self.subject.is_some()
    }
}

/// The configuration of one agent.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// Name of the agent. The subjects of the agent's sessions begin with this name.
    pub name: String,
    /// The agent's configuration file, if it has one. Approvals, and rules with a tool's exact
    /// name, are valid only for an agent with this file (row 52).
    pub file: Option<PathBuf>,
    /// How the host identifies the plugin or MCP server to which a rule with a tool's exact name is bound. By default,
    /// it is identified by the digest of the plugin's component, or by the transport of the MCP server.
    pub rule_binding: RuleBinding,
    /// A check that the agent's components must pass in addition to the check that the host applies to all components.
    /// A delegate can use this check to have stricter requirements than the host. By default, there is no
    /// additional check.
    pub vetting: Option<Arc<dyn ComponentVerifier>>,
    /// Finds the components of turns that began on other machines, if the plugin store of this machine does not contain them.
    /// By default, there is no source.
    pub components: Option<Arc<dyn ComponentSource>>,
    /// The user whose long-term memory the agent uses. If this field is `None`, the agent does not use memory.
    pub user: Option<String>,
    /// The part of the user's memory that the agent uses (D4). The default is [`MemoryUse::Project`].
    pub memory: MemoryUse,
    /// Path of the project folder that the agent works in, which is stored with its memories. `None` if there is no such
    /// folder, for example in a server.
    pub project: Option<String>,
    /// Limits of each turn, for example the maximum number of model calls.
    pub bounds: LoopConfig,
    /// The parts of the prompt that come from the configuration, for example the system text.
    pub prompt: PromptParts,
    /// Maximum number of tokens of a model's reply. The default is 4,096.
    pub reply_tokens: u32,
    /// Who writes the summaries of messages that are removed from the prompt (L27). The default is a model.
    pub summary: SummaryWriter,
    /// How the models call tools (L20). The default is the provider's native tool calls.
    pub tool_dialect: ToolDialect,
    /// Maximum number of tools that are offered to the model. If the agent has more tools, only the tools that best
    /// match the turn's input are offered (L25). The default is 15.
    pub offered_tools: u32,
    /// How the command-line programs among the plugins are offered to the model. By default, each program is a tool.
    pub command_tools: CommandTools,
    /// Whether the output of a turn includes the session's messages (L13). The default is `false`.
    pub include_history: bool,
    /// JSON Schema that the output of a turn must satisfy (L12). If `None`, the output is plain text.
    pub output_schema: Option<Value>,
    /// Grants and limits of plugins, by the name of the plugin. A plugin that is missing from this map has no grants,
    /// and the limits in the field `limits` apply to calls of the plugin.
    pub plugins: BTreeMap<String, PluginAllowance>,
    /// Limits of each call to a plugin that is not listed in the field `plugins`.
    pub limits: CallLimits,
    /// Directories that the host's own file tools may read. By default, there are none.
    pub host_trees: Vec<TreeGrant>,
    /// Name of the plugin that builds the context for the model. If `None`, the host builds the context.
    pub context_builder: Option<String>,
    /// Names of the plugins that validate the output, in the order in which they run.
    pub validators: Vec<String>,
    /// Names of the plugins that decide which media a provider receives, by the name of the provider (P4).
    pub media_policies: BTreeMap<String, String>,
    /// Services that the model can call, by the name of the tool that calls the service (L7).
    pub services: BTreeMap<String, ServiceConfig>,
    /// Which outgoing events the host sends, and where it delivers them (I6).
    pub outbox: OutboxConfig,
    /// Schedules that begin sessions of this agent, by name (I9). A delegate has none.
    pub schedules: BTreeMap<String, Schedule>,
    /// Webhooks through which other programs begin sessions of this agent, by name (I9). A delegate has none.
    pub webhooks: BTreeMap<String, Webhook>,
    /// Events of other systems that begin sessions of this agent, by name (I6). A delegate has none.
    pub events: BTreeMap<String, EventInput>,
    /// Agents to which this agent may delegate tasks, by the name of the tool that calls the delegate
    /// (L16). By default, there are no delegates.
    pub delegates: BTreeMap<String, Delegate>,
    /// MCP servers whose tools the agent has (I5).
    pub mcp: Vec<ServerConfig>,
    /// The tools of the client program that began the turn (I3). A configuration file contains none: the host adds them to
    /// the agent of one turn.
    pub client_tools: Vec<ClientTool>,
    /// Rules that decide which tools may run without an approval (L17). By default, a tool needs an approval only if
    /// the tool's definition requires an approval.
    pub approvals: ApprovalRules,
}

impl AgentConfig {
    /// Returns whether the configuration lists a plugin in `plugins`, or uses it as the context builder, as a validator
    /// or as a media policy.
    pub fn mentions(&self, plugin: &str) -> bool {
        let mut roles = self.context_builder.iter().chain(&self.validators).chain(self.media_policies.values());
        self.plugins.contains_key(plugin) || roles.any(|name| name == plugin)
    }

    /// Creates the configuration of an agent with this name. Every other field has its default value.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            file: None,
            rule_binding: RuleBinding::default(),
            vetting: None,
            components: None,
            user: None,
            memory: MemoryUse::default(),
            project: None,
            bounds: LoopConfig::default(),
            prompt: PromptParts::default(),
            reply_tokens: DEFAULT_REPLY_TOKENS,
            summary: SummaryWriter::default(),
            tool_dialect: ToolDialect::Native,
            offered_tools: DEFAULT_OFFERED_TOOLS,
            command_tools: CommandTools::default(),
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
            schedules: BTreeMap::new(),
            webhooks: BTreeMap::new(),
            events: BTreeMap::new(),
            delegates: BTreeMap::new(),
            mcp: Vec::new(),
            client_tools: Vec::new(),
            approvals: ApprovalRules::none(),
        }
    }
}

impl AgentConfig {
    /// Returns the name under which the store records the agent's approval rules and components. Two agents that have
    /// the same name but different configuration files have different record names.
    pub(crate) fn record_name(&self) -> String {
        let file = self.file.as_deref().map(|file| file.to_string_lossy().into_owned());
        file.map_or_else(|| self.name.clone(), |file| format!("{} {file}", self.name))
    }

    /// Returns the grants and limits of a plugin.
    pub(crate) fn allowance(&self, plugin: &str) -> PluginAllowance {
        self.plugins.get(plugin).cloned().unwrap_or_else(|| PluginAllowance::with_limits(self.limits))
    }

    /// Returns a mutable reference to the grants and limits of a plugin. If the plugin is missing from `plugins`, an
    /// entry with default values is added first.
    pub(super) fn allowance_mut(&mut self, plugin: &str) -> &mut PluginAllowance {
        let limits = self.limits;
        self.plugins.entry(plugin.to_owned()).or_insert_with(|| PluginAllowance::with_limits(limits))
    }
}

impl PluginAllowance {
    fn with_limits(limits: CallLimits) -> Self {
        Self { limits, ..Self::default() }
    }
}

/// A configuration that passed its checks, together with values that are computed from the configuration alone.
pub(super) struct Configured {
    pub(super) config: AgentConfig,
    pub(super) output_schema: Option<Schema>,
    pub(super) fingerprint: String,
    /// The host's own tools, and the tools for delegates and services.
    pub(super) tools: Vec<(ToolDefinition, ToolSource, Availability)>,
    /// Secrets of the plugins and MCP servers.
    pub(super) secrets: KnownSecrets,
}

impl Configured {
    pub(super) fn new(config: AgentConfig) -> Result<Arc<Self>, AgentError> {
        for (name, service) in &config.services {
            let schema_error = |(event_type, error)| AgentError::Service { name: name.clone(), event_type, error };
            service.check().map_err(schema_error)?;
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
        let delegates =
            delegates.map(|(name, delegate)| (delegate.definition(name), delegate.source(), offered.clone()));
        let services = config.services.iter();
        let services = services.map(|(name, service)| (service.definition(name), service.source(), offered.clone()));
        let client_tools = config.client_tools.iter();
        let client_tools = client_tools.map(|tool| (tool.definition(), ToolSource::Client, offered.clone()));
        let definitions = own.into_iter().chain(finishing).chain(delegates).chain(services).chain(client_tools);
        let tools = definitions.map(|(tool, source, otherwise)| {
            let availability = rules::availability(&config.approvals, (&tool, &source), otherwise);
            (tool, source, availability)
        });
        let tools = tools.collect();
        let secrets = secrets_of(&config);
        Ok(Arc::new(Self { config, output_schema, fingerprint, tools, secrets }))
    }
}

fn secrets_of(config: &AgentConfig) -> KnownSecrets {
    let granted = config.plugins.values().flat_map(|allowance| {
        let answered = [&allowance.answered.temporary, &allowance.answered.permanent];
        std::iter::once(&allowance.grants).chain(answered).flat_map(|grants| &grants.secrets)
    });
    config.mcp.iter().fold(KnownSecrets::new(granted), |known, server| {
        // The host cannot know which servers a child process contacts.
        let given_to = agent_mcp::remote_host(server).map_or(SecretHolder::Anyone, SecretHolder::Host);
        known.with(&agent_mcp::redaction_for(server), &given_to)
    })
}
