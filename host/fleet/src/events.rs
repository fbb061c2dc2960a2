//! Events from and to other systems, which use JetStream streams of their own.

use crate::connection::Nats;
use crate::dead_letters::{DeadLetterKind, EventOrigin, MESSAGE_ID, ORIGIN, OWN_HEADERS, StoredLetter, is_own_event};
use crate::error::FleetError;
use crate::key::FleetKey;
use crate::puller::{PullSource, PullStream, Puller, answer, deliveries};
use crate::subjects::{Kind, encoded};
use crate::work_queue::bury;
use async_nats::jetstream::Message;
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::{AckKind, PublishMessage};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum number of headers of an event that are read, and of characters of a header.
const MAX_HEADERS: usize = 64;
const LONGEST_HEADER: usize = 1_024;
/// Maximum number of bytes of what identifies a repeated event: a subject, an id and a position.
const LONGEST_ORIGIN: usize = 16 << 10;
/// Maximum number of bytes of a subject in a configuration.
const LONGEST_SUBJECT: usize = 256;

/// Where an agent receives events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSource {
    /// Subject of the events, which may contain `*` and `>`.
    pub subject: String,
    /// Name of the stream. `None` means the stream that contains the subject.
    pub stream: Option<String>,
}

/// Returns the problem of a subject in a configuration, worded as the end of a sentence. Returns `None` if the subject is valid.
/// Wildcards are allowed only in subjects from which events are received.
pub fn subject_problem(subject: &str, allows_wildcards: bool) -> Option<&'static str> {
    if subject.chars().any(|character| character.is_whitespace() || character.is_control()) {
        return Some("contains spaces or control characters");
    }
    if subject.starts_with('$') || subject.starts_with("_INBOX") {
        return Some("begins with `$` or `_INBOX`, and such subjects belong to the server");
    }
    if subject.len() > LONGEST_SUBJECT || subject.split('.').any(str::is_empty) {
        return Some("is not a subject");
    }
    let mut tokens = subject.split('.').peekable();
    while let Some(token) = tokens.next() {
        let is_wildcard = token == "*" || (token == ">" && tokens.peek().is_none());
        if token.contains(['*', '>']) && !(is_wildcard && allows_wildcards) {
            return Some("contains a wildcard where none is allowed");
        }
    }
    // A subject that consists of one wildcard would take the messages of everybody, including this program's own.
    matches!(subject, "*" | ">").then_some("consists of a wildcard")
}

impl Nats {
    /// Receives the events of a source, for the table `[events.NAME]` of an agent. If several processes do this, each event is
    /// delivered to one of them. Events that were repeated by hand come, too.
    pub fn incoming_events(&self, (agent, name): (&str, &str), source: &EventSource, key: FleetKey) -> IncomingEvents {
        let consumer = format!("{}={}={}", self.subjects().fleet(), encoded(agent), encoded(name));
        let stream = match &source.stream {
            Some(stream) => PullStream::Named(stream.clone()),
            None => PullStream::OfSubject,
        };
        let events = PullSource { stream, consumer: consumer.clone(), filter: source.subject.clone() };
        let filter = self.subjects().of_session(&format!("{agent}/{name}"), Kind::Retry);
        let repeated = filter.map(|filter| PullSource { stream: PullStream::Work, consumer, filter });
        IncomingEvents {
            events: Puller::new(self.clone(), events),
            repeated: repeated.map(|source| Puller::new(self.clone(), source)),
            nats: self.clone(),
            receiver: (agent.to_owned(), name.to_owned()),
            key,
        }
    }

    /// Publishes an event, and waits until a stream has stored it. A server recognises the id of a repeated event.
    pub async fn publish_event(
        &self,
        subject: &str,
        (id, content_type): (&str, &str),
        body: Vec<u8>,
    ) -> Result<(), FleetError> {
        let failed = |error: &dyn std::fmt::Display| self.failed("store the event", error);
        if !self.is_usable() {
            return Err(self.unreachable());
        }
        let message = PublishMessage::build().payload(body.into()).message_id(id).header("Content-Type", content_type);
        let sent = self.context().send_publish(subject.to_owned(), message).await.map_err(|error| failed(&error))?;
        sent.await.map(drop).map_err(|error| match error.kind() {
            PublishErrorKind::StreamNotFound | PublishErrorKind::TimedOut => {
                failed(&format!("{error}; is there a stream for the subject `{subject}`?"))
            }
            _ => failed(&error),
        })
    }
}

/// Receives events of other systems.
pub struct IncomingEvents {
    events: Puller,
    repeated: Option<Puller>,
    nats: Nats,
    /// The agent, and the name of its table.
    receiver: (String, String),
    key: FleetKey,
}

