//! The manifest of a plugin. This module reads and writes the custom section `agent-host:manifest` of a component, and
//! reads `plugin.toml`, from which the section is made.

mod described_tool;

pub use described_tool::DescribedTool;

use super::Need;
use super::http_pattern::HttpPattern;
use crate::binary::sections::{HEADER_BYTES, MANIFEST_SECTION, Sections, interfaces, manifest_json};
use crate::limits::{MANIFEST_BYTES, REASON_BYTES};
use crate::text::clean;
use agent_core::event_type::ServiceEventType;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::{Path, PathBuf};
use wasm_encoder::{CustomSection, Encode, Section as _};

/// Maximum length of a plugin's name, in bytes.
const NAME_LENGTH: usize = 64;
/// Maximum number of names in each list of a manifest.
const MAX_LISTED_NAMES: usize = 256;

/// The manifest of a plugin, in which the plugin describes itself and its needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Name of the plugin: 1 to 64 letters, digits, `_`, `-` or `.`.
    pub name: String,
    /// Version of the plugin; the host does not interpret it.
    pub version: String,
    /// Description for users, in one line.
    pub description: String,
    /// Capabilities that the plugin needs. The plugin gets only the capabilities that are also granted (P6).
    pub asks: Asks,
    /// A trial call that must succeed before a new version of the plugin is used. The trial call runs without
    /// grants (P10).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<Canary>,
    /// Descriptions of the tools that the host makes from exported functions (P3). Each table names an exported function
    /// that is offered as a tool, otherwise the host refuses the component.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<DescribedTool>,
}

/// A trial call to one of the plugin's own tools.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Canary {
    /// Name of the tool to call.
    pub tool: String,
    /// JSON arguments of the call. The default is an empty object.
    #[serde(default = "no_arguments")]
    pub arguments: Value,
}

fn no_arguments() -> Value {
    Value::Object(serde_json::Map::new())
}

/// The capabilities that a plugin asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Asks {
    /// The access to directories that the plugin asks for. `None` means that the plugin opens no files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<Access>,
    /// Names of environment variables that the plugin reads.
    pub env: Vec<String>,
    /// Keys of `wasi:config` that the plugin reads.
    pub config: Vec<String>,
    /// Patterns of the plugin's `wasi:http` requests: `[METHOD ]SCHEME://HOST[:PORT][/PREFIX]`; the host may be `*`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub http: Vec<String>,
    /// Names of secrets that the host adds to the plugin's requests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// Whether the plugin stores values between calls (`wasi:keyvalue`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub key_value: bool,
    /// Number of tokens of the agent's model that the plugin needs in a turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_tokens: Option<u64>,
    /// Types of the service events that the plugin's tools ask the host to send when they return `pending`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<String>,
    /// Whether the plugin reads media items of the conversation, which it identifies by their digests.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub media: bool,
    /// Names in `env`, `config` and `secrets` without which the plugin works, too. The host does not ask the user for them, and does not
    /// report them as missing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub optional: Vec<String>,
}

impl Asks {
    /// Returns whether the plugin works without this grant, too.
    pub fn is_optional(&self, need: &Need) -> bool {
        let (Need::Env(name) | Need::Config(name) | Need::Secret(name)) = need else { return false };
        self.optional.contains(name)
    }

    /// Returns the first optional name that the plugin does not ask for.
    fn unknown_optional(&self) -> Option<&String> {
        self.optional
            .iter()
            .find(|name| ![&self.env, &self.config, &self.secrets].iter().any(|list| list.contains(name)))
    }
}

/// The kind of access to a directory and to everything below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Directories may be listed, and files may be read.
    Read,
    /// Files may also be created, changed and deleted.
    ReadWrite,
}

