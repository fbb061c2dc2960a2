//! `session list|show|resolve|answer|delete`: what is stored, for people and for programs.

mod answer;
mod resolve;
pub(crate) mod show;

use crate::arguments::SessionCommand;
use crate::data::DataDirectory;
use crate::exit::{Exit, Failure};
use crate::setup;
use crate::terminal::{BOLD, DIM, Terminal, text};
use agent_memory::{MAX_PAGE, SessionFilter, SessionLog, SessionSummary, Store};
use serde::Serialize;

/// The state of a session whose turn runs, and whose process is gone.
const INTERRUPTED: &str = "interrupted";

/// Runs one of the commands.
pub(crate) async fn run(command: SessionCommand, data: &DataDirectory, terminal: &Terminal) -> Result<Exit, Failure> {
    let store = setup::store(data)?;
    match command {
        SessionCommand::List { limit, json } => {
            let found = sessions(&*store, SessionFilter::default(), limit as usize).await?;
            for session in &found {
                if json { print_json(terminal, session)? } else { print(terminal, summary(session))? }
            }
            if found.is_empty() && !json {
                terminal.note("there are no sessions yet");
            }
        }
        SessionCommand::Show { session, json } => {
            let session = find(&*store, session.as_deref()).await?;
            if !json {
                return show::show(&*store, &session, data, terminal).await;
            }
            print_events(&*store, &session.subject, terminal).await?;
        }
        SessionCommand::Resolve { call, decision, text, session } => {
            let asked = resolve::Asked { call, decision, text, session };
            return resolve::resolve(asked, store, data, terminal).await;
        }
        SessionCommand::Answer { session, text } => {
            let session = find(&*store, Some(&session)).await?;
            return answer::answer(session, text, store, data, terminal).await;
        }
        SessionCommand::Delete { sessions } => {
            // All of them before the first is gone: what one beginning means must not depend on another.
            let mut meant = Vec::with_capacity(sessions.len());
            for session in &sessions {
                meant.push(find(&*store, Some(session)).await?.subject);
            }
            meant.dedup();
            for session in meant {
                store.delete(&session).await.map_err(Failure::refused)?;
                terminal.note(format!("deleted {session}"));
            }
        }
    }
    Ok(Exit::Done)
}

/// The session that is meant: by its whole id, or by a beginning that no other has; the latest without one.
pub(crate) async fn find(store: &dyn Store, asked: Option<&str>) -> Result<SessionSummary, Failure> {
    let Some(asked) = asked else {
        let latest = sessions(store, SessionFilter::default(), 1).await?;
        return latest.into_iter().next().ok_or_else(|| Failure::refused("there are no sessions yet"));
    };
    let mut all = sessions(store, SessionFilter::default(), MAX_PAGE).await?;
    if let Some(exact) = all.iter().position(|session| session.subject == asked) {
        return Ok(all.swap_remove(exact));
    }
    all.retain(|session| session.subject.starts_with(asked));
    match all.len() {
        1 => Ok(all.swap_remove(0)),
        0 => Err(Failure::refused(format!("there is no session `{asked}`; `agent-host session list` shows all"))),
        number => Err(Failure::refused(format!("{number} sessions begin with `{asked}`; write more of the id"))),
    }
}

/// Sessions that pass the filter, the last changed first. Those whose process died are called interrupted.
pub(crate) async fn sessions(
    store: &dyn Store,
    filter: SessionFilter,
    limit: usize,
) -> Result<Vec<SessionSummary>, Failure> {
    let mut found = store.sessions(filter, limit).await.map_err(Failure::refused)?;
    for session in found.iter_mut().filter(|session| session.state == "running" && session.open_in.is_none()) {
        INTERRUPTED.clone_into(&mut session.state);
    }
    Ok(found)
}

/// A session in a list.
pub(crate) fn summary(session: &SessionSummary) -> String {
    let title = session.title.as_deref().map(|title| text::one_line(title, 80)).unwrap_or_default();
    let turns = text::count(session.turns as usize, "turn");
    let (id, state) = (&session.subject, &session.state);
    // To the second, without the fractions that a person does not read.
    let updated = session.updated.get(..19).unwrap_or(&session.updated).replace('T', " ");
    format!("{BOLD}{id}{BOLD:#}  {state}, {turns}, {updated} UTC\n  {DIM}{title}{DIM:#}")
}

async fn print_events(store: &dyn Store, session: &str, terminal: &Terminal) -> Result<(), Failure> {
    let mut after = 0;
    loop {
        let events = store.events(session, after, MAX_PAGE).await.map_err(Failure::failed)?;
        let Some(last) = events.last() else { return Ok(()) };
        after = last.event.sequence;
        events.iter().try_for_each(|event| print_json(terminal, event))?;
    }
}

fn print_json(terminal: &Terminal, value: &impl Serialize) -> Result<(), Failure> {
    print(terminal, serde_json::to_string(value).map_err(Failure::failed)?)
}

fn print(terminal: &Terminal, line: String) -> Result<(), Failure> {
    terminal.print(line).map_err(Failure::output)
}
