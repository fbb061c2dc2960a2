//! `session cancel`: a turn that waits is ended, and the session goes on (L1, L29).

use super::{below, open_to_decide};
use crate::commands::opening::PATIENCE;
use crate::data::DataDirectory;
use crate::exit::{Exit, Failure};
use crate::terminal::{Terminal, text};
use agent_core::event::{Wait, WaitCause};
use agent_store::{SessionFilter, SessionLog, SessionSummary, SqliteStore};
use std::pin::Pin;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Deepest level of sessions below that is looked at: more than agents may be configured to delegate.
const MOST_LEVELS: usize = 16;

/// Ends the open turn. Calls that wait get the result that they were cancelled.
pub(super) async fn cancel(
    session: SessionSummary,
    store: Arc<SqliteStore>,
    data: &DataDirectory,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    if let (Some(process), "running") = (session.open_in, session.state.as_str()) {
        return Err(Failure::refused(format!(
            "the turn of session {} runs in process {process}, which alone can cancel it: Ctrl-C there does, or `kill -INT {process}`",
            session.subject
        )));
    }
    let Some(ended) = end_turn(&store, &session, data).await? else {
        let subject = &session.subject;
        return Err(Failure::refused(format!("session {subject} has no turn to cancel: it waits for the next input")));
    };
    let (subject, flag) = (&session.subject, data.flag());
    if ended.prompts > 0 {
        let prompts = text::count(ended.prompts, "prompt");
        terminal.note(format!("{prompts} that waited for the end of the turn will not be asked"));
    }
    terminal.note(format!("cancelled; to ask on: agent-host --session {subject}{flag} \"…\""));
    for said in cancel_below(&store, ended.waits, data, MOST_LEVELS).await? {
        terminal.note(said);
    }
    if let Some(parent) = ended.parent {
        terminal.note(below::parent_waits(&*store, &parent, data).await?);
    }
    Ok(Exit::Done)
}

/// What a turn was before it was ended.
struct Ended {
    parent: Option<String>,
    waits: Vec<Wait>,
    /// That were kept until its end.
    prompts: usize,
}

/// Ends the open turn of a session; none where there is none.
async fn end_turn(
    store: &Arc<SqliteStore>,
    session: &SessionSummary,
    data: &DataDirectory,
) -> Result<Option<Ended>, Failure> {
    let mut open = open_to_decide(store.clone(), session, data, PATIENCE).await?;
    let state = open.state();
    let (parent, waits, prompts) = (state.delegated_by.clone(), state.waits(), state.kept.len());
    let (was_open, ended) = (state.is_open(), Ended { parent, waits, prompts });
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    let result = if was_open { open.run(None, cancelled).await.map(drop) } else { Ok(()) };
    open.close().await.map_err(Failure::failed)?;
    result.map_err(Failure::failed)?;
    Ok(was_open.then_some(ended))
}

/// Ends the turns of the sessions that worked for a turn that was cancelled, and of those that worked for them: nobody takes their
/// answers any more. One line for each.
fn cancel_below<'c>(
    store: &'c Arc<SqliteStore>,
    waits: Vec<Wait>,
    data: &'c DataDirectory,
    levels: usize,
) -> Pin<Box<dyn Future<Output = Result<Vec<String>, Failure>> + Send + 'c>> {
    Box::pin(async move {
        let mut lines = Vec::new();
        for wait in waits {
            let WaitCause::Agent { session: subject } = wait.cause else { continue };
            let filter = SessionFilter { subject: Some(subject.clone()), ..SessionFilter::default() };
            let found = store.sessions(filter, 1).await.map_err(Failure::failed)?;
            // It has not begun, and now never will.
            let Some(child) = found.into_iter().next() else { continue };
            if let (Some(process), "running") = (child.open_in, child.state.as_str()) {
                lines.push(format!(
                    "session {subject} worked for it and runs in process {process}, which alone can cancel it"
                ));
                continue;
            }
            let Some(ended) = end_turn(store, &child, data).await? else { continue };
            lines.push(format!("session {subject}, which worked for it, is cancelled, too"));
            if levels > 0 {
                lines.extend(cancel_below(store, ended.waits, data, levels - 1).await?);
            }
        }
        Ok(lines)
    })
}
