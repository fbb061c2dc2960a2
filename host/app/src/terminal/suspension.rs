//! Describes the answers that a suspended turn and its delegated sessions wait for. Each description contains the
//! command that gives the answer (L16).

use super::pending_calls::{waits_for_approval, waits_for_decision};
use super::{BOLD, DIM, YELLOW, pending_answers, text};
use crate::exit::Failure;
use agent_config::DataDirectory;
use agent_core::change::CallState;
use agent_core::event::{EventKind, Suspension, Wait, WaitCause};
use agent_store::{CallFilter, MAX_PAGE, Store};
use std::pin::Pin;

/// Maximum depth to which delegated sessions are shown. This depth is larger than the maximum depth that can
/// be configured.
const MAX_LEVELS: usize = 16;

/// Describes the delegated sessions that a suspended turn waits for, and the answers that these sessions wait for. The
/// result is empty if the turn is not waiting for a delegate.
pub(crate) async fn awaited_delegates(
    store: &dyn Store,
    suspension: &Suspension,
    data: &DataDirectory,
) -> Result<Vec<String>, Failure> {
    let mut lines = Vec::new();
    for wait in &suspension.waits {
        if let WaitCause::Agent { session } = &wait.cause {
            lines.extend(delegate_lines(store, (wait, session), data, MAX_LEVELS).await?);
        }
    }
    if !lines.is_empty() {
        lines.push(format!(
            "{DIM}when all of these questions and calls have answers, continue this session; the delegated \
             sessions then continue as well{DIM:#}"
        ));
    }
    Ok(lines)
}

type Lines<'l> = Pin<Box<dyn Future<Output = Result<Vec<String>, Failure>> + Send + 'l>>;

/// Describes one delegated session and the answers that it waits for. The future is boxed because the function calls
/// itself for nested delegates.
fn delegate_lines<'l>(
    store: &'l dyn Store,
    (wait, session): (&'l Wait, &'l str),
    data: &'l DataDirectory,
    levels: usize,
) -> Lines<'l> {
    Box::pin(async move {
        let name = text::one_line(&wait.name, 100);
        let mut lines = vec![format!("{YELLOW}waits for the agent{YELLOW:#} {BOLD}{name}{BOLD:#}, session {session}")];
        let Some(suspension) = last_suspension(store, session).await? else {
            lines.push("  this agent is running, or starts when the waiting session continues".to_owned());
            return Ok(lines);
        };
        for wait in &suspension.waits {
            if let (WaitCause::Agent { session }, 1..) = (&wait.cause, levels) {
                let nested = delegate_lines(store, (wait, session), data, levels - 1).await?;
                lines.extend(nested.into_iter().map(indented));
            }
        }
        lines.extend(own_waits(store, session, &suspension, data).await?.into_iter().map(indented));
        Ok(lines)
    })
}

fn indented(lines: String) -> String {
    lines.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

/// Describes the answers that a session itself waits for, but not the answers that its delegated sessions wait for.
/// Each description contains the command with which the user gives the answer.
pub(crate) async fn own_waits(
    store: &dyn Store,
    session: &str,
    suspension: &Suspension,
    data: &DataDirectory,
) -> Result<Vec<String>, Failure> {
    let mut lines = Vec::new();
    let open = store.calls(session, CallFilter::Unfinished).await.map_err(Failure::failed)?;
    let calls_in = |state| open.iter().filter(|call| call.state == state).cloned().collect::<Vec<_>>();
    let (asking, unknown) = (calls_in(CallState::AwaitingApproval), calls_in(CallState::OutcomeUnknown));
    if !asking.is_empty() {
        lines.push(waits_for_approval(session, &asking, data));
    }
    if !unknown.is_empty() {
        lines.push(waits_for_decision(session, &unknown, data));
    }
    let others = pending_answers::describe(session, &suspension.waits, (store, data)).await?;
    if !others.is_empty() {
        lines.push(others);
    }
    if suspension.waits.iter().any(|wait| matches!(wait.cause, WaitCause::Answer { .. })) {
        lines.push(format!("    agent-host session answer {session}{} \"TEXT\"", data.flag()));
    }
    Ok(lines)
}

/// Finds out from the session's events which answers and calls the session's open turn waits for. Returns None if the
/// turn is not suspended.
pub(crate) async fn last_suspension(store: &dyn Store, session: &str) -> Result<Option<Suspension>, Failure> {
    fold_events(store, session, |last, event| match event {
        EventKind::Suspended { suspension } => Some(suspension),
        EventKind::Resumed | EventKind::LoopEnd { .. } => None,
        _ => last,
    })
    .await
}

/// Computes a state by applying `next` to each event of a session, in the order of the events. If the session does not
/// exist, for example because the process died before creating it, the result is the default state.
pub(crate) async fn fold_events<T: Default>(
    store: &dyn Store,
    session: &str,
    mut next: impl FnMut(T, EventKind) -> T,
) -> Result<T, Failure> {
    let (mut state, mut after) = (T::default(), 0);
    loop {
        let events = match store.events(session, after, MAX_PAGE).await {
            Err(agent_store::StoreError::NoSession { .. }) => return Ok(T::default()),
            events => events.map_err(Failure::failed)?,
        };
        let Some(last) = events.last() else { return Ok(state) };
        after = last.event.sequence;
        state = events.into_iter().fold(state, |state, timed| next(state, timed.event.kind));
    }
}
