//! The agents that work for the open batch: each in a session of its own, beside the batch's other calls (L16).

use crate::agent::Agent;
use crate::delegation::{Delegate, failed, result};
use crate::drive::Deed;
use crate::events::{Watchers, WatchersAbove};
use crate::live::LiveAgent;
use crate::session::{Bounds, Host, Notes, Session, SessionError, TurnResult};
use agent_core::change::{CallRecord, CallResult};
use agent_core::event::WaitCause;
use agent_core::message::{CallId, TurnInput};
use agent_core::plugin::TraceContext;
use agent_core::run::{Answerer, Awaited, Input, LoopConfig, RestoreError, Run, TurnError};
use agent_core::tool::ToolError;
use agent_store::{Lease, OpenMode, Store, StoreError};
use futures::FutureExt;
use futures::future::BoxFuture;
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How often, and after what time, it is looked again whether a dropped driver has let its session go.
const LETTING_GO: u32 = 50;
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The children of one session that are at work here.
pub(crate) struct Children {
    at_work: JoinSet<(CallId, Came)>,
    /// Taken up already: one that waits for somebody is not taken up again before the session is gone on with.
    taken_up: HashSet<CallId>,
    /// Their turns were ended, since that of the parent ends.
    stopped: HashSet<CallId>,
    cancel: CancellationToken,
}

/// What came of taking up a child.
enum Came {
    /// It has ended, and this is the call's result.
    Answered(CallResult),
    /// It was stopped together with its parent.
    Stopped,
    /// It waits for somebody, or another process has it.
    Waits,
    /// It cannot go on, nor can its parent.
    Failed(SessionError),
}

/// A child to take up.
struct Work {
    host: Host,
    agent: LiveAgent,
    call: CallId,
    /// As it is before its first input.
    new: Run,
    input: TurnInput,
    bounds: LoopConfig,
    trace: TraceContext,
    above: WatchersAbove,
    cancel: CancellationToken,
}

impl Children {
    /// None yet. They stop when the parent is cancelled.
    pub(crate) fn new(cancel: &CancellationToken) -> Self {
        let (taken_up, stopped) = (HashSet::new(), HashSet::new());
        Self { at_work: JoinSet::new(), taken_up, stopped, cancel: cancel.child_token() }
    }

    /// How many work now.
    pub(crate) fn len(&self) -> usize {
        self.at_work.len()
    }

    /// Waits until one has nothing more to do here. Its answer is an input for the parent; none where it waits. Never
    /// comes while nobody works.
    pub(crate) async fn next(&mut self) -> Result<Option<Deed>, SessionError> {
        let Some(joined) = self.at_work.join_next().await else { return std::future::pending().await };
        match joined {
            Ok((call, Came::Answered(result))) => {
                let answered = Input::Respond { call, from: Answerer::Agent, result };
                Ok(Some(Ok((answered, Notes::default()))))
            }
            Ok((call, Came::Stopped)) => {
                self.stopped.insert(call);
                Ok(None)
            }
            Ok((_, Came::Waits)) => Ok(None),
            Ok((_, Came::Failed(error))) => Err(error),
            Err(error) => {
                let message = format!("the session of another agent ended abruptly: {error}");
                Ok(Some(Err(TurnError::HostFailed { message })))
            }
        }
    }

    /// Cancels those at work, and waits until each has left a session that can go on.
    pub(crate) async fn stop(&mut self) {
        self.cancel.cancel();
        while self.at_work.join_next().await.is_some() {}
    }
}

impl Session {
    /// What a call of another agent waits for; none where the call is no agent's.
    pub(crate) fn awaits_agent(&self, record: &CallRecord) -> Option<Awaited> {
        let delegate = self.shared.agent.config().delegates.get(&record.name)?;
        let session = delegate.subject(&self.shared.subject, &record.id);
        Some(Awaited { cause: WaitCause::Agent { session }, event: None })
    }

    /// Takes up the children that the open batch waits for, in call order, as long as there is room for one more call
    /// (L9). Those that can have no session are answered at once.
    pub(crate) async fn take_up_children(
        &mut self,
        children: &mut Children,
        running: usize,
    ) -> Result<(), SessionError> {
        for (call, subject) in self.run.delegations() {
            let cap = self.run.turn.as_ref().map_or(1, |turn| turn.config.parallel_calls.max(1) as usize);
            if running + children.len() >= cap {
                return Ok(());
            }
            if !children.taken_up.insert(call.clone()) {
                continue;
            }
            match self.work(&call, &subject, &children.cancel).await? {
                Ok(work) => {
                    children.at_work.spawn(take_up(work));
                }
                Err(error) => {
                    let respond = Input::Respond { call, from: Answerer::Agent, result: failed(&error) };
                    self.apply(respond, Notes::default()).await?;
                }
            }
        }
        Ok(())
    }

