//! `session cancel`: a turn that waits is ended, and the session goes on (L1, L29).

use super::respond::PATIENCE;
use super::{below, open_to_decide};
use crate::data::DataDirectory;
use crate::exit::{Exit, Failure};
use crate::terminal::Terminal;
use agent_core::event::WaitCause;
use agent_memory::{SessionSummary, SqliteStore};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Ends the open turn. Calls that wait get the result that they were cancelled.
pub(super) async fn cancel(
    session: SessionSummary,
    store: Arc<SqliteStore>,
    data: &DataDirectory,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let kept = store.clone();
    if let (Some(process), "running") = (session.open_in, session.state.as_str()) {
        return Err(Failure::refused(format!(
            "the turn of session {} runs in process {process}, which alone can cancel it: Ctrl-C there does, or `kill -INT {process}`",
            session.subject
        )));
    }
    let mut open = open_to_decide(store, &session, data, PATIENCE).await?;
    let state = open.state();
    let (parent, waits, subject) = (state.delegated_by.clone(), state.waits(), &session.subject);
    if !state.is_open() {
        open.close().await.map_err(Failure::failed)?;
        return Err(Failure::refused(format!("session {subject} has no turn to cancel: it waits for the next input")));
    }
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    let ended = open.run(None, cancelled).await;
    open.close().await.map_err(Failure::failed)?;
    ended.map_err(Failure::failed)?;
    let flag = data.flag();
    terminal.note(format!("cancelled; to ask on: agent-host --session {subject}{flag} \"…\""));
    for wait in waits {
        if let WaitCause::Agent { session: below } = wait.cause {
            terminal.note(format!(
                "session {below} worked for it; where it still waits: agent-host session cancel {below}{flag}"
            ));
        }
    }
    if let Some(parent) = parent {
        terminal.note(below::parent_waits(&*kept, &parent, data).await?);
    }
    Ok(Exit::Done)
}
