//! What the provider wants back with a reply that called tools: its reasoning, and its signatures.

use super::chunk::Said;
use agent_core::message::Replay;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// Most bytes of it; where there is more, nothing is given back.
const LIMIT: usize = 256 * 1024;

/// Fields of `reasoning_details` that come in pieces.
const IN_PIECES: [&str; 2] = ["text", "summary"];

/// What is to be given back, while it comes.
#[derive(Debug, Default)]
pub(super) struct GivenBack {
    reasoning_content: String,
    reasoning_details: Vec<Map<String, Value>>,
    extra_content: Option<Value>,
    size: usize,
}

impl GivenBack {
    /// Takes what a chunk has of it, but for [`Self::reasoning_content`].
    pub(super) fn take(&mut self, said: &Said<'_>) {
        if let Some(details) = said.reasoning_details.filter(|details| self.has_room(details.get().len())) {
            self.take_details(details);
        }
        if let Some(extra) = said.extra_content.filter(|extra| self.has_room(extra.get().len())) {
            self.extra_content = serde_json::from_str(extra.get()).ok().filter(|extra| *extra != Value::Null);
        }
    }

    /// Takes a piece of `reasoning_content`, which DeepSeek refuses to do without.
    pub(super) fn reasoning_content(&mut self, piece: &str) {
        if self.has_room(piece.len()) {
            self.reasoning_content.push_str(piece);
        }
    }

    /// For a reply of these calls, each with its id and its `extra_content`.
    pub(super) fn finish(self, provider: &str, calls: Vec<(Option<&str>, Option<Value>)>) -> Option<Replay> {
        let mut message = Map::new();
        if !self.reasoning_content.is_empty() {
            message.insert("reasoning_content".into(), self.reasoning_content.into());
        }
        if !self.reasoning_details.is_empty() {
            message.insert("reasoning_details".into(), self.reasoning_details.into_iter().map(Value::Object).collect());
        }
        message.extend(self.extra_content.map(|extra| ("extra_content".to_owned(), extra)));
        let has_extra = calls.iter().any(|(_, extra)| extra.is_some());
        if calls.is_empty() || self.size > LIMIT || (message.is_empty() && !has_extra) {
            return None;
        }
        let calls = calls.into_iter().map(|(id, extra)| {
            let id = id.map(|id| ("id".to_owned(), json!(id)));
            id.into_iter().chain(extra.map(|extra| ("extra_content".to_owned(), extra))).collect::<Map<_, _>>()
        });
        let data = json!({ "message": message, "tool_calls": calls.collect::<Vec<_>>() });
        let is_small = data.to_string().len() <= LIMIT;
        is_small.then(|| Replay { provider: provider.to_owned(), data })
    }

    /// Counts what comes; nothing more is kept once it is too much.
    fn has_room(&mut self, more: usize) -> bool {
        self.size = self.size.saturating_add(more);
        if self.size > LIMIT {
            self.reasoning_content = String::new();
            self.reasoning_details = Vec::new();
            self.extra_content = None;
        }
        self.size <= LIMIT
    }

    fn take_details(&mut self, details: &RawValue) {
        let Ok(pieces) = serde_json::from_str::<Vec<Map<String, Value>>>(details.get()) else { return };
        for piece in pieces {
            match self.reasoning_details.last_mut() {
                Some(last) if goes_on(last, &piece) => extend(last, piece),
                _ => self.reasoning_details.push(piece),
            }
        }
    }
}

/// Whether the piece belongs to the detail before it. Encrypted ones come whole.
fn goes_on(last: &Map<String, Value>, piece: &Map<String, Value>) -> bool {
    let same = |key| last.get(key) == piece.get(key);
    let kind = piece.get("type").and_then(Value::as_str);
    matches!(kind, Some("reasoning.text" | "reasoning.summary")) && same("type") && same("index")
}

fn extend(last: &mut Map<String, Value>, piece: Map<String, Value>) {
    for (key, value) in piece {
        match (last.get_mut(&key), value) {
            (_, Value::Null) => {}
            (Some(Value::String(text)), Value::String(more)) if IN_PIECES.contains(&key.as_str()) => {
                text.push_str(&more)
            }
            (Some(_), Value::String(nothing)) if nothing.is_empty() => {}
            (_, value) => {
                last.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(said: &[Value]) -> GivenBack {
        let mut given = GivenBack::default();
        for said in said {
            let json = said.to_string();
            given.take(&serde_json::from_str(&json).unwrap());
        }
        given
    }

    fn with_call(given: GivenBack) -> Option<Value> {
        given.finish("p", vec![(Some("c1"), None)]).map(|replay| replay.data)
    }

    /// M1: signed reasoning goes back as it was, its pieces joined.
    #[test]
    fn m1_details_are_put_together() {
        let piece = |piece: Value| json!({ "reasoning_details": [piece] });
        let given = given(&[
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
        let expected = json!({"message": {"reasoning_details": expected}, "tool_calls": [{"id": "c1"}]});
        assert_eq!(with_call(given), Some(expected));
    }

    #[test]
    fn m1_nothing_is_kept_that_nobody_wants() {
        assert_eq!(with_call(GivenBack::default()), None);
        let mut given = GivenBack::default();
        given.reasoning_content("hm");
        assert_eq!(given.finish("p", vec![]), None);
    }

    /// It is bounded: half of it would be worse than nothing.
    #[test]
    fn m1_too_much_is_dropped() {
        for (length, is_kept) in [(LIMIT - 200, true), (LIMIT + 1, false)] {
            let mut given = GivenBack::default();
            for _ in 0..length {
                given.reasoning_content("x");
            }
            assert_eq!(with_call(given).is_some(), is_kept);
        }
    }
}