impl IncomingEvents {
    /// Waits for the next event, whatever happens to NATS in the meantime. Dropping the future loses nothing.
    pub async fn next(&mut self) -> IncomingEvent {
        loop {
            let repeated = async {
                match &mut self.repeated {
                    Some(repeated) => repeated.next().await,
                    None => std::future::pending().await,
                }
            };
            let (message, is_repeated) = tokio::select! {
                message = self.events.next() => (message, false),
                message = repeated => (message, true),
            };
            let mut headers = headers_of(&message);
            let (agent, name) = &self.receiver;
            if is_repeated && !is_own_event((agent, name), (&headers, &message.payload), &self.key) {
                tracing::warn!(
                    agent,
                    name,
                    "a repeated event of NATS was ignored, because it is not a dead letter of this fleet"
                );
                answer(&message, AckKind::Ack).await;
                continue;
            }
            let repeated_origin = headers.get(ORIGIN).and_then(|origin| serde_json::from_str(origin).ok());
            let origin = repeated_origin.filter(|_| is_repeated).unwrap_or_else(|| EventOrigin {
                subject: message.subject.to_string(),
                message_id: headers.get(&MESSAGE_ID.to_ascii_lowercase()).cloned(),
                position: self.events.position(&message),
            });
            headers.retain(|name, _| !name.starts_with(OWN_HEADERS));
            return IncomingEvent {
                headers,
                payload: message.payload.clone(),
                origin,
                deliveries: deliveries(&message),
                message,
                nats: self.nats.clone(),
                receiver: self.receiver.clone(),
                key: self.key.clone(),
            };
        }
    }
}

/// Returns the headers of a message, by their names in lower case. Headers beyond a limit are left out.
fn headers_of(message: &Message) -> BTreeMap<String, String> {
    let mut headers = BTreeMap::new();
    for (name, values) in message.headers.iter().flat_map(|headers| headers.iter()) {
        if let Some(value) = values.first()
            && headers.len() < MAX_HEADERS
            && value.as_str().len()
                <= if AsRef::<str>::as_ref(name).eq_ignore_ascii_case(ORIGIN) { LONGEST_ORIGIN } else { LONGEST_HEADER }
        {
            headers.insert(name.to_string().to_ascii_lowercase(), value.as_str().to_owned());
        }
    }
    headers
}

/// An event of another system. It is delivered again if nobody confirms it.
pub struct IncomingEvent {
    /// The headers, by their names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The content.
    pub payload: Bytes,
    /// What identifies the event, also when it is repeated by hand.
    pub origin: EventOrigin,
    /// How often the event was delivered, including this time.
    pub deliveries: u32,
    message: Message,
    nats: Nats,
    receiver: (String, String),
    key: FleetKey,
}

impl IncomingEvent {
    /// Confirms that the event has taken effect, or had done so before.
    pub async fn confirm(self) {
        answer(&self.message, AckKind::Ack).await;
    }

    /// Says that this process still tries, so that the event is not delivered again yet. Call this more often than every 20
    /// seconds.
    pub async fn still_trying(&self) {
        answer(&self.message, AckKind::Progress).await;
    }

    /// Asks for another delivery after a delay, probably to another process.
    pub async fn retry_after(self, delay: Duration) {
        answer(&self.message, AckKind::Nak(Some(delay))).await;
    }

    /// Makes the event a dead letter. `worker` names this process for people.
    pub async fn give_up(self, reason: &str, worker: &str) {
        let (agent, name) = self.receiver.clone();
        let letter = StoredLetter::new(DeadLetterKind::Event { agent, name }, (reason, self.deliveries), worker);
        let letter = letter.with_content((&self.headers, &self.payload), &self.origin, &self.key);
        bury(&self.nats, &self.message, letter).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I6: subjects in a configuration are checked before anything is received or sent.
    #[test]
    fn i6_subjects_of_events_are_checked() {
        for subject in ["orders", "orders.*", "orders.>", "a.*.b", "größe.1"] {
            assert_eq!(subject_problem(subject, true), None, "{subject}");
        }
        for (subject, problem) in [
            ("", "is not a subject"),
            ("a..b", "is not a subject"),
            (".a", "is not a subject"),
            ("a b", "spaces"),
            ("a\n", "control"),
            ("a.>.b", "wildcard"),
            ("a*", "wildcard"),
            (">", "wildcard"),
            ("*", "wildcard"),
            ("$JS.API.>", "belong to the server"),
            ("_INBOX.x", "belong to the server"),
            (&*"a".repeat(257), "is not a subject"),
        ] {
            assert!(subject_problem(subject, true).is_some_and(|found| found.contains(problem)), "{subject}");
        }
        assert!(subject_problem("orders.*", false).is_some() && subject_problem("orders.new", false).is_none());
    }
}
