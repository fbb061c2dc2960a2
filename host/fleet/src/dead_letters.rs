//! Messages that no process could handle, with the reason. They stay in a stream of their own until somebody repeats or drops
//! them.

use crate::connection::Nats;
use crate::error::FleetError;
use crate::key::FleetKey;
use crate::streams::MAX_MESSAGE;
use crate::subjects::Kind;
use async_nats::jetstream::consumer::pull::Config;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{RawMessageErrorKind, Stream};
use async_nats::{HeaderMap, HeaderName, HeaderValue};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Maximum number of dead letters that are listed at once.
pub const MAX_DEAD_LETTERS: usize = 10_000;

/// Maximum number of characters of a reason.
const LONGEST_REASON: usize = 2_000;
/// Number of dead letters that are requested at once.
const PAGE: usize = 256;
/// Header with the id by which the server recognises a doubled message.
pub(crate) const MESSAGE_ID: &str = "Nats-Msg-Id";
/// Header with the signature of a repeated event.
const SIGNATURE: &str = "agent-host-signature";
/// Header with what identifies an event that is repeated. The signature covers it.
pub(crate) const ORIGIN: &str = "agent-host-origin";
/// What all headers with a meaning for this program begin with.
pub(crate) const OWN_HEADERS: &str = "agent-host-";
/// Bytes of a message that are kept free for its headers.
const HEADER_BYTES: usize = 64 << 10;
/// Time in which a cluster chooses a leader.
const LEADER_TIME: Duration = Duration::from_secs(8);
/// Time between two attempts to read.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum number of characters of a name in a list.
const LONGEST_NAME: usize = 300;

/// A message that no process could handle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeadLetter {
    /// Number of the dead letter, which identifies it in its fleet.
    pub number: u64,
    /// What was to be done.
    #[serde(flatten)]
    pub kind: DeadLetterKind,
    /// Why it could not be done, according to the last process that tried.
    pub reason: String,
    /// How often the message was delivered.
    pub deliveries: u32,
    /// The process that gave up.
    pub worker: String,
    /// When the process gave up, in RFC 3339.
    pub time: String,
}

/// What a message asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum DeadLetterKind {
    /// To continue a session.
    Work {
        /// Subject of the session.
        session: String,
    },
    /// To handle an event of another system.
    Event {
        /// Name of the agent that receives the event.
        agent: String,
        /// Name of the table `[events.NAME]` in the agent's configuration.
        name: String,
    },
}

/// A dead letter as it is stored. Its kind is also in its subject.
#[derive(Serialize, Deserialize)]
pub(crate) struct StoredLetter {
    #[serde(flatten)]
    pub(crate) kind: DeadLetterKind,
    pub(crate) reason: String,
    pub(crate) deliveries: u32,
    pub(crate) worker: String,
    pub(crate) time: String,
    /// The headers of an event.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) headers: BTreeMap<String, String>,
    /// Signature of an event in base64, so that nobody can pass off an own message as a repeated event.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) signature: String,
    /// The payload of an event in base64.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) payload: String,
}

impl DeadLetterKind {
    /// Returns the text whose two parts are in the subject.
    fn subject_parts(&self) -> String {
        match self {
            Self::Work { session } => session.clone(),
            Self::Event { agent, name } => format!("{agent}/{name}"),
        }
    }

    /// Returns the kind with names that are short enough for a list. Whoever has stored a dead letter may have written anything.
    fn shortened(&self) -> Self {
        let short = |text: &str| shortened(text, LONGEST_NAME);
        match self {
            Self::Work { session } => Self::Work { session: short(session) },
            Self::Event { agent, name } => Self::Event { agent: short(agent), name: short(name) },
        }
    }
}

impl StoredLetter {
    pub(crate) fn new(kind: DeadLetterKind, (reason, deliveries): (&str, u32), worker: &str) -> Self {
        let (reason, worker) = (shortened(reason, LONGEST_REASON), worker.to_owned());
        let time = jiff::Timestamp::now().to_string();
        Self {
            kind,
            reason,
            deliveries,
            worker,
            time,
            headers: BTreeMap::new(),
            signature: String::new(),
            payload: String::new(),
        }
    }

