//! Tells other processes about news of this process's sessions, and reacts to the news of other processes (F1). Everything
//! is also found without announcements, but later.

use super::Shared;
use crate::fleet::{Fleet, announce};
use crate::requests::{PendingRequest, SessionRequest};
use agent_fleet::Hint;
use agent_store::{Announcement, News};
use futures::FutureExt;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

/// Time in which news are collected before they are announced or handled together.
const COLLECTED: Duration = Duration::from_millis(20);
/// Maximum number of announcements that are handled together.
const BATCH: usize = 1_000;
/// Number of announcements that a receiver may be behind.
pub(super) const CAPACITY: usize = 1_024;
/// Time between two attempts to subscribe.
const RETRY: Duration = Duration::from_secs(1);

/// Announces the news of this process until the supervisor shuts down.
pub(super) async fn send_news(shared: Arc<Shared>) {
    if shared.host.store.announcements().is_none() && shared.host.fleet.is_none() {
        return;
    }
    loop {
        tokio::select! {
            () = shared.stop.cancelled() => return,
            () = shared.host.news.added() => {}
        }
        tokio::select! {
            () = shared.host.news.is_urgent() => {}
            () = tokio::time::sleep(COLLECTED) => {}
        }
        shared.announce_news().await;
    }
}

impl Shared {
    /// Announces the news that wait.
    pub(super) async fn announce_news(&self) {
        announce(&*self.host.store, self.host.fleet.as_ref(), self.host.news.take()).await;
    }
}

/// Handles the announcements of other processes until the supervisor shuts down.
pub(super) async fn receive_news(shared: Arc<Shared>) {
    let Some(mut announcements) = shared.host.store.announcements() else { return };
    loop {
        let first = tokio::select! {
            () = shared.stop.cancelled() => return,
            first = announcements.recv() => first,
        };
        let mut news = BTreeSet::new();
        match first {
            Ok(announcement) => drop(news.insert(announcement)),
            Err(RecvError::Lagged(_)) => look_for_everything(&shared),
            Err(RecvError::Closed) => return,
        }
        while news.len() < BATCH {
            match announcements.try_recv() {
                Ok(announcement) => drop(news.insert(announcement)),
                Err(TryRecvError::Lagged(_)) => look_for_everything(&shared),
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        handle(&shared, news).await;
        // Many announcements in a short time must not cause as many searches.
        tokio::time::sleep(COLLECTED).await;
    }
}

fn look_for_everything(shared: &Shared) {
    shared.changed.notify_one();
    shared.mailbox.changed.notify_one();
}

async fn handle(shared: &Shared, news: BTreeSet<Announcement>) {
    let mut with_events = Vec::new();
    for Announcement { news, session } in news {
        match news {
            News::Events => with_events.push(session),
            News::Work => {
                shared.tell_open_session(&session);
                look_for_everything(shared);
            }
            News::Answer => shared.note_answer(session),
        }
    }
    if let Err(error) = super::scan::note_events_of(shared, &with_events).await {
        tracing::warn!(%error, "cannot look for new events of watched sessions; the host tries again");
    }
}

impl Shared {
    /// Tells a session that is open in this process that something for which it waits may have happened, such as the end of a
    /// delegated session, or that there may be a stored request. Returns false if the session is not open here.
    pub(super) fn tell_open_session(&self, session: &str) -> bool {
        let Some(requests) = self.host.sessions.requests_to(session) else { return false };
        let (request, _) = PendingRequest::new(SessionRequest::Continue);
        // A session with many requests looks for news by itself.
        let _ = requests.try_send(request);
        self.mailbox.changed.notify_one();
        true
    }

    /// Tells the tasks that wait for answers that a request to this session was answered.
    fn note_answer(&self, session: String) {
        // Nobody may wait at the moment.
        let _ = self.answers.send(session);
    }
}

/// Receives the hints of other processes over NATS until the supervisor shuts down.
pub(super) async fn receive_hints(shared: Arc<Shared>, fleet: Fleet) {
    let mut hints = loop {
        match fleet.nats.hints().await {
            Ok(hints) => break hints,
            Err(error) => tracing::debug!("announcements cannot be received from NATS: {error}"),
        }
        tokio::select! {
            () = shared.stop.cancelled() => return,
            () = tokio::time::sleep(RETRY) => {}
        }
    };
    loop {
        let first = tokio::select! {
            () = shared.stop.cancelled() => return,
            first = hints.next() => first,
        };
        let Some(first) = first else { return };
        let mut received = BTreeSet::from([first]);
        while received.len() < BATCH
            && let Some(Some(hint)) = hints.next().now_or_never()
        {
            received.insert(hint);
        }
        for hint in received {
            match hint {
                // The work queue delivers the same message to one process, which takes a session that nobody has open.
                Hint::Work(session) => drop(shared.tell_open_session(&session)),
                Hint::Answer(session) => shared.note_answer(session),
                Hint::Watch { session, is_new } => shared.watched.note(session, is_new),
                Hint::Events(_) => {}
            }
        }
        // Many hints about a session in a short time, which anybody may have sent, must not keep the session busy.
        tokio::time::sleep(COLLECTED).await;
    }
}
