//! Short messages to all processes of the fleet. They are neither stored nor repeated.

use crate::connection::Nats;
use crate::error::FleetError;
use crate::subjects::{Kind, Subjects};
use async_nats::Subscriber;
use bytes::Bytes;
use futures::stream::{SelectAll, StreamExt};

/// Payload of the first message of a watcher.
const NEW: &[u8] = b"new";

/// A message to all processes of the fleet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hint {
    /// There may be work for this session.
    Work(String),
    /// A request to this session was answered.
    Answer(String),
    /// Somebody watches this session, and needs the streamed text of its model.
    Watch {
        /// Subject of the session.
        session: String,
        /// Whether the watcher has received nothing of the current reply yet.
        is_new: bool,
    },
    /// This session has new durable events. Only processes that watch the session receive this.
    Events(String),
}

impl Nats {
    /// Tells all processes something. The message may be lost. Returns whether it was sent.
    pub async fn tell(&self, hint: &Hint) -> bool {
        let (session, kind, payload) = match hint {
            Hint::Work(session) => (session, Kind::Work, Bytes::new()),
            Hint::Answer(session) => (session, Kind::Answer, Bytes::new()),
            Hint::Watch { session, is_new: true } => (session, Kind::Watch, Bytes::from_static(NEW)),
            Hint::Watch { session, is_new: false } => (session, Kind::Watch, Bytes::new()),
            Hint::Events(session) => (session, Kind::Events, Bytes::new()),
        };
        match self.subjects().of_session(session, kind) {
            Some(subject) => self.publish(subject, payload).await,
            None => false,
        }
    }

    /// Receives the messages to all processes, including those of this process.
    pub async fn hints(&self) -> Result<Hints, FleetError> {
        let mut messages = SelectAll::new();
        for kind in [Kind::Work, Kind::Answer, Kind::Watch] {
            let subscribed = self.client().subscribe(self.subjects().of_all(kind)).await;
            messages.push(subscribed.map_err(|error| self.failed("subscribe", &error))?);
        }
        Ok(Hints { messages, subjects: self.subjects().clone() })
    }
}

/// Receives hints.
pub struct Hints {
    messages: SelectAll<Subscriber>,
    subjects: Subjects,
}

impl Hints {
    /// Waits for the next hint. Returns `None` after the connection was closed. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Hint> {
        loop {
            let message = self.messages.next().await?;
            let hint = match self.subjects.parse(&message.subject) {
                Some((session, Kind::Work)) => Hint::Work(session),
                Some((session, Kind::Answer)) => Hint::Answer(session),
                Some((session, Kind::Watch)) => Hint::Watch { session, is_new: &*message.payload == NEW },
                _ => continue,
            };
            return Some(hint);
        }
    }
}
