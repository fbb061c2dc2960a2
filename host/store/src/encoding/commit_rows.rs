//! Converts the parts of a commit to rows, and performs all checks of a commit that do not need the database.

use super::audit::AuditedEvent;
use super::values::{invalid, to_json};
use crate::{StepRecord, StoreError};
use agent_core::change::{Body, CallChange, CallRecord, CallResult, CallState, NewMessage};
use agent_core::event::Event;
use agent_core::message::{CallId, MessageId};

pub(crate) struct MessageRow {
    pub(crate) id: MessageId,
    pub(crate) turn: u32,
    pub(crate) role: &'static str,
    pub(crate) tokens: u32,
    pub(crate) call: Option<CallId>,
    pub(crate) parts: Option<String>,
}

pub(crate) enum CallRow {
    Requested {
        record: Box<CallRecord>,
        source: Option<String>,
        arguments: String,
        edited: Option<String>,
        result: Option<String>,
    },
    Moved {
        id: CallId,
        state: CallState,
        attempt: u32,
    },
    Edited {
        id: CallId,
        json: String,
    },
    Finished {
        id: CallId,
        result: Box<CallResult>,
        json: String,
    },
}

pub(crate) struct EventRow {
    pub(crate) sequence: u64,
    pub(crate) turn: u32,
    pub(crate) kind: String,
    pub(crate) audited_event: Option<AuditedEvent>,
}

pub(crate) struct RecordRow {
    pub(crate) turn: u32,
    pub(crate) step: u32,
    pub(crate) kind: String,
    pub(crate) body: String,
}

pub(crate) fn message_row(message: NewMessage) -> Result<MessageRow, StoreError> {
    let what = || format!("message {}", message.id);
    let (call, parts) = match &message.body {
        Body::Parts(parts) => (None, Some(to_json(&what(), parts)?)),
        Body::ResultOf(call) => (Some(call.clone()), None),
    };
    let role = message.role.as_str();
    Ok(MessageRow { id: message.id, turn: message.turn, role, tokens: message.tokens, call, parts })
}

pub(crate) fn call_row(change: CallChange) -> Result<CallRow, StoreError> {
    match change {
        CallChange::Requested(record) => requested_call_row(record),
        CallChange::Moved { id, state: CallState::Finished, .. } => {
            Err(invalid(format!("call `{id}`"), "it cannot finish without a result"))
        }
        CallChange::Moved { id, state, attempt } => Ok(CallRow::Moved { id, state, attempt }),
        CallChange::Edited { id, arguments } => {
            let json = to_json(&format!("the arguments of call `{id}`"), &arguments)?;
            Ok(CallRow::Edited { id, json })
        }
        CallChange::Finished { id, result } => {
            let json = to_json(&format!("the result of call `{id}`"), &result)?;
            Ok(CallRow::Finished { id, result: Box::new(result), json })
        }
    }
}

fn requested_call_row(record: CallRecord) -> Result<CallRow, StoreError> {
    let what = format!("call `{}`", record.id);
    if (record.state == CallState::Finished) != record.result.is_some() {
        return Err(invalid(what, "a finished call must have a result, and an unfinished call must not have one"));
    }
    Ok(CallRow::Requested {
        source: record.source.as_ref().map(|source| to_json(&what, source)).transpose()?,
        arguments: to_json(&what, &record.arguments)?,
        edited: record.edited.as_ref().map(|arguments| to_json(&what, arguments)).transpose()?,
        result: record.result.as_ref().map(|result| to_json(&what, result)).transpose()?,
        record: Box::new(record),
    })
}

pub(crate) fn event_row(session: &str, event: &Event) -> Result<EventRow, StoreError> {
    let what = format!("event {}", event.sequence);
    if event.session != session {
        return Err(invalid(what, format!("it belongs to session `{}`", event.session)));
    }
    if event.provisional.is_some() || event.kind.is_provisional() {
        return Err(invalid(what, "provisional events are never stored"));
    }
    let audited_event = AuditedEvent::of(&event.kind);
    Ok(EventRow { sequence: event.sequence, turn: event.turn, kind: to_json(&what, &event.kind)?, audited_event })
}

pub(crate) fn record_row(record: &StepRecord) -> Result<RecordRow, StoreError> {
    let body = to_json(&format!("the step record `{}`", record.kind), &record.body)?;
    Ok(RecordRow { turn: record.turn, step: record.step, kind: record.kind.clone(), body })
}

/// Checks that the number of a new message or event directly follows the last stored number. A gap means that the
/// caller's state differs from the stored state.
pub(crate) fn next_number(what: &str, last: u64, number: u64) -> Result<u64, StoreError> {
    if number == last + 1 {
        return Ok(number);
    }
    Err(invalid(format!("{what} {number}"), format!("the next number is {}", last + 1)))
}
