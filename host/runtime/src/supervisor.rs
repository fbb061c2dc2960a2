//! Runs the sessions of a process that keeps running, such as a server (I3, I9). The supervisor opens a session when a
//! request arrives for it, and closes it when it has been idle for a while. Without a request, it continues interrupted
//! turns, ends waits whose deadline has passed, and continues the parents of delegated sessions that have ended.

mod actor;
mod backoff;
mod scan;

use crate::agent::LiveAgent;
use crate::event_stream::SessionEvents;
use crate::events::EventPosition;
use crate::host::Host;
use crate::requests::{Accepted, PendingRequest, Prompt, RequestError, RequestProblem, SessionRequest};
use crate::session::{OpenSession, Session, SessionError};
use agent_store::{SessionFilter, SessionState, StoreError};
use backoff::Backoff;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Time between two attempts to reach a session that is being opened or closed.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Settings of a [`Supervisor`].
#[derive(Clone, Copy, Debug)]
pub struct SupervisorOptions {
    /// Time after which an idle session is closed. Its memory is freed, and other processes can open it. Default: 5 s.
    pub idle_timeout: Duration,
    /// Time between two searches for sessions that can continue. A deadline takes effect at most this time too late.
    /// Default: 500 ms.
    pub scan_interval: Duration,
    /// Maximum time for which a request waits while another process has the session open, or while the session is busy.
    /// Default: 30 s.
    pub request_timeout: Duration,
}

impl Default for SupervisorOptions {
    fn default() -> Self {
        Self {
            idle_timeout: Duration::from_secs(5),
            scan_interval: Duration::from_millis(500),
            request_timeout: Duration::from_secs(30),
        }
    }
}

/// Runs the sessions of a process that keeps running. All clones share the same sessions.
#[derive(Clone)]
pub struct Supervisor(Arc<Shared>);

struct Shared {
    host: Host,
    /// The agents whose sessions are run, by the agent's configured name.
    agents: BTreeMap<String, LiveAgent>,
    options: SupervisorOptions,
    /// The tasks of open sessions and of scans.
    tasks: TaskTracker,
    /// Wakes the scan, because a session may be able to continue.
    changed: Notify,
    backoff: Backoff,
    /// Cancelled when the supervisor shuts down.
    stop: CancellationToken,
}

impl Supervisor {
    /// Starts to run the sessions of these agents and of the agents to which they delegate. `agents` contains both, by
    /// their configured names.
    pub fn start(host: Host, agents: BTreeMap<String, LiveAgent>, options: SupervisorOptions) -> Self {
        let (tasks, changed, backoff) = (TaskTracker::new(), Notify::new(), Backoff::default());
        // When the process shuts down, the scan stops too.
        let stop = host.leaving.child_token();
        let shared = Arc::new(Shared { host, agents, options, tasks, changed, backoff, stop });
        shared.tasks.spawn(scan::scan(shared.clone()));
        Self(shared)
    }

    /// Creates a session of an agent, and begins its first turn. Returns the subject of the session.
    pub async fn create(&self, agent: &str, prompt: Prompt) -> Result<String, RequestError> {
        let live = self.0.agent(agent)?.clone();
        let open = prompt.user.clone().map_or(OpenSession::New, OpenSession::NewOf);
        let session = Session::open(&self.0.host, live, open).await?;
        let subject = session.subject().to_owned();
        let (reply, answer) = oneshot::channel();
        let first = PendingRequest { request: SessionRequest::Prompt(prompt), reply };
        self.0.spawn_actor(session, Some(first));
        match answer.await {
            Ok(answer) => answer.map(|_| subject),
            Err(_) => Err(RequestError::new(RequestProblem::Unavailable, "the host is shutting down")),
        }
    }

    /// Sends a request to a session, which is opened if necessary. Returns after the session has committed everything that
    /// the result describes. If this future is dropped, the session may still handle the request.
    pub async fn send(&self, session: &str, request: SessionRequest) -> Result<Accepted, RequestError> {
        let until = Instant::now() + self.0.options.request_timeout;
        match tokio::time::timeout_at(until, self.0.send(session, request)).await {
            Ok(answer) => answer,
            Err(_) => {
                let message = format!("session `{session}` is busy; try again later");
                Err(RequestError::new(RequestProblem::Unavailable, message))
            }
        }
    }

    /// Streams the events of a session after this position. Watching a session needs no lease, and does not open it.
    pub fn events(&self, session: &str, after: EventPosition) -> SessionEvents {
        SessionEvents::new(self.0.host.store.clone(), &self.0.host.sessions, session, after)
    }

    /// Returns the services that the sessions share.
    pub fn host(&self) -> &Host {
        &self.0.host
    }

    /// Returns the agents whose sessions are run.
    pub fn agents(&self) -> &BTreeMap<String, LiveAgent> {
        &self.0.agents
    }

    /// Stops the turns, which stay open and continue when the sessions are opened again, and closes all sessions.
    pub async fn shutdown(&self) {
        self.0.stop.cancel();
        self.0.host.leaving.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }
}

impl Shared {
    fn agent(&self, name: &str) -> Result<&LiveAgent, RequestError> {
        self.agents.get(name).ok_or_else(|| {
            RequestError::new(RequestProblem::NotFound, format!("this host does not run the agent `{name}`"))
        })
    }

    /// Sends a request to a session. If the session is closed before it handles the request, it is opened again.
    async fn send(self: &Arc<Self>, session: &str, request: SessionRequest) -> Result<Accepted, RequestError> {
        loop {
            if self.stop.is_cancelled() {
                return Err(RequestError::new(RequestProblem::Unavailable, "the host is shutting down"));
            }
            match self.host.sessions.requests_to(session) {
                Some(requests) => {
                    if let Some(answer) = deliver(&requests, request.clone()).await {
                        return answer;
                    }
                }
                None => match self.open(session).await {
                    Ok(()) => continue,
                    Err(SessionError::Store(StoreError::Busy { .. })) => {}
                    Err(SessionError::Store(StoreError::NoSession { .. })) => {
                        let message = format!("there is no session `{session}` of an agent that this host runs");
                        return Err(RequestError::new(RequestProblem::NotFound, message));
                    }
                    Err(error) => return Err(error.into()),
                },
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Opens a session, and runs it in its own task. Fails with [`StoreError::NoSession`] if no agent of this supervisor
    /// has a session with this subject.
    async fn open(self: &Arc<Self>, session: &str) -> Result<(), SessionError> {
        let filter = SessionFilter { subject: Some(session.to_owned()), ..SessionFilter::default() };
        let found = self.host.store.sessions(filter, 1).await?.pop();
        let found = found.filter(|found| found.state != SessionState::Incomplete);
        let agent = found.and_then(|found| self.agents.get(&found.agent));
        let agent = agent.ok_or_else(|| StoreError::NoSession { session: session.to_owned() })?;
        let session = Session::open(&self.host, agent.clone(), OpenSession::Existing(session.to_owned())).await?;
        self.spawn_actor(session, None);
        Ok(())
    }

    fn spawn_actor(self: &Arc<Self>, session: Session, first: Option<PendingRequest>) {
        self.tasks.spawn(actor::run(self.clone(), session, first));
    }
}

/// Sends a request to an open session. Returns `None` if the session was closed before it handled the request.
async fn deliver(
    requests: &mpsc::Sender<PendingRequest>,
    request: SessionRequest,
) -> Option<Result<Accepted, RequestError>> {
    let (reply, answer) = oneshot::channel();
    requests.send(PendingRequest { request, reply }).await.ok()?;
    answer.await.ok()
}
