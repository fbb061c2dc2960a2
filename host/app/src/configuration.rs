//! An agent's configuration: `agent.toml`, read into validated values; every error names file, line, key and what is
//! allowed (I2).

mod agents;
mod approval;
mod check;
mod document;
mod documentation;
mod edit;
mod form;
mod json_schema;
mod keys;
mod limits;
mod mcp;
mod nearest;
mod output_schema;
mod providers;
mod report;
mod secrets;
mod services;
mod sharing;
mod template;

pub(crate) use agents::AgentTable;
pub(crate) use check::BUILT_IN;
pub(crate) use edit::{Addition, Draft, EditError};
pub(crate) use form::url_problem;
pub(crate) use json_schema::json_schema;
pub(crate) use limits::LimitValues;
pub(crate) use mcp::McpTable;
pub(crate) use nearest::nearest;
pub(crate) use providers::ProviderTable;
pub(crate) use report::{ConfigurationError, with_line};
pub(crate) use services::{OutboxTable, ServiceTable};
pub(crate) use template::template;

use crate::grants::{Grant, Kind, Receiver, SecretGrant};
use agent_core::approval::ApprovalRules;
use agent_core::loop_break::Finish;
use agent_core::run::{AtLimit, UnitWeights, Weight};
use agent_core::text_dialect::ToolDialect;
use agent_plugins::limits::{CALL_LIMITS, HOST_LIMITS};
use agent_registry::Trust;
use agent_runtime::{MemoryUse, SummaryWriter};
use document::{Document, Found, Table};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Largest agent.toml.
pub(crate) const MOST_BYTES: u64 = 1024 * 1024;
/// The name of an agent that has none and no file either.
pub(crate) const UNNAMED: &str = "agent";

/// What agent.toml says. What it does not say is `None` or empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AgentFile {
    /// The agent's name.
    pub(crate) name: Option<String>,
    /// The model that is asked first.
    pub(crate) model: Option<Placed>,
    /// Those that are asked after it.
    pub(crate) fallback_models: Vec<Placed>,
    /// The answer when none answers.
    pub(crate) fallback_text: Option<String>,
    /// How long one that failed is passed over.
    pub(crate) model_cooldown_ms: Option<u32>,
    /// When one is asked again.
    pub(crate) retry: RetryTable,
    /// How providers are reached, by name.
    pub(crate) providers: BTreeMap<String, ProviderTable>,
    /// The folder with the plugins, relative to nothing but the current folder.
    pub(crate) plugin_directory: Option<PathBuf>,
    /// The agent's instructions.
    pub(crate) instructions: Option<String>,
    /// How it shall think.
    pub(crate) chain_of_thought: Option<String>,
    /// How it shall use its tools.
    pub(crate) tool_rules: Option<String>,
    /// Most tokens of a reply.
    pub(crate) reply_tokens: Option<u32>,
    /// How its models call tools.
    pub(crate) tool_dialect: Option<ToolDialect>,
    /// Tools that are offered at most.
    pub(crate) offered_tools: Option<u32>,
    /// Says which those are.
    pub(crate) embedding_model: Option<Placed>,
    /// Makes plans.
    pub(crate) planner: Option<Placed>,
    /// Carries them out.
    pub(crate) executor: Option<Placed>,
    /// Model calls per turn.
    pub(crate) max_interactions: Option<u32>,
    /// What happens there.
    pub(crate) at_limit: Option<AtLimit>,
    /// What its model calls count for.
    pub(crate) execution_units: UnitWeights,
    /// Corrections of a rejected output.
    pub(crate) max_corrections: Option<u32>,
    /// Tools at once.
    pub(crate) parallel_calls: Option<u32>,
    /// Characters of a tool result that the model is shown.
    pub(crate) result_characters: Option<u32>,
    /// Tokens that must be free before a step.
    pub(crate) minimum_remaining: Option<u32>,
    /// Percent of the history budget beyond which messages leave.
    pub(crate) evict_at: Option<u32>,
    /// Percent down to which they leave.
    pub(crate) evict_to: Option<u32>,
    /// Who summarises them.
    pub(crate) summary: Option<SummaryWriter>,
    /// The model that does.
    pub(crate) summary_model: Option<Placed>,
    /// What is recalled and remembered.
    pub(crate) memory: Option<MemoryUse>,
    /// What ends a turn.
    pub(crate) finish: Option<Finish>,
    /// How long a question waits.
    pub(crate) answer_within_ms: Option<u32>,
    /// Replies that give up too early are answered.
    pub(crate) persistence: Option<bool>,
    /// The output carries the turn's messages.
    pub(crate) include_history: Option<bool>,
    /// JSON Schema of the output.
    pub(crate) output_schema: Option<Value>,
    /// Plugins that validate the output, in order.
    pub(crate) validators: Option<Vec<String>>,
    /// The plugin that builds the context.
    pub(crate) context_builder: Option<String>,
    /// The plugin that decides on media, by kind of provider.
    pub(crate) media_policies: BTreeMap<String, String>,
    /// Which tools run unasked.
    pub(crate) approvals: ApprovalRules,
    /// Where the rules about single tools stand, by name or pattern.
    pub(crate) approval_places: BTreeMap<String, String>,
    /// Services, by the name of their tool.
    pub(crate) services: BTreeMap<String, ServiceTable>,
    /// Where events go.
    pub(crate) outbox: OutboxTable,
    /// Whose plugins are taken from elsewhere.
    pub(crate) sharing: Trust,
    /// Limits of the calls of all plugins.
    pub(crate) call_limits: LimitValues,
    /// Those of single plugins, which go before them.
    pub(crate) limits: BTreeMap<String, LimitValues>,
    /// Limits of the host that runs the agent.
    pub(crate) host_limits: LimitValues,
    /// Agents that it may delegate to, by the name of their tool.
    pub(crate) agents: BTreeMap<String, AgentTable>,
    /// How often work may be handed down.
    pub(crate) max_depth: Option<u32>,
    /// MCP servers, by name.
    pub(crate) mcp: BTreeMap<String, McpTable>,
    /// Grants of all plugins and of the host's own tools.
    pub(crate) grants: Vec<Grant>,
    /// Secrets of plugins.
    pub(crate) secrets: Vec<SecretGrant>,
    /// Plugins about which nobody is asked at their first use.
    pub(crate) unasked: BTreeSet<String>,
    /// Where the keys stand of which more is known only when the agent is loaded: `agent.toml:3`.
    pub(crate) places: BTreeMap<&'static str, String>,
    /// Where the tables of plugins stand, by plugin.
    pub(crate) plugin_tables: BTreeMap<String, String>,
    /// The folder of the file.
    pub(crate) folder: PathBuf,
    /// Other files that it names and that were read with it, such as schemas.
    pub(crate) named_files: Vec<PathBuf>,
}

