//! Removes a provider's secrets from messages, records and replies (row 16), because a server may send back the secrets
//! that it received.

use crate::configuration::ProviderConfig;
use agent_core::model::{Delta, Reply};
use agent_core::redaction::{Edges, Redaction, RedactionStream, Replacement};
use url::Url;

/// Returns a redaction that removes the provider's key, the values of all configured headers, and the credentials in
/// the base URL.
pub(crate) fn redaction_for(config: &ProviderConfig, base_url: &Url) -> Redaction {
    let values = config.key.iter().chain(config.headers.iter().map(|(_, value)| value)).map(|value| value.reveal());
    let query = base_url.query_pairs().filter(|(name, _)| name != "api-version");
    let query: Vec<String> = query.map(|(_, value)| value.into()).collect();
    Redaction::new(values.chain(base_url.password()).chain(query.iter().map(String::as_str)))
}

/// Removes the secrets from the text, the tool calls and the replay data of a complete reply.
pub(super) fn redact_reply(redaction: &Redaction, mut reply: Reply) -> Reply {
    if redaction.is_empty() {
        return reply;
    }
    reply.text = redaction.whole(reply.text);
    for call in &mut reply.calls {
        call.arguments = redaction.whole(std::mem::take(&mut call.arguments));
    }
    if let Some(replay) = &mut reply.replay {
        replay.data = redaction.value(replay.data.take());
    }
    reply
}

/// Removes the secrets from the deltas of a reply while the deltas arrive. Text that may be the beginning of a secret
/// is held back until more text arrives.
pub(super) struct RedactedDeltas<'r> {
    redaction: &'r Redaction,
    stream: RedactionStream,
    kind: fn(String) -> Delta,
}

impl<'r> RedactedDeltas<'r> {
    pub(super) fn new(redaction: &'r Redaction) -> Self {
        Self { redaction, stream: new_stream(redaction), kind: Delta::Text }
    }

    /// Removes the secrets from the given deltas. Returns the text and marks that can be sent before more text arrives.
    pub(super) fn redact(&mut self, pieces: &mut Vec<Delta>) -> Vec<Delta> {
        let pieces = std::mem::take(pieces);
        if self.redaction.is_empty() {
            return pieces;
        }
        let mut ready = Vec::new();
        for piece in pieces {
            match piece {
                Delta::Text(text) => self.add(&text, Delta::Text, &mut ready),
                Delta::Thinking(text) => self.add(&text, Delta::Thinking, &mut ready),
                Delta::Clear => {
                    self.stream = new_stream(self.redaction);
                    ready.push(Delta::Clear);
                }
                mark @ (Delta::ThinkingStart | Delta::ThinkingEnd) => {
                    self.flush(&mut ready);
                    ready.push(mark);
                }
            }
        }
        ready
    }

    /// Returns the text that was still held back at the end of the reply.
    pub(super) fn finish(mut self) -> Vec<Delta> {
        let mut ready = Vec::new();
        self.flush(&mut ready);
        ready
    }

    fn add(&mut self, text: &str, kind: fn(String) -> Delta, ready: &mut Vec<Delta>) {
        if kind(String::new()) != (self.kind)(String::new()) {
            self.flush(ready);
        }
        self.kind = kind;
        let bytes = self.stream.push(text.as_bytes());
        self.send(bytes, ready);
    }

    fn flush(&mut self, ready: &mut Vec<Delta>) {
        let bytes = std::mem::replace(&mut self.stream, new_stream(self.redaction)).finish();
        self.send(bytes, ready);
    }

    fn send(&self, bytes: Vec<u8>, ready: &mut Vec<Delta>) {
        if !bytes.is_empty() {
            ready.push((self.kind)(String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
}

fn new_stream(redaction: &Redaction) -> RedactionStream {
    redaction.stream(Replacement::Mark, Edges::Whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::{Secret, Timeouts};

    #[test]
    fn row16_all_secrets_of_a_provider_are_redacted() {
        let base_url = "https://me:pass-in-url@x.example/v1?code=query-secret&api-version=2024-10-21";
        let config = ProviderConfig {
            name: "x".into(),
            base_url: base_url.into(),
            key: Some(Secret::new("sk-canary-1 ")),
            key_advice: String::new(),
            headers: vec![
                ("x-key".into(), Secret::new("sk-canary-1-longer")),
                ("authorization".into(), Secret::new("Bearer other-canary")),
                ("x-short".into(), Secret::new("none")),
            ],
            protocol: Default::default(),
            timeouts: Timeouts::default(),
            models: Default::default(),
        };
        let redaction = redaction_for(&config, &Url::parse(base_url).unwrap());
        let text = "sk-canary-1 sk-canary-1-longer other-canary pass-in-url query-secret 2024-10-21 none";
        assert_eq!(redaction.text(text.into()), "(secret) (secret) (secret) (secret) (secret) 2024-10-21 none");
        assert!(!format!("{config:?}").contains("canary"));
    }

    /// Row 16: a secret is redacted no matter how the reply is split into pieces.
    #[test]
    fn row16_a_secret_in_pieces_is_redacted() {
        let redaction = Redaction::new(["sk-canary-1"]);
        let text = "your key is sk-canary-1, sk-can is not, and sk-sk-canary-1";
        for size in 1..text.len() {
            let mut pieces = RedactedDeltas::new(&redaction);
            let mut ready = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                let piece = String::from_utf8(piece.to_vec()).unwrap();
                ready.extend(pieces.redact(&mut vec![Delta::Text(piece)]));
            }
            ready.extend(pieces.finish());
            let ready: Vec<String> = ready
                .into_iter()
                .map(|piece| match piece {
                    Delta::Text(text) => text,
                    other => panic!("{other:?}"),
                })
                .collect();
            assert!(ready.iter().all(|piece| !piece.contains("canary")), "{size}: {ready:?}");
            assert_eq!(ready.concat(), "your key is (secret), sk-can is not, and sk-(secret)", "in pieces of {size}");
        }
    }
}
