//! The interface between the runtime and a model. A model provides information about itself and replies to requests.

use crate::configuration::Price;
use crate::error::ModelError;
use crate::progress::CallProgress;
use agent_core::message::Media;
use agent_core::model::{Delta, Model, ModelRequest, Reply};
use agent_core::redaction::Redaction;
use async_trait::async_trait;
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::mpsc::Sender;

/// Information about a model that is available before a request is sent.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelInfo {
    /// Provider, name and context window.
    pub model: Model,
    /// Rules for the names of tools that the provider accepts.
    pub tool_names: ToolNameRules,
    /// Price of the model's tokens, or `None` if it is unknown.
    pub price: Option<Price>,
}

/// Characters and length that a provider accepts in a tool name (L14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolNameRules {
    /// Maximum length in characters.
    pub max_characters: usize,
    /// Accepted characters other than ASCII letters and digits.
    pub punctuation: &'static str,
}

impl ToolNameRules {
    /// Rules for names that match `[a-zA-Z0-9_-]{1,64}`, which nearly every provider accepts.
    pub const COMMON: Self = Self { max_characters: 64, punctuation: "_-" };

    /// Returns whether the name of a tool may contain this character.
    pub fn allows(&self, character: char) -> bool {
        character.is_ascii_alphanumeric() || self.punctuation.contains(character)
    }

    /// Returns whether the provider accepts this name of a tool.
    pub fn accepts(&self, name: &str) -> bool {
        !name.is_empty()
            && name.chars().count() <= self.max_characters
            && name.chars().all(|character| self.allows(character))
    }
}

/// Reads the media that a request refers to.
#[async_trait]
pub trait MediaSource: Send + Sync {
    /// Reads a media item in the form in which it is sent to the provider. The item is scaled down if the request asks
    /// for a smaller size. If the item cannot be read, the returned error is a message for the user.
    async fn read(&self, media: &Media) -> Result<MediaBytes, String>;
}

/// A media item in the form in which it is sent to the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaBytes {
    /// IANA media type of `bytes`. If the item was scaled down, this type may differ from the type of the stored item.
    pub mime_type: String,
    /// Complete contents of the media item.
    pub bytes: Arc<[u8]>,
}

/// A media source for requests that contain no media. It returns an error for every media item.
#[derive(Clone, Copy, Debug)]
pub struct NoMedia;

#[async_trait]
impl MediaSource for NoMedia {
    async fn read(&self, media: &Media) -> Result<MediaBytes, String> {
        Err(format!("the bytes of {} are not available", media.digest))
    }
}

/// The session and the number of a model call, and a source for the media of its request. The host computes the number
/// of the call from stored data, so it continues with the correct number after a restart.
#[derive(Clone, Copy)]
pub struct ReplyContext<'a> {
    /// Id of the session that makes the call.
    pub session: &'a str,
    /// Purpose for which the host uses the reply.
    pub purpose: Purpose,
    /// Number of successful model calls with this purpose that the session made before this call.
    pub call: u64,
    /// Number of the current attempt of this call, starting at 1.
    pub attempt: u32,
    /// Source of the media that the request refers to.
    pub media: &'a dyn MediaSource,
    /// How far the call has come, for callers that stop it.
    pub progress: &'a CallProgress,
}

/// Purpose for which the host uses a model's reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// The reply continues a turn.
    #[default]
    Turn,
    /// The reply summarises messages that are removed from the prompt (L27).
    Summary,
    /// The reply answers a request that a plugin sends to the model (P5).
    Plugin,
}

/// A reply together with the provider's raw data.
#[derive(Clone, Debug, PartialEq)]
pub struct RawReply {
    /// The reply in the host's own format.
    pub reply: Reply,
    /// Data about the reply in the provider's own format, which the host stores in the step record (D1).
    pub raw: Value,
}

/// A model that replies to requests. Dropping the future of [`Provider::reply`] cancels the request.
///
/// # Examples
///
/// ```
/// use agent_core::message::{Message, Role};
/// use agent_core::model::{Delta, ModelRequest};
/// use agent_core::plugin::Lifecycle;
/// use agent_models::{CallProgress, NoMedia, Purpose, ReplyContext, provider};
/// use std::path::Path;
///
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// let model = provider("offline", Path::new("."))?;
/// let request = ModelRequest {
///     model: model.info().model.clone(),
///     lifecycle: Lifecycle::Init,
///     system: vec![],
///     messages: vec![Message::text(Role::User, "Hello!")],
///     downscaled: vec![],
///     tools: vec![],
///     output_schema: None,
///     max_tokens: 1000,
/// };
/// let context = ReplyContext { session: "s1", purpose: Purpose::Turn, call: 0, attempt: 1, media: &NoMedia, progress: &CallProgress::default() };
/// let (sender, mut deltas) = tokio::sync::mpsc::channel(64);
///
/// let reply = model.reply(&request, context, &sender).await?.reply;
/// assert!(reply.text.contains("not a language model"));
/// assert!(matches!(deltas.recv().await, Some(Delta::Text(_))));
/// # Ok::<(), agent_models::ModelError>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[async_trait]
pub trait Provider: Send + Sync {
    /// Returns information about the model.
    fn info(&self) -> &ModelInfo;

    /// Returns the secrets that are sent to the provider, so that they can be redacted elsewhere. By default, there are
    /// no secrets.
    fn secrets(&self) -> Redaction {
        Redaction::default()
    }

    /// Returns the name of the host to which the secrets are sent, or `None` if the name is unknown. The default
    /// is `None`.
    fn host(&self) -> Option<String> {
        None
    }

    /// Returns whether this is a real language model. Only a real language model can write summaries, and only its
    /// answers are stored as memories. The default is `true`.
    fn is_language_model(&self) -> bool {
        true
    }

    /// Returns the reply to a request and sends its parts to `deltas` as they arrive. If the receiver is dropped, the
    /// reply is still completed.
    ///
    /// # Errors
    ///
    /// Returns an error if the provider does not send a complete reply. The caller must then send [`Delta::Clear`],
    /// because the deltas that were already sent are not part of any reply.
    async fn reply(
        &self,
        request: &ModelRequest,
        context: ReplyContext<'_>,
        deltas: &Sender<Delta>,
    ) -> Result<RawReply, ModelError>;
}

#[cfg(test)]
mod tests {
    use super::ToolNameRules;

    /// The common rules accept names that match `[a-zA-Z0-9_-]{1,64}` (L14).
    #[test]
    fn common_tool_name_rules_limit_characters_and_length() {
        let cases = [("text_count", true), ("a-B_9", true), ("text.count", false), ("", false), ("zählen", false)];
        for (name, expected) in cases {
            assert_eq!(ToolNameRules::COMMON.accepts(name), expected, "{name}");
        }
        assert!(ToolNameRules::COMMON.accepts(&"x".repeat(64)));
        assert!(!ToolNameRules::COMMON.accepts(&"x".repeat(65)));
    }
}
