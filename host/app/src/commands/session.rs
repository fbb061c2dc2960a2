//! `session list|show|pick|search|fork|undo|approve|deny|respond|answer|resolve|cancel|export|import|delete`: inspects and
//! changes stored sessions, and records the answers and decisions that the sessions wait for.

mod answer;
mod approve;
mod call;
mod cancel;
mod delete;
pub(in crate::commands) mod destination;
pub(crate) mod pick;
mod portable;
pub(crate) mod request;
pub(crate) mod resolve;
pub(crate) mod respond;
mod search;
mod sent;
pub(crate) mod show;
mod tree;

use super::delegation;
use super::open_session;
use super::stored_sessions::{find, find_open, sessions};
use crate::arguments::SessionCommand;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::terminal::turn::Format;
use crate::terminal::{Terminal, pending_answers, suspension, text};
use agent_config::{DataDirectory, assembly};
use agent_models::provider;
use agent_plugins::Generation;
use agent_runtime::{Agent, AgentConfig, Host, OpenSession, Session};
use agent_store::{MAX_PAGE, SessionFilter, SessionSummary, Store};
use delete::Confirmation;
use destination::Existing;
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Runs a subcommand of `session`.
pub(crate) async fn run(command: SessionCommand, data: &DataDirectory, terminal: &Terminal) -> Result<Exit, Failure> {
    let store = assembly::open_store_to_read(data).await?;
    match command {
        SessionCommand::List { limit, children_of, json } => {
            let parent = match &children_of {
                Some(parent) => Some(find(&*store, data, Some(parent)).await?.subject),
                None => None,
            };
            let filter = SessionFilter { delegated_by: parent.clone(), ..SessionFilter::default() };
            let mut found = sessions(&*store, data, filter, limit as usize).await?;
            delegation::mark_ready(&*store, &mut found).await?;
            if found.is_empty() && !json {
                terminal.note(match parent {
                    Some(parent) => format!("{} has not delegated work to any session", text::one_line(&parent, 250)),
                    None => "there are no sessions yet".to_owned(),
                });
            }
            if json {
                return found.iter().try_for_each(|session| print_json(terminal, session)).map(|()| Exit::Done);
            }
            for (depth, session) in tree::in_order(found) {
                terminal.print_entry(&tree::line(depth, &session)).map_err(Failure::output)?;
            }
        }
        SessionCommand::Show { session, json, call, request } => {
            let mut session = find(&*store, data, session.as_deref()).await?;
            delegation::mark_ready(&*store, std::slice::from_mut(&mut session)).await?;
            if let Some(id) = call {
                return call::show(&*store, &session, &id, terminal).await;
            }
            if let Some(number) = request {
                return request::show(&*store, &session, number, terminal).await;
            }
            if !json {
                show::show(&*store, &session, data, terminal).await?;
                let suspension = suspension::last_suspension(&*store, &session.subject).await?.unwrap_or_default();
                let shown = pending_answers::describe(&session.subject, &suspension.waits, (&*store, data)).await?;
                return if shown.is_empty() { Ok(()) } else { print(terminal, format!("\n{shown}")) }
                    .map(|()| Exit::Done);
            }
            print_events(&*store, &session.subject, terminal).await?;
        }
        SessionCommand::Search { words, limit, json } => {
            return search::search((&*store, data), search::SearchOptions { words, limit, json }, terminal).await;
        }
        // `main` handles these commands, because they run turns, like `agent-host` without a subcommand.
        SessionCommand::Resume(_) | SessionCommand::Pick(_) => {}
        SessionCommand::Resolve { call, decision, text, session } => {
            let options = resolve::ResolveOptions { call, decision, text, session };
            return resolve::resolve(options, store, data, terminal).await;
        }
        SessionCommand::Approve(options) => {
            return approve::approve(options, store, data, terminal).await;
        }
        SessionCommand::Deny(options) => {
            return approve::deny(options, store, data, terminal).await;
        }
        SessionCommand::Respond { session, event, no_run, json, agent } => {
            let after_answer = if no_run { respond::AfterAnswer::Record } else { respond::AfterAnswer::Continue };
            let format = if json { Format::Json } else { Format::Lines };
            let options = respond::RespondOptions { session, event, agent, after_answer, format };
            return respond::respond(options, store, data, terminal).await;
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
            let asking = if yes { Confirmation::Never } else { Confirmation::OnTerminal };
            return delete::delete(&*store, &sessions, asking, data, terminal).await;
        }
    }
    Ok(Exit::Done)
}

/// Returns an error if there is no session with this id or id prefix.
pub(crate) async fn check(id: Option<&str>, data: &DataDirectory) -> Result<(), Failure> {
    find(&*assembly::open_store_to_read(data).await?, data, id).await.map(drop)
}

/// Opens a session to record a decision or an answer, without running a turn. If another process has the session open,
/// waits up to `timeout`.
async fn open_to_decide(
    store: Arc<dyn Store>,
    session: &SessionSummary,
    data: &DataDirectory,
    timeout: Duration,
) -> Result<Session, Failure> {
    let sandbox = assembly::open_default_sandbox(data, &environment::host())?;
    let host = Host { checkpoint: open_session::checkpoint(), ..Host::new(store, sandbox) };
    // No turn runs here, so the agent needs a name but no plugins. When the turn continues later, the turn finds its
    // plugins by their digests.
    let generation = Generation::from_digests(&host.sandbox, &[]).await.map_err(Failure::refused)?;
    let model = provider("offline", Path::new("")).map_err(Failure::refused)?;
    let agent = Agent::new(AgentConfig::new(&session.agent), model, generation).map_err(Failure::refused)?;
    let which = OpenSession::ToDecide(session.subject.clone());
    open_session::open_when_free(&host, &Arc::new(agent).into(), which, timeout).await
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
