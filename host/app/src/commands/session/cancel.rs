//! `session cancel`: ends a suspended turn, so that the session accepts the next prompt (L1, L29).

use super::{open_to_decide, sent};
use crate::commands::delegation;
use crate::commands::open_session::BUSY_TIMEOUT;
use crate::commands::stored_sessions::find;
use crate::exit::{Exit, Failure};
use crate::terminal::{Terminal, text};
use agent_config::DataDirectory;
use agent_core::event::{Wait, WaitCause};
use agent_runtime::SessionRequest;
use agent_store::{SessionFilter, SessionState, SessionSummary, Store};
use std::pin::Pin;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Maximum number of levels of delegated sessions that are cancelled. No configuration can allow more levels
/// of delegation.
const MAX_LEVELS: usize = 16;

/// Ends the open turn. Each call that still waits gets an error as its result. The error states that the call
/// was cancelled.
pub(super) async fn cancel(
    session: SessionSummary,
    store: Arc<dyn Store>,
    data: &DataDirectory,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let (subject, flag) = (session.subject.clone(), data.flag());
    let note_cancelled = || {
        terminal.note(format!("cancelled; to continue the session: agent-host --session {subject}{flag} \"…\""));
    };
    if is_cancelled_by_holder(&store, &session, terminal).await? {
        match find(&*store, data, Some(&subject)).await?.state {
            SessionState::Idle | SessionState::Failed => {
                terminal.note(format!("the turn of session {subject} ended before it could be cancelled"));
            }
            _ => note_cancelled(),
        }
        return Ok(Exit::Done);
    }
    // The process may have closed the session meanwhile.
    let session = find(&*store, data, Some(&subject)).await?;
    if let (Some(process), SessionState::Running) = (&session.open_in, session.state) {
        return Err(Failure::refused(format!(
            "the turn of session {} runs in {process}, which has not taken the request to cancel it: press Ctrl-C there, or \
             run `kill -INT {}`",
            session.subject,
            process.process_id().map_or_else(|| "PID".to_owned(), |id| id.to_string())
        )));
    }
    let Some(ended) = end_turn(&store, &session, data).await? else {
        return Err(Failure::refused(format!(
            "session {subject} has no open turn to cancel: it waits for the next prompt"
        )));
    };
    if ended.prompts > 0 {
        let prompts = text::count(ended.prompts, "prompt");
        terminal.note(format!("{prompts} that waited for the end of the turn will not run"));
    }
    note_cancelled();
    for line in cancel_delegates(&store, ended.waits, (data, terminal), MAX_LEVELS).await? {
        terminal.note(line);
    }
    if let Some(parent) = ended.parent {
        terminal.note(delegation::continue_parent_note(&*store, &parent, data).await?);
    }
    Ok(Exit::Done)
}

/// Lets the process that has the session open cancel its open turn, and the turns of the sessions to which it has delegated
/// work. Returns false if no process has the session open, or if its process takes no requests.
async fn is_cancelled_by_holder(
    store: &Arc<dyn Store>,
    session: &SessionSummary,
    terminal: &Terminal,
) -> Result<bool, Failure> {
    if !session.state.is_open() {
        return Ok(false);
    }
    Ok(sent::send(&**store, session, &SessionRequest::Cancel, terminal).await?.is_some())
}

/// State that a turn had before this command ended it.
struct EndedTurn {
    /// Id of the session that delegated the work to this session, if any.
    parent: Option<String>,
    /// The answers and results that the turn waits for.
    waits: Vec<Wait>,
    /// Number of queued prompts that were waiting for the end of the turn.
    prompts: usize,
}

/// Ends the open turn of a session. Returns `None` if there is no open turn.
async fn end_turn(
    store: &Arc<dyn Store>,
    session: &SessionSummary,
    data: &DataDirectory,
) -> Result<Option<EndedTurn>, Failure> {
    let mut open = open_to_decide(store.clone(), session, data, BUSY_TIMEOUT).await?;
    let state = open.state();
    let (parent, waits, prompts) = (state.delegated_by.clone(), state.waits(), state.queued_prompts.len());
    let (was_open, ended) = (state.is_open(), EndedTurn { parent, waits, prompts });
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    let result = if was_open { open.run(None, cancelled).await.map(drop) } else { Ok(()) };
    open.close().await.map_err(Failure::failed)?;
    result.map_err(Failure::failed)?;
    Ok(was_open.then_some(ended))
}

/// Ends the open turns of all sessions to which a cancelled turn has delegated work, directly or through other
/// sessions, because no session needs the answers of these turns any more. For each of these
/// sessions, returns one line of output that reports whether the session's turn could be ended.
fn cancel_delegates<'c>(
    store: &'c Arc<dyn Store>,
    waits: Vec<Wait>,
    (data, terminal): (&'c DataDirectory, &'c Terminal),
    levels: usize,
) -> Pin<Box<dyn Future<Output = Result<Vec<String>, Failure>> + Send + 'c>> {
    Box::pin(async move {
        let mut lines = Vec::new();
        for wait in waits {
            let WaitCause::Agent { session: subject } = wait.cause else { continue };
            let filter = SessionFilter { subject: Some(subject.clone()), ..SessionFilter::default() };
            let found = store.sessions(filter, 1).await.map_err(Failure::failed)?;
            // If the delegated session was not created yet, it will never be created, so there is nothing to cancel.
            let Some(child) = found.into_iter().next() else { continue };
            if is_cancelled_by_holder(store, &child, terminal).await? {
                lines.push(format!("the delegate session {subject} was also cancelled"));
                continue;
            }
            if let (Some(process), SessionState::Running) = (&child.open_in, child.state) {
                lines.push(format!(
                    "the delegate session {subject} runs in {process}, which has not taken the request to cancel it"
                ));
                continue;
            }
            let Some(ended) = end_turn(store, &child, data).await? else { continue };
            lines.push(format!("the delegate session {subject} was also cancelled"));
            if levels > 0 {
                lines.extend(cancel_delegates(store, ended.waits, (data, terminal), levels - 1).await?);
            }
        }
        Ok(lines)
    })
}
