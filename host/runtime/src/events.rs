//! Who watches a session gets its events: durable ones once they are committed, streamed ones as they come (L30).

use agent_core::event::{Event, EventKind};
use agent_core::model::Delta;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use tokio::sync::broadcast::{self, error::SendError};
use tokio::sync::mpsc::Receiver;

/// Events that a slow watcher may be behind; past that it is told that it has missed some, and reads the store.
const RING: usize = 1024;

/// The watchers of one session.
pub(crate) struct Watchers {
    sender: broadcast::Sender<Event>,
    /// What happened while nobody watched, for the next one who does: opening a session may change it already.
    unseen: Mutex<VecDeque<Event>>,
    /// Those of the session that a person asked, where this one works for it: they get the durable events, too (L16).
    above: Option<WatchersAbove>,
}

/// Where the durable events of sessions go, too, that work for a watched one.
pub(crate) type WatchersAbove = broadcast::Sender<Event>;

impl Watchers {
    pub(crate) fn new() -> Self {
        Self { sender: broadcast::Sender::new(RING), unseen: Mutex::default(), above: None }
    }

    /// Of a session that works for another one.
    pub(crate) fn below(above: WatchersAbove) -> Self {
        Self { above: Some(above), ..Self::new() }
    }

    /// Who watches sessions that work for this one: those of the session that a person asked.
    pub(crate) fn above(&self) -> WatchersAbove {
        self.above.clone().unwrap_or_else(|| self.sender.clone())
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Event> {
        let receiver = self.sender.subscribe();
        for event in self.unseen.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // There is a receiver now, so this cannot fail.
            let _ = self.sender.send(event);
        }
        receiver
    }

    pub(crate) fn publish(&self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            if let (Some(above), None) = (&self.above, event.provisional) {
                // Nobody may watch there.
                let _ = above.send(event.clone());
            }
            if let Err(SendError(event)) = self.sender.send(event)
                && event.provisional.is_none()
                && self.above.is_none()
            {
                let mut unseen = self.unseen.lock().unwrap_or_else(PoisonError::into_inner);
                if unseen.len() == RING {
                    unseen.pop_front();
                }
                unseen.push_back(event);
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
}
