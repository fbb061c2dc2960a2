//! `agent-host [PROMPT]`: one turn, or the rest of an interrupted one and then the next.

use crate::arguments::{Arguments, RunArguments};
use crate::data::DataDirectory;
use crate::exit::{Exit, Failure};
use crate::prompt::{self, Input};
use crate::settings::Settings;
use crate::terminal::Terminal;
use crate::terminal::turn::{Format, Kept, TurnView};
use crate::{interrupt, setup};
use agent_core::message::TurnInput;
use agent_memory::{SessionLog, SqliteStore};
use agent_runtime::{Downscaler, Host, OpenSession, Session, TurnResult};
use clap::CommandFactory;
use std::io::IsTerminal;
use std::path::Path;
use tokio_util::sync::CancellationToken;

/// Runs it.
pub(crate) async fn run(run: &RunArguments, data: Option<&Path>, terminal: &Terminal) -> Result<Exit, Failure> {
    let stdin = std::io::stdin();
    let input = if stdin.is_terminal() { Input::Terminal } else { Input::Pipe };
    if input == Input::Terminal && *run == RunArguments::default() {
        terminal.note(Arguments::command().render_help().ansi().to_string());
        return Ok(Exit::Refused);
    }
    let goes_on = run.continue_latest || run.session.is_some();
    let prompt = prompt::read(run, input, stdin.lock())?;
    if prompt.is_none() && !goes_on {
        return Err(Failure::refused("there is no prompt: write it behind the options, or pipe it to stdin"));
    }
    let cancel = interrupt::listen(terminal.clone());
    let (kept, mut session) = tokio::select! {
        opened = open(run, data, terminal) => opened?,
        () = cancel.cancelled() => return Ok(Exit::Cancelled),
    };
    let format = if run.json { Format::Json } else { Format::People };
    let mut view = TurnView::new(terminal, format, &session, kept);
    let result = turns(&mut session, prompt, &mut view, &cancel).await;
    let closed = session.close().await;
    let exit = view.end(result?).await?;
    closed.map_err(Failure::failed)?;
    Ok(exit)
}

async fn open(run: &RunArguments, data: Option<&Path>, terminal: &Terminal) -> Result<(Kept, Session), Failure> {
    let settings = setup::settings(&run.agent, terminal).await?;
    let data = DataDirectory::open(data)?;
    let store = setup::store(&data)?;
    let which = which(run, &settings, &store).await?;
    let sandbox = setup::sandbox(&data)?;
    let (generation, problems) = setup::plugins(&settings, &sandbox, terminal).await?;
    setup::refuse(&problems)?;
    setup::note_no_plugins(&settings, &generation, terminal);
    let agent = setup::agent(&settings, generation, terminal)?;
    #[cfg(all(debug_assertions, unix))]
    let checkpoint = crate::crash::observer();
    #[cfg(not(all(debug_assertions, unix)))]
    let checkpoint = None;
    let host = Host { store, sandbox, downscaler: Downscaler::default(), checkpoint };
    let session = Session::open(&host, agent, which).await.map_err(Failure::refused)?;
    Ok((Kept { store: host.store, data }, session))
}

async fn which(run: &RunArguments, settings: &Settings, store: &SqliteStore) -> Result<OpenSession, Failure> {
    let agent = &settings.name;
    if run.continue_latest {
        let latest = store.latest(agent).await.map_err(Failure::refused)?;
        return latest.map(OpenSession::Existing).ok_or_else(|| {
            Failure::refused(format!("the agent `{agent}` has no session yet: leave --continue out to begin one"))
        });
    }
    let Some(asked) = &run.session else {
        return Ok(OpenSession::New);
    };
    let session = super::session::find(store, Some(asked)).await?;
    if session.agent != *agent {
        let (subject, owner) = (session.subject, session.agent);
        let advice = "give the configuration of that agent with --agent FILE";
        return Err(Failure::refused(format!(
            "session {subject} belongs to the agent `{owner}`, not `{agent}`: {advice}"
        )));
    }
    Ok(OpenSession::Existing(session.subject))
}

/// First what was interrupted, then what is asked.
async fn turns(
    session: &mut Session,
    prompt: Option<String>,
    view: &mut TurnView<'_>,
    cancel: &CancellationToken,
) -> Result<TurnResult, Failure> {
    let interrupted = session.state().is_open();
    if !interrupted && prompt.is_none() && session.state().turns > 0 {
        view.nothing_interrupted();
    }
    if interrupted || prompt.is_none() {
        let result = watched(session, None, view, cancel).await?;
        let stops = matches!(result, TurnResult::Suspended(_)) || cancel.is_cancelled();
        if stops && prompt.is_some() {
            view.not_asked();
        }
        if stops || prompt.is_none() {
            return Ok(result);
        }
        view.interrupted_turn_ended(&result)?;
    }
    watched(session, prompt.map(TurnInput::Text), view, cancel).await
}

/// Runs a turn and shows its events as they come.
async fn watched(
    session: &mut Session,
    input: Option<TurnInput>,
    view: &mut TurnView<'_>,
    cancel: &CancellationToken,
) -> Result<TurnResult, Failure> {
    let mut events = session.subscribe();
    let result = {
        let running = session.run(input, cancel.clone());
        tokio::pin!(running);
        loop {
            tokio::select! {
                biased;
                event = events.recv() => {
                    // Nobody reads any more: the client is gone (L29).
                    if view.receive(event).await.is_err() {
                        cancel.cancel();
                    }
                }
                result = &mut running => break result,
            }
        }
    };
    while view.receive_waiting(&mut events).await.unwrap_or(false) {}
    result.map_err(Failure::failed)
}
