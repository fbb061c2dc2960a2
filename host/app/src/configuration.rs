//! An agent's configuration: `agent.toml`, read into validated values; every error names file, line, key and what is
//! allowed (I2).

mod document;
mod report;
mod schema;

pub(crate) use report::ConfigurationError;

use crate::grants::{Grant, Kind, Receiver};
use agent_core::run::AtLimit;
use document::{Document, Keys};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What agent.toml says. What it does not say is `None` or empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AgentFile {
    /// The agent's name.
    pub(crate) name: Option<String>,
    /// As `--model` takes it.
    pub(crate) model: Option<String>,
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
    /// Model calls per turn.
    pub(crate) max_interactions: Option<u32>,
    /// What happens there.
    pub(crate) at_limit: Option<AtLimit>,
    /// Corrections of a rejected output.
    pub(crate) max_corrections: Option<u32>,
    /// Tools at once.
    pub(crate) parallel_calls: Option<u32>,
    /// Characters of a tool result that the model is shown.
    pub(crate) result_characters: Option<u32>,
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
    /// Limits, by plugin.
    pub(crate) limits: BTreeMap<String, PluginLimits>,
    /// Grants of all plugins and of the host's own tools.
    pub(crate) grants: Vec<Grant>,
    /// Where the keys stand whose values can be checked only when the plugins are loaded: `agent.toml:3`.
    pub(crate) places: BTreeMap<&'static str, String>,
    /// Where the tables of plugins stand, by plugin.
    pub(crate) plugin_tables: BTreeMap<String, String>,
    /// The folder of the file.
    pub(crate) folder: PathBuf,
}

/// Keys whose values depend on what is loaded.
const CHECKED_LATER: [&str; 6] =
    ["model", "plugin_directory", "output_schema", "validators", "context_builder", "media_policies"];

/// Limits of one plugin's calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PluginLimits {
    /// Milliseconds from begin to end.
    pub(crate) wall_ms: Option<u32>,
    /// Milliseconds of processor time.
    pub(crate) cpu_ms: Option<u32>,
    /// MiB of all memories.
    pub(crate) memory_mib: Option<u32>,
}

impl AgentFile {
    /// Reads the file. All errors that are found are in the error, each with its line.
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigurationError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigurationError::Unreadable { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    /// Reads the text of the file at `path`.
    pub(crate) fn parse(text: &str, path: &Path) -> Result<Self, ConfigurationError> {
        let document = Document::new(text, path);
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        let file = document.read(|root| Self::from_keys(root, folder));
        document.finish(file)
    }

    fn from_keys(root: &Keys<'_>, folder: PathBuf) -> Self {
        let mut file = Self {
            name: root.get("name").and_then(|value| value.name()),
            model: root.get("model").and_then(|value| value.text()),
            plugin_directory: root.get("plugin_directory").and_then(|value| value.text()).map(|path| folder.join(path)),
            instructions: root.get("instructions").and_then(|value| value.text()),
            chain_of_thought: root.get("chain_of_thought").and_then(|value| value.text()),
            tool_rules: root.get("tool_rules").and_then(|value| value.text()),
            reply_tokens: root.get("reply_tokens").and_then(|value| value.number(1..=1_000_000)),
            max_interactions: root.get("max_interactions").and_then(|value| value.number(1..=1000)),
            at_limit: root
                .get("at_limit")
                .and_then(|value| value.choice(&[("finish", AtLimit::Finish), ("error", AtLimit::Error)])),
            max_corrections: root.get("max_corrections").and_then(|value| value.number(0..=100)),
            parallel_calls: root.get("parallel_calls").and_then(|value| value.number(1..=64)),
            result_characters: root.get("result_characters").and_then(|value| value.number(200..=1_048_576)),
            include_history: root.get("include_history").and_then(|value| value.flag()),
            output_schema: root.get("output_schema").and_then(|value| schema::output_schema(&value, &folder)),
            validators: root.get("validators").and_then(|value| value.texts()).map(only_texts),
            context_builder: root.get("context_builder").and_then(|value| value.text()),
            media_policies: BTreeMap::new(),
            limits: BTreeMap::new(),
            grants: Vec::new(),
            places: CHECKED_LATER.into_iter().filter_map(|key| Some((key, root.line(key)?))).collect(),
            plugin_tables: BTreeMap::new(),
            folder,
        };
        file.read_tables(root);
        root.finish();
        file
    }

    fn read_tables(&mut self, root: &Keys<'_>) {
        if let Some(policies) = root.get("media_policies").and_then(|value| value.map()) {
            for (provider, value) in policies {
                if let Some(plugin) = value.text() {
                    self.media_policies.insert(provider, plugin);
                }
            }
        }
        if let Some(host) = root.get("host").and_then(|value| value.keys()) {
            if let Some(grants) = host.get("grants").and_then(|value| value.keys()) {
                self.add_trees(&grants, &Receiver::Host, &[("read", Kind::Read)]);
                grants.finish();
            }
            host.finish();
        }
        if let Some(value) = root.get("plugins") {
            self.read_plugins(&value);
        }
    }

    fn read_plugins(&mut self, value: &document::Found<'_>) {
        if value.is_text() {
            return value
                .problem("holds one table per plugin", "the folder with the plugins is `plugin_directory = \"…\"`");
        }
        for (name, plugin) in value.map().unwrap_or_default() {
            self.plugin_tables.insert(name.clone(), plugin.place());
            let Some(plugin) = plugin.keys() else { continue };
            if let Some(grants) = plugin.get("grants").and_then(|value| value.keys()) {
                let receiver = Receiver::Plugin(name.clone());
                let lists = [("read", Kind::Read), ("write", Kind::Write), ("env", Kind::Env)];
                self.add_trees(&grants, &receiver, &lists);
                for (key, value) in grants.get("config").and_then(|value| value.map()).unwrap_or_default() {
                    if let Some(text) = value.text() {
                        let origin = value.place();
                        self.add(&receiver, Kind::Config, format!("{key}={text}"), origin);
                    }
                }
                grants.finish();
            }
            if let Some(limits) = plugin.get("limits").and_then(|value| value.keys()) {
                let read = PluginLimits {
                    wall_ms: limits.get("wall_ms").and_then(|value| value.number(1..=120_000)),
                    cpu_ms: limits.get("cpu_ms").and_then(|value| value.number(1..=120_000)),
                    memory_mib: limits.get("memory_mib").and_then(|value| value.number(1..=256)),
                };
                limits.finish();
                self.limits.insert(name.clone(), read);
            }
            plugin.finish();
        }
    }

    fn add_trees(&mut self, grants: &Keys<'_>, receiver: &Receiver, lists: &[(&'static str, Kind)]) {
        for (key, kind) in lists {
            for (text, place) in grants.get(key).and_then(|value| value.texts()).unwrap_or_default() {
                self.add(receiver, *kind, text, place);
            }
        }
    }

    fn add(&mut self, receiver: &Receiver, kind: Kind, value: String, origin: String) {
        self.grants.push(Grant { receiver: receiver.clone(), kind, value, base: self.folder.clone(), origin });
    }
}

fn only_texts(texts: Vec<(String, String)>) -> Vec<String> {
    texts.into_iter().map(|(text, _)| text).collect()
}

#[cfg(test)]
mod tests;
