//! Gives a provider back what it wants back with its own messages, in the shape in which `chat_stream` keeps it.

use agent_core::message::{Part, Replay};
use serde_json::{Map, Value};

/// What one stored reply wants back.
#[derive(Default)]
pub(super) struct GivenBack<'r> {
    message: Option<&'r Map<String, Value>>,
    calls: Vec<&'r Map<String, Value>>,
}

impl<'r> GivenBack<'r> {
    /// Of an assistant's message; nothing where it was another provider's.
    pub(super) fn of(parts: &'r [Part], provider: &str) -> Self {
        let data = parts.iter().find_map(|part| match part {
            Part::Replay(Replay { provider: its, data }) if its == provider => Some(data),
            _ => None,
        });
        let Some(data) = data else { return Self::default() };
        let calls = data.get("tool_calls").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        Self {
            message: data.get("message").and_then(Value::as_object),
            calls: calls.iter().filter_map(Value::as_object).collect(),
        }
    }

    /// Adds its fields to the message and its calls. What the host itself wrote stays.
    pub(super) fn add_to(&self, message: &mut Map<String, Value>) {
        let is_new = |message: &Map<String, Value>, name: &String| !message.contains_key(name);
        for (name, value) in self.message.into_iter().flatten() {
            if is_new(message, name) {
                message.insert(name.clone(), value.clone());
            }
        }
        let Some(Value::Array(calls)) = message.get_mut("tool_calls") else { return };
        if calls.len() != self.calls.len() {
            return;
        }
        for (call, given) in calls.iter_mut().filter_map(Value::as_object_mut).zip(&self.calls) {
            call.extend(given.get("extra_content").map(|extra| ("extra_content".to_owned(), extra.clone())));
        }
    }

    /// The provider's own ids of the calls, where its reasoning refers to them; then they must go back, too. Only where they
    /// tell so many calls apart.
    pub(super) fn ids(&self, calls: usize) -> Option<Vec<&'r str>> {
        let details = self.message?.get("reasoning_details")?.as_array()?;
        let ids: Vec<&str> = self.calls.iter().filter_map(|call| call.get("id")?.as_str()).collect();
        let is_meant = |detail: &Value| detail.get("id").and_then(Value::as_str).is_some_and(|id| ids.contains(&id));
        let differ = ids.iter().enumerate().all(|(place, id)| !id.is_empty() && !ids[..place].contains(id));
        (ids.len() == calls && differ && details.iter().any(is_meant)).then_some(ids)
    }
}
