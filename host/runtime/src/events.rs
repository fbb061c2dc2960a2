//! Delivers a session's events to its watchers (L30): durable events after they are committed, and streamed events as
//! they arrive.

use agent_core::event::{Event, EventKind};
use agent_core::model::Delta;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::broadcast::{self, error::SendError};
use tokio::sync::mpsc::Receiver;

/// Maximum number of events that are kept from the beginning of a turn for readers that come a moment later.
const KEPT_EVENTS: usize = 64;

/// Maximum number of sent events that a slow watcher may not have received yet. If this number is exceeded, the
/// watcher's receiver reports a lag, and the watcher must read the missed events from the store.
const EVENT_CAPACITY: usize = 1024;

/// A handle with which a session can be watched, even while a turn runs. The handle is cheap to clone and does not keep
/// the session open.
#[derive(Clone)]
pub struct SessionWatch(Arc<Watchers>);

/// The events that a new reader receives: first the part of the current reply that the reader has missed, then all
/// later events. No event is missing between the two parts.
pub struct Subscription {
    /// The part of the current reply that the reader has missed.
    pub missed: MissedReply,
    /// Receives all events that are published after the subscription. If durable events were published while nobody was
    /// watching, the receiver first returns the latest of these events.
    pub events: broadcast::Receiver<Event>,
}

/// The part of the current reply that a reader has missed. Except in [`MissedReply::Since`], missed durable events are not
/// included, because a reader can read these events from the store.
#[derive(Clone, Debug, PartialEq)]
pub enum MissedReply {
    /// The reader has missed nothing: no model is writing a reply, or the reader has received all of the reply so far.
    Nothing,
    /// The events of the current reply that the reader has missed, in order.
    Events(Vec<Event>),
    /// All events after the durable event with this sequence number, in order. A turn has begun or continued after it only a
    /// moment ago. Durable events up to this number are in the store.
    Since(u64, Vec<Event>),
    /// The reply from its beginning, if the reader has received no part of the reply, or if some of the missed events
    /// are no longer available.
    Reply(PartialReply),
}

/// The part of a reply that a model has written so far.
#[derive(Clone, Debug, PartialEq)]
pub struct PartialReply {
    /// Id (subject) of the session.
    pub session: String,
    /// Number of the turn, from 1.
    pub turn: u32,
    /// Position of the last event that is included in this part of the reply.
    pub place: EventPosition,
    /// The reply's text for the user, without the parts that were discarded.
    pub text: String,
    /// The model's thinking, with an empty line between blocks of thinking.
    pub thinking: String,
}

/// The position of an event in its session, written as `sequence.provisional`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventPosition {
    /// Sequence number of the durable event, from 1.
    pub sequence: u64,
    /// The provisional events that follow a durable event are numbered from 1, and this is the number of one of them.
    /// The value 0 means the position of the durable event itself.
    pub provisional: u32,
}

impl EventPosition {
    /// Returns the position of an event.
    pub fn of(event: &Event) -> Self {
        Self { sequence: event.sequence, provisional: event.provisional.unwrap_or(0) }
    }
}

impl SessionWatch {
    /// Subscribes a reader that has received no part of the current reply.
    pub fn subscribe(&self) -> Subscription {
        self.0.watch(EventPosition::default())
    }

    /// Returns whether both handles belong to the same opening of a session.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Subscribes a reader that has already received all events up to this position, for example after a reconnect.
    pub fn subscribe_after(&self, position: EventPosition) -> Subscription {
        self.0.watch(position)
    }
}

/// Sends the events of one session to the session's watchers.
pub(crate) struct Watchers {
    sender: broadcast::Sender<Event>,
    /// Recent events for watchers that subscribe later. The lock is held while an event is sent, so that a new watcher
    /// receives each event exactly once.
    recent: Mutex<RecentEvents>,
    /// The watchers of the root session, which receive this session's durable events as well (L16). `None` if this
    /// session does not work on a delegated task.
    root: Option<ParentWatchers>,
}

/// Recent events for watchers that subscribe later.
#[derive(Default)]
struct RecentEvents {
    /// Durable events that were published while the session had no watcher, for example while the session was opened.
    /// The next watcher receives these events.
    unseen: VecDeque<Event>,
    /// The latest provisional events after the last durable event.
    streamed: VecDeque<Event>,
    /// The part of the reply that results from all provisional events since the last durable event. The model provider
    /// limits the length of a reply.
    reply: Option<PartialReply>,
    /// The events since a turn began or continued, unless there are already too many of them. A reader that asked for the turn
    /// subscribes only after the turn has begun, and would otherwise lose the thinking and the discarded text of a fast reply.
    kept: Option<KeptEvents>,
}

/// Events that are kept for readers that come a moment later.
struct KeptEvents {
    /// Sequence number of the durable event after which the events are kept.
    after: u64,
    events: Vec<Event>,
}

/// Sends the durable events of delegated sessions to the watchers of the root session.
pub(crate) type ParentWatchers = broadcast::Sender<Event>;

