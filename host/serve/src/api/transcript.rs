//! The route that returns a session as people read it: messages with rendered texts, and the calls of tools with their results
//! and costs.

use super::denials::denial_json;
use super::render::{apart, as_json};
use super::transcript_notes::{TranscriptNote, notes};
use crate::access::Caller;
use crate::problem::{ApiProblems, Problem};
use crate::rendering::markdown_within;
use crate::state::ApiState;
use crate::tokens::Right;
use agent_core::change::{CallRecord, HideReason};
use agent_core::message::{CallId, Content, MessageId, Part, Role, StoredMessage, TurnInput};
use agent_core::run::Run;
use agent_runtime::stored_thinking;
use agent_store::{CallFilter, MAX_PAGE, MessageRange, SessionState, Store, StoreError};
use axum::extract::{Path, Query, State};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use utoipa::{IntoParams, ToSchema};

/// Number of messages of one answer if the request does not say how many.
const DEFAULT_LIMIT: u64 = 40;
/// Maximum number of messages of one answer.
const MAX_LIMIT: u64 = 100;
/// Number of bytes of a text of a tool's result that the answer contains.
const RESULT_BYTES: usize = 64 << 10;
/// Maximum number of the parser's events for the texts of one answer. Texts beyond it are not formatted.
const MAX_EVENTS: usize = 100_000;
/// Number of the last events that are searched for what the last turn did.
const RECENT_EVENTS: u64 = 80;

/// Selects a part of a session. Without `before` and `after`, the answer contains the last messages.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct TranscriptQuery {
    /// Only messages before the message with this id, the last ones of them.
    before: Option<u64>,
    /// Only messages after the message with this id, the first ones of them. Not allowed together with `before`.
    after: Option<u64>,
    /// Maximum number of messages, 1 to 100. Default: 40.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u64>,
}

/// A part of a session, and what the session does now.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Transcript {
    /// The state of the last turn.
    #[schema(value_type = String, example = "idle")]
    state: SessionState,
    /// Number of turns that began.
    turns: u32,
    /// The messages, oldest first. The results of tools are in `calls`.
    messages: Vec<TranscriptMessage>,
    /// The calls of the messages, in the order in which they were made.
    calls: Vec<TranscriptCall>,
    /// What happened in the turns of the messages besides them, such as another version of a plugin, in the order of the events.
    notes: Vec<TranscriptNote>,
    /// Whether there are messages before these.
    has_earlier: bool,
    /// Id of the last message that the answer covers. A reader continues with it as `after`.
    last_message: u64,
    /// The prompts that wait until the open turn has ended, or that steer it.
    queued: Vec<QueuedText>,
    /// What the open turn waits for.
    #[schema(value_type = Vec<Object>)]
    waits: Vec<Value>,
    /// Position of the last stored event. A reader of events begins after it.
    last_event: u64,
    /// The latest events of the last turn that say how full the context window is, what failed and how the turn ended.
    #[schema(value_type = Vec<Object>)]
    recent: Vec<Value>,
}

/// A message.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TranscriptMessage {
    /// Id of the message in its session.
    id: u64,
    /// Number of the turn that appended the message.
    turn: u32,
    /// Author of the message: `user`, `assistant` or `system`.
    role: &'static str,
    /// Why the message is no longer sent to the model: `superseded`, `undone` or `evicted`. `null` if it is sent.
    hidden: Option<&'static str>,
    /// The parts. A part of the kind `text` has a `text` and, if the model wrote it, its `blocks`. A part of the kind `thinking`
    /// has the thinking of the model, if the provider keeps it readable. The other kinds are `json`, `media` and `call`.
    #[schema(value_type = Vec<Object>)]
    parts: Vec<Value>,
}

