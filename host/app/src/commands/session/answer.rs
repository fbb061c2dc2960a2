//! `session answer`: what the user says to a question of the model (L18).

use super::{below, open_to_decide};
use crate::commands::opening::PATIENCE;
use crate::commands::run::asked;
use crate::data::DataDirectory;
use crate::exit::{Exit, Failure};
use crate::terminal::Terminal;
use agent_store::{SessionSummary, SqliteStore};
use std::sync::Arc;

/// Stores the answer; the turn goes on when the session is gone on with.
pub(super) async fn answer(
    session: SessionSummary,
    text: String,
    store: Arc<SqliteStore>,
    data: &DataDirectory,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let mut open = open_to_decide(store.clone(), &session, data, PATIENCE).await?;
    let parent = open.state().delegated_by.clone();
    let answered = match asked(&open) {
        Some(call) => open.answer(call, text).await.map_err(Failure::refused),
        None => {
            let subject = &session.subject;
            Err(Failure::refused(format!(
                "session `{subject}` waits for no answer, or its question has expired; `agent-host session show {subject}` shows \
                 how it stands"
            )))
        }
    };
    open.close().await.map_err(Failure::failed)?;
    answered?;
    if let Some(parent) = parent {
        terminal.note(format!("answered; {}", below::parent_waits(&*store, &parent, data).await?));
        return Ok(Exit::Done);
    }
    let (subject, flag) = (&session.subject, data.flag());
    terminal.note(format!("answered; go on with agent-host --session {subject}{flag}, and the same options as before"));
    Ok(Exit::Done)
}
