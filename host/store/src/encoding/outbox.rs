//! The form in which outbox items are stored.

use super::values::{Unreadable, from_json, invalid, to_json};
use crate::{MAX_MEMORY_BYTES, Memory, StoreError, StoredOutboxItem};
use agent_core::change::{OutboxEffect, OutboxItem};
use serde::Deserialize;
use serde_json::{Value, json};

/// An outbox item that was converted to a row.
pub(crate) struct OutboxRow {
    pub(crate) id: String,
    pub(crate) kind: String,
    pub(crate) body: String,
}

/// Converts an outbox item to a row.
pub(crate) fn outbox_row(item: &OutboxItem) -> Result<OutboxRow, StoreError> {
    #[derive(Deserialize)]
    struct SerialisedEffect {
        kind: String,
        body: Value,
    }
    let what = format!("the outbox item `{}`", item.id);
    if item.id.is_empty() {
        return Err(invalid(what, "its id is empty"));
    }
    let serialised = serde_json::to_value(&item.effect).and_then(serde_json::from_value::<SerialisedEffect>);
    let SerialisedEffect { kind, body } = serialised.map_err(|error| invalid(&what, error.to_string()))?;
    Ok(OutboxRow { id: item.id.clone(), kind, body: to_json(&what, &body)? })
}

/// Reads the effect that [`outbox_row`] has converted.
pub(crate) fn effect(kind: &str, body: &str) -> Result<OutboxEffect, Unreadable> {
    let body: Value = from_json(body)?;
    serde_json::from_value(json!({"kind": kind, "body": body}))
        .map_err(|error| Unreadable(format!("an outbox item of kind `{kind}`: {error}")))
}

/// Returns the error for a memory whose text is longer than allowed.
pub(crate) fn check_memory_size(memory: &Memory) -> Result<(), StoreError> {
    let (size, limit) = (memory.text.len() as u64, MAX_MEMORY_BYTES as u64);
    if size > limit { Err(StoreError::TooLarge { what: "a memory".to_owned(), size, limit }) } else { Ok(()) }
}

/// An outbox item that adds a memory.
pub(crate) struct MemoryDelivery {
    /// Id of the memory.
    pub(crate) id: String,
    /// The memory, with the time of the item's commit.
    pub(crate) memory: Memory,
    /// The body of the item after its delivery, without the text of the memory.
    pub(crate) delivered_body: String,
    /// The body of an item that forgets the turn.
    pub(crate) forget: OutboxRow,
}

impl MemoryDelivery {
    pub(crate) fn of(stored: &StoredOutboxItem) -> Result<Self, StoreError> {
        let OutboxEffect::Remember { id, memory } = &stored.item.effect else {
            return Err(invalid(format!("the outbox item `{}`", stored.item.id), "it adds no memory"));
        };
        check_memory_size(memory)?;
        let without_text = Memory { text: String::new(), ..memory.clone() };
        let delivered = OutboxEffect::Remember { id: id.clone(), memory: without_text };
        let row = |effect| outbox_row(&OutboxItem { id: stored.item.id.clone(), effect });
        Ok(Self {
            id: id.clone(),
            memory: Memory { written: Some(stored.created.clone()), ..memory.clone() },
            delivered_body: row(delivered)?.body,
            forget: row(OutboxEffect::Forget { turn: memory.turn })?,
        })
    }
}
