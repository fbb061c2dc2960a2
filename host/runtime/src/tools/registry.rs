//! The registry of an agent's tools. Tools from all sources share one namespace (L7, L8, L14).

pub use super::availability::Availability;

use super::builtins::name::RUN_COMMAND;
use super::builtins::{ignoring_result_violations, loop_break};
use super::commands;
use super::reserved::{Reserved, with_reserved, without_reserved, without_reserved_value};
use super::tool_list::{RecordedNames, ToolTexts};
use agent_core::approval::canonical_json;
use agent_core::change::Denial;
use agent_core::message::Digest;
use agent_core::model::{OfferedTool, RequestedCall};
use agent_core::names::ToolNames;
use agent_core::nearest::Index;
use agent_core::run::{Approval, Disposition, ResolvedCall};
use agent_core::schema::{Schema, SchemaError, parse_arguments};
use agent_core::text_dialect::ToolAddress;
use agent_core::tokens;
use agent_core::tool::{ToolDefinition, ToolError, ToolSource, Violation};
use agent_store::digest_of;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// Maximum number of bytes of a tool's description in a prompt. Longer descriptions are truncated.
const MAX_DESCRIPTION_BYTES: usize = 2 * 1024;
/// Maximum number of tools that an error message lists.
const MAX_LISTED_TOOLS: usize = 20;

/// A tool in the registry.
#[derive(Debug)]
pub struct RegisteredTool {
    /// Name, description, schemas and traits of the tool.
    pub definition: Arc<ToolDefinition>,
    /// Where the tool comes from: a plugin, an MCP server, a service, another agent or the host.
    pub source: ToolSource,
    /// Whether the tool is offered to the model.
    pub availability: Availability,
    /// The digest that an approval is bound to (L17). For a plugin's tool, the digest is that of the plugin's
    /// component. For a tool from any source other than a plugin, the digest is computed from the tool's definition
    /// and source.
    pub digest: Digest,
    schemas: Arc<Schemas>,
    reserved: Reserved,
}

/// The compiled schemas of a tool's arguments and structured results.
#[derive(Debug)]
struct Schemas {
    arguments: Schema,
    structured: Option<Schema>,
}

/// An immutable snapshot of the tools of one agent.
#[derive(Debug, Default)]
pub struct Registry {
    tools: BTreeMap<String, Arc<RegisteredTool>>,
    offer: Arc<OfferedTools>,
    /// MCP servers that could not be reached, each with the reason. The registry lacks the tools of the servers that
    /// could not be reached.
    absent: BTreeMap<String, String>,
    /// Tools that an MCP server had when the turn began but no longer has. Maps the name of each removed tool to the
    /// name of its server.
    gone: BTreeMap<String, String>,
}

/// The tools in the form in which they are offered to the model. Registries that offer the same tools share one value
/// of the type `OfferedTools`.
#[derive(Debug, Default)]
struct OfferedTools {
    names: ToolNames,
    tools: Vec<OfferedTool>,
    tokens: u32,
    /// Search index of the offered tools (L25). The index is built on first use.
    index: OnceLock<Index>,
    /// The tools in the form in which step records refer to them. The texts are written on first use.
    texts: OnceLock<ToolTexts>,
}

/// The reason why a registry cannot be created from the given tools.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// Two of the tools have the same name.
    #[error("two tools are named `{name}`: one of {first} and one of {second}; rename or remove one of the two tools")]
    Duplicate {
        /// The name that both tools have.
        name: String,
        /// Source of the tool that keeps the name. The host and the agent's own configuration file have priority, then
        /// plugins, then MCP servers.
        first: Box<ToolSource>,
        /// Source of the tool that does not get the name.
        second: Box<ToolSource>,
    },
    /// The input schema or output schema of a tool is invalid.
    #[error("the {which} schema of tool `{name}` of {origin}: {error}")]
    Schema {
        /// Name of the tool whose schema is invalid.
        name: String,
        /// Which schema is invalid: `input` or `output`.
        which: &'static str,
        /// Source of the tool whose schema is invalid.
        origin: String,
        /// The reason why the schema is invalid.
        error: SchemaError,
    },
}

impl Registry {
    /// Creates a registry of the given tools. Returns an error if two tools have the same name. The tool that comes
    /// first in the iterator keeps the name.
    pub fn new(
        tools: impl IntoIterator<Item = (ToolDefinition, ToolSource, Availability)>,
    ) -> Result<Self, RegistryError> {
        let tools = tools.into_iter();
        Self::build(None, tools.map(|(tool, source, availability)| (Cow::Owned(tool), source, availability)))
    }

