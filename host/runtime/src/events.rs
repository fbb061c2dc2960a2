//! Who watches a session gets its events: durable ones once they are committed, streamed ones as they come (L30).

use agent_core::event::{Event, EventKind};
use agent_core::model::Delta;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::broadcast::{self, error::SendError};
use tokio::sync::mpsc::Receiver;

/// Events that a slow watcher may be behind; past that it is told that it has missed some, and reads the store.
const RING: usize = 1024;

/// Watches a session from anywhere, also while a turn runs. Cheap to clone; it holds no session open.
#[derive(Clone)]
pub struct Watch(Arc<Watchers>);

/// What a reader begins with, and what comes behind it without a gap.
pub struct Watched {
    /// Of the reply that is being written, if one is.
    pub so_far: SoFar,
    /// From now on, and before them the last durable ones that nobody has watched.
    pub events: broadcast::Receiver<Event>,
}

/// What a reader has missed of the reply that is being written. Durable events it reads from the store.
#[derive(Clone, Debug, PartialEq)]
pub enum SoFar {
    /// Nothing: no reply is being written, or all of it is known.
    Nothing,
    /// These, in order.
    Events(Vec<Event>),
    /// More than is kept, or all of it: in their place.
    Reply(PartialReply),
}

/// What a model has written of its reply so far.
#[derive(Clone, Debug, PartialEq)]
pub struct PartialReply {
    /// The session's subject.
    pub session: String,
    /// From 1.
    pub turn: u32,
    /// Up to and with this event.
    pub place: EventPlace,
    /// For the user, without what was void.
    pub text: String,
    /// Thoughts are parted by an empty line.
    pub thinking: String,
}

/// The place of an event in its session, `sequence.n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventPlace {
    /// Of the durable event, from 1.
    pub sequence: u64,
    /// Of the provisional event behind it, from 1; 0: the durable one itself.
    pub provisional: u32,
}

impl EventPlace {
    /// That of an event.
    pub fn of(event: &Event) -> Self {
        Self { sequence: event.sequence, provisional: event.provisional.unwrap_or(0) }
    }
}

impl Watch {
    /// For a reader that knows nothing of the reply that is being written.
    pub fn subscribe(&self) -> Watched {
        self.0.watch(EventPlace::default())
    }

    /// For one that comes back, and has seen everything up to that place.
    pub fn subscribe_behind(&self, place: EventPlace) -> Watched {
        self.0.watch(place)
    }
}

/// The watchers of one session.
pub(crate) struct Watchers {
    sender: broadcast::Sender<Event>,
    /// Held while an event is sent, so that whoever comes gets each once.
    kept: Mutex<Kept>,
    /// Those of the session that a person asked, where this one works for it: they get the durable events, too (L16).
    above: Option<WatchersAbove>,
}

/// What whoever comes later is given.
#[derive(Default)]
struct Kept {
    /// What happened while nobody watched, for the next one who does: opening a session may change it already.
    unseen: VecDeque<Event>,
    /// The last provisional events behind the last durable one.
    streamed: VecDeque<Event>,
    /// What they and those before them amount to. It is as long as the reply, which its provider bounds.
    reply: Option<PartialReply>,
}

/// Where the durable events of sessions go, too, that work for a watched one.
pub(crate) type WatchersAbove = broadcast::Sender<Event>;

impl Watchers {
    pub(crate) fn new() -> Self {
        Self { sender: broadcast::Sender::new(RING), kept: Mutex::default(), above: None }
    }

    /// Of a session that works for another one.
    pub(crate) fn below(above: WatchersAbove) -> Self {
        Self { above: Some(above), ..Self::new() }
    }

    /// Who watches sessions that work for this one: those of the session that a person asked.
    pub(crate) fn above(&self) -> WatchersAbove {
        self.above.clone().unwrap_or_else(|| self.sender.clone())
    }

    pub(crate) fn handle(self: &Arc<Self>) -> Watch {
        Watch(self.clone())
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.receiver(&mut self.kept())
    }

    fn watch(&self, known: EventPlace) -> Watched {
        let mut kept = self.kept();
        let so_far = kept.behind(known);
        Watched { so_far, events: self.receiver(&mut kept) }
    }

    fn receiver(&self, kept: &mut Kept) -> broadcast::Receiver<Event> {
        let receiver = self.sender.subscribe();
        for event in kept.unseen.drain(..) {
            // There is a receiver now, so this cannot fail.
            let _ = self.sender.send(event);
        }
        receiver
    }

