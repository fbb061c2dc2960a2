//! The data that Responses, Anthropic Messages and Gemini need back when a reply is sent again.

use crate::protocol::Protocol;
use agent_core::message::Replay;
use serde_json::{Value, json};

/// The parts of a reply exactly as the provider sent them: output items of Responses, content blocks of Anthropic
/// Messages, or parts of Gemini.
///
/// The data are stored with the message as `{"protocol", "model", "items"}`. They contain all parts, including parts
/// of types that the host does not know, such as signed or encrypted thinking. A provider may reject a later request
/// if such a part is missing or changed.
///
/// # Examples
///
/// ```
/// use agent_core::message::Replay;
/// use agent_models::{Protocol, decode::ReplayItems};
/// use serde_json::json;
///
/// let data = json!({"protocol": "anthropic", "model": "claude-opus-5", "items": [{"type": "redacted_thinking"}]});
/// let replay = Replay { provider: "anthropic".into(), data };
/// let items = ReplayItems::read(&replay, Protocol::Anthropic).unwrap();
/// assert_eq!((items.model, items.items.len()), ("claude-opus-5", 1));
/// assert!(ReplayItems::read(&replay, Protocol::Gemini).is_none());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplayItems<'r> {
    /// Name of the model that wrote the reply, without the name of the provider.
    pub model: &'r str,
    /// The parts in order.
    pub items: &'r [Value],
}

impl<'r> ReplayItems<'r> {
    /// Reads stored data. Returns `None` if the data come from another wire format.
    pub fn read(replay: &'r Replay, protocol: Protocol) -> Option<Self> {
        let field = |name: &str| replay.data.get(name);
        let model = field("model").and_then(Value::as_str).unwrap_or_default();
        let is_same = field("protocol").and_then(Value::as_str) == Some(protocol.name());
        is_same.then(|| Self { model, items: field("items").and_then(Value::as_array).map_or(&[], Vec::as_slice) })
    }
}

/// Creates the data of a reply. `model` has the form `provider/name`.
pub(super) fn replay(protocol: Protocol, provider: &str, model: &str, items: Vec<Value>) -> Replay {
    let name = model.split_once('/').map_or(model, |(_, name)| name);
    let data = json!({ "protocol": protocol.name(), "model": name, "items": items });
    Replay { provider: provider.to_owned(), data }
}
