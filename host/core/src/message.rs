//! Messages and their parts: the types that all crates share.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// Content address of stored bytes, which consists of `sha256:` and 64 lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

/// The error for a string that is not a digest. The error contains at most the first 100 characters of the string.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a digest: expected `sha256:` and 64 lower-case hexadecimal digits")]
pub struct InvalidDigest(String);

impl Digest {
    /// Parses a string of the form `sha256:…`.
    pub fn parse(text: &str) -> Result<Self, InvalidDigest> {
        let valid = text.strip_prefix("sha256:").is_some_and(|hex| {
            hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        });
        if valid { Ok(Self(text.to_owned())) } else { Err(InvalidDigest(text.chars().take(100).collect())) }
    }

    /// Creates a digest from the 32 bytes of a SHA-256 hash.
    pub fn from_sha256(bytes: [u8; 32]) -> Self {
        Self(format!("sha256:{}", hex::encode(bytes)))
    }

    /// The digest as a string, including the prefix `sha256:`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The 64 hexadecimal digits without the prefix `sha256:`.
    pub fn hex(&self) -> &str {
        &self.0["sha256:".len()..]
    }

    /// The first twelve hexadecimal digits, which are shown to users.
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

/// Id of a tool call. The host assigns the id, which stays the same in every attempt to run the call. The id is a key
/// even outside its session, so it ends with a suffix that is unique to the session. For example,
/// `call_1_2_3_5f0c9a7be214` is the third call of the second reply in the first turn.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallId(pub String);

impl CallId {
    /// Returns whether `name` is the id of this call, with or without the session's suffix.
    pub fn is_named(&self, name: &str) -> bool {
        let is_suffix =
            |text: &str| text.len() == ID_SUFFIX_LENGTH && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        match self.0.strip_prefix(name) {
            Some("") => true,
            Some(remainder) => remainder.strip_prefix('_').is_some_and(is_suffix),
            None => false,
        }
    }
}

/// Number of hexadecimal digits in the suffix that makes a session's ids unique. The digits encode 48 random bits.
pub const ID_SUFFIX_LENGTH: usize = 12;

impl fmt::Display for CallId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Id of a message in its session. The messages are numbered in order, starting at 1, and ids are never reused.
pub type MessageId = u64;

/// Size of an image or a video frame. Width and height are at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dimensions {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
}

/// Description of a stored media item, such as an image. The bytes of the media item are in the blob store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Media {
    /// Content address of the bytes.
    pub digest: Digest,
    /// IANA media type without parameters, in lower case.
    pub mime_type: String,
    /// Length in bytes.
    pub size: u64,
    /// Size of the image. `None` means that the media item is not an image, or its header could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dimensions: Option<Dimensions>,
    /// Name that is shown to users. The host never uses the name as a path.
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
    /// A stored media item.
    Media(Media),
}

/// A tool call that the model requested.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Id that the host assigned.
    pub id: CallId,
    /// Name of the tool as its author wrote it.
    pub name: String,
    /// The arguments as the model wrote them. If the text that the model wrote was not JSON, the value is a string with
    /// that text.
    pub arguments: Value,
}

/// The result of a tool call. Each call has exactly one result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// Id of the call that returned this result.
    pub call_id: CallId,
    /// Name of the tool as its author wrote it.
    pub name: String,
    /// The content in the order in which the tool returned it.
    pub content: Vec<Content>,
    /// Whether the model is told that the call failed.
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
    /// A stored media item.
    Media(Media),
    /// A tool call by the model.
    ToolCall(ToolCall),
    /// The result of a tool call.
    ToolResult(ToolResult),
    /// Text that the host inserts before a turn's input, such as remembered facts (L22). The text is always the first
    /// part of a message. The host sends the text each time that it sends the message, so that the beginning of the
    /// prompt stays the same. Plugins and users do not see the text.
    Preface(String),
    /// Data that a provider sent with a reply and that the host must send back with the same reply. The data is always
    /// the last part of a message. Plugins do not see the data.
    Replay(Replay),
}

/// Data that a provider attached to a reply, such as signed reasoning. The host stores the data with the message and
/// sends it back to the same provider whenever it sends the message again. The host does not interpret the data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Replay {
    /// Name of the provider in the configuration. No other provider receives the data.
    pub provider: String,
    /// The data in the provider's own format.
    pub data: Value,
}

/// Role of a message's author.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The role of instructions to the model. The host never evicts messages with this role from the prompt.
    System,
    /// The user, the event that started the turn, or the host's feedback to the model.
    User,
    /// The model.
    Assistant,
    /// The host, which sends tool results. A message with this role contains only tool results.
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

/// A message, and the number of model calls in which it has been sent (L3).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Role of the message's author.
    pub role: Role,
    /// The parts in order.
    pub parts: Vec<Part>,
    /// Number of model calls in which the message has been sent. The number is 0 if the message's JSON form does not
    /// contain it (L2).
    #[serde(default)]
    pub seen_count: u32,
}

impl Message {
    /// Creates a message with one text part. The message's seen count is 0.
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self { role, parts: vec![Part::Text(text.into())], seen_count: 0 }
    }

    /// Removes the prefaces and the providers' replay data, which only the host and the model may see.
    pub fn without_host_parts(mut self) -> Self {
        self.parts.retain(|part| !matches!(part, Part::Preface(_) | Part::Replay(_)));
        self
    }

    /// Returns the text parts of the message, joined by line breaks.
    pub fn plain_text(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

/// A stored message. The content of a stored message never changes (D2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredMessage {
    /// Id of the message in its session.
    pub id: MessageId,
    /// Number of the turn that appended the message, starting at 1.
    pub turn: u32,
    /// Role of the message's author.
    pub role: Role,
    /// The parts in order.
    pub parts: Vec<Part>,
    /// Estimated number of tokens in the message (L27).
    pub tokens: u32,
}

/// The input that begins a turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnInput {
    /// A prompt that a user typed.
    Text(String),
    /// The data of an event.
    Json(Value),
    /// A user message with attachments, or a message from another agent.
    Message(Vec<Part>),
    /// One call of a tool, which a program has requested. The turn runs exactly this call and then ends, and no model is
    /// asked (I4).
    Call {
        /// Name of the tool as its author wrote it.
        tool: String,
        /// The arguments. If they are nested too deeply to be stored as JSON, the value is a string with their JSON text.
        arguments: Value,
    },
}

impl TurnInput {
    /// Returns the user message for this input. The host uses this message if the context builder returns no
    /// messages (L2).
    pub fn message(&self) -> Message {
        match self {
            TurnInput::Text(text) => Message::text(Role::User, text.clone()),
            TurnInput::Json(json) => Message::text(Role::User, json.to_string()),
            TurnInput::Message(parts) => Message { role: Role::User, parts: parts.clone(), seen_count: 0 },
            TurnInput::Call { tool, arguments: Value::String(text) } => {
                Message::text(Role::User, format!("{tool} {text}"))
            }
            TurnInput::Call { tool, arguments } => Message::text(Role::User, format!("{tool} {arguments}")),
        }
    }
}
