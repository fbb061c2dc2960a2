//! Handles requests that arrive while an action of the turn, such as a model call, borrows the session.

use crate::requests::{Accepted, PendingRequest, RequestError, RequestProblem, SessionRequest};
use crate::turn::action::UnusedParts;
use crate::waiting::{check_user, settled_answer};
use agent_core::run::QueuedPrompt;
use tokio_util::sync::CancellationToken;

/// Handles a request with the parts of the session that the action does not use. Returns the request if it must wait
/// until the action has ended.
pub(super) async fn handle_during_action(
    unused: &mut UnusedParts<'_>,
    PendingRequest { request, reply }: PendingRequest,
    cancel: &CancellationToken,
) -> Option<PendingRequest> {
    if reply.is_closed() && !matches!(request, SessionRequest::Cancel) {
        // The sender was told that the session is busy, and may send the request again.
        return None;
    }
    let answer = match request {
        SessionRequest::Prompt(prompt) => match check_user(unused.run, &prompt) {
            Ok(()) => {
                let queued = QueuedPrompt { input: prompt.input, trace: prompt.trace, steers: prompt.steers };
                let added = unused.log.queue_prompt(unused.services, unused.run, queued).await;
                added.map(|()| Accepted::Queued).map_err(RequestError::from)
            }
            Err(error) => Err(error),
        },
        SessionRequest::Cancel => {
            unused.cancel_replies.push(reply);
            cancel.cancel();
            return None;
        }
        SessionRequest::Continue => Ok(Accepted::Continued),
        // No call waits during an action, so the answer is a repetition, too late or wrong.
        SessionRequest::Respond(event) => match settled_answer(unused.services, &event).await {
            Ok(Some(outcome)) => Ok(outcome.into()),
            Ok(None) => return Some(PendingRequest { request: SessionRequest::Respond(event), reply }),
            Err(error) => Err(error.into()),
        },
        SessionRequest::Approve(_) | SessionRequest::Answer { .. } | SessionRequest::Resolve { .. } => {
            let message = "no call of the turn waits for an answer or a decision at the moment";
            Err(RequestError::new(RequestProblem::Conflict, message))
        }
    };
    // The sender may have stopped waiting for the answer.
    let _ = reply.send(answer);
    None
}
