//! The parts of one reply while they arrive.

use super::super::StreamError;
use super::arguments;
use agent_core::model::RequestedCall;
use serde_json::{Map, Value, json};

/// Maximum number of parts in one reply, after adjacent texts were joined.
const MAX_PARTS: usize = 65_536;

/// All parts of a reply in the order in which they arrived. Adjacent texts are joined.
#[derive(Debug, Default)]
pub(super) struct Parts {
    parts: Vec<Value>,
    /// Whether the last part is a call whose arguments are still arriving in pieces.
    has_open_call: bool,
}

impl Parts {
    /// Adds a text without other fields. `is_thinking` is the value of the field `thought`.
    pub(super) fn add_text(&mut self, text: &str, is_thinking: bool) -> Result<(), StreamError> {
        self.has_open_call = false;
        let fields = self.parts.last_mut().and_then(Value::as_object_mut);
        // A signature applies to its own part only, so a part with a signature is not joined with others.
        let joins = fields.filter(|fields| is_text(fields) && is_thought(fields) == is_thinking);
        if let Some(Value::String(earlier)) = joins.and_then(|fields| fields.get_mut("text")) {
            earlier.push_str(text);
            return Ok(());
        }
        let part = if is_thinking { json!({ "text": text, "thought": true }) } else { json!({ "text": text }) };
        self.push(part)
    }

    /// Adds a part of any other kind, except for the pieces of a call.
    pub(super) fn add(&mut self, part: Value) -> Result<(), StreamError> {
        self.has_open_call = false;
        self.push(part)
    }

    /// Adds a part that contains a call or a piece of a call. A call in pieces begins with a part that has the name of
    /// the tool and `willContinue`. The pieces of its arguments follow, and a piece without `willContinue` ends it.
    pub(super) fn add_call(&mut self, mut part: Map<String, Value>) -> Result<(), StreamError> {
        let Some(Value::Object(call)) = part.get_mut("functionCall") else { return self.add(Value::Object(part)) };
        let continues = call.remove("willContinue").is_some_and(|value| value == true);
        let pieces = call.remove("partialArgs");
        let has_name = call.get("name").and_then(Value::as_str).is_some_and(|name| !name.is_empty());
        if !self.has_open_call || has_name {
            self.push(Value::Object(part))?;
        }
        self.has_open_call = continues;
        let Some(Value::Array(pieces)) = pieces else { return Ok(()) };
        let Some(call) = self.parts.last_mut().and_then(|part| part.get_mut("functionCall")) else { return Ok(()) };
        let mut assembled = call["args"].take();
        pieces.iter().try_for_each(|piece| arguments::add_piece(&mut assembled, piece))?;
        call["args"] = assembled;
        Ok(())
    }

    /// Returns whether the arguments of the last call are still arriving.
    pub(super) fn has_open_call(&self) -> bool {
        self.has_open_call
    }

    /// Returns the text of the reply, its calls, and all parts as they must be sent back.
    pub(super) fn finish(self) -> (String, Vec<RequestedCall>, Vec<Value>) {
        let texts = self.parts.iter().filter_map(Value::as_object).filter(|part| !is_thought(part));
        let text = texts.filter_map(|part| part.get("text")?.as_str()).collect();
        let calls = self.parts.iter().filter_map(call).collect();
        (text, calls, self.parts)
    }

    fn push(&mut self, part: Value) -> Result<(), StreamError> {
        if self.parts.len() == MAX_PARTS {
            return Err(StreamError::TooMany { what: "parts", limit: MAX_PARTS });
        }
        self.parts.push(part);
        Ok(())
    }
}

fn is_text(part: &Map<String, Value>) -> bool {
    part.keys().all(|key| key == "text" || key == "thought")
}

fn is_thought(part: &Map<String, Value>) -> bool {
    part.get("thought").is_some_and(|thought| thought == true)
}

fn call(part: &Value) -> Option<RequestedCall> {
    let call = part.get("functionCall")?;
    let string = |name: &str| call[name].as_str().unwrap_or_default().to_owned();
    let arguments = match &call["args"] {
        Value::Null => String::new(),
        Value::Object(arguments) if arguments.is_empty() => String::new(),
        arguments => arguments.to_string(),
    };
    let provider_id = Some(string("id")).filter(|id| !id.is_empty());
    Some(RequestedCall { provider_id, name: string("name"), arguments })
}

/// Returns whether the host can write this part again from the stored message, so that it does not need to be stored
/// as the provider sent it.
pub(super) fn is_plain(part: &Value) -> bool {
    let Some(fields) = part.as_object() else { return false };
    let has_only = |fields: &Map<String, Value>, names: &[&str]| fields.keys().all(|key| names.contains(&key.as_str()));
    match fields.get("functionCall").and_then(Value::as_object) {
        Some(call) => has_only(fields, &["functionCall"]) && has_only(call, &["id", "name", "args"]),
        None => has_only(fields, &["text"]),
    }
}
