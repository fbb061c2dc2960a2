//! Tools: their definitions, their errors and the outcomes of their calls.

use crate::event_type::ServiceEventType;
use crate::message::{Content, Digest};
use crate::model::Usage;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Properties that a tool declares about itself (P2). By default, the host assumes that each call to the tool changes
/// something outside the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Traits {
    /// A call of the tool changes nothing.
    pub read_only: bool,
    /// A call of the tool may delete or overwrite something.
    pub destructive: bool,
    /// A repeated call with the same id has no further effect.
    pub idempotent: bool,
    /// A call of the tool never runs at the same time as another call of its batch.
    pub sequential: bool,
    /// The tool accesses systems outside the host's control, such as the web.
    pub open_world: bool,
    /// A call of the tool needs the approval of a user before the call runs.
    pub needs_approval: bool,
}

impl Traits {
    /// Whether the host may run a call again without asking the user, even if an earlier attempt may have changed
    /// something (D3).
    pub fn repeatable(self) -> bool {
        self.read_only || self.idempotent
    }
}

/// The definition of a tool, which the source of the tool provides (P2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolDefinition {
    /// Name as the tool's author wrote it: 1 to 128 letters, digits, `_`, `-` or `.`.
    pub name: String,
    /// Title that is shown to users. `None` means that the author gave the tool no title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Description for the model, at most 2 KiB.
    pub description: String,
    /// JSON Schema (2020-12) of the arguments, which are an object.
    pub input_schema: Value,
    /// JSON Schema of the structured result. `None` means that the tool declares no schema for its structured result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// Properties of the tool that affect how its calls are run.
    #[serde(default)]
    pub traits: Traits,
    /// Priority of the tool, 0 by default. In each reply, only the calls with the highest priority run (L6).
    #[serde(default)]
    pub priority: i32,
}

/// A place where arguments or other data break a schema or another rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// JSON pointer to the invalid value. An empty pointer means that the problem concerns the whole document.
    pub pointer: String,
    /// The violated JSON Schema keyword, such as `required` or `type`, or the name of another check. `None` means that
    /// the rule is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Description of the problem for the model.
    pub message: String,
}

/// A tool's error. The error is sent to the model as the call's result (P2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "error")]
pub enum ToolError {
    /// The arguments are invalid, so the model should call the tool with other arguments.
    InvalidArguments {
        /// What is wrong with the arguments. The list is not empty.
        violations: Vec<Violation>,
    },
    /// The requested item, such as a file, does not exist.
    NotFound {
        /// Message for the model.
        message: String,
    },
    /// The call is not allowed. If the call is repeated, it will fail in the same way.
    Denied {
        /// Description of the denied request, and advice on how a user can grant it.
        message: String,
    },
    /// The call failed, but a later attempt may succeed.
    Unavailable {
        /// Message for the model.
        message: String,
        /// Time to wait before the next attempt, in milliseconds. `None` means that the host chooses the time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<u32>,
    },
    /// The call failed for any other reason, for example because the guest trapped or exceeded a limit of the sandbox.
    Failed {
        /// Message for the model.
        message: String,
    },
}

impl ToolError {
    /// Formats the error as JSON for the model.
    pub fn for_model(&self) -> String {
        serde_json::to_string(self).expect("a tool error can always be serialized")
    }

    /// Formats the error as a sentence for users.
    pub fn for_users(&self) -> String {
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

/// Finds the errors in a text that [`ToolError::for_model`] formatted, and replaces each error with the sentence that
/// [`ToolError::for_users`] returns. Each error occupies one line of the text, and the end of the line may have been
/// cut off. Lines that do not contain an error stay unchanged.
pub fn errors_as_sentences(text: &str) -> String {
    text.split('\n').map(|line| error_in_words(line).unwrap_or_else(|| line.to_owned())).collect::<Vec<_>>().join("\n")
}

fn error_in_words(line: &str) -> Option<String> {
    // This check avoids parsing every line of a long result.
    if !line.starts_with("{\"error\":\"") {
        return None;
    }
    if let Ok(error) = serde_json::from_str::<ToolError>(line) {
        return Some(error.for_users());
    }
    // The line may have been cut inside an escape. An escape has at most six characters, and the escape of a surrogate
    // pair has twelve.
    let shorter = line.char_indices().rev().map(|(position, _)| &line[..position]);
    let candidates = std::iter::once(line).chain(shorter.take(12));
    let endings = ["\"}", "\"}]}", "}]}", "]}"];
    candidates.flat_map(|cut| endings.map(|ending| format!("{cut}{ending}"))).find_map(|closed| {
        let error = serde_json::from_str::<ToolError>(&closed).ok()?;
        Some(format!("{}…", error.for_users()))
    })
}

/// A request to a service. The request is sent as a CloudEvent with the call's id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceRequest {
    /// Type of the CloudEvent.
    pub event_type: ServiceEventType,
    /// Data of the event.
    pub data: Value,
    /// Domain to which the event is routed. `None` means that the host uses the domain in the configuration of
    /// the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// JSON Schema of the response's data. `None` means that any data is valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_schema: Option<Value>,
    /// Time after which the host ends the call with the error `unavailable`, in milliseconds. `None` means that the
    /// call waits indefinitely.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_within: Option<u32>,
}

/// The result of a finished call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolDone {
    /// Content for the model, in order.
    pub content: Vec<Content>,
    /// The result as structured data, in addition to `content`. `None` means that the tool returned no structured data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<Value>,
}

