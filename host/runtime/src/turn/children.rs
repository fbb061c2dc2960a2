//! Runs child sessions at the same time as the other calls of the open batch (L16). In a child session, another agent
//! does the work of one call of the batch.

use super::action::ActionResult;
use super::run::TurnBounds;
use crate::fleet::announce;
use crate::records::CommitNotes;
use crate::requests::{PendingRequest, SessionRequest, request_to_json};
use crate::session::{Session, SessionError, TurnResult};
use crate::tools::results::error_result;
use crate::waiting::{ChildTurn, delegate_result, open_child};
use agent_core::change::CallResult;
use agent_core::message::CallId;
use agent_core::run::{Answerer, Input, TurnError};
use agent_core::tool::ToolError;
use agent_store::{Announcement, Lease, News, OpenMode, RequestKey, Store, StoreError};
use futures::FutureExt;
use futures::future::BoxFuture;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Time in which a process that has a child session open can cancel its turn.
const CANCELLATION: Duration = Duration::from_secs(600);

/// The child sessions of one session that are running in this process.
pub(super) struct Children {
    tasks: JoinSet<(CallId, ChildOutcome)>,
    /// Calls whose child session was already started. A child session that waits for an answer is not started a second
    /// time before the parent session itself is run again.
    started: HashSet<CallId>,
    /// Calls whose child session waits. These child sessions are started again when something has happened for which they
    /// may have waited.
    waiting: HashSet<CallId>,
    /// Calls whose child session was stopped because the parent's turn ends.
    stopped: HashSet<CallId>,
    cancel: CancellationToken,
}

/// The outcome of running a child session.
enum ChildOutcome {
    /// The child's turn has ended with this result for the call.
    Answered(CallResult),
    /// The child was stopped together with its parent.
    Stopped,
    /// The child waits for an answer, another process has the lease of the child's session, or the child's plugins are
    /// temporarily unavailable.
    Waits,
    /// A failure stops the child and its parent.
    Failed(SessionError),
}

impl Children {
    /// Creates an empty set of child sessions. When `cancel` is cancelled, all child sessions in the set stop.
    pub(super) fn new(cancel: &CancellationToken) -> Self {
        let (started, waiting, stopped) = (HashSet::new(), HashSet::new(), HashSet::new());
        Self { tasks: JoinSet::new(), started, waiting, stopped, cancel: cancel.child_token() }
    }

    /// Returns the number of child sessions that are running now.
    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Waits until a child session stops running. Returns the result of the child's turn as an input for the parent, or
    /// `None` if the child stopped because it waits. If no child session is running, this method never returns.
    pub(super) async fn next(&mut self) -> Result<Option<ActionResult>, SessionError> {
        let Some(joined) = self.tasks.join_next().await else { return std::future::pending().await };
        match joined {
            Ok((call, ChildOutcome::Answered(result))) => {
                let respond = Input::Respond { call, from: Answerer::Agent, result };
                Ok(Some(Ok((respond, CommitNotes::default()))))
            }
            Ok((call, ChildOutcome::Stopped)) => {
                self.stopped.insert(call);
                Ok(None)
            }
            Ok((call, ChildOutcome::Waits)) => {
                self.waiting.insert(call);
                Ok(None)
            }
            Ok((_, ChildOutcome::Failed(error))) => Err(error),
            Err(error) => {
                let message = format!("internal error: the task of a delegated session failed: {error}");
                Ok(Some(Err(TurnError::HostFailed { message })))
            }
        }
    }

    /// Lets [`Children::start`] start the child sessions again that waited when they were last running.
    pub(super) fn start_waiting_again(&mut self) {
        for call in self.waiting.drain() {
            self.started.remove(&call);
        }
    }

    /// Cancels the running child sessions, and waits until each of them is in a state from which it can continue.
    pub(super) async fn stop(&mut self) {
        self.cancel.cancel();
        while self.tasks.join_next().await.is_some() {}
    }

