//! `session list|show|search|fork|undo|approve|deny|respond|answer|resolve|export|import|delete`: what is stored, for people and
//! for programs.

mod answer;
mod approve;
pub(crate) mod below;
mod call;
mod cancel;
mod delete;
mod destination;
mod portable;
pub(crate) mod resolve;
pub(crate) mod respond;
mod search;
pub(crate) mod show;
mod tree;

use super::opening;
use crate::arguments::SessionCommand;
use crate::data::DataDirectory;
use crate::exit::{Exit, Failure};
use crate::setup;
use crate::terminal::text::shell_word;
use crate::terminal::turn::Format;
use crate::terminal::{BOLD, DIM, Terminal, text, waits};
use agent_models::provider;
use agent_plugins::Generation;
use agent_runtime::{Agent, AgentConfig, Downscaler, Host, OpenSession, Session};
use agent_store::{INCOMPLETE, MAX_PAGE, SessionFilter, SessionSummary, SqliteStore, Store};
use delete::Asking;
use destination::Existing;
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The state of a session whose turn runs, and whose process is gone.
const INTERRUPTED: &str = "interrupted";
/// The same of one whose turn has what it waited for, and which nobody has gone on with since.
const READY: &str = "ready";

/// Runs one of the commands.
pub(crate) async fn run(command: SessionCommand, data: &DataDirectory, terminal: &Terminal) -> Result<Exit, Failure> {
    let store = setup::store_to_read(data)?;
    match command {
        SessionCommand::List { limit, children_of, json } => {
            let parent = match &children_of {
                Some(asked) => Some(find(&*store, data, Some(asked)).await?.subject),
                None => None,
            };
            let filter = SessionFilter { delegated_by: parent.clone(), ..SessionFilter::default() };
            let mut found = sessions(&*store, data, filter, limit as usize).await?;
            below::tell_ready(&*store, &mut found).await?;
            if found.is_empty() && !json {
                terminal.note(match parent {
                    Some(parent) => format!("no session has worked for {}", text::one_line(&parent, 250)),
                    None => "there are no sessions yet".to_owned(),
                });
            }
            if json {
                return found.iter().try_for_each(|session| print_json(terminal, session)).map(|()| Exit::Done);
            }
            for (depth, session) in tree::in_order(found) {
                print(terminal, tree::line(depth, &session))?;
            }
        }
        SessionCommand::Show { session, json, call } => {
            let mut session = find(&*store, data, session.as_deref()).await?;
            below::tell_ready(&*store, std::slice::from_mut(&mut session)).await?;
            if let Some(asked) = call {
                return call::show(&*store, &session, &asked, terminal).await;
            }
            if !json {
                show::show(&*store, &session, data, terminal).await?;
                let suspension = below::last_suspension(&*store, &session.subject).await?.unwrap_or_default();
                let shown = waits::shown(&session.subject, &suspension.waits, (&*store, data)).await?;
                return if shown.is_empty() { Ok(()) } else { print(terminal, format!("\n{shown}")) }
                    .map(|()| Exit::Done);
            }
            print_events(&*store, &session.subject, terminal).await?;
        }
        SessionCommand::Search { words, limit, json } => {
            return search::search((&*store, data), search::Asked { words, limit, json }, terminal).await;
        }
        // It is a turn like any other, and begun as those are.
        SessionCommand::Resume(_) => {}
        SessionCommand::Resolve { call, decision, text, session } => {
            let asked = resolve::Asked { call, decision, text, session };
            return resolve::resolve(asked, store, data, terminal).await;
        }
        SessionCommand::Approve(asked) => {
            drop(store);
            return approve::approve(asked, data, terminal).await;
        }
        SessionCommand::Deny(asked) => {
            drop(store);
            return approve::deny(asked, data, terminal).await;
        }
        SessionCommand::Respond { session, event, no_run, json, agent } => {
            let then = if no_run { respond::Then::Record } else { respond::Then::GoOn };
            let format = if json { Format::Json } else { Format::Lines };
            let asked = respond::Asked { session, event, agent, then, format };
            return respond::respond(asked, store, data, terminal).await;
        }
        SessionCommand::Answer { session, text } => {
            let session = find_open(&*store, data, &session).await?;
            return answer::answer(session, text, store, data, terminal).await;
        }
        SessionCommand::Cancel { session } => {
            let session = find_open(&*store, data, &session).await?;
            return cancel::cancel(session, store, data, terminal).await;
        }
        SessionCommand::Fork { session, at } => return portable::fork(&*store, (&session, at), data, terminal).await,
        SessionCommand::Undo { session } => return portable::undo(store, &session, data, terminal).await,
        SessionCommand::Export { session, output, force } => {
            let existing = if force { Existing::Replace } else { Existing::Keep };
            return portable::export((&*store, data), &session, (&output, existing), terminal).await;
        }
        SessionCommand::Import { file, subject } => {
            return portable::import(&*store, (&file, subject), data, terminal).await;
        }
        SessionCommand::Delete { sessions, yes } => {
            let asking = if yes { Asking::Never } else { Asking::OnTerminal };
            return delete::delete(&*store, &sessions, asking, data, terminal).await;
        }
    }
    Ok(Exit::Done)
}

