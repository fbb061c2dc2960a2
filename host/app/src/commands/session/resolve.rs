//! `session resolve`: a person says what became of a call whose outcome is unknown (D3).

use super::below;
use crate::arguments::Verdict;
use crate::data::DataDirectory;
use crate::exit::{Exit, Failure};
use crate::terminal::Terminal;
use agent_core::change::{CallRecord, CallState};
use agent_core::event::{Suspension, Wait};
use agent_core::message::CallId;
use agent_core::run::Decision;
use agent_store::{CallFilter, SessionFilter, SessionSummary, SqliteStore, Store};
use std::sync::Arc;
use std::time::Duration;

/// What was typed.
pub(super) struct Asked {
    /// The call, with or without its session.
    pub(super) call: String,
    /// What became of it.
    pub(super) decision: Verdict,
    /// The result's or the error's text.
    pub(super) text: Option<String>,
    /// The session, where it was named apart.
    pub(super) session: Option<String>,
}

/// Stores the decision; the turn goes on when the session is gone on with.
pub(super) async fn resolve(
    asked: Asked,
    store: Arc<SqliteStore>,
    data: &DataDirectory,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let decision = decision(asked.decision, asked.text)?;
    let (session, call) = place(&asked.call, asked.session.as_deref());
    let session = match session {
        Some(session) => super::find_open(&*store, data, session).await?,
        None => waiting_session(&*store, data, call).await?,
    };
    let mut open = super::open_to_decide(store.clone(), &session, data, Duration::ZERO).await?;
    let resolved = open.resolve(CallId(call.to_owned()), decision).await;
    let (parent, waits) = (open.state().delegated_by.clone(), open.state().waits());
    open.close().await.map_err(Failure::failed)?;
    resolved.map_err(Failure::refused)?;
    terminal.note(format!("decided about {call}"));
    report(&*store, (&session.subject, waits), data, terminal).await?;
    if let Some(parent) = parent {
        terminal.note(below::parent_waits(&*store, &parent, data).await?);
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
        terminal.note(format!("go on with agent-host --session {session}{flag}, and the same options as before"));
    }
    let left = below::own(store, session, &Suspension { waits }, data).await?;
    left.into_iter().for_each(|lines| terminal.note(lines));
    Ok(())
}

/// A result must be told; an error has a usual text.
pub(crate) fn decision(verdict: Verdict, text: Option<String>) -> Result<Decision, Failure> {
    match (verdict, text) {
        (Verdict::Retry, None) => Ok(Decision::Retry),
        (Verdict::Retry, Some(_)) => Err(Failure::refused("`retry` takes no text: the call runs again")),
        (Verdict::Failed, text) => {
            Ok(Decision::Failed(text.unwrap_or_else(|| "the call was interrupted and has failed".to_owned())))
        }
        (Verdict::Result, Some(text)) => Ok(Decision::Result(text)),
        (Verdict::Result, None) => {
            Err(Failure::refused("`result` needs the result's text: agent-host session resolve CALL result \"TEXT\""))
        }
    }
}

/// The session and the call of what was typed. A session's id may hold slashes, a call's has none.
fn place<'a>(call: &'a str, session: Option<&'a str>) -> (Option<&'a str>, &'a str) {
    match (session, call.rsplit_once('/')) {
        (Some(session), _) => (Some(session), call),
        (None, Some((session, call))) => (Some(session), call),
        (None, None) => (None, call),
    }
}

/// The latest session that waits for a decision about a call of this id.
async fn waiting_session(store: &dyn Store, data: &DataDirectory, call: &str) -> Result<SessionSummary, Failure> {
    for session in super::sessions(store, data, SessionFilter::default(), 1000).await? {
        let unknown = unknown_calls(store, &session.subject).await?;
        if unknown.iter().any(|record| record.id.0 == call) {
            return Ok(session);
        }
    }
    Err(Failure::refused(format!(
        "no session waits for a decision about `{call}`; `agent-host session list` shows all"
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

    /// D3
    #[test]
    fn a_call_is_named_with_or_without_its_session() {
        assert_eq!(place("call_1_1_1", None), (None, "call_1_1_1"));
        assert_eq!(place("agent/0193/call_1_1_1", None), (Some("agent/0193"), "call_1_1_1"));
        assert_eq!(place("call_1_1_1", Some("agent/0193")), (Some("agent/0193"), "call_1_1_1"));
    }

    #[test]
    fn a_result_needs_its_text_and_a_retry_takes_none() {
        assert!(matches!(decision(Verdict::Retry, None), Ok(Decision::Retry)));
        assert!(matches!(decision(Verdict::Failed, None), Ok(Decision::Failed(_))));
        assert!(matches!(decision(Verdict::Result, Some("7".into())), Ok(Decision::Result(text)) if text == "7"));
        assert!(decision(Verdict::Result, None).is_err());
        assert!(decision(Verdict::Retry, Some("7".into())).is_err());
    }
}
