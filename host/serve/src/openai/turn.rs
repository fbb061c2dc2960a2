//! Begins or continues the turn of a request, and follows it until it ends or waits for somebody.

use super::client_tools::{ClientCall, SessionResults};
use super::conversation::ClientInput;
use super::error::OpenAiError;
use crate::access::{Caller, single};
use crate::problem::Problem;
use crate::state::{ApiState, OpenStream};
use crate::tokens::Right;
use agent_core::change::CallRecord;
use agent_core::event::{EventKind, Wait, WaitCause};
use agent_core::message::{CallId, Role};
use agent_core::run::{Action, Run};
use agent_runtime::{
    Accepted, ApprovalDecision, EventPosition, Prompt, SessionRequest, Supervisor, TurnEvents, TurnUpdate, UserName,
    Verdict,
};
use agent_store::{CallFilter, MessageRange, SessionSummary, Store};
use axum::http::{HeaderMap, StatusCode};
use futures::FutureExt;
use futures::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Interval;

/// Time between two checks whether the token still exists, and whether a turn that works through other agents waits.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum depth of delegated sessions that are searched for what they wait for.
const MAX_DELEGATION: usize = 8;

/// What happens to a turn whose client disconnects before the reply is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnDisconnect {
    /// The turn is cancelled, because nobody can find its result.
    Cancel,
    /// The turn continues.
    Continue,
}

/// How a turn is begun or continued.
pub(super) enum Start {
    /// Begin a new session of this agent.
    NewSession { agent: String, input: ClientInput },
    /// Begin the next turn of a session, or answer the question that its turn asks.
    NextTurn { session: String, input: ClientInput },
    /// Continue a turn with the results of the client's tools.
    TakeResults(SessionResults),
    /// Decide about calls that wait for an approval, and follow the turn that continues.
    Decide { session: String, decisions: Vec<ApprovalDecision> },
}

/// A wait of a turn, or of a session to which the turn delegates.
#[derive(Clone, Debug)]
pub(super) struct OpenWait {
    pub(super) session: String,
    pub(super) wait: Wait,
}

/// What happened in a turn.
#[expect(clippy::large_enum_variant, reason = "each step is moved once, to the reader")]
pub(super) enum Step {
    /// An update, which is not the end of the reply unless it is the end of the turn.
    Update(TurnUpdate),
    /// The turn waits for somebody outside of this server. The reply ends.
    Waits(Vec<OpenWait>),
}

/// A turn that is followed.
pub(super) struct FollowedTurn {
    pub(super) session: String,
    pub(super) turn: u32,
    /// Sequence number of the first event of the reply.
    pub(super) first_event: u64,
    state: Arc<ApiState>,
    caller: Caller,
    events: TurnEvents,
    first: Option<Step>,
    /// Sequence number of the last stored event that was seen.
    last_event: u64,
    /// Whether the turn waits only for agents of this server, which end without anybody's help.
    waits_for_agents: bool,
    /// Whether the turn may wait without an event, because the request answered only a part of what the turn waits for.
    may_still_wait: bool,
    is_over: bool,
    next_check: Interval,
    guard: CancelGuard,
    _open: OpenStream,
}

/// Returns the value of the header that names a session.
pub(super) fn session_of(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    Ok(single(headers, super::SESSION_HEADER)?.map(str::to_owned))
}

/// Begins or continues a turn. If this future is dropped, the turn is begun nevertheless, and is then cancelled if the client
/// wants it.
pub(super) async fn start(
    state: &Arc<ApiState>,
    caller: &Caller,
    start: Start,
    on_disconnect: OnDisconnect,
) -> Result<FollowedTurn, OpenAiError> {
    let open = state.replies.open(caller)?;
    let (state, caller) = (state.clone(), caller.clone());
    let started = tokio::spawn(async move { begin(state, caller, start, (on_disconnect, open)).boxed().await });
    started.await.unwrap_or_else(|error| {
        tracing::error!(%error, "a turn was not begun");
        Err(OpenAiError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "failed",
            "the host failed; its log contains the reason",
        ))
    })
}

