//! Reads an agent's configuration file, `agent.toml`, into validated values. Every error names the file, the line, the
//! key and the allowed values (I2).

mod agents;
mod approval;
mod budget;
mod check;
mod document;
mod documentation;
mod edit;
mod errors;
mod events;
mod hidden_secrets;
mod json_schema;
mod keys;
mod limits;
mod mcp;
mod nearest;
mod output_schema;
mod providers;
mod secrets;
mod services;
mod sharing;
mod telemetry;
mod template;
mod text_format;

pub use agents::AgentTable;
pub use check::BUILT_IN;
pub(crate) use edit::TemporaryFile;
pub use edit::{Addition, Draft, EditError};
pub use errors::{ConfigurationError, LocatedProblem, with_line};
pub use events::{EventTable, OutboxServerTable, OutboxTable, ScheduleTable, WebhookTable};
pub use json_schema::json_schema;
pub use limits::LimitValues;
pub use mcp::McpTable;
pub use nearest::nearest;
pub use providers::ProviderTable;
pub use services::ServiceTable;
pub use telemetry::TelemetryTable;
pub use template::{starter, template};
pub use text_format::url_problem;

use crate::grants::{Grant, Kind, Receiver, SecretGrant};
use agent_core::approval::ApprovalRules;
use agent_core::budget::Budgets;
use agent_core::loop_break::Finish;
use agent_core::run::{AtLimit, UnitWeights, Weight};
use agent_core::text_dialect::ToolDialect;
use agent_plugins::limits::{CALL_LIMITS, HOST_LIMITS};
use agent_registry::Trust;
use agent_runtime::{CommandTools, MemoryUse, SummaryWriter};
use document::{Document, Table, TomlValue};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Maximum size of an `agent.toml`, in bytes. If a file is larger, reading the file fails.
pub const MAX_BYTES: u64 = 1024 * 1024;
/// Name of an agent that has neither a configured name nor a file.
pub const UNNAMED: &str = "agent";

