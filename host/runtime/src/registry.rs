//! One registry of tools with one name space, whatever they come from (L7, L8, L14).

use crate::approvals::digest_of_tool;
use crate::builtins::{but_the_result, loop_break};
use crate::services::{Reserved, with_reserved, without_reserved, without_reserved_value};
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
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// Bytes of a description that the model is shown.
const MAX_DESCRIPTION: usize = 2 * 1024;
/// Tools that an error message lists.
const LISTED: usize = 20;

/// A tool that can be called.
#[derive(Debug)]
pub struct RegisteredTool {
    /// What it says about itself.
    pub definition: Arc<ToolDefinition>,
    /// Where it comes from.
    pub source: ToolSource,
    /// Whether the model is told of it.
    pub availability: Availability,
    /// What an approval is bound to (L17): the plugin's component, or the definition where the tool comes from elsewhere.
    pub digest: Digest,
    schemas: Arc<Schemas>,
    reserved: Reserved,
}

/// What a tool's arguments and structured results are checked with.
#[derive(Debug)]
struct Schemas {
    arguments: Schema,
    structured: Option<Schema>,
}

/// Whether the model is told of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Availability {
    /// It is.
    Offered,
    /// It is not: it could do nothing without a grant, or the agent may not use it. A call is told so.
    Withheld {
        /// For the model.
        message: String,
        /// What would allow it, for people.
        advice: String,
    },
    /// It is not: its server says something else of it than when the turn began. New calls are told so; what becomes of
    /// those that were made before is decided when they are to run.
    Renewed {
        /// For the model.
        message: String,
        /// For people.
        advice: String,
    },
}

/// The tools of one agent: an immutable snapshot.
#[derive(Debug, Default)]
pub struct Registry {
    tools: BTreeMap<String, Arc<RegisteredTool>>,
    offer: Arc<Offer>,
    /// MCP servers whose tools are not there, and why.
    absent: BTreeMap<String, String>,
    /// Tools of MCP servers that the turn began with and that are there no more, each with its server.
    gone: BTreeMap<String, String>,
}

/// What the model is told of the tools. Registries whose tools say the same share it.
#[derive(Debug, Default)]
struct Offer {
    names: ToolNames,
    tools: Vec<OfferedTool>,
    tokens: u32,
    /// Made once, when it is first asked for (L25).
    words: OnceLock<Index>,
}

/// Tools that cannot stand in one registry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// Two tools have one name.
    #[error("two tools are named `{name}`: one of {first}, one of {second}; rename one or leave one of them out")]
    Duplicate {
        /// Their name.
        name: String,
        /// Where the one comes from that has the name: of the host and the agent's own file, of plugins, and of MCP servers,
        /// in this order.
        first: Box<ToolSource>,
        /// Where the other one comes from.
        second: Box<ToolSource>,
    },
    /// A schema cannot be used.
    #[error("the {which} schema of tool `{name}` of {origin}: {error}")]
    Schema {
        /// The tool's name.
        name: String,
        /// `input` or `output`.
        which: &'static str,
        /// Where the tool comes from.
        origin: String,
        /// What is wrong.
        error: SchemaError,
    },
}

impl Registry {
    /// Puts the tools into one name space. Of two with one name the one that comes first has it; which one that is changes
    /// only the error.
    pub fn new(
        tools: impl IntoIterator<Item = (ToolDefinition, ToolSource, Availability)>,
    ) -> Result<Self, RegistryError> {
        let tools = tools.into_iter();
        Self::after(None, tools.map(|(tool, source, availability)| (Cow::Owned(tool), source, availability)))
    }

