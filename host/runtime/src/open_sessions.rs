//! The sessions of this process that are open or watched.

use crate::events::SessionWatch;
use crate::requests::PendingRequest;
use agent_store::Lease;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// Maximum number of requests that wait until a session handles them.
const INBOX_CAPACITY: usize = 16;

/// The sessions of this process that are open or watched. All clones share the same data.
///
/// A session that is only watched needs little memory, because its channel for events exists only while it is open.
#[derive(Clone, Default)]
pub struct OpenSessions {
    presences: Arc<Mutex<Presences>>,
    /// Counts how often a session was opened or closed, or began or ceased to be watched.
    changes: Arc<watch::Sender<u64>>,
}

type Presences = HashMap<String, watch::Sender<SessionPresence>>;

/// Whether a session is open in this process, as its watchers see it.
#[derive(Clone, Default)]
pub(crate) struct SessionPresence {
    open: Option<OpenSession>,
    /// The streamed text of the session, as another process that has the session open sends it. `None` if this process does
    /// not receive it.
    mirror: Option<SessionWatch>,
    /// Number of the session's last durable event, as far as another process has committed it and this process knows it.
    last_event: u64,
}

/// Where the events of a session that are not stored yet come from.
pub(crate) enum LiveSource<'p> {
    /// The session is open in this process.
    Session(&'p SessionWatch),
    /// Another process sends the provisional events, which may come before the durable events on which they follow.
    Mirror(&'p SessionWatch),
}

#[derive(Clone)]
struct OpenSession {
    /// Number that distinguishes the openings of one session.
    opening: usize,
    watch: SessionWatch,
    requests: mpsc::Sender<PendingRequest>,
    lease: Lease,
    /// Cancelled to stop the turn of the session and leave it open.
    leaving: CancellationToken,
}

impl SessionPresence {
    /// Returns the handle with which the session can be watched. `None` if this process has neither the session nor a mirror.
    pub(crate) fn live(&self) -> Option<LiveSource<'_>> {
        match (&self.open, &self.mirror) {
            (Some(open), _) => Some(LiveSource::Session(&open.watch)),
            (None, mirror) => mirror.as_ref().map(LiveSource::Mirror),
        }
    }
}

impl OpenSessions {
    fn presences(&self) -> MutexGuard<'_, Presences> {
        self.presences.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a receiver that notices when a session was opened or closed, or began or ceased to be watched.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn note_change(&self) {
        self.changes.send_modify(|changes| *changes = changes.wrapping_add(1));
    }

    /// Registers a session that was opened in this process. The session stays registered until the inbox is dropped. The token
    /// `leaving` stops its turn.
    pub(crate) fn register(&self, watch: SessionWatch, lease: Lease, leaving: CancellationToken) -> Inbox {
        let session = lease.session.clone();
        let (requests, receiver) = mpsc::channel(INBOX_CAPACITY);
        let mut presences = self.presences();
        let presence = presences.entry(session.clone()).or_default();
        let mut opening = 0;
        presence.send_modify(|presence| {
            opening = presence.open.as_ref().map_or(0, |open| open.opening + 1);
            presence.open = Some(OpenSession { opening, watch, requests, lease, leaving });
        });
        self.note_change();
        Inbox { requests: receiver, opening, session, sessions: self.clone() }
    }

    /// Returns the channel for requests to a session. `None` if the session is not open in this process.
    pub(crate) fn requests_to(&self, session: &str) -> Option<mpsc::Sender<PendingRequest>> {
        self.presences().get(session)?.borrow().open.as_ref().map(|open| open.requests.clone())
    }

    /// Returns the handle with which a session can be watched. `None` if the session is not open in this process.
    pub(crate) fn watch_of(&self, session: &str) -> Option<SessionWatch> {
        self.presences().get(session)?.borrow().open.as_ref().map(|open| open.watch.clone())
    }

    /// Sets or removes the streamed text of a watched session that another process has open.
    pub(crate) fn set_mirror(&self, session: &str, mirror: Option<SessionWatch>) {
        if let Some(presence) = self.presences().get(session) {
            presence.send_modify(|presence| presence.mirror = mirror);
        }
    }

    /// Returns the leases of the sessions that are open in this process.
    pub(crate) fn leases(&self) -> Vec<Lease> {
        let presences = self.presences();
        presences.values().filter_map(|presence| Some(presence.borrow().open.as_ref()?.lease.clone())).collect()
    }

    /// Stops the turn of a session whose lease was lost, with its plugins. Returns false if the session is no longer open with
    /// this lease.
    pub(crate) fn leave(&self, lost: &Lease) -> bool {
        let presences = self.presences();
        let Some(presence) = presences.get(&lost.session) else { return false };
        let presence = presence.borrow();
        let Some(open) = presence.open.as_ref().filter(|open| open.lease == *lost) else { return false };
        open.leaving.cancel();
        true
    }

    /// Watches whether a session is open in this process.
    pub(crate) fn watch(&self, session: &str) -> PresenceWatch {
        let presence = self.presences().entry(session.to_owned()).or_default().subscribe();
        self.note_change();
        PresenceWatch { presence: Some(presence), session: session.to_owned(), sessions: self.clone() }
    }

