//! `session respond`: records the answer of a service, or an answer to an approval request, from a CloudEvent, and
//! continues the turn (L10, L17, I6).

use super::sent;
use crate::arguments::{AgentArguments, RunArguments};
use crate::commands::agent_settings;
use crate::commands::delegation;
use crate::commands::drive_turn::{start_turn, stops};
use crate::commands::event_file;
use crate::commands::first_use::closed_handler;
use crate::commands::open_session::{self, BUSY_TIMEOUT, OpenedFor, OpenedSession};
use crate::commands::stored_sessions::find_open;
use crate::commands::user_presence::UserPresence;
use crate::exit::{Exit, Failure};
use crate::interrupt::{Activity, Interrupts};
use crate::terminal::turn::{Format, SessionUse, Storage, TurnView};
use crate::terminal::{Output, Terminal, YELLOW, pending_answers};
use agent_config::DataDirectory;
use agent_config::assembly::AssembledAgents;
use agent_config::first_use::FirstUseHandler;
use agent_core::event::Wait;
use agent_core::tool::Violation;
use agent_runtime::approvals::APPROVAL_RESOLVED;
use agent_runtime::{Accepted, RespondError, ResponseOutcome, Session, SessionError, SessionRequest, TurnResult};
use agent_store::Store;
use serde_json::json;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Arguments of `session respond`.
pub(super) struct RespondOptions {
    /// Id or id prefix of the session.
    pub(super) session: String,
    /// File that contains the event; `-` means stdin.
    pub(super) event: std::path::PathBuf,
    /// Options that configure the session's agent, which is needed to continue the turn.
    pub(super) agent: AgentArguments,
    /// What the command does after it has stored the answer.
    pub(super) after_answer: AfterAnswer,
    /// Output format.
    pub(super) format: Format,
}

/// What the command does when all answers that the turn waits for are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterAnswer {
    /// Continue the turn.
    Continue,
    /// Only store the answer.
    Record,
}

/// Stores the answer. If the options request it and the turn needs no further answer, continues the turn.
pub(super) async fn respond(
    options: RespondOptions,
    store: Arc<dyn Store>,
    data: &DataDirectory,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let event = event_file::read(&options.event)?;
    let found = find_open(&*store, data, &options.session).await.map_err(add_no_context_code)?;
    let request = SessionRequest::Respond(Box::new(event.clone()));
    // The process that has the session open would continue the turn at once.
    let accepted = match options.after_answer {
        AfterAnswer::Continue => sent::send(&*store, &found, &request, terminal).await?,
        AfterAnswer::Record => None,
    };
    if let Some(accepted) = accepted {
        let storage = Storage { store, data: data.clone() };
        report(&outcome_of(accepted), &found.subject, &storage, (options.format, terminal)).await?;
        if options.format != Format::Json {
            terminal.note(sent::continued_by(&found));
        }
        return Ok(Exit::Done);
    }
    let names_agent = options.agent != AgentArguments::default();
    // An approval is checked against the agent's tools, so the agent is always needed to record an approval.
    let needs_agent = event.event_type == APPROVAL_RESOLVED.as_str();
    if needs_agent && !names_agent {
        let advice = "an approval is checked against the agent's tools: give the same options as before (--agent FILE, \
                      or --plugins, --model and --grant)";
        return Err(Failure::refused(advice));
    }
    let continues = options.after_answer == AfterAnswer::Continue && names_agent;
    let to_answer = SessionToAnswer { options: &options, subject: &found.subject, data };
    // The stored state is sufficient to record an answer (L1), so the answer is not lost if the agent's files
    // have errors.
    let (mut session, storage, agents) = match needs_agent {
        true => to_answer.with_agent(terminal).await?,
        false => {
            let session = super::open_to_decide(store.clone(), &found, data, BUSY_TIMEOUT).await?;
            (session, Storage { store, data: data.clone() }, None)
        }
    };
    let responded = session.respond(event).await;
    let is_ready = matches!(&responded, Ok(ResponseOutcome::Taken { waits, .. }) if waits.is_empty());
    let reported = match responded {
        Ok(responded) => report(&responded, session.subject(), &storage, (options.format, terminal)).await,
        Err(RespondError::Session(error)) if matches!(*error, SessionError::Approval(_)) => {
            Err(Failure::refused(error))
        }
        Err(error @ RespondError::Session(_)) => Err(Failure::failed(error)),
        Err(error) => Err(Failure::refused(error)),
    };
    let has_result = session.state().is_open() || session.has_ended_at_opening();
    if !(continues && reported.is_ok() && has_result) {
        let (parent, is_open) = (session.state().delegated_by.clone(), session.state().is_open());
        session.close().await.map_err(Failure::failed)?;
        reported?;
        if let Some(parent) = parent {
            terminal.note(delegation::continue_parent_note(&*storage.store, &parent, data).await?);
        } else if is_ready && is_open {
            let (id, flag) = (&found.subject, data.flag());
            terminal.note(format!("continue with agent-host --session {id}{flag}, and the same options as before"));
        }
        return Ok(Exit::Done);
    }
    let (session, storage, agents) = match needs_agent {
        true => (session, storage, agents),
        false => {
            session.close().await.map_err(Failure::failed)?;
            to_answer.with_agent(terminal).await.map_err(|failure| Failure {
                message: format!("the answer is stored, but the turn cannot continue here: {}", failure.message),
                ..failure
            })?
        }
    };
    let store = storage.store.clone();
    let exit = continue_turn(session, storage, options.format, terminal).await;
    if let Some(agents) = agents {
        agents.record_trials(&*store, terminal).await;
    }
    exit
}