/// The contents of an `agent.toml`, as validated values. A key that is not set is `None` or empty; defaults are
/// applied later.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentFile {
    /// Name of the agent, to which sessions, memory and approvals belong.
    pub name: Option<String>,
    /// Name of the model that is called first.
    pub model: Option<Located>,
    /// Fallback models, which are called in this order after `model` has failed.
    pub fallback_models: Vec<Located>,
    /// Output of a turn if every model has failed.
    pub fallback_text: Option<String>,
    /// Time in milliseconds for which a model is skipped after it has failed repeatedly.
    pub model_cooldown_ms: Option<u32>,
    /// Rules that decide when a failed model request is retried.
    pub retry: RetryTable,
    /// Connection settings of model providers, by the provider's name.
    pub providers: BTreeMap<String, ProviderTable>,
    /// Path of the plugin directory. A relative path in the file has already been joined to `folder`.
    pub plugin_directory: Option<PathBuf>,
    /// Instructions at the beginning of the agent's prompt.
    pub instructions: Option<String>,
    /// Section of the prompt about how the model should reason.
    pub chain_of_thought: Option<String>,
    /// Section of the prompt about how the model should use its tools.
    pub tool_rules: Option<String>,
    /// Maximum number of tokens in a reply.
    pub reply_tokens: Option<u32>,
    /// How the agent's models call tools.
    pub tool_dialect: Option<ToolDialect>,
    /// Maximum number of tools that are offered to the model at once.
    pub offered_tools: Option<u32>,
    /// How command-line programs are offered to the model.
    pub command_tools: Option<CommandTools>,
    /// Embedding model that selects the offered tools.
    pub embedding_model: Option<Located>,
    /// Name of the model that makes a plan before the first step of a turn.
    pub planner: Option<Located>,
    /// Name of the model that carries out the plans of the planner.
    pub executor: Option<Located>,
    /// Maximum number of model calls in a turn.
    pub max_interactions: Option<u32>,
    /// What happens when a turn reaches `max_interactions`.
    pub at_limit: Option<AtLimit>,
    /// Weights from which the execution units of a turn are computed.
    pub execution_units: UnitWeights,
    /// How many tokens, how much money and how much time may be used.
    pub budgets: Budgets,
    /// Maximum number of times that the model may correct a rejected output.
    pub max_corrections: Option<u32>,
    /// Maximum number of tool calls that run at the same time.
    pub parallel_calls: Option<u32>,
    /// Maximum number of characters of each tool result that the host shows to the model.
    pub result_characters: Option<u32>,
    /// Number of tokens that must be free in the context window before a step.
    pub minimum_remaining: Option<u32>,
    /// Percentage of the history budget above which messages are evicted from the prompt.
    pub evict_at: Option<u32>,
    /// Percentage of the history budget to which an eviction reduces the history.
    pub evict_to: Option<u32>,
    /// How messages that were evicted from the prompt are summarised.
    pub summary: Option<SummaryWriter>,
    /// Name of the model that summarises messages that were evicted from the prompt.
    pub summary_model: Option<Located>,
    /// Which memories the agent recalls from earlier sessions, and which memories it keeps for later sessions.
    pub memory: Option<MemoryUse>,
    /// Kind of model reply that ends a turn.
    pub finish: Option<Finish>,
    /// Maximum time, in milliseconds, that the user has for answering a question.
    pub answer_within_ms: Option<u32>,
    /// Whether the model is asked to continue if its reply gives up too early.
    pub persistence: Option<bool>,
    /// Whether the output contains the session's messages.
    pub include_history: Option<bool>,
    /// JSON Schema that the output must satisfy.
    pub output_schema: Option<Value>,
    /// Names of the plugins that validate the output, in the order in which the plugins run.
    pub validators: Option<Vec<String>>,
    /// Name of the context builder plugin.
    pub context_builder: Option<String>,
    /// Names of the media policy plugins, by provider.
    pub media_policies: BTreeMap<String, String>,
    /// Rules that decide which tool calls need an approval. `None` if the file has no table `[approval]`.
    pub approvals: Option<ApprovalRules>,
    /// Maximum time, in milliseconds, that a call waits for an approval.
    pub approval_within_ms: Option<u32>,
    /// Location (file, line and key) of each approval rule for a single tool, by the tool's name or pattern.
    pub approval_locations: BTreeMap<String, String>,
    /// Services, by the name of the tool that calls the service.
    pub services: BTreeMap<String, ServiceTable>,
    /// Where outgoing events are delivered, and which events are sent.
    pub outbox: OutboxTable,
    /// Schedules that begin sessions, by name.
    pub schedules: BTreeMap<String, ScheduleTable>,
    /// Webhooks through which requests begin sessions, by name.
    pub webhooks: BTreeMap<String, WebhookTable>,
    /// Subjects of NATS whose events begin sessions, by name.
    pub events: BTreeMap<String, EventTable>,
    /// The collector that receives the traces of the agent.
    pub telemetry: TelemetryTable,
    /// The rules about signatures of plugins, and the keys that are trusted.
    pub sharing: Trust,
    /// Limits that apply to each call of each plugin.
    pub call_limits: LimitValues,
    /// Limits for individual plugins, by the plugin's name. A limit in this map overrides the same limit
    /// in `call_limits`.
    pub limits: BTreeMap<String, LimitValues>,
    /// Limits that apply to all plugins of the host together.
    pub host_limits: LimitValues,
    /// Agents that this agent may delegate to, by the name of the tool that delegates.
    pub agents: BTreeMap<String, AgentTable>,
    /// Maximum depth of a chain of delegations.
    pub max_depth: Option<u32>,
    /// MCP servers, by the server's name.
    pub mcp: BTreeMap<String, McpTable>,
    /// Grants for all plugins and for the host's built-in tools.
    pub grants: Vec<Grant>,
    /// Secrets that the host inserts into requests of plugins.
    pub secrets: Vec<SecretGrant>,
    /// Plugins for which the user is not asked for missing grants at the first use.
    pub never_ask: BTreeSet<String>,
    /// The location (file and line, such as `agent.toml:3`) of each key whose value can be fully checked only when the
    /// agent is loaded.
    pub locations: BTreeMap<&'static str, String>,
    /// Location (file, line and key) of the table `[plugins.NAME]` of each plugin, by the plugin's name.
    pub plugin_tables: BTreeMap<String, String>,
    /// Folder that contains the file, to which relative paths in the file are joined.
    pub folder: PathBuf,
    /// Files, such as schemas, that were read because this file contains their paths.
    pub named_files: Vec<PathBuf>,
}

