//! The form in which actions are stored in the audit log, and the entries that a commit adds to it.

use super::values::invalid;
use crate::{AuditAction, MAX_AUDIT_TEXT_BYTES, StoreError};
use agent_core::approval::canonical_json;
use agent_core::change::{OutboxEffect, OutboxItem};
use agent_core::event::EventKind;
use agent_core::message::CallId;
use agent_core::tool::ToolSource;
use jiff::Timestamp;
use serde_json::Value;

/// An event that the audit log records.
#[derive(Clone, Debug)]
pub(crate) struct AuditedEvent(EventKind);

impl AuditedEvent {
    /// Returns the event if the audit log records events of its kind.
    pub(crate) fn of(kind: &EventKind) -> Option<Self> {
        let is_audited = matches!(
            kind,
            EventKind::Denied { .. } | EventKind::ApprovalResolved { .. } | EventKind::BudgetExceeded { .. }
        );
        is_audited.then(|| Self(kind.clone()))
    }

    /// Returns the call of the event, if it has one. The entry contains the source of the call's tool.
    pub(crate) fn call(&self) -> Option<&CallId> {
        match &self.0 {
            EventKind::Denied { call, .. } => call.as_ref(),
            EventKind::ApprovalResolved { call, .. } => Some(call),
            _ => None,
        }
    }

    /// Returns the entry for the event. `source` is the source of the tool of the event's call.
    pub(crate) fn action(&self, session: &str, source: Option<ToolSource>) -> Option<AuditAction> {
        let session = session.to_owned();
        match &self.0 {
            EventKind::Denied { call, denial } => {
                Some(AuditAction::Denied { session, source, call: call.clone(), denial: denial.clone() })
            }
            EventKind::ApprovalResolved { call, name, verdict } => {
                let (call, tool) = (call.clone(), name.clone());
                Some(AuditAction::Approval { session, source, call, tool, verdict: *verdict })
            }
            EventKind::BudgetExceeded { budget } => {
                Some(AuditAction::BudgetExceeded { session, budget: budget.clone() })
            }
            _ => None,
        }
    }
}

/// A service event that was requested by a call in the commit.
#[derive(Clone, Debug)]
pub(crate) struct ServiceEvent {
    /// The call that requested the event.
    pub(crate) call: CallId,
    event_type: String,
}

impl ServiceEvent {
    /// Returns the event of an outbox item if the item is a service event. The item's id is the id of the call that
    /// requested the event.
    pub(crate) fn of(item: &OutboxItem) -> Option<Self> {
        match &item.effect {
            OutboxEffect::Event(event) => {
                Some(Self { call: CallId(item.id.clone()), event_type: event.event_type.clone() })
            }
            OutboxEffect::Allow(_) | OutboxEffect::Remember { .. } | OutboxEffect::Forget { .. } => None,
        }
    }

    /// Returns the entry if a plugin requested the event. No entry is needed for an event that the model itself
    /// requested, because the session log contains the model's call.
    pub(crate) fn action(&self, session: &str, source: Option<ToolSource>) -> Option<AuditAction> {
        let source = source.filter(|source| matches!(source, ToolSource::Plugin { .. }))?;
        let (call, event_type) = (self.call.clone(), self.event_type.clone());
        Some(AuditAction::Emitted { session: session.to_owned(), call, source, event_type })
    }
}

/// The stored form of an action.
pub(crate) struct Body {
    pub(crate) text: String,
    pub(crate) subject: String,
}

impl Body {
    pub(crate) fn of(action: &AuditAction) -> Result<Self, StoreError> {
        let problem = |error: serde_json::Error| invalid("an entry of the audit log", error.to_string());
        let mut value = serde_json::to_value(action).map_err(problem)?;
        let text = match shorten_texts(&mut value) {
            Shortened::Nothing => return Ok(Self { text: canonical_json(&value), subject: action.subject() }),
            Shortened::Texts => canonical_json(&value),
        };
        let action: AuditAction = serde_json::from_value(value).map_err(problem)?;
        Ok(Self { text, subject: action.subject() })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shortened {
    Nothing,
    Texts,
}

/// Shortens all texts above [`MAX_AUDIT_TEXT_BYTES`], so that no plugin or client can fill the disk with one entry.
fn shorten_texts(value: &mut Value) -> Shortened {
    let shortened = |values: &mut dyn Iterator<Item = &mut Value>| {
        let mut found = Shortened::Nothing;
        for value in values {
            if shorten_texts(value) == Shortened::Texts {
                found = Shortened::Texts;
            }
        }
        found
    };
    match value {
        Value::String(text) if text.len() > MAX_AUDIT_TEXT_BYTES => {
            let end = text.floor_char_boundary(MAX_AUDIT_TEXT_BYTES);
            let note = format!("… ({} more bytes)", text.len() - end);
            text.truncate(end);
            text.push_str(&note);
            Shortened::Texts
        }
        Value::Array(items) => shortened(&mut items.iter_mut()),
        Value::Object(fields) => shortened(&mut fields.values_mut()),
        _ => Shortened::Nothing,
    }
}

/// Formats a time for the chain. The format is part of the hashes, so it never changes. A time that was damaged is formatted
/// as a number.
pub(crate) fn chain_time(microseconds: i64) -> String {
    match Timestamp::from_microsecond(microseconds) {
        Ok(time) => time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string(),
        Err(_) => microseconds.to_string(),
    }
}
