//! Routes about the turns of a session: what happened when, what each model call was sent, and replays (D1, S6).

pub(super) mod activities;
pub(super) mod prompts;
pub(super) mod replays;
pub(super) mod shortened;

use self::activities::{Activity, activities};
use self::shortened::{Shortened, shortened};
use super::denials::denial_json;
use crate::access::Caller;
use crate::problem::{ApiProblems, Problem};
use crate::state::ApiState;
use crate::tokens::Right;
use agent_core::change::CallRecord;
use agent_core::event::EventKind;
use agent_runtime::last_event_before_turn;
use agent_store::{CallFilter, ExportPosition, SessionSummary, Store, StoreError, StoredTurn, TimedEvent};
use axum::extract::{Path, Query, State};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use utoipa::{IntoParams, ToSchema};

/// Number of turns that a list contains if the request does not say how many.
const DEFAULT_LIMIT: u32 = 20;
/// Maximum number of turns of one answer.
const MAX_LIMIT: u32 = 50;
/// Maximum number of calls of a turn that are shown.
const MAX_CALLS: usize = 300;
/// Maximum number of events of a turn that are shown, apart from the events about steps.
const MAX_EVENTS: usize = 1_000;
/// Maximum number of steps of a turn that are shown.
const MAX_STEPS: usize = 1_000;

/// The turns of a session, the latest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TurnList {
    turns: Vec<TurnItem>,
    /// The value of `before` with which the next page begins. `null` if there are no earlier turns.
    next: Option<u32>,
}

/// A turn of a session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TurnItem {
    /// Number of the turn in its session, from 1.
    turn: u32,
    /// Time at which the turn began, as RFC 3339.
    started: String,
    /// Time at which the turn ended, as RFC 3339. `null` if the turn is open.
    ended: Option<String>,
    /// Why the turn ended: `answered`, `completed`, `converse`, `asked`, `limit`, `cancelled` or `error`. `null` if the turn
    /// is open.
    #[schema(example = "answered")]
    reason: Option<Value>,
    /// Model calls, tokens and cost of the turn. `null` if the turn is open.
    #[schema(value_type = Option<Object>)]
    cost: Option<Value>,
}

/// Selects turns.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct TurnQuery {
    /// Only turns before the turn with this number. Default: all turns.
    before: Option<u32>,
    /// Maximum number of turns, 1 to 50. Default: 20.
    #[param(minimum = 1, maximum = 50)]
    limit: Option<u32>,
}