impl ToolDone {
    /// Creates a result whose only content is this text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![Content::Text(text.into())], structured: None }
    }
}

/// The outcome of a successful call to a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolOutcome {
    /// The call has finished.
    Done(ToolDone),
    /// The call continues outside the host: it requests a service, whose response becomes the result.
    Pending(ServiceRequest),
}

/// Resources that one call used (P8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallCost {
    /// Processor time in microseconds. The measurement is off by at most one epoch tick of the host (10 ms).
    pub cpu_us: u64,
    /// Time from dispatch to result in microseconds. This time includes the guest's calls of host functions, but not
    /// the time that the call waited in the queue.
    pub wall_us: u64,
    /// Time that the call waited in the queue before it ran, in microseconds.
    pub queue_us: u64,
    /// Peak size of all guest memories of the call, in bytes.
    pub memory_bytes: u64,
    /// Number of bytes that the guest received from the host: the input as JSON, media items, stored values and
    /// responses. Data that the guest reads from granted files is not counted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes_in: u64,
    /// Number of bytes that the host received from the guest: the output as JSON, media items, stored values
    /// and requests.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes_out: u64,
    /// Number of network requests that the guest sent.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub requests: u64,
    /// Fuel that the guest's instructions used. The same work always uses the same fuel. `None` means that the host
    /// does not count fuel, or the call was stopped for a reason other than exceeding its limit of fuel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fuel: Option<u64>,
    /// Requests that the guest made to the host's model, and the tokens that these requests used.
    #[serde(default, skip_serializing_if = "ModelUse::is_nothing")]
    pub model: ModelUse,
}

/// How much a plugin has used the host's model (P5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelUse {
    /// Number of requests that the plugin made to the model, including failed requests.
    pub asks: u64,
    /// Tokens of the successful requests.
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

/// A tool that a client program offers for the turn that it begins (I3). The client runs the calls of the tool, and sends
/// their results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientTool {
    /// Name of the tool. No tool of the agent has the same name.
    pub name: String,
    /// Description of the tool for the model.
    pub description: String,
    /// JSON Schema of the arguments, which is an object.
    pub input_schema: Value,
}

impl ClientTool {
    /// Returns the definition with which the tool is registered.
    pub fn definition(&self) -> ToolDefinition {
        ToolDefinition {
            name: self.name.clone(),
            title: None,
            description: self.description.clone(),
            input_schema: self.input_schema.clone(),
            output_schema: None,
            traits: Traits { open_world: true, ..Traits::default() },
            priority: 0,
        }
    }
}

/// Where a tool comes from (L7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolSource {
    /// The tool comes from a plugin.
    Plugin {
        /// Name of the plugin.
        plugin: String,
        /// Digest of the plugin's component.
        digest: Digest,
    },
    /// The tool is one of the host's built-in tools.
    BuiltIn,
    /// The tool comes from an MCP server.
    Mcp {
        /// Name of the server in the configuration.
        server: String,
        /// Digest of the tool's definition. This digest is used because the code of a server has no digest. `None`
        /// means that an older version of the host stored this source without the digest, or the tool does not exist.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        definition: Option<Digest>,
    },
    /// The tool is a service outside the host, which receives requests as events.
    Service {
        /// CloudEvent type of the requests to the service.
        event_type: String,
    },
    /// The tool delegates work to another agent (L16).
    Agent {
        /// Name of the agent in the configuration.
        agent: String,
    },
    /// The tool belongs to the program that began the turn. This client runs the calls itself (I3).
    Client,
}

impl ToolSource {
    /// Returns the source for tools of the MCP server with this name. The source contains no digest of a
    /// tool's definition.
    pub fn of_server(server: impl Into<String>) -> Self {
        ToolSource::Mcp { server: server.into(), definition: None }
    }

    /// Adds the digest of the tool's definition to the source of an MCP tool. Returns any other source unchanged.
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
            ToolSource::Client => formatter.write_str("the client"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P2, L28: an error in a text is shown to users as a sentence, at any position in the text, and even if the end of
    /// the error is missing.
    #[test]
    fn p2_errors_are_shown_as_sentences_at_any_position() {
        let message = "no \u{1b}[2J \"disk\"\nöä 😀".to_owned();
        let error = ToolError::Failed { message: message.clone() };
        let text = error.for_model();
        assert_eq!(errors_as_sentences(&text), format!("failed: {message}"));
        assert_eq!(errors_as_sentences(&format!("[warned]\n{text}\nend")), format!("[warned]\nfailed: {message}\nend"));
        let begins = "{\"error\":\"failed\",\"message\":\"".len();
        for end in (begins..text.len()).filter(|end| text.is_char_boundary(*end)) {
            let shown = errors_as_sentences(&text[..end]);
            let kept = shown.strip_prefix("failed: ").and_then(|shown| shown.strip_suffix('…'));
            assert!(kept.is_some_and(|kept| message.starts_with(kept)), "{end}: {shown:?}");
        }
        for other in ["plain words", "{\"error\":\"my own\"}", "{\"message\":\"failed\"}", ""] {
            assert_eq!(errors_as_sentences(other), other);
        }
    }
}
