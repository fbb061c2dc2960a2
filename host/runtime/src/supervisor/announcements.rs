//! Tells other processes about news of this process's sessions, and reacts to the news of other processes (F1). Everything
//! is also found without announcements, but later.

use super::Shared;
use crate::requests::{PendingRequest, SessionRequest};
use agent_store::{Announcement, News};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

/// Time in which news are collected before they are announced or handled together.
const COLLECTED: Duration = Duration::from_millis(20);
/// Maximum number of announcements that are handled together.
const BATCH: usize = 1_000;

/// Announces the news of this process until the supervisor shuts down.
pub(super) async fn send_news(shared: Arc<Shared>) {
    if shared.host.store.announcements().is_none() {
        return;
    }
    loop {
        tokio::select! {
            () = shared.stop.cancelled() => return,
            () = shared.host.news.added() => {}
        }
        tokio::time::sleep(COLLECTED).await;
        shared.host.store.announce(shared.host.news.take()).await;
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
                // The session may wait for the end of a delegated session, or may have a stored request.
                if let Some(requests) = shared.host.sessions.requests_to(&session) {
                    let (request, _) = PendingRequest::new(SessionRequest::Continue);
                    // A session with many requests looks for news by itself.
                    let _ = requests.try_send(request);
                }
                look_for_everything(shared);
            }
            // The tasks that wait for answers receive the announcements themselves.
            News::Answer => {}
        }
    }
    if let Err(error) = super::scan::note_events_of(shared, &with_events).await {
        tracing::warn!(%error, "cannot look for new events of watched sessions; the host tries again");
    }
}