/// Names of the keys whose values can be fully checked only when the plugins and models are loaded.
const CHECKED_LATER: [&str; 7] =
    ["plugin_directory", "fallback_text", "output_schema", "validators", "context_builder", "media_policies", "mcp"];

/// A configured string with its location, such as `agent.toml:3: model`, for error messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// The string that the file or the command line contains.
    pub value: String,
    /// Location of the string: file, line and key, or the command-line option.
    pub location: String,
}

/// The table `[retry]`: rules that decide when a failed model request is retried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryTable {
    /// Maximum number of attempts of a request, including the first attempt.
    pub attempts: Option<u32>,
    /// Time between the first and the second attempt, in milliseconds.
    pub first_wait_ms: Option<u32>,
    /// Maximum wait between two attempts, in milliseconds.
    pub longest_wait_ms: Option<u32>,
    /// Maximum total time of all attempts and waits, in milliseconds.
    pub total_ms: Option<u32>,
}

impl AgentFile {
    /// Reads the file at `path`. The error lists all problems of the file, each with its line.
    pub fn read(path: &Path) -> Result<Self, ConfigurationError> {
        Self::parse(&Self::text(path)?, path)
    }

    /// Reads the text of the file at `path`.
    pub(crate) fn text(path: &Path) -> Result<String, ConfigurationError> {
        read_bounded(path, MAX_BYTES).map_err(|source| ConfigurationError::Unreadable { path: path.to_owned(), source })
    }