/// Follows a turn from this event on, until it ends or waits for somebody. The turn continues if the client disconnects.
pub(super) fn follow(
    state: &Arc<ApiState>,
    caller: &Caller,
    session: String,
    (turn, first_event): (u32, u64),
) -> Result<FollowedTurn, OpenAiError> {
    let open = state.replies.open(caller)?;
    let before = EventPosition { sequence: first_event.saturating_sub(1), provisional: 0 };
    let events = TurnEvents::new(state.supervisor.events(&session, before), turn);
    let progress = Progress { last_event: before.sequence, may_still_wait: false };
    let mut followed =
        FollowedTurn::new((state.clone(), caller.clone()), session, (events, progress), (OnDisconnect::Continue, open));
    followed.first_event = first_event;
    Ok(followed)
}

async fn begin(
    state: Arc<ApiState>,
    caller: Caller,
    start: Start,
    (on_disconnect, open): (OnDisconnect, OpenStream),
) -> Result<FollowedTurn, OpenAiError> {
    let supervisor = &state.supervisor;
    let (session, events, progress) = match start {
        Start::NewSession { agent, input } => {
            let (session, events) = supervisor.begin_session(&agent, prompt(input, &caller)?).await?;
            (session, events, Progress::default())
        }
        Start::NextTurn { session, input } => {
            let in_session = |error: OpenAiError| error.in_session(&session);
            let (events, progress) = next_turn(&state, &caller, &session, input).await.map_err(in_session)?;
            (session, events, progress)
        }
        Start::TakeResults(SessionResults { session, results }) => {
            let in_session = |error: OpenAiError| error.in_session(&session);
            let turn = stored_run(state.store(), &session).await?.map_or(0, |run| run.turns);
            let request = SessionRequest::TakeResults(results);
            let (events, progress) = continue_turn(&state, &session, request, turn).await.map_err(in_session)?;
            (session, events, progress)
        }
        Start::Decide { session, decisions } => {
            let in_session = |error: OpenAiError| error.in_session(&session);
            let (events, progress) = decide(&state, &caller, &session, decisions).await.map_err(in_session)?;
            (session, events, progress)
        }
    };
    let mut followed = FollowedTurn::new((state, caller), session, (events, progress), (on_disconnect, open));
    let first = followed.next().await?;
    if let Some(Step::Update(TurnUpdate::Event(event))) = &first {
        followed.first_event = event.sequence;
    }
    followed.first = first;
    Ok(followed)
}

/// Returns the user for whom the prompts of a token work.
fn user_of(caller: &Caller) -> Result<Option<UserName>, Problem> {
    caller.token.user.as_deref().map(|user| UserName::new(user).map_err(Problem::invalid)).transpose()
}

fn prompt(input: ClientInput, caller: &Caller) -> Result<Prompt, Problem> {
    let ClientInput { input, attachments, tools, after_turn, .. } = input;
    let (user, trace) = (user_of(caller)?, caller.trace.clone());
    Ok(Prompt { attachments, user, client_tools: tools, after_turn, trace, ..Prompt::new(input) })
}

/// Where the reply of a continued turn begins.
#[derive(Default)]
struct Progress {
    last_event: u64,
    may_still_wait: bool,
}

/// Begins the next turn of a session. If its turn waits for the answer to a question, the text of the user is the answer.
async fn next_turn(
    state: &ApiState,
    caller: &Caller,
    session: &str,
    input: ClientInput,
) -> Result<(TurnEvents, Progress), OpenAiError> {
    let run = stored_run(state.store(), session).await?;
    let waits = run.as_ref().map(Run::waits).unwrap_or_default();
    let question = waits.iter().find(|wait| matches!(wait.cause, WaitCause::Answer { .. }));
    let Some(Wait { call, .. }) = question else {
        if !waits.is_empty() {
            let message = format!(
                "the turn of this session waits and accepts no message: {}",
                describe(&own_waits(session, waits))
            );
            return Err(OpenAiError::new(StatusCode::CONFLICT, "turn_waits", message));
        }
        let events = state.supervisor.begin(session, prompt(input, caller)?).await?;
        return Ok((events, Progress::default()));
    };
    if !input.attachments.is_empty() {
        let message = "the turn waits for the answer to a question, which can only be a text";
        return Err(OpenAiError::invalid("messages", message));
    }
    let request = SessionRequest::Answer { call: call.clone(), text: input.text };
    continue_turn(state, session, request, run.map_or(0, |run| run.turns)).await
}

