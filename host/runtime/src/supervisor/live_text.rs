//! The streamed text of sessions for people who watch them at other processes (F2). A process sends the text of a session only
//! while somebody watches the session elsewhere.

use super::Shared;
use crate::events::SessionWatch;
use crate::fleet::Fleet;
use crate::mirrored_reply::{MESSAGE_TEXT, Mirrored, MirroredReply, TextMessage, text_of};
use agent_core::event::Event;
use agent_fleet::{Hint, LiveMessage};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::broadcast::{Receiver, error::RecvError, error::TryRecvError};
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Time between two messages of a watcher.
const RENEWAL: Duration = Duration::from_secs(5);
/// Time after the last message of a watcher until the text is no longer sent.
const WATCHED_FOR: Duration = Duration::from_secs(16);
/// Maximum number of sessions that are watched elsewhere, and of sessions of other processes that are watched here.
const MAX_WATCHED: usize = 10_000;
/// Time in which pieces are collected before they are sent together.
const COLLECTED: Duration = Duration::from_millis(20);
/// Minimum time between two requests for the whole reply.
const REPEATED: Duration = Duration::from_secs(1);
/// Time between two checks which sessions are open or watched.
const CHECK: Duration = Duration::from_secs(1);

/// The sessions that are watched at other processes. They may be open in any process.
#[derive(Default)]
pub(super) struct WatchedElsewhere {
    sessions: Mutex<HashMap<String, Watched>>,
    changed: Notify,
}

struct Watched {
    until: Instant,
    /// Whether a watcher needs the whole reply.
    needs_all: bool,
}

impl WatchedElsewhere {
    /// Notes that somebody watches a session.
    pub(super) fn note(&self, session: String, is_new: bool) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let until = Instant::now() + WATCHED_FOR;
        if let Some(watched) = sessions.get_mut(&session) {
            watched.until = until;
            watched.needs_all |= is_new;
        } else if sessions.len() < MAX_WATCHED {
            sessions.insert(session, Watched { until, needs_all: true });
        }
        self.changed.notify_one();
    }

    /// Removes the sessions that nobody watches any more. Returns the others, and whether a watcher needs the whole reply.
    fn current(&self, is_open: impl Fn(&str) -> bool) -> Vec<(String, bool)> {
        let now = Instant::now();
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|_, watched| watched.until > now);
        let open = sessions.iter_mut().filter(|(session, _)| is_open(session));
        open.map(|(session, watched)| (session.clone(), std::mem::take(&mut watched.needs_all))).collect()
    }
}

