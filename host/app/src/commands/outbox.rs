//! `outbox list`: what commits have asked to be done outside their sessions, and whether it was done (D2).

use crate::arguments::OutboxCommand;
use crate::data::DataDirectory;
use crate::exit::{Exit, Failure};
use crate::setup;
use crate::terminal::{BOLD, DIM, Terminal, text};
use agent_core::change::OutboxEffect;
use agent_memory::{Outbox, OutboxFilter, StoredOutboxItem};

/// Items that are read at once.
const PAGE: usize = 200;
/// Characters of an event's data that are shown.
const SHOWN: usize = 120;

/// Runs one of the commands.
pub(crate) async fn run(command: OutboxCommand, data: &DataDirectory, terminal: &Terminal) -> Result<Exit, Failure> {
    let OutboxCommand::List { session, all, json } = command;
    let store = setup::store(data)?;
    let session = match session {
        Some(asked) => Some(super::session::find(&*store, Some(&asked)).await?.subject),
        None => None,
    };
    let which = if all { OutboxFilter::All } else { OutboxFilter::Pending };
    let (mut after, mut found) = (0, false);
    loop {
        let items = store.outbox(session.as_deref(), which, after, PAGE).await.map_err(Failure::failed)?;
        let Some(last) = items.last() else { break };
        after = last.number;
        found = true;
        for item in &items {
            let line = if json { serde_json::to_string(item).map_err(Failure::failed)? } else { shown(item) };
            terminal.print(line).map_err(Failure::output)?;
        }
    }
    if !found && !json {
        terminal.note(if all { "the outbox is empty" } else { "nothing is pending in the outbox" });
    }
    Ok(Exit::Done)
}

fn shown(item: &StoredOutboxItem) -> String {
    let state = match &item.delivered {
        Some(time) => format!("done {}", text::one_line(time, 40)),
        None => "pending".to_owned(),
    };
    let (what, data) = match &item.item.effect {
        OutboxEffect::Event(event) => {
            (text::one_line(&event.event_type, SHOWN), event.data.as_ref().map(|data| text::json_line(data, SHOWN)))
        }
        OutboxEffect::Allow(grant) => (format!("allow {}", text::one_line(&grant.tool, SHOWN)), None),
    };
    let (id, session) = (text::one_line(&item.item.id, SHOWN), text::one_line(&item.session, SHOWN));
    format!("{BOLD}{what}{BOLD:#} {}\n  {state} {DIM}{session}/{id}{DIM:#}", data.unwrap_or_default())
}
