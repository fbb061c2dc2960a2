//! Loads the complete conversation of a session, for outputs that include the session's messages (L13).

use super::loaded::{LoadedHistory, result_part};
use agent_core::change::{Body, CallRecord, Change, HiddenMessage, HideReason};
use agent_core::message::{CallId, Message, MessageId, StoredMessage};
use agent_core::run::{Output, Run};
use agent_core::view::shown_message;
use agent_store::{MAX_PAGE, MessageRange, StoreError};
use serde_json::{Value, json};
use std::collections::HashMap;

/// Maximum total size of the messages in one event, as bytes of JSON. The size is limited because a reader of the event
/// may have little memory. Messages that do not fit can be read from the store.
const MAX_MESSAGE_BYTES: usize = 1 << 20;

impl LoadedHistory {
    /// Returns all messages of the session in order, including the messages of `change`, which is not stored yet.
    /// Messages that were removed from the prompt are included, but undone messages are not. The messages refer to
    /// media by digest, and their tool results are not truncated. `after` is the state of the run after the change.
    pub(crate) async fn conversation(&mut self, after: &Run, change: &Change) -> Result<Vec<Message>, StoreError> {
        let mut messages = self.stored_messages().await?;
        messages.extend(self.new_messages(change).await?);
        let mut hidden_messages = self.hidden_messages().await?;
        hidden_messages.extend(change.hidden.iter().map(|hidden| (hidden.id, *hidden)));
        let in_view: HashMap<MessageId, u32> =
            after.view.iter().map(|entry| (entry.id, after.seen_count(entry))).collect();
        let is_kept = |message: &&StoredMessage| {
            hidden_messages.get(&message.id).is_none_or(|hidden| hidden.why != HideReason::Undone)
        };
        let shown = messages.iter().filter(is_kept).map(|message| {
            let hidden = || hidden_messages.get(&message.id).map(|hidden| hidden.seen_count);
            let seen = in_view.get(&message.id).copied().or_else(hidden).unwrap_or_default();
            shown_message(message, seen, usize::MAX).without_host_parts()
        });
        Ok(shown.collect())
    }

    async fn stored_messages(&self) -> Result<Vec<StoredMessage>, StoreError> {
        let mut messages: Vec<StoredMessage> = Vec::new();
        loop {
            let after = messages.last().map_or(0, |message| message.id);
            let range = MessageRange::After { id: after, limit: MAX_PAGE };
            let page = self.store.messages(&self.session, range).await?;
            if page.is_empty() {
                return Ok(messages);
            }
            messages.extend(page);
        }
    }

    async fn hidden_messages(&self) -> Result<HashMap<MessageId, HiddenMessage>, StoreError> {
        let mut messages = HashMap::new();
        let mut after = 0;
        loop {
            let page = self.store.hidden(&self.session, after, MAX_PAGE).await?;
            let is_last = page.len() < MAX_PAGE;
            after = page.last().map_or(after, |hidden| hidden.id);
            messages.extend(page.into_iter().map(|hidden| (hidden.id, hidden)));
            if is_last {
                return Ok(messages);
            }
        }
    }

    async fn new_messages(&mut self, change: &Change) -> Result<Vec<StoredMessage>, StoreError> {
        let ids = change.messages.iter().filter_map(|message| match &message.body {
            Body::ResultOf(call) => Some(call.clone()),
            Body::Parts(_) => None,
        });
        let ids: Vec<CallId> = ids.collect();
        let records = self.calls_after(&ids, change).await?;
        let mut records: HashMap<CallId, CallRecord> =
            records.into_iter().map(|record| (record.id.clone(), record)).collect();
        let messages = change.messages.iter().map(|message| {
            let parts = match &message.body {
                Body::Parts(parts) => parts.clone(),
                Body::ResultOf(call) => match records.remove(call) {
                    Some(CallRecord { name, result: Some(result), .. }) => vec![result_part(call, name, result)],
                    _ => Vec::new(),
                },
            };
            let (id, turn, role, tokens) = (message.id, message.turn, message.role, message.tokens);
            StoredMessage { id, turn, role, parts, tokens }
        });
        Ok(messages.collect())
    }
}

/// Converts the output of a turn to the data of an event. The data contains as many of the latest messages as fit into
/// [`MAX_MESSAGE_BYTES`], and the number of earlier messages that do not fit.
pub(crate) fn output_for_event(output: &Output) -> Value {
    let mut data = json!(output);
    let Some(messages) = data.get_mut("messages").and_then(Value::as_array_mut) else { return data };
    let mut bytes_left = MAX_MESSAGE_BYTES;
    let fits = messages.iter().rev().take_while(|message| {
        let remaining = bytes_left.checked_sub(message.to_string().len());
        bytes_left = remaining.unwrap_or_default();
        remaining.is_some()
    });
    let left_out = messages.len() - fits.count();
    if left_out > 0 {
        messages.drain(..left_out);
        data["messages_left_out"] = json!(left_out);
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::event::EndReason;
    use agent_core::message::Role;

    fn output(texts: &[String]) -> Output {
        let messages = texts.iter().map(|text| Message::text(Role::User, text.clone())).collect();
        Output {
            data: json!("So."),
            finish: EndReason::Answered,
            limit_reached: false,
            execution_units: 1,
            usage: Default::default(),
            interactions: 1,
            model: "m".to_owned(),
            session: "s".to_owned(),
            turn: 1,
            messages: Some(messages),
        }
    }

    /// L13: the event contains the latest messages completely, and the number of earlier messages that are left out.
    #[test]
    fn l13_an_event_leaves_out_messages_that_exceed_its_limit() {
        let short = output(&["one".to_owned(), "two".to_owned()]);
        assert_eq!(output_for_event(&short), json!(short), "messages that fit are complete");
        let long = output(&["first".to_owned(), "x".repeat(MAX_MESSAGE_BYTES), "third".to_owned()]);
        let data = output_for_event(&long);
        assert_eq!((data["messages"].as_array().unwrap().len(), &data["messages_left_out"]), (1, &json!(2)));
        assert!(data["messages"][0].to_string().contains("third"), "{}", data["messages"][0]);
    }
}