    /// Starts the child sessions that the open batch of calls waits for, in call order, up to the limit of parallel
    /// calls (L9). If no child session can be prepared for a call, the call immediately receives an error result.
    pub(super) async fn start(&mut self, session: &mut Session, running: usize) -> Result<(), SessionError> {
        for (call, subject) in session.run.delegations() {
            let limit = session.run.turn.as_ref().map_or(1, |turn| turn.config.parallel_calls.max(1) as usize);
            if running + self.len() >= limit {
                return Ok(());
            }
            if !self.started.insert(call.clone()) {
                continue;
            }
            match session.child_turn(&call, &subject, &self.cancel).await? {
                Ok(child) => {
                    self.tasks.spawn(run_child(child));
                }
                Err(error) => {
                    let respond = Input::Respond { call, from: Answerer::Agent, result: error_result(&error) };
                    session.apply(respond, CommitNotes::default()).await?;
                }
            }
        }
        Ok(())
    }

    /// Ends the turns of all child sessions, including those that wait for an answer, because the parent's turn ends.
    /// If the turn of a child session has already ended, the result of that turn is kept.
    pub(super) async fn stop_turns(&mut self, session: &mut Session) -> Result<(), SessionError> {
        self.cancel.cancel();
        self.join(session).await?;
        for (call, subject) in session.run.delegations() {
            if self.stopped.contains(&call) {
                continue;
            }
            if let Some(requests) = session.services.sessions.requests_to(&subject) {
                // The child runs in a task of its own, for example because a user has answered its question.
                self.tasks.spawn(cancel_open_child(call, requests));
            } else if let Ok(child) = session.child_turn(&call, &subject, &self.cancel).await? {
                self.tasks.spawn(run_child(child));
            }
        }
        self.join(session).await
    }

    /// Waits until no child session is running, and commits the results of the child sessions.
    pub(super) async fn join(&mut self, session: &mut Session) -> Result<(), SessionError> {
        while let Some(joined) = self.tasks.join_next().await {
            match joined {
                Ok((call, ChildOutcome::Answered(result))) => {
                    let respond = Input::Respond { call, from: Answerer::Agent, result };
                    session.apply(respond, CommitNotes::default()).await?;
                }
                Ok((call, ChildOutcome::Stopped)) => {
                    self.stopped.insert(call);
                }
                // An error of a child session is ignored here, because the parent's turn ends in any case.
                Ok((_, ChildOutcome::Waits | ChildOutcome::Failed(_))) | Err(_) => {}
            }
        }
        Ok(())
    }
}

/// Cancels the turn of a child session that is open in this process, and waits until the cancellation is committed.
async fn cancel_open_child(call: CallId, requests: mpsc::Sender<PendingRequest>) -> (CallId, ChildOutcome) {
    let (cancel, answer) = PendingRequest::new(SessionRequest::Cancel);
    let sent = requests.send(cancel).await;
    // If the child was closed meanwhile, its turn has ended or waits. The supervisor cancels a turn that waits.
    if sent.is_ok() {
        let _ = answer.await;
    }
    (call, ChildOutcome::Stopped)
}

/// Runs a child session. The future is boxed, because a child session can itself start child sessions.
fn run_child(child: ChildTurn) -> BoxFuture<'static, (CallId, ChildOutcome)> {
    async move {
        let (call, subject, cancel) = (child.call.clone(), child.new_run.session.clone(), child.cancel.clone());
        let started = Instant::now();
        let outcome = match drive_child(child).await {
            Ok(TurnResult::Cancelled | TurnResult::Idle) if cancel.is_cancelled() => ChildOutcome::Stopped,
            Ok(ended) => {
                delegate_result(&subject, &ended, started.elapsed()).map_or(ChildOutcome::Waits, ChildOutcome::Answered)
            }
            Err(error) => outcome_of_error(&subject, error),
        };
        (call, outcome)
    }
    .boxed()
}