    /// The calls that the open turn has handed to other agents and has no answer to, in call order.
    pub fn below(&self) -> Vec<CallId> {
        self.run.delegations().into_iter().map(|(call, _)| call).collect()
    }

    /// Opens the session that works for such a call, so that somebody can answer there what it waits for (L16, L17). None
    /// where nothing can be answered now: it has not begun, another process has it, or it cannot go on, which
    /// [`Session::run`] then makes the call's result.
    pub async fn open_below(&mut self, call: &CallId) -> Result<Option<Session>, SessionError> {
        let Some((call, subject)) = self.run.delegations().into_iter().find(|(known, _)| known == call) else {
            return Ok(None);
        };
        let Ok(work) = self.work(&call, &subject, &CancellationToken::new()).await? else { return Ok(None) };
        match open(&work, OpenMode::Existing).await {
            Ok(session) => Ok(Some(session)),
            Err(SessionError::Store(StoreError::NoSession { .. } | StoreError::Busy { .. })) => Ok(None),
            Err(error @ SessionError::Store(_)) => Err(error),
            Err(error) => {
                tracing::info!(session = subject, %error, "nothing can be answered in the session of another agent");
                Ok(None)
            }
        }
    }

    /// Ends the turns of all children, since that of the parent ends: those at work, and those that wait for somebody.
    /// What had ended before stays the call's result.
    pub(crate) async fn stop_children(&mut self, children: &mut Children) -> Result<(), SessionError> {
        children.cancel.cancel();
        self.join_children(children).await?;
        for (call, subject) in self.run.delegations() {
            if children.stopped.contains(&call) {
                continue;
            }
            if let Ok(work) = self.work(&call, &subject, &children.cancel).await? {
                children.at_work.spawn(take_up(work));
            }
        }
        self.join_children(children).await
    }

