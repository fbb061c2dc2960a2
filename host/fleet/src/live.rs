//! What happens in a session at the moment, for processes that watch the session: that it has new durable events, and the text
//! that its model writes. The messages with text are signed with a key from the database, so that others who can publish cannot
//! show text to people.

use crate::connection::Nats;
use crate::error::FleetError;
use crate::key::{FleetKey, SIGNATURE_BYTES};
use crate::subjects::{Kind, Subjects};
use async_nats::Subscriber;
use bytes::Bytes;
use futures::StreamExt;

/// Maximum size of a message with text, in bytes. Larger messages are neither sent nor accepted.
pub const MAX_LIVE_BYTES: usize = 512 << 10;

/// A message about a session that is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LiveMessage {
    /// The session has new durable events.
    NewEvents,
    /// A signed message of the process that has the session open.
    Text(Bytes),
}

impl Nats {
    /// Sends text to the processes that watch the session. The message may be lost.
    pub async fn send_text(&self, key: &FleetKey, session: &str, text: &[u8]) {
        let subject = self.subjects().of_session(session, Kind::Text);
        if let Some(subject) = subject.filter(|_| text.len() <= MAX_LIVE_BYTES) {
            let payload = [&key.sign(&subject, text)[..], text].concat().into();
            self.publish(subject, payload).await;
        }
    }

    /// Receives the messages about one session. Returns `None` if the session has too long a name.
    pub async fn live(&self, key: FleetKey, session: &str) -> Result<Option<LiveMessages>, FleetError> {
        let Some(subject) = self.subjects().live(session) else { return Ok(None) };
        let messages = self.client().subscribe(subject).await.map_err(|error| self.failed("subscribe", &error))?;
        Ok(Some(LiveMessages { messages, key, subjects: self.subjects().clone() }))
    }
}

/// Receives the messages about one session.
pub struct LiveMessages {
    messages: Subscriber,
    key: FleetKey,
    subjects: Subjects,
}

impl LiveMessages {
    /// Waits for the next valid message. Returns `None` after the connection was closed. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<LiveMessage> {
        loop {
            let message = self.messages.next().await?;
            match self.subjects.parse(&message.subject) {
                Some((_, Kind::Events)) => return Some(LiveMessage::NewEvents),
                Some((session, Kind::Text)) => match verified(&self.key, &message.subject, &message.payload) {
                    Some(text) => return Some(LiveMessage::Text(text)),
                    None => tracing::debug!(session, "a message with streamed text is not from this fleet"),
                },
                _ => {}
            }
        }
    }
}

/// Returns the text of a message that a process of this fleet has signed.
fn verified(key: &FleetKey, subject: &str, payload: &Bytes) -> Option<Bytes> {
    let (signature, text) =
        payload.split_at_checked(SIGNATURE_BYTES).filter(|(_, text)| text.len() <= MAX_LIVE_BYTES)?;
    key.has_signed(subject, text, signature).then(|| payload.slice(SIGNATURE_BYTES..))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F2: text of others, text of another session, changed text and oversized text are not accepted.
    #[test]
    fn f2_forged_text_is_not_accepted() {
        let key_of = |byte| FleetKey::new(&[byte; 32]).expect("32 bytes");
        let (key, other) = (key_of(7), key_of(8));
        let signed = |key: &FleetKey, subject, text: &[u8]| Bytes::from([&key.sign(subject, text)[..], text].concat());
        let sent = signed(&key, "f.a.1.live.text", b"[1]");
        assert_eq!(verified(&key, "f.a.1.live.text", &sent).as_deref(), Some(&b"[1]"[..]));
        assert_eq!(verified(&other, "f.a.1.live.text", &sent), None);
        assert_eq!(verified(&key, "f.a.2.live.text", &sent), None);
        for position in 0..sent.len() {
            let mut changed = sent.to_vec();
            changed[position] ^= 1;
            assert_eq!(verified(&key, "f.a.1.live.text", &changed.into()), None, "{position}");
        }
        for short in [&b""[..], &sent[..31], &sent[..32]] {
            assert_eq!(verified(&key, "f.a.1.live.text", &Bytes::copy_from_slice(short)), None);
        }
        assert_eq!(verified(&key, "s", &signed(&key, "s", &vec![b' '; MAX_LIVE_BYTES + 1])), None);
    }
}