    /// Returns the subjects of the sessions that are watched, but are not open in this process.
    pub(crate) fn watched_elsewhere(&self) -> Vec<String> {
        let presences = self.presences();
        let elsewhere = presences.iter().filter(|(_, presence)| presence.borrow().open.is_none());
        elsewhere.map(|(session, _)| session.clone()).collect()
    }

    /// Tells the watchers of a session the number of its last durable event, which another process has committed.
    pub(crate) fn note_last_event(&self, session: &str, last_event: u64) {
        if let Some(presence) = self.presences().get(session) {
            presence.send_if_modified(|presence| {
                let is_new = presence.last_event < last_event;
                presence.last_event = presence.last_event.max(last_event);
                is_new
            });
        }
    }

    /// Removes a session that is neither open nor watched.
    fn remove_if_unused(&self, session: &str) {
        let mut presences = self.presences();
        let is_unused = |presence: &watch::Sender<SessionPresence>| {
            presence.receiver_count() == 0 && presence.borrow().open.is_none()
        };
        if presences.get(session).is_some_and(is_unused) {
            presences.remove(session);
        }
        self.note_change();
    }
}

/// Receives the requests to an open session.
pub(crate) struct Inbox {
    requests: mpsc::Receiver<PendingRequest>,
    opening: usize,
    session: String,
    sessions: OpenSessions,
}

impl Inbox {
    /// Waits for the next request.
    pub(crate) async fn next(&mut self) -> PendingRequest {
        match self.requests.recv().await {
            Some(request) => request,
            // The registry holds a sender as long as this inbox exists, unless the session was opened once more.
            None => std::future::pending().await,
        }
    }

    /// Returns the next request, if one has arrived.
    pub(crate) fn try_next(&mut self) -> Option<PendingRequest> {
        self.requests.try_recv().ok()
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        if let Some(presence) = self.sessions.presences().get(&self.session) {
            presence.send_if_modified(|presence| {
                let is_own = presence.open.as_ref().is_some_and(|open| open.opening == self.opening);
                presence.open.take_if(|_| is_own).is_some()
            });
        }
        self.sessions.remove_if_unused(&self.session);
    }
}

/// Watches whether a session is open in this process.
pub(crate) struct PresenceWatch {
    /// `None` only while the value is dropped.
    presence: Option<watch::Receiver<SessionPresence>>,
    session: String,
    sessions: OpenSessions,
}

impl PresenceWatch {
    pub(crate) fn session(&self) -> &str {
        &self.session
    }

    /// Returns the current presence, and marks it as seen.
    pub(crate) fn current(&mut self) -> SessionPresence {
        self.presence.as_mut().map(|presence| presence.borrow_and_update().clone()).unwrap_or_default()
    }

    /// Waits until the presence differs from the presence that was last seen.
    pub(crate) async fn changed(&mut self) {
        let changed = match &mut self.presence {
            Some(presence) => presence.changed().await.is_ok(),
            None => false,
        };
        if !changed {
            // The registry keeps the sender as long as this watch exists.
            std::future::pending().await
        }
    }
}

impl Drop for PresenceWatch {
    fn drop(&mut self) {
        self.presence = None;
        self.sessions.remove_if_unused(&self.session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Watchers;

    fn lease(epoch: u64) -> Lease {
        Lease { session: "a".to_owned(), epoch }
    }

    /// F1: a lost lease stops the session that has it, and no later opening of the session.
    #[tokio::test]
    async fn f1_a_lost_lease_stops_the_session() {
        let (sessions, leaving) = (OpenSessions::default(), CancellationToken::new());
        let inbox = sessions.register(watch_of_nobody(), lease(2), leaving.clone());
        assert_eq!(sessions.leases(), [lease(2)]);
        assert!(!sessions.leave(&lease(1)) && !leaving.is_cancelled());
        assert!(sessions.leave(&lease(2)) && leaving.is_cancelled());
        drop(inbox);
        assert!(!sessions.leave(&lease(2)) && sessions.leases().is_empty());
    }

    fn watch_of_nobody() -> SessionWatch {
        Arc::new(Watchers::new()).handle()
    }

    /// I9: a session is known as long as it is open or watched, and is then forgotten.
    #[tokio::test]
    async fn i9_sessions_are_known_while_they_are_open_or_watched() {
        let sessions = OpenSessions::default();
        let mut watch = sessions.watch("a");
        assert!(watch.current().live().is_none() && sessions.requests_to("a").is_none());
        assert_eq!(sessions.watched_elsewhere(), ["a"]);
        let first = sessions.register(watch_of_nobody(), lease(1), CancellationToken::new());
        watch.changed().await;
        assert!(watch.current().live().is_some() && sessions.requests_to("a").is_some());
        assert_eq!(sessions.watched_elsewhere(), [""; 0]);
        let second = sessions.register(watch_of_nobody(), lease(2), CancellationToken::new());
        drop(first);
        assert!(sessions.requests_to("a").is_some(), "a later opening is not removed");
        drop(second);
        assert!(watch.current().live().is_none());
        let changes = sessions.changes();
        sessions.set_mirror("a", Some(watch_of_nobody()));
        assert!(matches!(watch.current().live(), Some(LiveSource::Mirror(_))) && sessions.watch_of("a").is_none());
        drop(watch);
        assert!(sessions.presences().is_empty() && changes.has_changed().is_ok_and(|changed| changed));
    }
}
