//! `session delete`: the only thing that removes what is stored; a terminal is asked first.

use super::{below, find, tree};
use crate::data::DataDirectory;
use crate::exit::{Exit, Failure};
use crate::terminal::{Terminal, text};
use agent_store::{SessionSummary, Store};
use std::io::{IsTerminal, stdin};

/// Whether a person who could be asked is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asking {
    /// On a terminal.
    OnTerminal,
    /// Never: it was said already.
    Never,
}

/// Removes the sessions.
pub(super) async fn delete(
    store: &dyn Store,
    sessions: &[String],
    asking: Asking,
    data: &DataDirectory,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    // All of them before the first is gone: what one beginning means must not depend on another.
    let mut meant = Vec::with_capacity(sessions.len());
    for session in sessions {
        let found = find(store, data, Some(session)).await?;
        if !meant.contains(&found) {
            meant.push(found);
        }
    }
    refuse_awaited(store, &meant, data).await?;
    let meant = parents_first(meant);
    if asking == Asking::OnTerminal && terminal.is_interactive() && stdin().is_terminal() {
        for session in &meant {
            terminal.note(tree::line(0, session));
        }
        let what = text::count(meant.len(), "session");
        terminal
            .note(format!("delete {what} with all that is stored and remembered of it? It cannot be taken back [y/N]"));
        if !is_yes(&tokio::task::spawn_blocking(answer).await.unwrap_or_default()) {
            terminal.note("nothing was deleted");
            return Ok(Exit::Refused);
        }
    }
    for session in &meant {
        let mut children = tree::children(store, data, &session.subject).await?;
        children.retain(|child| meant.iter().all(|other| other.subject != child.subject));
        let deleted = store.delete(&session.subject).await.map_err(Failure::refused)?;
        let memories = match deleted.memories {
            0 => String::new(),
            1 => ", and 1 memory of it".to_owned(),
            number => format!(", and {number} memories of it"),
        };
        terminal.note(format!("deleted {}{memories}", session.subject));
        tree::kept(&children, &data.flag()).into_iter().for_each(|line| terminal.note(line));
    }
    Ok(Exit::Done)
}

/// A parent that waits for a session would have its work done again, in a new one.
async fn refuse_awaited(store: &dyn Store, meant: &[SessionSummary], data: &DataDirectory) -> Result<(), Failure> {
    for session in meant {
        let Some(parent) = below::awaited_by(store, session).await? else { continue };
        if meant.iter().any(|other| other.subject == parent) {
            continue;
        }
        let (child, flag) = (&session.subject, data.flag());
        return Err(Failure::refused(format!(
            "session `{child}` works for `{parent}`, whose turn waits for it and would have the work done again. Go on with \
             that one, --session {parent}{flag}, or delete both: agent-host session delete {parent} {child}{flag}"
        )));
    }
    Ok(())
}

/// None goes before the session that waits for it.
fn parents_first(mut sessions: Vec<SessionSummary>) -> Vec<SessionSummary> {
    let mut ordered: Vec<SessionSummary> = Vec::with_capacity(sessions.len());
    while !sessions.is_empty() {
        let is_parent_of = |parent: &SessionSummary, child: &SessionSummary| {
            parent.subject != child.subject && child.delegated_by.as_ref() == Some(&parent.subject)
        };
        let free = |session: &SessionSummary| !sessions.iter().any(|other| is_parent_of(other, session));
        // A damaged import could hold a circle.
        let next = sessions.iter().position(free).unwrap_or_default();
        ordered.push(sessions.remove(next));
    }
    ordered
}

/// A line of the terminal; nothing where there is none.
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

    /// D5: only a clear yes removes anything.
    #[test]
    fn only_yes_is_yes() {
        assert!(["y", "Y\n", " yes \n", "YES"].into_iter().all(is_yes));
        assert!(!["", "\n", "n", "no", "yeah", "y y", "ja"].into_iter().any(is_yes));
    }
}
