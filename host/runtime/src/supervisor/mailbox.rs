//! Requests to sessions that another process has open (F2). The sender stores the request. The process that has the session
//! open hands it to the session, and stores the answer. If no process has the session open any more, any process opens it.

use super::Shared;
use super::tenants::{Place, Places, Tenant};
use crate::requests::{
    Accepted, GRACE, Outcome, PendingRequest, RequestError, RequestProblem, SessionRequest, answer_to_json,
    not_answered, outcome_of, request_from_json, request_to_json,
};
use crate::session::SessionError;
use agent_store::{ClaimedRequest, News, RequestKey, SMALL_REQUEST_BYTES, StoreError, StoredRequest};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, broadcast};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Maximum number of stored requests that are handled at the same time. Agents and users share these places. Further requests wait
/// in the store.
const HANDLED: usize = 64;
/// Maximum number of stored requests to one session that are handled at the same time.
const HANDLED_PER_SESSION: usize = 4;
/// Memory in bytes that the stored requests may need that are handled at the same time.
const MEMORY: u64 = 256 << 20;
/// Maximum number of requests that one query returns.
const PAGE: usize = 1_024;
/// Time between two checks for an answer. An announcement of the answer leads to a check at once.
const ANSWER_INTERVAL: Duration = Duration::from_millis(200);

/// The stored requests that this process handles.
pub(super) struct Mailbox {
    handled: Arc<Handled>,
    places: Places,
    /// The memory for requests, in KiB.
    memory: Arc<Semaphore>,
    /// Notified when there may be a new request, or when a session was opened.
    pub(super) changed: Notify,
}

/// The ids of the requests that are being handled, by session.
#[derive(Default)]
struct Handled(Mutex<HashMap<String, HashSet<String>>>);

impl Handled {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, HashSet<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that a task of this process handles. Its place is free when this value is dropped.
struct Reserved {
    key: RequestKey,
    handled: Arc<Handled>,
    _place: Place,
    _memory: OwnedSemaphorePermit,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let mut handled = self.handled.lock();
        if let Some(ids) = handled.get_mut(&self.key.session) {
            ids.remove(&self.key.id);
            if ids.is_empty() {
                handled.remove(&self.key.session);
            }
        }
    }
}

impl Mailbox {
    /// Creates the mailbox of a process that runs this number of agents.
    pub(super) fn new(agents: usize) -> Self {
        let memory = usize::try_from(MEMORY >> 10).unwrap_or(usize::MAX);
        Self {
            handled: Arc::default(),
            places: Places::new(HANDLED, agents),
            memory: Arc::new(Semaphore::new(memory)),
            changed: Notify::new(),
        }
    }

    /// Reserves a request for a task of this process. Returns `None` if another task handles it, or if the session, its agent, its
    /// user or the process handles too many requests already.
    fn reserve(&self, stored: &StoredRequest) -> Option<Reserved> {
        let RequestKey { session, id } = &stored.key;
        let mut handled = self.handled.lock();
        let of_session = handled.get(session);
        if of_session.is_some_and(|ids| ids.len() >= HANDLED_PER_SESSION || ids.contains(id)) {
            return None;
        }
        let tenant = Tenant { agent: stored.agent.clone(), user: stored.user.clone() };
        let place = self.places.take(&tenant).ok()?;
        let memory = self.memory.clone().try_acquire_many_owned(memory_of(stored.bytes)).ok()?;
        handled.entry(session.clone()).or_default().insert(id.clone());
        Some(Reserved { key: stored.key.clone(), handled: self.handled.clone(), _place: place, _memory: memory })
    }
}

/// Returns the memory in KiB that handling a request of this size may need. JSON needs up to 16 times the size of its text, but
/// attachments, which make requests large, need no more than their text. Small requests need no reservation.
fn memory_of(bytes: u64) -> u32 {
    if bytes <= SMALL_REQUEST_BYTES as u64 {
        return 0;
    }
    let needed = bytes.saturating_mul(16).min(bytes.saturating_add(32 << 20));
    u32::try_from(needed.min(MEMORY) >> 10).unwrap_or(u32::MAX)
}

