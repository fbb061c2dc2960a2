//! Outgoing events for approval requests (I6, L17). Each event is committed together with its approval request.

use crate::host::SessionServices;
use crate::outbox::attributes;
use agent_core::change::{Change, OutboxEffect, OutboxItem};
use agent_core::event::EventKind;
use agent_core::event_type::HostEventType;
use agent_core::outgoing_event::OutgoingEvent;
use agent_core::run::{Emission, Run};
use serde_json::json;

/// Type of the event that requests approvals. The event's data contains the calls in the same form as the session
/// event `approval_requested`.
pub const APPROVAL_REQUESTED: HostEventType = HostEventType::ApprovalRequested;
/// Type of the event that answers an approval request. The event's `parentid` is the `id` of the request, and its
/// `subject` is the session.
pub const APPROVAL_RESOLVED: HostEventType = HostEventType::ApprovalResolved;

/// Prefix of the id of an approval request.
const REQUEST_ID_PREFIX: &str = "approval_";

/// Adds an outgoing event for each approval request in the change, if the agent is configured to send events for
/// approval requests. `before` and `after` are the states of the run before and after the change.
pub(crate) fn announce_approvals(services: &SessionServices, (before, after): (&Run, &Run), change: &mut Change) {
    let announced = after.turn.as_ref().map(|turn| turn.config.announced).unwrap_or_default();
    if announced.approvals == Emission::Silent {
        return;
    }
    for event in &change.events {
        let EventKind::ApprovalRequested { calls, expires_at } = &event.kind else { continue };
        let mut data = json!({"calls": calls});
        if let Some(expires_at) = expires_at {
            data["expires_at"] = json!(expires_at);
        }
        let id = approval_request_id(before, event.sequence);
        let attributes = attributes(&services.scope(before, None), id.clone());
        let sent = OutgoingEvent::of_host(HostEventType::ApprovalRequested, attributes, data);
        change.outbox.push(OutboxItem { id, effect: OutboxEffect::Event(sent) });
    }
}

/// Returns the id of an approval request. The id is derived from the sequence number of the durable event that contains
/// the request, because this number is unique in the session.
fn approval_request_id(run: &Run, number: u64) -> String {
    run.unique_id(&format!("{REQUEST_ID_PREFIX}{number}"))
}

/// Returns the sequence number of the durable event to which the id of an approval request refers. Returns `None` if
/// `request` differs from the id of this approval request, which has a random suffix. Because of the random suffix,
/// only someone who has seen the id can answer the approval request.
pub(crate) fn approval_request_number(run: &Run, request: &str) -> Option<u64> {
    let digits: String = request.strip_prefix(REQUEST_ID_PREFIX)?.chars().take_while(char::is_ascii_digit).collect();
    let number = digits.parse().ok()?;
    (approval_request_id(run, number) == request).then_some(number)
}
