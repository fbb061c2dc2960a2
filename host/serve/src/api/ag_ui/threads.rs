//! Finds the session of a thread, and begins or continues its turn.

use super::input::{ResumeEntry, ResumeStatus, RunInput, UserInput};
use super::messages::snapshot;
use crate::access::Caller;
use crate::api::sessions::user_of;
use crate::problem::Problem;
use crate::state::ApiState;
use crate::tokens::Right;
use agent_core::approval::GrantScope;
use agent_core::event::{Wait, WaitCause};
use agent_core::message::CallId;
use agent_core::run::{Action, Decision, Run};
use agent_runtime::{
    ApprovalDecision, ClientResult, EventPosition, Prompt, SessionKind, SessionName, SessionRequest, TurnEvents,
    Verdict,
};
use agent_store::CallFilter;
use axum::http::StatusCode;
use serde_json::Value;
use std::collections::HashMap;

/// A run that was begun or continued.
pub(super) struct StartedRun {
    /// Id (subject) of the session.
    pub(super) session: String,
    pub(super) events: TurnEvents,
    /// Number of replies that the turn had before this run.
    pub(super) replies: u32,
    /// The name and the arguments of each call that the turn made before this run.
    pub(super) calls: HashMap<String, (String, Value)>,
    /// The messages of the thread before this run. `None` if the thread is new.
    pub(super) messages: Option<Vec<Value>>,
}

/// Begins a run: the first turn of a new thread, the next turn of a thread, or the rest of an open turn.
pub(super) async fn begin(
    state: &ApiState,
    caller: &Caller,
    agent: &str,
    input: &RunInput,
) -> Result<StartedRun, Problem> {
    let session = find(state, caller, (agent, &input.thread_id)).await?;
    let user_input = input.user_input()?;
    let resume = input.resume.as_deref().unwrap_or_default();
    let Some(session) = session else {
        let Some(user_input) = user_input.filter(|_| resume.is_empty()) else {
            return Err(Problem::invalid("this thread does not exist, so the request must contain a user message"));
        };
        let prompt = prompt_of(caller, input, &user_input)?;
        let name = thread_name(caller, &input.thread_id);
        let (session, is_new) = state.supervisor.create_once(agent, &name, prompt).await?;
        if !is_new {
            return Err(conflict("another request has just begun this thread; send the message again"));
        }
        let events = TurnEvents::new(state.supervisor.events(&session, EventPosition::default()), 1);
        return Ok(StartedRun { session, events, replies: 0, calls: HashMap::new(), messages: None });
    };
    let run = state.store().snapshot(&session).await?.and_then(|snapshot| Run::restore(Some(&snapshot)).ok());
    let Some(run) = run else { return Err(conflict("the thread is just being created; try again")) };
    let before = snapshot(state.store(), &session).await?;
    let after = state.supervisor.last_event(&session).await?;
    let open_turn = run.is_open().then_some(run.turns);
    let waits = if matches!(run.action(), Action::Suspended(_)) { run.waits() } else { Vec::new() };
    let question = waits.iter().find(|wait| matches!(wait.cause, WaitCause::Answer { .. }));
    let is_client_wait =
        |result: &ClientResult| waits.iter().any(|wait| wait.call == result.call && wait.cause == WaitCause::Client);
    let results: Vec<_> = input.results().into_iter().filter(is_client_wait).collect();
    let (events, turn) = match (open_turn, user_input) {
        (Some(turn), _) if !resume.is_empty() => {
            if !results.is_empty() {
                state.supervisor.send(&session, SessionRequest::TakeResults(results)).await?;
            }
            answer(state, caller, &session, (resume, &waits)).await?;
            (TurnEvents::new(state.supervisor.events(&session, after), turn), turn)
        }
        (Some(turn), None) if !results.is_empty() => {
            state.supervisor.send(&session, SessionRequest::TakeResults(results)).await?;
            (TurnEvents::new(state.supervisor.events(&session, after), turn), turn)
        }
        (None, _) if !resume.is_empty() => return Err(conflict("no run of this thread waits for an answer")),
        (Some(turn), Some(user_input)) => {
            let Some(question) = question else {
                let detail = "a run of this thread is open; answer its interrupts, send the results of its tools, or wait until it has ended";
                return Err(conflict(detail));
            };
            let request = SessionRequest::Answer { call: question.call.clone(), text: user_input.text };
            state.supervisor.send(&session, request).await?;
            (TurnEvents::new(state.supervisor.events(&session, after), turn), turn)
        }
        // The client joins the run, and receives all of its events.
        (Some(turn), None) => {
            let events = state.supervisor.events(&session, EventPosition::default());
            let messages = Some(before.messages);
            let (events, calls) = (TurnEvents::new(events, turn), HashMap::new());
            return Ok(StartedRun { session, events, replies: 0, calls, messages });
        }
        (None, Some(user_input)) => {
            let prompt = prompt_of(caller, input, &user_input)?;
            let events = state.supervisor.begin(&session, prompt).await?;
            let turn = events.turn();
            (events, turn)
        }
        (None, None) => return Err(Problem::invalid("the request contains no new user message")),
    };
    let calls = state.store().calls(&session, CallFilter::Turn(turn)).await?;
    let calls = calls.into_iter().map(|call| (call.id.0.clone(), (call.name.clone(), call.arguments)));
    let (replies, calls) = (before.replies.get(&turn).copied().unwrap_or_default(), calls.collect());
    Ok(StartedRun { session, events, replies, calls, messages: Some(before.messages) })
}