/// The session that receives the answer, and the options that are needed to open the session together with its agent.
struct SessionToAnswer<'a> {
    options: &'a RespondOptions,
    subject: &'a str,
    data: &'a DataDirectory,
}

impl SessionToAnswer<'_> {
    async fn with_agent(&self, terminal: &Terminal) -> Result<(Session, Storage, Option<AssembledAgents>), Failure> {
        let (agent, session) = (self.options.agent.clone(), Some(self.subject.to_owned()));
        let run = RunArguments { agent, session, ..RunArguments::default() };
        let settings =
            agent_settings::settings(&run.agent, self.data.location(), UserPresence::of(terminal), terminal).await?;
        let opened = open_session::open_in(&run, (settings, self.data.clone()), OpenedFor::AnAnswer, terminal).await?;
        let OpenedSession { session, storage, agents, .. } = opened;
        Ok((session, storage, Some(agents)))
    }
}

/// Adds the code `no_context` to the error about a missing session, because no stored state could receive the
/// answer (L1).
fn add_no_context_code(failure: Failure) -> Failure {
    if !failure.message.starts_with("there is no session") {
        return failure;
    }
    Failure { message: format!("no_context: {}", failure.message), ..failure }
}

/// Returns what the process that has the session open did with an answer.
fn outcome_of(accepted: Accepted) -> ResponseOutcome {
    match accepted {
        Accepted::Stored { violations, waits } => ResponseOutcome::Taken { violations, waits },
        Accepted::Late => ResponseOutcome::Late,
        _ => ResponseOutcome::Duplicate,
    }
}

/// Reports whether the answer was accepted, and which answers the turn still waits for.
async fn report(
    responded: &ResponseOutcome,
    session: &str,
    storage: &Storage,
    (format, terminal): (Format, &Terminal),
) -> Result<(), Failure> {
    let (violations, waits): (&[Violation], &[Wait]) = match responded {
        ResponseOutcome::Taken { violations, waits } => (violations, waits),
        ResponseOutcome::Duplicate | ResponseOutcome::Late => (&[], &[]),
    };
    let (status, message) = match responded {
        ResponseOutcome::Taken { .. } if violations.is_empty() => ("taken", "the answer was accepted"),
        ResponseOutcome::Taken { .. } => {
            ("taken", "the answer does not match the agreed schema, so the model gets an error instead of the answer")
        }
        ResponseOutcome::Duplicate => ("duplicate", "the call has this answer already; nothing was changed"),
        ResponseOutcome::Late => ("late", "the answer came too late: the call has another result; nothing was changed"),
    };
    if format == Format::Json {
        let line = json!({"type": "responded", "status": status, "session": session, "violations": violations, "waits": waits});
        return terminal.print(line.to_string()).map_err(Failure::output);
    }
    let mark = if violations.is_empty() { String::new() } else { format!("{YELLOW}!{YELLOW:#} ") };
    terminal.note(format!("{mark}{message}"));
    for violation in violations {
        terminal.note(format!("  {} {}", violation.pointer, violation.message));
    }
    if !waits.is_empty() {
        terminal.note(pending_answers::describe(session, waits, (&*storage.store, &storage.data)).await?);
    }
    Ok(())
}

/// Continues the turn, and then runs the prompts that were queued while the turn waited.
async fn run_turns(
    session: &mut Session,
    (view, first_uses): (&mut TurnView<'_>, &mut FirstUseHandler),
    cancel: &CancellationToken,
) -> Result<TurnResult, Failure> {
    let mut result = start_turn(session, None, (view, first_uses), cancel).await?;
    while !stops(&result, cancel)
        && let Some(queued) = session.next_queued_prompt()
    {
        view.interrupted_turn_ended(&result)?;
        view.note_queued_prompt_sent(&queued);
        result = start_turn(session, Some(queued), (view, first_uses), cancel).await?;
    }
    Ok(result)
}

async fn continue_turn(
    mut session: Session,
    storage: Storage,
    format: Format,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    // The result of the turn is shown even if the turn has already ended.
    let interrupts = Interrupts::listen(terminal.clone());
    let cancel = interrupts.begin(Activity::Turn);
    let servers = session.agent().servers().clone();
    interrupts.kill_servers_on_exit([servers.clone()]);
    let format = match (format, terminal.is_terminal(Output::Stdout)) {
        (Format::Json, _) => Format::Json,
        (_, true) => Format::Terminal,
        (_, false) => Format::Lines,
    };
    let mut view = TurnView::new(terminal, (format, SessionUse::Once), &session, storage.clone());
    let mut first_uses = closed_handler(terminal, storage.store);
    let result = run_turns(&mut session, (&mut view, &mut first_uses), &cancel).await;
    let closed = session.close().await;
    if cancel.is_cancelled() {
        servers.shorten_grace_periods();
    }
    servers.shutdown().await;
    let exit = view.end(result?).await?;
    closed.map_err(Failure::failed)?;
    Ok(exit)
}
