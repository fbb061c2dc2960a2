//! `session approve` and `session deny`: answers a session's approval requests, and continues the turn (L17).

use super::sent;
use crate::arguments::RunArguments;
use crate::arguments::approval::{AnswerArguments, ApproveArguments, DenyArguments, Edit};
use crate::commands::agent_settings;
use crate::commands::open_session::{OpenedFor, OpenedSession, open_in};
use crate::commands::run;
use crate::commands::stored_sessions::find_open;
use crate::commands::user_presence::UserPresence;
use crate::exit::{Exit, Failure};
use crate::interrupt::{Activity, Interrupts};
use crate::terminal::Terminal;
use crate::terminal::suspension::last_suspension;
use agent_config::DataDirectory;
use agent_core::event::WaitCause;
use agent_core::message::CallId;
use agent_core::run::TurnEnd;
use agent_runtime::{ApprovalDecision, Session, SessionRequest, Verdict};
use agent_store::Store;
use serde_json::json;
use std::sync::Arc;

/// Runs `session approve`.
pub(super) async fn approve(
    options: ApproveArguments,
    store: Arc<dyn Store>,
    data: &DataDirectory,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let ApproveArguments { answer, scope, edit } = options;
    let verdict = |call: &CallId| {
        let edited = edit.iter().find(|edit| call.is_named(&edit.call)).map(|edit| edit.arguments.clone());
        Verdict::Allow { scope: scope.into(), edited }
    };
    answer_requests(answer, (&verdict, &edit), (store, data), terminal).await
}

/// A function that returns the user's verdict about a call.
type VerdictOfCall<'d> = &'d dyn Fn(&CallId) -> Verdict;

/// Runs `session deny`.
pub(super) async fn deny(
    options: DenyArguments,
    store: Arc<dyn Store>,
    data: &DataDirectory,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let DenyArguments { answer, reason } = options;
    let verdict = |_: &CallId| Verdict::Deny { reason: reason.clone() };
    answer_requests(answer, (&verdict, &[]), (store, data), terminal).await
}