/// The error for a manifest that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// The manifest section of the component is invalid.
    #[error("its manifest section is invalid: {reason}; build it again with `agent-host plugin build`")]
    Section {
        /// Explains why the section is invalid.
        reason: String,
    },
    /// `plugin.toml` is invalid.
    #[error("{}:{line}: {reason}", path.display())]
    Toml {
        /// Path of the invalid `plugin.toml`.
        path: PathBuf,
        /// Line of the problem, counted from 1.
        line: usize,
        /// Error message that names the invalid key and the allowed values.
        reason: String,
    },
    /// The file with the manifest, which is beside the component, cannot be read.
    #[error("its manifest {} cannot be read: {reason}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Explains why the file cannot be read.
        reason: String,
    },
    /// The component contains a manifest, and there is another manifest in a file beside it.
    #[error(
        "it has two manifests: one in the component, and one in {}; delete that file, because the manifest in the component \
         belongs to the author's version",
        path.display()
    )]
    Two {
        /// Path of the file beside the component.
        path: PathBuf,
    },
    /// The file into which the manifest should be written is not a component.
    #[error("the manifest cannot be written into the file: {0}")]
    Component(#[from] crate::binary::scan::NotAComponent),
}

impl Manifest {
    /// Parses the text of `plugin.toml`. Error messages start with `path`. Unknown keys are refused.
    pub fn from_toml(text: &str, path: &Path) -> Result<Self, ManifestError> {
        let problem = |offset: usize, reason: String| ManifestError::Toml {
            path: path.to_owned(),
            line: text[..text.floor_char_boundary(offset)].matches('\n').count() + 1,
            reason: clean(&reason, REASON_BYTES),
        };
        let toml: PluginToml = toml::from_str(text)
            .map_err(|error| problem(error.span().map_or(0, |span| span.start), error.message().replace('\n', " ")))?;
        let name = toml.name.get_ref();
        if let Some(rule) = broken_rule(name) {
            return Err(problem(toml.name.span().start, format!("`name` is {name:?}, but {rule}")));
        }
        for pattern in &toml.asks.http {
            if let Err(error) = pattern.parse::<HttpPattern>() {
                return Err(problem(text.find(pattern.as_str()).unwrap_or(0), format!("`http`: {error}")));
            }
        }
        for event_type in &toml.asks.events {
            if let Err(error) = ServiceEventType::parse(event_type) {
                return Err(problem(text.find(event_type.as_str()).unwrap_or(0), format!("`events`: {error}")));
            }
        }
        if let Some(name) = toml.asks.unknown_optional() {
            let reason =
                format!("`optional` names `{name}`, which is neither in `env` nor in `config` nor in `secrets`");
            return Err(problem(text.find("optional").unwrap_or(0), reason));
        }
        let mut tools = Vec::with_capacity(toml.tools.len());
        for tool in toml.tools {
            tools.push(tool.read().map_err(|(offset, reason)| problem(offset, reason))?);
        }
        Ok(Self {
            name: toml.name.into_inner(),
            version: toml.version,
            description: toml.description,
            asks: toml.asks,
            canary: toml.canary,
            tools,
        })
    }

    /// Parses the component's manifest section. Unknown keys are ignored, and a missing key asks for nothing. A section
    /// that is not JSON is refused. If the section were ignored, the component would count as a component without a
    /// manifest, and would get all configured grants.
    pub(crate) fn from_section(section: &[u8]) -> Result<Self, ManifestError> {
        let problem = |reason: String| ManifestError::Section { reason };
        if section.len() > MANIFEST_BYTES {
            return Err(problem(format!("it has {} bytes, but at most {MANIFEST_BYTES} are allowed", section.len())));
        }
        let json: Value = serde_json::from_slice(section).map_err(|error| problem(error.to_string()))?;
        let text = |key: &str| clean(json[key].as_str().unwrap_or_default(), 1024);
        let name = text("name");
        if let Some(rule) = broken_rule(&name) {
            return Err(problem(format!("its name is {name:?}, but {rule}: change the name in its plugin.toml")));
        }
        let asks = &json["asks"];
        // If a table were ignored, a tool would lose a trait that its publisher has added. Only unknown keys are ignored.
        let tools = json.get("tools").map(|tools| serde_json::from_value(tools.clone())).transpose();
        Ok(Self {
            name,
            version: text("version"),
            description: text("description"),
            asks: Asks {
                files: serde_json::from_value(asks["files"].clone()).ok(),
                env: names(&asks["env"]),
                config: names(&asks["config"]),
                http: names(&asks["http"]),
                secrets: names(&asks["secrets"]),
                key_value: asks["key_value"] == true,
                model_tokens: asks["model_tokens"].as_u64().filter(|tokens| *tokens > 0),
                events: event_types(&asks["events"]),
                media: asks["media"] == true,
                optional: names(&asks["optional"]),
            },
            canary: serde_json::from_value(json["canary"].clone()).ok(),
            tools: tools.map_err(|error| problem(format!("`tools`: {error}")))?.unwrap_or_default(),
        })
    }
}

