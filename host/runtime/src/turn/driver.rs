//! The driver repeatedly asks the session's run for the next action, performs the action, and applies its outcome to
//! the run.

mod dispatch;
mod during_action;

use super::action::{ActionContext, ActionResult};
use super::calls::{CallOutcome, CompletedCall, PendingCall};
use super::children::Children;
use super::context::build_context;
use super::model_step::call_model;
use super::service_request::take_service_request;
use super::summary::summarise;
use super::validation::validate;
use crate::outbox::{DeferredDelivery, deliver_session};
use crate::records::CommitNotes;
use crate::requests::{Accepted, PendingRequest, SessionRequest};
use crate::session::{Session, SessionError, TurnResult};
use crate::waiting::FirstUseQuestions;
use agent_core::change::Change;
use agent_core::message::CallId;
use agent_core::run::{Action, Input, TurnError};
use agent_store::StoreError;
use dispatch::Dispatched;
use during_action::handle_during_action;
use futures::FutureExt;
use futures::future::BoxFuture;
use std::pin::pin;
use std::time::Duration;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

/// Maximum time for which the process waits for running calls after it has begun to shut down.
const SHUTDOWN_GRACE: Duration = Duration::from_millis(500);

/// The tool calls that are running now, each in its own task.
pub(super) type RunningCalls = JoinSet<(CallId, Result<CompletedCall, TurnError>)>;

/// Drives one turn of a session.
pub(super) struct Driver<'s> {
    session: &'s mut Session,
    running: RunningCalls,
    children: Children,
    questions: FirstUseQuestions,
    cancel: &'s CancellationToken,
}

/// A message that the driver receives from a running call or from a child session: a result or a service request.
#[expect(clippy::large_enum_variant, reason = "only one value exists at a time, and values are not stored")]
enum DriverEvent {
    Result(ActionResult),
    /// A plugin has requested a service.
    ServiceRequest(Box<PendingCall>),
}

/// Drives the open turn until it ends, waits, or is cancelled. The future is boxed, because the function also calls
/// itself to drive child turns.
pub(super) fn drive<'s>(
    session: &'s mut Session,
    cancel: &'s CancellationToken,
) -> BoxFuture<'s, Result<TurnResult, SessionError>> {
    let driven = async move {
        session.was_interrupted = true;
        // A request can cancel this turn, but must not cancel other turns that share the caller's token.
        let cancel = &cancel.child_token();
        let (running, children) = (RunningCalls::new(), Children::new(cancel));
        let questions = FirstUseQuestions::default();
        let mut driver = Driver { session, running, children, questions, cancel };
        let result = driver.drive().await;
        driver.session.was_interrupted = !matches!(&result, Ok(ended) if *ended != TurnResult::Interrupted);
        if result.is_err() {
            // After an error, this session can no longer process the results of its child sessions.
            driver.children.stop().await;
        }
        result
    };
    driven.boxed()
}