/// A call of a tool.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TranscriptCall {
    /// Id of the call.
    id: String,
    /// Number of the turn.
    turn: u32,
    /// Name of the tool as its author wrote it.
    name: String,
    /// Where the tool comes from. `null` if it does not exist.
    #[schema(value_type = Option<Object>)]
    source: Option<Value>,
    /// The arguments as the model wrote them.
    #[schema(value_type = Object)]
    arguments: Value,
    /// The arguments as a person changed them. `null` if nobody did.
    #[schema(value_type = Option<Object>)]
    edited: Option<Value>,
    /// `waiting`, `asking`, `outstanding`, `started`, `outcome_unknown` or `finished`.
    state: &'static str,
    /// How often the call was begun. 0 means that it never ran.
    attempt: u32,
    /// The result: `content`, `is_error`, `cost` and `denials`. A denial has the `table` and the `line` of the configuration that would
    /// allow it, or `null` if none would. A text of more than 64 KiB is cut, and `omitted_bytes` says how
    /// many bytes are missing. `null` if there is no result yet.
    #[schema(value_type = Option<Object>)]
    result: Option<Value>,
}

/// A prompt that waits.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct QueuedText {
    /// The text of the prompt.
    text: String,
    /// Whether the prompt is added to the open turn.
    steers: bool,
}

