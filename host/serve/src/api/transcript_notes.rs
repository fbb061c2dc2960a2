//! What happened in the turns of a transcript besides messages, for people: other versions of plugins, other models, tools that
//! were disabled, and denials outside of calls.

use super::denials::denial_json;
use agent_core::event::EventKind;
use agent_core::message::StoredMessage;
use agent_runtime::last_event_before_turn;
use agent_store::{MAX_PAGE, Store, StoreError, TimedEvent};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use utoipa::ToSchema;

/// Maximum number of turns of one answer whose events are read.
const MAX_TURNS: usize = 50;
/// Number of the first events of a turn that are read. A turn begins with what is different from the turn before.
const FIRST_EVENTS: usize = 32;
/// Number of the last events of the session that are read.
const LAST_EVENTS: u64 = 80;

/// Something that happened in a turn and is not a message.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TranscriptNote {
    /// Number of the event in its session.
    sequence: u64,
    /// Number of the turn.
    turn: u32,
    /// Whether it belongs before the messages of the turn (`start`) or after those so far (`end`).
    #[schema(example = "start")]
    place: &'static str,
    /// The event: `plugin_swapped`, `plugin_rolled_back`, `model_fallback`, `tool_disabled`, or `denied`, which also has the `table`
    /// and the `line` of the configuration that would allow what was denied.
    #[schema(value_type = Object)]
    event: Value,
}

/// Returns what happened at the beginning of the turns of these messages, and in the session lately. `last` are the last turn and
/// the last event of the session, if the messages end with the last message.
pub(super) async fn notes(
    store: &dyn Store,
    session: &str,
    messages: &[StoredMessage],
    (last_turn, last_event): (Option<u32>, u64),
) -> Result<Vec<TranscriptNote>, StoreError> {
    let turns: BTreeSet<u32> = messages.iter().map(|message| message.turn).chain(last_turn).collect();
    let mut found = BTreeMap::new();
    let mut before = 0;
    for turn in turns.iter().copied().skip(turns.len().saturating_sub(MAX_TURNS)) {
        before = last_event_before_turn(store, session, turn, before).await?;
        let events = store.events(session, before, FIRST_EVENTS).await?;
        add(&mut found, events.iter().filter(|stored| stored.event.turn == turn), "start");
    }
    if last_turn.is_some() {
        let limit = usize::try_from(LAST_EVENTS).unwrap_or(MAX_PAGE);
        let events = store.events(session, last_event.saturating_sub(LAST_EVENTS), limit).await?;
        add(&mut found, events.iter().filter(|stored| turns.contains(&stored.event.turn)), "end");
    }
    Ok(found.into_values().collect())
}

/// Adds the notes of these events. An event that was added already keeps its place.
fn add<'e>(
    found: &mut BTreeMap<u64, TranscriptNote>,
    events: impl Iterator<Item = &'e TimedEvent>,
    place: &'static str,
) {
    let mut has_begun = false;
    for TimedEvent { event, .. } in events {
        // What comes after the first prompt of the turn is not the beginning of the turn.
        has_begun |= matches!(event.kind, EventKind::LoopIteration { .. });
        let place = if has_begun { "end" } else { place };
        if let Some(shown) = shown(&event.kind) {
            let note = TranscriptNote { sequence: event.sequence, turn: event.turn, place, event: shown };
            found.entry(event.sequence).or_insert(note);
        }
    }
}

fn shown(kind: &EventKind) -> Option<Value> {
    match kind {
        EventKind::PluginSwapped { .. }
        | EventKind::PluginRolledBack { .. }
        | EventKind::ModelFallback { .. }
        | EventKind::ToolDisabled { .. } => Some(json!(kind)),
        // The denials of a call are in its result.
        EventKind::Denied { call: None, denial } => {
            let mut event = denial_json(denial);
            event["type"] = json!("denied");
            Some(event)
        }
        _ => None,
    }
}
