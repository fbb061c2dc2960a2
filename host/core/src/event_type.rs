//! Parsed CloudEvent types of the host and of services. A service's event type is never one of the host's types and
//! does not look like one of them (row 51).

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Prefix of the host's event types. Every type with this prefix is reserved, even if the host does not use it.
pub const RESERVED_PREFIX: &str = "agent-host.";

/// Maximum number of characters of a service's event type.
const MAX_LENGTH: usize = 256;
/// Maximum number of characters of a refused type that an error shows.
const MAX_SHOWN: usize = 80;

/// An event type that is reserved for events that the host itself sends or reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostEventType {
    /// A request to a user to approve calls (L17).
    ApprovalRequested,
    /// The answer to an approval request. Of all the host's types, the host accepts only this type from other senders.
    ApprovalResolved,
    /// A turn ended with an output (I6).
    TurnFinished,
    /// A turn ended with an error.
    TurnFailed,
    /// A turn was cancelled.
    TurnCancelled,
}

impl HostEventType {
    const ALL: [Self; 5] =
        [Self::ApprovalRequested, Self::ApprovalResolved, Self::TurnFinished, Self::TurnFailed, Self::TurnCancelled];

    /// The type as a string, for the `type` attribute of an event.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ApprovalRequested => "agent-host.approval.requested",
            Self::ApprovalResolved => "agent-host.approval.resolved",
            Self::TurnFinished => "agent-host.turn.finished",
            Self::TurnFailed => "agent-host.turn.failed",
            Self::TurnCancelled => "agent-host.turn.cancelled",
        }
    }

    /// Parses the name of one of the host's event types. `None` means that the text is not exactly the name of such
    /// a type.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == text)
    }
}

impl fmt::Display for HostEventType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// The event type of a service. The type consists of 1 to 256 characters: ASCII letters, digits and some punctuation
/// characters. The type does not look like one of the host's types.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ServiceEventType(String);

/// Why a string cannot be the type of a service's event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventTypeError {
    /// The type is one of the host's types or looks like one.
    #[error(
        "the event type \"{0}\" is reserved: types that begin with `{RESERVED_PREFIX}`, or look like it, are the host's own; \
         use a name of your own, such as `com.example.payment.requested`"
    )]
    Reserved(String),
    /// The type is empty, too long, or has characters that are not allowed.
    #[error(
        "the event type \"{0}\" cannot be used: an event type has 1 to {MAX_LENGTH} characters, each of which is an \
         ASCII letter, an ASCII digit or one of `. - _ / : ~ + @ #`"
    )]
    Malformed(String),
}

impl ServiceEventType {
    /// Parses a type that a service may use.
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

    /// The type as a string, for the `type` attribute of an event.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the two types are different but a reader could easily mistake one for the other.
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

/// Whether a type is one of the host's types or looks like one. A type looks like one of the host's types if it only
/// differs from that type in letter case, separators, digits in place of letters, or a URI scheme before the type.
pub fn is_reserved(event_type: &str) -> bool {
    // A valid type is never longer than `MAX_LENGTH`. A longer type is refused in any case, so only its beginning is
    // examined, which limits the work.
    let beginning: String = event_type.chars().take(MAX_LENGTH * 4).collect();
    let after_scheme = beginning.split_once(':').map(|(_, after)| after).unwrap_or_default();
    let without_scheme = after_scheme.trim_start_matches('/');
    let reserved = skeleton(RESERVED_PREFIX);
    [beginning.as_str(), without_scheme].iter().any(|text| skeleton(text).starts_with(&reserved))
}

/// Reduces a string to the letters and digits that it appears to contain, so that strings that look alike become equal.
/// Letters become lower case, separators and invisible characters are removed, and look-alike characters are replaced.
fn skeleton(text: &str) -> String {
    text.chars().flat_map(char::to_lowercase).filter_map(look_alike).collect()
}

/// Maps a character to the letter of `agent-host` that it looks like. For example, full-width forms, digits and letters
/// of other alphabets can look like the letter `o`. `None` means that the character is a separator or is not
/// known.
fn look_alike(character: char) -> Option<char> {
    Some(match character {
        '\u{ff01}'..='\u{ff5e}' => {
            return char::from_u32(u32::from(character) - 0xfee0)
                .map(|ascii| ascii.to_ascii_lowercase())
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
        // This function can ignore all non-ASCII characters without an arm of this `match`, because
        // `ServiceEventType::parse` refuses them.
        _ => return None,
    })
}

/// Returns the beginning of a refused type for an error message, with control and non-ASCII characters escaped.
fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(MAX_SHOWN).flat_map(char::escape_default).collect();
    if text.chars().nth(MAX_SHOWN).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row 51: a string from a plugin, a configuration or an event never becomes one of the host's types.
    #[test]
    fn row51_host_types_and_lookalikes_are_reserved() {
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

    /// P2: the error for an invalid type is short, even if the type is long.
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

    /// I6: types that services use in practice are accepted.
    #[test]
    fn i6_service_types_are_accepted() {
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
            let text = serde_json::to_string(&parsed).expect("the type can be serialized");
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