    /// Adds the content of an event, and what identifies it. The key signs both.
    pub(crate) fn with_content(
        self,
        (headers, payload): (&BTreeMap<String, String>, &[u8]),
        origin: &EventOrigin,
        key: &FleetKey,
    ) -> Self {
        let mut headers: BTreeMap<_, _> =
            own_headers(headers).map(|(name, value)| (name.clone(), value.clone())).collect();
        headers.insert(ORIGIN.to_owned(), serde_json::to_string(origin).unwrap_or_default());
        let signature = key.sign(&self.kind.subject_parts(), &signed_content(&headers, payload));
        Self { headers, signature: STANDARD.encode(signature), payload: STANDARD.encode(payload), ..self }
    }

    /// Returns the dead letter of an event that is too large to be kept, with the place where the event is.
    fn without_content(&self) -> Self {
        let origin = self.headers.get(ORIGIN).and_then(|origin| serde_json::from_str::<EventOrigin>(origin).ok());
        let EventOrigin { subject, position, .. } = origin.unwrap_or_default();
        let mut parts = position.split(' ');
        let (stream, number) = (parts.next().unwrap_or_default(), parts.next_back().unwrap_or_default());
        let place = format!(
            "the event on `{subject}` is too large to be kept here: it is message {number} of the stream {stream}"
        );
        Self {
            kind: self.kind.clone(),
            reason: shortened(&format!("{}; {place}", self.reason), LONGEST_REASON),
            deliveries: self.deliveries,
            worker: self.worker.clone(),
            time: self.time.clone(),
            headers: BTreeMap::new(),
            signature: String::new(),
            payload: String::new(),
        }
    }
}

/// What identifies an event, also when it is repeated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventOrigin {
    /// Subject on which the event was published.
    pub subject: String,
    /// Id that the sender gave to the message for the server.
    pub message_id: Option<String>,
    /// The stream, when it was created, and the position of the message in it.
    pub position: String,
}

/// Returns the headers that belong to the event itself, and not to a server, and what identifies it.
fn own_headers(headers: &BTreeMap<String, String>) -> impl Iterator<Item = (&String, &String)> {
    headers.iter().filter(|(name, _)| !name.starts_with("nats-") && *name != SIGNATURE)
}

fn signed_content(headers: &BTreeMap<String, String>, payload: &[u8]) -> Vec<u8> {
    let headers: BTreeMap<_, _> = own_headers(headers).collect();
    [&serde_json::to_vec(&headers).unwrap_or_default()[..], &[0], payload].concat()
}

/// Returns whether a repeated event was a dead letter of this fleet.
pub(crate) fn is_own_event(
    (agent, name): (&str, &str),
    (headers, payload): (&BTreeMap<String, String>, &[u8]),
    key: &FleetKey,
) -> bool {
    let signature = headers.get(SIGNATURE).and_then(|text| STANDARD.decode(text).ok());
    let purpose = DeadLetterKind::Event { agent: agent.to_owned(), name: name.to_owned() }.subject_parts();
    signature.is_some_and(|signature| key.has_signed(&purpose, &signed_content(headers, payload), &signature))
}

impl Nats {
    /// Stores a dead letter.
    pub(crate) async fn bury(&self, letter: &StoredLetter) -> Result<(), FleetError> {
        let failed = |error: &dyn std::fmt::Display| self.failed("store a dead letter", error);
        self.dead_letter_stream().await?;
        let parts = letter.kind.subject_parts();
        let subject =
            self.subjects().of_session(&parts, Kind::Dead).ok_or_else(|| failed(&"its subject is too long"))?;
        let mut json = serde_json::to_vec(letter).map_err(|error| failed(&error))?;
        let accepted = self.client().server_info().max_payload.min(MAX_MESSAGE as usize);
        if json.len() > accepted.saturating_sub(HEADER_BYTES) {
            json = serde_json::to_vec(&letter.without_content()).map_err(|error| failed(&error))?;
        }
        let sent = self.context().publish(subject, json.into()).await.map_err(|error| failed(&error))?;
        sent.await.map_err(|error| failed(&error))?;
        Ok(())
    }