/// Returns the prompt with which a run begins.
fn prompt_of(caller: &Caller, input: &RunInput, user_input: &UserInput) -> Result<Prompt, Problem> {
    let (attachments, client_tools) = (user_input.attachments.clone(), input.client_tools());
    let prompt = Prompt::new(user_input.prompt());
    Ok(Prompt { user: user_of(caller, None)?, attachments, client_tools, trace: caller.trace.clone(), ..prompt })
}

/// Finds the session of a thread: a session that the token may use and that has the thread's id as its own id, or else the
/// session that the token has begun for this thread.
async fn find(state: &ApiState, caller: &Caller, (agent, thread): (&str, &str)) -> Result<Option<String>, Problem> {
    let named = format!("{agent}/{}", thread_name(caller, thread));
    for session in [thread, &named] {
        match state.session(caller, session).await {
            Ok(found) if found.agent == agent && found.revision > 0 => {
                // The stream begins with the messages of the session, which another client may have begun.
                if session == thread {
                    caller.require(Right::Read)?;
                }
                return Ok(Some(found.subject));
            }
            Ok(_) => {}
            Err(problem) if problem.status == StatusCode::NOT_FOUND.as_u16() => {}
            Err(problem) => return Err(problem),
        }
    }
    Ok(None)
}

/// Returns the name of the session for a thread. Another token, or another user, has another session for the same thread.
fn thread_name(caller: &Caller, thread: &str) -> SessionName {
    let user = caller.token.user.as_deref().unwrap_or_default();
    SessionName::new(SessionKind::AgUi, &format!("{}\0{user}\0{thread}", caller.token.name))
}

/// Answers the interrupts of a run that waits.
async fn answer(
    state: &ApiState,
    caller: &Caller,
    session: &str,
    (resume, waits): (&[ResumeEntry], &[Wait]),
) -> Result<(), Problem> {
    let (mut decisions, mut requests) = (Vec::new(), Vec::new());
    for entry in resume {
        let wait = waits.iter().find(|wait| wait.call.0 == entry.interrupt_id).ok_or_else(|| {
            conflict(&format!("the run does not wait for an answer to the interrupt `{}`", entry.interrupt_id))
        })?;
        match &wait.cause {
            WaitCause::Approval { .. } => {
                caller.require(Right::Approve)?;
                decisions.push(decision(entry, wait.call.clone())?);
            }
            WaitCause::OutcomeUnknown => {
                caller.require(Right::Approve)?;
                let decision = outcome(entry)?;
                requests.push(SessionRequest::Resolve { call: wait.call.clone(), decision });
            }
            WaitCause::Answer { .. } if entry.status == ResumeStatus::Cancelled => {
                requests.push(SessionRequest::Cancel)
            }
            WaitCause::Answer { .. } => {
                let text = text_of(entry.payload.as_ref(), "answer");
                let text =
                    text.ok_or_else(|| Problem::invalid("the answer must be a text, or `{\"answer\": \"…\"}`"))?;
                requests.push(SessionRequest::Answer { call: wait.call.clone(), text });
            }
            WaitCause::Client => return Err(conflict("a message with the role `tool` answers this call")),
            WaitCause::Service { .. } | WaitCause::Agent { .. } => {
                return Err(conflict("a service or another agent answers this call, not the front end"));
            }
        }
    }
    if !decisions.is_empty() {
        requests.insert(0, SessionRequest::Approve(decisions));
    }
    for request in requests {
        state.supervisor.send(session, request).await?;
    }
    Ok(())
}

/// Reads the decision about a call: `{"approved": true}`, with `arguments` if they were changed, or with a `reason`.
fn decision(entry: &ResumeEntry, call: CallId) -> Result<ApprovalDecision, Problem> {
    let payload = entry.payload.as_ref().unwrap_or(&Value::Null);
    let reason = payload["reason"].as_str().map(str::to_owned);
    let approved = match entry.status {
        ResumeStatus::Cancelled => Some(false),
        ResumeStatus::Resolved => payload.as_bool().or(payload["approved"].as_bool()),
    };
    let detail = "the answer to an approval must be `{\"approved\": true}` or `{\"approved\": false}`";
    let verdict = match approved.ok_or_else(|| Problem::invalid(detail))? {
        true => Verdict::Allow { scope: GrantScope::Once, edited: payload.get("arguments").cloned() },
        false => Verdict::Deny { reason },
    };
    Ok(ApprovalDecision { call, verdict })
}

/// Reads the decision about a call whose outcome is unknown.
fn outcome(entry: &ResumeEntry) -> Result<Decision, Problem> {
    let payload = entry.payload.as_ref().unwrap_or(&Value::Null);
    let text = || payload["text"].as_str().unwrap_or("a person has looked at it").to_owned();
    match (entry.status, payload["decision"].as_str()) {
        (ResumeStatus::Cancelled, _) | (_, Some("failed")) => Ok(Decision::Failed(text())),
        (_, Some("retry")) => Ok(Decision::Retry),
        (_, Some("result")) => Ok(Decision::Result(text())),
        _ => Err(Problem::invalid("the answer must be `{\"decision\": \"retry\"}`, `\"failed\"` or `\"result\"`")),
    }
}

fn text_of(payload: Option<&Value>, key: &str) -> Option<String> {
    let payload = payload?;
    payload.as_str().or(payload[key].as_str()).filter(|text| !text.trim().is_empty()).map(str::to_owned)
}

fn conflict(detail: &str) -> Problem {
    Problem::new(StatusCode::CONFLICT, "conflict", detail)
}
