//! Types of CloudEvents, parsed once: those that the host itself sends and reads, and those of services. A service type
//! can never be one of the host's, nor look like one (row 51).

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What all types of the host begin with. Every type that begins like it is reserved, whether the host uses it or not.
pub const RESERVED_PREFIX: &str = "agent-host.";

/// Longest type of a service's event, in characters.
const MAX_LENGTH: usize = 256;
/// Characters of a refused type that an error shows.
const SHOWN: usize = 80;

/// An event type that the host itself sends or reads. Nobody else may send one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostEventType {
    /// Asks somebody to allow calls (L17).
    ApprovalRequested,
    /// Answers such a request. The only type of the host that may come in.
    ApprovalResolved,
    /// A turn has ended with its output (I6).
    TurnFinished,
    /// A turn has ended with an error.
    TurnFailed,
    /// A turn was cancelled.
    TurnCancelled,
}

impl HostEventType {
    const ALL: [Self; 5] =
        [Self::ApprovalRequested, Self::ApprovalResolved, Self::TurnFinished, Self::TurnFailed, Self::TurnCancelled];

    /// As it is written in events.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ApprovalRequested => "agent-host.approval.requested",
            Self::ApprovalResolved => "agent-host.approval.resolved",
            Self::TurnFinished => "agent-host.turn.finished",
            Self::TurnFailed => "agent-host.turn.failed",
            Self::TurnCancelled => "agent-host.turn.cancelled",
        }
    }

    /// The type that is written exactly so.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == text)
    }
}

impl fmt::Display for HostEventType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// The event type of a service: printable ASCII without spaces, 1 to 256 characters, and none of the host's types.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ServiceEventType(String);

/// A text that cannot be the type of a service's event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventTypeError {
    /// It belongs to the host, or looks as if it did.
    #[error(
        "the event type \"{0}\" is reserved: types that begin with `{RESERVED_PREFIX}`, or look like it, are the host's own; \
         use a name of your own, such as `com.example.payment.requested`"
    )]
    Reserved(String),
    /// It is not of the alphabet, is empty or too long.
    #[error(
        "the event type \"{0}\" cannot be used: an event type has 1 to {MAX_LENGTH} characters, which are letters and digits \
         of ASCII and any of `. - _ / : ~ + @ #`"
    )]
    Malformed(String),
}

impl ServiceEventType {
    /// The type, where it may be a service's.
    pub fn parse(text: &str) -> Result<Self, EventTypeError> {
        if is_reserved(text) {
            return Err(EventTypeError::Reserved(shown(text)));
        }
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_/:~+@#".contains(&byte);
        if text.is_empty() || text.len() > MAX_LENGTH || !text.bytes().all(is_allowed) {
            return Err(EventTypeError::Malformed(shown(text)));
        }
        Ok(Self(text.to_owned()))
    }

    /// As it is written in events.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a person could take one for the other, though they are two types.
    pub fn looks_like(&self, other: &Self) -> bool {
        self != other && skeleton(&self.0) == skeleton(&other.0)
    }
}

