//! The messages of a session in the form of AG-UI, for snapshots.

use agent_core::message::{Content, Part, Role, StoredMessage};
use agent_store::{MAX_PAGE, MessageRange, Store, StoreError};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};

/// Returns the id of the reply with this number in its turn, counted from 1.
pub(super) fn reply_id(turn: u32, number: u32) -> String {
    format!("reply_{turn}_{number}")
}

/// Returns the id of the message with the result of a call.
pub(super) fn result_id(call: &str) -> String {
    format!("result_{call}")
}

/// The visible messages of a session.
pub(super) struct Snapshot {
    /// The messages, oldest first.
    pub(super) messages: Vec<Value>,
    /// Number of replies of each turn.
    pub(super) replies: HashMap<u32, u32>,
}

/// Reads the visible messages of a session. If the session has more messages than one page, the oldest are left out.
pub(super) async fn snapshot(store: &dyn Store, session: &str) -> Result<Snapshot, StoreError> {
    let hidden: HashSet<_> = store.hidden(session, 0, MAX_PAGE).await?.into_iter().map(|hidden| hidden.id).collect();
    let (mut messages, mut replies, mut after) = (Vec::new(), HashMap::new(), 0);
    loop {
        let page = store.messages(session, MessageRange::After { id: after, limit: MAX_PAGE }).await?;
        let Some(last) = page.last() else { break };
        after = last.id;
        for message in page {
            if message.role == Role::Assistant {
                *replies.entry(message.turn).or_insert(0) += 1;
            }
            if !hidden.contains(&message.id) {
                let number = replies.get(&message.turn).copied().unwrap_or_default();
                messages.extend(converted(&message, number));
            }
        }
        let extra = messages.len().saturating_sub(MAX_PAGE);
        messages.drain(..extra);
    }
    Ok(Snapshot { messages, replies })
}

fn converted(message: &StoredMessage, number: u32) -> Vec<Value> {
    let texts = message.parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.clone()),
        Part::Json(json) => Some(json.to_string()),
        Part::Media(media) => Some(format!("[{}]", media.mime_type)),
        Part::ToolCall(_) | Part::ToolResult(_) | Part::Preface(_) | Part::Replay(_) => None,
    });
    let text = texts.collect::<Vec<_>>().join("\n");
    match message.role {
        Role::User => vec![json!({"id": format!("message_{}", message.id), "role": "user", "content": text})],
        Role::Assistant => {
            let calls = message.parts.iter().filter_map(|part| match part {
                Part::ToolCall(call) => Some(json!({
                    "id": call.id.0, "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments.to_string()},
                })),
                _ => None,
            });
            let calls: Vec<_> = calls.collect();
            let mut reply = json!({"id": reply_id(message.turn, number), "role": "assistant"});
            if !text.is_empty() {
                reply["content"] = json!(text);
            }
            if !calls.is_empty() {
                reply["toolCalls"] = json!(calls);
            }
            vec![reply]
        }
        Role::Tool => {
            let results = message.parts.iter().filter_map(|part| match part {
                Part::ToolResult(result) => Some(result),
                _ => None,
            });
            let converted = results.map(|result| {
                let content = content_text(&result.content);
                let mut message = json!({
                    "id": result_id(&result.call_id.0), "role": "tool", "toolCallId": result.call_id.0, "content": content,
                });
                if result.is_error {
                    message["error"] = json!(content);
                }
                message
            });
            converted.collect()
        }
        // The host's own instructions are not for front ends.
        Role::System => Vec::new(),
    }
}

fn content_text(content: &[Content]) -> String {
    let texts = content.iter().map(|content| match content {
        Content::Text(text) => text.clone(),
        Content::Json(json) => json.to_string(),
        Content::Media(media) => format!("[{}]", media.mime_type),
    });
    texts.collect::<Vec<_>>().join("\n")
}