/// Decides about calls of the open turn.
async fn decide(
    state: &ApiState,
    caller: &Caller,
    session: &str,
    decisions: Vec<ApprovalDecision>,
) -> Result<(TurnEvents, Progress), OpenAiError> {
    caller.require(Right::Approve)?;
    let run = stored_run(state.store(), session).await?;
    let waits = run.as_ref().map(Run::waits).unwrap_or_default();
    let is_asked =
        |call: &CallId| waits.iter().any(|wait| wait.call == *call && matches!(wait.cause, WaitCause::Approval { .. }));
    if let Some(decision) = decisions.iter().find(|decision| !is_asked(&decision.call)) {
        let message = format!("no call with the id `{}` waits for an approval", decision.call);
        return Err(OpenAiError::new(StatusCode::CONFLICT, "not_waiting", message));
    }
    continue_turn(state, session, SessionRequest::Approve(decisions), run.map_or(0, |run| run.turns)).await
}

async fn continue_turn(
    state: &ApiState,
    session: &str,
    request: SessionRequest,
    turn: u32,
) -> Result<(TurnEvents, Progress), OpenAiError> {
    let last = state.supervisor.last_event(session).await?;
    let accepted = state.supervisor.send(session, request).await?;
    if matches!(accepted, Accepted::Late | Accepted::Duplicate) {
        let message = "the turn no longer waits for this";
        return Err(OpenAiError::new(StatusCode::CONFLICT, "not_waiting", message));
    }
    let may_still_wait = matches!(accepted, Accepted::Stored { waits, .. } if !waits.is_empty());
    let events = TurnEvents::new(state.supervisor.events(session, last), turn);
    Ok((events, Progress { last_event: last.sequence, may_still_wait }))
}

/// Creates a decision about a call, as a client sends it.
pub(super) fn decision(call: String, is_approved: bool, reason: Option<String>) -> ApprovalDecision {
    let verdict = match is_approved {
        true => Verdict::Allow { scope: Default::default(), edited: None },
        false => Verdict::Deny { reason },
    };
    ApprovalDecision { call: CallId(call), verdict }
}

/// Reads the state of a session. `None` if no turn has begun.
pub(super) async fn stored_run(store: &dyn Store, session: &str) -> Result<Option<Run>, OpenAiError> {
    let snapshot = store.snapshot(session).await?;
    Ok(snapshot.and_then(|snapshot| Run::restore(Some(&snapshot)).ok()))
}

/// Returns the waits of a session as open waits.
pub(super) fn own_waits(session: &str, waits: Vec<Wait>) -> Vec<OpenWait> {
    waits.into_iter().map(|wait| OpenWait { session: session.to_owned(), wait }).collect()
}

impl FollowedTurn {
    fn new(
        (state, caller): (Arc<ApiState>, Caller),
        session: String,
        (events, progress): (TurnEvents, Progress),
        (on_disconnect, open): (OnDisconnect, OpenStream),
    ) -> Self {
        let guard = CancelGuard {
            supervisor: state.supervisor.clone(),
            session: session.clone(),
            turn: events.turn(),
            is_armed: on_disconnect == OnDisconnect::Cancel,
        };
        Self {
            turn: events.turn(),
            first_event: progress.last_event,
            session,
            caller,
            events,
            first: None,
            last_event: progress.last_event,
            waits_for_agents: false,
            may_still_wait: progress.may_still_wait,
            is_over: false,
            next_check: tokio::time::interval(CHECK_INTERVAL),
            guard,
            _open: open,
            state,
        }
    }

