//! The ids of responses. An id contains the session, the turn and the first event of the response, so that no table of ids is
//! needed, and ids stay valid when the server restarts. An id grants nothing: the session is checked for each request.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Beginning of each id, as in OpenAI's API.
const PREFIX: &str = "resp_";
/// Maximum length of an id, in bytes.
const MAX_BYTES: usize = 1_024;

/// A part of a turn: from the first event of a reply to the event at which the turn ends or waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ResponseId {
    pub(super) session: String,
    pub(super) turn: u32,
    /// Sequence number of the first event of the response.
    pub(super) first_event: u64,
}

impl ResponseId {
    /// Writes the id.
    pub(super) fn encode(&self) -> String {
        let Self { session, turn, first_event } = self;
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(format!("{turn}.{first_event}.{session}")))
    }

    /// Reads an id. `None` if the text is not an id that a server could have written.
    pub(super) fn decode(id: &str) -> Option<Self> {
        let encoded = id.strip_prefix(PREFIX).filter(|encoded| encoded.len() <= MAX_BYTES)?;
        let text = String::from_utf8(URL_SAFE_NO_PAD.decode(encoded).ok()?).ok()?;
        let (turn, rest) = text.split_once('.')?;
        let (first_event, session) = rest.split_once('.')?;
        let read =
            Self { session: session.to_owned(), turn: turn.parse().ok()?, first_event: first_event.parse().ok()? };
        // Only one text is the id of a response.
        let is_valid = i64::try_from(read.first_event).is_ok_and(|first| first > 0) && read.encode() == id;
        is_valid.then_some(read)
    }

    /// Returns a text that is different for each response, for the ids of its items.
    pub(super) fn item_suffix(&self) -> String {
        let Self { session, first_event, .. } = self;
        format!("{}_{first_event}", &blake3::hash(session.as_bytes()).to_hex()[..12])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I3: ids are read back, and forged ids are not read.
    #[test]
    fn i3_response_ids_are_read_back() {
        let id = ResponseId { session: "clerk/ä.b/1".to_owned(), turn: 7, first_event: 42 };
        assert_eq!(ResponseId::decode(&id.encode()), Some(id.clone()));
        let encode = |text: &str| format!("resp_{}", URL_SAFE_NO_PAD.encode(text));
        let forged = [
            String::new(),
            "resp_".to_owned(),
            "resp_%%%".to_owned(),
            format!("{}=", id.encode()),
            encode("7.42"),
            encode("07.42.clerk/1"),
            encode("+7.42.clerk/1"),
            encode("7.0.clerk/1"),
            encode("7.-1.clerk/1"),
            encode("99999999999.1.clerk/1"),
            encode("1.18446744073709551615.clerk/1"),
            encode(&format!("1.1.{}", "a".repeat(2_000))),
        ];
        for id in forged {
            assert_eq!(ResponseId::decode(&id), None, "{id}");
        }
    }
}
