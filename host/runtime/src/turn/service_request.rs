//! Checks the service request of a running call immediately before the request would be sent (P2).

use super::action::{ActionContext, ActionResult};
use super::calls::PendingCall;
use crate::approvals::{JudgedRequest, unreadable_request};
use crate::outbox::ForwardedCall;
use crate::records::CommitNotes;
use crate::tools::results::failed;
use agent_core::run::{Input, UnapprovedRequest};
use agent_store::{StoreError, digest_of};

/// Decides how a running call continues after its tool has requested a service. The call waits for the service, or it
/// waits for an approval, or the call receives an error as its result.
pub(super) async fn take_service_request(
    context: &mut ActionContext<'_>,
    pending: PendingCall,
) -> Result<ActionResult, StoreError> {
    let PendingCall { call, request, cost, mut denials, host_answers } = pending;
    let record = context.history.load_calls(std::slice::from_ref(&call)).await?.pop();
    let host_answers = host_answers.map(|answers| (call.clone(), answers));
    let service_request = Some((call.clone(), request.clone()));
    let mut notes = CommitNotes { host_answers, service_request, ..CommitNotes::default() };
    let JudgedRequest { permitted, needs_approval } =
        match context.approvals().judge_request(&call, record.as_ref(), &request).await? {
            Ok(judged) => judged,
            Err(refused) => {
                denials.push(refused.denial);
                let result = failed(&refused.error, cost, denials);
                return Ok(Ok((Input::Outcome { call, result }, notes)));
            }
        };
    denials.extend(permitted.denial);
    notes.denials = denials.into_iter().map(|denial| (Some(call.clone()), denial)).collect();
    let ForwardedCall { awaits, contract } = permitted.forwarded;
    let (Some(digest), Some(service)) = (needs_approval, permitted.service) else {
        notes.texts.extend(contract);
        return Ok(Ok((Input::Pending { call, awaits, cost }, notes)));
    };
    let text = serde_json::to_string(&request).map_err(|error| unreadable_request(&call, &error))?;
    let unapproved =
        UnapprovedRequest { service: service.definition.name.clone(), request: digest_of(text.as_bytes()) };
    notes.texts.push(text);
    context.held_requests.insert(call.clone(), (unapproved.clone(), request));
    Ok(Ok((Input::ServiceNeedsApproval { call, request: unapproved, digest, cost }, notes)))
}
