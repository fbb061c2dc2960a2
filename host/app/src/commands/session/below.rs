//! Sessions that work for another one: what they wait for, and who waits for them (L16).

use super::show;
use crate::data::DataDirectory;
use crate::exit::Failure;
use crate::terminal::{BOLD, DIM, YELLOW, text, waits};
use agent_core::change::CallState;
use agent_core::event::{EventKind, Suspension, Wait, WaitCause};
use agent_store::{CallFilter, MAX_PAGE, SessionFilter, SessionSummary, Store};
use std::pin::Pin;

/// Deepest level that is looked at: more than agents may be configured to delegate.
const MOST_LEVELS: usize = 16;

/// Lines on the sessions below that a suspended turn waits for, each with what it waits for itself; none where it waits
/// for no agent.
pub(crate) async fn waiting(
    store: &dyn Store,
    suspension: &Suspension,
    data: &DataDirectory,
) -> Result<Vec<String>, Failure> {
    let mut lines = Vec::new();
    for wait in &suspension.waits {
        if let WaitCause::Agent { session } = &wait.cause {
            lines.extend(of_child(store, (wait, session), data, MOST_LEVELS).await?);
        }
    }
    if !lines.is_empty() {
        lines.push(format!("{DIM}when that is settled, go on with this session: it goes on with those below{DIM:#}"));
    }
    Ok(lines)
}

type Lines<'l> = Pin<Box<dyn Future<Output = Result<Vec<String>, Failure>> + Send + 'l>>;

/// Boxed, since the child may wait for children.
fn of_child<'l>(
    store: &'l dyn Store,
    (wait, session): (&'l Wait, &'l str),
    data: &'l DataDirectory,
    levels: usize,
) -> Lines<'l> {
    Box::pin(async move {
        let name = text::one_line(&wait.name, 100);
        let mut lines = vec![format!("{YELLOW}waits for the agent{YELLOW:#} {BOLD}{name}{BOLD:#}, session {session}")];
        let Some(suspension) = last_suspension(store, session).await? else {
            lines.push("  which is at work, or begins when this session is gone on with".to_owned());
            return Ok(lines);
        };
        for wait in &suspension.waits {
            if let (WaitCause::Agent { session }, 1..) = (&wait.cause, levels) {
                let below = of_child(store, (wait, session), data, levels - 1).await?;
                lines.extend(below.into_iter().map(indented));
            }
        }
        lines.extend(own(store, session, &suspension, data).await?.into_iter().map(indented));
        Ok(lines)
    })
}

fn indented(lines: String) -> String {
    lines.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

/// What a session waits for itself, each with the command that settles it.
pub(super) async fn own(
    store: &dyn Store,
    session: &str,
    suspension: &Suspension,
    data: &DataDirectory,
) -> Result<Vec<String>, Failure> {
    let mut lines = Vec::new();
    let open = store.calls(session, CallFilter::Unfinished).await.map_err(Failure::failed)?;
    let of_state = |state| open.iter().filter(|call| call.state == state).cloned().collect::<Vec<_>>();
    let (asking, unknown) = (of_state(CallState::Asking), of_state(CallState::OutcomeUnknown));
    if !asking.is_empty() {
        lines.push(show::asked(session, &asking, data));
    }
    if !unknown.is_empty() {
        lines.push(show::waiting(session, &unknown, data));
    }
    let others = waits::shown(session, &suspension.waits, (store, data)).await?;
    if !others.is_empty() {
        lines.push(others);
    }
    if suspension.waits.iter().any(|wait| matches!(wait.cause, WaitCause::Answer { .. })) {
        lines.push(format!("    agent-host session answer {session}{} \"TEXT\"", data.flag()));
    }
    Ok(lines)
}

/// What the open turn of a session waits for, as far as its events tell; none where it does not wait.
pub(super) async fn last_suspension(store: &dyn Store, session: &str) -> Result<Option<Suspension>, Failure> {
    told(store, session, |last, event| match event {
        EventKind::Suspended { suspension } => Some(suspension),
        EventKind::Resumed | EventKind::LoopEnd { .. } => None,
        _ => last,
    })
    .await
}

/// What the events of a session tell, one after another. A session whose process died before it was made tells nothing.
async fn told<T: Default>(
    store: &dyn Store,
    session: &str,
    mut next: impl FnMut(T, EventKind) -> T,
) -> Result<T, Failure> {
    let (mut known, mut after) = (T::default(), 0);
    loop {
        let events = match store.events(session, after, MAX_PAGE).await {
            Err(agent_store::StoreError::NoSession { .. }) => return Ok(T::default()),
            events => events.map_err(Failure::failed)?,
        };
        let Some(end) = events.last() else { return Ok(known) };
        after = end.event.sequence;
        known = events.into_iter().fold(known, |known, timed| next(known, timed.event.kind));
    }
}

/// Says of sessions that nobody works on, but that have what they waited for, that they are ready and not interrupted.
pub(super) async fn tell_ready(store: &dyn Store, sessions: &mut [SessionSummary]) -> Result<(), Failure> {
    for session in sessions.iter_mut().filter(|session| session.state == super::INTERRUPTED) {
        if has_waited(store, &session.subject).await? {
            super::READY.clone_into(&mut session.state);
        }
    }
    Ok(())
}

/// Whether nothing has been done since the answer came that a session waited for.
async fn has_waited(store: &dyn Store, session: &str) -> Result<bool, Failure> {
    told(store, session, |has_waited, event| match event {
        EventKind::Resumed => true,
        // The next step begins with the answer; that is not yet somebody's work, and neither is whoever looks whether
        // there is any.
        EventKind::LoopIteration { .. }
        | EventKind::ContextBudget { .. }
        | EventKind::ContextBuilt { .. }
        | EventKind::StreamClear => has_waited,
        _ => false,
    })
    .await
}

/// What is to be done when a session has gone on that works for another one.
pub(crate) async fn parent_waits(store: &dyn Store, parent: &str, data: &DataDirectory) -> Result<String, Failure> {
    let filter = SessionFilter { subject: Some(parent.to_owned()), ..SessionFilter::default() };
    if store.sessions(filter, 1).await.map_err(Failure::refused)?.is_empty() {
        return Ok(format!("session {parent}, which had delegated this, is gone: nobody waits for the answer"));
    }
    let flag = data.flag();
    Ok(format!(
        "session {parent} has delegated this and waits for it: go on with agent-host --session {parent}{flag}, and its own --agent"
    ))
}

/// The session whose open turn waits for what this one does; none where none does.
pub(super) async fn awaited_by(store: &dyn Store, session: &SessionSummary) -> Result<Option<String>, Failure> {
    let Some(parent) = &session.delegated_by else { return Ok(None) };
    let Some(suspension) = last_suspension(store, parent).await? else { return Ok(None) };
    let awaits = |wait: &&Wait| matches!(&wait.cause, WaitCause::Agent { session: child } if *child == session.subject);
    let Some(wait) = suspension.waits.iter().find(awaits) else { return Ok(None) };
    // What it has answered is the parent's already, whatever that still waits for.
    let calls = store.calls(parent, CallFilter::Ids(vec![wait.call.clone()])).await.map_err(Failure::failed)?;
    Ok(calls.iter().any(|call| call.state != CallState::Finished).then(|| parent.clone()))
}
