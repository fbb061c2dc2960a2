//! The child sessions, in which other agents do the work of a session's calls (L16).

use crate::agent::{Agent, Delegate, LiveAgent};
use crate::events::{ParentWatchers, Watchers};
use crate::host::Host;
use crate::session::{Session, SessionError};
use agent_core::message::{CallId, TurnInput};
use agent_core::plugin::TraceContext;
use agent_core::run::{LoopConfig, RestoreError, Run};
use agent_core::tool::ToolError;
use agent_core::trace::SpanKey;
use agent_store::{OpenMode, StoreError};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Maximum number of retries to open a child session while a dropped driver still has the session's lease.
const LEASE_RETRIES: u32 = 50;
/// Time between two attempts to open a child session.
const LEASE_RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// The data that is needed to run the turn of a child session.
pub(crate) struct ChildTurn {
    pub(crate) host: Host,
    pub(crate) agent: LiveAgent,
    pub(crate) call: CallId,
    /// State of the child session before its first input.
    pub(crate) new_run: Run,
    pub(crate) input: TurnInput,
    pub(crate) bounds: LoopConfig,
    /// The trace context of the call. The child's turn belongs to it.
    pub(crate) trace: TraceContext,
    pub(crate) parent_watchers: ParentWatchers,
    pub(crate) cancel: CancellationToken,
}

impl Session {
    /// Returns the calls that the open turn delegated to other agents and that have no result yet, in call order.
    pub fn delegated_calls(&self) -> Vec<CallId> {
        self.run.delegations().into_iter().map(|(call, _)| call).collect()
    }

    /// Opens the child session that works for a delegated call, so that a user can answer the child session's questions
    /// (L16, L17). Returns `None` if the child session does not exist yet, is already open, or cannot continue. If the
    /// child session cannot continue, [`Session::run`] converts the error to the call's result.
    pub async fn open_delegated(&mut self, call: &CallId) -> Result<Option<Session>, SessionError> {
        let Some((call, subject)) = self.run.delegations().into_iter().find(|(delegated, _)| delegated == call) else {
            return Ok(None);
        };
        let Ok(work) = self.child_turn(&call, &subject, &CancellationToken::new()).await? else { return Ok(None) };
        match open_child(&work, OpenMode::Existing).await {
            Ok(session) => Ok(Some(session)),
            Err(SessionError::Store(StoreError::NoSession { .. } | StoreError::Busy { .. })) => Ok(None),
            Err(error @ SessionError::Store(_)) => Err(error),
            Err(error) => {
                tracing::info!(session = subject, %error, "the session of a delegated call cannot be opened now");
                Ok(None)
            }
        }
    }

    /// Prepares the turn of the child session to which a call delegates its task. The inner `Err` is a tool error, and
    /// becomes the result of the call.
    pub(crate) async fn child_turn(
        &mut self,
        call: &CallId,
        subject: &str,
        cancel: &CancellationToken,
    ) -> Result<Result<ChildTurn, ToolError>, SessionError> {
        let records = self.history.load_calls(std::slice::from_ref(call)).await?;
        let Some(record) = records.into_iter().next() else {
            let message = "internal error: a call of the open batch has no record in the store".to_owned();
            return Ok(Err(ToolError::Failed { message }));
        };
        let agent = self.services.agent.clone();
        let has_subject = |delegate: &&Delegate| delegate.subject(&self.services.subject, call) == subject;
        let Some(delegate) = agent.config().delegates.get(&record.name).filter(has_subject) else {
            let message = format!("the agent `{}` is no longer configured", record.name);
            return Ok(Err(ToolError::NotFound { message }));
        };
        let current = delegate.agent.current();
        let name = current.config().name.clone();
        let child = match self.run.may_delegate(&name) {
            Ok(()) => current.for_user(agent.config().user.as_deref()),
            Err(error) => return Ok(Err(error)),
        };
        // Later changes to the grants of the child's agent apply to the child session too, unless the child works for a
        // user other than the user in the agent's configuration.
        // The grants that users gave only to the session of the parent apply to the child, too.
        let live = |child: Arc<Agent>| match Arc::ptr_eq(&child, &current) {
            true => delegate.agent.in_session_of(&self.services.live),
            false => child.into(),
        };
        let trace = self.services.scope(&self.run, Some(SpanKey::Call(&record.id))).trace;
        let (written, tool) = (record.effective_arguments(), agent.registry().get(&record.name));
        let arguments = tool.map_or(Cow::Borrowed(written), |tool| tool.outgoing(written, &self.run.session));
        Ok(child.map_err(|error| ToolError::Failed { message: error.to_string() }).map(|child| ChildTurn {
            host: self.services.host(),
            bounds: self.run.delegate_limits(child.bounds()),
            agent: live(child),
            call: call.clone(),
            new_run: self.run.delegated(subject, name),
            input: delegate.input(&arguments),
            trace,
            parent_watchers: self.watchers.for_children(),
            cancel: cancel.clone(),
        }))
    }
}

/// Opens the child's session. If the parent's driver was dropped while the child session was running, the child's lease
/// is released a moment later, so opening the session is retried.
pub(crate) async fn open_child(child: &ChildTurn, mode: OpenMode) -> Result<Session, SessionError> {
    for _ in 0..LEASE_RETRIES {
        match open_child_once(child, mode).await {
            Err(SessionError::Store(StoreError::Busy { holder, .. })) if holder.is_this_process() => {
                tokio::time::sleep(LEASE_RETRY_INTERVAL).await;
            }
            opened => return opened,
        }
    }
    open_child_once(child, mode).await
}

async fn open_child_once(child: &ChildTurn, mode: OpenMode) -> Result<Session, SessionError> {
    let watchers = Watchers::for_child(child.parent_watchers.clone());
    let session = Session::open_as(&child.host, child.agent.clone(), (child.new_run.clone(), mode), watchers).await?;
    if session.state().delegated_by == child.new_run.delegated_by {
        return Ok(session);
    }
    // Another session can have the subject that belongs to this call, for example if a document was imported under
    // this subject.
    let subject = session.subject().to_owned();
    session.close().await?;
    let error = RestoreError::Inconsistent("the session with this call's subject was not delegated by this session");
    Err(SessionError::Restore { session: subject, error })
}
