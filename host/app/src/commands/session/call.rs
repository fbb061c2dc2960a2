//! `session show --call`: shows one tool call in full.

use crate::exit::{Exit, Failure};
use crate::terminal::{BOLD, DIM, Terminal, approval, cost, text};
use agent_core::change::CallRecord;
use agent_core::message::CallId;
use agent_core::view::result_text;
use agent_store::{CallFilter, SessionSummary, Store};

/// Shows the arguments, the result and the cost of a call.
pub(super) async fn show(
    store: &dyn Store,
    session: &SessionSummary,
    call: &str,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let id = call.strip_prefix(&session.subject).and_then(|rest| rest.strip_prefix('/')).unwrap_or(call);
    let Some(record) = find(store, &session.subject, id).await? else {
        return Err(Failure::refused(format!(
            "session {0} has no call `{id}`; `agent-host session show {0}` shows its calls",
            session.subject
        )));
    };
    let source = record.source.as_ref().map(|source| text::one_line(&source.to_string(), 200)).unwrap_or_default();
    let mut lines =
        vec![format!("{BOLD}{}{BOLD:#} {DIM}{source}, {}{DIM:#}", approval::escaped(&record.name), record.id)];
    lines.push(approval::whole(&record.arguments));
    if let Some(edited) = &record.edited {
        lines.push(format!("{DIM}changed by the user to{DIM:#}\n{}", approval::whole(edited)));
    }
    if let Some(result) = &record.result {
        let word = if result.is_error { "its error" } else { "its result" };
        lines.push(format!("{DIM}{word}{DIM:#}\n{}", text::harmless(&result_text(&result.content))));
        let cost = cost::whole(&result.cost);
        if !cost.is_empty() {
            lines.push(format!("{DIM}its cost{DIM:#}\n{cost}"));
        }
    }
    lines.into_iter().try_for_each(|line| terminal.print(line)).map_err(Failure::output)?;
    Ok(Exit::Done)
}

/// Finds the call with this id. The id may omit the suffix that all call ids of the session share, as in `call_1_2_3`
/// for a call of turn 1.
async fn find(store: &dyn Store, session: &str, id: &str) -> Result<Option<CallRecord>, Failure> {
    let named = CallFilter::Ids(vec![CallId(id.to_owned())]);
    if let Some(record) = store.calls(session, named).await.map_err(Failure::failed)?.pop() {
        return Ok(Some(record));
    }
    let turn = id.strip_prefix("call_").and_then(|rest| rest.split('_').next()).and_then(|turn| turn.parse().ok());
    let Some(turn) = turn else { return Ok(None) };
    let calls = store.calls(session, CallFilter::Turn(turn)).await.map_err(Failure::failed)?;
    Ok(calls.into_iter().find(|call| call.id.is_named(id)))
}
