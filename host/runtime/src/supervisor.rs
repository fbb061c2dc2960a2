//! Runs the sessions of a process that keeps running, such as a server (I3, I9). The supervisor opens a session when a
//! request arrives for it, and closes it when it has been idle for a while. Without a request, it continues interrupted
//! turns, ends waits whose deadline has passed, and continues the parents of delegated sessions that have ended.

mod actor;
mod announcements;
mod backoff;
mod dispatch;
mod incoming_events;
mod leases;
mod live_text;
mod mailbox;
mod scan;
mod schedule;
mod tenants;
mod work_queue;

use crate::agent::LiveAgent;
use crate::event_stream::SessionEvents;
use crate::events::EventPosition;
use crate::fleet::Fleet;
use crate::host::Host;
use crate::refusals::RefusalLog;
use crate::requests::{
    Accepted, DuringTurn, PendingRequest, Prompt, RequestError, RequestProblem, SessionName, SessionRequest,
};
use crate::session::{OpenSession, Session, SessionError, new_subject};
use crate::transfer::{ForkAt, Forked, TransferError, export, fork};
use crate::turn_events::TurnEvents;
use agent_store::{SessionFilter, SessionState, SessionSummary, StoreError};
use backoff::Backoff;
use futures::FutureExt;
use live_text::WatchedElsewhere;
use mailbox::Mailbox;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tenants::{Place, Places, Tenant};
use tokio::io::AsyncWrite;
use tokio::sync::{Notify, broadcast, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Time between two attempts to reach a session that is being opened or closed.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Maximum number of attempts to reach a session that is open in this process, before its request is stored.
const MAX_ATTEMPTS: u32 = 50;
/// Time for which another process is asked to close a session, before the operation that needs this is tried again.
const CLOSING_TIME: Duration = Duration::from_secs(1);
/// Time until all servers of a NATS cluster know that this process takes no more work.
const LEAVING_TIME: Duration = Duration::from_millis(100);
/// Maximum number of times that a session is opened for one request.
const MAX_OPENINGS: u32 = 3;
/// Maximum number of sessions that the scan continues at the same time.
const CONTINUED_SESSIONS: usize = 64;
/// Error for a request whose session was closed before it handled the request.
const CLOSED_EARLY: &str = "the session cannot be used now; the host's log contains the reason";

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
    /// Maximum number of sessions that are open at the same time. Default: 1,000.
    pub open_sessions: usize,
}

impl Default for SupervisorOptions {
    fn default() -> Self {
        Self {
            idle_timeout: Duration::from_secs(5),
            scan_interval: Duration::from_millis(500),
            request_timeout: Duration::from_secs(30),
            open_sessions: 1_000,
        }
    }
}

/// Runs the sessions of a process that keeps running. All clones share the same sessions.
#[derive(Clone)]
pub struct Supervisor(Arc<Shared>);

