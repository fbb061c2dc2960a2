//! `agent-host [PROMPT]`: continues the open turn of the session, if there is one, and then runs one turn. On a
//! terminal and without a prompt, starts an interactive session.

use super::approval_prompt::ApprovalPrompter;
use super::attachments::Attachments;
use super::chat;
use super::delegation;
use super::drive_turn::{open_question, stops};
use super::first_use;
use super::images;
use super::open_session::{self, OpenedFor, OpenedSession, open};
use super::prompt::{self, Input, Prompt};
use super::starting_agent;
use super::user_presence::UserPresence;
use super::yes_patterns;
use crate::arguments::{Arguments, RunArguments};
use crate::exit::{Exit, Failure};
use crate::interrupt::{Activity, Interrupts};
use crate::terminal::turn::{Format, SessionUse, TurnView};
use crate::terminal::{Output, Terminal};
use agent_config::settings::Chain;
use agent_config::{AgentWatch, DataLocation};
use agent_core::message::TurnInput;
use agent_runtime::{Session, TurnResult};
use clap::CommandFactory;
use tokio_util::sync::CancellationToken;

/// Runs `agent-host` without a subcommand.
pub(crate) async fn run(run: &RunArguments, data: DataLocation<'_>, terminal: &Terminal) -> Result<Exit, Failure> {
    let mut input = Input::of_stdin();
    if input == Input::Terminal && *run == RunArguments::default() && !starting_agent::can_start_unnamed() {
        terminal.note(Arguments::command().render_help().ansi().to_string());
        terminal.note("`agent-host setup` chooses a model and plugins once; then `agent-host` starts in any folder");
        return Ok(Exit::Refused);
    }
    let continues = run.continue_latest || run.session.is_some();
    if run.prompt.as_deref().is_some_and(|prompt| prompt != "-") && input.is_silent() {
        terminal.note("stdin is open but sends nothing, so the turn begins with the prompt alone");
        input = Input::Nothing;
    }
    let Prompt { input: prompt, trace } = prompt::read(run, input, std::io::stdin().lock())?;
    if prompt.is_none() && !run.image.is_empty() {
        return Err(Failure::refused("--image adds an image to a prompt: write the prompt after the options"));
    }
    let images = images::read(&run.image)?;
    let is_read_by_user = terminal.is_terminal(Output::Stdout) && terminal.is_terminal(Output::Stderr);
    let is_interactive = prompt.is_none() && input == Input::Terminal && is_read_by_user && !run.json;
    if prompt.is_none() && !continues && !is_interactive {
        return Err(Failure::refused("there is no prompt: write it after the options, or pipe it to stdin"));
    }
    let interrupts = Interrupts::listen(terminal.clone());
    let cancel = interrupts.begin(Activity::Turn);
    let opened_for = if is_interactive { OpenedFor::Conversation } else { OpenedFor::Turns };
    let mut opened = tokio::select! {
        opened = open(run, data, opened_for, terminal) => opened?,
        () = cancel.cancelled() => return Ok(Exit::Cancelled),
    };
    if let Some(trace) = trace {
        opened.session.continue_trace(trace);
    }
    let attachments = run.prompt.as_deref().filter(|prompt| *prompt != "-");
    let attachments = attachments.map(|typed| Attachments::of(typed, &opened.storage.data)).unwrap_or_default();
    let attachments = attachments.with_images(images);
    if open_question(&opened.session).is_some() && attachments.has_image() {
        opened.session.close().await.map_err(Failure::failed)?;
        return Err(Failure::refused("the session waits for the answer to a question, which can only be a text"));
    }
    let prompt = match prompt {
        Some(prompt) => {
            attachments.show(terminal);
            Some(attachments.attach(&opened.session, prompt).await?)
        }
        None => None,
    };
    yes_patterns::warn_of_unmatched_patterns(&opened.settings, &opened.agents.agent.current(), &run.yes, terminal);
    interrupts.kill_servers_on_exit(opened.agents.servers());
    if is_interactive {
        if opened.settings.models.chain == Chain::Unnamed {
            terminal.note("no model is configured; `agent-host setup` chooses one for all folders");
        }
        return chat::chat(opened, (run, None), interrupts, terminal).await;
    }
    run_once(opened, (format(run, terminal), prompt), (&run.yes, &cancel), terminal).await
}

