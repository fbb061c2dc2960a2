//! Searches the store for sessions that can continue without a request, and for events that other processes have
//! committed.

use super::tenants::Tenant;
use super::{Opened, Shared};
use crate::host::now_ms;
use crate::requests::{PendingRequest, SessionRequest};
use crate::session::SessionError;
use agent_core::event::WaitCause;
use agent_core::run::Run;
use agent_store::{ContinuationReason, MAX_PAGE, SessionFilter, SessionState, StoreError};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of sessions that one query returns.
const PAGE: usize = 256;
/// Time between two searches for turns that wait for a delegated session that does not exist or has ended. Such a turn
/// results only from a crash, or if several processes use the sessions.
const DELEGATION_INTERVAL: Duration = Duration::from_secs(60);

/// Searches again and again until the supervisor shuts down.
pub(super) async fn scan(shared: Arc<Shared>) {
    let mut next_delegations = Instant::now();
    loop {
        if let Err(error) = continue_sessions(&shared).await {
            tracing::warn!(%error, "cannot look for sessions that can continue; the host tries again");
        }
        if next_delegations <= Instant::now() {
            next_delegations = Instant::now() + DELEGATION_INTERVAL;
            if let Err(error) = continue_delegations(&shared).await {
                tracing::warn!(%error, "cannot look for turns that wait for delegated sessions; the host tries again");
            }
        }
        if let Err(error) = note_events(&shared).await {
            tracing::warn!(%error, "cannot look for new events of watched sessions; the host tries again");
        }
        tokio::select! {
            () = shared.stop.cancelled() => return,
            () = tokio::time::sleep(shared.options.scan_interval) => {}
            () = shared.changed.notified() => {}
        }
    }
}

/// Continues the sessions that are due, parents whose child has ended, and children whose parent was cancelled.
async fn continue_sessions(shared: &Arc<Shared>) -> Result<(), StoreError> {
    let agents: Vec<String> = shared.agents.keys().cloned().collect();
    let mut after = String::new();
    loop {
        let store = &shared.host.store;
        let page = store.continuable(&agents, now_ms(&**store), &after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.subject.clone();
        for session in page {
            let request = match session.reason {
                ContinuationReason::ParentEnded => SessionRequest::Cancel,
                ContinuationReason::Due | ContinuationReason::ChildEnded => SessionRequest::Continue,
            };
            let tenant = Tenant { agent: session.agent, user: session.user };
            continue_session(shared, session.subject, &tenant, request);
        }
    }
}

/// Opens a session in its own task, so that it continues, unless an earlier attempt has just failed. Each scan tries at most
/// once.
fn continue_session(shared: &Arc<Shared>, session: String, tenant: &Tenant, request: SessionRequest) {
    let is_open = shared.host.sessions.requests_to(&session).is_some();
    if is_open || !shared.backoff.is_over(&session, Instant::now()) {
        return;
    }
    // If too many sessions continue already, in total or for this tenant, a later scan continues this session.
    let Ok(place) = shared.continuing.take(tenant) else { return };
    if !shared.opening.lock().unwrap_or_else(PoisonError::into_inner).insert(session.clone()) {
        return;
    }
    let shared_with_task = shared.clone();
    shared.tasks.spawn(async move {
        let shared = shared_with_task;
        let (first, _answer) = PendingRequest::new(request);
        let opened = shared.open(&session, (Some(first), Opened::Scan { _place: place })).await;
        shared.opening.lock().unwrap_or_else(PoisonError::into_inner).remove(&session);
        match opened {
            Ok(()) => {}
            // Another process or a request has opened the session, and continues it.
            Err(SessionError::Store(StoreError::Busy { .. })) => shared.backoff.taken(&session, Instant::now()),
            // Requests have taken the places. A later scan tries again.
            Err(SessionError::NoPlace) => {}
            Err(error) => {
                let delay = shared.backoff.failed(&session, Instant::now());
                tracing::warn!(session, %error, ?delay, "the session cannot continue now");
            }
        }
    });
}

/// Continues the turns that wait for a delegated session that does not exist, because the host stopped before it created
/// the session (D3), or whose turn has ended, if [`continue_sessions`] did not notice the end.
async fn continue_delegations(shared: &Arc<Shared>) -> Result<(), StoreError> {
    let mut after = String::new();
    loop {
        let page = shared.host.store.unfinished(&after, PAGE.min(MAX_PAGE)).await?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        after = last.clone();
        for (subject, snapshot) in page {
            let Ok(run) = Run::restore(Some(&snapshot)) else { continue };
            if !shared.agents.contains_key(&run.agent) {
                continue;
            }
            for wait in run.waits() {
                let WaitCause::Agent { session } = wait.cause else { continue };
                let filter = SessionFilter { subject: Some(session), ..SessionFilter::default() };
                // A session without a commit was created by a process that stopped before it began the turn.
                let children = shared.host.store.sessions(filter, 1).await?;
                let is_open = |state| matches!(state, SessionState::Running | SessionState::Suspended);
                if children.iter().all(|child| child.revision == 0 || !is_open(child.state)) {
                    let tenant = Tenant { agent: run.agent.clone(), user: None };
                    continue_session(shared, subject, &tenant, SessionRequest::Continue);
                    break;
                }
            }
        }
    }
}

/// Notifies the watchers of sessions that other processes run.
async fn note_events(shared: &Shared) -> Result<(), StoreError> {
    note_events_in(shared, &shared.host.sessions.watched_elsewhere()).await
}

/// Notifies the watchers of those of the sessions that are watched and that other processes run.
pub(super) async fn note_events_of(shared: &Shared, sessions: &[String]) -> Result<(), StoreError> {
    if sessions.is_empty() {
        return Ok(());
    }
    let mut watched = shared.host.sessions.watched_elsewhere();
    watched.retain(|session| sessions.contains(session));
    note_events_in(shared, &watched).await
}

async fn note_events_in(shared: &Shared, watched: &[String]) -> Result<(), StoreError> {
    for page in watched.chunks(MAX_PAGE) {
        for (session, last_event) in shared.host.store.last_events(page).await? {
            shared.host.sessions.note_last_event(&session, last_event);
        }
    }
    Ok(())
}