/// Lists the turns of a session.
#[utoipa::path(
    get, path = "/api/sessions/{session}/turns", tag = "turns", security(("token" = [])),
    params(("session" = String, Path, description = "Id of the session, with `/` written as `%2F`."), TurnQuery),
    responses((status = 200, body = TurnList), ApiProblems)
)]
pub(crate) async fn list_turns(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(session): Path<String>,
    query: Result<Query<TurnQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<TurnList>, Problem> {
    caller.require(Right::Read)?;
    let Query(query) = query.map_err(|error| Problem::invalid(error.body_text()))?;
    let limit = match query.limit.unwrap_or(DEFAULT_LIMIT) {
        limit @ 1..=MAX_LIMIT => limit,
        limit => return Err(Problem::invalid(format!("`limit` is {limit}, but must be 1 to {MAX_LIMIT}"))),
    };
    let summary = state.session(&caller, &session).await?;
    let end = query.before.unwrap_or(u32::MAX).min(summary.turns.saturating_add(1)).max(1);
    let first = end.saturating_sub(limit).max(1);
    let mut start = last_event_before_turn(state.store(), &session, first, 0).await?;
    let mut turns = Vec::new();
    for turn in first..end {
        let next = last_event_before_turn(state.store(), &session, turn + 1, start).await?;
        // The turns that a fork or an import has copied have no events.
        if next > start {
            turns.extend(turn_item(state.store(), &session, (turn, start, next)).await?);
        }
        start = next;
    }
    turns.reverse();
    Ok(Json(TurnList { turns, next: (first > 1).then_some(first) }))
}

/// Describes a turn by its first and its last event. `start` and `end` are the numbers of the last events before the turn
/// and of the turn.
async fn turn_item(
    store: &dyn Store,
    session: &str,
    (turn, start, end): (u32, u64, u64),
) -> Result<Option<TurnItem>, StoreError> {
    let Some(first) = store.events(session, start, 1).await?.pop() else { return Ok(None) };
    let last = store.events(session, end.saturating_sub(1), 1).await?.pop();
    let (ended, reason, cost) = match last {
        Some(TimedEvent { event, time }) => match event.kind {
            EventKind::LoopEnd { reason, cost } => (Some(time), Some(json!(reason)), cost.map(|cost| json!(cost))),
            _ => (None, None, None),
        },
        None => (None, None, None),
    };
    Ok(Some(TurnItem { turn, started: first.time, ended, reason, cost }))
}

/// A turn with its steps, its calls and the time that each part took.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TurnDetails {
    /// Id of the session.
    session: String,
    /// Name of the agent.
    agent: String,
    #[serde(flatten)]
    turn: TurnItem,
    /// The plugins of the turn, as `name@digest`.
    plugins: Vec<String>,
    /// The steps, in order. A step has one model call, and the calls that the model requested.
    steps: Vec<StepItem>,
    /// The tool calls, in order.
    calls: Vec<CallItem>,
    /// The parts of the turn that took time, in the order in which they ended: model calls, tool calls, requests of plugins,
    /// approvals, checks. The parts that have not ended are last.
    activities: Vec<Activity>,
    /// What else happened, such as retries, evictions, denials and approvals, as in the stream of events. Long texts are
    /// shortened.
    #[schema(value_type = Vec<Object>)]
    events: Vec<Value>,
    /// Number of steps, calls, activities and events that are not listed, because there are too many.
    left_out: usize,
}

/// A step of a turn.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct StepItem {
    /// Number of the step in its turn, from 1.
    step: u32,
    /// Time at which the step began, as RFC 3339.
    started: String,
    /// Time at which the next step began or the turn ended. `null` if the step is the last step of an open turn.
    ended: Option<String>,
    /// Whether this is the last step, in which no tools are offered to the model.
    last: bool,
    /// Number of messages in the prompt. `null` if the prompt is not built yet.
    messages: Option<u32>,
    /// Names of the system sections in the prompt.
    sections: Vec<String>,
    /// Number of tools that were selected for the prompt. `null` if all tools are offered.
    offered_tools: Option<u32>,
    /// The model that replied, as `provider/model`. `null` if there is no reply.
    model: Option<String>,
    /// The beginning of the reply. `null` if there is no reply.
    reply: Option<String>,
    /// Token counts and cost of the reply.
    #[schema(value_type = Option<Object>)]
    usage: Option<Value>,
    /// Estimated number of tokens by which media policies shortened the prompt.
    saved_tokens: u64,
    /// What fills the context window: `total`, `system`, `tools`, `reserved`, `messages` and `remaining`, in tokens.
    #[schema(value_type = Option<Object>)]
    budget: Option<Value>,
}

/// A tool call of a turn.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CallItem {
    /// Id of the call.
    call: String,
    /// Number of the step whose reply requested the call.
    step: u32,
    /// Name of the tool.
    name: String,
    /// Where the tool comes from. `null` if the tool does not exist.
    #[schema(value_type = Option<Object>)]
    source: Option<Value>,
    /// `waiting`, `asking`, `outstanding`, `started`, `outcome_unknown` or `finished`.
    #[schema(example = "finished")]
    state: &'static str,
    /// How often the call has been dispatched.
    attempt: u32,
    /// The arguments with which the call runs, as JSON text.
    arguments: Shortened,
    /// Whether a user has edited the arguments.
    edited: bool,
    /// The result. `null` if the call has not finished.
    result: Option<CallOutcome>,
}