impl Driver<'_> {
    async fn drive(&mut self) -> Result<TurnResult, SessionError> {
        let leaving = self.session.services.leaving.clone();
        loop {
            if leaving.is_cancelled() && self.session.run.is_open() {
                return self.leave_turn_open().await;
            }
            self.handle_requests().await;
            if !self.cancel.is_cancelled() {
                self.children.start(self.session, self.running.len()).await?;
            }
            let result = match self.session.run.action() {
                Action::Idle => return Ok(TurnResult::Idle),
                Action::Ended => return self.finished().await,
                _ if self.cancel.is_cancelled() => Ok((Input::Cancel, CommitNotes::default())),
                Action::Suspended(suspension) if self.children.len() == 0 || self.session.overdue_call().is_some() => {
                    match self.session.overdue_call() {
                        Some(call) => Ok((Input::Expire { call }, CommitNotes::default())),
                        None => return Ok(TurnResult::Suspended(suspension)),
                    }
                }
                Action::Dispatch(dispatches) => match self.dispatch(dispatches).await? {
                    Dispatched::StateChanged => continue,
                    Dispatched::NotYet => match self.next_result().await? {
                        Some(result) => result,
                        None => continue,
                    },
                    Dispatched::Failed(error) => Err(error),
                },
                Action::AwaitOutcome | Action::Suspended(_) => match self.next_result().await? {
                    Some(result) => result,
                    None => continue,
                },
                // When the turn is cancelled, the action's future is dropped. The session stays consistent, because an
                // action does not change the session.
                action => match self.perform(action).await {
                    Some(result) => result,
                    None => continue,
                },
            };
            self.apply_result(result).await?;
        }
    }

    /// Performs an action that involves neither tool calls nor child sessions. Returns `None` if the process shuts down.
    /// Prompts that arrive during the action are queued. If memories of earlier tool results have not been written yet,
    /// they are written while a model call runs.
    async fn perform(&mut self, action: Action) -> Option<ActionResult> {
        let (mut context, mut unused) = ActionContext::split(self.session);
        let services = unused.services;
        let delivers = matches!(action, Action::CallModel(_)) && *unused.deferred == DeferredDelivery::Memories;
        let delivering = async {
            if delivers {
                deliver_session(services).await;
            }
        };
        let is_model_call = matches!(action, Action::CallModel(_));
        // The future of an action is large, so it is not kept on the stack.
        let mut acting = async { tokio::join!(delivering, perform(&mut context, action)).1 }.boxed();
        let result = loop {
            tokio::select! {
                biased;
                () = services.leaving.cancelled() => return None,
                () = self.cancel.cancelled() => return Some(Ok((Input::Cancel, CommitNotes::default()))),
                result = &mut acting => break result,
                pending = unused.inbox.next() => {
                    // The action goes on meanwhile. It may hold a connection to the store that the request needs.
                    let mut handling = handle_during_action(&mut unused, pending, self.cancel).boxed();
                    let mut ended = None;
                    loop {
                        tokio::select! {
                            () = &mut handling => break,
                            result = &mut acting, if ended.is_none() => ended = Some(result),
                        }
                    }
                    drop(handling);
                    if let Some(result) = ended {
                        break result;
                    }
                }
            }
        };
        if is_model_call {
            *unused.deferred = DeferredDelivery::Nothing;
        }
        Some(result)
    }

    /// Handles the requests that have arrived for the session.
    async fn handle_requests(&mut self) {
        while self.session.run.is_open()
            && let Some(pending) = self.session.inbox.try_next()
        {
            self.handle_request(pending).await;
        }
    }

    async fn handle_request(&mut self, PendingRequest { request, reply, stored }: PendingRequest) {
        let is_internal = matches!(request, SessionRequest::Continue | SessionRequest::Cancel);
        if reply.is_closed() && !is_internal {
            // The sender was told that the session is busy, and may send the request again.
            return;
        }
        let answer = match request {
            SessionRequest::Cancel => {
                self.session.cancel_replies.push(reply);
                return self.cancel.cancel();
            }
            SessionRequest::Continue => {
                self.children.start_waiting_again();
                Ok(Accepted::Continued)
            }
            request => self.session.accept_stored(request, stored).boxed().await,
        };
        // The sender may have stopped waiting for the answer.
        let _ = reply.send(answer);
    }

    /// Commits the outcome of an action.
    async fn apply_result(&mut self, result: ActionResult) -> Result<(), SessionError> {
        let (input, notes) = result.unwrap_or_else(|error| (Input::Failed(error), CommitNotes::default()));
        if matches!(input, Input::Cancel | Input::Failed(_)) {
            self.stop().await?;
        }
        match self.commit(input, notes).await {
            // If a plugin or model has produced data that cannot be stored, the turn ends, but the session
            // stays usable.
            Err(SessionError::Store(error @ (StoreError::Invalid { .. } | StoreError::TooLarge { .. }))) => {
                self.stop().await?;
                let failed = Input::Failed(TurnError::HostFailed { message: error.to_string() });
                self.session.apply(failed, CommitNotes::default()).await
            }
            committed => committed,
        }
    }

    /// Commits the results of calls that have finished, then stops all other calls and the turns of all child sessions.
    /// Dropping the future of a plugin call stops the plugin.
    async fn stop(&mut self) -> Result<(), SessionError> {
        while let Some(done) = self.running.try_join_next() {
            self.keep_result(done).await?;
        }
        let (_, stopped) = tokio::join!(self.running.shutdown(), self.children.stop_turns(self.session));
        stopped
    }

    /// Leaves the turn open because the process shuts down. The results of calls that finish within the grace period
    /// are committed. The child sessions leave their own turns open.
    async fn leave_turn_open(&mut self) -> Result<TurnResult, SessionError> {
        let until = tokio::time::Instant::now() + SHUTDOWN_GRACE;
        while let Ok(Some(done)) = tokio::time::timeout_at(until, self.running.join_next()).await {
            self.keep_result(done).await?;
        }
        let (_, left) = tokio::join!(self.running.shutdown(), self.children.join(self.session));
        left.map(|()| TurnResult::Interrupted)
    }

    /// Commits the result of a finished call.
    async fn keep_result(
        &mut self,
        done: Result<(CallId, Result<CompletedCall, TurnError>), JoinError>,
    ) -> Result<(), SessionError> {
        // If the plugin of the call has requested a service, the request is discarded without being sent.
        if let Ok((call, Ok(CompletedCall { outcome: CallOutcome::Done(result), host_answers }))) = done {
            let host_answers = host_answers.map(|answers| (call.clone(), answers));
            let notes = CommitNotes { host_answers, ..CommitNotes::default() };
            self.session.apply(Input::Outcome { call, result }, notes).await?;
        }
        Ok(())
    }

    /// Commits an input. If the turn is cancelled during a slow commit, the running plugins are stopped
    /// immediately (L29).
    pub(super) async fn commit(&mut self, input: Input, notes: CommitNotes) -> Result<(), SessionError> {
        let mut commit = pin!(self.session.apply(input, notes));
        tokio::select! {
            biased;
            committed = &mut commit => committed,
            () = self.cancel.cancelled(), if !self.running.is_empty() => {
                self.running.abort_all();
                commit.await
            }
        }
    }

    /// Waits for the next result of a running call or child session. Returns `None` if a child session started to wait,
    /// if a first-use question was answered, if a request was handled, or if the process shuts down. If a plugin requests a service, this method
    /// checks the request immediately before the request would be sent.
    async fn next_result(&mut self) -> Result<Option<ActionResult>, SessionError> {
        Ok(match self.next_event().await? {
            None => None,
            Some(DriverEvent::Result(result)) => Some(result),
            Some(DriverEvent::ServiceRequest(pending)) => {
                Some(take_service_request(&mut ActionContext::new(self.session), *pending).await?)
            }
        })
    }

    async fn next_event(&mut self) -> Result<Option<DriverEvent>, SessionError> {
        let leaving = self.session.services.leaving.clone();
        let only_calls = self.children.len() == 0 && !self.questions.is_open();
        tokio::select! {
            biased;
            () = leaving.cancelled() => Ok(None),
            () = self.cancel.cancelled() => Ok(Some(DriverEvent::Result(Ok((Input::Cancel, CommitNotes::default()))))),
            () = self.questions.answered() => Ok(None),
            pending = self.session.inbox.next() => {
                self.handle_request(pending).await;
                Ok(None)
            }
            event = await_outcome(&mut self.running), if !self.running.is_empty() || only_calls => Ok(Some(event)),
            result = self.children.next() => Ok(result?.map(DriverEvent::Result)),
        }
    }

    /// Returns the result of a turn that has ended.
    async fn finished(&mut self) -> Result<TurnResult, SessionError> {
        let session = &mut *self.session;
        let mut result = session.last_result();
        if let TurnResult::Finished(output) = &mut result
            && session.services.agent.config().include_history
        {
            output.messages = Some(session.history.conversation(&session.run, &Change::default()).await?);
        }
        Ok(result)
    }
}