    /// Waits for the next step. Returns `None` when the reply is complete. Dropping the future loses no step.
    pub(super) async fn next(&mut self) -> Result<Option<Step>, OpenAiError> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        while !self.is_over {
            let update = tokio::select! {
                biased;
                () = self.state.draining.cancelled() => {
                    // Open turns continue at the next start.
                    self.guard.is_armed = false;
                    let message = "the server is shutting down; the turn continues at its next start";
                    return Err(self.failed(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message));
                }
                _ = self.next_check.tick() => {
                    match self.check().boxed().await? {
                        waits if waits.is_empty() => continue,
                        waits => return Ok(Some(self.ended_with(waits))),
                    }
                }
                update = self.events.next() => update?,
            };
            let Some(update) = update else { break };
            if let TurnUpdate::Event(event) = &update {
                (self.last_event, self.may_still_wait) = (event.sequence, false);
                self.waits_for_agents = false;
                match &event.kind {
                    EventKind::Suspended { suspension } => {
                        if suspension.waits.iter().all(|wait| matches!(wait.cause, WaitCause::Agent { .. })) {
                            self.events.resume();
                            self.waits_for_agents = true;
                            continue;
                        }
                        return Ok(Some(self.ended_with(own_waits(&self.session, suspension.waits.clone()))));
                    }
                    EventKind::LoopEnd { .. } => (self.is_over, self.guard.is_armed) = (true, false),
                    _ => {}
                }
            }
            return Ok(Some(Step::Update(update)));
        }
        Ok(None)
    }

    fn ended_with(&mut self, waits: Vec<OpenWait>) -> Step {
        (self.is_over, self.guard.is_armed) = (true, false);
        Step::Waits(waits)
    }

    fn failed(&self, status: StatusCode, code: &'static str, message: &str) -> OpenAiError {
        OpenAiError::new(status, code, message).never_repeated().in_session(&self.session)
    }

    /// Checks that the token still exists. Returns what the turn waits for, if it waits for somebody outside of this server
    /// although no event has told it.
    async fn check(&self) -> Result<Vec<OpenWait>, OpenAiError> {
        if !self.state.is_still_valid(&self.caller) {
            return Err(self.failed(StatusCode::UNAUTHORIZED, "invalid_api_key", "the token was revoked"));
        }
        if self.waits_for_agents {
            return open_waits(self.state.store(), &self.session, MAX_DELEGATION).await;
        }
        if self.may_still_wait
            && let Some(run) = stored_run(self.state.store(), &self.session).await?
            && run.turns == self.turn
            && run.sequence == self.last_event
            && let Action::Suspended(suspension) = run.action()
        {
            return Ok(own_waits(&self.session, suspension.waits));
        }
        Ok(Vec::new())
    }

    /// Returns the calls that the client must run, in the order in which the model wrote them.
    pub(super) async fn client_calls(&self, waits: &[OpenWait]) -> Result<Vec<ClientCall>, OpenAiError> {
        let own = waits.iter().filter(|open| is_for_client(&self.session, open));
        let ids: Vec<CallId> = own.map(|open| open.wait.call.clone()).collect();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let records = self.state.store().calls(&self.session, CallFilter::Ids(ids.clone())).await?;
        let records = ids.iter().filter_map(|id| records.iter().find(|record| record.id == *id));
        let call = |record: &CallRecord| {
            ClientCall::new(&self.session, &record.id, &record.name, record.effective_arguments())
        };
        Ok(records.map(call).collect())
    }

    /// Returns the text of the turn's output, after the turn has ended.
    pub(super) async fn output(&self) -> Result<Option<String>, OpenAiError> {
        let summary = self.state.session(&self.caller, &self.session).await?;
        output_of(self.state.store(), &summary, self.turn).await
    }
}

/// Returns what this turn of a session waits for outside of this server. The list is empty if the turn works or has ended.
pub(super) async fn open_waits_of(store: &dyn Store, session: &str, turn: u32) -> Result<Vec<OpenWait>, OpenAiError> {
    let is_current = stored_run(store, session).await?.is_some_and(|run| run.turns == turn);
    if is_current { open_waits(store, session, MAX_DELEGATION).await } else { Ok(Vec::new()) }
}

