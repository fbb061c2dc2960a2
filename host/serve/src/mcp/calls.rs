//! The calls and sessions of one client, which is a connection over standard input and output, or a token of the server.

use crate::tokens::{Right, Rights};
use agent_mcp::offered::{OfferError, OfferProblem};
use agent_runtime::{
    EventPosition, LiveAgent, Prompt, RefusedRequest, RequestError, RequestProblem, SessionRequest, Supervisor,
    UserName,
};
use agent_store::{SessionFilter, SessionState, StoreError, digest_of};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;

/// Maximum number of calls of one client that run at the same time.
const PARALLEL_CALLS: usize = 8;
/// Maximum number of calls of one client that wait until another call has ended.
const QUEUED_CALLS: usize = 64;
/// Maximum number of calls of one client that wait for answers without a request.
const WAITING_CALLS: usize = 32;
/// Number of calls after which a session is replaced by another session, so that its history stays small.
const CALLS_PER_SESSION: u32 = 500;
/// Time after which a call whose question the client did not answer may be cancelled.
const ANSWER_TIME: Duration = Duration::from_secs(10 * 60);

/// Who a client is, and what it may do.
#[derive(Clone, Debug)]
pub struct McpClient {
    /// Name of the client's token, for the audit log, or `stdio` if the client is connected over standard input and output.
    pub name: String,
    /// What the client may do. [`Right::Approve`] means that the client may ask its user for approvals.
    pub rights: Rights,
    /// The user for whom the client works. `None` means the user in the agent's configuration.
    pub user: Option<UserName>,
    /// Names of the agents that the client may use, including agents to which its agent delegates work and that ask for
    /// approvals. An empty list means all agents.
    pub agents: Vec<String>,
}

/// The calls and sessions of one client with one agent.
pub struct ClientCalls {
    pub(super) supervisor: Supervisor,
    /// The configured name of the agent.
    pub(super) agent: String,
    pub(super) client: McpClient,
    /// Limits the number of calls that run at the same time.
    slots: Arc<Semaphore>,
    queued: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Sessions without an open turn. The session that was used last is used next, so that a client that makes one call after
    /// another uses one session.
    idle: Vec<String>,
    /// Calls that wait for answers, by their handles.
    waiting: HashMap<String, WaitingCall>,
}

/// A call that waits for answers while no request of the client is open.
pub(super) struct WaitingCall {
    /// Identifies the tool and the arguments.
    pub(super) key: String,
    pub(super) turn: TurnPlace,
    since: Instant,
    pub(super) continues_with: ContinuesWith,
}

/// How a client continues a waiting call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContinuesWith {
    /// The client sends the handle together with the answers.
    Handle,
    /// The client repeats the call after the user has answered elsewhere.
    Repetition,
}

/// A turn that runs a call, and where its events are read from.
#[derive(Clone, Debug)]
pub(super) struct TurnPlace {
    pub(super) session: String,
    pub(super) turn: u32,
    /// Position after which the events of the turn's current part are.
    pub(super) after: EventPosition,
}

/// The right to run one call. The next call of the client runs when the value is dropped.
pub(super) struct CallSlot {
    _permit: OwnedSemaphorePermit,
}

impl ClientCalls {
    /// Creates the calls of a client with the agent of this name, which the supervisor runs.
    pub fn new(supervisor: Supervisor, agent: impl Into<String>, client: McpClient) -> Arc<Self> {
        let slots = Arc::new(Semaphore::new(PARALLEL_CALLS));
        let (queued, state) = (AtomicUsize::new(0), Mutex::default());
        Arc::new(Self { supervisor, agent: agent.into(), client, slots, queued, state })
    }

    pub(super) fn live(&self) -> Result<&LiveAgent, OfferError> {
        self.supervisor.agents().get(&self.agent).ok_or_else(|| {
            OfferError::new(OfferProblem::Invalid, format!("this host does not run the agent `{}`", self.agent))
        })
    }

    pub(super) fn require(&self, right: Right) -> Result<(), OfferError> {
        if self.client.rights.contains(&right) {
            return Ok(());
        }
        let right = serde_json::to_value(right).unwrap_or_default();
        self.note_refusal(format!("a request that needs the right {right}"), &self.agent, "forbidden");
        Err(OfferError::new(OfferProblem::Forbidden, format!("the token does not have the right {right}")))
    }