    pub(crate) async fn join_children(&mut self, children: &mut Children) -> Result<(), SessionError> {
        while let Some(joined) = children.at_work.join_next().await {
            match joined {
                Ok((call, Came::Answered(result))) => {
                    let answered = Input::Respond { call, from: Answerer::Agent, result };
                    self.apply(answered, Notes::default()).await?;
                }
                Ok((call, Came::Stopped)) => {
                    children.stopped.insert(call);
                }
                // Whatever the parent's turn ends with, it ends.
                Ok((_, Came::Waits | Came::Failed(_))) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// What the child of a call needs; the inner error is for the model.
    async fn work(
        &mut self,
        call: &CallId,
        subject: &str,
        cancel: &CancellationToken,
    ) -> Result<Result<Work, ToolError>, SessionError> {
        let records = self.load_calls(std::slice::from_ref(call)).await?;
        let Some(record) = records.into_iter().next() else {
            let message = "a call of the open batch has no record in the store".to_owned();
            return Ok(Err(ToolError::Failed { message }));
        };
        let agent = self.shared.agent.clone();
        let same = |delegate: &&Delegate| delegate.subject(&self.shared.subject, call) == subject;
        let Some(delegate) = agent.config().delegates.get(&record.name).filter(same) else {
            let message = format!("the agent `{}` is not configured any more", record.name);
            return Ok(Err(ToolError::NotFound { message }));
        };
        let below = delegate.agent.current();
        let name = below.config().name.clone();
        let child = match self.run.may_delegate(&name) {
            Ok(()) => below.for_user(agent.config().user.as_deref()),
            Err(error) => return Ok(Err(error)),
        };
        // What is revoked or answered while it works reaches it, too, unless it works for somebody else than it was made for.
        let live = |child: Arc<Agent>| match Arc::ptr_eq(&child, &below) {
            true => delegate.agent.clone(),
            false => child.into(),
        };
        let trace = self.scope().trace;
        let (written, tool) = (record.effective_arguments(), agent.registry().get(&record.name));
        let arguments = tool.map_or(Cow::Borrowed(written), |tool| tool.outgoing(written, &self.run.session));
        Ok(child.map_err(|error| ToolError::Failed { message: error.to_string() }).map(|child| Work {
            host: self.shared.host(),
            bounds: self.run.bounds_below(child.bounds()),
            agent: live(child),
            call: call.clone(),
            new: self.run.delegated(subject, name),
            input: delegate.input(&arguments),
            trace,
            above: self.watchers.above(),
            cancel: cancel.clone(),
        }))
    }
}

/// Boxed, since the work of a child may be to take up children.
fn take_up(work: Work) -> BoxFuture<'static, (CallId, Came)> {
    async move {
        let (call, subject, cancel) = (work.call.clone(), work.new.session.clone(), work.cancel.clone());
        let begun = Instant::now();
        let came = match drive(work).await {
            Ok(TurnResult::Cancelled | TurnResult::Idle) if cancel.is_cancelled() => Came::Stopped,
            Ok(ended) => result(&subject, &ended, begun.elapsed()).map_or(Came::Waits, Came::Answered),
            Err(error) => hindered(&subject, error),
        };
        (call, came)
    }
    .boxed()
}

/// Goes on with the child's turn, or begins it. A session that does not exist is not made to be cancelled.
async fn drive(work: Work) -> Result<TurnResult, SessionError> {
    let mode = if work.cancel.is_cancelled() { OpenMode::Existing } else { OpenMode::Either };
    let mut session = match open(&work, mode).await {
        Err(SessionError::Store(StoreError::NoSession { .. })) if work.cancel.is_cancelled() => {
            return Ok(TurnResult::Idle);
        }
        opened => opened?,
    };
    let mut lease = HeldLease { store: work.host.store.clone(), lease: Some(session.lease()) };
    let Work { input, bounds, trace, cancel, .. } = work;
    let ended = match (session.state().turns, cancel.is_cancelled()) {
        (0, true) => Ok(TurnResult::Idle),
        (0, false) => session.begin((input, None), Bounds::Given(bounds), trace, cancel).await,
        _ => session.run(None, cancel).await,
    };
    let closed = session.close().await;
    lease.lease = None;
    let ended = ended?;
    closed?;
    Ok(ended)
}

/// Opens the child's session. Where the parent's driver was dropped, the child's last driver here is just letting go of it.
async fn open(work: &Work, mode: OpenMode) -> Result<Session, SessionError> {
    for _ in 0..LETTING_GO {
        match open_now(work, mode).await {
            Err(SessionError::Store(StoreError::Busy { holder, .. })) if holder == std::process::id() => {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            opened => return opened,
        }
    }
    open_now(work, mode).await
}

async fn open_now(work: &Work, mode: OpenMode) -> Result<Session, SessionError> {
    let watchers = Watchers::below(work.above.clone());
    let session = Session::open_as(&work.host, work.agent.clone(), (work.new.clone(), mode), watchers).await?;
    if session.state().delegated_by == work.new.delegated_by {
        return Ok(session);
    }
    // Such as an imported document under the subject that belongs to this call.
    let subject = session.subject().to_owned();
    session.close().await?;
    let error = RestoreError::Inconsistent("the session under the call's subject was not delegated by this one");
    Err(SessionError::Restore { session: subject, error })
}

/// The lease of a child that is being driven. Whoever drops the driver gives it back, so that the child can be taken up
/// again by the same process.
struct HeldLease {
    store: Arc<dyn Store>,
    lease: Option<Lease>,
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        let (Some(lease), Ok(runtime)) = (self.lease.take(), tokio::runtime::Handle::try_current()) else { return };
        let store = self.store.clone();
        runtime.spawn(async move {
            if let Err(error) = store.release(lease).await {
                tracing::warn!(%error, "the session of another agent was not let go");
            }
        });
    }
}

/// What a child that cannot be worked on means for its parent.
fn hindered(subject: &str, error: SessionError) -> Came {
    match error {
        // Another process has it, or its plugins are out of reach for now: the parent waits.
        SessionError::Store(StoreError::Busy { .. }) | SessionError::Generation(_) => {
            tracing::warn!(session = subject, %error, "the session of another agent cannot go on now");
            Came::Waits
        }
        // Without the session's name, which differs from call to call.
        SessionError::Restore { error, .. } => {
            Came::Answered(failed(&ToolError::Failed { message: error.to_string() }))
        }
        SessionError::Refused(_) | SessionError::Approval(_) | SessionError::Agent(_) => {
            Came::Answered(failed(&ToolError::Failed { message: error.to_string() }))
        }
        SessionError::Store(_) => Came::Failed(error),
    }
}