/// Returns the output format, which depends on the arguments and on whether stdout is a terminal.
pub(super) fn format(run: &RunArguments, terminal: &Terminal) -> Format {
    match (run.json, terminal.is_terminal(Output::Stdout)) {
        (true, _) => Format::Json,
        (false, true) => Format::Terminal,
        (false, false) => Format::Lines,
    }
}

/// Continues the open turn, runs the prompt, and closes the session.
pub(super) async fn run_once(
    opened: OpenedSession,
    (format, prompt): (Format, Option<TurnInput>),
    (yes, cancel): (&[String], &CancellationToken),
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let OpenedSession { host, mut session, storage, agents, first_uses, settings, traces } = opened;
    let watch = AgentWatch::revocations(&host, &agents.all);
    let (data, store) = (storage.data.clone(), storage.store.clone());
    let user = if format == Format::Json { UserPresence::Absent } else { UserPresence::of(terminal) };
    let first_uses = first_use::handler(
        (terminal, user.at_first_use(yes)),
        store.clone(),
        settings.environment,
        (first_uses, agents.files()),
    );
    let mut prompter = ApprovalPrompter::new(terminal, user, (&data, first_uses), yes);
    let mut view = TurnView::new(terminal, (format, SessionUse::Once), &session, storage);
    let queued_before = session.state().queued_prompts.len();
    let result = run_turns(&mut session, prompt, (&mut view, &mut prompter), cancel).await;
    drop(watch);
    if cancel.is_cancelled() && session.state().queued_prompts.is_empty() {
        view.note_dropped_prompts(queued_before);
    }
    let parent = session.state().delegated_by.clone().filter(|_| !session.state().is_open());
    let closed = open_session::close(session, &*store).await;
    agents.record_trials(&*store, terminal).await;
    let servers = agents.agent.current().servers().clone();
    if cancel.is_cancelled() {
        servers.shorten_grace_periods();
    }
    servers.shutdown().await;
    traces.finish(terminal).await;
    let exit = view.end(result?).await?;
    closed?;
    if let Some(parent) = parent {
        terminal.note(delegation::continue_parent_note(&*store, &parent, &data).await?);
    }
    Ok(exit)
}

/// Continues an interrupted turn, then runs the queued prompts, and then the new prompt.
async fn run_turns(
    session: &mut Session,
    prompt: Option<TurnInput>,
    (view, prompter): (&mut TurnView<'_>, &mut ApprovalPrompter),
    cancel: &CancellationToken,
) -> Result<TurnResult, Failure> {
    let interrupted = session.state().is_open() || session.has_ended_at_opening();
    let has_queued = !session.state().queued_prompts.is_empty();
    if !interrupted && !has_queued && prompt.is_none() && session.state().turns > 0 {
        view.note_nothing_interrupted();
    }
    if let (Some(call), Some(answer)) = (open_question(session), &prompt) {
        // If the session has an open question, the prompt is the answer to that question (L18).
        session.answer(call, answer.message().plain_text()).await.map_err(Failure::refused)?;
        return prompter.run(session, None, view, cancel).await;
    }
    if interrupted || (prompt.is_none() && !has_queued) {
        let result = prompter.run(session, None, view, cancel).await?;
        if stops(&result, cancel) {
            return queue(session, prompt, view, cancel).await.map(|()| result);
        }
        if prompt.is_none() && session.next_queued_prompt().is_none() {
            return Ok(result);
        }
        view.interrupted_turn_ended(&result)?;
    }
    while let Some(queued) = session.next_queued_prompt() {
        view.note_queued_prompt_sent(&queued);
        let result = prompter.run(session, Some(queued), view, cancel).await?;
        if stops(&result, cancel) {
            return queue(session, prompt, view, cancel).await.map(|()| result);
        }
        if prompt.is_none() && session.next_queued_prompt().is_none() {
            return Ok(result);
        }
        view.earlier_turn_ended(&result)?;
    }
    prompter.run(session, prompt, view, cancel).await
}

/// Queues a prompt that was given while a turn was open. The prompt begins the next turn after the open turn has ended.
async fn queue(
    session: &mut Session,
    prompt: Option<TurnInput>,
    view: &TurnView<'_>,
    cancel: &CancellationToken,
) -> Result<(), Failure> {
    match prompt {
        None => Ok(()),
        Some(_) if cancel.is_cancelled() => {
            view.note_prompt_not_sent();
            Ok(())
        }
        Some(prompt) => {
            session.queue_prompt(prompt).await.map_err(Failure::refused)?;
            view.note_prompt_queued();
            Ok(())
        }
    }
}