/// Returns a part of a session as people read it.
#[utoipa::path(
    get, path = "/api/sessions/{session}/transcript", tag = "sessions", security(("token" = [])),
    params(("session" = String, Path, description = "Id of the session, with `/` written as `%2F`."), TranscriptQuery),
    responses((status = 200, body = Transcript), ApiProblems)
)]
pub(crate) async fn show_transcript(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(session): Path<String>,
    query: Result<Query<TranscriptQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<Transcript>, Problem> {
    caller.require(Right::Read)?;
    let Query(query) = query.map_err(|error| Problem::invalid(error.body_text()))?;
    let summary = state.session(&caller, &session).await?;
    let store = state.store();
    let run = store.snapshot(&session).await?.and_then(|snapshot| Run::restore(Some(&snapshot)).ok());
    let (last, last_event) = run.as_ref().map_or((0, 0), |run| (run.next_message.saturating_sub(1), run.sequence));
    let (after, limit) = range_of(&query, last)?;
    let stored = read_messages(store, &session, after, limit).await?;
    let first = stored.first().map_or(after + 1, |message| message.id);
    let last_message = stored.last().map_or(after.min(last), |message| message.id);
    let hidden = hidden_of(store, &session, first.saturating_sub(1), limit).await?;
    let calls = calls_of(store, &session, &stored).await?;
    let last_turn = (last_message >= last).then_some(summary.turns);
    let notes = notes(store, &session, &stored, (last_turn, last_event)).await?;
    let messages = render_messages(&state, stored, hidden).await?;
    let queued = run.iter().flat_map(|run| &run.queued_prompts);
    Ok(Json(Transcript {
        state: summary.state,
        turns: summary.turns,
        has_earlier: first > 1,
        last_message,
        queued: queued.map(|prompt| QueuedText { text: text_of(&prompt.input), steers: prompt.steers }).collect(),
        waits: run.iter().flat_map(Run::waits).map(|wait| serde_json::to_value(wait).unwrap_or_default()).collect(),
        recent: recent_events(store, &session, last_event, summary.turns).await?,
        last_event,
        messages,
        calls,
        notes,
    }))
}

/// Returns the id after which the answer begins, and the number of messages.
fn range_of(query: &TranscriptQuery, last: u64) -> Result<(u64, u64), Problem> {
    let limit = match query.limit.unwrap_or(DEFAULT_LIMIT) {
        limit @ 1..=MAX_LIMIT => limit,
        limit => return Err(Problem::invalid(format!("`limit` is {limit}, but must be 1 to {MAX_LIMIT}"))),
    };
    match (query.before, query.after) {
        (Some(_), Some(_)) => Err(Problem::invalid("`before` and `after` cannot be combined")),
        (None, Some(after)) if i64::try_from(after).is_err() => Err(Problem::invalid("`after` is too large")),
        (None, Some(after)) => Ok((after, limit)),
        (before, None) => {
            let end = before.unwrap_or(u64::MAX).min(last.saturating_add(1));
            let after = end.saturating_sub(1).saturating_sub(limit);
            Ok((after, end.saturating_sub(1).saturating_sub(after).max(1)))
        }
    }
}

/// Reads messages. A page of the store can end early.
async fn read_messages(
    store: &dyn Store,
    session: &str,
    after: MessageId,
    limit: u64,
) -> Result<Vec<StoredMessage>, StoreError> {
    let until = after.saturating_add(limit);
    let mut messages: Vec<StoredMessage> = Vec::new();
    loop {
        let id = messages.last().map_or(after, |message| message.id);
        let left = usize::try_from(until.saturating_sub(id)).unwrap_or(MAX_PAGE).min(MAX_PAGE);
        if left == 0 {
            return Ok(messages);
        }
        let page = store.messages(session, MessageRange::After { id, limit: left }).await?;
        if page.is_empty() {
            return Ok(messages);
        }
        messages.extend(page);
    }
}

/// Returns why messages are hidden, for the messages after this one.
async fn hidden_of(
    store: &dyn Store,
    session: &str,
    after: MessageId,
    limit: u64,
) -> Result<HashMap<MessageId, HideReason>, StoreError> {
    let limit = usize::try_from(limit).unwrap_or(MAX_PAGE).min(MAX_PAGE);
    let hidden = store.hidden(session, after, limit).await?;
    Ok(hidden.into_iter().map(|hidden| (hidden.id, hidden.why)).collect())
}

async fn calls_of(
    store: &dyn Store,
    session: &str,
    messages: &[StoredMessage],
) -> Result<Vec<TranscriptCall>, StoreError> {
    let parts = messages.iter().flat_map(|message| &message.parts);
    let ids: Vec<CallId> =
        parts.filter_map(|part| if let Part::ToolCall(call) = part { Some(call.id.clone()) } else { None }).collect();
    let mut calls = Vec::new();
    for ids in ids.chunks(MAX_PAGE) {
        let found = store.calls(session, CallFilter::Ids(ids.to_vec())).await?;
        calls.extend(found.into_iter().map(TranscriptCall::from));
    }
    Ok(calls)
}

impl From<CallRecord> for TranscriptCall {
    fn from(call: CallRecord) -> Self {
        let result = call.result.map(|result| {
            let content: Vec<Value> = result.content.iter().map(content_of).collect();
            let denials: Vec<Value> = result.denials.iter().map(denial_json).collect();
            json!({"content": content, "is_error": result.is_error, "cost": result.cost, "denials": denials})
        });
        Self {
            id: call.id.0,
            turn: call.turn,
            name: call.name,
            source: call.source.map(|source| serde_json::to_value(source).unwrap_or_default()),
            arguments: call.arguments,
            edited: call.edited,
            state: call.state.as_str(),
            attempt: call.attempt,
            result,
        }
    }
}

/// Returns a part of a result. A long text is cut.
fn content_of(content: &Content) -> Value {
    match content {
        Content::Text(text) => cut_text("text", text),
        Content::Json(value) => {
            let text = value.to_string();
            match text.len() > RESULT_BYTES {
                true => cut_text("text", &text),
                false => json!({"kind": "json", "value": value}),
            }
        }
        Content::Media(media) => json!({"kind": "media", "media": media}),
    }
}

fn cut_text(kind: &str, text: &str) -> Value {
    let mut end = text.len().min(RESULT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    json!({"kind": kind, "text": &text[..end], "omitted_bytes": text.len() - end})
}

/// Renders the texts of the model. Prompts of people stay as they were written.
async fn render_messages(
    state: &ApiState,
    messages: Vec<StoredMessage>,
    hidden: HashMap<MessageId, HideReason>,
) -> Result<Vec<TranscriptMessage>, Problem> {
    let shown = messages.into_iter().filter(|message| message.role != Role::Tool);
    let render = move || {
        let mut budget = MAX_EVENTS;
        let of_message = |message: StoredMessage| TranscriptMessage {
            id: message.id,
            turn: message.turn,
            role: message.role.as_str(),
            hidden: hidden.get(&message.id).map(|why| match why {
                HideReason::Superseded => "superseded",
                HideReason::Undone => "undone",
                HideReason::Evicted => "evicted",
            }),
            parts: parts_of(&message, &mut budget),
        };
        shown.map(of_message).collect()
    };
    apart(state, render).await
}

/// Returns the parts of a message. The thinking comes first, because the model wrote it first.
fn parts_of(message: &StoredMessage, budget: &mut usize) -> Vec<Value> {
    let thinking = message.parts.iter().find_map(|part| match part {
        Part::Replay(replay) => stored_thinking(replay).map(|text| cut_text("thinking", &text)),
        _ => None,
    });
    let others = message.parts.iter().filter_map(|part| part_of(part, message.role, budget));
    thinking.into_iter().chain(others).collect()
}

fn part_of(part: &Part, role: Role, budget: &mut usize) -> Option<Value> {
    Some(match part {
        Part::Text(text) if role == Role::Assistant => {
            let blocks = as_json(&markdown_within(text, budget));
            json!({"kind": "text", "text": text, "blocks": blocks})
        }
        Part::Text(text) => cut_text("text", text),
        Part::Json(value) => json!({"kind": "json", "value": value}),
        Part::Media(media) => json!({"kind": "media", "media": media}),
        Part::ToolCall(call) => json!({"kind": "call", "call": call.id}),
        Part::ToolResult(_) | Part::Preface(_) | Part::Replay(_) => return None,
    })
}

fn text_of(input: &TurnInput) -> String {
    input.message().plain_text()
}

/// Returns the latest event of each type that describes the last turn.
async fn recent_events(store: &dyn Store, session: &str, last_event: u64, turn: u32) -> Result<Vec<Value>, StoreError> {
    const TYPES: [&str; 8] = [
        "context_budget",
        "error",
        "loop_end",
        "budget_exceeded",
        "evicted",
        "model_fallback",
        "stream_complete",
        "memories_recalled",
    ];
    let after = last_event.saturating_sub(RECENT_EVENTS);
    let limit = usize::try_from(RECENT_EVENTS).unwrap_or(MAX_PAGE);
    let stored = store.events(session, after, limit).await?;
    let mut found: Map<String, Value> = Map::new();
    for event in stored.into_iter().filter(|stored| stored.event.turn == turn) {
        let mut value = serde_json::to_value(&event).unwrap_or_default();
        let kind = value["type"].as_str().unwrap_or_default().to_owned();
        if TYPES.contains(&kind.as_str()) {
            // The text of a reply is in its message.
            if let Some(fields) = value.as_object_mut() {
                fields.remove("text");
            }
            found.insert(kind, value);
        }
    }
    Ok(found.into_iter().map(|(_, event)| event).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::message::Replay;

    /// I3, L21: readable thinking is the first part of a message. The other data of the provider are not shown.
    #[test]
    fn i3_stored_thinking_is_the_first_part() {
        let data = json!({"protocol": "anthropic", "model": "m", "items": [
            {"type": "thinking", "thinking": "I think.", "signature": "c2ln"}, {"type": "redacted_thinking", "data": "opaque"},
        ]});
        let parts =
            vec![Part::Text("It is 4.".to_owned()), Part::Replay(Replay { provider: "anthropic".to_owned(), data })];
        let message = StoredMessage { id: 2, turn: 1, role: Role::Assistant, parts, tokens: 0 };
        let shown = parts_of(&message, &mut { MAX_EVENTS });
        assert_eq!(shown.len(), 2, "{shown:?}");
        assert_eq!(shown[0], json!({"kind": "thinking", "text": "I think.", "omitted_bytes": 0}));
        assert_eq!(shown[1]["kind"], "text");
    }
}