/// Refuses what names no session.
pub(crate) async fn check(asked: Option<&str>, data: &DataDirectory) -> Result<(), Failure> {
    find(&*setup::store_to_read(data)?, data, asked).await.map(drop)
}

/// The user's session that is meant: by its whole id, or by a beginning that no other has; the latest without one.
pub(crate) async fn find(
    store: &dyn Store,
    data: &DataDirectory,
    asked: Option<&str>,
) -> Result<SessionSummary, Failure> {
    let Some(asked) = asked else {
        let latest = sessions(store, data, SessionFilter::default(), MAX_PAGE).await?;
        let latest = latest.into_iter().find(|session| session.state != INCOMPLETE);
        return latest.ok_or_else(|| Failure::refused("there are no sessions yet"));
    };
    let mut all = sessions(store, data, SessionFilter::default(), MAX_PAGE).await?;
    if let Some(exact) = all.iter().position(|session| session.subject == asked) {
        return Ok(all.swap_remove(exact));
    }
    all.retain(|session| session.subject.starts_with(asked));
    // An agent's whole name means its sessions, and not those of agents with longer ones.
    if all.iter().any(|session| session.agent == asked) {
        all.retain(|session| session.agent == asked);
    }
    match all.len() {
        1 => Ok(all.swap_remove(0)),
        0 => Err(missing(store, asked).await?),
        number => Err(Failure::refused(format!("{number} sessions begin with `{asked}`; write more of the id"))),
    }
}

/// Why the user has no such session: there is none, or it is another user's (row 56).
async fn missing(store: &dyn Store, asked: &str) -> Result<Failure, Failure> {
    let all = store.sessions(SessionFilter::default(), MAX_PAGE).await.map_err(Failure::refused)?;
    let other = all.into_iter().find(|session| session.subject.starts_with(asked));
    Ok(Failure::refused(match other.and_then(|other| other.user) {
        Some(owner) => {
            let owner = text::one_line(&owner, 128);
            format!("session `{asked}` belongs to the user `{owner}`; `--user {}` names its user", shell_word(&owner))
        }
        None => format!("there is no session `{asked}`; `agent-host session list` shows all"),
    }))
}

/// The same for who has something to say to an open turn: of several sessions with that beginning, the one whose turn is
/// open is meant.
pub(crate) async fn find_open(store: &dyn Store, data: &DataDirectory, asked: &str) -> Result<SessionSummary, Failure> {
    let mut open = sessions(store, data, SessionFilter::default(), MAX_PAGE).await?;
    open.retain(|session| session.subject.starts_with(asked) && tree::OPEN.contains(&session.state.as_str()));
    match open.as_slice() {
        [_] => Ok(open.remove(0)),
        _ => find(store, data, Some(asked)).await,
    }
}

/// The user's sessions that pass the filter, the last changed first. Those whose process died are called interrupted.
pub(crate) async fn sessions(
    store: &dyn Store,
    data: &DataDirectory,
    filter: SessionFilter,
    limit: usize,
) -> Result<Vec<SessionSummary>, Failure> {
    let mut found = store.sessions(data.sessions_of_user(filter), limit).await.map_err(Failure::refused)?;
    for session in found.iter_mut().filter(|session| session.state == "running" && session.open_in.is_none()) {
        INTERRUPTED.clone_into(&mut session.state);
    }
    Ok(found)
}

/// Opens a session in which nothing runs: to decide something about it. Another process that has it open is waited for.
async fn open_to_decide(
    store: Arc<SqliteStore>,
    session: &SessionSummary,
    data: &DataDirectory,
    patience: Duration,
) -> Result<Session, Failure> {
    let (sandbox, downscaler) = (setup::sandbox(data)?, Downscaler::default());
    let (checkpoint, leaving) = (opening::checkpoint(), Default::default());
    let host = Host { store, sandbox, downscaler, checkpoint, first_uses: None, http: None, leaving };
    // The turn's own plugins are found by their digests; nothing runs here, so the agent needs no more than its name.
    let none = Generation::from_digests(&host.sandbox, &[]).await.map_err(Failure::refused)?;
    let model = provider("offline", Path::new("")).map_err(Failure::refused)?;
    let agent = Agent::new(AgentConfig::new(&session.agent), model, none).map_err(Failure::refused)?;
    let which = OpenSession::ToDecide(session.subject.clone());
    opening::patiently(&host, &Arc::new(agent).into(), which, patience).await
}

/// A session in a list.
pub(crate) fn summary(session: &SessionSummary) -> String {
    let title = session.title.as_deref().map(|title| text::one_line(title, 80)).unwrap_or_default();
    let turns = text::count(session.turns as usize, "turn");
    let (id, state) = (text::one_line(&session.subject, 250), &session.state);
    // To the second, without the fractions that a person does not read.
    let updated = session.updated.get(..19).unwrap_or(&session.updated).replace('T', " ");
    let title = if title.is_empty() { title } else { format!("\n  {DIM}{title}{DIM:#}") };
    format!("{BOLD}{id}{BOLD:#}  {state}, {turns}, {updated} UTC{title}")
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
