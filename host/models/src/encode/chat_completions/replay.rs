//! Adds replay data to assistant messages. Replay data is the part of an earlier reply that later requests must send
//! back to the provider. The module `decode::chat_completions` defines the format of replay data.

use agent_core::message::Replay;
use agent_core::model::Model;
use serde_json::{Map, Value};

/// The fields of an assistant message that replay data may add.
const MESSAGE_FIELDS: [&str; 3] = ["reasoning_content", "reasoning_details", "extra_content"];

/// The replay data of one stored reply, split into the fields of the message and the fields of its calls.
#[derive(Default)]
pub(super) struct ReplayFields<'r> {
    message: Option<&'r Map<String, Value>>,
    calls: Vec<&'r Map<String, Value>>,
}

impl<'r> ReplayFields<'r> {
    /// Returns the replay data of a reply for a request to `model`.
    ///
    /// # Errors
    ///
    /// Returns the reason why the data is not sent to this model. Earlier hosts stored the data without the name of the
    /// model, so data without a name is sent to each model of its provider.
    pub(super) fn for_model(replay: &'r Replay, model: &Model) -> Result<Self, &'static str> {
        let Replay { provider, data } = replay;
        if *provider != model.provider {
            return Err("another provider receives the request");
        }
        if data.get("items").is_some() {
            return Err("the request is in another wire format");
        }
        if data.get("model").and_then(Value::as_str).is_some_and(|name| name != model.name) {
            return Err("another model receives the request");
        }
        let calls = data.get("tool_calls").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        Ok(Self {
            message: data.get("message").and_then(Value::as_object),
            calls: calls.iter().filter_map(Value::as_object).collect(),
        })
    }

    /// Adds the replay data to the encoded message and to its calls. Fields that the message already has are
    /// not replaced.
    pub(super) fn add_to(&self, message: &mut Map<String, Value>) {
        // The decoder stores this data only for replies with calls. Data of another origin could add calls or other
        // fields that the transcript does not show.
        if !message.contains_key("tool_calls") {
            return;
        }
        for name in MESSAGE_FIELDS {
            if let Some(value) = self.message.and_then(|fields| fields.get(name)) {
                message.entry(name).or_insert_with(|| value.clone());
            }
        }
        let Some(Value::Array(calls)) = message.get_mut("tool_calls") else { return };
        if calls.len() != self.calls.len() {
            return;
        }
        for (call, fields) in calls.iter_mut().filter_map(Value::as_object_mut).zip(&self.calls) {
            call.extend(fields.get("extra_content").map(|extra| ("extra_content".to_owned(), extra.clone())));
        }
    }

    /// Returns the ids that the provider gave to the calls, if the ids must be sent back because the provider's
    /// reasoning refers to at least one of them. Returns `None` if the reasoning refers to none of the ids, or if the
    /// `call_count` calls do not each have a distinct id.
    pub(super) fn ids(&self, call_count: usize) -> Option<Vec<&'r str>> {
        let details = self.message?.get("reasoning_details")?.as_array()?;
        let ids: Vec<&str> = self.calls.iter().filter_map(|call| call.get("id")?.as_str()).collect();
        let refers_to_call =
            |detail: &Value| detail.get("id").and_then(Value::as_str).is_some_and(|id| ids.contains(&id));
        let are_distinct = ids.iter().enumerate().all(|(position, id)| !id.is_empty() && !ids[..position].contains(id));
        (ids.len() == call_count && are_distinct && details.iter().any(refers_to_call)).then_some(ids)
    }
}
