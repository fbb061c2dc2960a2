//! `session respond`: a service's answer, or one to an approval request, comes in as a CloudEvent, and the turn goes on
//! (L10, L17, I6).

use crate::arguments::{AgentArguments, RunArguments};
use crate::commands::first_use::FirstUseDesk;
use crate::commands::opening::{self, Opened, OpenedFor, PATIENCE};
use crate::commands::run::{stops, watched};
use crate::data::DataDirectory;
use crate::exit::{Exit, Failure};
use crate::interrupt::{Doing, Interrupts};
use crate::setup;
use crate::setup::agents::MadeAgent;
use crate::terminal::turn::{Format, Kept, TurnView, Use};
use crate::terminal::{Output, Terminal, YELLOW, waits};
use agent_core::cloud_event::{CloudEvent, MAX_EVENT_BYTES};
use agent_core::event::Wait;
use agent_core::tool::Violation;
use agent_runtime::approvals::APPROVAL_RESOLVED;
use agent_runtime::{RespondError, Responded, Session, SessionError, TurnResult};
use agent_store::SqliteStore;
use serde_json::json;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// What was typed.
pub(super) struct Asked {
    /// The session.
    pub(super) session: String,
    /// The file with the event; `-` is stdin.
    pub(super) event: std::path::PathBuf,
    /// Whose session it is, to go on with it.
    pub(super) agent: AgentArguments,
    /// What follows the answer.
    pub(super) then: Then,
    /// Who reads what is printed.
    pub(super) format: Format,
}

/// What follows an answer that was the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// The turn goes on.
    GoOn,
    /// Nothing: it is recorded.
    Record,
}

/// Takes the answer, and goes on where that is asked for.
pub(super) async fn respond(
    asked: Asked,
    store: Arc<SqliteStore>,
    data: &DataDirectory,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let event = read(&asked.event)?;
    let found = super::find_open(&*store, data, &asked.session).await.map_err(no_context)?;
    let names_agent = asked.agent != AgentArguments::default();
    // What an approval is checked against must be there in any case.
    let needs_agent = event.event_type == APPROVAL_RESOLVED.as_str();
    if needs_agent && !names_agent {
        let advice = "an approval is checked against the agent's tools: give its options as before, --agent FILE, or --plugins, --model and --grant";
        return Err(Failure::refused(advice));
    }
    let goes_on = asked.then == Then::GoOn && names_agent;
    let to_record = Opening { asked: &asked, subject: &found.subject, data };
    // To record an answer the stored state is enough (L1): whatever is wrong with the agent, the answer is not lost.
    let (mut session, kept, made) = match needs_agent {
        true => to_record.with_agent(terminal).await?,
        false => {
            let session = super::open_to_decide(store.clone(), &found, data, PATIENCE).await?;
            (session, Kept { store, data: data.clone() }, Vec::new())
        }
    };
    let responded = session.respond(event).await;
    let is_ready = matches!(&responded, Ok(Responded::Taken { waits, .. }) if waits.is_empty());
    let said = match responded {
        Ok(responded) => tell(&responded, &session, &kept, (asked.format, terminal)).await,
        Err(RespondError::Session(error @ SessionError::Approval(_))) => Err(Failure::refused(error)),
        Err(error @ RespondError::Session(_)) => Err(Failure::failed(error)),
        Err(error) => Err(Failure::refused(error)),
    };
    let shows_end = session.state().is_open() || session.has_ended_at_opening();
    if !(goes_on && said.is_ok() && shows_end) {
        let (parent, is_open) = (session.state().delegated_by.clone(), session.state().is_open());
        session.close().await.map_err(Failure::failed)?;
        said?;
        if let Some(parent) = parent {
            terminal.note(super::below::parent_waits(&*kept.store, &parent, data).await?);
        } else if is_ready && is_open {
            let (id, flag) = (&found.subject, data.flag());
            terminal.note(format!("go on with agent-host --session {id}{flag}, and the same options as before"));
        }
        return Ok(Exit::Done);
    }
    let (session, kept, made) = match needs_agent {
        true => (session, kept, made),
        false => {
            session.close().await.map_err(Failure::failed)?;
            to_record.with_agent(terminal).await.map_err(|failure| Failure {
                message: format!("the answer is stored, but the turn cannot go on here: {}", failure.message),
                ..failure
            })?
        }
    };
    let store = kept.store.clone();
    let exit = go_on(session, kept, asked.format, terminal).await;
    opening::finish(&*store, &made, terminal).await;
    exit
}

/// The session with its agent, so that the turn can go on.
struct Opening<'a> {
    asked: &'a Asked,
    subject: &'a str,
    data: &'a DataDirectory,
}