    pub(crate) fn publish(&self, events: impl IntoIterator<Item = Event>) {
        let mut kept = self.kept();
        for event in events {
            if let (Some(above), None) = (&self.above, event.provisional) {
                // Nobody may watch there.
                let _ = above.send(event.clone());
            }
            kept.take_note(&event);
            if let Err(SendError(event)) = self.sender.send(event)
                && event.provisional.is_none()
                && self.above.is_none()
            {
                push(&mut kept.unseen, event);
            }
        }
    }

    /// Turns the pieces of a reply into provisional events behind the durable event `after`, until the reply ends.
    pub(crate) async fn stream(&self, after: &Event, mut deltas: Receiver<Delta>) {
        let mut number = 0;
        while let Some(delta) = deltas.recv().await {
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
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// A durable event stands for all that was streamed before it, whether it holds or is void.
    fn take_note(&mut self, event: &Event) {
        if event.provisional.is_none() {
            self.streamed.clear();
            self.reply = None;
            return;
        }
        let place = EventPlace::of(event);
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
        push(&mut self.streamed, event.clone());
    }

    fn behind(&self, known: EventPlace) -> SoFar {
        let Some(reply) = self.reply.as_ref().filter(|reply| reply.place > known) else { return SoFar::Nothing };
        let next = EventPlace { provisional: known.provisional.saturating_add(1), ..known };
        if !self.streamed.iter().any(|event| EventPlace::of(event) == next) {
            return SoFar::Reply(reply.clone());
        }
        SoFar::Events(self.streamed.iter().filter(|event| EventPlace::of(event) > known).cloned().collect())
    }
}

fn push(ring: &mut VecDeque<Event>, event: Event) {
    if ring.len() == RING {
        ring.pop_front();
    }
    ring.push_back(event);
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

    fn place(sequence: u64, provisional: u32) -> EventPlace {
        EventPlace { sequence, provisional }
    }

    /// L30: what is written so far, without what is void, and behind it nothing twice and nothing missing.
    #[tokio::test]
    async fn l30_a_later_reader_gets_what_is_written_so_far() {
        let watchers = Arc::new(Watchers::new());
        watchers.publish([durable(7)]);
        assert_eq!(watchers.handle().subscribe().so_far, SoFar::Nothing);
        let text = |text: &str| Delta::Text(text.to_owned());
        let first = vec![text("void"), Delta::Clear, Delta::ThinkingStart, Delta::Thinking("Hm".into())];
        let second =
            vec![Delta::ThinkingEnd, Delta::ThinkingStart, Delta::Thinking("so".into()), text("The "), text("end")];
        streamed(&watchers, first.into_iter().chain(second).collect()).await;
        let mut later = watchers.handle().subscribe();
        let reply = PartialReply {
            session: "s".to_owned(),
            turn: 1,
            place: place(7, 9),
            text: "The end".to_owned(),
            thinking: "Hm\n\nso".to_owned(),
        };
        assert_eq!(later.so_far, SoFar::Reply(reply));
        watchers.publish([durable(8)]);
        assert_eq!(later.events.recv().await.unwrap(), durable(8), "what was streamed before is not sent again");
        assert_eq!(watchers.handle().subscribe().so_far, SoFar::Nothing, "a durable event stands for all before it");
    }

    /// L30: who comes back gets the pieces that it has not seen; where they are not all kept, the whole.
    #[tokio::test]
    async fn l30_a_reader_that_reconnects_gets_what_it_missed() {
        let watchers = Arc::new(Watchers::new());
        streamed(&watchers, (0..RING + 10).map(|number| Delta::Text(format!("{number} "))).collect()).await;
        let last = RING as u32 + 10;
        let behind = |known| watchers.handle().subscribe_behind(known).so_far;
        let SoFar::Events(missed) = behind(place(7, last - 2)) else { panic!("two are kept") };
        let places: Vec<_> = missed.iter().map(EventPlace::of).collect();
        assert_eq!(places, [place(7, last - 1), place(7, last)]);
        assert_eq!(behind(place(7, last)), SoFar::Nothing);
        assert!(matches!(behind(place(7, 10)), SoFar::Events(all) if all.len() == RING), "all that is kept");
        for unknown in [place(7, 9), place(6, 3), place(7, 0)] {
            let SoFar::Reply(reply) = behind(unknown) else { panic!("{unknown:?}") };
            assert_eq!(reply.text.split(' ').count(), RING + 11, "{unknown:?}");
        }
    }
}