struct Shared {
    host: Host,
    /// Records refused requests in the audit log (O3).
    refusals: RefusalLog,
    /// The agents whose sessions are run, by the agent's configured name.
    agents: BTreeMap<String, LiveAgent>,
    options: SupervisorOptions,
    /// The tasks of open sessions and of scans.
    tasks: TaskTracker,
    /// Wakes the scan, because a session may be able to continue.
    changed: Notify,
    backoff: Backoff,
    /// The places of open sessions.
    places: Places,
    /// The places of sessions that the scan continues.
    continuing: Places,
    /// The sessions that the scan is opening.
    opening: Mutex<HashSet<String>>,
    /// The requests of other processes that this process handles.
    mailbox: Mailbox,
    /// The sessions whose requests were answered, for the tasks that wait for answers.
    answers: broadcast::Sender<String>,
    /// The sessions that are watched at other processes.
    watched: WatchedElsewhere,
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
        let places = Places::new(options.open_sessions, agents.len());
        let continuing = Places::new(CONTINUED_SESSIONS, agents.len());
        let opening = Mutex::default();
        let mailbox = Mailbox::new(agents.len());
        let refusals = RefusalLog::new(host.store.clone()).observed_by(host.observer.clone());
        let shared = Arc::new(Shared {
            host,
            refusals,
            agents,
            options,
            tasks,
            changed,
            backoff,
            places,
            continuing,
            opening,
            mailbox,
            answers: broadcast::Sender::new(announcements::CAPACITY),
            watched: WatchedElsewhere::default(),
            stop,
        });
        shared.tasks.spawn(scan::scan(shared.clone()));
        shared.tasks.spawn(dispatch::dispatch(shared.clone()));
        shared.tasks.spawn(schedule::run_schedules(shared.clone()));
        shared.tasks.spawn(mailbox::handle_stored_requests(shared.clone()));
        shared.tasks.spawn(leases::watch_leases(shared.clone()));
        shared.tasks.spawn(announcements::send_news(shared.clone()));
        shared.tasks.spawn(announcements::receive_news(shared.clone()));
        if let Some(fleet) = shared.host.fleet.clone() {
            shared.start_fleet_tasks(&fleet);
        }
        Self(shared)
    }

    /// Creates a session of an agent, and begins its first turn. Returns the subject of the session.
    pub async fn create(&self, agent: &str, prompt: Prompt) -> Result<String, RequestError> {
        let live = self.0.agent(agent)?.clone();
        self.0.check_capacity()?;
        let tenant = Tenant::of(agent, &prompt);
        let open = prompt.user.clone().map_or(OpenSession::New, OpenSession::NewOf);
        let (first, answer) = PendingRequest::new(SessionRequest::Prompt(prompt));
        let subject = self.0.open_in_task(live, &tenant, open, (Some(first), Opened::Request)).await?;
        match answer.await {
            Ok(answer) => answer.map(|_| subject),
            Err(_) => Err(RequestError::new(RequestProblem::Unavailable, CLOSED_EARLY)),
        }
    }

    /// Creates the session `AGENT/NAME` and begins its first turn, unless this session already exists. The session is
    /// created exactly once, even if several processes try it at the same time or a process stops in between. Returns the
    /// subject of the session, and whether it is new.
    pub async fn create_once(
        &self,
        agent: &str,
        name: &SessionName,
        prompt: Prompt,
    ) -> Result<(String, bool), RequestError> {
        let (live, subject) = (self.0.agent(agent)?.clone(), format!("{agent}/{name}"));
        let until = Instant::now() + self.0.options.request_timeout;
        loop {
            if let Some(found) = self.0.stored(&subject).await?.filter(|found| found.revision > 0) {
                return match found.agent == agent {
                    true => Ok((subject, false)),
                    false => {
                        let message = format!("the session `{subject}` belongs to another agent");
                        Err(RequestError::new(RequestProblem::Conflict, message))
                    }
                };
            }
            self.0.check_capacity()?;
            let open = OpenSession::Named { subject: subject.clone(), owner: prompt.user.clone() };
            let (first, answer) = PendingRequest::new(SessionRequest::FirstPrompt(prompt.clone()));
            let tenant = Tenant::of(agent, &prompt);
            match self.0.open_in_task(live.clone(), &tenant, open, (Some(first), Opened::Request)).await {
                Ok(_) => match answer.await {
                    Ok(answer) => return answer.map(|accepted| (subject, accepted != Accepted::Duplicate)),
                    Err(_) => return Err(RequestError::new(RequestProblem::Unavailable, CLOSED_EARLY)),
                },
                // Another task or process creates the session at this moment.
                Err(SessionError::Store(StoreError::Busy { .. })) if Instant::now() < until => {
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Begins a turn in a session, and follows it. Fails with [`RequestProblem::Conflict`] if a turn of the session is open,
    /// because the prompt would have to wait.
    pub async fn begin(&self, session: &str, prompt: Prompt) -> Result<TurnEvents, RequestError> {
        let after = self.last_event(session).await?;
        let prompt = Prompt { during_turn: DuringTurn::Refuse, ..prompt };
        match self.send(session, SessionRequest::Prompt(prompt)).await? {
            Accepted::Started { turn } => Ok(TurnEvents::new(self.events(session, after), turn)),
            accepted => {
                let message = format!("session `{session}` did not begin a turn: {accepted:?}");
                Err(RequestError::new(RequestProblem::Failed, message))
            }
        }
    }

    /// Creates a session of an agent, begins its first turn, and follows the turn. Returns the subject of the session too.
    pub async fn begin_session(&self, agent: &str, prompt: Prompt) -> Result<(String, TurnEvents), RequestError> {
        let session = self.create(agent, prompt).await?;
        let events = self.events(&session, EventPosition::default());
        Ok((session, TurnEvents::new(events, 1)))
    }

    /// Returns the position of the last stored event of a session.
    pub async fn last_event(&self, session: &str) -> Result<EventPosition, RequestError> {
        let last = self.0.host.store.last_events(&[session.to_owned()]).await?;
        let sequence = last.first().map_or(0, |(_, last_event)| *last_event);
        Ok(EventPosition { sequence, provisional: 0 })
    }

    /// Sends a request to a session, which is opened if necessary. Returns after the session has committed everything that
    /// the result describes. If another process has the session open, that process handles the request (F2). If this future is
    /// dropped, the session may still handle the request.
    pub async fn send(&self, session: &str, request: SessionRequest) -> Result<Accepted, RequestError> {
        self.send_until(session, request, Instant::now() + self.0.options.request_timeout).await
    }

    async fn send_until(
        &self,
        session: &str,
        request: SessionRequest,
        until: Instant,
    ) -> Result<Accepted, RequestError> {
        match tokio::time::timeout_at(until, self.0.send(session, request.clone())).await {
            Ok(Ok(Some(accepted))) => Ok(accepted),
            Ok(Ok(None)) => self.0.forward(session, &request, until).await,
            Ok(Err(error)) => Err(error),
            Err(_) => Err(mailbox::busy(session)),
        }
    }

    /// Deletes a session with all of its data. Fails with [`RequestProblem::Conflict`] if a turn of the session runs, or if
    /// another process keeps the session open.
    pub async fn delete(&self, session: &str) -> Result<(), RequestError> {
        let until = Instant::now() + self.0.options.request_timeout;
        loop {
            self.close(session).await?;
            match self.0.host.store.delete(session).await {
                Ok(_) => return Ok(()),
                Err(error) => self.0.wait_until_closed(session, error, until).await?,
            }
        }
    }

    /// Copies a session up to a message into a new session (D5). The session itself does not change. Fails with
    /// [`RequestProblem::Conflict`] if a turn of the session runs, if it cannot be forked at this message, or if another process
    /// keeps it open.
    pub async fn fork(&self, session: &str, at: ForkAt) -> Result<Forked, RequestError> {
        let until = Instant::now() + self.0.options.request_timeout;
        loop {
            self.close(session).await?;
            match fork(&*self.0.host.store, session, at).await {
                Ok(forked) => return Ok(forked),
                Err(TransferError::Store(error)) => self.0.wait_until_closed(session, error, until).await?,
                Err(error) => return Err(RequestError::new(RequestProblem::Conflict, error)),
            }
        }
    }

    /// Writes a session to a document (D5). Fails with [`RequestProblem::Conflict`] if a turn of the session runs, or if another
    /// process keeps it open.
    pub async fn export(
        &self,
        session: &str,
        output: &mut (dyn AsyncWrite + Send + Unpin),
    ) -> Result<(), RequestError> {
        let until = Instant::now() + self.0.options.request_timeout;
        loop {
            self.close(session).await?;
            match export(&*self.0.host.store, session, output).await {
                Ok(_) => return Ok(()),
                // A session that is open is refused before anything is written.
                Err(TransferError::Store(error)) => self.0.wait_until_closed(session, error, until).await?,
                Err(error) => return Err(RequestError::new(RequestProblem::Failed, error)),
            }
        }
    }

    /// Closes a session that is open in this process, unless a turn of it runs.
    async fn close(&self, session: &str) -> Result<(), RequestError> {
        match self.0.host.sessions.requests_to(session) {
            Some(requests) => match deliver(&requests, SessionRequest::Close).await {
                Some(Err(error)) => Err(error),
                _ => Ok(()),
            },
            None => Ok(()),
        }
    }

    /// Ends the grants that users gave only to this session, because its user has left it. The grants end before this
    /// method fails, which means that the end could not be recorded in the audit log.
    pub async fn end_session_grants(&self, session: &str) -> Result<(), StoreError> {
        let mut ended = Vec::new();
        for agent in self.0.agents.values() {
            let of_session = agent.for_session(session);
            if of_session.has_session_grants() {
                // Only the grants of all sessions need a new snapshot, which could fail.
                let _ = of_session.end_temporary_grants();
                ended.push(of_session);
            }
        }
        for agent in ended {
            crate::swap::record_grants(&*self.0.host.store, &agent).await?;
        }
        Ok(())
    }

    /// Streams the events of a session after this position. Watching a session needs no lease, and does not open it.
    pub fn events(&self, session: &str, after: EventPosition) -> SessionEvents {
        SessionEvents::new(self.0.host.store.clone(), &self.0.host.sessions, session, after)
    }

    /// Returns the services that the sessions share.
    pub fn host(&self) -> &Host {
        &self.0.host
    }

    /// Returns the log of refused requests, which adds entries to the audit log (O3).
    pub fn refusals(&self) -> &RefusalLog {
        &self.0.refusals
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
        if let Some(fleet) = &self.0.host.fleet {
            // The servers must know that this process takes no more work, or they would deliver the announcements to it.
            fleet.nats.flush().await;
            tokio::time::sleep(LEAVING_TIME).await;
        }
        // Other processes continue the sessions that were left open.
        self.0.announce_news().await;
        if let Some(fleet) = &self.0.host.fleet {
            fleet.nats.flush().await;
        }
        self.0.refusals.flush().await;
    }
}

impl Shared {
    /// Starts the tasks that use NATS.
    fn start_fleet_tasks(self: &Arc<Self>, fleet: &Fleet) {
        self.tasks.spawn(announcements::receive_hints(self.clone(), fleet.clone()));
        self.tasks.spawn(live_text::send_text(self.clone(), fleet.clone()));
        self.tasks.spawn(live_text::receive_text(self.clone(), fleet.clone()));
        for (name, agent) in &self.agents {
            self.tasks.spawn(work_queue::take_announced_work(self.clone(), fleet.clone(), name.clone()));
            for (table, events) in &agent.current().config().events {
                let receiver = (name.clone(), table.clone(), events.clone());
                self.tasks.spawn(incoming_events::receive_events(Supervisor(self.clone()), fleet.clone(), receiver));
            }
        }
    }

    /// Waits a moment if the store refused an operation because the session is still open. Other errors, and a session that stays
    /// open, are returned.
    async fn wait_until_closed(
        self: &Arc<Self>,
        session: &str,
        error: StoreError,
        until: Instant,
    ) -> Result<(), RequestError> {
        match error {
            // Another process has the session open, and closes it if no turn runs.
            StoreError::Busy { holder, .. } if Instant::now() < until && !holder.is_this_process() => {
                let closing = until.min(Instant::now() + CLOSING_TIME);
                match self.forward(session, &SessionRequest::Close, closing).await {
                    Err(error) if error.kind == RequestProblem::Conflict => Err(error),
                    _ => Ok(()),
                }
            }
            // The session is being closed.
            StoreError::Busy { .. } if Instant::now() < until => {
                tokio::time::sleep(RETRY_INTERVAL).await;
                Ok(())
            }
            StoreError::Busy { .. } => {
                let message = format!("another process has the session `{session}` open; close it there first");
                Err(RequestError::new(RequestProblem::Conflict, message))
            }
            error => Err(error.into()),
        }
    }

    fn agent(&self, name: &str) -> Result<&LiveAgent, RequestError> {
        self.agents.get(name).ok_or_else(|| {
            RequestError::new(RequestProblem::NotFound, format!("this host does not run the agent `{name}`"))
        })
    }

    /// Refuses to open another session if too many sessions are open.
    fn check_capacity(&self) -> Result<(), RequestError> {
        if self.places.are_taken() { Err(SessionError::NoPlace.into()) } else { Ok(()) }
    }

    /// Sends a request to a session. If the session is closed before it handles the request, it is opened again, but only
    /// a few times. Returns `None` if another process has the session open.
    async fn send(self: &Arc<Self>, session: &str, request: SessionRequest) -> Result<Option<Accepted>, RequestError> {
        let (mut openings, mut attempts) = (0, 0);
        loop {
            if self.stop.is_cancelled() {
                return Err(RequestError::new(RequestProblem::Unavailable, "the host is shutting down"));
            }
            if let Some(requests) = self.host.sessions.requests_to(session) {
                if let Some(answer) = deliver(&requests, request.clone()).await {
                    return answer.map(Some);
                }
            } else {
                self.check_capacity()?;
                let (first, answer) = PendingRequest::new(request.clone());
                match self.open(session, (Some(first), Opened::Request)).await {
                    Ok(()) => {
                        openings += 1;
                        if let Ok(answer) = answer.await {
                            return answer.map(Some);
                        }
                        if openings == MAX_OPENINGS {
                            return Err(RequestError::new(RequestProblem::Unavailable, CLOSED_EARLY));
                        }
                    }
                    Err(SessionError::Store(StoreError::Busy { holder, .. })) => {
                        attempts += 1;
                        // This process may have a second store, whose sessions cannot be reached directly.
                        if !holder.is_this_process() || attempts == MAX_ATTEMPTS {
                            return Ok(None);
                        }
                    }
                    Err(SessionError::Store(StoreError::NoSession { .. })) => {
                        let message = format!("there is no session `{session}` of an agent that this host runs");
                        return Err(RequestError::new(RequestProblem::NotFound, message));
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Returns the summary of a stored session.
    async fn stored(&self, session: &str) -> Result<Option<SessionSummary>, StoreError> {
        let filter = SessionFilter { subject: Some(session.to_owned()), ..SessionFilter::default() };
        Ok(self.host.store.sessions(filter, 1).await?.pop())
    }

    /// Opens a session, and runs it in its own task. Fails with [`StoreError::NoSession`] if no agent of this supervisor
    /// has a session with this subject.
    async fn open(self: &Arc<Self>, session: &str, opened: OpenedFor) -> Result<(), SessionError> {
        let found = self.stored(session).await?;
        let found = found.filter(|found| found.state != SessionState::Incomplete);
        let agent = found.and_then(|found| Some((self.agents.get(&found.agent)?, found)));
        let (agent, found) = agent.ok_or_else(|| StoreError::NoSession { session: session.to_owned() })?;
        let tenant = Tenant { agent: found.agent, user: found.user };
        self.open_in_task(agent.clone(), &tenant, OpenSession::Existing(session.to_owned()), opened).await.map(drop)
    }

    /// Opens a session in a task of its own, and runs it. If the caller stops waiting, the session is still opened, used
    /// and closed, so that its lease never stays behind. Fails with [`SessionError::NoPlace`] if there is no place for the tenant.
    async fn open_in_task(
        self: &Arc<Self>,
        agent: LiveAgent,
        tenant: &Tenant,
        open: OpenSession,
        (first, by): OpenedFor,
    ) -> Result<String, SessionError> {
        let subject = || new_subject(&agent.current().config().name);
        let open = match open {
            OpenSession::New => OpenSession::Named { subject: subject(), owner: None },
            OpenSession::NewOf(owner) => OpenSession::Named { subject: subject(), owner: Some(owner) },
            open => open,
        };
        // A grant that a user gives only for the session must not apply to the other sessions of the process.
        let agent = match &open {
            OpenSession::Named { subject, .. } | OpenSession::Existing(subject) | OpenSession::ToDecide(subject) => {
                agent.for_session(subject)
            }
            OpenSession::New | OpenSession::NewOf(_) => agent,
        };
        let place = self.places.take(tenant).map_err(|_| SessionError::NoPlace)?;
        let (shared, (opened, subject)) = (self.clone(), oneshot::channel());
        self.tasks.spawn(async move {
            let _place = place;
            // The futures are boxed, because the compiler limits how deeply the type of a future may be nested.
            match Session::open(&shared.host, agent, open).boxed().await {
                Ok(session) => {
                    shared.mailbox.changed.notify_one();
                    // The caller may have stopped waiting.
                    let _ = opened.send(Ok(session.subject().to_owned()));
                    actor::run(shared, session, (first, by)).boxed().await;
                }
                Err(error) => {
                    let _ = opened.send(Err(error));
                }
            }
        });
        match subject.await {
            Ok(opened) => opened,
            Err(_) => Err(StoreError::Closed.into()),
        }
    }
}

/// The request for which a session is opened, and who opened it.
type OpenedFor = (Option<PendingRequest>, Opened);

/// Who opened a session.
enum Opened {
    /// A request arrived.
    Request,
    /// The scan found that the session can continue.
    Scan {
        /// Becomes free when the session is closed.
        _place: Place,
    },
    /// The work queue has announced that the session can continue.
    Announcement {
        /// Receives the result when the session is closed: an error if it made no progress, with the reason unless the database is
        /// the reason.
        outcome: oneshot::Sender<Result<(), Option<String>>>,
    },
}

/// Sends a request to an open session. Returns `None` if the session was closed before it handled the request.
async fn deliver(
    requests: &mpsc::Sender<PendingRequest>,
    request: SessionRequest,
) -> Option<Result<Accepted, RequestError>> {
    let (request, answer) = PendingRequest::new(request);
    requests.send(request).await.ok()?;
    answer.await.ok()
}
