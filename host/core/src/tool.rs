//! Tools as the host knows them: what they say of themselves, and what becomes of a call.

use crate::event_type::ServiceEventType;
use crate::message::{Content, Digest};
use crate::model::Usage;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a tool does to the world (P2). Nothing set: it changes something outside, once per call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Traits {
    /// Changes nothing.
    pub read_only: bool,
    /// May delete or overwrite.
    pub destructive: bool,
    /// A second call with the same id has no further effect.
    pub idempotent: bool,
    /// Never runs beside another call of the batch.
    pub sequential: bool,
    /// Deals with an open set of things.
    pub open_world: bool,
    /// The user is asked before each call.
    pub needs_approval: bool,
}

impl Traits {
    /// Whether a call that may have started can be dispatched again without asking anyone (D3).
    pub fn repeatable(self) -> bool {
        self.read_only || self.idempotent
    }
}

/// What a tool says about itself (P2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolDefinition {
    /// As its author wrote it: letters, digits, `_`, `-`, `.`; 1 to 128 characters.
    pub name: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// For the model. At most 2 KiB.
    pub description: String,
    /// JSON Schema (2020-12) of the arguments; an object.
    pub input_schema: Value,
    /// JSON Schema of the structured result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// What it does to the world.
    #[serde(default)]
    pub traits: Traits,
    /// Of one reply's calls only those with the highest priority run (L6). Default 0.
    #[serde(default)]
    pub priority: i32,
}

/// Where arguments or data are wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// JSON pointer; empty for the whole.
    pub pointer: String,
    /// The JSON Schema keyword that is violated (`required`, `type` …), or `format` of another check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// What is wrong, for the model.
    pub message: String,
}

/// A tool's error: it goes to the model as the call's result (P2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "error")]
pub enum ToolError {
    /// The model should change its arguments.
    InvalidArguments {
        /// At least one.
        violations: Vec<Violation>,
    },
    /// What was asked for is not there.
    NotFound {
        /// For the model.
        message: String,
    },
    /// Not allowed; the same call will not succeed.
    Denied {
        /// Names what was missing and how to grant it.
        message: String,
    },
    /// May succeed later.
    Unavailable {
        /// For the model.
        message: String,
        /// Milliseconds. None: the host's backoff.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<u32>,
    },
    /// Anything else, a trap or a limit of the sandbox included.
    Failed {
        /// For the model.
        message: String,
    },
}

impl ToolError {
    /// The structured text that the model gets.
    pub fn for_model(&self) -> String {
        serde_json::to_string(self).expect("a tool error always serialises")
    }

    /// The same in words for people.
    pub fn for_people(&self) -> String {
        match self {
            ToolError::InvalidArguments { violations } => {
                let lines = violations.iter().map(|violation| match violation.pointer.as_str() {
                    "" => violation.message.clone(),
                    pointer => format!("{pointer}: {}", violation.message),
                });
                format!("invalid arguments: {}", lines.collect::<Vec<_>>().join("; "))
            }
            ToolError::NotFound { message } => format!("not found: {message}"),
            ToolError::Denied { message } => format!("denied: {message}"),
            ToolError::Unavailable { message, .. } => format!("unavailable, try again later: {message}"),
            ToolError::Failed { message } => format!("failed: {message}"),
        }
    }
}

/// What the model is given of a failed call, in words for people: each line that is an error as [`ToolError::for_model`]
/// writes it, or the beginning of one that was cut, is [`ToolError::for_people`]; all others stay.
pub fn errors_in_words(text: &str) -> String {
    text.split('\n').map(|line| error_in_words(line).unwrap_or_else(|| line.to_owned())).collect::<Vec<_>>().join("\n")
}

fn error_in_words(line: &str) -> Option<String> {
    // Cheaper than to read every line of a long result.
    if !line.starts_with("{\"error\":\"") {
        return None;
    }
    if let Ok(error) = serde_json::from_str::<ToolError>(line) {
        return Some(error.for_people());
    }
    // An escape that was cut in two is left out: it has at most six characters, and twelve where it is a pair.
    let whole = line.char_indices().rev().map(|(place, _)| &line[..place]);
    let tries = std::iter::once(line).chain(whole.take(12));
    let ends = ["\"}", "\"}]}", "}]}", "]}"];
    tries.flat_map(|cut| ends.map(|end| format!("{cut}{end}"))).find_map(|closed| {
        let error = serde_json::from_str::<ToolError>(&closed).ok()?;
        Some(format!("{}…", error.for_people()))
    })
}

/// Work for somebody else: emitted as a CloudEvent with the call's id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceRequest {
    /// CloudEvent type.
    pub event_type: ServiceEventType,
    /// The event's data.
    pub data: Value,
    /// Routing attribute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// JSON Schema of the answer's data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_schema: Option<Value>,
    /// Milliseconds until the host answers `unavailable` itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_within: Option<u32>,
}