    /// Parses the text of an `agent.toml`. `path` is used in messages and as the base of relative paths.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigurationError> {
        let document = Document::new(text, path);
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        let file = document.read(|root| {
            check::check(root);
            Self::from_root(root, folder)
        });
        let named_files = document.named_files();
        document.finish(file.map(|file| Self { named_files, ..file }))
    }

    /// Parses the keys of an `agent.toml` that are in the table `key` of another TOML file.
    pub fn parse_below(key: &str, text: &str, path: &Path) -> Result<Self, ConfigurationError> {
        let document = Document::new(text, path);
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        let file = document.read(|root| {
            let table = root.table(key)?;
            check::check(&table);
            Some(Self::from_root(&table, folder))
        });
        let named_files = document.named_files();
        document.finish(file.map(|file| Self { named_files, ..file.unwrap_or_default() }))
    }

    fn from_root(root: &Table<'_>, folder: PathBuf) -> Self {
        let text = |key| root.get(key).and_then(|value| value.text());
        let number = |key| root.get(key).and_then(|value| value.number());
        let mut file = Self {
            name: text("name"),
            model: root.get("model").and_then(|value| located_string(&value)),
            fallback_models: root.get("fallback_models").map(|value| located_strings(&value)).unwrap_or_default(),
            fallback_text: text("fallback_text"),
            model_cooldown_ms: number("model_cooldown_ms"),
            retry: root.table("retry").map(|table| retry_table(&table)).unwrap_or_default(),
            providers: providers::read(root),
            plugin_directory: text("plugin_directory").map(|path| folder.join(path)),
            instructions: text("instructions"),
            chain_of_thought: text("chain_of_thought"),
            tool_rules: text("tool_rules"),
            reply_tokens: number("reply_tokens"),
            tool_dialect: text("tool_dialect")
                .map(|word| if word == "text" { ToolDialect::Text } else { ToolDialect::Native }),
            offered_tools: number("offered_tools"),
            command_tools: text("command_tools")
                .map(|word| if word == "one" { CommandTools::One } else { CommandTools::Each }),
            embedding_model: root.get("embedding_model").and_then(|value| located_string(&value)),
            planner: root.get("planner").and_then(|value| located_string(&value)),
            executor: root.get("executor").and_then(|value| located_string(&value)),
            max_interactions: number("max_interactions"),
            at_limit: text("at_limit").map(|word| if word == "error" { AtLimit::Error } else { AtLimit::Finish }),
            execution_units: root.table("execution_units").map(|table| unit_weights(&table)).unwrap_or_default(),
            budgets: budget::read(root),
            max_corrections: number("max_corrections"),
            parallel_calls: number("parallel_calls"),
            result_characters: number("result_characters"),
            minimum_remaining: number("minimum_remaining"),
            evict_at: number("evict_at"),
            evict_to: number("evict_to"),
            summary: text("summary").map(|word| match word.as_str() {
                "extract" => SummaryWriter::Extract,
                _ => SummaryWriter::Model,
            }),
            summary_model: root.get("summary_model").and_then(|value| located_string(&value)),
            memory: text("memory").map(|word| match word.as_str() {
                "agent" => MemoryUse::Agent,
                "off" => MemoryUse::Off,
                "user" => MemoryUse::User,
                _ => MemoryUse::Project,
            }),
            finish: text("finish").map(|word| if word == "tool" { Finish::Tool } else { Finish::Text }),
            answer_within_ms: number("answer_within_ms"),
            persistence: root.get("persistence").and_then(|value| value.flag()),
            include_history: root.get("include_history").and_then(|value| value.flag()),
            output_schema: root.get("output_schema").and_then(|value| output_schema::read_schema(&value, &folder)),
            validators: root.get("validators").map(|value| strings(&value)),
            context_builder: text("context_builder"),
            media_policies: root.get("media_policies").map(|value| string_map(&value)).unwrap_or_default(),
            approvals: None,
            approval_within_ms: root.table("approval").and_then(|table| table.get("decide_within_ms")?.number()),
            approval_locations: BTreeMap::new(),
            services: services::services(root, &folder),
            outbox: events::outbox(root),
            schedules: events::schedules(root),
            webhooks: events::webhooks(root),
            events: events::events(root),
            telemetry: telemetry::telemetry(root),
            sharing: root.table("sharing").map(|table| sharing::trust(&table)).unwrap_or_default(),
            call_limits: root.table("limits").map(|table| limits::read(&table, &CALL_LIMITS)).unwrap_or_default(),
            limits: BTreeMap::new(),
            host_limits: LimitValues::default(),
            agents: agents::read(root, &folder),
            max_depth: number("max_depth"),
            mcp: mcp::read(root),
            grants: Vec::new(),
            secrets: Vec::new(),
            never_ask: BTreeSet::new(),
            locations: CHECKED_LATER
                .into_iter()
                .filter_map(|key| Some((key, root.get(key)?.file_and_line())))
                .collect(),
            plugin_tables: BTreeMap::new(),
            folder,
            named_files: Vec::new(),
        };
        if let (Some(value), None) = (root.get("fallback_models"), root.get("model")) {
            value.problem("needs `model`", "`model` is called first, and these models after it: add `model = \"…\"`");
        }
        if let Some(table) = root.table("approval") {
            let (rules, locations) = approval::rules(&table);
            (file.approvals, file.approval_locations) = (Some(rules), locations);
        }
        if let (Some(value), None) = (root.get("executor"), root.get("planner")) {
            value.problem("needs `planner`", "an executor carries out the plan of a planner: add `planner = \"…\"`");
        }
        file.read_plugins(root);
        file
    }

    fn read_plugins(&mut self, root: &Table<'_>) {
        if let Some(host) = root.table("host") {
            if let Some(grants) = host.table("grants") {
                self.add_grant_lists(&grants, &Receiver::Host, &[("read", Kind::Read)]);
            }
            if let (Some(value), Some(table)) = (host.get("limits"), host.table("limits")) {
                self.locations.insert("host.limits", value.file_and_line());
                self.host_limits = limits::read(&table, &HOST_LIMITS);
            }
        }
        for entry in root.table("plugins").iter().flat_map(Table::entries) {
            self.plugin_tables.insert(entry.name.clone(), entry.value.location());
            let Some(plugin) = entry.value.table() else { continue };
            if let Some(grants) = plugin.table("grants") {
                self.read_plugin_grants(&grants, &Receiver::Plugin(entry.name.clone()));
                if grants.get("ask").and_then(|value| value.flag()) == Some(false) {
                    self.never_ask.insert(entry.name.clone());
                }
            }
            for secret in plugin.table("secrets").iter().flat_map(Table::entries) {
                self.secrets.extend(secrets::read(&entry.name, &secret));
            }
            if let Some(table) = plugin.table("limits") {
                self.limits.insert(entry.name, limits::read(&table, &CALL_LIMITS));
            }
        }
    }

    fn read_plugin_grants(&mut self, grants: &Table<'_>, receiver: &Receiver) {
        self.add_grant_lists(
            grants,
            receiver,
            &[
                ("read", Kind::Read),
                ("write", Kind::Write),
                ("env", Kind::Env),
                ("http", Kind::Http),
                ("events", Kind::Events),
            ],
        );
        if let Some(setting) = grants.get("key_value_mib") {
            let value = setting.number().map(|number| number.to_string()).unwrap_or_default();
            self.add_grant(receiver, Kind::KeyValue, Located { value, location: setting.location() });
        }
        if let Some(setting) = grants.get("model_tokens") {
            let value = setting.number().map(|number| number.to_string()).unwrap_or_default();
            self.add_grant(receiver, Kind::ModelTokens, Located { value, location: setting.location() });
        }
        if let Some(setting) = grants.get("media").filter(|setting| setting.flag() == Some(true)) {
            self.add_grant(receiver, Kind::Media, Located { value: "true".to_owned(), location: setting.location() });
        }
        for entry in grants.table("config").iter().flat_map(Table::entries) {
            if let Some(text) = entry.value.text() {
                let value = format!("{}={text}", entry.name);
                self.add_grant(receiver, Kind::Config, Located { value, location: entry.value.location() });
            }
        }
    }

    fn add_grant_lists(&mut self, grants: &Table<'_>, receiver: &Receiver, lists: &[(&str, Kind)]) {
        for (key, kind) in lists {
            for granted in grants.get(key).map(|value| located_strings(&value)).unwrap_or_default() {
                self.add_grant(receiver, *kind, granted);
            }
        }
    }

    fn add_grant(&mut self, receiver: &Receiver, kind: Kind, granted: Located) {
        let Located { value, location: origin } = granted;
        self.grants.push(Grant { receiver: receiver.clone(), kind, value, base: self.folder.clone(), origin });
    }
}

