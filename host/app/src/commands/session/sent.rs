//! Sends a decision to the process that has the session open, such as a server or another worker of the fleet (F2).

use crate::exit::Failure;
use crate::terminal::Terminal;
use agent_runtime::{Accepted, RequestProblem, SessionRequest, send_to_holder};
use agent_store::{SessionSummary, Store};
use std::time::Duration;

/// Time that the process has to take a request. A session in a terminal takes none.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sends a request to a session that another process has open. Returns `None` if the command must open the session itself: no
/// process has it open, or its process has not taken the request.
pub(super) async fn send(
    store: &dyn Store,
    session: &SessionSummary,
    request: &SessionRequest,
    terminal: &Terminal,
) -> Result<Option<Accepted>, Failure> {
    let Some(holder) = &session.open_in else { return Ok(None) };
    terminal.busy(format!("sending this to {holder}, which has the session open"));
    let sent = send_to_holder(store, &session.subject, request, PATIENCE).await;
    terminal.idle();
    sent.map_err(|error| match error.kind {
        RequestProblem::NotFound | RequestProblem::Conflict | RequestProblem::Invalid => Failure::refused(error),
        RequestProblem::Unavailable | RequestProblem::Failed => Failure::failed(error),
    })
}

/// Formats what happens after the session's process has taken a decision.
pub(super) fn continued_by(session: &SessionSummary) -> String {
    let holder = session.open_in.as_ref().map_or_else(|| "another process".to_owned(), ToString::to_string);
    format!("session {} continues in {holder}", session.subject)
}