    /// Returns all dead letters, oldest first.
    pub async fn dead_letters(&self) -> Result<Vec<DeadLetter>, FleetError> {
        patiently(async || self.read_dead_letters().await).await
    }

    async fn read_dead_letters(&self) -> Result<Vec<DeadLetter>, FleetError> {
        let failed = |error: &dyn std::fmt::Display| self.failed("list the dead letters", error);
        let stream = self.dead_letter_stream().await?;
        let config = Config {
            deliver_policy: DeliverPolicy::All,
            ack_policy: AckPolicy::None,
            inactive_threshold: Duration::from_secs(30),
            // What one command reads need not survive the failure of a server.
            num_replicas: 1,
            memory_storage: true,
            ..Config::default()
        };
        let mut consumer = stream.create_consumer(config).await.map_err(|error| failed(&error))?;
        let (mut letters, mut left) = (Vec::new(), consumer.cached_info().num_pending);
        while left > 0 && letters.len() < MAX_DEAD_LETTERS {
            let page = consumer.fetch().max_messages(PAGE).expires(Duration::from_secs(2)).messages().await;
            let mut page = page.map_err(|error| failed(&error))?;
            let mut received = 0;
            while let Some(message) = page.next().await {
                let message = message.map_err(|error| failed(&error))?;
                let number = message.info().map_or(0, |info| info.stream_sequence);
                received += 1;
                // Somebody else may have published something there.
                letters.extend(parse(number, &message.payload).map(|(letter, _)| letter));
            }
            left = left.saturating_sub(received);
            if received == 0 {
                // Other processes may have removed the rest meanwhile.
                left = consumer.info().await.map_err(|error| failed(&error))?.num_pending;
                if left > 0 {
                    return Err(failed(&"the server did not send them in time"));
                }
            }
        }
        Ok(letters)
    }

    /// Removes a dead letter, and returns it.
    pub async fn drop_dead_letter(&self, number: u64) -> Result<DeadLetter, FleetError> {
        let (stream, letter, _) = self.dead_letter(number).await?;
        self.remove(&stream, number).await?;
        Ok(letter)
    }

    /// Hands the message of a dead letter to the processes once more, and then removes the dead letter. Returns the dead letter.
    pub async fn retry_dead_letter(&self, number: u64) -> Result<DeadLetter, FleetError> {
        let failed = |error: &dyn std::fmt::Display| self.failed("repeat the message", error);
        let (stream, letter, stored) = self.dead_letter(number).await?;
        self.work_stream().await?;
        let kind = match &letter.kind {
            DeadLetterKind::Work { .. } => Kind::Work,
            DeadLetterKind::Event { .. } => Kind::Retry,
        };
        let subject = self.subjects().of_session(&letter.kind.subject_parts(), kind);
        let subject = subject.ok_or_else(|| failed(&"its subject is too long"))?;
        if kind == Kind::Retry && stored.signature.is_empty() {
            return Err(failed(&"the dead letter does not contain the event, which was too large; publish it again"));
        }
        let payload = STANDARD.decode(&stored.payload).map_err(|error| failed(&error))?;
        let mut headers = HeaderMap::new();
        for (name, value) in own_headers(&stored.headers) {
            // Whoever has stored the dead letter may have written anything.
            if let (Ok(name), Ok(value)) = (HeaderName::from_str(name), HeaderValue::from_str(value)) {
                headers.insert(name, value);
            }
        }
        if let Ok(signature) = HeaderValue::from_str(&stored.signature) {
            headers.insert(SIGNATURE, signature);
        }
        headers.insert(MESSAGE_ID, format!("retry {number} {}", Uuid::new_v4()).as_str());
        let message = PublishMessage::build().payload(payload.into()).headers(headers);
        let sent = self.context().send_publish(subject, message).await;
        sent.map_err(|error| failed(&error))?.await.map_err(|error| failed(&error))?;
        self.remove(&stream, number).await?;
        Ok(letter)
    }

    async fn dead_letter(&self, number: u64) -> Result<(Stream, DeadLetter, StoredLetter), FleetError> {
        patiently(async || self.read_dead_letter(number).await).await
    }