/// The result of a call.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CallOutcome {
    /// Whether the call failed.
    is_error: bool,
    /// The result as text.
    text: Shortened,
    /// Time, memory and other resources that the call used.
    #[schema(value_type = Object)]
    cost: Value,
    /// What the host denied to the plugin.
    #[schema(value_type = Vec<Object>)]
    denials: Vec<Value>,
}

impl From<CallRecord> for CallItem {
    fn from(record: CallRecord) -> Self {
        let arguments = shortened(&format!("{:#}", record.effective_arguments()));
        let outcome = record.result.map(|result| CallOutcome {
            is_error: result.is_error,
            text: shortened(&agent_core::view::result_text(&result.content)),
            cost: json!(result.cost),
            denials: result.denials.iter().take(20).map(denial_json).collect(),
        });
        Self {
            call: record.id.0,
            step: record.step,
            name: record.name,
            source: record.source.map(|source| json!(source)),
            state: record.state.as_str(),
            attempt: record.attempt,
            arguments,
            edited: record.edited.is_some(),
            result: outcome,
        }
    }
}

/// Shows a turn: its steps, its calls, and the time that each part took.
#[utoipa::path(
    get, path = "/api/sessions/{session}/turns/{turn}", tag = "turns", security(("token" = [])),
    params(
        ("session" = String, Path, description = "Id of the session, with `/` written as `%2F`."),
        ("turn" = u32, Path, description = "Number of the turn, from 1."),
    ),
    responses((status = 200, body = TurnDetails), ApiProblems)
)]
pub(crate) async fn show_turn(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    path: Result<Path<(String, u32)>, axum::extract::rejection::PathRejection>,
) -> Result<Json<TurnDetails>, Problem> {
    caller.require(Right::Read)?;
    let Path((session, turn)) = path.map_err(|error| Problem::invalid(error.body_text()))?;
    let summary = state.session(&caller, &session).await?;
    let stored = read_turn(&state, &summary, turn).await?;
    let mut calls = state.store().calls(&session, CallFilter::Turn(turn)).await?;
    let mut left_out = calls.len().saturating_sub(MAX_CALLS);
    calls.truncate(MAX_CALLS);
    let (found, omitted) = activities(&state, &session, &stored, &calls).await?;
    left_out += omitted;
    let (steps, omitted) = steps_of(&stored.events);
    left_out += omitted;
    let (events, omitted) = other_events(&stored.events);
    left_out += omitted;
    let plugins = stored.events.iter().find_map(|stored| match &stored.event.kind {
        EventKind::LoopStart { plugins, .. } => Some(plugins.clone()),
        _ => None,
    });
    let details = TurnDetails {
        agent: summary.agent,
        turn: turn_of(turn, &stored.events),
        plugins: plugins.unwrap_or_default(),
        steps,
        calls: calls.into_iter().map(Into::into).collect(),
        activities: found,
        events,
        left_out,
        session,
    };
    Ok(Json(details))
}

/// Reads the events and records of a turn.
async fn read_turn(state: &ApiState, session: &SessionSummary, turn: u32) -> Result<StoredTurn, Problem> {
    let missing = || Problem::not_found(format!("the session has no turn {turn} with recorded events"));
    if turn == 0 || turn > session.turns {
        return Err(missing());
    }
    let event = last_event_before_turn(state.store(), &session.subject, turn, 0).await?;
    let position = ExportPosition { event, record: 0, turn_start: event };
    let found = state.store().turn_after(&session.subject, position).await?;
    found.filter(|found| found.turn == turn).ok_or_else(missing)
}