/// Performs an action that involves neither tool calls nor child sessions.
async fn perform(context: &mut ActionContext<'_>, action: Action) -> ActionResult {
    match action {
        Action::BuildContext => build_context(context).await,
        Action::Summarise(plan) => summarise(context, plan).await,
        Action::CallModel(plan) => call_model(context, plan).await,
        Action::Validate(validation) => validate(context, validation).await,
        other => Err(TurnError::HostFailed { message: format!("internal error: unhandled loop action {other:?}") }),
    }
}

async fn await_outcome(running: &mut RunningCalls) -> DriverEvent {
    DriverEvent::Result(match running.join_next().await {
        Some(Ok((call, Ok(CompletedCall { outcome: CallOutcome::Done(result), host_answers })))) => {
            let host_answers = host_answers.map(|answers| (call.clone(), answers));
            Ok((Input::Outcome { call, result }, CommitNotes { host_answers, ..CommitNotes::default() }))
        }
        Some(Ok((call, Ok(CompletedCall { outcome: CallOutcome::Pending(request, cost, denials), host_answers })))) => {
            let pending = PendingCall { call, request: *request, cost, denials, host_answers };
            return DriverEvent::ServiceRequest(Box::new(pending));
        }
        Some(Ok((_, Err(error)))) => Err(error),
        // The task of the call was aborted during a commit, because the turn is being cancelled.
        Some(Err(error)) if error.is_cancelled() => Ok((Input::Cancel, CommitNotes::default())),
        Some(Err(error)) => {
            let message = format!("internal error: the task of a tool call failed: {error}");
            Err(TurnError::HostFailed { message })
        }
        None => Err(TurnError::HostFailed {
            message: "internal error: a call is marked as running, but no call runs".to_owned(),
        }),
    })
}