/// What a finished call brought.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolDone {
    /// For the model, in order.
    pub content: Vec<Content>,
    /// The machine-readable result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<Value>,
}

impl ToolDone {
    /// A result of one text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![Content::Text(text.into())], structured: None }
    }
}

/// How a tool's call came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolOutcome {
    /// It finished.
    Done(ToolDone),
    /// It asked for a service.
    Pending(ServiceRequest),
}

/// What one call cost (P8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallCost {
    /// Microseconds of processor time, to the host's epoch tick (10 ms) at worst.
    pub cpu_us: u64,
    /// Microseconds from dispatch to result, host calls included, waiting for a place excluded.
    pub wall_us: u64,
    /// Microseconds of waiting for a place.
    pub queue_us: u64,
    /// Peak bytes of all guest memories of the call.
    pub memory_bytes: u64,
    /// Bytes that the host gave to the guest: what it was asked, as JSON, and what it read of media, values and answers
    /// to its requests. Granted files are read without the host's counting.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes_in: u64,
    /// Bytes that the host took from the guest: its answer, as JSON, and what it wrote to media, values and requests.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes_out: u64,
    /// Requests that it sent over the network.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub requests: u64,
    /// Fuel that its instructions used, where it is counted: the same for the same work. None also where the call was stopped
    /// by something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fuel: Option<u64>,
    /// What it asked of the host's model.
    #[serde(default, skip_serializing_if = "ModelUse::is_nothing")]
    pub model: ModelUse,
}

/// What a plugin has asked of the host's model (P5). It adds up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelUse {
    /// Questions, those without an answer included.
    pub asks: u64,
    /// Tokens of the answered ones.
    #[serde(flatten)]
    pub usage: Usage,
}

impl ModelUse {
    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl std::ops::AddAssign for ModelUse {
    fn add_assign(&mut self, other: Self) {
        self.asks = self.asks.saturating_add(other.asks);
        self.usage += other.usage;
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Where a tool comes from (L7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolSource {
    /// A component.
    Plugin {
        /// Its name.
        plugin: String,
        /// Its digest.
        digest: Digest,
    },
    /// The host itself.
    BuiltIn,
    /// An MCP server.
    Mcp {
        /// Its configured name.
        server: String,
        /// Digest of all that it says of the tool: a server's code has no digest. None: stored by a host that did not keep
        /// it, or the tool is not there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        definition: Option<Digest>,
    },
    /// A service outside the host, asked by events.
    Service {
        /// CloudEvent type of its requests.
        event_type: String,
    },
    /// Another agent (L16).
    Agent {
        /// Its configured name.
        agent: String,
    },
}

impl ToolSource {
    /// A tool of this server, whatever it says of it.
    pub fn of_server(server: impl Into<String>) -> Self {
        ToolSource::Mcp { server: server.into(), definition: None }
    }

    /// The same, with the digest of the tool's definition where the source has no digest of its own.
    #[must_use]
    pub fn defined(self, digest: &Digest) -> Self {
        match self {
            ToolSource::Mcp { server, .. } => ToolSource::Mcp { server, definition: Some(digest.clone()) },
            other => other,
        }
    }
}

impl std::fmt::Display for ToolSource {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ToolSource::Plugin { plugin, digest } => write!(formatter, "{plugin}@{}", digest.short()),
            ToolSource::BuiltIn => formatter.write_str("the host"),
            ToolSource::Mcp { server, .. } => write!(formatter, "MCP server {server}"),
            ToolSource::Service { event_type } => write!(formatter, "service {event_type}"),
            ToolSource::Agent { agent } => write!(formatter, "agent {agent}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P2, L28: what the model is given as data is told to people in words, wherever it stands and wherever it was cut.
    #[test]
    fn p2_errors_are_told_in_words_wherever_they_stand() {
        let message = "no \u{1b}[2J \"disk\"\nöä 😀".to_owned();
        let error = ToolError::Failed { message: message.clone() };
        let text = error.for_model();
        assert_eq!(errors_in_words(&text), format!("failed: {message}"));
        assert_eq!(errors_in_words(&format!("[warned]\n{text}\nend")), format!("[warned]\nfailed: {message}\nend"));
        let begins = "{\"error\":\"failed\",\"message\":\"".len();
        for end in (begins..text.len()).filter(|end| text.is_char_boundary(*end)) {
            let shown = errors_in_words(&text[..end]);
            let kept = shown.strip_prefix("failed: ").and_then(|shown| shown.strip_suffix('…'));
            assert!(kept.is_some_and(|kept| message.starts_with(kept)), "{end}: {shown:?}");
        }
        for other in ["plain words", "{\"error\":\"my own\"}", "{\"message\":\"failed\"}", ""] {
            assert_eq!(errors_in_words(other), other);
        }
    }
}