impl Opening<'_> {
    async fn with_agent(&self, terminal: &Terminal) -> Result<(Session, Kept, Vec<MadeAgent>), Failure> {
        let (agent, session) = (self.asked.agent.clone(), Some(self.subject.to_owned()));
        let run = RunArguments { agent, session, ..RunArguments::default() };
        let settings = setup::settings(&run.agent, terminal).await?;
        let opened = opening::open_in(&run, (settings, self.data.clone()), OpenedFor::AnAnswer, terminal).await?;
        let Opened { session, kept, made, .. } = opened;
        Ok((session, kept, made))
    }
}

/// Where there is no session, there is no stored state either (L1).
fn no_context(failure: Failure) -> Failure {
    if !failure.message.starts_with("there is no session") {
        return failure;
    }
    Failure { message: format!("no_context: {}", failure.message), ..failure }
}

/// Reads an event from a file or from stdin.
pub(crate) fn read(path: &Path) -> Result<CloudEvent, Failure> {
    let shown = if path == Path::new("-") { "stdin".to_owned() } else { path.display().to_string() };
    let most = MAX_EVENT_BYTES as u64 + 1;
    let mut text = Vec::new();
    let read = match path == Path::new("-") {
        true => std::io::stdin().lock().take(most).read_to_end(&mut text),
        false => std::fs::File::open(path).and_then(|file| file.take(most).read_to_end(&mut text)),
    };
    read.map_err(|error| Failure::refused(format!("{shown}: the event cannot be read: {error}")))?;
    CloudEvent::parse(&text).map_err(|error| Failure::refused(format!("{shown}: {error}")))
}

async fn tell(
    responded: &Responded,
    session: &Session,
    kept: &Kept,
    (format, terminal): (Format, &Terminal),
) -> Result<(), Failure> {
    let (violations, left): (&[Violation], &[Wait]) = match responded {
        Responded::Taken { violations, waits } => (violations, waits),
        Responded::Duplicate | Responded::Late => (&[], &[]),
    };
    let (word, said) = match responded {
        Responded::Taken { .. } if violations.is_empty() => ("taken", "the answer is taken"),
        Responded::Taken { .. } => ("taken", "the answer is not what was agreed; the model gets an error that says so"),
        Responded::Duplicate => ("duplicate", "the call has this answer already; nothing has changed"),
        Responded::Late => ("late", "the answer comes too late: the call has another result; nothing has changed"),
    };
    if format == Format::Json {
        let session = session.subject();
        let line =
            json!({"type": "responded", "status": word, "session": session, "violations": violations, "waits": left});
        return terminal.print(line.to_string()).map_err(Failure::output);
    }
    let mark = if violations.is_empty() { String::new() } else { format!("{YELLOW}!{YELLOW:#} ") };
    terminal.note(format!("{mark}{said}"));
    for violation in violations {
        terminal.note(format!("  {} {}", violation.pointer, violation.message));
    }
    if !left.is_empty() {
        terminal.note(waits::shown(session.subject(), left, (&*kept.store, &kept.data)).await?);
    }
    Ok(())
}

/// The turn that was answered, and the prompts that came meanwhile.
async fn turns(
    session: &mut Session,
    (view, desk): (&mut TurnView<'_>, &mut FirstUseDesk),
    cancel: &CancellationToken,
) -> Result<TurnResult, Failure> {
    let mut result = watched(session, None, (view, desk), cancel).await?;
    while !stops(&result, cancel)
        && let Some(kept) = session.next_kept()
    {
        view.interrupted_turn_ended(&result)?;
        view.asks_kept(&kept);
        result = watched(session, Some(kept), (view, desk), cancel).await?;
    }
    Ok(result)
}

async fn go_on(mut session: Session, kept: Kept, format: Format, terminal: &Terminal) -> Result<Exit, Failure> {
    // Where the turn has ended meanwhile, its result is shown all the same.
    let interrupts = Interrupts::listen(terminal.clone());
    let cancel = interrupts.begin(Doing::Turn);
    let servers = session.agent().servers().clone();
    interrupts.end_with_us([servers.clone()]);
    let format = match (format, terminal.is_terminal(Output::Stdout)) {
        (Format::Json, _) => Format::Json,
        (_, true) => Format::Terminal,
        (_, false) => Format::Lines,
    };
    let mut view = TurnView::new(terminal, (format, Use::Once), &session, kept.clone());
    let mut desk = FirstUseDesk::closed(terminal, kept.store);
    let result = turns(&mut session, (&mut view, &mut desk), &cancel).await;
    let closed = session.close().await;
    if cancel.is_cancelled() {
        servers.hurry();
    }
    servers.shutdown().await;
    let exit = view.end(result?).await?;
    closed.map_err(Failure::failed)?;
    Ok(exit)
}