    /// The same after an earlier one, with which it shares what is the same: compiling a schema takes longer than a call
    /// does, and so does giving it up.
    pub(crate) fn after<'t>(
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
        registry.offer = match earlier.filter(|earlier| earlier.says_the_same(&registry)) {
            Some(earlier) => earlier.offer.clone(),
            None => registry.measured(),
        };
        Ok(registry)
    }

    /// Whether a model is told the same of the tools of another one.
    fn says_the_same(&self, other: &Registry) -> bool {
        self.tools.len() == other.tools.len()
            && self.tools.values().zip(other.tools.values()).all(|(tool, other)| {
                Arc::ptr_eq(&tool.definition, &other.definition) && tool.is_offered() == other.is_offered()
            })
    }

    /// The same tools, each as available as this says.
    pub(crate) fn withholding(mut self, availability: impl Fn(&RegisteredTool) -> Availability) -> Self {
        for tool in self.tools.values_mut() {
            let availability = availability(tool);
            if let Some(tool) = Arc::get_mut(tool) {
                tool.availability = availability;
            }
        }
        self.offer = self.measured();
        self
    }

    /// Names and measures what is offered.
    fn measured(&self) -> Arc<Offer> {
        let names = ToolNames::new(self.tools.keys().map(String::as_str));
        let tools = self.tools.values().filter(|tool| tool.is_offered());
        let tools: Vec<_> = tools.map(|tool| offer(&tool.definition, &names)).collect();
        let tokens = tools.iter().map(tokens_of).fold(0, u32::saturating_add);
        Arc::new(Offer { names, tools, tokens, words: OnceLock::new() })
    }

    /// The same tools, and MCP servers whose tools would be there if they could be reached, each with the reason (I5).
    pub(crate) fn without(mut self, absent: impl IntoIterator<Item = (String, String)>) -> Self {
        self.absent.extend(absent);
        self
    }

    /// The same tools, and of those that a turn began with the ones that are there no more, each with its server (P10).
    pub(crate) fn without_gone<'n>(mut self, began_with: impl Iterator<Item = (&'n str, &'n str)>) -> Self {
        let gone = began_with.filter(|(name, _)| !self.tools.contains_key(*name));
        self.gone = gone.map(|(name, server)| (name.to_owned(), server.to_owned())).collect();
        self
    }

    /// The tool of that name, as its author wrote it.
    pub fn get(&self, name: &str) -> Option<&Arc<RegisteredTool>> {
        self.tools.get(name)
    }

    /// All tools, by name.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<RegisteredTool>> + Clone {
        self.tools.values()
    }

    /// Those that the model is told of, by name, in the provider's alphabet.
    pub fn offered(&self) -> &[OfferedTool] {
        &self.offer.tools
    }

    /// The words of their names and descriptions, in the same order.
    pub(crate) fn words(&self) -> &Index {
        let Offer { words, tools, .. } = &*self.offer;
        words
            .get_or_init(|| Index::new(tools.iter().map(|tool| (tool.author_name.as_str(), tool.description.as_str()))))
    }

    /// What offering them costs, measured (L26).
    pub fn tokens(&self) -> u32 {
        self.offer.tokens
    }

    /// Names in the history are the author's; this gives the provider's.
    pub fn provider_name<'a>(&'a self, author: &'a str) -> &'a str {
        self.offer.names.provider_name(author).unwrap_or(author)
    }

    /// Those of the offered ones that have these names, by name; none: all of them.
    pub(crate) fn offered_among(&self, names: Option<&[String]>) -> Vec<&OfferedTool> {
        let is_named = |tool: &&OfferedTool| names.is_none_or(|names| names.contains(&tool.author_name));
        self.offer.tools.iter().filter(is_named).collect()
    }

    /// What offering these costs, measured (L26).
    pub(crate) fn tokens_of(&self, names: &[String]) -> u32 {
        self.offered_among(Some(names)).into_iter().map(tokens_of).fold(0, u32::saturating_add)
    }

    /// Where a tool comes from; none for one that is not there.
    pub(crate) fn source_of(&self, author: &str) -> Option<&ToolSource> {
        self.tools.get(author).map(|tool| &tool.source)
    }

    /// Where a model that can only write finds a tool, by either of its names (L20).
    pub(crate) fn address_of(&self, name: &str) -> ToolAddress {
        let author = self.offer.names.author_name(name).unwrap_or(name);
        ToolAddress::new(author, self.source_of(author))
    }

    /// Looks a model's call up and checks its arguments, before anything runs.
    pub fn resolve(&self, call: &RequestedCall) -> ResolvedCall {
        let author = self.offer.names.author_name(&call.name).unwrap_or(&call.name);
        self.resolve_by_author(author, &call.arguments)
    }

    /// The same of a call that names the tool as its author does.
    pub(crate) fn resolve_by_author(&self, author: &str, arguments: &str) -> ResolvedCall {
        // What is no JSON is kept as the model wrote it.
        let (arguments, readable) = match parse_arguments(arguments) {
            Ok(arguments) => (arguments, Ok(())),
            Err(error) => (Value::String(arguments.to_owned()), Err(error)),
        };
        let arguments = without_reserved_value(arguments);
        let Some(tool) = self.tools.get(author) else {
            if let Some((server, error)) = self.absence(author) {
                let (source, disposition) = (ToolSource::of_server(server), Disposition::Refused(error));
                let (name, approval) = (author.to_owned(), Approval::NotNeeded);
                return ResolvedCall { name, arguments, source: Some(source), disposition, approval };
            }
            let message = match self.gone.iter().find(|(name, _)| {
                name.as_str() == author || ToolNames::new([name.as_str()]).provider_name(name) == Some(author)
            }) {
                Some((name, server)) => format!(
                    "MCP server {server} has no tool `{name}` any more, which it had when this turn began: go on without \
                     it; {}",
                    self.known()
                ),
                None => format!("there is no tool `{author}`; {}", self.known()),
            };
            let disposition = Disposition::NotFound { message };
            let (name, approval) = (author.to_owned(), Approval::NotNeeded);
            return ResolvedCall { name, arguments, source: None, disposition, approval };
        };
        let disposition = match readable.map(|()| tool.withheld()).and_then(|withheld| match withheld {
            Some(withheld) => Ok(Some(withheld)),
            None => tool.admit(&arguments).map(|()| None),
        }) {
            Err(error) => Disposition::Refused(error),
            Ok(Some((message, denial))) => Disposition::Withheld { message, denial },
            Ok(None) => match loop_break(tool) {
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

    /// Whether such a name is of a server that is not there.
    pub(crate) fn is_absent(&self, name: &str) -> bool {
        self.absence(name).is_some()
    }

    /// The server that such a name is of, by either name of the tool, and that it is not there.
    fn absence(&self, name: &str) -> Option<(String, ToolError)> {
        let is_of = |server: &str| name.strip_prefix(server).is_some_and(|rest| rest.starts_with(['.', '_']));
        let (server, reason) = self.absent.iter().rev().find(|(server, _)| is_of(server))?;
        let message = format!(
            "MCP server {server} could not be reached, so its tools are not there in this turn: go on without them, or say \
             what could not be done. Why: {reason}"
        );
        Some((server.clone(), ToolError::Unavailable { message, retry_after: None }))
    }

    /// What a model is told instead of a tool that is not there.
    pub(crate) fn known(&self) -> String {
        let known: Vec<&str> = self.offer.tools.iter().take(LISTED).map(|tool| tool.author_name.as_str()).collect();
        let more = self.offer.tools.len().saturating_sub(LISTED);
        match (known.is_empty(), more) {
            (true, _) => "there is no other one either".to_owned(),
            (false, 0) => format!("there are {}", known.join(", ")),
            (false, more) => format!("there are {} and {more} more", known.join(", ")),
        }
    }
}

impl Schemas {
    /// Compiles them, where they are not those of the tool that had this name before.
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
    /// Takes over what is the same of the tool that had this name before.
    fn new(
        definition: Cow<'_, ToolDefinition>,
        (source, availability): (ToolSource, Availability),
        known: Option<&Arc<RegisteredTool>>,
    ) -> Result<Self, RegistryError> {
        let (definition, reserved) = match known {
            // Without reserved fields it is kept as its author wrote it.
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

    /// The arguments as they go out: with what the host fills in (L15).
    pub(crate) fn outgoing<'a>(&self, arguments: &'a Value, subject: &str) -> Cow<'a, Value> {
        match self.reserved {
            Reserved::Subject => Cow::Owned(with_reserved(arguments, subject)),
            Reserved::Nothing => Cow::Borrowed(arguments),
        }
    }

    /// Why nobody may call it, where nobody may (P6).
    pub(crate) fn withheld(&self) -> Option<(String, Denial)> {
        let (Availability::Withheld { message, advice } | Availability::Renewed { message, advice }) =
            &self.availability
        else {
            return None;
        };
        let thing = format!("`{}`", self.definition.name);
        Some((message.clone(), Denial { plugin: self.source.to_string(), thing, grant: advice.clone() }))
    }

    fn admit(&self, arguments: &Value) -> Result<(), ToolError> {
        self.check_arguments(arguments).map_err(|violations| ToolError::InvalidArguments { violations })
    }

    /// Whether arguments satisfy the tool's schema, whoever wrote them (L8).
    pub fn check_arguments(&self, arguments: &Value) -> Result<(), Vec<Violation>> {
        let violations = but_the_result(self, self.schemas.arguments.check(arguments).err().unwrap_or_default());
        if violations.is_empty() { Ok(()) } else { Err(violations) }
    }

    /// Whether the structured result is what the tool promised.
    pub fn check_structured(&self, structured: Option<&Value>) -> Result<(), ToolError> {
        let Some(schema) = &self.schemas.structured else { return Ok(()) };
        let Some(value) = structured else {
            let message = format!("{} promised a structured result and gave none", self.source);
            return Err(ToolError::Failed { message });
        };
        schema.check(value).map_err(|violations| ToolError::Failed {
            message: format!(
                "{} broke its own output schema: {}",
                self.source,
                violations.iter().map(|v| format!("{} {}", v.pointer, v.message)).collect::<Vec<_>>().join("; ")
            ),
        })
    }
}

/// As the model is told of it.
fn offer(definition: &ToolDefinition, names: &ToolNames) -> OfferedTool {
    OfferedTool {
        name: names.provider_name(&definition.name).unwrap_or(&definition.name).to_owned(),
        author_name: definition.name.clone(),
        description: cut(&definition.description, MAX_DESCRIPTION).to_owned(),
        input_schema: definition.input_schema.clone(),
    }
}

/// What offering a tool costs.
pub(crate) fn tokens_of(tool: &OfferedTool) -> u32 {
    let schema = tokens::of_text(&tool.input_schema.to_string());
    tokens::of_text(&tool.name).saturating_add(tokens::of_text(&tool.description)).saturating_add(schema)
}

/// At most so many bytes, on a character boundary.
fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes.min(text.len()))]
}

#[cfg(test)]
mod tests;
