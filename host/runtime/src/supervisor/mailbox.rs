//! Requests to sessions that another process has open (F2). The sender stores the request. The process that has the session
//! open hands it to the session, and stores the answer. If no process has the session open any more, any process opens it.

use super::Shared;
use crate::requests::{
    Accepted, PendingRequest, RequestError, RequestProblem, SessionRequest, answer_from_json, answer_to_json,
    request_from_json, request_to_json,
};
use crate::session::SessionError;
use agent_store::{News, RequestKey, RequestState, StoreError};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, broadcast};
use tokio::time::Instant;
use uuid::Uuid;

/// Maximum number of stored requests that are handled at the same time. Further requests wait in the store.
const HANDLED: usize = 64;
/// Maximum number of requests that one query returns.
const PAGE: usize = 256;
/// Time between two checks for an answer. An announcement of the answer leads to a check at once.
const ANSWER_INTERVAL: Duration = Duration::from_millis(200);
/// Time that the sender waits longer for a request that a process has begun to handle.
const GRACE: Duration = Duration::from_secs(5);

/// The stored requests that this process handles.
pub(super) struct Mailbox {
    handled: Mutex<HashSet<RequestKey>>,
    permits: Arc<Semaphore>,
    /// Notified when there may be a new request, or when a session was opened.
    pub(super) changed: Notify,
}

impl Default for Mailbox {
    fn default() -> Self {
        Self { handled: Mutex::default(), permits: Arc::new(Semaphore::new(HANDLED)), changed: Notify::new() }
    }
}

impl Mailbox {
    /// Reserves a request for a task of this process. Returns `None` if another task handles it, or if too many requests are
    /// handled already.
    fn reserve(&self, key: &RequestKey) -> Option<OwnedSemaphorePermit> {
        let permit = self.permits.clone().try_acquire_owned().ok()?;
        let is_new = self.handled.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone());
        is_new.then_some(permit)
    }

    fn release(&self, key: &RequestKey) {
        self.handled.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

/// Looks for stored requests again and again until the supervisor shuts down.
pub(super) async fn handle_stored_requests(shared: Arc<Shared>) {
    let agents: Vec<String> = shared.agents.keys().cloned().collect();
    loop {
        match shared.host.store.pending_requests(&agents, PAGE).await {
            Ok(keys) => keys.into_iter().for_each(|key| begin_to_handle(&shared, key)),
            Err(error) => tracing::warn!(%error, "cannot look for requests of other processes; the host tries again"),
        }
        tokio::select! {
            () = shared.stop.cancelled() => return,
            () = tokio::time::sleep(shared.options.scan_interval) => {}
            () = shared.mailbox.changed.notified() => {}
        }
    }
}

fn begin_to_handle(shared: &Arc<Shared>, key: RequestKey) {
    let Some(permit) = shared.mailbox.reserve(&key) else { return };
    let shared_with_task = shared.clone();
    shared.tasks.spawn(async move {
        let shared = shared_with_task;
        if let Err(error) = shared.handle_stored(&key).await {
            tracing::warn!(session = key.session, %error, "a request of another process cannot be handled now");
        }
        shared.mailbox.release(&key);
        drop(permit);
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
        let Some(content) = self.host.store.claim_request(key).await? else { return Ok(()) };
        let answer = match request_from_json(&content) {
            Err(error) => Err(error),
            Ok(request) => {
                let (pending, answer) = PendingRequest::new(request);
                let pending = PendingRequest { stored: Some(key.id.clone()), ..pending };
                if requests.send(pending).await.is_err() {
                    return Ok(());
                }
                // Without an answer, the session was closed before it handled the request.
                let Ok(answer) = answer.await else { return Ok(()) };
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

    /// Sends a request to a session that another process has open, and waits for the answer.
    pub(super) async fn forward(
        &self,
        session: &str,
        request: &SessionRequest,
        until: Instant,
    ) -> Result<Accepted, RequestError> {
        let key = RequestKey { session: session.to_owned(), id: Uuid::new_v4().to_string() };
        let valid_for = until.saturating_duration_since(Instant::now());
        let mut answers = self.answers.subscribe();
        self.host.store.post_request(&key, &request_to_json(request)?, valid_for).await?;
        self.host.news.add_urgent(News::Work, session, key.id.clone());
        // The session may have been closed meanwhile.
        self.mailbox.changed.notify_one();
        loop {
            let is_late = Instant::now() >= until;
            let state = match is_late || self.stop.is_cancelled() {
                true => self.host.store.withdraw_request(&key).await?,
                false => self.host.store.request_state(&key).await?,
            };
            match state {
                RequestState::Answered(answer) => {
                    if !is_late {
                        self.host.store.withdraw_request(&key).await?;
                    }
                    return answer_from_json(&answer);
                }
                RequestState::Gone => return Err(busy(session)),
                RequestState::Waiting if is_late || self.stop.is_cancelled() => return Err(busy(session)),
                RequestState::Claimed if Instant::now() >= until + GRACE => return Err(unknown(session)),
                RequestState::Waiting | RequestState::Claimed => {}
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

/// The error for a request that another process has taken and may have handled.
fn unknown(session: &str) -> RequestError {
    let message = format!(
        "another process has taken the request to session `{session}` and has not answered; look at the session before you \
         send the request again"
    );
    RequestError::new(RequestProblem::Unavailable, message)
}