/// Continues the turn of a child session, or starts the turn. If the work is cancelled before the child session exists,
/// no session is created.
async fn drive_child(child: ChildTurn) -> Result<TurnResult, SessionError> {
    let mode = if child.cancel.is_cancelled() { OpenMode::Existing } else { OpenMode::Either };
    let mut session = match open_child(&child, mode).await {
        Err(SessionError::Store(StoreError::NoSession { .. })) if child.cancel.is_cancelled() => {
            return Ok(TurnResult::Idle);
        }
        Err(SessionError::Store(StoreError::Busy { .. })) if child.cancel.is_cancelled() => {
            cancel_elsewhere(&child).await?;
            return Ok(TurnResult::Idle);
        }
        opened => opened?,
    };
    let mut lease = ChildLease { store: child.host.store.clone(), lease: Some(session.lease()) };
    let ChildTurn { input, bounds, trace, cancel, .. } = child;
    let ended = match (session.state().turns, cancel.is_cancelled()) {
        (0, true) => Ok(TurnResult::Idle),
        (0, false) => session.begin((input, None), TurnBounds::OfParent(bounds), Some(trace), cancel).await,
        _ => session.run(None, cancel).await,
    };
    let closed = session.close().await;
    lease.lease = None;
    let ended = ended?;
    closed?;
    Ok(ended)
}

/// Asks the process that has a child session open to cancel its turn, because the parent's turn ends (F2). The parent does not
/// wait for it.
async fn cancel_elsewhere(child: &ChildTurn) -> Result<(), SessionError> {
    let session = child.new_run.session.clone();
    let Ok(content) = request_to_json(&SessionRequest::Cancel) else { return Ok(()) };
    let key = RequestKey { session: session.clone(), id: Uuid::new_v4().to_string() };
    match child.host.store.post_request(&key, &content, CANCELLATION).await {
        // A search cancels the child later, because its parent has ended.
        Err(error @ StoreError::RequestsFull { .. }) => {
            tracing::warn!(session, %error, "the cancellation of a delegated session was not stored");
            return Ok(());
        }
        posted => posted?,
    }
    let announcement = Announcement { news: News::Work, session };
    announce(&*child.host.store, child.host.fleet.as_ref(), vec![(announcement, key.id)]).await;
    Ok(())
}

/// The lease of a running child session. If the parent's driver is dropped, the lease is released, so that this process
/// can start the child session again.
struct ChildLease {
    store: Arc<dyn Store>,
    lease: Option<Lease>,
}

impl Drop for ChildLease {
    fn drop(&mut self) {
        let (Some(lease), Ok(runtime)) = (self.lease.take(), tokio::runtime::Handle::try_current()) else { return };
        let store = self.store.clone();
        runtime.spawn(async move {
            if let Err(error) = store.release(lease).await {
                tracing::warn!(%error, "the lease of a delegated session was not released");
            }
        });
    }
}

/// Converts an error of a child session into the outcome for its parent.
fn outcome_of_error(subject: &str, error: SessionError) -> ChildOutcome {
    match error {
        // Another process has the session's lease, or the session's plugins are temporarily unavailable, so the
        // parent waits.
        SessionError::Store(StoreError::Busy { .. })
        | SessionError::Generation(_)
        | SessionError::UnknownPlugins { .. }
        | SessionError::NoPlace => {
            tracing::warn!(session = subject, %error, "a delegated session cannot continue now");
            ChildOutcome::Waits
        }
        // The error text omits the subject of the child session, because the subject differs from call to call.
        SessionError::Restore { error, .. } => {
            ChildOutcome::Answered(error_result(&ToolError::Failed { message: error.to_string() }))
        }
        SessionError::Input(_) | SessionError::Approval(_) | SessionError::Agent(_) => {
            ChildOutcome::Answered(error_result(&ToolError::Failed { message: error.to_string() }))
        }
        SessionError::Store(_) => ChildOutcome::Failed(error),
    }
}