    async fn read_dead_letter(&self, number: u64) -> Result<(Stream, DeadLetter, StoredLetter), FleetError> {
        let stream = self.dead_letter_stream().await?;
        let message = stream.get_raw_message(number).await.map_err(|error| match error.kind() {
            RawMessageErrorKind::NoMessageFound => FleetError::NoDeadLetter(number),
            _ => self.failed("read the dead letter", &error),
        })?;
        let (letter, stored) = parse(number, &message.payload).ok_or(FleetError::NoDeadLetter(number))?;
        Ok((stream, letter, stored))
    }

    async fn remove(&self, stream: &Stream, number: u64) -> Result<(), FleetError> {
        let removed = stream.delete_message(number).await;
        removed.map(drop).map_err(|error| self.failed("remove the dead letter", &error))
    }
}

/// Reads again and again, because a cluster refuses requests while it chooses a leader. A missing dead letter is reported at once.
async fn patiently<T>(read: impl AsyncFn() -> Result<T, FleetError>) -> Result<T, FleetError> {
    let begun = Instant::now();
    loop {
        match read().await {
            Err(FleetError::Failed { .. }) if begun.elapsed() < LEADER_TIME => tokio::time::sleep(RETRY_INTERVAL).await,
            result => return result,
        }
    }
}

/// Reads a stored dead letter. Returns `None` for messages that were not written by this program.
fn parse(number: u64, payload: &Bytes) -> Option<(DeadLetter, StoredLetter)> {
    let stored: StoredLetter = serde_json::from_slice(payload).ok()?;
    let letter = DeadLetter {
        number,
        kind: stored.kind.shortened(),
        reason: shortened(&stored.reason, LONGEST_REASON),
        deliveries: stored.deliveries,
        worker: shortened(&stored.worker, LONGEST_NAME),
        time: shortened(&stored.time, LONGEST_NAME),
    };
    Some((letter, stored))
}

fn shortened(text: &str, characters: usize) -> String {
    text.chars().take(characters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I6: only an event that was a dead letter of this fleet is repeated.
    #[test]
    fn i6_a_repeated_event_is_signed() {
        let key_of = |byte| FleetKey::new(&[byte; 32]).expect("32 bytes");
        let (key, other) = (key_of(1), key_of(2));
        let kind = DeadLetterKind::Event { agent: "clerk".to_owned(), name: "orders".to_owned() };
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let headers = BTreeMap::from([header("ce-id", "1"), header("nats-msg-id", "x")]);
        let origin = EventOrigin { subject: "shop.new".to_owned(), message_id: None, position: "SHOP 1 7".to_owned() };
        let letter = StoredLetter::new(kind, ("bad", 5), "w").with_content((&headers, b"{}"), &origin, &key);
        let mut repeated = letter.headers.clone();
        repeated.extend([header(SIGNATURE, &letter.signature), header("nats-msg-id", "another")]);
        let is_own =
            |receiver, headers: &BTreeMap<_, _>, payload: &[u8], key| is_own_event(receiver, (headers, payload), key);
        assert!(is_own(("clerk", "orders"), &repeated, b"{}", &key));
        assert!(!is_own(("clerk", "orders"), &repeated, b"{}", &other));
        assert!(!is_own(("clerk", "other"), &repeated, b"{}", &key));
        assert!(!is_own(("clerk", "orders"), &repeated, b"{ }", &key));
        repeated.insert("ce-id".to_owned(), "2".to_owned());
        assert!(!is_own(("clerk", "orders"), &repeated, b"{}", &key));
        assert!(!is_own(("clerk", "orders"), &letter.headers, b"{}", &key), "without a signature");
        repeated.insert("ce-id".to_owned(), "1".to_owned());
        assert!(is_own(("clerk", "orders"), &repeated, b"{}", &key));
        let other_origin = letter.headers[ORIGIN].replace("SHOP 1 7", "SHOP 1 8");
        repeated.insert(ORIGIN.to_owned(), other_origin);
        assert!(!is_own(("clerk", "orders"), &repeated, b"{}", &key), "what identifies the event is signed");
        let small = letter.without_content();
        assert!(
            small.signature.is_empty()
                && small.headers.is_empty()
                && small.reason.contains("message 7 of the stream SHOP")
        );
    }
}
