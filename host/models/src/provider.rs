//! What the runtime asks of every model: facts about it, and a reply to a request.

use crate::configuration::Price;
use crate::error::ModelError;
use agent_core::message::Media;
use agent_core::model::{Delta, Model, ModelRequest, Reply};
use agent_core::redaction::Redaction;
use async_trait::async_trait;
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::mpsc::Sender;

/// What is known of a model before it is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// Kind of provider, name, context window.
    pub model: Model,
    /// Which names of tools it takes.
    pub tool_names: ToolNames,
    /// What its tokens cost, where that is known.
    pub price: Option<Price>,
}

/// The alphabet and length that a provider takes for a tool's name (L14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolNames {
    /// Most characters.
    pub limit: usize,
    /// Taken besides ASCII letters and digits.
    pub punctuation: &'static str,
}

impl ToolNames {
    /// `[a-zA-Z0-9_-]{1,64}`: what nearly every provider takes.
    pub const COMMON: Self = Self { limit: 64, punctuation: "_-" };

    /// Whether the character may stand in a name.
    pub fn allows(&self, character: char) -> bool {
        character.is_ascii_alphanumeric() || self.punctuation.contains(character)
    }

    /// Whether the provider takes the whole name.
    pub fn accepts(&self, name: &str) -> bool {
        !name.is_empty() && name.chars().count() <= self.limit && name.chars().all(|character| self.allows(character))
    }
}

/// The bytes of the media that a request names.
#[async_trait]
pub trait MediaSource: Send + Sync {
    /// The medium as it is to be sent: scaled down where the request says so. The error is for people.
    async fn read(&self, media: &Media) -> Result<MediaBytes, String>;
}

/// A medium as it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaBytes {
    /// IANA media type of these bytes, which may be another than the stored one's where they were scaled.
    pub mime_type: String,
    /// Whole.
    pub bytes: Arc<[u8]>,
}

/// For requests that name no media.
#[derive(Clone, Copy, Debug)]
pub struct NoMedia;

#[async_trait]
impl MediaSource for NoMedia {
    async fn read(&self, media: &Media) -> Result<MediaBytes, String> {
        Err(format!("the bytes of {} are not here", media.digest))
    }
}

/// Where in its session a request stands, and what belongs to it. Its place follows from what is stored, so that a
/// restarted host asks alike.
#[derive(Clone, Copy)]
pub struct ReplyContext<'a> {
    /// The session's id.
    pub session: &'a str,
    /// What the reply is for.
    pub purpose: Purpose,
    /// Successful calls for this purpose that the session has made before this one.
    pub call: u64,
    /// Tries of this call, this one included: 1 for the first.
    pub attempt: u32,
    /// The bytes of its media.
    pub media: &'a dyn MediaSource,
}

/// What a reply is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// To go on with a turn.
    #[default]
    Turn,
    /// To stand for messages that leave the prompt (L27).
    Summary,
    /// For a plugin (P5).
    Plugin,
}

/// A reply, and what the provider sent of which it was made.
#[derive(Clone, Debug, PartialEq)]
pub struct RawReply {
    /// In no provider's dialect.
    pub reply: Reply,
    /// For the step record (D1).
    pub raw: Value,
}

/// A model that can be asked. Dropping the future cancels the call.
#[async_trait]
pub trait Provider: Send + Sync {
    /// What is known of it.
    fn facts(&self) -> &Facts;

    /// What it is given that nobody else is to see. Default: nothing.
    fn secrets(&self) -> Redaction {
        Redaction::default()
    }

    /// The host that is given the secrets. None: it is not known. Default: none.
    fn host(&self) -> Option<String> {
        None
    }

    /// Whether it has words of its own: it can sum up what it is given, and what it answers is worth remembering. Default: yes.
    fn is_language_model(&self) -> bool {
        true
    }

    /// Answers a request. Pieces of the reply go to `deltas` as they come; where nobody receives them any more, the
    /// reply is still made. An error after deltas voids them: the caller sends [`Delta::Clear`].
    async fn reply(
        &self,
        request: &ModelRequest,
        context: ReplyContext<'_>,
        deltas: &Sender<Delta>,
    ) -> Result<RawReply, ModelError>;
}

#[cfg(test)]
mod tests {
    use super::ToolNames;

    /// L14
    #[test]
    fn common_tool_names() {
        let cases = [("text_count", true), ("a-B_9", true), ("text.count", false), ("", false), ("zählen", false)];
        for (name, expected) in cases {
            assert_eq!(ToolNames::COMMON.accepts(name), expected, "{name}");
        }
        assert!(ToolNames::COMMON.accepts(&"x".repeat(64)));
        assert!(!ToolNames::COMMON.accepts(&"x".repeat(65)));
    }
}
