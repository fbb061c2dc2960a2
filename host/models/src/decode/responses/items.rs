//! The output items of one response while they arrive.

use super::super::StreamError;
use agent_core::model::RequestedCall;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Maximum number of output items in one response.
const MAX_ITEMS: usize = 4096;

/// All output items of a response.
#[derive(Debug, Default)]
pub(super) struct Items {
    /// Items by their position in the response. A position can be any number, so it is used as a key.
    items: BTreeMap<u64, Item>,
}

/// One output item.
#[derive(Debug, Default)]
pub(super) struct Item {
    /// Fields of the item when it was added. Their values may be incomplete.
    added: Map<String, Value>,
    /// The complete item, if it has arrived.
    done: Option<Value>,
    /// Text that has arrived in pieces.
    text: String,
    /// Refusal that has arrived in pieces.
    refusal: String,
    /// Arguments that have arrived in pieces.
    arguments: String,
    /// Whether thinking has arrived in pieces.
    has_thinking: bool,
}

/// Text of a complete item that did not arrive in pieces.
#[derive(Debug, PartialEq)]
pub(super) enum Missing {
    /// The pieces contained the whole text.
    Nothing,
    /// The text continues after the pieces.
    Text(String),
    /// The thinking has not arrived at all.
    Thinking(String),
    /// The pieces differ from the text of the complete item.
    Contradiction,
}

impl Items {
    /// Returns the item at the position, which is added if necessary. Without a position, returns the last item.
    pub(super) fn get(&mut self, position: Option<u64>) -> Result<&mut Item, StreamError> {
        let last = self.items.keys().next_back().copied();
        let position = position.or(last).unwrap_or_default();
        if self.items.len() == MAX_ITEMS && !self.items.contains_key(&position) {
            return Err(StreamError::TooMany { what: "output items", limit: MAX_ITEMS });
        }
        Ok(self.items.entry(position).or_default())
    }

    /// Adds a new item. An item without a position is placed after all other items.
    pub(super) fn add(&mut self, position: Option<u64>, fields: Map<String, Value>) -> Result<(), StreamError> {
        let position = position.unwrap_or_else(|| self.next_position());
        self.get(Some(position))?.added = fields;
        Ok(())
    }

    /// Completes an item and returns the text that was missing. Without a position, this is the item with the same id,
    /// or the last item if it is not complete yet, or else a new item.
    pub(super) fn complete(&mut self, position: Option<u64>, item: Value) -> Result<Missing, StreamError> {
        let id = item["id"].as_str().unwrap_or_default();
        let unfinished = self.items.iter().next_back().filter(|(_, last)| last.done.is_none()).map(|(last, _)| *last);
        let position = position.or_else(|| self.position_of(id)).or(unfinished);
        let position = position.unwrap_or_else(|| self.next_position());
        let entry = self.get(Some(position))?;
        let missing = entry.missing(&item);
        entry.done = Some(item);
        Ok(missing)
    }

    /// Returns the position of the item with this id. Returns `None` if the id is empty or unknown.
    pub(super) fn position_of(&self, id: &str) -> Option<u64> {
        let has_id = |item: &Item| item.added.get("id").is_some_and(|found| found == id);
        self.items.iter().find(|(_, item)| !id.is_empty() && has_id(item)).map(|(position, _)| *position)
    }

    /// Returns the number of items that are complete.
    pub(super) fn count_complete(&self) -> usize {
        self.items.values().filter(|item| item.done.is_some()).count()
    }

    /// Returns whether the item at the position is complete.
    pub(super) fn is_complete(&self, position: u64) -> bool {
        self.items.get(&position).is_some_and(|item| item.done.is_some())
    }

    /// Returns the text of the response, its refusal, its calls, and all items as they must be sent back.
    pub(super) fn finish(self) -> (String, String, Vec<RequestedCall>, Vec<Value>) {
        // An item without a type cannot be sent back.
        let items: Vec<Value> =
            self.items.into_values().map(Item::finish).filter(|item| item["type"].is_string()).collect();
        let text = items.iter().map(|item| message_text(item, "output_text", "text")).collect();
        let refusal = items.iter().map(|item| message_text(item, "refusal", "refusal")).collect();
        let calls = items.iter().filter_map(call).collect();
        (text, refusal, calls, items)
    }

    fn next_position(&self) -> u64 {
        self.items.keys().next_back().map_or(0, |position| position.saturating_add(1))
    }
}

