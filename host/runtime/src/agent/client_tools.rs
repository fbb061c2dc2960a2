//! The variant of an agent that offers the tools of the program which began the turn (I3). The client runs the calls of these
//! tools itself, so they need no grant, and the host never runs anything of the client.

use super::config::{AgentConfig, Configured};
use super::{Agent, AgentError};
use crate::tools::builtins;
use crate::tools::registry::RegistryError;
use agent_core::loop_break::LoopBreak;
use agent_core::run::{MAX_JSON_DEPTH, is_too_deep};
use agent_core::tool::{ClientTool, ToolSource};
use std::sync::Arc;

/// Maximum number of tools that a client may offer in a turn.
const MAX_TOOLS: usize = 128;
/// Maximum number of characters of a tool's name.
const MAX_NAME_CHARACTERS: usize = 64;
/// Maximum size of all definitions together, as JSON. The definitions are part of the state of the session.
const MAX_BYTES: usize = 128 << 10;
/// The host's own tools that the loop treats in a special way, in addition to the tools that end a turn.
const RESERVED_NAMES: [&str; 4] = [
    builtins::name::LIST_DIRECTORY,
    builtins::name::READ_FILE,
    builtins::name::READ_RESULT,
    builtins::name::MEMORY_SEARCH,
];

/// The reason why the tools of a client cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum ClientToolsError {
    /// There are too many tools.
    #[error("the client offers {0} tools, and the maximum is {MAX_TOOLS}")]
    TooMany(usize),
    /// The definitions are too long.
    #[error("the definitions of the client's tools have {0} bytes, and the maximum is {MAX_BYTES}")]
    TooLong(usize),
    /// The name of a tool is not valid.
    #[error(
        "the name of the client's tool {0:?} must have 1 to {MAX_NAME_CHARACTERS} characters, each of them a letter from a to z or \
         A to Z, a digit, `_`, `-` or `.`"
    )]
    Name(String),
    /// The agent already has a tool with this name.
    #[error("the client's tool `{name}` has the same name as a tool of {other}; rename the client's tool")]
    Taken {
        /// The name of both tools.
        name: String,
        /// Where the other tool comes from.
        other: String,
    },
    /// The schema of a tool is nested too deeply.
    #[error("the schema of the client's tool `{0}` is nested more than {MAX_JSON_DEPTH} levels deep")]
    TooDeep(String),
    /// The schema of a tool is not valid.
    #[error("the schema of the client's tool `{name}` cannot be used: {problem}")]
    Schema {
        /// Name of the tool.
        name: String,
        /// The reason.
        problem: String,
    },
}

impl Agent {
    /// Returns a variant of this agent that also offers these tools. Without tools, the agent is returned unchanged.
    pub(crate) fn with_client_tools(self: &Arc<Self>, tools: Vec<ClientTool>) -> Result<Arc<Self>, AgentError> {
        if tools.is_empty() {
            return Ok(self.clone());
        }
        self.check_client_tools(&tools)?;
        let config = AgentConfig { client_tools: tools, ..self.config().clone() };
        match Configured::new(config).and_then(|configured| Self::build(configured, self.models.clone(), self.parts()))
        {
            Ok(agent) => Ok(Arc::new(agent)),
            Err(AgentError::Registry(error)) => Err(of_registry(error)),
            Err(error) => Err(error),
        }
    }

    fn check_client_tools(&self, tools: &[ClientTool]) -> Result<(), ClientToolsError> {
        if tools.len() > MAX_TOOLS {
            return Err(ClientToolsError::TooMany(tools.len()));
        }
        for (index, ClientTool { name, input_schema, .. }) in tools.iter().enumerate() {
            let is_accepted = |character: char| character.is_ascii_alphanumeric() || "_-.".contains(character);
            if name.is_empty() || name.len() > MAX_NAME_CHARACTERS || !name.chars().all(is_accepted) {
                return Err(ClientToolsError::Name(name.chars().take(MAX_NAME_CHARACTERS).collect()));
            }
            if is_too_deep(input_schema) {
                return Err(ClientToolsError::TooDeep(name.clone()));
            }
            if !input_schema.is_object() {
                let problem = "it must be an object".to_owned();
                return Err(ClientToolsError::Schema { name: name.clone(), problem });
            }
            let is_reserved = RESERVED_NAMES.contains(&name.as_str()) || LoopBreak::of_tool(name).is_some();
            let other = match self.registry().source_of(name) {
                Some(other) => Some(other.to_string()),
                None if is_reserved => Some(ToolSource::BuiltIn.to_string()),
                None if tools[..index].iter().any(|earlier| earlier.name == *name) => Some("the client".to_owned()),
                None => None,
            };
            if let Some(other) = other {
                return Err(ClientToolsError::Taken { name: name.clone(), other });
            }
        }
        let bytes = serde_json::to_vec(tools).map_or(usize::MAX, |json| json.len());
        if bytes > MAX_BYTES { Err(ClientToolsError::TooLong(bytes)) } else { Ok(()) }
    }
}

/// Converts an error of the registry, which can only concern the client's tools.
fn of_registry(error: RegistryError) -> AgentError {
    match error {
        RegistryError::Schema { name, error, .. } => {
            ClientToolsError::Schema { name, problem: error.to_string() }.into()
        }
        RegistryError::Duplicate { name, first, second } => {
            let other = if *first == ToolSource::Client { second } else { first };
            ClientToolsError::Taken { name, other: other.to_string() }.into()
        }
    }
}