    /// Like [`Registry::new`], but shares unchanged parts with an earlier registry. Sharing saves time, because
    /// compiling a schema and dropping a compiled schema each take longer than a tool call.
    pub(crate) fn build<'t>(
        earlier: Option<&Registry>,
        tools: impl IntoIterator<Item = (Cow<'t, ToolDefinition>, ToolSource, Availability)>,
    ) -> Result<Self, RegistryError> {
        let mut registry = Self::default();
        for (definition, source, availability) in tools {
            let name = definition.name.clone();
            let known = earlier.and_then(|earlier| earlier.get(&name));
            let tool = RegisteredTool::new(definition, (source, availability), known)?;
            if let Some(first) = registry.tools.get(&name) {
                let (first, second) = (Box::new(first.source.clone()), Box::new(tool.source.clone()));
                return Err(RegistryError::Duplicate { name, first, second });
            }
            registry.tools.insert(name, Arc::new(tool));
        }
        registry.offer = match earlier.filter(|earlier| earlier.offers_the_same(&registry)) {
            Some(earlier) => earlier.offer.clone(),
            None => registry.offer_tools(),
        };
        Ok(registry)
    }

    /// Whether both registries offer the same tools to a model.
    fn offers_the_same(&self, other: &Registry) -> bool {
        self.tools.len() == other.tools.len()
            && self.tools.values().zip(other.tools.values()).all(|(tool, other)| {
                Arc::ptr_eq(&tool.definition, &other.definition) && tool.is_offered() == other.is_offered()
            })
    }

    /// Sets the availability of each tool to the value that `availability` returns for the tool.
    pub(crate) fn with_availability(mut self, availability: impl Fn(&RegisteredTool) -> Availability) -> Self {
        for tool in self.tools.values_mut() {
            let availability = availability(tool);
            if let Some(tool) = Arc::get_mut(tool) {
                tool.availability = availability;
            }
        }
        self.offer = self.offer_tools();
        self
    }

    /// Collects the offered tools, with their provider names and their token costs.
    fn offer_tools(&self) -> Arc<OfferedTools> {
        let names = ToolNames::new(self.tools.keys().map(String::as_str));
        let tools = self.tools.values().filter(|tool| tool.is_offered());
        let tools: Vec<_> = tools.map(|tool| offered_tool(&tool.definition, &names)).collect();
        let tokens = tools.iter().map(tokens_of).fold(0, u32::saturating_add);
        Arc::new(OfferedTools { names, tools, tokens, ..OfferedTools::default() })
    }

    /// Adds MCP servers that could not be reached, each with the reason (I5).
    pub(crate) fn with_absent_servers(mut self, absent: impl IntoIterator<Item = (String, String)>) -> Self {
        self.absent.extend(absent);
        self
    }