/// Keys whose values depend on what is loaded.
const CHECKED_LATER: [&str; 7] =
    ["plugin_directory", "fallback_text", "output_schema", "validators", "context_builder", "media_policies", "mcp"];

/// A text with the place where it was written, for messages: `agent.toml:3: model`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    /// The text.
    pub(crate) value: String,
    /// File, line and key, or the option of the command line.
    pub(crate) place: String,
}

/// When a model that did not answer is asked again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RetryTable {
    /// Tries, the first included.
    pub(crate) attempts: Option<u32>,
    /// Before the second.
    pub(crate) first_wait_ms: Option<u32>,
    /// Longest single wait.
    pub(crate) longest_wait_ms: Option<u32>,
    /// All tries and waits together.
    pub(crate) total_ms: Option<u32>,
}

impl AgentFile {
    /// Reads the file. All errors that are found are in the error, each with its line.
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigurationError> {
        let text = read_bounded(path, MOST_BYTES)
            .map_err(|source| ConfigurationError::Unreadable { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    /// Reads the text of the file at `path`.
    pub(crate) fn parse(text: &str, path: &Path) -> Result<Self, ConfigurationError> {
        let document = Document::new(text, path);
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        let file = document.read(|root| {
            check::check(root);
            Self::from_root(root, folder)
        });
        let named_files = document.named_files();
        document.finish(file.map(|file| Self { named_files, ..file }))
    }

    /// Reads the same keys where they stand in another file, below a key of it.
    pub(crate) fn parse_below(key: &str, text: &str, path: &Path) -> Result<Self, ConfigurationError> {
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
        let text = |key| root.get(key).and_then(|found| found.text());
        let number = |key| root.get(key).and_then(|found| found.number());
        let mut file = Self {
            name: text("name"),
            model: root.get("model").and_then(|found| placed(&found)),
            fallback_models: root.get("fallback_models").map(|found| all_placed(&found)).unwrap_or_default(),
            fallback_text: text("fallback_text"),
            model_cooldown_ms: number("model_cooldown_ms"),
            retry: root.table("retry").map(|table| retry(&table)).unwrap_or_default(),
            providers: providers::read(root),
            plugin_directory: text("plugin_directory").map(|path| folder.join(path)),
            instructions: text("instructions"),
            chain_of_thought: text("chain_of_thought"),
            tool_rules: text("tool_rules"),
            reply_tokens: number("reply_tokens"),
            tool_dialect: text("tool_dialect")
                .map(|word| if word == "text" { ToolDialect::Text } else { ToolDialect::Native }),
            offered_tools: number("offered_tools"),
            embedding_model: root.get("embedding_model").and_then(|found| placed(&found)),
            planner: root.get("planner").and_then(|found| placed(&found)),
            executor: root.get("executor").and_then(|found| placed(&found)),
            max_interactions: number("max_interactions"),
            at_limit: text("at_limit").map(|word| if word == "error" { AtLimit::Error } else { AtLimit::Finish }),
            execution_units: root.table("execution_units").map(|table| units(&table)).unwrap_or_default(),
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
            summary_model: root.get("summary_model").and_then(|found| placed(&found)),
            memory: text("memory").map(|word| match word.as_str() {
                "agent" => MemoryUse::Agent,
                "off" => MemoryUse::Off,
                _ => MemoryUse::User,
            }),
            finish: text("finish").map(|word| if word == "tool" { Finish::Tool } else { Finish::Text }),
            answer_within_ms: number("answer_within_ms"),
            persistence: root.get("persistence").and_then(|found| found.flag()),
            include_history: root.get("include_history").and_then(|found| found.flag()),
            output_schema: root.get("output_schema").and_then(|found| output_schema::output_schema(&found, &folder)),
            validators: root.get("validators").map(|found| texts(&found)),
            context_builder: text("context_builder"),
            media_policies: root.get("media_policies").map(|found| pairs(&found)).unwrap_or_default(),
            approvals: ApprovalRules::default(),
            approval_places: BTreeMap::new(),
            services: services::services(root, &folder),
            outbox: services::outbox(root),
            sharing: root.table("sharing").map(|table| sharing::trust(&table)).unwrap_or_default(),
            call_limits: root.table("limits").map(|table| limits::read(&table, &CALL_LIMITS)).unwrap_or_default(),
            limits: BTreeMap::new(),
            host_limits: LimitValues::default(),
            agents: agents::read(root, &folder),
            max_depth: number("max_depth"),
            mcp: mcp::read(root),
            grants: Vec::new(),
            secrets: Vec::new(),
            unasked: BTreeSet::new(),
            places: CHECKED_LATER.into_iter().filter_map(|key| Some((key, root.get(key)?.line()))).collect(),
            plugin_tables: BTreeMap::new(),
            folder,
            named_files: Vec::new(),
        };
        if let (Some(found), None) = (root.get("fallback_models"), root.get("model")) {
            found.problem("stands without `model`", "`model` is asked first, these after it: add `model = \"…\"`");
        }
        if let Some(table) = root.table("approval") {
            (file.approvals, file.approval_places) = approval::rules(&table);
        }
        if let (Some(found), None) = (root.get("executor"), root.get("planner")) {
            found.problem("stands without `planner`", "it carries out what `planner` plans: add `planner = \"…\"`");
        }
        file.read_plugins(root);
        file
    }

    fn read_plugins(&mut self, root: &Table<'_>) {
        if let Some(host) = root.table("host") {
            if let Some(grants) = host.table("grants") {
                self.add_lists(&grants, &Receiver::Host, &[("read", Kind::Read)]);
            }
            if let (Some(found), Some(table)) = (host.get("limits"), host.table("limits")) {
                self.places.insert("host.limits", found.line());
                self.host_limits = limits::read(&table, &HOST_LIMITS);
            }
        }
        for entry in root.table("plugins").iter().flat_map(Table::entries) {
            self.plugin_tables.insert(entry.name.clone(), entry.found.place());
            let Some(plugin) = entry.found.table() else { continue };
            if let Some(grants) = plugin.table("grants") {
                self.read_grants(&grants, &Receiver::Plugin(entry.name.clone()));
                if grants.get("ask").and_then(|found| found.flag()) == Some(false) {
                    self.unasked.insert(entry.name.clone());
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

    fn read_grants(&mut self, grants: &Table<'_>, receiver: &Receiver) {
        self.add_lists(
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
        if let Some(found) = grants.get("key_value_mib") {
            let value = found.number().map(|number| number.to_string()).unwrap_or_default();
            self.add(receiver, Kind::KeyValue, Placed { value, place: found.place() });
        }
        if let Some(found) = grants.get("model_tokens") {
            let value = found.number().map(|number| number.to_string()).unwrap_or_default();
            self.add(receiver, Kind::ModelTokens, Placed { value, place: found.place() });
        }
        if let Some(found) = grants.get("media").filter(|found| found.flag() == Some(true)) {
            self.add(receiver, Kind::Media, Placed { value: "true".to_owned(), place: found.place() });
        }
        for entry in grants.table("config").iter().flat_map(Table::entries) {
            if let Some(text) = entry.found.text() {
                let value = format!("{}={text}", entry.name);
                self.add(receiver, Kind::Config, Placed { value, place: entry.found.place() });
            }
        }
    }

    fn add_lists(&mut self, grants: &Table<'_>, receiver: &Receiver, lists: &[(&str, Kind)]) {
        for (key, kind) in lists {
            for granted in grants.get(key).map(|found| all_placed(&found)).unwrap_or_default() {
                self.add(receiver, *kind, granted);
            }
        }
    }

    fn add(&mut self, receiver: &Receiver, kind: Kind, granted: Placed) {
        let Placed { value, place: origin } = granted;
        self.grants.push(Grant { receiver: receiver.clone(), kind, value, base: self.folder.clone(), origin });
    }
}

/// The name of the agent whose configuration stands in that file, where the file gives it none.
pub(crate) fn name_of_file(path: &Path) -> String {
    path.file_stem().map_or_else(|| UNNAMED.to_owned(), |stem| stem.to_string_lossy().into_owned())
}

/// Whether a text may be the name of an agent.
pub(crate) fn is_name(text: &str) -> bool {
    form::Form::Name.problem(text).is_none()
}

/// How many of the top keys of a file are agent.toml's, and how many are not; none where it is no TOML.
pub(crate) fn own_and_foreign_keys(text: &str) -> Option<(usize, usize)> {
    let table: toml::Table = text.parse().ok()?;
    let own = table.keys().filter(|key| check::is_top_key(key)).count();
    Some((own, table.len() - own))
}

/// Reads a text that is not larger than it may be.
pub(crate) fn read_bounded(path: &Path, most: u64) -> std::io::Result<String> {
    String::from_utf8(agent_plugins::read_regular_file(path, most)?).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        std::io::Error::other(format!("line {line} has a byte that is no UTF-8: save the file as UTF-8"))
    })
}

fn units(table: &Table<'_>) -> UnitWeights {
    let weight = |key, default| table.get(key).and_then(|found| Weight::of(found.amount()?)).unwrap_or(default);
    let defaults = UnitWeights::default();
    UnitWeights {
        prompt_token: weight("prompt_token", defaults.prompt_token),
        completion_token: weight("completion_token", defaults.completion_token),
        model_call: weight("model_call", defaults.model_call),
    }
}

fn retry(table: &Table<'_>) -> RetryTable {
    let number = |key| table.get(key).and_then(|found| found.number());
    RetryTable {
        attempts: number("attempts"),
        first_wait_ms: number("first_wait_ms"),
        longest_wait_ms: number("longest_wait_ms"),
        total_ms: number("total_ms"),
    }
}

fn placed(found: &Found<'_>) -> Option<Placed> {
    Some(Placed { value: found.text()?, place: found.place() })
}

fn all_placed(found: &Found<'_>) -> Vec<Placed> {
    found.items().iter().flatten().filter_map(placed).collect()
}

fn texts(found: &Found<'_>) -> Vec<String> {
    found.items().iter().flatten().filter_map(Found::text).collect()
}

fn pairs(found: &Found<'_>) -> BTreeMap<String, String> {
    let table = found.table();
    table.iter().flat_map(Table::entries).filter_map(|entry| Some((entry.name, entry.found.text()?))).collect()
}

#[cfg(test)]
mod tests;
