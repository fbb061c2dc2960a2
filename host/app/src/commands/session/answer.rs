//! `session answer`: records the user's answer to a question that the model asked (L18).

use super::{open_to_decide, sent};
use crate::commands::delegation;
use crate::commands::drive_turn::open_question;
use crate::commands::open_session::BUSY_TIMEOUT;
use crate::exit::{Exit, Failure};
use crate::terminal::Terminal;
use crate::terminal::suspension::last_suspension;
use agent_config::DataDirectory;
use agent_runtime::{SessionRequest, question};
use agent_store::{SessionSummary, Store};
use std::sync::Arc;

/// Stores the answer. If another process has the session open and takes the answer, it continues the turn. Otherwise, the turn
/// continues only when the user continues the session.
pub(super) async fn answer(
    session: SessionSummary,
    text: String,
    store: Arc<dyn Store>,
    data: &DataDirectory,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let suspension = last_suspension(&*store, &session.subject).await?.unwrap_or_default();
    if let Some((call, _)) = question(&suspension) {
        let request = SessionRequest::Answer { call: call.clone(), text: text.clone() };
        if sent::send(&*store, &session, &request, terminal).await?.is_some() {
            terminal.note(format!("answered; {}", sent::continued_by(&session)));
            return Ok(Exit::Done);
        }
    }
    let mut open = open_to_decide(store.clone(), &session, data, BUSY_TIMEOUT).await?;
    let parent = open.state().delegated_by.clone();
    let answered = match open_question(&open) {
        Some(call) => open.answer(call, text).await.map_err(Failure::refused),
        None => {
            let subject = &session.subject;
            Err(Failure::refused(format!(
                "session `{subject}` is not waiting for an answer, or its question has expired; `agent-host session \
                 show {subject}` shows its state"
            )))
        }
    };
    open.close().await.map_err(Failure::failed)?;
    answered?;
    if let Some(parent) = parent {
        terminal.note(format!("answered; {}", delegation::continue_parent_note(&*store, &parent, data).await?));
        return Ok(Exit::Done);
    }
    let (subject, flag) = (&session.subject, data.flag());
    terminal
        .note(format!("answered; continue with agent-host --session {subject}{flag}, and the same options as before"));
    Ok(Exit::Done)
}