/// Looks for stored requests again and again until the supervisor shuts down.
pub(super) async fn handle_stored_requests(shared: Arc<Shared>) {
    let agents: Vec<String> = shared.agents.keys().cloned().collect();
    loop {
        match shared.host.store.pending_requests(&agents, PAGE).await {
            Ok(pending) => pending.iter().for_each(|stored| begin_to_handle(&shared, stored)),
            Err(error) => tracing::warn!(%error, "cannot look for requests of other processes; the host tries again"),
        }
        tokio::select! {
            () = shared.stop.cancelled() => return,
            () = tokio::time::sleep(shared.options.scan_interval) => {}
            () = shared.mailbox.changed.notified() => {}
        }
    }
}

fn begin_to_handle(shared: &Arc<Shared>, stored: &StoredRequest) {
    let Some(reserved) = shared.mailbox.reserve(stored) else { return };
    let shared_with_task = shared.clone();
    shared.tasks.spawn(async move {
        if let Err(error) = shared_with_task.handle_stored(&reserved.key).await {
            let session = &reserved.key.session;
            tracing::warn!(session, %error, "a request of another process cannot be handled now");
        }
    });
}

impl Shared {
    /// Hands a stored request to its session, and stores the answer. A request that is not answered stays in the store, and is
    /// found again.
    async fn handle_stored(self: &Arc<Self>, key: &RequestKey) -> Result<(), SessionError> {
        if self.host.sessions.requests_to(&key.session).is_none() && !self.open_for_request(&key.session).await? {
            return Ok(());
        }
        let Some(requests) = self.host.sessions.requests_to(&key.session) else { return Ok(()) };
        let Some(claimed) = self.host.store.claim_request(key).await? else { return Ok(()) };
        let ClaimedRequest { content, valid_for } = claimed;
        let until = Instant::now() + valid_for + GRACE;
        let request = request_from_json(&content);
        drop(content);
        let answer = match request {
            Err(error) => Err(error),
            Ok(request) => {
                let (pending, answer) = PendingRequest::new(request);
                let pending = PendingRequest { stored: Some(key.id.clone()), ..pending };
                let answered = async {
                    requests.send(pending).await.ok()?;
                    answer.await.ok()
                };
                // Without an answer, the session was closed before it handled the request, or nobody waits for the answer any
                // more, so the place is given to another request.
                let Ok(Some(answer)) = tokio::time::timeout_at(until, answered).await else { return Ok(()) };
                answer
            }
        };
        self.host.store.answer_request(key, &answer_to_json(&answer)).await?;
        self.host.news.add_urgent(News::Answer, &key.session, key.id.clone());
        Ok(())
    }

    /// Opens a session for a stored request. Returns false if another process has it open, or if an attempt has just failed.
    async fn open_for_request(self: &Arc<Self>, session: &str) -> Result<bool, SessionError> {
        if !self.backoff.is_over(session, std::time::Instant::now()) || self.check_capacity().is_err() {
            return Ok(false);
        }
        match self.open(session, (None, super::Opened::Request)).await {
            Ok(()) => Ok(true),
            Err(SessionError::Store(StoreError::Busy { .. }) | SessionError::NoPlace) => Ok(false),
            Err(error) => {
                self.backoff.failed(session, std::time::Instant::now());
                Err(error)
            }
        }
    }

    /// Sends a request to a session that another process has open, and waits for the answer. If this future is dropped, the
    /// request is removed from the store, unless it cancels a turn.
    pub(super) async fn forward(
        self: &Arc<Self>,
        session: &str,
        request: &SessionRequest,
        until: Instant,
    ) -> Result<Accepted, RequestError> {
        let key = RequestKey { session: session.to_owned(), id: Uuid::new_v4().to_string() };
        let content = request_to_json(request)?;
        let (abandoned, _abandon_when_dropped) = match request {
            SessionRequest::Cancel => (self.stop.child_token(), None),
            _ => {
                let abandoned = CancellationToken::new();
                (abandoned.clone(), Some(abandoned.drop_guard()))
            }
        };
        let shared = self.clone();
        // In a task of its own, the request is removed from the store even if the caller stops waiting while it is being stored.
        let forwarding = async move { shared.post_and_wait(&key, content, (until, abandoned)).await };
        self.tasks.spawn(forwarding).await.unwrap_or_else(|_| Err(not_answered(session)))
    }