async fn answer_requests(
    options: AnswerArguments,
    (verdict, edits): (VerdictOfCall<'_>, &[Edit]),
    (store, data): (Arc<dyn Store>, &DataDirectory),
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    // The process that has the session open would run the calls at once.
    if !options.no_run && is_decided_by_holder(&*store, &options, (verdict, edits), data, terminal).await? {
        return Ok(Exit::Done);
    }
    drop(store);
    let AnswerArguments { session, calls, no_run, json, agent } = options;
    let arguments = RunArguments { agent, session: Some(session), json, ..RunArguments::default() };
    let interrupts = Interrupts::listen(terminal.clone());
    let cancel = interrupts.begin(Activity::Turn);
    let user = if json { UserPresence::Absent } else { UserPresence::of(terminal) };
    let settings = agent_settings::settings(&arguments.agent, data.location(), user, terminal).await?;
    let mut opened = tokio::select! {
        opened = open_in(&arguments, (settings, data.clone()), OpenedFor::AnAnswer, terminal) => opened?,
        () = cancel.cancelled() => return Ok(Exit::Cancelled),
    };
    interrupts.kill_servers_on_exit(opened.agents.servers());
    opened.session.prepare_decision(&cancel).await.map_err(Failure::failed)?;
    if cancel.is_cancelled() {
        opened.session.close().await.map_err(Failure::failed)?;
        opened.agents.agent.current().servers().shutdown().await;
        return Ok(Exit::Cancelled);
    }
    if let Err(failure) = decide(&mut opened.session, &calls, (verdict, edits)).await {
        opened.session.close().await.map_err(Failure::failed)?;
        opened.agents.agent.current().servers().shutdown().await;
        return Err(failure);
    }
    if no_run {
        return close_without_running(opened, data, terminal).await;
    }
    run::run_once(opened, (run::format(&arguments, terminal), None), (&[], &cancel), terminal).await
}

/// Stores the user's verdict on each call that the user named. If the user did not name a call, stores the verdict for
/// all waiting calls.
async fn decide(
    session: &mut Session,
    calls: &[String],
    (verdict, edits): (VerdictOfCall<'_>, &[Edit]),
) -> Result<(), Failure> {
    let waiting = session.pending_approvals().await.map_err(Failure::failed)?;
    if let Some(TurnEnd::Failed(error)) = session.state().turn.as_ref().and_then(|turn| turn.end()) {
        let subject = session.subject();
        return Err(Failure::failed(format!(
            "the turn of session {subject} has already ended, so nothing was decided: {error}"
        )));
    }
    let waiting: Vec<_> = waiting.into_iter().map(|item| (item.call, item.name)).collect();
    let decisions = decisions((session.subject(), &waiting), calls, (verdict, edits))?;
    session.approve(decisions).await.map_err(Failure::refused)
}

/// A call that waits for an approval, and the name of its tool.
type WaitingCall = (CallId, String);

/// Returns the verdict on each call that the user named, or on all waiting calls.
fn decisions(
    (session, waiting): (&str, &[WaitingCall]),
    calls: &[String],
    (verdict, edits): (VerdictOfCall<'_>, &[Edit]),
) -> Result<Vec<ApprovalDecision>, Failure> {
    let selected = select_calls(session, waiting, calls)?;
    if let Some(edit) = edits.iter().find(|edit| !selected.iter().any(|call| call.is_named(&edit.call))) {
        return Err(unknown_call(session, &edit.call, waiting));
    }
    Ok(selected.into_iter().map(|call| ApprovalDecision { verdict: verdict(&call), call }).collect())
}

/// Lets the process that has the session open take the verdicts and continue the turn. Returns false if no process has the
/// session open, or if its process takes no requests.
async fn is_decided_by_holder(
    store: &dyn Store,
    options: &AnswerArguments,
    (verdict, edits): (VerdictOfCall<'_>, &[Edit]),
    data: &DataDirectory,
    terminal: &Terminal,
) -> Result<bool, Failure> {
    let session = find_open(store, data, &options.session).await?;
    let Some(suspension) = last_suspension(store, &session.subject).await? else { return Ok(false) };
    let waits = suspension.waits.into_iter().filter(|wait| matches!(wait.cause, WaitCause::Approval { .. }));
    let waiting: Vec<_> = waits.map(|wait| (wait.call, wait.name)).collect();
    if session.open_in.is_none() || waiting.is_empty() {
        return Ok(false);
    }
    let decisions = decisions((&session.subject, &waiting), &options.calls, (verdict, edits))?;
    let is_sent = sent::send(store, &session, &SessionRequest::Approve(decisions), terminal).await?.is_some();
    if is_sent && options.json {
        let line = json!({"type": "stored", "session": session.subject});
        terminal.print(line.to_string()).map_err(Failure::output)?;
    } else if is_sent {
        terminal.note(format!("stored; {}", sent::continued_by(&session)));
    }
    Ok(is_sent)
}

/// Returns the full ids of the calls that the user named. The user may write the session's id before a call id. If no
/// call is named, returns all waiting calls.
fn select_calls(session: &str, waiting: &[WaitingCall], calls: &[String]) -> Result<Vec<CallId>, Failure> {
    if waiting.is_empty() {
        return Err(Failure::refused(format!("session {session} is not waiting for an approval")));
    }
    if calls.is_empty() {
        return Ok(waiting.iter().map(|(call, _)| call.clone()).collect());
    }
    let id = |call: &String| {
        let id = call.strip_prefix(session).and_then(|rest| rest.strip_prefix('/')).unwrap_or(call);
        let found = waiting.iter().find(|(call, _)| call.is_named(id));
        found.map(|(call, _)| call.clone()).ok_or_else(|| unknown_call(session, call, waiting))
    };
    calls.iter().map(id).collect()
}

fn unknown_call(session: &str, call: &str, waiting: &[WaitingCall]) -> Failure {
    let waiting: Vec<_> = waiting.iter().map(|(call, name)| format!("{call} ({name})")).collect();
    let waiting = waiting.join(", ");
    Failure::refused(format!(
        "`{call}` is not waiting for an approval in session {session}; these calls are waiting: {waiting}"
    ))
}

async fn close_without_running(
    opened: OpenedSession,
    data: &DataDirectory,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let session = opened.session.subject().to_owned();
    opened.session.close().await.map_err(Failure::failed)?;
    opened.agents.agent.current().servers().shutdown().await;
    let flag = data.flag();
    terminal
        .note(format!("stored; continue with agent-host --session {session}{flag}, and the same options as before"));
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(call: &str) -> WaitingCall {
        (CallId(call.into()), "pay".into())
    }

    #[test]
    fn l17_select_calls_accepts_ids_with_and_without_the_session() {
        let waiting = [item("call_1_1_1"), item("call_1_1_2")];
        let select = |calls: &[&str]| {
            let calls: Vec<_> = calls.iter().map(|call| (*call).to_owned()).collect();
            let selected = select_calls("agent/01", &waiting, &calls).map_err(|failure| failure.message)?;
            Ok::<_, String>(selected.into_iter().map(|call| call.0).collect::<Vec<_>>())
        };
        assert_eq!(select(&[]), Ok(vec!["call_1_1_1".to_owned(), "call_1_1_2".to_owned()]));
        assert_eq!(select(&["agent/01/call_1_1_2"]), Ok(vec!["call_1_1_2".to_owned()]));
        assert!(select(&["call_9"]).expect_err("unknown").contains("call_1_1_1 (pay), call_1_1_2 (pay)"));
        assert!(select(&["other/02/call_1_1_1"]).is_err(), "another session's");
        assert!(select_calls("agent/01", &[], &[]).is_err());
    }
}
