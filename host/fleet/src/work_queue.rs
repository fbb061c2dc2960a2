//! The work queue: announcements that a session may continue, which JetStream delivers to one process and repeats until a
//! process confirms them.

use crate::connection::{Nats, STORE_TIME};
use crate::dead_letters::{DeadLetterKind, StoredLetter};
use crate::puller::{PullSource, PullStream, Puller, answer, deliveries};
use crate::subjects::{Kind, Subjects, encoded};
use async_nats::jetstream::message::{AckKind, PublishMessage};
use async_nats::jetstream::{Message, context::PublishErrorKind};
use futures::future::join_all;
use std::time::Duration;

/// Number of deliveries after which a message becomes a dead letter.
pub const MAX_DELIVERIES: u32 = 5;

/// Time after which a message is delivered again if its dead letter could not be stored.
const NOT_BURIED: Duration = Duration::from_secs(60);

impl Nats {
    /// Announces that there may be work for these sessions. Each announcement has an id, and a server ignores a repeated id for
    /// two minutes. Returns the sessions whose announcements were not stored.
    pub async fn announce_work(&self, work: Vec<(String, String)>) -> Vec<String> {
        if !self.is_usable() {
            return work.into_iter().map(|(session, _)| session).collect();
        }
        let announced = join_all(work.into_iter().map(|(session, id)| async move {
            let is_stored = self.announce(&session, &id).await;
            (session, is_stored)
        }));
        announced.await.into_iter().filter(|(_, is_stored)| !is_stored).map(|(session, _)| session).collect()
    }

    async fn announce(&self, session: &str, id: &str) -> bool {
        let Some(subject) = self.subjects().of_session(session, Kind::Work) else { return false };
        // The names of sessions may contain any characters.
        let id = encoded(id);
        let publish = async || {
            let message = PublishMessage::build().message_id(&id);
            let sent = self.context().send_publish(subject.clone(), message).await?;
            sent.await
        };
        let mut result = tokio::time::timeout(STORE_TIME, publish()).await;
        if matches!(&result, Ok(Err(error)) if error.kind() == PublishErrorKind::StreamNotFound)
            && self.work_stream().await.is_ok()
        {
            result = tokio::time::timeout(STORE_TIME, publish()).await;
        }
        match result {
            Ok(Ok(_)) => true,
            Ok(Err(error)) => {
                tracing::debug!(session, %error, "an announcement was not stored by NATS");
                self.doubt();
                false
            }
            Err(_) => {
                self.doubt();
                // A missing stream does not answer if other processes receive the message as a hint.
                let nats = self.clone();
                tokio::spawn(async move { nats.work_stream().await });
                false
            }
        }
    }

    /// Receives the work for the sessions of one agent. If several processes do this, each announcement is delivered to one of them.
    pub fn work_queue(&self, agent: &str) -> WorkQueue {
        let source = PullSource {
            stream: PullStream::Work,
            consumer: format!("work={}", encoded(agent)),
            filter: self.subjects().of_agent(agent, Kind::Work),
        };
        WorkQueue { puller: Puller::new(self.clone(), source), nats: self.clone(), subjects: self.subjects().clone() }
    }
}

/// Receives the announcements for the sessions of one agent.
pub struct WorkQueue {
    puller: Puller,
    nats: Nats,
    subjects: Subjects,
}

impl WorkQueue {
    /// Waits for the next announcement, whatever happens to NATS in the meantime. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Work {
        loop {
            let message = self.puller.next().await;
            let Some((session, Kind::Work)) = self.subjects.parse(&message.subject) else {
                answer(&message, AckKind::Ack).await;
                continue;
            };
            return Work { deliveries: deliveries(&message), session, message, nats: self.nats.clone() };
        }
    }
}

/// An announcement that there may be work for a session. It is delivered again if nobody confirms it.
pub struct Work {
    /// Subject of the session. It comes from outside, and may be made up.
    pub session: String,
    /// How often the announcement was delivered, including this time.
    pub deliveries: u32,
    message: Message,
    nats: Nats,
}

impl Work {
    /// Confirms that a process works on the session, or that there is nothing to do.
    pub async fn confirm(self) {
        answer(&self.message, AckKind::Ack).await;
    }

    /// Says that this process still tries, so that the announcement is not delivered again yet. Call this more often than every
    /// 20 seconds.
    pub async fn still_trying(&self) {
        answer(&self.message, AckKind::Progress).await;
    }

    /// Asks for another delivery after a delay, probably to another process.
    pub async fn retry_after(self, delay: Duration) {
        answer(&self.message, AckKind::Nak(Some(delay))).await;
    }

    /// Makes the announcement a dead letter. `worker` names this process for people.
    pub async fn give_up(self, reason: &str, worker: &str) {
        let kind = DeadLetterKind::Work { session: self.session.clone() };
        let letter = StoredLetter::new(kind, (reason, self.deliveries), worker);
        bury(&self.nats, &self.message, letter).await;
    }
}

/// Stores a dead letter, and then confirms its message.
pub(crate) async fn bury(nats: &Nats, message: &Message, letter: StoredLetter) {
    match nats.bury(&letter).await {
        Ok(()) => answer(message, AckKind::Ack).await,
        Err(error) => {
            tracing::warn!(reason = letter.reason, "a message that cannot be handled is delivered again: {error}");
            answer(message, AckKind::Nak(Some(NOT_BURIED))).await;
        }
    }
}
