//! `agent-host [PROMPT]`: one turn, or the rest of an interrupted one and then the next; on a terminal and without a
//! prompt, a session of as many turns as are asked.

use super::asking::{Asker, Person};
use super::chat::{self, watch::Watch};
use super::first_use::FirstUseDesk;
use super::opening::{self, Opened, open};
use super::session::below;
use crate::arguments::{Arguments, RunArguments};
use crate::exit::{Exit, Failure};
use crate::interrupt::{Doing, Interrupts};
use crate::prompt::{self, Input, Prompt};
use crate::setup;
use crate::terminal::turn::{Format, TurnView, Use};
use crate::terminal::{Output, Terminal};
use agent_core::message::{CallId, TurnInput};
use agent_core::run::Action;
use agent_runtime::{FirstUse, Session, SessionError, TurnResult, question};
use clap::CommandFactory;
use std::io::{ErrorKind, IsTerminal};
use std::path::Path;
use std::pin::Pin;
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
    let Prompt { input: prompt, trace } = prompt::read(run, input, stdin.lock())?;
    let is_read_by_a_person = terminal.is_terminal(Output::Stdout) && terminal.is_terminal(Output::Stderr);
    let is_interactive = prompt.is_none() && input == Input::Terminal && is_read_by_a_person && !run.json;
    if prompt.is_none() && !goes_on && !is_interactive {
        return Err(Failure::refused("there is no prompt: write it behind the options, or pipe it to stdin"));
    }
    let interrupts = Interrupts::listen(terminal.clone());
    let cancel = interrupts.begin(Doing::Turn);
    let mut opened = tokio::select! {
        opened = open(run, data, terminal) => opened?,
        () = cancel.cancelled() => return Ok(Exit::Cancelled),
    };
    if let Some(trace) = trace {
        opened.session.continue_trace(trace);
    }
    setup::rules::note_idle_yes(&opened.settings, &opened.agent.current(), &run.yes, terminal);
    interrupts.end_with_us(opened.servers());
    if is_interactive {
        return chat::chat(opened, (run, None), interrupts, terminal).await;
    }
    once(opened, (format(run, terminal), prompt), (&run.yes, &cancel), terminal).await
}

/// For whom a turn is shown.
pub(super) fn format(run: &RunArguments, terminal: &Terminal) -> Format {
    match (run.json, terminal.is_terminal(Output::Stdout)) {
        (true, _) => Format::Json,
        (false, true) => Format::Terminal,
        (false, false) => Format::Lines,
    }
}

/// Runs what is open and what is asked, and closes the session.
pub(super) async fn once(
    opened: Opened,
    (format, prompt): (Format, Option<TurnInput>),
    (yes, cancel): (&[String], &CancellationToken),
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let Opened { host, mut session, kept, agent, made, first_uses, .. } = opened;
    let watch = Watch::revocations(&host, &made);
    let (data, store) = (kept.data.clone(), kept.store.clone());
    let person = if format == Format::Json { Person::Nobody } else { Person::of(terminal) };
    let files = opening::files(&made);
    let desk = FirstUseDesk::new(terminal, person.at_first_use(yes), kept.store.clone(), (first_uses, files));
    let mut asker = Asker::new(terminal, person, (&kept.data, desk), yes);
    let mut view = TurnView::new(terminal, (format, Use::Once), &session, kept);
    let waiting = session.state().kept.len();
    let result = turns(&mut session, prompt, (&mut view, &mut asker), cancel).await;
    drop(watch);
    if cancel.is_cancelled() && session.state().kept.is_empty() {
        view.dropped_prompts(waiting);
    }
    let parent = session.state().delegated_by.clone().filter(|_| !session.state().is_open());
    let closed = opening::close(session, &*store).await;
    opening::finish(&*store, &made, terminal).await;
    let servers = agent.current().servers().clone();
    if cancel.is_cancelled() {
        servers.hurry();
    }
    servers.shutdown().await;
    let exit = view.end(result?).await?;
    closed?;
    if let Some(parent) = parent {
        terminal.note(below::parent_waits(&*store, &parent, &data).await?);
    }
    Ok(exit)
}