impl fmt::Display for ServiceEventType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl FromStr for ServiceEventType {
    type Err = EventTypeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl TryFrom<String> for ServiceEventType {
    type Error = EventTypeError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl From<ServiceEventType> for String {
    fn from(event_type: ServiceEventType) -> Self {
        event_type.0
    }
}

/// Whether a type is one of the host's, or looks like one: in another case, with other separators, with digits for
/// letters, or behind the scheme of a URI.
pub fn is_reserved(event_type: &str) -> bool {
    // A type is never longer; this bounds the work for one that is refused anyway.
    let begin: String = event_type.chars().take(MAX_LENGTH * 4).collect();
    let without_scheme = begin.split_once(':').map(|(_, rest)| rest).unwrap_or_default();
    let behind_slashes = without_scheme.trim_start_matches('/');
    let reserved = skeleton(RESERVED_PREFIX);
    [begin.as_str(), behind_slashes].iter().any(|text| skeleton(text).starts_with(&reserved))
}

/// The letters and digits of a text as a hurried reader takes them: lower case, without separators and without what cannot
/// be seen, with the letter that a digit or a foreign letter looks like.
fn skeleton(text: &str) -> String {
    text.chars().flat_map(char::to_lowercase).filter_map(look_alike).collect()
}

/// Full-width forms, and the letters of other alphabets and the digits that look like those of `agent-host`.
fn look_alike(character: char) -> Option<char> {
    Some(match character {
        '\u{ff01}'..='\u{ff5e}' => {
            return char::from_u32(u32::from(character) - 0xfee0)
                .map(|plain| plain.to_ascii_lowercase())
                .and_then(look_alike);
        }
        '0' | 'ο' | 'о' | 'օ' | 'ס' | 'ö' | 'ó' | 'ò' | 'ø' | 'ō' => 'o',
        '1' | 'l' | 'ı' | 'і' | '|' => 'i',
        '3' | 'е' | 'є' | 'ε' | 'é' | 'è' | 'ë' | 'ē' => 'e',
        '4' | 'а' | 'α' | 'ɑ' | 'á' | 'à' | 'ä' | 'ā' => 'a',
        '5' | 'ѕ' | 'ꜱ' => 's',
        '7' | 'т' | 'τ' | 'ᴛ' => 't',
        '9' | 'ɡ' | 'ց' | 'ğ' | 'q' => 'g',
        'һ' | 'հ' | 'ʜ' | 'н' | 'ħ' => 'h',
        'п' | 'ո' | 'η' | 'ɴ' | 'ñ' => 'n',
        other if other.is_ascii_alphanumeric() => other,
        // Whatever else is not ASCII is refused by the alphabet; here it separates nothing.
        _ => return None,
    })
}

/// The beginning of a refused type, with everything that is not plain ASCII written as an escape.
fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN).flat_map(char::escape_default).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row 51: no text that a plugin, a configuration or an event may hold becomes one of the host's types.
    #[test]
    fn row51_the_hosts_types_and_what_looks_like_them_are_reserved() {
        for known in HostEventType::ALL {
            assert!(is_reserved(known.as_str()), "{known}");
            assert_eq!(HostEventType::parse(known.as_str()), Some(known));
        }
        for reserved in [
            "agent-host.approval.requested",
            "Agent-Host.Approval.Requested",
            "AGENT-HOST.turn.finished",
            "agent-host.anything.new",
            "agent-host.",
            "agent-host",
            "agent_host.turn.finished",
            "agenthost.turn.finished",
            "agent.host.turn.finished",
            "agent--host.turn.finished",
            "/agent-host.turn.finished",
            ".agent-host.turn.finished",
            " agent-host.approval.requested",
            "\tagent-host.approval.requested",
            "\u{200b}agent-host.approval.requested",
            "agent\u{ad}-host.approval.requested",
            "agent\u{2010}host.approval.requested",
            "аgent-host.approval.requested",
            "agent-hоst.approval.requested",
            "ａｇｅｎｔ-host.approval.requested",
            "agent-h0st.approval.requested",
            "4g3nt-h0s7.turn.finished",
            "urn:agent-host.turn.finished",
            "urn:agent-host:turn:finished",
            "https://agent-host.turn.finished",
            "x://agent-host/turn/finished",
        ] {
            assert_eq!(
                ServiceEventType::parse(reserved),
                Err(EventTypeError::Reserved(shown(reserved))),
                "{reserved:?}"
            );
            assert_eq!(ServiceEventType::try_from(reserved.to_owned()).ok(), None);
        }
    }

    /// P2: what cannot be a type is refused, and the error stays short whatever was written.
    #[test]
    fn p2_malformed_types_are_refused_with_a_short_error() {
        let long = "x".repeat(10 << 20);
        for malformed in ["", " ", "a b", "a\nb", "a\0b", " com.example.a", "com.example.a ", "büro", "a%2eb", &long] {
            let error = ServiceEventType::parse(malformed).expect_err("refused");
            assert!(matches!(error, EventTypeError::Malformed(_)), "{error}");
            assert!(error.to_string().len() < 600 && !error.to_string().contains(['\n', '\0']), "{error}");
        }
        assert!(ServiceEventType::parse(&"x".repeat(MAX_LENGTH)).is_ok());
        assert!(ServiceEventType::parse(&"x".repeat(MAX_LENGTH + 1)).is_err());
    }

    /// I6: the types that services really have.
    #[test]
    fn i6_types_of_services_are_taken() {
        for good in [
            "com.example.payment.requested",
            "weather.forecast",
            "com_order.create",
            "https://example.com/events/paid",
            "urn:example:paid:v1",
            "com.example.agent-host.work",
            "hosting.requested",
            "com.example.agent-hosted",
            "7.days",
        ] {
            let parsed = ServiceEventType::parse(good).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(parsed.as_str(), good);
            let text = serde_json::to_string(&parsed).expect("a text");
            assert_eq!(serde_json::from_str::<ServiceEventType>(&text).ok(), Some(parsed));
        }
        let parse = |text: &str| ServiceEventType::parse(text).expect(text);
        assert!(parse("com.example.Payment").looks_like(&parse("com.example.payment")));
        assert!(parse("com.example.pay-ment").looks_like(&parse("com.example.payment")));
        assert!(parse("c0m.example.payment").looks_like(&parse("com.example.payment")));
        assert!(!parse("com.example.payment").looks_like(&parse("com.example.payment")));
        assert!(!parse("com.example.payments").looks_like(&parse("com.example.payment")));
    }
}