    /// Records a refusal in the audit log (O3).
    fn note_refusal(&self, request: String, object: &str, code: &'static str) {
        let (token, object) = (Some(self.client.name.clone()), Some(object.to_owned()));
        self.supervisor.refusals().note(RefusedRequest { protocol: "mcp", token, request, object, code });
    }

    /// Checks that the client has at least one of these rights.
    pub(super) fn require_any(&self, rights: &[Right]) -> Result<(), OfferError> {
        match rights.iter().any(|right| self.client.rights.contains(right)) {
            true => Ok(()),
            false => rights.first().map_or(Ok(()), |right| self.require(*right)),
        }
    }

    /// Waits until the client may run another call.
    pub(super) async fn slot(&self) -> Result<CallSlot, OfferError> {
        let _queued = Queued::enter(&self.queued).ok_or_else(|| {
            let message = format!(
                "{PARALLEL_CALLS} calls of this client are running and {QUEUED_CALLS} are waiting; try again when some of \
                 them have ended"
            );
            OfferError::new(OfferProblem::Busy, message)
        })?;
        let closed = |_| OfferError::new(OfferProblem::Failed, "the host is shutting down");
        Ok(CallSlot { _permit: self.slots.clone().acquire_owned().await.map_err(closed)? })
    }

    /// Begins a turn in an idle session of the client, or in a new session.
    pub(super) async fn begin_in_any_session(&self, prompt: Prompt) -> Result<TurnPlace, OfferError> {
        while let Some(session) = self.take_idle() {
            match self.begin_in(&session, prompt.clone()).await {
                Ok(place) => return Ok(place),
                // Someone else has deleted the session, or uses it.
                Err(error) if matches!(error.kind, RequestProblem::NotFound | RequestProblem::Conflict) => {}
                Err(error) => return Err(refusal(error)),
            }
        }
        let session = self.supervisor.create(&self.agent, prompt).await.map_err(refusal)?;
        Ok(TurnPlace { session, turn: 1, after: EventPosition::default() })
    }

    /// Begins a turn in this session.
    pub(super) async fn begin_in(&self, session: &str, prompt: Prompt) -> Result<TurnPlace, RequestError> {
        let after = self.supervisor.last_event(session).await?;
        let turn = self.supervisor.begin(session, prompt).await?.turn();
        Ok(TurnPlace { session: session.to_owned(), turn, after })
    }

    fn take_idle(&self) -> Option<String> {
        self.lock().idle.pop()
    }

    /// Lets later calls use a session whose turn has ended.
    pub(super) fn release(&self, TurnPlace { session, turn, .. }: TurnPlace) {
        let mut state = self.lock();
        if turn < CALLS_PER_SESSION && state.idle.len() < PARALLEL_CALLS {
            state.idle.push(session);
        }
    }

    /// Remembers a call that waits for answers, and returns its handle. If too many calls wait, the oldest call whose
    /// question the client has not answered for a while is cancelled.
    pub(super) async fn put_aside(
        &self,
        (key, turn): (String, TurnPlace),
        continues_with: ContinuesWith,
    ) -> Result<String, OfferError> {
        let abandoned = self.lock().take_abandoned()?;
        if let Some(abandoned) = abandoned {
            self.cancel(&abandoned.turn.session).await;
        }
        let handle = Uuid::new_v4().simple().to_string();
        let waiting = WaitingCall { key, turn, since: Instant::now(), continues_with };
        self.lock().waiting.insert(handle.clone(), waiting);
        Ok(handle)
    }

    /// Takes the call with this handle, if it is the same call.
    pub(super) fn take_waiting(&self, handle: &str, key: &str) -> Result<WaitingCall, OfferError> {
        let mut state = self.lock();
        match state.waiting.get(handle) {
            Some(waiting) if waiting.key == key => {}
            _ => {
                let message = "no call with these arguments waits under this request state; begin the call again";
                return Err(OfferError::new(OfferProblem::Invalid, message));
            }
        }
        state.waiting.remove(handle).ok_or_else(|| OfferError::new(OfferProblem::Invalid, "the call has ended"))
    }

    /// Takes the waiting call that the client has repeated.
    pub(super) fn take_repeated(&self, key: &str) -> Option<WaitingCall> {
        let mut state = self.lock();
        let is_repeated = |call: &WaitingCall| call.key == key && call.continues_with == ContinuesWith::Repetition;
        let handle = state.waiting.iter().find(|(_, call)| is_repeated(call)).map(|(handle, _)| handle.clone())?;
        state.waiting.remove(&handle)
    }

