//! The parts of a turn that take time. They are the spans of the turn's trace, which `agent-telemetry` builds from the stored
//! events and records, and the parts that have not ended yet.

use crate::problem::Problem;
use crate::state::ApiState;
use agent_core::change::{CallRecord, CallState};
use agent_core::event::EventKind;
use agent_core::message::CallId;
use agent_core::plugin::TraceContext;
use agent_core::trace::{SpanKey, TurnName};
use agent_store::StoredTurn;
use agent_telemetry::{ContentLevel, Scrubber, SessionTrace, Span, SpanStatus, Value as Fact};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::{BTreeSet, HashMap};
use utoipa::ToSchema;

/// Maximum number of activities of a turn that are shown.
const MAX_ACTIVITIES: usize = 1_500;
/// Attribute with the kind of a span.
const KIND: &str = "openinference.span.kind";
/// Attribute with the id of a tool call.
const CALL: &str = "tool.id";
/// Attribute of the spans of steps.
const STEP: &str = "agent_host.step";
/// Attributes that are the same for all spans of a turn, or that repeat another field.
const REPEATED: [&str; 6] = [KIND, CALL, "session.id", "user.id", "gen_ai.conversation.id", "agent_host.turn"];

/// A part of a turn that took time.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Activity {
    /// Id of the span in the trace of the turn. `null` if the part has not ended.
    id: Option<String>,
    /// Id of the part to which this part belongs, such as the tool call of a request. `null` if it belongs to a step or to
    /// the whole turn.
    parent: Option<String>,
    /// Number of the step to which the part belongs. `null` if it belongs to the whole turn.
    step: Option<u32>,
    /// `model`, `tool`, `check` (an approval or a validator) or `host` (everything else, such as requests of plugins).
    #[schema(example = "tool")]
    kind: &'static str,
    /// Name of the part, such as `execute_tool files.read`.
    name: String,
    /// Id of the tool call. `null` if the part is not a tool call.
    call: Option<String>,
    /// Beginning, as RFC 3339.
    started: String,
    /// Duration in microseconds. `null` if the part has not ended.
    took_us: Option<u64>,
    /// `ok`, `failed`, `open`, or `ended` if it neither succeeded nor failed.
    #[schema(example = "ok")]
    outcome: &'static str,
    /// Further facts, with the names that traces have: see the guide to telemetry.
    #[schema(value_type = Object)]
    facts: Map<String, Value>,
}

/// Returns the activities of a turn, and the number of activities that are left out.
pub(super) async fn activities(
    state: &ApiState,
    session: &str,
    turn: &StoredTurn,
    calls: &[CallRecord],
) -> Result<(Vec<Activity>, usize), Problem> {
    let store = state.supervisor.host().store.clone();
    let scrubber = Scrubber::default().with_level(ContentLevel::Off);
    let spans = SessionTrace::spans_of_turn(store, session, scrubber, turn).await?;
    let mut found = ended_activities(&spans, &steps_of(session, turn));
    found.extend(open_activities(turn, calls));
    let left_out = found.len().saturating_sub(MAX_ACTIVITIES);
    found.truncate(MAX_ACTIVITIES);
    Ok((found, left_out))
}

/// Returns the ids of the spans of the steps, each with the number of the step. The spans of steps that have not ended do not
/// exist yet, but their parts refer to them.
fn steps_of(session: &str, turn: &StoredTurn) -> HashMap<[u8; 8], u32> {
    let name = TurnName { session, id_ending: "", turn: turn.turn };
    let record = turn.records.iter().rfind(|record| record.record.kind == "trace");
    let trace = record.and_then(|record| TraceContext::deserialize(&record.record.body).ok());
    let trace = trace.filter(TraceContext::is_valid).unwrap_or_else(|| TraceContext::of_turn(name, None));
    let numbers = turn.events.iter().filter_map(|stored| match stored.event.kind {
        EventKind::LoopIteration { step, .. } => Some(step),
        _ => None,
    });
    numbers.filter_map(|step| Some((trace.part(SpanKey::Step(step)).span_id()?, step))).collect()
}

