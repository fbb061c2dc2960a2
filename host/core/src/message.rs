//! Messages and what they are made of: the words that every room shares.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// Content address of stored bytes: `sha256:` and 64 lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

/// A text that is not a digest.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a digest: expected `sha256:` and 64 lower-case hexadecimal digits")]
pub struct InvalidDigest(String);

impl Digest {
    /// Reads `sha256:…`.
    pub fn parse(text: &str) -> Result<Self, InvalidDigest> {
        let valid = text.strip_prefix("sha256:").is_some_and(|hex| {
            hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        });
        if valid { Ok(Self(text.to_owned())) } else { Err(InvalidDigest(text.chars().take(100).collect())) }
    }

    /// From the 32 bytes of a SHA-256.
    pub fn from_sha256(bytes: [u8; 32]) -> Self {
        use fmt::Write;
        let mut text = String::with_capacity(71);
        text.push_str("sha256:");
        for byte in bytes {
            write!(text, "{byte:02x}").expect("writing to a string cannot fail");
        }
        Self(text)
    }

    /// The whole text, `sha256:` included.
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

/// A tool call's id: given by the host, the same in every attempt. It ends with what no other session has, since it is a key
/// outside of its session, too: `call_1_2_3_5f0c9a7be214` is the third call of the first turn's second reply.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallId(pub String);

impl CallId {
    /// Whether somebody means this call by `name`, which may leave out the session's ending.
    pub fn is_named(&self, name: &str) -> bool {
        let is_ending = |rest: &str| rest.len() == ID_ENDING && rest.bytes().all(|byte| byte.is_ascii_hexdigit());
        match self.0.strip_prefix(name) {
            Some("") => true,
            Some(rest) => rest.strip_prefix('_').is_some_and(is_ending),
            None => false,
        }
    }
}

/// Hexadecimal digits of what makes a session's ids unique: 48 random bits.
pub const ID_ENDING: usize = 12;

impl fmt::Display for CallId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Place of a message in its session, from 1. Never reused.
pub type MessageId = u64;

/// Pixels of an image or a video frame; both at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dimensions {
    /// Pixels.
    pub width: u32,
    /// Pixels.
    pub height: u32,
}

/// Description of a stored medium; its bytes stay in the blob store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Media {
    /// Address of the bytes.
    pub digest: Digest,
    /// IANA media type without parameters, lower case.
    pub mime_type: String,
    /// Length in bytes.
    pub size: u64,
    /// Of images whose header could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dimensions: Option<Dimensions>,
    /// For people; never a path that the host opens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// What a tool result may hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// Plain text.
    Text(String),
    /// Structured data.
    Json(Value),
    /// A stored medium.
    Media(Media),
}

/// A call that the model asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The host's id.
    pub id: CallId,
    /// The tool's name as its author wrote it.
    pub name: String,
    /// The arguments as the model wrote them; where they were no JSON, a string with what it wrote.
    pub arguments: Value,
}

/// The one result of one call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The call that this answers.
    pub call_id: CallId,
    /// The tool's name as its author wrote it.
    pub name: String,
    /// In the order in which the tool gave it.
    pub content: Vec<Content>,
    /// The model is told that the call failed.
    pub is_error: bool,
}

/// One part of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Plain text.
    Text(String),
    /// Structured data.
    Json(Value),
    /// A stored medium.
    Media(Media),
    /// A call by the model.
    ToolCall(ToolCall),
    /// The answer to a call.
    ToolResult(ToolResult),
    /// What the host puts before a turn's input, such as remembered facts (L22): sent as text wherever the message is
    /// sent, so that prompts keep their beginning. Always the first parts of a message; no plugin and no person sees it.
    Preface(String),
    /// What a provider wants back with what it wrote. Always the last part of a message; no plugin sees it.
    Replay(Replay),
}

/// A provider's own data of one reply, such as signed reasoning: stored with the message, given back to the provider of
/// that name when the message is sent again, opaque to everybody else.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Replay {
    /// The provider's configured name.
    pub provider: String,
    /// In its own shape.
    pub data: Value,
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions. Never evicted.
    System,
    /// The person, the calling event, and the host's feedback to the model.
    User,
    /// The model.
    Assistant,
    /// Tool results only.
    Tool,
}

impl Role {
    /// As it stands in events and in the database.
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
    /// Who speaks.
    pub role: Role,
    /// In order.
    pub parts: Vec<Part>,
    /// Model calls in which it has been sent. 0 where it is missing (L2).
    #[serde(default)]
    pub seen_count: u32,
}

impl Message {
    /// A message of one text that no model has seen.
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self { role, parts: vec![Part::Text(text.into())], seen_count: 0 }
    }

    /// Without what is only between the host and the model.
    pub fn without_hosts_parts(mut self) -> Self {
        self.parts.retain(|part| !matches!(part, Part::Preface(_) | Part::Replay(_)));
        self
    }

    /// All its texts, joined by line ends.
    pub fn plain_text(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

/// A message as it is stored: its content is never rewritten (D2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredMessage {
    /// Place in the session.
    pub id: MessageId,
    /// The turn that appended it, from 1.
    pub turn: u32,
    /// Who speaks.
    pub role: Role,
    /// In order.
    pub parts: Vec<Part>,
    /// Estimated tokens (L27).
    pub tokens: u32,
}

/// What begins a turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnInput {
    /// A prompt that somebody typed.
    Text(String),
    /// An event's data.
    Json(Value),
    /// With attachments, or from another agent: always of role user.
    Message(Vec<Part>),
}

impl TurnInput {
    /// The user message that stands for this input where no builder makes another (L2).
    pub fn message(&self) -> Message {
        match self {
            TurnInput::Text(text) => Message::text(Role::User, text.clone()),
            TurnInput::Json(json) => Message::text(Role::User, json.to_string()),
            TurnInput::Message(parts) => Message { role: Role::User, parts: parts.clone(), seen_count: 0 },
        }
    }
}