    /// Cancels the open turn of a session.
    pub(super) async fn cancel(&self, session: &str) {
        if let Err(error) = self.supervisor.send(session, SessionRequest::Cancel).await {
            tracing::warn!(session, %error, "the turn of an MCP client's call was not cancelled");
        }
    }

    /// Returns whether the client may decide in a session of another agent, to which its agent has delegated work.
    pub(super) async fn may_decide_in(&self, session: &str) -> Result<bool, OfferError> {
        let filter = SessionFilter { subject: Some(session.to_owned()), ..SessionFilter::default() };
        let found = self.supervisor.host().store.sessions(filter, 1).await.map_err(store_failed)?.pop();
        let is_allowed = |agent: &String| self.client.agents.is_empty() || self.client.agents.contains(agent);
        Ok(found.is_some_and(|found| is_allowed(&found.agent)))
    }

    /// Checks that a session belongs to the client's agent and user. The answer does not tell whether another session
    /// exists.
    pub(super) async fn check_session(&self, session: &str) -> Result<(), OfferError> {
        let user = self.client.user.as_ref().map(|user| user.as_str().to_owned());
        let filter = SessionFilter { subject: Some(session.to_owned()), ..SessionFilter::default() };
        let found = self.supervisor.host().store.sessions(filter, 1).await.map_err(store_failed)?.pop();
        let found = found.filter(|found| found.state != SessionState::Incomplete);
        let is_own = found.as_ref().is_some_and(|found| {
            let is_of_user = user.is_none() || user == found.user;
            is_of_user && found.agent == self.agent && found.delegated_by.is_none()
        });
        match is_own {
            true => Ok(()),
            false => {
                if found.is_some() {
                    self.note_refusal("the use of a session".to_owned(), session, "not_found");
                }
                let message = format!(
                    "there is no session `{}` for this client",
                    agent_core::visible::visible_name(session, 100)
                );
                Err(OfferError::new(OfferProblem::Invalid, message))
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// If no further call may wait, takes the oldest call that the client has abandoned.
    fn take_abandoned(&mut self) -> Result<Option<WaitingCall>, OfferError> {
        if self.waiting.len() < WAITING_CALLS {
            return Ok(None);
        }
        let is_abandoned =
            |call: &&WaitingCall| call.continues_with == ContinuesWith::Handle && call.since.elapsed() >= ANSWER_TIME;
        let oldest = self.waiting.iter().filter(|(_, call)| is_abandoned(call)).min_by_key(|(_, call)| call.since);
        let Some(handle) = oldest.map(|(handle, _)| handle.clone()) else {
            let message = format!("{WAITING_CALLS} calls of this client wait for answers; answer some of them first");
            return Err(OfferError::new(OfferProblem::Busy, message));
        };
        Ok(self.waiting.remove(&handle))
    }
}

/// A call that waits for a slot.
struct Queued<'c>(&'c AtomicUsize);

impl<'c> Queued<'c> {
    fn enter(queued: &'c AtomicUsize) -> Option<Self> {
        let entered = Self(queued);
        (queued.fetch_add(1, Ordering::AcqRel) < QUEUED_CALLS).then_some(entered)
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Identifies a call by its tool and arguments.
pub(super) fn key_of(tool: &str, arguments: &Value) -> String {
    let arguments = agent_core::approval::canonical_json(arguments);
    digest_of(format!("{tool}\0{arguments}").as_bytes()).to_string()
}

/// Converts an error of the supervisor for the client. Details of a failure of the host are only logged.
pub(super) fn refusal(error: RequestError) -> OfferError {
    let kind = match error.kind {
        RequestProblem::NotFound | RequestProblem::Conflict | RequestProblem::Invalid => OfferProblem::Invalid,
        RequestProblem::Unavailable => OfferProblem::Busy,
        RequestProblem::Failed => {
            tracing::error!(%error, "a call of an MCP client failed");
            return OfferError::new(OfferProblem::Failed, "the host failed; the host's log contains the reason");
        }
    };
    OfferError::new(kind, error.message)
}

/// Converts an error of the store for the client. Its details, which may contain paths of the host, are only logged.
pub(super) fn store_failed(error: StoreError) -> OfferError {
    tracing::error!(%error, "a call of an MCP client failed, because the store failed");
    let message = "the host cannot read or write its data; the host's log contains the reason";
    OfferError::new(OfferProblem::Failed, message)
}