/// Returns the default name of an agent whose file does not set `name`: the file's name without its extension.
pub fn name_of_file(path: &Path) -> String {
    path.file_stem().map_or_else(|| UNNAMED.to_owned(), |stem| stem.to_string_lossy().into_owned())
}

/// Whether `text` is valid as the name of an agent.
pub fn is_name(text: &str) -> bool {
    text_format::TextFormat::Name.problem(text).is_none()
}

/// Counts the top-level keys of a TOML document. Returns the number of keys that are allowed in `agent.toml`, and the
/// number of all other keys. Returns None if `text` is not valid TOML.
pub fn own_and_foreign_keys(text: &str) -> Option<(usize, usize)> {
    let table: toml::Table = text.parse().ok()?;
    let known = table.keys().filter(|key| check::is_top_key(key)).count();
    Some((known, table.len() - known))
}

/// Reads a file that must be valid UTF-8. Fails if the file is larger than `max_bytes`.
pub fn read_bounded(path: &Path, max_bytes: u64) -> std::io::Result<String> {
    String::from_utf8(agent_plugins::read_regular_file(path, max_bytes)?).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        std::io::Error::other(format!("line {line} contains a byte that is not valid UTF-8: save the file as UTF-8"))
    })
}

fn unit_weights(table: &Table<'_>) -> UnitWeights {
    let weight = |key, default| table.get(key).and_then(|value| Weight::of(value.number_f64()?)).unwrap_or(default);
    let defaults = UnitWeights::default();
    UnitWeights {
        prompt_token: weight("prompt_token", defaults.prompt_token),
        completion_token: weight("completion_token", defaults.completion_token),
        model_call: weight("model_call", defaults.model_call),
    }
}

fn retry_table(table: &Table<'_>) -> RetryTable {
    let number = |key| table.get(key).and_then(|value| value.number());
    RetryTable {
        attempts: number("attempts"),
        first_wait_ms: number("first_wait_ms"),
        longest_wait_ms: number("longest_wait_ms"),
        total_ms: number("total_ms"),
    }
}

fn located_string(value: &TomlValue<'_>) -> Option<Located> {
    Some(Located { value: value.text()?, location: value.location() })
}

fn located_strings(value: &TomlValue<'_>) -> Vec<Located> {
    value.items().iter().flatten().filter_map(located_string).collect()
}

fn strings(value: &TomlValue<'_>) -> Vec<String> {
    value.items().iter().flatten().filter_map(TomlValue::text).collect()
}

fn string_map(value: &TomlValue<'_>) -> BTreeMap<String, String> {
    let table = value.table();
    table.iter().flat_map(Table::entries).filter_map(|entry| Some((entry.name, entry.value.text()?))).collect()
}

#[cfg(test)]
mod tests;
