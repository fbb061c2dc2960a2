//! Determines whether the turn of a delegated session can continue, and which session is waiting for a delegated
//! session (L16).

use crate::exit::Failure;
use crate::terminal::suspension::{fold_events, last_suspension};
use agent_config::DataDirectory;
use agent_core::change::CallState;
use agent_core::event::{EventKind, Wait, WaitCause};
use agent_store::{CallFilter, SessionFilter, SessionState, SessionSummary, Store};

/// Changes the state of each interrupted session to `ready` if the answer that the session was waiting for has arrived.
pub(crate) async fn mark_ready(store: &dyn Store, sessions: &mut [SessionSummary]) -> Result<(), Failure> {
    for session in sessions.iter_mut().filter(|session| session.state == SessionState::Interrupted) {
        if is_just_resumed(store, &session.subject).await? {
            session.state = SessionState::Ready;
        }
    }
    Ok(())
}

/// Returns true if the session has received the answer that it was waiting for and has done no work since then.
async fn is_just_resumed(store: &dyn Store, session: &str) -> Result<bool, Failure> {
    fold_events(store, session, |is_resumed, event| match event {
        EventKind::Resumed => true,
        // When the host starts the next step, it records these events before it does any work.
        EventKind::LoopIteration { .. }
        | EventKind::ContextBudget { .. }
        | EventKind::ContextBuilt { .. }
        | EventKind::StreamClear => is_resumed,
        _ => false,
    })
    .await
}

/// Returns a message that explains how to continue the parent session after a command has changed a delegated session.
pub(crate) async fn continue_parent_note(
    store: &dyn Store,
    parent: &str,
    data: &DataDirectory,
) -> Result<String, Failure> {
    let filter = SessionFilter { subject: Some(parent.to_owned()), ..SessionFilter::default() };
    if store.sessions(filter, 1).await.map_err(Failure::refused)?.is_empty() {
        return Ok(format!(
            "session {parent}, which delegated this work, was deleted: no session waits for the answer"
        ));
    }
    let flag = data.flag();
    Ok(format!(
        "session {parent} delegated this work and waits for it: continue with agent-host --session {parent}{flag}, and with \
         that session's own --agent"
    ))
}

/// Returns the id of the session whose open turn is waiting for this session. Returns `None` if no session is waiting.
pub(crate) async fn awaited_by(store: &dyn Store, session: &SessionSummary) -> Result<Option<String>, Failure> {
    let Some(parent) = &session.delegated_by else { return Ok(None) };
    let Some(suspension) = last_suspension(store, parent).await? else { return Ok(None) };
    let awaits = |wait: &&Wait| matches!(&wait.cause, WaitCause::Agent { session: child } if *child == session.subject);
    let Some(wait) = suspension.waits.iter().find(awaits) else { return Ok(None) };
    // A parent session that already has the result of its call is no longer waiting for the delegated session.
    let calls = store.calls(parent, CallFilter::Ids(vec![wait.call.clone()])).await.map_err(Failure::failed)?;
    Ok(calls.iter().any(|call| call.state != CallState::Finished).then(|| parent.clone()))
}
