//! Collects replay data: the reasoning and the signatures of a reply with tool calls, which the next request must send
//! back to some providers.

use super::chunk::MessageFields;
use agent_core::message::Replay;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// Maximum size of the replay data of one reply, in bytes. If a reply has more replay data than this, none of its
/// replay data is sent back.
const MAX_BYTES: usize = 256 * 1024;

/// Fields in an item of `reasoning_details` whose texts may arrive in pieces.
const PIECEWISE_FIELDS: [&str; 2] = ["text", "summary"];

/// Collects the replay data of one reply while the reply arrives.
#[derive(Debug, Default)]
pub(super) struct ReplayCollector {
    reasoning_content: String,
    reasoning_details: Vec<Map<String, Value>>,
    extra_content: Option<Value>,
    size: usize,
}

impl ReplayCollector {
    /// Adds the replay data of a chunk, except for `reasoning_content`, which [`Self::reasoning_content`] adds.
    pub(super) fn add(&mut self, fields: &MessageFields<'_>) {
        if let Some(details) = fields.reasoning_details.filter(|details| self.reserve(details.get().len())) {
            self.add_details(details);
        }
        if let Some(extra) = fields.extra_content.filter(|extra| self.reserve(extra.get().len())) {
            self.extra_content = serde_json::from_str(extra.get()).ok().filter(|extra| *extra != Value::Null);
        }
    }

    /// Adds a piece of `reasoning_content`. This data is collected because DeepSeek rejects requests in which
    /// `reasoning_content` is missing.
    pub(super) fn reasoning_content(&mut self, piece: &str) {
        if self.reserve(piece.len()) {
            self.reasoning_content.push_str(piece);
        }
    }

    /// Returns the replay data of the reply, or `None` if nothing needs to be sent back or the data is too large.
    /// `model` has the form `provider/name`. `calls` contains the provider's id and the `extra_content` of each call.
    pub(super) fn finish(
        self,
        provider: &str,
        model: &str,
        calls: Vec<(Option<&str>, Option<Value>)>,
    ) -> Option<Replay> {
        let mut message = Map::new();
        if !self.reasoning_content.is_empty() {
            message.insert("reasoning_content".into(), self.reasoning_content.into());
        }
        if !self.reasoning_details.is_empty() {
            message.insert("reasoning_details".into(), self.reasoning_details.into_iter().map(Value::Object).collect());
        }
        message.extend(self.extra_content.map(|extra| ("extra_content".to_owned(), extra)));
        let has_extra = calls.iter().any(|(_, extra)| extra.is_some());
        if calls.is_empty() || self.size > MAX_BYTES || (message.is_empty() && !has_extra) {
            return None;
        }
        let calls = calls.into_iter().map(|(id, extra)| {
            let id = id.map(|id| ("id".to_owned(), json!(id)));
            id.into_iter().chain(extra.map(|extra| ("extra_content".to_owned(), extra))).collect::<Map<_, _>>()
        });
        let name = model.split_once('/').map_or(model, |(_, name)| name);
        let data = json!({ "model": name, "message": message, "tool_calls": calls.collect::<Vec<_>>() });
        let is_small = data.to_string().len() <= MAX_BYTES;
        is_small.then(|| Replay { provider: provider.to_owned(), data })
    }

    /// Adds `length` bytes to the size of the data and returns whether the new size is within the limit. If the new
    /// size exceeds the limit, drops all data that was collected.
    fn reserve(&mut self, length: usize) -> bool {
        self.size = self.size.saturating_add(length);
        if self.size > MAX_BYTES {
            self.reasoning_content = String::new();
            self.reasoning_details = Vec::new();
            self.extra_content = None;
        }
        self.size <= MAX_BYTES
    }

    fn add_details(&mut self, details: &RawValue) {
        let Ok(pieces) = serde_json::from_str::<Vec<Map<String, Value>>>(details.get()) else { return };
        for piece in pieces {
            match self.reasoning_details.last_mut() {
                Some(last) if continues(last, &piece) => extend(last, piece),
                _ => self.reasoning_details.push(piece),
            }
        }
    }
}

/// Returns whether `piece` continues `last`, which is the last item of `reasoning_details`. Encrypted items always
/// arrive complete, so no piece continues them.
fn continues(last: &Map<String, Value>, piece: &Map<String, Value>) -> bool {
    let same = |key| last.get(key) == piece.get(key);
    let kind = piece.get("type").and_then(Value::as_str);
    matches!(kind, Some("reasoning.text" | "reasoning.summary")) && same("type") && same("index")
}

fn extend(last: &mut Map<String, Value>, piece: Map<String, Value>) {
    for (key, value) in piece {
        match (last.get_mut(&key), value) {
            (_, Value::Null) => {}
            (Some(Value::String(text)), Value::String(more)) if PIECEWISE_FIELDS.contains(&key.as_str()) => {
                text.push_str(&more)
            }
            (Some(_), Value::String(text)) if text.is_empty() => {}
            (_, value) => {
                last.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(fields: &[Value]) -> ReplayCollector {
        let mut collector = ReplayCollector::default();
        for chunk in fields {
            let json = chunk.to_string();
            collector.add(&serde_json::from_str(&json).unwrap());
        }
        collector
    }

    fn with_call(collector: ReplayCollector) -> Option<Value> {
        collector.finish("p", "p/m", vec![(Some("c1"), None)]).map(|replay| replay.data)
    }

    /// M1: signed reasoning is sent back unchanged, with its pieces joined.
    #[test]
    fn m1_pieces_of_reasoning_details_are_joined() {
        let piece = |piece: Value| json!({ "reasoning_details": [piece] });
        let collector = collect(&[
            piece(json!({"type": "reasoning.text", "text": "I ", "signature": "", "index": 0})),
            piece(json!({"type": "reasoning.text", "text": "see", "index": 0, "format": "f"})),
            piece(json!({"type": "reasoning.text", "signature": "s1", "text": null, "index": 0})),
            piece(json!({"type": "reasoning.encrypted", "data": "x", "index": 1})),
            piece(json!({"type": "reasoning.encrypted", "data": "y", "index": 1})),
        ]);
        let expected = json!([
            {"type": "reasoning.text", "text": "I see", "signature": "s1", "index": 0, "format": "f"},
            {"type": "reasoning.encrypted", "data": "x", "index": 1},
            {"type": "reasoning.encrypted", "data": "y", "index": 1},
        ]);
        let expected = json!({"model": "m", "message": {"reasoning_details": expected}, "tool_calls": [{"id": "c1"}]});
        assert_eq!(with_call(collector), Some(expected));
    }

    #[test]
    fn m1_no_data_is_kept_without_reasoning_or_calls() {
        assert_eq!(with_call(ReplayCollector::default()), None);
        let mut collector = ReplayCollector::default();
        collector.reasoning_content("hm");
        assert_eq!(collector.finish("p", "p/m", vec![]), None);
    }

    /// M1: data that exceeds the size limit is dropped completely instead of being truncated.
    #[test]
    fn m1_oversized_data_is_dropped() {
        for (length, is_kept) in [(MAX_BYTES - 200, true), (MAX_BYTES + 1, false)] {
            let mut collector = ReplayCollector::default();
            for _ in 0..length {
                collector.reasoning_content("x");
            }
            assert_eq!(with_call(collector).is_some(), is_kept);
        }
    }
}
