//! `session resolve`: records the user's decision about a call whose outcome is unknown (D3).

use super::sent;
use crate::arguments::Verdict;
use crate::commands::decision;
use crate::commands::delegation;
use crate::commands::stored_sessions::{find_open, sessions};
use crate::exit::{Exit, Failure};
use crate::terminal::{Terminal, suspension};
use agent_config::DataDirectory;
use agent_core::change::{CallRecord, CallState};
use agent_core::event::{Suspension, Wait};
use agent_core::message::CallId;
use agent_runtime::SessionRequest;
use agent_store::{CallFilter, SessionFilter, SessionSummary, Store};
use std::sync::Arc;
use std::time::Duration;

/// Arguments of `session resolve`.
pub(super) struct ResolveOptions {
    /// Id of the call, or SESSION/CALL.
    pub(super) call: String,
    /// The decision about the call.
    pub(super) decision: Verdict,
    /// Text of the result or of the error.
    pub(super) text: Option<String>,
    /// Id of the session, if the user passed it separately from the call id.
    pub(super) session: Option<String>,
}

/// Stores the decision about the call. If another process has the session open and takes the decision, it continues the turn.
/// Otherwise, the turn continues only when the user continues the session.
pub(super) async fn resolve(
    options: ResolveOptions,
    store: Arc<dyn Store>,
    data: &DataDirectory,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let decision = decision::decision(options.decision, options.text)?;
    let (session, call) = split_call_id(&options.call, options.session.as_deref());
    let session = match session {
        Some(session) => find_open(&*store, data, session).await?,
        None => waiting_session(&*store, data, call).await?,
    };
    let request = SessionRequest::Resolve { call: CallId(call.to_owned()), decision: decision.clone() };
    if sent::send(&*store, &session, &request, terminal).await?.is_some() {
        terminal.note(format!("stored the decision about {call}; {}", sent::continued_by(&session)));
        return Ok(Exit::Done);
    }
    let mut open = super::open_to_decide(store.clone(), &session, data, Duration::ZERO).await?;
    let resolved = open.resolve(CallId(call.to_owned()), decision).await;
    let (parent, waits) = (open.state().delegated_by.clone(), open.state().waits());
    open.close().await.map_err(Failure::failed)?;
    resolved.map_err(Failure::refused)?;
    terminal.note(format!("stored the decision about {call}"));
    report(&*store, (&session.subject, waits), data, terminal).await?;
    if let Some(parent) = parent {
        terminal.note(delegation::continue_parent_note(&*store, &parent, data).await?);
    }
    Ok(Exit::Done)
}

async fn report(
    store: &dyn Store,
    (session, waits): (&str, Vec<Wait>),
    data: &DataDirectory,
    terminal: &Terminal,
) -> Result<(), Failure> {
    if waits.is_empty() {
        let flag = data.flag();
        terminal.note(format!("continue with agent-host --session {session}{flag}, and the same options as before"));
    }
    let waits = suspension::own_waits(store, session, &Suspension { waits }, data).await?;
    waits.into_iter().for_each(|lines| terminal.note(lines));
    Ok(())
}

/// Splits a typed id into the ids of the session and the call. The id of a session may contain slashes, but the id of a
/// call may not.
fn split_call_id<'a>(call: &'a str, session: Option<&'a str>) -> (Option<&'a str>, &'a str) {
    match (session, call.rsplit_once('/')) {
        (Some(session), _) => (Some(session), call),
        (None, Some((session, call))) => (Some(session), call),
        (None, None) => (None, call),
    }
}

/// Finds the latest session that waits for a decision about the call with this id.
async fn waiting_session(store: &dyn Store, data: &DataDirectory, call: &str) -> Result<SessionSummary, Failure> {
    for session in sessions(store, data, SessionFilter::default(), 1000).await? {
        let unknown = unknown_calls(store, &session.subject).await?;
        if unknown.iter().any(|record| record.id.0 == call) {
            return Ok(session);
        }
    }
    Err(Failure::refused(format!(
        "no session waits for a decision about `{call}`; `agent-host session list` shows all sessions"
    )))
}

async fn unknown_calls(store: &dyn Store, session: &str) -> Result<Vec<CallRecord>, Failure> {
    let mut calls = store.calls(session, CallFilter::Unfinished).await.map_err(Failure::refused)?;
    calls.retain(|call| call.state == CallState::OutcomeUnknown);
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d3_split_call_id_accepts_ids_with_and_without_the_session() {
        assert_eq!(split_call_id("call_1_1_1", None), (None, "call_1_1_1"));
        assert_eq!(split_call_id("agent/0193/call_1_1_1", None), (Some("agent/0193"), "call_1_1_1"));
        assert_eq!(split_call_id("call_1_1_1", Some("agent/0193")), (Some("agent/0193"), "call_1_1_1"));
    }
}