/// Returns a copy of the component with this manifest, which replaces the component's existing manifest if there is
/// one. Reads only the headers of the outermost sections.
pub fn with_manifest(component: &[u8], manifest: &Manifest) -> Result<Vec<u8>, ManifestError> {
    // A WIT package also has the header of a component, but it is not a component.
    interfaces(component)?;
    let json = serde_json::to_vec(manifest).map_err(|error| ManifestError::Section { reason: error.to_string() })?;
    let mut bytes = component[..HEADER_BYTES].to_vec();
    for section in Sections::of(component)? {
        let section = section?;
        if manifest_json(section).is_some() {
            continue;
        }
        bytes.push(section.id);
        section.contents.encode(&mut bytes);
    }
    CustomSection { name: MANIFEST_SECTION.into(), data: json.into() }.append_to(&mut bytes);
    Ok(bytes)
}

/// Returns the name for a plugin without a manifest: the name of its file without the extension, in which invalid
/// characters are replaced.
pub(crate) fn name_of_stem(stem: &str) -> String {
    let name: String = stem
        .chars()
        .map(|character| if is_name_character(character) { character } else { '-' })
        .take(NAME_LENGTH)
        .collect();
    match name.as_str() {
        HOST => format!("{HOST}-plugin"),
        name if name.chars().all(|character| character == '.') => "plugin".to_owned(),
        _ => name,
    }
}

const NAME_RULE: &str = "a plugin's name has 1 to 64 letters, digits, `_`, `-` or `.`";
const DOTS_RULE: &str = "a plugin's name cannot consist only of dots";
/// Name of the host itself: grants with this name apply to the host's own tools.
const HOST: &str = "host";
const HOST_RULE: &str = "the name `host` is reserved for the host itself in grants and questions";

/// The keys and tables that `plugin.toml` may contain.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PluginToml {
    name: toml::Spanned<String>,
    #[serde(default)]
    version: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    asks: Asks,
    #[serde(default)]
    canary: Option<Canary>,
    #[serde(default)]
    tools: Vec<described_tool::ToolToml>,
    /// A table that only `agent-host plugin build` reads. This table is not stored in the component.
    #[serde(default, rename = "build")]
    _build: serde::de::IgnoredAny,
}

/// The rule that the plugin name violates, or None if the name is valid.
fn broken_rule(name: &str) -> Option<&'static str> {
    match name {
        HOST => Some(HOST_RULE),
        _ if !(1..=NAME_LENGTH).contains(&name.len()) || !name.chars().all(is_name_character) => Some(NAME_RULE),
        _ if name.chars().all(|character| character == '.') => Some(DOTS_RULE),
        _ => None,
    }
}

fn is_name_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-' | '.')
}

fn names(list: &Value) -> Vec<String> {
    let names = list.as_array().into_iter().flatten().filter_map(Value::as_str);
    names.take(MAX_LISTED_NAMES).map(str::to_owned).collect()
}

