//! Decides whether a stored reply is sent back exactly as its provider sent it.
//!
//! A reply is sent back unchanged if the same model of the same provider receives it in the same wire format, and if its
//! text and calls are still those of the stored message. Otherwise the reply is written again from the stored message,
//! without the provider's own data, such as thinking. The reason is noted in the step record.

use super::Format;
use super::writer::RequestWriter;
use crate::decode::ReplayItems;
use agent_core::message::{CallId, Part, Replay, ToolCall};
use agent_core::visible::{visible, visible_json};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashMap;

/// A reply that is sent back as its provider sent it.
pub(super) struct StoredReply<'m> {
    /// All parts of the reply.
    pub(super) items: &'m [Value],
    /// Ids that the provider gave to the calls, keyed by the host's ids. Calls without a provider's id are missing.
    pub(super) ids: HashMap<&'m CallId, &'m str>,
}

/// A call inside an item of a stored reply.
pub(super) struct ItemCall<'m> {
    /// Id that the provider gave to the call.
    pub(super) id: Option<&'m str>,
    pub(super) arguments: Cow<'m, Value>,
}

/// Reads the items of one wire format.
pub(super) struct ItemReader {
    /// Returns the text that the item adds to the text of the reply.
    pub(super) text: fn(&Value) -> String,
    /// Returns whether the item can be part of a reply. Other items, such as messages of another role, could put text
    /// into the request that the transcript does not show.
    pub(super) can_be_in_reply: fn(&Value) -> bool,
    /// Returns the call that the item contains.
    pub(super) call: for<'m> fn(&'m Value) -> Option<ItemCall<'m>>,
}

/// Returns the stored reply if it can be sent back unchanged. Otherwise notes the reason why it cannot, and returns
/// `None`. `parts` are the parts of an assistant message.
pub(super) fn unchanged<'m>(
    writer: &mut RequestWriter<'_>,
    parts: &'m [Part],
    format: Format,
    reader: &ItemReader,
) -> Option<StoredReply<'m>> {
    let replay = parts.iter().find_map(|part| if let Part::Replay(replay) = part { Some(replay) } else { None })?;
    match read(replay, writer, parts, format, reader) {
        Ok(reply) => {
            writer.note_replay();
            Some(reply)
        }
        Err(reason) => {
            writer.note(not_sent(replay, reason));
            None
        }
    }
}

/// Returns a note for the step record which says that data of a provider is not sent back.
pub(super) fn not_sent(replay: &Replay, reason: &str) -> String {
    format!("data that `{}` attached to a reply, such as its thinking, is not sent: {reason}", replay.provider)
}

fn read<'m>(
    replay: &'m Replay,
    writer: &RequestWriter<'_>,
    parts: &'m [Part],
    format: Format,
    reader: &ItemReader,
) -> Result<StoredReply<'m>, &'static str> {
    let model = &writer.request.model;
    if format.without_replay {
        return Err("the provider rejected it");
    }
    if replay.provider != model.provider {
        return Err("another provider receives the request");
    }
    let stored = ReplayItems::read(replay, format.protocol).ok_or("the request is in another wire format")?;
    if stored.model != model.name {
        return Err("another model receives the request");
    }
    if !stored.items.iter().all(reader.can_be_in_reply) {
        return Err("it contains parts that cannot be in a reply");
    }
    let text: String = stored.items.iter().map(reader.text).collect();
    let calls: Vec<&ToolCall> =
        parts.iter().filter_map(|part| if let Part::ToolCall(call) = part { Some(call) } else { None }).collect();
    let item_calls: Vec<ItemCall<'m>> = stored.items.iter().filter_map(reader.call).collect();
    let has_same_text = visible(&text) == visible(&text_of(parts));
    let has_same_calls = calls.len() == item_calls.len()
        && calls.iter().zip(&item_calls).all(|(call, item)| is_same(&call.arguments, &item.arguments));
    if !has_same_text || !has_same_calls {
        return Err("the reply was changed after it was stored");
    }
    let ids = calls.iter().zip(&item_calls).filter_map(|(call, item)| Some((&call.id, item.id?))).collect();
    Ok(StoredReply { items: stored.items, ids })
}

/// Returns the text of a stored reply without prefaces.
fn text_of(parts: &[Part]) -> String {
    parts.iter().filter_map(|part| if let Part::Text(text) = part { Some(text.as_str()) } else { None }).collect()
}

/// Returns whether the stored arguments are those of the item. Invisible characters may have been replaced by visible
/// text in the stored arguments.
fn is_same(stored: &Value, item: &Value) -> bool {
    let is_empty = |value: &Value| {
        value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty) || value.as_str() == Some("")
    };
    if stored == item || is_empty(stored) && is_empty(item) {
        return true;
    }
    let (mut stored, mut item) = (stored.clone(), item.clone());
    visible_json(&mut stored);
    visible_json(&mut item);
    stored == item
}
