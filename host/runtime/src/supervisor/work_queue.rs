//! Takes the sessions that are announced on the work queue of NATS (F1). An announcement is confirmed when this process works on its
//! session, or if there is nothing to do. If no process can continue the session, the announcement becomes a dead letter.

use super::{Opened, Shared};
use crate::fleet::Fleet;
use crate::host::now_ms;
use crate::requests::{PendingRequest, SessionRequest};
use crate::session::SessionError;
use agent_fleet::{MAX_DELIVERIES, Work};
use agent_store::{ContinuationReason, StoreError};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, oneshot};

/// Maximum number of announcements that are handled at the same time.
const HANDLED: usize = 64;
/// Delay of the second delivery after a failure. Each further failure doubles the delay.
const FIRST_DELAY: Duration = Duration::from_secs(1);
/// Time until the next attempt if this process cannot try to continue the session now.
const LATER: Duration = Duration::from_secs(2);
/// Time after which a session that was opened counts as continued.
const WORKS_AFTER: Duration = Duration::from_secs(5);
/// Number of sessions that are read to find out whether one session can continue.
const PAGE: usize = 64;

/// What became of an announcement.
enum Taken {
    /// A process works on the session, or there is nothing to do.
    Confirmed,
    /// This process could not try to continue the session.
    Later,
    /// The session cannot continue here.
    Failed(String),
}

/// Takes the sessions of one agent until the supervisor shuts down.
pub(super) async fn take_announced_work(shared: Arc<Shared>, fleet: Fleet, agent: String) {
    let mut queue = fleet.nats.work_queue(&agent);
    let permits = Arc::new(Semaphore::new(HANDLED));
    loop {
        let work = async {
            let permit = permits.clone().acquire_owned().await.ok()?;
            Some((queue.next().await, permit))
        };
        let (work, permit) = tokio::select! {
            () = shared.stop.cancelled() => return,
            work = work => match work {
                Some(work) => work,
                None => return,
            },
        };
        let (shared_with_task, fleet) = (shared.clone(), fleet.clone());
        shared.tasks.spawn(async move {
            shared_with_task.take(work, &fleet).await;
            drop(permit);
        });
    }
}

impl Shared {
    async fn take(self: &Arc<Self>, work: Work, fleet: &Fleet) {
        if work.deliveries > MAX_DELIVERIES {
            return work
                .give_up("no process has confirmed it; processes may have stopped while they tried", &fleet.process)
                .await;
        }
        let taken = loop {
            match self.try_to_take(&work).await {
                // Waiting here does not count as a failure, and lets this process take no more work than it can handle.
                Taken::Later => work.still_trying().await,
                taken => break taken,
            }
            tokio::select! {
                // A process that shuts down leaves the announcement to the others.
                () = self.stop.cancelled() => return work.retry_after(Duration::ZERO).await,
                () = tokio::time::sleep(LATER) => {}
            }
        };
        match taken {
            Taken::Failed(reason) if work.deliveries >= MAX_DELIVERIES => {
                tracing::warn!(
                    session = work.session,
                    reason,
                    "no process can continue the session; see `agent-host dead-letter list`"
                );
                work.give_up(&reason, &fleet.process).await;
            }
            Taken::Failed(_) => {
                let delay = FIRST_DELAY * (1 << (work.deliveries.clamp(1, MAX_DELIVERIES) - 1));
                work.retry_after(delay).await;
            }
            Taken::Confirmed | Taken::Later => work.confirm().await,
        }
    }

    async fn try_to_take(self: &Arc<Self>, work: &Work) -> Taken {
        let session = work.session.as_str();
        if self.tell_open_session(session) {
            return Taken::Confirmed;
        }
        // The outcome of an attempt of the scan is not known yet.
        if self.opening.lock().unwrap_or_else(PoisonError::into_inner).contains(session) {
            return Taken::Later;
        }
        let request = match self.request_to_continue(session).await {
            Ok(Ok(request)) => request,
            Ok(Err(taken)) => {
                // A request to the session may be stored.
                self.mailbox.changed.notify_one();
                return taken;
            }
            Err(error) => {
                tracing::debug!(session, %error, "an announced session cannot be looked up now");
                return Taken::Later;
            }
        };
        if self.check_capacity().is_err() {
            return Taken::Later;
        }
        // A redelivery has waited already.
        if work.deliveries <= 1 && !self.backoff.is_over(session, Instant::now()) {
            return Taken::Failed("an attempt to continue it had just failed in this process".to_owned());
        }
        if !self.opening.lock().unwrap_or_else(PoisonError::into_inner).insert(session.to_owned()) {
            return Taken::Later;
        }
        let (outcome, ended) = oneshot::channel();
        let (first, _answer) = PendingRequest::new(request);
        let opened = self.open(session, (Some(first), Opened::Announcement { outcome })).await;
        self.opening.lock().unwrap_or_else(PoisonError::into_inner).remove(session);
        let error = match opened {
            Ok(()) => match tokio::time::timeout(WORKS_AFTER, ended).await {
                Ok(Ok(Err(error))) => error,
                _ => return Taken::Confirmed,
            },
            Err(SessionError::Store(StoreError::Busy { .. })) => return Taken::Confirmed,
            Err(SessionError::NoPlace) => return Taken::Later,
            Err(error) => {
                let delay = self.backoff.failed(session, Instant::now());
                tracing::warn!(session, %error, ?delay, "the session cannot continue now");
                describe(&error)
            }
        };
        error.map_or(Taken::Later, Taken::Failed)
    }

    /// Returns the request with which a session continues, or what becomes of the announcement if the session cannot continue, if a
    /// process has it open, or if this process does not run its agent.
    async fn request_to_continue(&self, session: &str) -> Result<Result<SessionRequest, Taken>, StoreError> {
        let Some(found) = self.stored(session).await? else { return Ok(Err(Taken::Confirmed)) };
        match &found.open_in {
            // This process is just opening or closing the session.
            Some(holder) if holder.is_this_process() => return Ok(Err(Taken::Later)),
            Some(_) => return Ok(Err(Taken::Confirmed)),
            None if !self.agents.contains_key(&found.agent) => return Ok(Err(Taken::Confirmed)),
            None => {}
        }
        // Only the sessions that have the same beginning come between this text and the session.
        let mut before = session.to_owned();
        before.pop();
        let store = &self.host.store;
        let page = store.continuable(&[found.agent], now_ms(&**store), &before, PAGE).await?;
        let reason = page.iter().find(|found| found.subject == session).map(|found| found.reason);
        if reason.is_none() && page.len() == PAGE {
            self.changed.notify_one();
        }
        Ok(match reason {
            None => Err(Taken::Confirmed),
            Some(ContinuationReason::ParentEnded) => Ok(SessionRequest::Cancel),
            Some(ContinuationReason::Due | ContinuationReason::ChildEnded) => Ok(SessionRequest::Continue),
        })
    }
}

/// Describes why a session cannot continue. Returns `None` if the database is the reason, which says nothing about the session.
pub(super) fn describe(error: &SessionError) -> Option<String> {
    let is_temporary = matches!(
        error,
        SessionError::Store(
            StoreError::Busy { .. }
                | StoreError::LeaseLost { .. }
                | StoreError::Conflict { .. }
                | StoreError::ReadOnly { .. }
                | StoreError::DiskFull { .. }
                | StoreError::Locked { .. }
                | StoreError::Failed { .. }
                | StoreError::OutcomeUnknown { .. }
                | StoreError::ObjectStore { .. }
                | StoreError::Closed
        )
    );
    (!is_temporary).then(|| error.to_string())
}