    /// Records which of the turn's original tools no longer exist (P10). The iterator yields the name and the MCP
    /// server of each tool that existed when the turn began.
    pub(crate) fn with_missing_tools<'n>(mut self, began_with: impl Iterator<Item = (&'n str, &'n str)>) -> Self {
        let gone = began_with.filter(|(name, _)| !self.tools.contains_key(*name));
        self.gone = gone.map(|(name, server)| (name.to_owned(), server.to_owned())).collect();
        self
    }

    /// Returns the tool with this name. The name must be spelled as the tool's author wrote it.
    pub fn get(&self, name: &str) -> Option<&Arc<RegisteredTool>> {
        self.tools.get(name)
    }

    /// Returns all tools, sorted by name.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<RegisteredTool>> + Clone {
        self.tools.values()
    }

    /// Returns the tools that are offered to the model, sorted by name. In the result, the names of the tools contain
    /// only characters that model providers accept.
    pub fn offered(&self) -> &[OfferedTool] {
        &self.offer.tools
    }

    /// Returns the search index of the offered tools' names and descriptions. The entries of the index are in the order
    /// of [`Registry::offered`].
    pub(crate) fn search_index(&self) -> &Index {
        let OfferedTools { index, tools, .. } = &*self.offer;
        index
            .get_or_init(|| Index::new(tools.iter().map(|tool| (tool.author_name.as_str(), tool.description.as_str()))))
    }

    /// Returns the estimated number of tokens that the offered tools use in a prompt (L26).
    pub fn tokens(&self) -> u32 {
        self.offer.tokens
    }

    /// Converts the name that a tool's author wrote, which is the name in the history, to the name that is sent to the
    /// model provider.
    pub fn provider_name<'a>(&'a self, author: &'a str) -> &'a str {
        self.offer.names.provider_name(author).unwrap_or(author)
    }

    /// Like [`Registry::provider_name`], but returns `None` if the provider uses the author's name or if the registry does
    /// not contain the tool.
    pub(crate) fn changed_name(&self, author: &str) -> Option<&str> {
        self.offer.names.provider_name(author).filter(|provider| *provider != author)
    }

    /// Returns the offered tools with these names, sorted by name. `None` selects all offered tools.
    pub(crate) fn offered_among(&self, names: Option<&[String]>) -> Vec<&OfferedTool> {
        let is_named = |tool: &&OfferedTool| names.is_none_or(|names| names.contains(&tool.author_name));
        self.offer.tools.iter().filter(is_named).collect()
    }

    /// Returns the tools in the form in which step records refer to them (D1). The texts are written on first use.
    pub(crate) fn tool_texts(&self) -> &ToolTexts {
        self.offer.texts.get_or_init(|| {
            let renamed = |name: &String| Some((name.clone(), self.changed_name(name)?.to_owned()));
            let addresses = self.tools.values().filter_map(|tool| {
                let name = tool.definition.name.clone();
                let address = ToolAddress::new(&name, Some(&tool.source));
                (address != ToolAddress::new(&name, None)).then_some((name, address))
            });
            let programs = self.tools.keys().filter(|name| self.is_run_by_name(name)).cloned();
            let names = RecordedNames {
                names: self.tools.keys().filter_map(renamed).collect(),
                addresses: addresses.collect(),
                programs: programs.collect(),
            };
            ToolTexts::new(&names, &self.offer.tools)
        })
    }

    /// Returns the estimated number of tokens that the tools with these names use in a prompt (L26).
    pub(crate) fn tokens_of(&self, names: &[String]) -> u32 {
        self.offered_among(Some(names)).into_iter().map(tokens_of).fold(0, u32::saturating_add)
    }

    /// Returns the source of the tool with this name, or `None` if the registry does not contain the tool.
    pub(crate) fn source_of(&self, author: &str) -> Option<&ToolSource> {
        self.tools.get(author).map(|tool| &tool.source)
    }

    /// Returns the address that a model must use for a tool if it writes its tool calls as text (L20). `name` is the
    /// name of the tool as its author or as the model provider spells it.
    pub(crate) fn address_of(&self, name: &str) -> ToolAddress {
        let author = self.offer.names.author_name(name).unwrap_or(name);
        ToolAddress::new(author, self.source_of(author))
    }

    /// Returns whether the tool is a command-line program that the model calls by means of `run_command`.
    pub(crate) fn is_run_by_name(&self, author: &str) -> bool {
        self.tools.get(author).is_some_and(|tool| tool.availability == Availability::RunByName)
    }

    /// If `author` and the arguments are a valid call of `run_command`, returns the name of the program and the arguments
    /// of the program's own tool.
    fn program_call(&self, author: &str, arguments: &Value) -> Option<(String, Value)> {
        let tool = self.tools.get(author).filter(|_| author == RUN_COMMAND)?;
        let is_callable = tool.source == ToolSource::BuiltIn && tool.is_offered();
        if !is_callable || tool.check_arguments(arguments).is_err() {
            return None;
        }
        commands::split(arguments).filter(|(program, _)| self.is_run_by_name(program))
    }

    /// Looks up the tool for a model's call, and checks the arguments. The tool is not run. A call of `run_command` becomes
    /// a call of the program's own tool.
    pub fn resolve(&self, call: &RequestedCall) -> ResolvedCall {
        let author = self.offer.names.author_name(&call.name).unwrap_or(&call.name);
        self.resolve_by_author(author, &call.arguments)
    }

    /// Like [`Registry::resolve`], but for a call in which the tool's name is spelled as the tool's author spelled it.
    pub(crate) fn resolve_by_author(&self, author: &str, arguments: &str) -> ResolvedCall {
        // Arguments that are not valid JSON are kept as a JSON string that contains the model's text.
        let (arguments, readable) = match parse_arguments(arguments) {
            Ok(arguments) => (arguments, Ok(())),
            Err(error) => (Value::String(arguments.to_owned()), Err(error)),
        };
        let arguments = without_reserved_value(arguments);
        if let Some((program, arguments)) = self.program_call(author, &arguments) {
            return self.resolve_by_author(&program, &arguments.to_string());
        }
        let Some(tool) = self.tools.get(author) else {
            if let Some((server, error)) = self.unreachable_server(author) {
                let (source, disposition) = (ToolSource::of_server(server), Disposition::Refused(error));
                let (name, approval) = (author.to_owned(), Approval::NotNeeded);
                return ResolvedCall { name, arguments, source: Some(source), disposition, approval };
            }
            let message = match self.gone.iter().find(|(name, _)| {
                name.as_str() == author || ToolNames::new([name.as_str()]).provider_name(name) == Some(author)
            }) {
                Some((name, server)) => format!(
                    "MCP server {server} no longer has the tool `{name}`, which it had when this turn began: continue \
                     without it; {}",
                    self.list_tools()
                ),
                None => format!("there is no tool `{author}`; {}", self.list_tools()),
            };
            let disposition = Disposition::NotFound { message };
            let (name, approval) = (author.to_owned(), Approval::NotNeeded);
            return ResolvedCall { name, arguments, source: None, disposition, approval };
        };
        let disposition = match readable.map(|()| tool.withheld()).and_then(|withheld| match withheld {
            Some(withheld) => Ok(Some(withheld)),
            None => tool.validate_arguments(&arguments).map(|()| None),
        }) {
            Err(error) => Disposition::Refused(error),
            Ok(Some((message, denial))) => Disposition::Withheld { message, denial },
            Ok(None) => match loop_break(&tool.definition, &tool.source) {
                Some(breaks) => Disposition::Breaks(breaks),
                None => Disposition::Ready {
                    priority: tool.definition.priority,
                    sequential: tool.definition.traits.sequential,
                    repeatable: tool.definition.traits.repeatable(),
                },
            },
        };
        let (name, source, approval) = (author.to_owned(), Some(tool.source.clone()), Approval::NotNeeded);
        ResolvedCall { name, arguments, source, disposition, approval }
    }

    /// Whether a tool name begins with the name of an MCP server that could not be reached.
    pub(crate) fn is_absent(&self, name: &str) -> bool {
        self.unreachable_server(name).is_some()
    }

    /// If the tool's name begins with the name of an unreachable MCP server, returns the server's name and the error
    /// for the call. `name` is the name of the tool as its author or as the model provider spells it.
    fn unreachable_server(&self, name: &str) -> Option<(String, ToolError)> {
        let is_of = |server: &str| name.strip_prefix(server).is_some_and(|rest| rest.starts_with(['.', '_']));
        let (server, reason) = self.absent.iter().rev().find(|(server, _)| is_of(server))?;
        let message = format!(
            "MCP server {server} could not be reached, so its tools are not available in this turn: continue without \
             them, or say what could not be done. Reason: {reason}"
        );
        Some((server.clone(), ToolError::Unavailable { message, retry_after: None }))
    }

    /// Returns the part of an error message that lists the tools that are offered to the model.
    pub(crate) fn list_tools(&self) -> String {
        let names: Vec<&str> =
            self.offer.tools.iter().take(MAX_LISTED_TOOLS).map(|tool| tool.author_name.as_str()).collect();
        let more = self.offer.tools.len().saturating_sub(MAX_LISTED_TOOLS);
        match (names.is_empty(), more) {
            (true, _) => "there are no other tools".to_owned(),
            (false, 0) => format!("there are {}", names.join(", ")),
            (false, more) => format!("there are {} and {more} more", names.join(", ")),
        }
    }
}

