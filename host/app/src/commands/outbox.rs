//! `outbox list` and `outbox deliver`: lists the items of the outbox, which are events and other effects that commits
//! have added, and delivers the pending items (D2, D6).

use super::stored_sessions;
use crate::arguments::OutboxCommand;
use crate::exit::{Exit, Failure};
use crate::terminal::{BOLD, DIM, Terminal, text};
use agent_config::{DataDirectory, assembly};
use agent_core::change::OutboxEffect;
use agent_runtime::OutboxConfig;
use agent_runtime::outbox::{self, Receivers};
use agent_store::{MAX_PAGE, OutboxFilter, SessionFilter, Store, StoredOutboxItem};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of items that one query reads.
const PAGE: usize = 200;
/// Maximum displayed length of a name or of an event's data, in characters.
const MAX_CHARACTERS: usize = 120;
/// Maximum displayed length of the reason why an event was not delivered, in characters.
const MAX_PROBLEM_CHARACTERS: usize = 400;

/// Runs a subcommand of `outbox`.
pub(crate) async fn run(command: OutboxCommand, data: &DataDirectory, terminal: &Terminal) -> Result<Exit, Failure> {
    let store = assembly::open_store_to_read(data).await?;
    match command {
        OutboxCommand::List { session, all, json } => {
            let session = subject(&*store, data, session).await?;
            let sessions = stored_sessions::sessions(&*store, data, SessionFilter::default(), MAX_PAGE).await?;
            let subjects = sessions.into_iter().map(|session| session.subject).collect();
            list(&*store, (session.as_deref(), &subjects), (all, json), terminal).await
        }
        OutboxCommand::Deliver { directory, session } => {
            let session = subject(&*store, data, session).await?;
            deliver(&*store, directory, session.as_deref(), terminal).await
        }
    }
}

async fn subject(store: &dyn Store, data: &DataDirectory, id: Option<String>) -> Result<Option<String>, Failure> {
    Ok(match id {
        Some(id) => Some(stored_sessions::find(store, data, Some(&id)).await?.subject),
        None => None,
    })
}

/// Writes the pending items into the folder. Items that cannot be written stay pending.
async fn deliver(
    store: &dyn Store,
    directory: PathBuf,
    session: Option<&str>,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    if !directory.is_dir() {
        return Err(Failure::refused(format!(
            "there is no folder `{}`: create it, or name another folder",
            directory.display()
        )));
    }
    let (folder, written) = (directory.display().to_string(), AtomicUsize::new(0));
    let config = OutboxConfig { directory: Some(directory), ..OutboxConfig::default() };
    let done = |_: &str| {
        written.fetch_add(1, Ordering::Relaxed);
    };
    let delivered = outbox::deliver(store, (&config, Receivers::All(None)), session, &done).await;
    terminal.note(match written.load(Ordering::Relaxed) {
        0 => "nothing was pending in the outbox".to_owned(),
        written => format!("{} delivered to {folder}", text::count(written, "item")),
    });
    delivered.map(|()| Exit::Done).map_err(Failure::failed)
}

async fn list(
    store: &dyn Store,
    (session, subjects): (Option<&str>, &BTreeSet<String>),
    (all, json): (bool, bool),
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let filter = if all { OutboxFilter::All } else { OutboxFilter::Pending };
    let (mut after, mut found_any) = (0, false);
    loop {
        let items = store.outbox(session, filter, after, PAGE).await.map_err(Failure::failed)?;
        let Some(last) = items.last() else { break };
        after = last.number;
        for item in items.iter().filter(|item| subjects.contains(&item.session)) {
            found_any = true;
            let line = if json { serde_json::to_string(item).map_err(Failure::failed)? } else { describe(item) };
            terminal.print(line).map_err(Failure::output)?;
        }
    }
    if !found_any && !json {
        terminal.note(if all { "the outbox is empty" } else { "nothing is pending in the outbox" });
    }
    Ok(Exit::Done)
}

fn describe(item: &StoredOutboxItem) -> String {
    let state = match &item.delivered {
        Some(time) => format!("done {}", text::one_line(time, 40)),
        None => match (&item.problem, item.failed_attempts) {
            (Some(problem), attempts) => {
                let attempts = text::count(usize::try_from(attempts).unwrap_or(usize::MAX), "failed attempt");
                format!("pending after {attempts}: {}", text::one_line(problem, MAX_PROBLEM_CHARACTERS))
            }
            (None, _) => "pending".to_owned(),
        },
    };
    let (what, data) = match &item.item.effect {
        OutboxEffect::Event(event) => (
            text::one_line(&event.event_type, MAX_CHARACTERS),
            event.data.as_ref().map(|data| text::json_line(data, MAX_CHARACTERS)),
        ),
        OutboxEffect::Allow(grant) => (format!("allow {}", text::one_line(&grant.tool, MAX_CHARACTERS)), None),
        OutboxEffect::Remember { memory, .. } => (format!("remember {}", memory.kind.as_str()), None),
        OutboxEffect::Forget { turn } => (format!("forget turn {turn}"), None),
    };
    let (id, session) = (text::one_line(&item.item.id, MAX_CHARACTERS), text::one_line(&item.session, MAX_CHARACTERS));
    format!("{BOLD}{what}{BOLD:#} {}\n  {state} {DIM}{session}/{id}{DIM:#}", data.unwrap_or_default())
}
