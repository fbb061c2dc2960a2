//! Messages and their parts: the types that all crates share.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// Content address of stored bytes: `sha256:` and 64 lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

/// The error for a text that is not a digest.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a digest: expected `sha256:` and 64 lower-case hexadecimal digits")]
pub struct InvalidDigest(String);

impl Digest {
    /// Parses a text of the form `sha256:…`.
    pub fn parse(text: &str) -> Result<Self, InvalidDigest> {
        let valid = text.strip_prefix("sha256:").is_some_and(|hex| {
            hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        });
        if valid { Ok(Self(text.to_owned())) } else { Err(InvalidDigest(text.chars().take(100).collect())) }
    }

    /// Makes a digest from the 32 bytes of a SHA-256 hash.
    pub fn from_sha256(bytes: [u8; 32]) -> Self {
        Self(format!("sha256:{}", hex::encode(bytes)))
    }

    /// The whole text, including `sha256:`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The 64 hexadecimal digits.
    pub fn hex(&self) -> &str {
        &self.0["sha256:".len()..]
    }

    /// The first twelve hexadecimal digits, for people.
    pub fn short(&self) -> &str {
        &self.hex()[..12]
    }
}

impl TryFrom<String> for Digest {
    type Error = InvalidDigest;
    fn try_from(text: String) -> Result<Self, InvalidDigest> {
        Self::parse(&text)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Id of a tool call. The host assigns it, and it is the same in every attempt. Since the id is also used as a key
/// outside its session, it ends with a suffix that no other session has: `call_1_2_3_5f0c9a7be214` is the third call
/// of the second reply in the first turn.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallId(pub String);

impl CallId {
    /// Whether `name` refers to this call. It may leave out the session's suffix.
    pub fn is_named(&self, name: &str) -> bool {
        let is_ending = |rest: &str| rest.len() == ID_ENDING && rest.bytes().all(|byte| byte.is_ascii_hexdigit());
        match self.0.strip_prefix(name) {
            Some("") => true,
            Some(rest) => rest.strip_prefix('_').is_some_and(is_ending),
            None => false,
        }
    }
}

/// Number of hexadecimal digits in the suffix that makes a session's ids unique: 48 random bits.
pub const ID_ENDING: usize = 12;

impl fmt::Display for CallId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Id of a message in its session, from 1 in order. Ids are never reused.
pub type MessageId = u64;

/// Size of an image or a video frame. Both sides are at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dimensions {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
}

/// Description of a stored medium, such as an image. Its bytes stay in the blob store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Media {
    /// Content address of the bytes.
    pub digest: Digest,
    /// IANA media type without parameters, in lower case.
    pub mime_type: String,
    /// Length in bytes.
    pub size: u64,
    /// Size of an image whose header could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dimensions: Option<Dimensions>,
    /// Name for people. The host never opens it as a path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Content of a tool result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// Plain text.
    Text(String),
    /// Structured JSON data.
    Json(Value),
    /// A stored medium.
    Media(Media),
}

/// A call that the model requested.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Id that the host assigned.
    pub id: CallId,
    /// Name of the tool as its author wrote it.
    pub name: String,
    /// The arguments as the model wrote them, or a string with the model's text if it was not JSON.
    pub arguments: Value,
}

/// The one result of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// Id of the call that this answers.
    pub call_id: CallId,
    /// Name of the tool as its author wrote it.
    pub name: String,
    /// The content in the order in which the tool returned it.
    pub content: Vec<Content>,
    /// Whether the call failed, from the model's point of view.
    pub is_error: bool,
}

/// One part of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Plain text.
    Text(String),
    /// Structured JSON data.
    Json(Value),
    /// A stored medium.
    Media(Media),
    /// A tool call by the model.
    ToolCall(ToolCall),
    /// The result of a tool call.
    ToolResult(ToolResult),
    /// Text that the host puts before a turn's input, such as remembered facts (L22). It is sent as text with the
    /// message every time, so that prompts keep their beginning. It always comes first in a message. Plugins and
    /// people do not see it.
    Preface(String),
    /// Data that a provider wants returned with its reply. It always comes last in a message. Plugins do not see it.
    Replay(Replay),
}

/// A provider's own data of one reply, such as signed reasoning. It is stored with the message and returned to the
/// provider of that name when the message is sent again. The host does not interpret it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Replay {
    /// Name of the provider in the configuration.
    pub provider: String,
    /// The data in the provider's own format.
    pub data: Value,
}

/// Role of a message's author.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions. They are never evicted.
    System,
    /// The user, the event that started the turn, or the host's feedback to the model.
    User,
    /// The model.
    Assistant,
    /// Tool results only.
    Tool,
}

impl Role {
    /// The name of the role in events and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        }
    }
}

/// A message with its seen count (L3).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Role of the message's author.
    pub role: Role,
    /// The parts in order.
    pub parts: Vec<Part>,
    /// Number of model calls in which the message has been sent. Default 0 (L2).
    #[serde(default)]
    pub seen_count: u32,
}

impl Message {
    /// Makes a message of one text that no model has seen.
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self { role, parts: vec![Part::Text(text.into())], seen_count: 0 }
    }

    /// Removes the parts that only the host and the model see.
    pub fn without_host_parts(mut self) -> Self {
        self.parts.retain(|part| !matches!(part, Part::Preface(_) | Part::Replay(_)));
        self
    }

    /// All texts of the message, joined by line breaks.
    pub fn plain_text(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

/// A message as it is stored. Its content is never rewritten (D2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredMessage {
    /// Id of the message in its session.
    pub id: MessageId,
    /// Number of the turn that appended it, from 1.
    pub turn: u32,
    /// Role of the message's author.
    pub role: Role,
    /// The parts in order.
    pub parts: Vec<Part>,
    /// Estimated tokens (L27).
    pub tokens: u32,
}

/// The input that begins a turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnInput {
    /// A prompt that a person typed.
    Text(String),
    /// The data of an event.
    Json(Value),
    /// A user message with attachments, or one from another agent.
    Message(Vec<Part>),
}

impl TurnInput {
    /// The user message for this input if the context builder does not make one (L2).
    pub fn message(&self) -> Message {
        match self {
            TurnInput::Text(text) => Message::text(Role::User, text.clone()),
            TurnInput::Json(json) => Message::text(Role::User, json.to_string()),
            TurnInput::Message(parts) => Message { role: Role::User, parts: parts.clone(), seen_count: 0 },
        }
    }
}