fn ended_activities(spans: &[Span], steps: &HashMap<[u8; 8], u32>) -> Vec<Activity> {
    let parents: HashMap<[u8; 8], Option<[u8; 8]>> = spans.iter().map(|span| (span.span_id, span.parent)).collect();
    let shown: BTreeSet<[u8; 8]> = spans.iter().filter(|span| is_shown(span)).map(|span| span.span_id).collect();
    let activity = |span: &Span| {
        let step = std::iter::successors(span.parent, |id| parents.get(id).copied().flatten());
        let step = step.take(spans.len() + 1).find_map(|id| steps.get(&id).copied());
        Activity {
            id: Some(id_text(span.span_id)),
            parent: span.parent.filter(|parent| shown.contains(parent)).map(id_text),
            step,
            kind: kind_of(span),
            name: span.name.clone(),
            call: text_of(span, CALL),
            started: time_text(span.start),
            took_us: Some(span.end.saturating_sub(span.start) / 1_000),
            outcome: match span.status {
                SpanStatus::Ok => "ok",
                SpanStatus::Error { .. } => "failed",
                SpanStatus::Unset => "ended",
            },
            facts: facts_of(span),
        }
    };
    spans.iter().filter(|span| is_shown(span)).map(activity).collect()
}

/// Whether a span is shown as an activity. The turn and its steps are described elsewhere.
fn is_shown(span: &Span) -> bool {
    match text_of(span, KIND).as_deref() {
        Some("AGENT") => false,
        // The spans of model calls also name their step.
        Some("CHAIN") => span.attributes.iter().all(|(name, _)| name != STEP),
        _ => true,
    }
}

fn kind_of(span: &Span) -> &'static str {
    match text_of(span, KIND).as_deref() {
        Some("LLM" | "EMBEDDING") => "model",
        Some("TOOL") => "tool",
        Some("GUARDRAIL") => "check",
        _ => "host",
    }
}

fn text_of(span: &Span, attribute: &str) -> Option<String> {
    span.attributes.iter().find_map(|(name, value)| match value {
        Fact::Text(text) if name == attribute => Some(text.clone()),
        _ => None,
    })
}

fn facts_of(span: &Span) -> Map<String, Value> {
    let facts = span.attributes.iter().filter(|(name, _)| !REPEATED.contains(&name.as_ref()));
    let value = |fact: &Fact| match fact {
        Fact::Text(text) => json!(text),
        Fact::Number(number) => json!(number),
        Fact::Fraction(number) => json!(number),
        Fact::Flag(flag) => json!(flag),
        Fact::Texts(texts) => json!(texts),
    };
    facts.map(|(name, fact)| (name.to_string(), value(fact))).collect()
}

fn id_text(id: [u8; 8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn time_text(nanoseconds: u64) -> String {
    Timestamp::from_nanosecond(nanoseconds.into()).map(|time| time.to_string()).unwrap_or_default()
}

/// Returns the parts of an open turn that have not ended: the calls without a result, and the model call without a reply.
fn open_activities(turn: &StoredTurn, calls: &[CallRecord]) -> Vec<Activity> {
    let has_ended = turn.events.iter().any(|stored| matches!(stored.event.kind, EventKind::LoopEnd { .. }));
    if has_ended {
        return Vec::new();
    }
    let open = |kind, name: String, (step, call, started): (Option<u32>, Option<String>, &str)| Activity {
        id: None,
        parent: None,
        step,
        kind,
        name,
        call,
        started: started.to_owned(),
        took_us: None,
        outcome: "open",
        facts: Map::new(),
    };
    let mut begun: HashMap<&CallId, &str> = HashMap::new();
    let (mut step, mut model) = (None, None);
    for stored in &turn.events {
        match &stored.event.kind {
            EventKind::LoopIteration { step: number, .. } => (step, model) = (Some(*number), None),
            EventKind::ContextBuilt { .. } => model = Some(stored.time.as_str()),
            EventKind::StreamComplete { .. } | EventKind::Suspended { .. } => model = None,
            EventKind::ToolCall { call, .. } => {
                begun.entry(call).or_insert(&stored.time);
            }
            EventKind::ApprovalRequested { calls, .. } => {
                for item in calls {
                    begun.entry(&item.call).or_insert(&stored.time);
                }
            }
            _ => {}
        }
    }
    let unfinished = calls.iter().filter(|call| call.state != CallState::Finished);
    let tools = unfinished.filter_map(|call| {
        let started = *begun.get(&call.id)?;
        let (name, kind) = match call.state {
            CallState::AwaitingApproval => (format!("approve {}", call.name), "check"),
            _ => (format!("execute_tool {}", call.name), "tool"),
        };
        Some(open(kind, name, (Some(call.step), Some(call.id.0.clone()), started)))
    });
    let model = model.map(|started| open("model", "chat".to_owned(), (step, None, started)));
    tools.chain(model).collect()
}
