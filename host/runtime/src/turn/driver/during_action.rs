//! Handles requests that arrive while an action of the turn, such as a model call, borrows the session.

use crate::requests::{Accepted, PendingRequest, Prompt, RequestError, RequestProblem, SessionRequest};
use crate::turn::action::UnusedParts;
use crate::waiting::{check_user, queued_prompt, respond_during_action, settled_results, turn_runs};
use tokio_util::sync::CancellationToken;

/// Handles a request at once, with the parts of the session that the action does not use. No request is kept until the action has
/// ended, because a model call may take long, and senders could fill the memory meanwhile.
pub(super) async fn handle_during_action(
    unused: &mut UnusedParts<'_>,
    PendingRequest { request, reply, stored }: PendingRequest,
    cancel: &CancellationToken,
) {
    if reply.is_closed() && !matches!(request, SessionRequest::Cancel) {
        // The sender was told that the session is busy, and may send the request again.
        return;
    }
    let answer = match request {
        SessionRequest::Prompt(prompt) => match check_user(unused.run, &prompt) {
            Ok(()) => queue(unused, prompt, stored).await,
            Err(error) => Err(error),
        },
        SessionRequest::FirstPrompt(_) => Ok(Accepted::Duplicate),
        SessionRequest::Cancel => {
            unused.cancel_replies.push(reply);
            return cancel.cancel();
        }
        SessionRequest::Continue => Ok(Accepted::Continued),
        SessionRequest::Close => Err(turn_runs()),
        SessionRequest::Respond(event) => match respond_during_action(unused.services, unused.run, &event).await {
            Ok(outcome) => Ok(outcome.into()),
            Err(error) => Err(error.into()),
        },
        SessionRequest::TakeResults(results) => match settled_results(unused.services, &results).await {
            Ok(Some(outcome)) => Ok(outcome.into()),
            Ok(None) => Err(no_call_waits()),
            Err(error) => Err(error),
        },
        SessionRequest::Undo => {
            let message = "a turn of this session is open; undo it when it has ended";
            Err(RequestError::new(RequestProblem::Conflict, message))
        }
        SessionRequest::Approve(_)
        | SessionRequest::Rehearse { .. }
        | SessionRequest::Answer { .. }
        | SessionRequest::Resolve { .. } => Err(no_call_waits()),
    };
    // The sender may have stopped waiting for the answer.
    let _ = reply.send(answer);
}

fn no_call_waits() -> RequestError {
    let message = "no call of the turn waits for an answer or a decision at the moment";
    RequestError::new(RequestProblem::Conflict, message)
}

async fn queue(unused: &mut UnusedParts<'_>, prompt: Prompt, stored: Option<String>) -> Result<Accepted, RequestError> {
    let queued = queued_prompt(unused.services, prompt).await?;
    unused.log.answer_with_commit(stored);
    let committed = unused.log.queue_prompt(unused.services, unused.run, queued).await;
    unused.log.answer_with_commit(None);
    committed?;
    Ok(Accepted::Queued)
}
