//! The form in which outbox items are stored.

use super::values::{Unreadable, from_json, invalid, to_json};
use crate::StoreError;
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