fn turn_of(turn: u32, events: &[TimedEvent]) -> TurnItem {
    let end = events.iter().rev().find_map(|stored| match &stored.event.kind {
        EventKind::LoopEnd { reason, cost } => Some((stored.time.clone(), *reason, *cost)),
        _ => None,
    });
    TurnItem {
        turn,
        started: events.first().map(|first| first.time.clone()).unwrap_or_default(),
        ended: end.as_ref().map(|(time, ..)| time.clone()),
        reason: end.as_ref().map(|(_, reason, _)| json!(reason)),
        cost: end.and_then(|(.., cost)| cost).map(|cost| json!(cost)),
    }
}

/// Returns the steps of a turn, and the number of steps that are left out.
fn steps_of(events: &[TimedEvent]) -> (Vec<StepItem>, usize) {
    let (mut steps, mut left_out): (Vec<StepItem>, usize) = (Vec::new(), 0);
    // The budget before a step is known before the step begins.
    let mut budget = None;
    for TimedEvent { event, time } in events {
        match &event.kind {
            EventKind::LoopIteration { step, last } => {
                if let Some(before) = steps.last_mut() {
                    before.ended = Some(time.clone());
                }
                if steps.len() == MAX_STEPS {
                    left_out += 1;
                    continue;
                }
                let started = time.clone();
                steps.push(StepItem {
                    step: *step,
                    started,
                    last: *last,
                    budget: budget.take(),
                    ..StepItem::default()
                });
            }
            EventKind::ContextBudget { .. } => match steps.last_mut().filter(|step| step.model.is_none()) {
                Some(step) => step.budget = Some(json!(event.kind)),
                None => budget = Some(json!(event.kind)),
            },
            EventKind::LoopEnd { .. } => {
                if let Some(last) = steps.last_mut() {
                    last.ended = Some(time.clone());
                }
            }
            kind => {
                if let Some(step) = steps.last_mut() {
                    step.note(kind);
                }
            }
        }
    }
    (steps, left_out)
}

impl StepItem {
    fn note(&mut self, kind: &EventKind) {
        match kind {
            EventKind::ContextBuilt { messages, sections, offered_tools, .. } => {
                (self.messages, self.sections, self.offered_tools) =
                    (Some(*messages), sections.clone(), *offered_tools);
            }
            EventKind::StreamComplete { text, model, usage, saved_tokens } => {
                (self.model, self.reply) = (Some(model.clone()), Some(shortened(text).text));
                (self.usage, self.saved_tokens) = (Some(json!(usage)), *saved_tokens);
            }
            _ => {}
        }
    }
}

/// Returns the events that neither begin nor end a part of the turn, with their times, and the number of events that are
/// left out.
fn other_events(events: &[TimedEvent]) -> (Vec<Value>, usize) {
    let is_shown = |stored: &&TimedEvent| {
        !matches!(
            stored.event.kind,
            EventKind::LoopStart { .. }
                | EventKind::LoopIteration { .. }
                | EventKind::ContextBuilt { .. }
                | EventKind::ContextBudget { .. }
                | EventKind::StreamComplete { .. }
                | EventKind::ToolCall { .. }
                | EventKind::ToolResult { .. }
                | EventKind::ToolResultError { .. }
                | EventKind::LoopEnd { .. }
        )
    };
    let mut step = 0;
    let mut shown = Vec::new();
    let mut left_out = 0;
    for stored in events {
        if let EventKind::LoopIteration { step: number, .. } = stored.event.kind {
            step = number;
        }
        if !is_shown(&stored) {
            continue;
        }
        if shown.len() == MAX_EVENTS {
            left_out += 1;
            continue;
        }
        let mut value = shortened::shortened_value(json!(stored.event.kind));
        if let Some(fields) = value.as_object_mut() {
            fields.insert("time".to_owned(), json!(stored.time));
            fields.insert("step".to_owned(), json!(step));
            fields.insert("sequence".to_owned(), json!(stored.event.sequence));
        }
        shown.push(value);
    }
    (shown, left_out)
}