impl Watchers {
    pub(crate) fn new() -> Self {
        Self { sender: broadcast::Sender::new(EVENT_CAPACITY), recent: Mutex::default(), root: None }
    }

    /// Creates the watchers of a delegated session.
    pub(crate) fn for_child(root: ParentWatchers) -> Self {
        Self { root: Some(root), ..Self::new() }
    }

    /// Returns the sender for the sessions to which this session delegates work. The result is always the sender of
    /// the root session.
    pub(crate) fn for_children(&self) -> ParentWatchers {
        self.root.clone().unwrap_or_else(|| self.sender.clone())
    }

    pub(crate) fn handle(self: &Arc<Self>) -> SessionWatch {
        SessionWatch(self.clone())
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.receiver(&mut self.recent())
    }

    fn watch(&self, last_seen: EventPosition) -> Subscription {
        let mut recent = self.recent();
        let missed = recent.missed_since(last_seen);
        Subscription { missed, events: self.receiver(&mut recent) }
    }

    fn receiver(&self, recent: &mut RecentEvents) -> broadcast::Receiver<Event> {
        let receiver = self.sender.subscribe();
        for event in recent.unseen.drain(..) {
            // Sending cannot fail, because the new receiver already exists.
            let _ = self.sender.send(event);
        }
        receiver
    }

    /// Keeps the next events for readers that come a moment later. `after` is the sequence number of the last durable event.
    pub(crate) fn keep_next(&self, after: u64) {
        self.recent().kept = Some(KeptEvents { after, events: Vec::new() });
    }

    pub(crate) fn publish(&self, events: impl IntoIterator<Item = Event>) {
        let mut recent = self.recent();
        for event in events {
            if let (Some(root), None) = (&self.root, event.provisional) {
                // Sending fails if the root session has no watchers, which is not an error.
                let _ = root.send(event.clone());
            }
            recent.record(&event);
            if let Err(SendError(event)) = self.sender.send(event)
                && event.provisional.is_none()
                && self.root.is_none()
            {
                push_bounded(&mut recent.unseen, event);
            }
        }
    }

    /// Forgets the pieces of the current reply, because a later reply has begun.
    pub(crate) fn forget_reply(&self) {
        let mut recent = self.recent();
        recent.streamed.clear();
        recent.reply = None;
    }

    /// Publishes the pieces of a reply as provisional events until the reply ends. These events follow the durable
    /// event `after`, and their numbers start at 1. Returns the time of the first piece.
    pub(crate) async fn stream(&self, after: &Event, mut deltas: Receiver<Delta>) -> Option<Instant> {
        let (mut number, mut first) = (0, None);
        while let Some(delta) = deltas.recv().await {
            first.get_or_insert_with(Instant::now);
            number += 1;
            let kind = match delta {
                Delta::Text(text) => EventKind::StreamToken { text },
                Delta::ThinkingStart => EventKind::ThinkingStart,
                Delta::Thinking(text) => EventKind::ThinkingContent { text },
                Delta::ThinkingEnd => EventKind::ThinkingEnd,
                Delta::Clear => EventKind::StreamClear,
            };
            self.publish([Event { provisional: Some(number), kind, ..after.clone() }]);
        }
        first
    }

    fn recent(&self) -> MutexGuard<'_, RecentEvents> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecentEvents {
    /// Updates the recent events after an event was published. A provisional event is added to the recent events. A
    /// durable event is not added, but all provisional events before it are removed.
    fn record(&mut self, event: &Event) {
        match &mut self.kept {
            Some(kept) if kept.events.len() < KEPT_EVENTS => kept.events.push(event.clone()),
            kept => *kept = None,
        }
        if event.provisional.is_none() {
            self.streamed.clear();
            self.reply = None;
            return;
        }
        let place = EventPosition::of(event);
        let reply = self.reply.get_or_insert_with(|| PartialReply {
            session: event.session.clone(),
            turn: event.turn,
            place,
            text: String::new(),
            thinking: String::new(),
        });
        reply.place = place;
        match &event.kind {
            EventKind::StreamToken { text } => reply.text.push_str(text),
            EventKind::ThinkingContent { text } => reply.thinking.push_str(text),
            EventKind::ThinkingStart if !reply.thinking.is_empty() => reply.thinking.push_str("\n\n"),
            EventKind::StreamClear => {
                reply.text.clear();
                reply.thinking.clear();
            }
            _ => {}
        }
        push_bounded(&mut self.streamed, event.clone());
    }

    fn missed_since(&self, last_seen: EventPosition) -> MissedReply {
        if let Some(KeptEvents { after, events }) = &self.kept
            && last_seen.sequence <= *after
            && !events.is_empty()
        {
            return MissedReply::Since(*after, events.clone());
        }
        let Some(reply) = self.reply.as_ref().filter(|reply| reply.place > last_seen) else {
            return MissedReply::Nothing;
        };
        let next = EventPosition { provisional: last_seen.provisional.saturating_add(1), ..last_seen };
        if !self.streamed.iter().any(|event| EventPosition::of(event) == next) {
            return MissedReply::Reply(reply.clone());
        }
        MissedReply::Events(
            self.streamed.iter().filter(|event| EventPosition::of(event) > last_seen).cloned().collect(),
        )
    }
}