    async fn post_and_wait(
        &self,
        key: &RequestKey,
        content: String,
        (until, abandoned): (Instant, CancellationToken),
    ) -> Result<Accepted, RequestError> {
        let valid_for = until.saturating_duration_since(Instant::now());
        let answers = self.answers.subscribe();
        self.host.store.post_request(key, &content, valid_for).await?;
        drop(content);
        self.host.news.add_urgent(News::Work, &key.session, key.id.clone());
        // The session may have been closed meanwhile.
        self.mailbox.changed.notify_one();
        let answer = tokio::select! {
            answer = self.answer_to(key, until, answers) => answer,
            () = abandoned.cancelled() => Err(busy(&key.session)),
        };
        if answer.is_err() {
            // Nobody reads the answer any more.
            self.remove_request(key).await;
        }
        answer
    }

    /// Removes a request. If this fails, it is removed when it expires.
    async fn remove_request(&self, key: &RequestKey) {
        if let Err(error) = self.host.store.remove_request(key).await {
            tracing::debug!(session = key.session, %error, "a request to another process was not removed");
        }
    }

    async fn answer_to(
        &self,
        key: &RequestKey,
        until: Instant,
        mut answers: broadcast::Receiver<String>,
    ) -> Result<Accepted, RequestError> {
        let session = &key.session;
        loop {
            match outcome_of(&*self.host.store, key, until, self.stop.is_cancelled()).await? {
                Some(Outcome::Answered(answer)) => {
                    self.remove_request(key).await;
                    return answer;
                }
                Some(Outcome::Withdrawn) => return Err(busy(session)),
                Some(Outcome::Unknown) => return Err(not_answered(session)),
                None => {}
            }
            wait_for_answer(&mut answers, session).await;
        }
    }
}

/// Waits until the answer is announced, or until it is time to look for it.
async fn wait_for_answer(answers: &mut broadcast::Receiver<String>, session: &str) {
    let announced = async {
        loop {
            match answers.recv().await {
                Ok(answered) if answered == session => return,
                Ok(_) => {}
                Err(broadcast::error::RecvError::Lagged(_)) => return,
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            }
        }
    };
    tokio::select! {
        () = announced => {}
        () = tokio::time::sleep(ANSWER_INTERVAL) => {}
    }
}

/// The error for a request that no session has handled.
pub(super) fn busy(session: &str) -> RequestError {
    RequestError::new(RequestProblem::Unavailable, format!("session `{session}` is busy; try again later"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(session: &str, id: usize, (user, bytes): (&str, u64)) -> StoredRequest {
        let key = RequestKey { session: session.to_owned(), id: id.to_string() };
        StoredRequest { key, agent: "clerk".to_owned(), user: Some(user.to_owned()), bytes }
    }

    /// F2: requests to one session, or of one user, do not take all places of a process.
    #[test]
    fn f2_one_session_does_not_take_all_places_of_the_mailbox() {
        let mailbox = Mailbox::new(1);
        let of_session: Vec<_> = (0..HANDLED).filter_map(|id| mailbox.reserve(&stored("s", id, ("ann", 9)))).collect();
        assert_eq!(of_session.len(), HANDLED_PER_SESSION);
        let of_user: Vec<_> =
            (0..HANDLED).filter_map(|id| mailbox.reserve(&stored(&format!("s{id}"), id, ("ann", 9)))).collect();
        assert_eq!(of_session.len() + of_user.len(), HANDLED - HANDLED / 4);
        assert!(mailbox.reserve(&stored("other", 1, ("bob", 9))).is_some(), "another user gets a place at once");
        let again = mailbox.reserve(&stored("s1", 1, ("bob", 9)));
        assert!(again.is_none(), "the request is being handled already");
        drop((of_session, of_user));
        assert!(mailbox.handled.lock().is_empty());
        assert!(mailbox.reserve(&stored("s", 1, ("ann", 9))).is_some(), "the places are free again");
    }

    /// F2: large requests are taken by the memory that they need, and small ones are taken meanwhile.
    #[test]
    fn f2_requests_are_taken_within_a_budget_of_memory() {
        let mailbox = Mailbox::new(1);
        let prompt = 43 << 20;
        let take = |id: usize| mailbox.reserve(&stored(&format!("s{id}"), id, ("ann", prompt)));
        let large: Vec<_> = (0..HANDLED).filter_map(take).collect();
        assert_eq!(large.len(), 3);
        assert!(mailbox.reserve(&stored("small", 1, ("ann", 9))).is_some());
        drop(large);
        assert!(take(1).is_some());
        let largest = memory_of(agent_store::MAX_REQUEST_BYTES as u64);
        assert!(u64::from(largest) << 10 <= MEMORY, "every request can be taken");
    }
}