/// Removes event types that cannot be granted.
fn event_types(list: &Value) -> Vec<String> {
    names(list).into_iter().filter(|event_type| ServiceEventType::parse(event_type).is_ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component() -> Vec<u8> {
        wat::parse_str("(component (component) (core module (memory 1)))").expect("a component")
    }

    fn manifest() -> Manifest {
        Manifest {
            name: "files".to_owned(),
            version: "0.1.0".to_owned(),
            description: "Reads files.".to_owned(),
            asks: Asks { files: Some(Access::ReadWrite), env: vec!["LANG".to_owned()], ..Asks::default() },
            canary: Some(Canary { tool: "files.list".to_owned(), arguments: serde_json::json!({"path": "."}) }),
            tools: Vec::new(),
        }
    }

    // S2: the manifest is embedded in the component, and the host reads it back.
    #[test]
    fn s2_manifest_section_is_written_read_and_replaced() {
        let once = with_manifest(&component(), &Manifest::default()).expect("a component");
        let twice = with_manifest(&once, &manifest()).expect("a component");
        let section =
            crate::binary::sections::find_manifest(&twice).expect("a component").json.expect("the section").to_vec();
        assert_eq!(Manifest::from_section(&section), Ok(manifest()));
        let again = with_manifest(&twice, &manifest()).expect("a component");
        assert_eq!(again, twice, "the component has one manifest section and is otherwise unchanged");
        assert!(twice.starts_with(&component()), "the component itself is unchanged");
    }

    #[test]
    fn unknown_section_keys_are_ignored_and_do_not_request_grants() {
        let read = |json: &str| Manifest::from_section(json.as_bytes());
        let manifest = read(r#"{"name": "x", "new": 1, "asks": {"files": "all", "env": ["A", 1], "net": true}}"#);
        let asks = Asks { env: vec!["A".to_owned()], ..Asks::default() };
        assert_eq!(manifest.expect("a manifest").asks, asks);
        let json = r#"{"name": "x", "asks": {"events": ["a.b", "agent-host.turn.failed", 7, ""], "media": "yes"}}"#;
        let asks = Asks { events: vec!["a.b".to_owned()], ..Asks::default() };
        assert_eq!(read(json).expect("a manifest").asks, asks);
        assert!(read("{").is_err());
        assert!(read(r#"{"name": "../x"}"#).is_err());
        // P4: a plugin cannot have the name of the host, or a name that could be used as a path.
        for (name, rule) in [("host", "the host itself"), ("..", "only of dots"), (".", "only of dots")] {
            let error = read(&format!(r#"{{"name": "{name}"}}"#)).expect_err(name).to_string();
            assert!(error.contains(rule) && error.contains("change the name"), "{error}");
            let error = Manifest::from_toml(&format!("name = \"{name}\""), Path::new("p/plugin.toml"));
            let error = error.expect_err(name).to_string();
            assert!(error.starts_with("p/plugin.toml:1: ") && error.contains(rule), "{error}");
        }
        assert_eq!(["host", ".", "..", "a b"].map(name_of_stem), ["host-plugin", "plugin", "plugin", "a-b"]);
        assert!(read(&format!(r#"{{"name": "x", "description": "{}"}}"#, "y".repeat(MANIFEST_BYTES))).is_err());
    }

    #[test]
    fn plugin_toml_errors_contain_file_line_and_key() {
        let read = |text: &str| Manifest::from_toml(text, Path::new("p/plugin.toml"));
        let text = "name = \"files\"\nversion = \"0.1.0\"\ndescription = \"Reads files.\"\n\n[asks]\n\
                    files = \"read-write\"\nenv = [\"LANG\"]\n\n[canary]\ntool = \"files.list\"\n\
                    arguments = { path = \".\" }\n";
        assert_eq!(read(text), Ok(manifest()));
        let message = |text: &str| read(text).expect_err("refused").to_string();
        let unknown = message("name = \"x\"\n[asks]\nnetwork = []\n");
        assert!(unknown.starts_with("p/plugin.toml:3: ") && unknown.contains("`network`"), "{unknown}");
        let request = message("name = \"x\"\n[asks]\nhttp = [\n  \"example.com\",\n]\n");
        assert!(request.starts_with("p/plugin.toml:4: `http`"), "{request}");
        let value = message("name = \"x\"\n\n[asks]\nfiles = \"write\"\n");
        assert!(value.starts_with("p/plugin.toml:4: ") && value.contains("read-write"), "{value}");
        // Row 51: a plugin cannot ask for the host's own events.
        let event = message("name = \"x\"\n\n[asks]\nevents = [\"agent-host.turn.finished\"]\n");
        assert!(event.starts_with("p/plugin.toml:4: `events`") && event.contains("reserved"), "{event}");
        let optional = message("name = \"x\"\n\n[asks]\nsecrets = [\"A\"]\noptional = [\"A\", \"B\"]\n");
        assert!(optional.starts_with("p/plugin.toml:5: `optional` names `B`"), "{optional}");
        assert!(message("\nname = \"a b\"\n").starts_with("p/plugin.toml:2: `name`"));
        assert!(message("version = \"1\"\n").contains("`name`"));
    }
}
