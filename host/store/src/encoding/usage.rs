//! The usage of turns, as events and snapshots contain it and as databases can store it.

use super::values::{signed, unsigned};
use crate::Status;
use agent_core::budget::Spending;
use agent_core::cost::{Cost, TurnCost};
use agent_core::event::{Event, EventKind};
use agent_core::model::{TokenDetails, Usage};

/// The usage of the turns that a commit changes.
pub(crate) fn changed_turns(events: &[Event], status: &Status) -> Vec<TurnCost> {
    let ended = events.iter().filter_map(|event| ended_turn(event.turn, &event.kind));
    ended.chain(status.open_turn).collect()
}

/// Returns the usage of the turn that this event ends.
pub(crate) fn ended_turn(turn: u32, kind: &EventKind) -> Option<TurnCost> {
    match kind {
        EventKind::LoopEnd { cost: Some(cost), .. } => Some(TurnCost { turn, ..*cost }),
        _ => None,
    }
}

/// Returns the usage with the values that the database can store. The database has no integers above 2⁶³ - 1.
pub(crate) fn as_stored(cost: TurnCost) -> TurnCost {
    let stored = |value: u64| unsigned(signed(value));
    let Usage { prompt_tokens, completion_tokens, details, cost: money } = cost.usage;
    let details = details.map(|details| TokenDetails {
        uncached_prompt: stored(details.uncached_prompt),
        cache_read: stored(details.cache_read),
        cache_write: stored(details.cache_write),
        completion: stored(details.completion),
        thinking: stored(details.thinking),
    });
    let usage = Usage {
        prompt_tokens: stored(prompt_tokens),
        completion_tokens: stored(completion_tokens),
        details,
        cost: money.map(|money| Cost { nanodollars: stored(money.nanodollars), ..money }),
    };
    let (execution_units, saved_tokens) = (stored(cost.execution_units), stored(cost.saved_tokens));
    TurnCost { execution_units, usage, saved_tokens, ..cost }
}

/// Returns what a turn is charged for its usage.
pub(crate) fn spending(cost: &TurnCost) -> Spending {
    let nanodollars = cost.usage.cost.map_or(0, |cost| cost.nanodollars);
    Spending { tokens: cost.usage.details().total(), nanodollars, milliseconds: 0 }
}
