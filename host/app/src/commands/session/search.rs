//! `session search`: searches the messages of all sessions by their words, including messages that the model no longer
//! sees.

use crate::commands::stored_sessions;
use crate::exit::{Exit, Failure};
use crate::terminal::text::one_line;
use crate::terminal::{BOLD, DIM, Terminal};
use agent_config::DataDirectory;
use agent_store::{MAX_PAGE, SessionFilter, Store};
use std::collections::BTreeSet;

/// Number of characters of an excerpt.
const EXCERPT: usize = 200;

/// Arguments of the command.
pub(super) struct SearchOptions {
    pub(super) words: Vec<String>,
    pub(super) limit: u32,
    pub(super) json: bool,
}

/// Prints the messages that match, the best match first.
pub(super) async fn search(
    (store, data): (&dyn Store, &DataDirectory),
    options: SearchOptions,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let words = options.words.join(" ");
    let sessions = stored_sessions::sessions(store, data, SessionFilter::default(), MAX_PAGE).await?;
    let own: BTreeSet<String> = sessions.into_iter().map(|session| session.subject).collect();
    let mut hits = store.search_messages(&words, MAX_PAGE).await.map_err(Failure::refused)?;
    hits.retain(|hit| own.contains(&hit.session));
    hits.truncate(options.limit as usize);
    if hits.is_empty() && !options.json {
        terminal.note(format!("no message contains all words of `{}`", one_line(&words, EXCERPT)));
    }
    for hit in hits {
        if options.json {
            super::print_json(terminal, &hit)?;
            continue;
        }
        let (session, role) = (one_line(&hit.session, EXCERPT), hit.role.as_str());
        let place = format!("{BOLD}{session}{BOLD:#} {DIM}turn {}, message {}, {role}{DIM:#}", hit.turn, hit.id);
        super::print(terminal, format!("{place}\n  {}", one_line(&hit.excerpt, EXCERPT)))?;
    }
    Ok(Exit::Done)
}