fn push_bounded(events: &mut VecDeque<Event>, event: Event) {
    if events.len() == EVENT_CAPACITY {
        events.pop_front();
    }
    events.push_back(event);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc;

    fn durable(sequence: u64) -> Event {
        let kind = EventKind::LoopIteration { step: 1, last: false };
        Event { session: "s".to_owned(), turn: 1, sequence, provisional: None, kind }
    }

    async fn streamed(watchers: &Watchers, deltas: Vec<Delta>) {
        let (sender, receiver) = mpsc::channel(deltas.len().max(1));
        for delta in deltas {
            sender.send(delta).await.unwrap();
        }
        drop(sender);
        watchers.stream(&durable(7), receiver).await;
    }

    fn position(sequence: u64, provisional: u32) -> EventPosition {
        EventPosition { sequence, provisional }
    }

    /// L30: a reader that subscribes during a reply receives the reply so far without discarded parts, and then each
    /// event exactly once.
    #[tokio::test]
    async fn l30_a_later_reader_receives_the_reply_so_far() {
        let watchers = Arc::new(Watchers::new());
        watchers.publish([durable(7)]);
        assert_eq!(watchers.handle().subscribe().missed, MissedReply::Nothing);
        let text = |text: &str| Delta::Text(text.to_owned());
        let first = vec![text("void"), Delta::Clear, Delta::ThinkingStart, Delta::Thinking("Hm".into())];
        let second =
            vec![Delta::ThinkingEnd, Delta::ThinkingStart, Delta::Thinking("so".into()), text("The "), text("end")];
        streamed(&watchers, first.into_iter().chain(second).collect()).await;
        let mut later = watchers.handle().subscribe();
        let reply = PartialReply {
            session: "s".to_owned(),
            turn: 1,
            place: position(7, 9),
            text: "The end".to_owned(),
            thinking: "Hm\n\nso".to_owned(),
        };
        assert_eq!(later.missed, MissedReply::Reply(reply));
        watchers.publish([durable(8)]);
        assert_eq!(
            later.events.recv().await.unwrap(),
            durable(8),
            "provisional events from before the subscription are not sent again"
        );
        assert_eq!(
            watchers.handle().subscribe().missed,
            MissedReply::Nothing,
            "a durable event discards the provisional events before it"
        );
    }

    /// L30: a reader that comes a moment after the beginning of a turn receives all of its events, also the thinking of a reply
    /// that is already complete. The events are kept only for a moment.
    #[tokio::test]
    async fn l30_a_reader_receives_the_turn_from_its_beginning() {
        let watchers = Arc::new(Watchers::new());
        watchers.publish([durable(6)]);
        watchers.keep_next(6);
        watchers.publish([durable(7)]);
        streamed(&watchers, vec![Delta::ThinkingStart, Delta::Thinking("Hm".into())]).await;
        watchers.publish([durable(8)]);
        let missed_after = |position| watchers.handle().subscribe_after(position).missed;
        for early in [position(0, 0), position(6, 0)] {
            let MissedReply::Since(6, events) = missed_after(early) else { panic!("{:?}", missed_after(early)) };
            let places: Vec<_> = events.iter().map(EventPosition::of).collect();
            assert_eq!(places, [position(7, 0), position(7, 1), position(7, 2), position(8, 0)]);
        }
        assert_eq!(missed_after(position(7, 2)), MissedReply::Nothing, "the reader has followed the turn already");
        watchers.publish((9..9 + KEPT_EVENTS as u64).map(durable));
        assert_eq!(missed_after(position(6, 0)), MissedReply::Nothing);
    }

    /// L30: a reader that reconnects receives the pieces that it has missed, or the complete reply if some of these
    /// pieces are no longer available.
    #[tokio::test]
    async fn l30_a_reader_that_reconnects_receives_the_missed_events() {
        let watchers = Arc::new(Watchers::new());
        streamed(&watchers, (0..EVENT_CAPACITY + 10).map(|number| Delta::Text(format!("{number} "))).collect()).await;
        let last = EVENT_CAPACITY as u32 + 10;
        let missed_after = |position| watchers.handle().subscribe_after(position).missed;
        let MissedReply::Events(missed) = missed_after(position(7, last - 2)) else { panic!("two events were missed") };
        let positions: Vec<_> = missed.iter().map(EventPosition::of).collect();
        assert_eq!(positions, [position(7, last - 1), position(7, last)]);
        assert_eq!(missed_after(position(7, last)), MissedReply::Nothing);
        assert!(
            matches!(missed_after(position(7, 10)), MissedReply::Events(missed) if missed.len() == EVENT_CAPACITY),
            "all recent events"
        );
        for unknown in [position(7, 9), position(6, 3), position(7, 0)] {
            let MissedReply::Reply(reply) = missed_after(unknown) else { panic!("{unknown:?}") };
            assert_eq!(reply.text.split(' ').count(), EVENT_CAPACITY + 11, "{unknown:?}");
        }
    }
}