impl Schemas {
    /// Compiles the schemas of a tool. Reuses the compiled schemas of `known`, the earlier tool with the same name, if
    /// the schemas of the two tools are equal.
    fn of(
        definition: &ToolDefinition,
        source: &ToolSource,
        known: Option<&Arc<RegisteredTool>>,
    ) -> Result<Arc<Self>, RegistryError> {
        let is_same = |known: &&Arc<RegisteredTool>| {
            std::ptr::eq(&*known.definition, definition)
                || known.definition.input_schema == definition.input_schema
                    && known.definition.output_schema == definition.output_schema
        };
        if let Some(known) = known.filter(is_same) {
            return Ok(known.schemas.clone());
        }
        let compile = |which: &'static str, schema: &Value| {
            let failed = |error| RegistryError::Schema {
                name: definition.name.clone(),
                which,
                origin: source.to_string(),
                error,
            };
            Schema::compile(schema).map_err(failed)
        };
        let structured = definition.output_schema.as_ref().map(|schema| compile("output", schema)).transpose()?;
        Ok(Arc::new(Self { arguments: compile("input", &definition.input_schema)?, structured }))
    }
}

impl RegisteredTool {
    /// Creates a tool of the registry. Reuses unchanged parts of `known`, the earlier tool with the same name.
    fn new(
        definition: Cow<'_, ToolDefinition>,
        (source, availability): (ToolSource, Availability),
        known: Option<&Arc<RegisteredTool>>,
    ) -> Result<Self, RegistryError> {
        let (definition, reserved) = match known {
            // The earlier definition can be compared directly, because no reserved field was removed from it.
            Some(known) if known.reserved == Reserved::Nothing && *known.definition == *definition => {
                (known.definition.clone(), Reserved::Nothing)
            }
            known => {
                let mut definition = definition.into_owned();
                let reserved = without_reserved(&mut definition.input_schema);
                let same = known.filter(|known| known.reserved == reserved && *known.definition == definition);
                (same.map_or_else(|| Arc::new(definition), |known| known.definition.clone()), reserved)
            }
        };
        let schemas = Schemas::of(&definition, &source, known)?;
        let digest = digest_of_tool(&definition, &source);
        let source = source.defined(&digest);
        Ok(Self { digest, schemas, definition, source, availability, reserved })
    }