impl Item {
    pub(super) fn add_text(&mut self, piece: &str) {
        self.text.push_str(piece);
    }

    pub(super) fn add_refusal(&mut self, piece: &str) {
        self.refusal.push_str(piece);
    }

    pub(super) fn add_arguments(&mut self, piece: &str) {
        self.arguments.push_str(piece);
    }

    /// Records that a piece of thinking has arrived. Returns whether this piece is the first piece of thinking.
    pub(super) fn add_thinking(&mut self) -> bool {
        !std::mem::replace(&mut self.has_thinking, true)
    }

    /// Compares the complete item with its pieces.
    fn missing(&self, item: &Value) -> Missing {
        if item["type"] == "reasoning" {
            let thinking = thinking(item);
            return if self.has_thinking || thinking.is_empty() {
                Missing::Nothing
            } else {
                Missing::Thinking(thinking)
            };
        }
        let text = message_text(item, "output_text", "text") + &message_text(item, "refusal", "refusal");
        let pieces = [self.text.as_str(), self.refusal.as_str()].concat();
        match text.strip_prefix(&pieces) {
            Some("") => Missing::Nothing,
            Some(rest) => Missing::Text(rest.to_owned()),
            None => Missing::Contradiction,
        }
    }

    /// Returns the complete item. If the complete item has not arrived, the result is built from its pieces.
    fn finish(self) -> Value {
        if let Some(done) = self.done {
            return done;
        }
        let mut fields = self.added;
        let mut content = Vec::new();
        if !self.text.is_empty() {
            content.push(json!({ "type": "output_text", "text": self.text, "annotations": [] }));
        }
        if !self.refusal.is_empty() {
            content.push(json!({ "type": "refusal", "refusal": self.refusal }));
        }
        if !content.is_empty() {
            fields.entry("type").or_insert_with(|| json!("message"));
            fields.entry("role").or_insert_with(|| json!("assistant"));
            fields.insert("content".into(), Value::Array(content));
        }
        if !self.arguments.is_empty() {
            fields.insert("arguments".into(), json!(self.arguments));
        }
        Value::Object(fields)
    }
}

/// Returns the texts of the content parts of a message that have the given type. Returns an empty string for items that
/// are not messages.
fn message_text(item: &Value, kind: &str, field: &str) -> String {
    let content = item["content"].as_array().filter(|_| item["type"] == "message");
    let parts = content.into_iter().flatten().filter(|part| part["type"] == kind);
    parts.filter_map(|part| part[field].as_str()).collect()
}

/// Returns the thinking of a reasoning item: its summary, or its text if it has no summary.
fn thinking(item: &Value) -> String {
    let texts = |list: &str| {
        let parts = item[list].as_array().into_iter().flatten().filter_map(|part| part["text"].as_str());
        parts.collect::<Vec<_>>().join("\n\n")
    };
    let summary = texts("summary");
    if summary.is_empty() { texts("content") } else { summary }
}

fn call(item: &Value) -> Option<RequestedCall> {
    let string = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
    let provider_id = Some(string("call_id")).filter(|id| !id.is_empty());
    // Some servers send the arguments as a JSON value instead of a string.
    let arguments = match &item["arguments"] {
        arguments @ (Value::Object(_) | Value::Array(_)) => arguments.to_string(),
        _ => string("arguments"),
    };
    (item["type"] == "function_call").then(|| RequestedCall { provider_id, name: string("name"), arguments })
}

/// Returns whether the host can write this item again from the stored message, so that it does not need to be stored
/// as the provider sent it.
pub(super) fn is_plain(item: &Value) -> bool {
    let has_only = |value: &Value, names: &[&str]| {
        let is_allowed = |(name, value): (&String, &Value)| {
            names.contains(&name.as_str()) || value.is_null() || value.as_array().is_some_and(Vec::is_empty)
        };
        value.as_object().is_some_and(|fields| fields.iter().all(is_allowed))
    };
    match item["type"].as_str() {
        Some("message") => {
            let is_text = |part: &Value| part["type"] == "output_text" && has_only(part, &["type", "text"]);
            has_only(item, &["type", "id", "status", "role", "content"])
                && item["content"].as_array().is_some_and(|content| content.iter().all(is_text))
        }
        Some("function_call") => has_only(item, &["type", "id", "status", "call_id", "name", "arguments"]),
        _ => false,
    }
}
