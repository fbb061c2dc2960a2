//! `session delete`: removes sessions from the store. On a terminal, asks the user for confirmation before it removes
//! the sessions.

use super::tree;
use crate::commands::delegation;
use crate::commands::stored_sessions::find;
use crate::exit::{Exit, Failure};
use crate::terminal::{Terminal, text};
use agent_config::DataDirectory;
use agent_store::{SessionSummary, Store};
use std::io::{IsTerminal, stdin};

/// Whether `session delete` asks the user for confirmation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Confirmation {
    /// Ask for confirmation if a user is at the terminal.
    OnTerminal,
    /// Do not ask for confirmation, because the user passed `--yes`.
    Never,
}

/// Deletes the sessions, with all data that belongs to them.
pub(super) async fn delete(
    store: &dyn Store,
    sessions: &[String],
    asking: Confirmation,
    data: &DataDirectory,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    // Resolve all prefixes before the first session is deleted, so that the order of the prefixes does not matter.
    let mut selected = Vec::with_capacity(sessions.len());
    for session in sessions {
        let found = find(store, data, Some(session)).await?;
        if !selected.contains(&found) {
            selected.push(found);
        }
    }
    refuse_awaited(store, &selected, data).await?;
    let selected = parents_first(selected);
    if asking == Confirmation::OnTerminal && terminal.is_interactive() && stdin().is_terminal() {
        for session in &selected {
            terminal.note(tree::line(0, session));
        }
        let what = text::count(selected.len(), "session");
        terminal.note(format!("delete {what} with all stored data, including memories? This cannot be undone [y/N]"));
        if !is_yes(&tokio::task::spawn_blocking(answer).await.unwrap_or_default()) {
            terminal.note("nothing was deleted");
            return Ok(Exit::Refused);
        }
    }
    for session in &selected {
        let mut children = tree::children(store, data, &session.subject).await?;
        children.retain(|child| selected.iter().all(|other| other.subject != child.subject));
        let deleted = store.delete(&session.subject).await.map_err(Failure::refused)?;
        let memories = match deleted.memories {
            0 => String::new(),
            1 => ", and 1 memory from it".to_owned(),
            number => format!(", and {number} memories from it"),
        };
        terminal.note(format!("deleted {}{memories}", session.subject));
        tree::kept_children_note(&children, &data.flag()).into_iter().for_each(|line| terminal.note(line));
    }
    Ok(Exit::Done)
}

/// Refuses to delete a session while its parent session waits for its result, because the parent would do the work
/// again in a new session.
async fn refuse_awaited(store: &dyn Store, selected: &[SessionSummary], data: &DataDirectory) -> Result<(), Failure> {
    for session in selected {
        let Some(parent) = delegation::awaited_by(store, session).await? else { continue };
        if selected.iter().any(|other| other.subject == parent) {
            continue;
        }
        let (child, flag) = (&session.subject, data.flag());
        return Err(Failure::refused(format!(
            "session `{child}` works for `{parent}`, whose turn waits for it and would do the work again: continue \
             `{parent}` with agent-host --session {parent}{flag}, or delete both with agent-host session delete \
             {parent} {child}{flag}"
        )));
    }
    Ok(())
}

/// Orders the sessions so that each parent is deleted before its children.
fn parents_first(mut sessions: Vec<SessionSummary>) -> Vec<SessionSummary> {
    let mut ordered: Vec<SessionSummary> = Vec::with_capacity(sessions.len());
    while !sessions.is_empty() {
        let is_parent_of = |parent: &SessionSummary, child: &SessionSummary| {
            parent.subject != child.subject && child.delegated_by.as_ref() == Some(&parent.subject)
        };
        let has_no_parent = |session: &SessionSummary| !sessions.iter().any(|other| is_parent_of(other, session));
        // A damaged import can contain a cycle of parents. The sessions of a cycle can be deleted in any order.
        let next = sessions.iter().position(has_no_parent).unwrap_or_default();
        ordered.push(sessions.remove(next));
    }
    ordered
}

/// Reads a line from stdin. Returns an empty string if stdin cannot be read.
fn answer() -> String {
    let mut line = String::new();
    stdin().read_line(&mut line).map(|_| line).unwrap_or_default()
}

fn is_yes(answer: &str) -> bool {
    ["y", "yes"].contains(&answer.trim().to_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D5: sessions are deleted only if the answer is clearly yes.
    #[test]
    fn d5_is_yes_accepts_only_yes() {
        assert!(["y", "Y\n", " yes \n", "YES"].into_iter().all(is_yes));
        assert!(!["", "\n", "n", "no", "yeah", "y y", "ja"].into_iter().any(is_yes));
    }
}