    fn is_offered(&self) -> bool {
        self.availability == Availability::Offered
    }

    /// Returns the arguments that are sent to the tool. If the tool's schema has the field that is reserved for the
    /// host, the result contains this field with the session's subject (L15).
    pub(crate) fn outgoing<'a>(&self, arguments: &'a Value, subject: &str) -> Cow<'a, Value> {
        match self.reserved {
            Reserved::Subject => Cow::Owned(with_reserved(arguments, subject)),
            Reserved::Nothing => Cow::Borrowed(arguments),
        }
    }

    /// If the tool must not be called, returns the message for the model and the denial for the audit log (P6).
    pub(crate) fn withheld(&self) -> Option<(String, Denial)> {
        let (Availability::Withheld { message, advice } | Availability::Renewed { message, advice }) =
            &self.availability
        else {
            return None;
        };
        let thing = format!("`{}`", self.definition.name);
        Some((message.clone(), Denial { plugin: self.source.to_string(), thing, grant: advice.clone() }))
    }

    fn validate_arguments(&self, arguments: &Value) -> Result<(), ToolError> {
        self.check_arguments(arguments).map_err(|violations| ToolError::InvalidArguments { violations })
    }

    /// Checks arguments, which a model or a user has written, against the tool's schema (L8).
    pub fn check_arguments(&self, arguments: &Value) -> Result<(), Vec<Violation>> {
        let violations = ignoring_result_violations(
            &self.definition,
            &self.source,
            self.schemas.arguments.check(arguments).err().unwrap_or_default(),
        );
        if violations.is_empty() { Ok(()) } else { Err(violations) }
    }

    /// Checks a structured result against the tool's output schema.
    pub fn check_structured(&self, structured: Option<&Value>) -> Result<(), ToolError> {
        let Some(schema) = &self.schemas.structured else { return Ok(()) };
        let Some(value) = structured else {
            let message = format!("{} declares an output schema but returned no structured result", self.source);
            return Err(ToolError::Failed { message });
        };
        schema.check(value).map_err(|violations| ToolError::Failed {
            message: format!(
                "{} violated its own output schema: {}",
                self.source,
                violations.iter().map(|v| format!("{} {}", v.pointer, v.message)).collect::<Vec<_>>().join("; ")
            ),
        })
    }
}

/// Returns the digest that an approval of a tool is bound to. For a plugin's tool, the digest is that of the plugin's
/// component. For a tool from any source other than a plugin, the digest is computed from the tool's definition
/// and source.
fn digest_of_tool(definition: &ToolDefinition, source: &ToolSource) -> Digest {
    if let ToolSource::Plugin { digest, .. } = source {
        return digest.clone();
    }
    let description = serde_json::to_value((definition, source)).expect("definitions have only string keys");
    digest_of(canonical_json(&description).as_bytes())
}

/// Converts a tool definition to the form in which it is offered to the model.
fn offered_tool(definition: &ToolDefinition, names: &ToolNames) -> OfferedTool {
    OfferedTool {
        name: names.provider_name(&definition.name).unwrap_or(&definition.name).to_owned(),
        author_name: definition.name.clone(),
        description: truncated(&definition.description, MAX_DESCRIPTION_BYTES).to_owned(),
        input_schema: definition.input_schema.clone(),
    }
}

/// Returns the estimated number of tokens that a tool uses in a prompt.
pub(crate) fn tokens_of(tool: &OfferedTool) -> u32 {
    let schema = tokens::of_text(&tool.input_schema.to_string());
    tokens::of_text(&tool.name).saturating_add(tokens::of_text(&tool.description)).saturating_add(schema)
}

/// Returns the longest beginning of the text that has at most `max_bytes` bytes and ends at a character boundary.
fn truncated(text: &str, max_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(max_bytes.min(text.len()))]
}

#[cfg(test)]
mod tests;
