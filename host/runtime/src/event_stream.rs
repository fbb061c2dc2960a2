//! A stream of a session's events for one reader, which needs no lease. Durable events come from the store, and streamed
//! events come from the session while it is open in this process (L30), or from the process that has it open (F2).

use crate::events::{EventPosition, MissedReply, PartialReply, Subscription};
use crate::open_sessions::{LiveSource, OpenSessions, PresenceWatch};
use agent_core::event::Event;
use agent_store::{Store, StoreError};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::broadcast::{Receiver, error::RecvError};

/// Maximum number of durable events that are read from the store at once.
const PAGE: usize = 256;

/// The events of one session, from a position on. A reader that reconnects continues at the position of the last event
/// that it received, and receives each durable event exactly once.
pub struct SessionEvents {
    store: Arc<dyn Store>,
    presence: PresenceWatch,
    /// Position of the last event that was returned.
    position: EventPosition,
    /// The session's own events while it is open in this process, or the streamed events that another process sends.
    live: Option<Receiver<Event>>,
    /// Whether another process sends the streamed events. They may come before the durable events on which they follow.
    is_mirror: bool,
    /// Events that were read, but not returned yet.
    ready: VecDeque<SessionEvent>,
    /// The part of the current reply that was written before this reader began to follow the session. It comes after the
    /// durable events that the store contains.
    missed: VecDeque<SessionEvent>,
    /// Whether the store may contain events after the position.
    is_behind: bool,
    /// Sequence number of the last event that is read from the store, because the later events come from the session. `None`
    /// if all events are read.
    read_until: Option<u64>,
}

/// An item of [`SessionEvents`].
#[derive(Clone, Debug, PartialEq)]
pub enum SessionEvent {
    /// An event of the session.
    Event(Event),
    /// The part of the current reply that the reader has missed. It replaces everything that the reader has received of
    /// this reply.
    Reply(PartialReply),
}

impl SessionEvent {
    /// Returns the position of the event, or of the last event that the partial reply includes.
    pub fn position(&self) -> EventPosition {
        match self {
            Self::Event(event) => EventPosition::of(event),
            Self::Reply(reply) => reply.place,
        }
    }
}

impl SessionEvents {
    /// Streams the events of `session` after this position.
    pub fn new(store: Arc<dyn Store>, sessions: &OpenSessions, session: &str, after: EventPosition) -> Self {
        let presence = sessions.watch(session);
        Self {
            store,
            presence,
            position: after,
            live: None,
            is_mirror: false,
            ready: VecDeque::new(),
            missed: VecDeque::new(),
            is_behind: true,
            read_until: None,
        }
    }

    /// Returns the position of the last event that was returned.
    pub fn position(&self) -> EventPosition {
        self.position
    }

    /// Waits for the next event. Dropping the future loses no event.
    pub async fn next(&mut self) -> Result<SessionEvent, StoreError> {
        loop {
            while let Some(event) = self.ready.pop_front() {
                if event.position() > self.position && !self.is_out_of_place(&event) {
                    self.position = event.position();
                    return Ok(event);
                }
            }
            // The subscription comes first, so that no event is lost while the store is read.
            if self.live.is_none() {
                self.follow();
            }
            if self.is_behind {
                self.read_page().await?;
                continue;
            }
            if !self.missed.is_empty() {
                self.ready.append(&mut self.missed);
                continue;
            }
            self.wait().await;
        }
    }

    /// Returns whether an event of another process does not follow on the last durable event that this reader knows. A streamed
    /// event must never make the reader skip a durable event.
    fn is_out_of_place(&self, event: &SessionEvent) -> bool {
        let EventPosition { sequence, provisional } = event.position();
        self.is_mirror && provisional > 0 && sequence != self.position.sequence
    }

    async fn read_page(&mut self) -> Result<(), StoreError> {
        let page = match self.store.events(self.presence.session(), self.position.sequence, PAGE).await {
            // A new session is not stored before its first commit.
            Err(StoreError::NoSession { .. }) => Vec::new(),
            page => page?,
        };
        let read = page.len();
        let until = self.read_until.unwrap_or(u64::MAX);
        let events = page.into_iter().map(|stored| stored.event).filter(|event| event.sequence <= until);
        let before = self.ready.len();
        self.ready.extend(events.map(SessionEvent::Event));
        self.is_behind = read > 0 && self.ready.len() - before == read;
        Ok(())
    }

    /// Begins to follow the session if it is open in this process, or if another process sends its streamed events.
    fn follow(&mut self) {
        let presence = self.presence.current();
        let watch = match presence.live() {
            None => return,
            Some(LiveSource::Session(watch)) => {
                self.is_mirror = false;
                watch
            }
            Some(LiveSource::Mirror(watch)) => {
                self.is_mirror = true;
                watch
            }
        };
        let Subscription { missed, events } = watch.subscribe_after(self.position);
        self.live = Some(events);
        // Durable events that were committed before the subscription come before the missed part of the reply.
        (self.is_behind, self.read_until) = (true, None);
        self.missed = match missed {
            MissedReply::Nothing => VecDeque::new(),
            MissedReply::Events(events) => events.into_iter().map(SessionEvent::Event).collect(),
            MissedReply::Reply(reply) => VecDeque::from([SessionEvent::Reply(reply)]),
            MissedReply::Since(after, events) => {
                (self.is_behind, self.read_until) = (self.position.sequence < after, Some(after));
                events.into_iter().map(SessionEvent::Event).collect()
            }
        };
    }

    /// Waits until something has changed.
    async fn wait(&mut self) {
        let received = match &mut self.live {
            None => {
                self.presence.changed().await;
                self.is_behind = true;
                return;
            }
            Some(live) => tokio::select! {
                biased;
                received = live.recv() => received,
                // The session was closed, or opened once more.
                () = self.presence.changed() => Err(RecvError::Closed),
            },
        };
        match received {
            Ok(event) if event.session != self.presence.session() => {}
            Ok(event) if self.is_mirror && event.sequence > self.position.sequence => {
                self.is_behind = true;
                self.missed.push_back(SessionEvent::Event(event));
            }
            Ok(event) if event.provisional.is_some() || event.sequence == self.position.sequence + 1 => {
                self.ready.push_back(SessionEvent::Event(event));
            }
            // The reader has missed events, or has already received this event from the store.
            Ok(event) => (self.is_behind, self.read_until) = (event.sequence > self.position.sequence, None),
            Err(RecvError::Lagged(_) | RecvError::Closed) => {
                (self.live, self.is_behind, self.read_until) = (None, true, None);
            }
        }
    }
}
