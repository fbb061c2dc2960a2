//! `session search`: messages of all sessions by their words, those that are no longer shown to the model included.

use crate::data::DataDirectory;
use crate::exit::{Exit, Failure};
use crate::terminal::text::one_line;
use crate::terminal::{BOLD, DIM, Terminal};
use agent_store::{MAX_PAGE, SessionFilter, Store};
use std::collections::BTreeSet;

/// Characters of an excerpt.
const EXCERPT: usize = 200;

/// What is looked for, and how it is shown.
pub(super) struct Asked {
    pub(super) words: Vec<String>,
    pub(super) limit: u32,
    pub(super) json: bool,
}

/// Prints what was found, the nearest first.
pub(super) async fn search(
    (store, data): (&dyn Store, &DataDirectory),
    asked: Asked,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let words = asked.words.join(" ");
    let sessions = super::sessions(store, data, SessionFilter::default(), MAX_PAGE).await?;
    let own: BTreeSet<String> = sessions.into_iter().map(|session| session.subject).collect();
    let mut hits = store.search_messages(&words, MAX_PAGE).await.map_err(Failure::refused)?;
    hits.retain(|hit| own.contains(&hit.session));
    hits.truncate(asked.limit as usize);
    if hits.is_empty() && !asked.json {
        terminal.note(format!("no message has every word of `{}`", one_line(&words, EXCERPT)));
    }
    for hit in hits {
        if asked.json {
            super::print_json(terminal, &hit)?;
            continue;
        }
        let (session, role) = (one_line(&hit.session, EXCERPT), hit.role.as_str());
        let place = format!("{BOLD}{session}{BOLD:#} {DIM}turn {}, message {}, {role}{DIM:#}", hit.turn, hit.id);
        super::print(terminal, format!("{place}\n  {}", one_line(&hit.excerpt, EXCERPT)))?;
    }
    Ok(Exit::Done)
}
