//! `session search`: searches the messages of all sessions by their words, including messages that the model no
//! longer sees.

use crate::exit::{Exit, Failure};
use crate::terminal::text::one_line;
use crate::terminal::{BOLD, DIM, Terminal};
use agent_config::DataDirectory;
use agent_store::Store;

/// Maximum displayed length of a name or excerpt, in characters.
const MAX_CHARACTERS: usize = 200;

/// Arguments of `session search`.
pub(super) struct SearchOptions {
    /// Words that a message must contain.
    pub(super) words: Vec<String>,
    /// Maximum number of results.
    pub(super) limit: u32,
    /// Whether to print JSON lines instead of text.
    pub(super) json: bool,
}

/// Prints the messages that contain all the words, the best match first.
pub(super) async fn search(
    (store, data): (&dyn Store, &DataDirectory),
    options: SearchOptions,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let words = options.words.join(" ");
    let limit = options.limit as usize;
    let hits = store.search_messages_of(&data.searched_sessions(), &words, limit).await.map_err(Failure::refused)?;
    if hits.is_empty() && !options.json {
        terminal.note(format!("no message contains all words of `{}`", one_line(&words, MAX_CHARACTERS)));
    }
    for hit in hits {
        if options.json {
            super::print_json(terminal, &hit)?;
            continue;
        }
        let (session, role) = (one_line(&hit.session, MAX_CHARACTERS), hit.role.as_str());
        let heading = format!("{BOLD}{session}{BOLD:#} {DIM}turn {}, message {}, {role}{DIM:#}", hit.turn, hit.id);
        let entry = format!("{heading}\n  {}", one_line(&hit.excerpt, MAX_CHARACTERS));
        terminal.print_entry(&entry).map_err(Failure::output)?;
    }
    Ok(Exit::Done)
}