/// A task that sends the text of a session.
struct Sender {
    watch: SessionWatch,
    needs_all: Arc<Notify>,
    task: AbortHandle,
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Sends the text of the sessions of this process that are watched elsewhere, until the supervisor shuts down.
pub(super) async fn send_text(shared: Arc<Shared>, fleet: Fleet) {
    let mut changes = shared.host.sessions.changes();
    let mut senders: HashMap<String, Sender> = HashMap::new();
    loop {
        changes.mark_unchanged();
        let current = shared.watched.current(|session| shared.host.sessions.requests_to(session).is_some());
        let mut sent = HashSet::new();
        for (session, needs_all) in current {
            let Some(watch) = shared.host.sessions.watch_of(&session) else { continue };
            sent.insert(session.clone());
            match senders.get(&session).filter(|sender| sender.watch.is_same(&watch)) {
                Some(sender) if needs_all => sender.needs_all.notify_one(),
                Some(_) => {}
                None => {
                    let needs_all = Arc::new(Notify::new());
                    let task = send_text_of((fleet.clone(), session.clone()), watch.clone(), needs_all.clone());
                    // The task is not one of the supervisor's tasks, because their number limits the open sessions.
                    let task = tokio::spawn(task).abort_handle();
                    senders.insert(session, Sender { watch, needs_all, task });
                }
            }
        }
        senders.retain(|session, _| sent.contains(session));
        tokio::select! {
            () = shared.stop.cancelled() => return,
            () = shared.watched.changed.notified() => {}
            _ = changes.changed() => {}
            () = tokio::time::sleep(CHECK) => {}
        }
    }
}

/// Sends the text of one session until it is closed.
async fn send_text_of((fleet, session): (Fleet, String), watch: SessionWatch, needs_all: Arc<Notify>) {
    let mut events = watch.subscribe().events;
    send_all(&fleet, &session, &watch).await;
    loop {
        let first = tokio::select! {
            () = needs_all.notified() => {
                send_all(&fleet, &session, &watch).await;
                continue;
            }
            first = events.recv() => first,
        };
        match first {
            Ok(event) if is_piece(&event, &session) => {
                tokio::time::sleep(COLLECTED).await;
                match collect(event, &mut events, &session) {
                    Some(pieces) => send(&fleet, &session, &TextMessage { is_whole: false, events: pieces }).await,
                    None => send_all(&fleet, &session, &watch).await,
                }
            }
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => send_all(&fleet, &session, &watch).await,
            Err(RecvError::Closed) => return,
        }
    }
}

fn is_piece(event: &Event, session: &str) -> bool {
    event.provisional.is_some() && event.session == session
}

/// Returns the pieces that have arrived, or `None` if some were missed.
fn collect(first: Event, events: &mut Receiver<Event>, session: &str) -> Option<Vec<Event>> {
    let (mut pieces, mut text) = (vec![first], 0);
    while text < MESSAGE_TEXT && pieces.len() < 1_000 {
        match events.try_recv() {
            Ok(event) if is_piece(&event, session) => {
                text += text_of(&event);
                pieces.push(event);
            }
            Ok(_) => {}
            Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            Err(TryRecvError::Lagged(_)) => return None,
        }
    }
    Some(pieces)
}

async fn send_all(fleet: &Fleet, session: &str, watch: &SessionWatch) {
    if let Some(message) = TextMessage::whole(watch) {
        send(fleet, session, &message).await;
    }
}

async fn send(fleet: &Fleet, session: &str, message: &TextMessage) {
    match serde_json::to_vec(message) {
        Ok(json) => fleet.nats.send_text(&fleet.key, session, &json).await,
        Err(error) => tracing::debug!(session, %error, "streamed text cannot be sent"),
    }
}

/// Receives the text of the sessions that are watched here and that other processes have open, until the supervisor shuts down.
pub(super) async fn receive_text(shared: Arc<Shared>, fleet: Fleet) {
    let mut changes = shared.host.sessions.changes();
    let mut followed: HashMap<String, AbortHandle> = HashMap::new();
    let mut next_renewal = Instant::now() + RENEWAL;
    loop {
        changes.mark_unchanged();
        let mut watched: HashSet<String> =
            shared.host.sessions.watched_elsewhere().into_iter().take(MAX_WATCHED).collect();
        followed.retain(|session, task| {
            let is_watched = watched.contains(session);
            if !is_watched {
                task.abort();
                shared.host.sessions.set_mirror(session, None);
            }
            is_watched
        });
        if next_renewal <= Instant::now() {
            next_renewal = Instant::now() + RENEWAL;
            for session in followed.keys() {
                fleet.nats.tell(&Hint::Watch { session: session.clone(), is_new: false }).await;
            }
        }
        watched.retain(|session| !followed.contains_key(session));
        for session in watched {
            let task = tokio::spawn(follow(shared.clone(), fleet.clone(), session.clone())).abort_handle();
            followed.insert(session, task);
        }
        tokio::select! {
            () = shared.stop.cancelled() => {
                followed.values().for_each(AbortHandle::abort);
                return;
            }
            _ = changes.changed() => {}
            () = tokio::time::sleep(CHECK) => {}
        }
    }
}

/// Follows one session that another process has open.
async fn follow(shared: Arc<Shared>, fleet: Fleet, session: String) {
    let mut messages = match fleet.nats.live(fleet.key.clone(), &session).await {
        Ok(Some(messages)) => messages,
        Ok(None) => return,
        Err(error) => return tracing::debug!(session, "streamed text cannot be received: {error}"),
    };
    let mut mirror = MirroredReply::new();
    shared.host.sessions.set_mirror(&session, Some(mirror.watch()));
    let ask = async || fleet.nats.tell(&Hint::Watch { session: session.clone(), is_new: true }).await;
    let (mut has_asked, mut asked_at) = (ask().await, Instant::now());
    loop {
        let message = tokio::select! {
            message = messages.next() => message,
            // NATS could not be used a moment ago.
            () = tokio::time::sleep(REPEATED), if !has_asked => {
                (has_asked, asked_at) = (ask().await, Instant::now());
                continue;
            }
        };
        match message {
            Some(LiveMessage::NewEvents) => {
                if let Err(error) = super::scan::note_events_of(&shared, std::slice::from_ref(&session)).await {
                    tracing::debug!(session, %error, "cannot look for new events");
                }
            }
            Some(LiveMessage::Text(json)) => {
                let shown = TextMessage::parse(&json, &session).map(|message| mirror.show(message));
                if shown == Some(Mirrored::Missing) && asked_at.elapsed() >= REPEATED {
                    (has_asked, asked_at) = (ask().await, Instant::now());
                }
            }
            None => return,
        }
    }
}
