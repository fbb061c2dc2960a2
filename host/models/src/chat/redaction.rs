//! A provider's secrets, kept out of messages, records and replies, also where the server sends them back (row 16).

use crate::configuration::ProviderConfig;
use agent_core::model::{Delta, Reply};
use agent_core::redaction::{Edges, Redaction, RedactionStream, Replacement};
use url::Url;

/// The key, every configured header, and the credentials in the base URL.
pub(crate) fn of(config: &ProviderConfig, base_url: &Url) -> Redaction {
    let values = config.key.iter().chain(config.headers.iter().map(|(_, value)| value)).map(|value| value.reveal());
    let query = base_url.query_pairs().filter(|(name, _)| name != "api-version");
    let query: Vec<String> = query.map(|(_, value)| value.into()).collect();
    Redaction::new(values.chain(base_url.password()).chain(query.iter().map(String::as_str)))
}

/// What a model said, without them.
pub(super) fn reply(redaction: &Redaction, mut reply: Reply) -> Reply {
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

/// Pieces of a reply as they come. The end of one is held back while it may be the beginning of a secret.
pub(super) struct Pieces<'r> {
    redaction: &'r Redaction,
    said: RedactionStream,
    kind: fn(String) -> Delta,
}

impl<'r> Pieces<'r> {
    pub(super) fn new(redaction: &'r Redaction) -> Self {
        Self { redaction, said: stream_of(redaction), kind: Delta::Text }
    }

    /// What can be told of these now.
    pub(super) fn take(&mut self, pieces: &mut Vec<Delta>) -> Vec<Delta> {
        let pieces = std::mem::take(pieces);
        if self.redaction.is_empty() {
            return pieces;
        }
        let mut told = Vec::new();
        for piece in pieces {
            match piece {
                Delta::Text(text) => self.add(&text, Delta::Text, &mut told),
                Delta::Thinking(text) => self.add(&text, Delta::Thinking, &mut told),
                Delta::Clear => {
                    self.said = stream_of(self.redaction);
                    told.push(Delta::Clear);
                }
                mark @ (Delta::ThinkingStart | Delta::ThinkingEnd) => {
                    self.end(&mut told);
                    told.push(mark);
                }
            }
        }
        told
    }

    /// What was held back, once nothing follows.
    pub(super) fn rest(mut self) -> Vec<Delta> {
        let mut told = Vec::new();
        self.end(&mut told);
        told
    }

    fn add(&mut self, text: &str, kind: fn(String) -> Delta, told: &mut Vec<Delta>) {
        if kind(String::new()) != (self.kind)(String::new()) {
            self.end(told);
        }
        self.kind = kind;
        let bytes = self.said.push(text.as_bytes());
        self.tell(bytes, told);
    }

    fn end(&mut self, told: &mut Vec<Delta>) {
        let bytes = std::mem::replace(&mut self.said, stream_of(self.redaction)).finish();
        self.tell(bytes, told);
    }

    fn tell(&self, bytes: Vec<u8>, told: &mut Vec<Delta>) {
        if !bytes.is_empty() {
            told.push((self.kind)(String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
}

fn stream_of(redaction: &Redaction) -> RedactionStream {
    redaction.stream(Replacement::Mark, Edges::Whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::{Secret, Timeouts};

    /// Row 16
    #[test]
    fn row16_a_providers_secrets_are_known() {
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
            timeouts: Timeouts::default(),
            models: Default::default(),
        };
        let redaction = of(&config, &Url::parse(base_url).unwrap());
        let text = "sk-canary-1 sk-canary-1-longer other-canary pass-in-url query-secret 2024-10-21 none";
        assert_eq!(redaction.text(text.into()), "(secret) (secret) (secret) (secret) (secret) 2024-10-21 none");
        assert!(!format!("{config:?}").contains("canary"));
    }

    /// Row 16: however the reply is cut into pieces, they say what the whole says.
    #[test]
    fn row16_a_secret_in_pieces_is_none() {
        let redaction = Redaction::new(["sk-canary-1"]);
        let said = "your key is sk-canary-1, sk-can is not, and sk-sk-canary-1";
        for size in 1..said.len() {
            let mut pieces = Pieces::new(&redaction);
            let mut told = Vec::new();
            for piece in said.as_bytes().chunks(size) {
                let piece = String::from_utf8(piece.to_vec()).unwrap();
                told.extend(pieces.take(&mut vec![Delta::Text(piece)]));
            }
            told.extend(pieces.rest());
            let told: Vec<String> = told
                .into_iter()
                .map(|piece| match piece {
                    Delta::Text(text) => text,
                    other => panic!("{other:?}"),
                })
                .collect();
            assert!(told.iter().all(|piece| !piece.contains("canary")), "{size}: {told:?}");
            assert_eq!(told.concat(), "your key is (secret), sk-can is not, and sk-(secret)", "in pieces of {size}");
        }
    }
}