/// First what was interrupted, then what is asked.
async fn turns(
    session: &mut Session,
    prompt: Option<TurnInput>,
    (view, asker): (&mut TurnView<'_>, &mut Asker),
    cancel: &CancellationToken,
) -> Result<TurnResult, Failure> {
    let interrupted = session.state().is_open() || session.has_ended_at_opening();
    let has_kept = !session.state().kept.is_empty();
    if !interrupted && !has_kept && prompt.is_none() && session.state().turns > 0 {
        view.nothing_interrupted();
    }
    if let (Some(call), Some(said)) = (asked(session), &prompt) {
        // What is said to a session that has asked something is the answer (L18).
        session.answer(call, said.message().plain_text()).await.map_err(Failure::refused)?;
        return asker.run(session, None, view, cancel).await;
    }
    if interrupted || (prompt.is_none() && !has_kept) {
        let result = asker.run(session, None, view, cancel).await?;
        if stops(&result, cancel) {
            return keep(session, prompt, view, cancel).await.map(|()| result);
        }
        if prompt.is_none() && session.next_kept().is_none() {
            return Ok(result);
        }
        view.interrupted_turn_ended(&result)?;
    }
    while let Some(kept) = session.next_kept() {
        view.asks_kept(&kept);
        let result = asker.run(session, Some(kept), view, cancel).await?;
        if stops(&result, cancel) {
            return keep(session, prompt, view, cancel).await.map(|()| result);
        }
        if prompt.is_none() && session.next_kept().is_none() {
            return Ok(result);
        }
        view.earlier_turn_ended(&result)?;
    }
    asker.run(session, prompt, view, cancel).await
}

/// Whether the turn has not ended, or somebody wants no other one.
pub(super) fn stops(result: &TurnResult, cancel: &CancellationToken) -> bool {
    matches!(result, TurnResult::Suspended(_) | TurnResult::Interrupted) || cancel.is_cancelled()
}

/// Keeps a prompt that came while a turn was open.
async fn keep(
    session: &mut Session,
    prompt: Option<TurnInput>,
    view: &TurnView<'_>,
    cancel: &CancellationToken,
) -> Result<(), Failure> {
    match prompt {
        None => Ok(()),
        Some(_) if cancel.is_cancelled() => {
            view.not_asked();
            Ok(())
        }
        Some(prompt) => {
            session.keep(prompt).await.map_err(Failure::refused)?;
            view.kept_prompt();
            Ok(())
        }
    }
}

/// The call whose question the session waits for the answer to.
pub(super) fn asked(session: &Session) -> Option<CallId> {
    match session.state().action() {
        Action::Suspended(suspension) => question(&suspension).map(|(call, _)| call.clone()),
        _ => None,
    }
}

/// Runs a turn and shows its events as they come.
pub(super) async fn watched(
    session: &mut Session,
    input: Option<TurnInput>,
    (view, desk): (&mut TurnView<'_>, &mut FirstUseDesk),
    cancel: &CancellationToken,
) -> Result<TurnResult, Failure> {
    view.begin(session);
    watch(session, input, (view, desk), cancel).await
}

/// The same for the rest of a turn whose beginning was shown already.
pub(super) async fn watch(
    session: &mut Session,
    input: Option<TurnInput>,
    (view, desk): (&mut TurnView<'_>, &mut FirstUseDesk),
    cancel: &CancellationToken,
) -> Result<TurnResult, Failure> {
    let mut events = session.subscribe();
    let mut unwritten = None;
    let result = {
        let running = session.run(input, cancel.clone());
        tokio::pin!(running);
        loop {
            let first_use = tokio::select! {
                biased;
                event = events.recv() => {
                    // Nobody reads any more: the client is gone (L29), or the disk is full.
                    if let Err(error) = view.receive(event).await {
                        cancel.cancel();
                        unwritten.get_or_insert(error);
                    }
                    continue;
                }
                first_use = desk.next() => first_use,
                result = &mut running => break result,
            };
            // What has happened stands above the question; what happens meanwhile, below the answer.
            while view.receive_waiting(&mut events).await.unwrap_or(false) {}
            if let Some(result) = served(desk, first_use, running.as_mut(), cancel).await {
                break result;
            }
        }
    };
    while view.receive_waiting(&mut events).await.unwrap_or(false) {}
    view.note_cost(session);
    if let Some(error) = unwritten.filter(|error: &std::io::Error| error.kind() != ErrorKind::BrokenPipe) {
        return Err(Failure::output(error));
    }
    result.map_err(|error| match error {
        // Nothing was begun, now or ever.
        SessionError::Restore { .. } => Failure::refused(error),
        error => Failure::failed(error),
    })
}

/// Asks about a plugin while the turn's other calls run; the turn's result, should it end meanwhile.
async fn served<R>(
    desk: &mut FirstUseDesk,
    first_use: FirstUse,
    mut running: Pin<&mut impl Future<Output = R>>,
    cancel: &CancellationToken,
) -> Option<R> {
    let (stop, mut result) = (cancel.child_token(), None);
    let serving = desk.serve(first_use, &stop);
    tokio::pin!(serving);
    loop {
        tokio::select! {
            biased;
            () = &mut serving => return result,
            ended = &mut running, if result.is_none() => {
                // The question has to give the keyboard back.
                stop.cancel();
                result = Some(ended);
            }
        }
    }
}