/// Returns the waits of a session for somebody outside of this server, and those of the sessions to which it delegates.
fn open_waits<'s>(
    store: &'s dyn Store,
    session: &'s str,
    depth: usize,
) -> BoxFuture<'s, Result<Vec<OpenWait>, OpenAiError>> {
    async move {
        let Some(run) = stored_run(store, session).await? else { return Ok(Vec::new()) };
        let Action::Suspended(suspension) = run.action() else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for wait in suspension.waits {
            match &wait.cause {
                WaitCause::Agent { session: child } if depth > 0 => {
                    found.extend(open_waits(store, child, depth - 1).await?);
                }
                WaitCause::Agent { .. } => {}
                _ => found.push(OpenWait { session: session.to_owned(), wait }),
            }
        }
        Ok(found)
    }
    .boxed()
}

/// Returns the text of the last message of a turn, which is the output of the turn. The messages of a session are numbered from
/// 1 and ordered by turn, so the message is found by bisection.
pub(super) async fn output_of(
    store: &dyn Store,
    session: &SessionSummary,
    turn: u32,
) -> Result<Option<String>, OpenAiError> {
    let message = async |id: u64| -> Result<_, OpenAiError> {
        let range = MessageRange::After { id: id.saturating_sub(1), limit: 1 };
        Ok(store.messages(&session.subject, range).await?.pop())
    };
    let (mut low, mut high) = (0, session.messages);
    // The last message of the turn has the highest id among the messages whose turn is at most `turn`.
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        match message(middle).await? {
            Some(found) if found.turn <= turn => low = middle,
            _ => high = middle - 1,
        }
    }
    let last = if low == 0 { None } else { message(low).await? };
    let answer = last.filter(|found| found.turn == turn && found.role == Role::Assistant);
    Ok(answer.map(|answer| {
        let message = agent_core::message::Message { role: answer.role, parts: answer.parts, seen_count: 0 };
        message.plain_text()
    }))
}

/// Describes what a turn waits for, for a person who reads the reply.
pub(super) fn describe(waits: &[OpenWait]) -> String {
    if let [OpenWait { wait: Wait { cause: WaitCause::Answer { question, .. }, .. }, .. }] = waits {
        return question.clone();
    }
    let lines = waits.iter().map(|OpenWait { session, wait }| {
        let what = match &wait.cause {
            WaitCause::Approval { .. } => "waits for an approval",
            WaitCause::Service { .. } => "waits for the answer of a service",
            WaitCause::OutcomeUnknown => "waits for a decision, because its outcome is unknown",
            WaitCause::Agent { .. } => "waits for another agent",
            WaitCause::Client => "waits for the result of the client that offers the tool",
            WaitCause::Answer { question, .. } => return format!("{question} (session `{session}`)"),
        };
        format!("The call `{}` of `{}` in session `{session}` {what}.", wait.call, wait.name)
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns whether a wait is for the client that began the turn of this session.
pub(super) fn is_for_client(session: &str, open: &OpenWait) -> bool {
    open.session == session && open.wait.cause == WaitCause::Client
}

/// Returns a word for what a turn waits for.
pub(super) fn reason(waits: &[OpenWait]) -> &'static str {
    let has = |is_cause: fn(&WaitCause) -> bool| waits.iter().any(|open| is_cause(&open.wait.cause));
    match () {
        () if has(|cause| matches!(cause, WaitCause::Approval { .. })) => "approval_required",
        () if has(|cause| matches!(cause, WaitCause::Answer { .. })) => "answer_required",
        () if has(|cause| matches!(cause, WaitCause::OutcomeUnknown)) => "decision_required",
        () => "waits_for_service",
    }
}

/// Cancels the turn when it is dropped, unless it is disarmed.
struct CancelGuard {
    supervisor: Supervisor,
    session: String,
    turn: u32,
    is_armed: bool,
}

impl Drop for CancelGuard {
    fn drop(&mut self) {
        let Ok(runtime) = Handle::try_current() else { return };
        if !self.is_armed {
            return;
        }
        let (supervisor, session, turn) = (self.supervisor.clone(), self.session.clone(), self.turn);
        runtime.spawn(async move {
            // Another client may have begun another turn in the meantime.
            let run = stored_run(&*supervisor.host().store, &session).await.ok().flatten();
            if run.is_some_and(|run| run.turns == turn && run.is_open())
                && let Err(error) = supervisor.send(&session, SessionRequest::Cancel).await
            {
                tracing::warn!(session, %error, "the turn of a client that disconnected was not cancelled");
            }
        });
    }
}
