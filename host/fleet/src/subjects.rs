//! The subjects of a fleet's messages. A subject has the form `FLEET.AGENT.NAME.KIND`: after the name of the fleet come the two
//! parts of the session, so that all subjects of a session can be routed, limited and partitioned together.

/// Longest subject that is used, in bytes. NATS limits a protocol line, which also contains a reply subject, to 4,096 bytes.
const LONGEST: usize = 1_500;

/// The second part of a session without `/`. No encoded text has this form.
const NO_SECOND_PART: &str = "%-";
/// An empty part. No other encoded text has this form.
const EMPTY: &str = "%";

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// There may be work for a session. Stored in the work queue.
    Work,
    /// A request to a session was answered.
    Answer,
    /// Somebody watches a session.
    Watch,
    /// A session has new durable events.
    Events,
    /// Pieces of the text that a model writes.
    Text,
    /// A message that could not be handled. Stored with the dead letters.
    Dead,
    /// An event of another system that is handled once more.
    Retry,
}

impl Kind {
    const ALL: [Self; 7] = [Self::Work, Self::Answer, Self::Watch, Self::Events, Self::Text, Self::Dead, Self::Retry];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Answer => "answer",
            Self::Watch => "watch",
            Self::Events => "live.events",
            Self::Text => "live.text",
            Self::Dead => "dead",
            Self::Retry => "retry",
        }
    }
}

/// The subjects of one fleet.
#[derive(Clone, Debug)]
pub(crate) struct Subjects {
    fleet: String,
}

impl Subjects {
    pub(crate) fn new(fleet: &str) -> Self {
        Self { fleet: fleet.to_owned() }
    }

    pub(crate) fn fleet(&self) -> &str {
        &self.fleet
    }

    /// Returns the subject for messages about a session. Returns `None` if it would be too long.
    pub(crate) fn of_session(&self, session: &str, kind: Kind) -> Option<String> {
        let (agent, name) = match session.split_once('/') {
            Some((agent, name)) => (encoded(agent), encoded(name)),
            None => (encoded(session), NO_SECOND_PART.to_owned()),
        };
        let subject = format!("{}.{agent}.{name}.{}", self.fleet, kind.name());
        (subject.len() <= LONGEST).then_some(subject)
    }

    /// Returns the subject that matches the messages about all sessions whose first part is the name of this agent.
    pub(crate) fn of_agent(&self, agent: &str, kind: Kind) -> String {
        format!("{}.{}.*.{}", self.fleet, encoded(agent), kind.name())
    }

    /// Returns the subject that matches the messages about all sessions.
    pub(crate) fn of_all(&self, kind: Kind) -> String {
        format!("{}.*.*.{}", self.fleet, kind.name())
    }

    /// Returns the subject that matches all live messages about a session.
    pub(crate) fn live(&self, session: &str) -> Option<String> {
        let subject = self.of_session(session, Kind::Events)?;
        Some(format!("{}*", subject.strip_suffix("events")?))
    }

    /// Returns the session and the kind of a message. Returns `None` if no process of this fleet uses the subject.
    pub(crate) fn parse(&self, subject: &str) -> Option<(String, Kind)> {
        let rest = subject.strip_prefix(&*self.fleet)?.strip_prefix('.')?;
        let mut tokens = rest.splitn(3, '.');
        let (agent, name, kind) = (decoded(tokens.next()?)?, tokens.next()?, tokens.next()?);
        let kind = Kind::ALL.into_iter().find(|known| known.name() == kind)?;
        let session = match name {
            NO_SECOND_PART => agent,
            name => format!("{agent}/{}", decoded(name)?),
        };
        Some((session, kind))
    }
}

/// Encodes a text as one token of a subject. The result is also a valid name of a consumer.
pub(crate) fn encoded(text: &str) -> String {
    if text.is_empty() {
        return EMPTY.to_owned();
    }
    let mut token = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => token.push(char::from(byte)),
            byte => {
                token.push('%');
                token.extend([byte >> 4, byte & 15].map(|digit| char::from(b"0123456789ABCDEF"[usize::from(digit)])));
            }
        }
    }
    token
}

/// Decodes a text in which bytes are written as `%` and two hexadecimal digits. Returns `None` if the text is invalid.
pub(crate) fn decoded(token: &str) -> Option<String> {
    if token == EMPTY {
        return Some(String::new());
    }
    let mut bytes = Vec::with_capacity(token.len());
    let mut rest = token.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        bytes.push(u8::try_from((high << 4) | low).ok()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F1: a subject begins with the session, and names exactly one session.
    #[test]
    fn f1_subjects_begin_with_the_session_and_are_unambiguous() {
        let subjects = Subjects::new("agents");
        assert_eq!(subjects.of_session("clerk/01a1-x", Kind::Work).as_deref(), Some("agents.clerk.01a1-x.work"));
        assert_eq!(subjects.of_agent("a.b", Kind::Work), "agents.a%2Eb.*.work");
        assert_eq!(subjects.live("clerk/1").as_deref(), Some("agents.clerk.1.live.*"));
        let sessions = ["a/b", "a", "a/", "/a", "", "/", "a/b/c", "a.b/*", "größe >/\0\n", "%-", "%", "a/%-", "a/%2E"];
        let mut seen = std::collections::BTreeSet::new();
        for session in sessions {
            for kind in Kind::ALL {
                let subject = subjects.of_session(session, kind).expect("short");
                assert!(!subject.contains(['*', '>', ' ', '\n', '\0']) && !subject.contains(".."), "{subject}");
                assert_eq!(subjects.parse(&subject), Some((session.to_owned(), kind)), "{subject}");
                assert!(seen.insert(subject));
            }
        }
        assert_eq!(subjects.of_session(&"a".repeat(2_000), Kind::Work), None);
    }

    /// F2: subjects that others have made up are ignored.
    #[test]
    fn f2_foreign_subjects_are_ignored() {
        let subjects = Subjects::new("agents");
        let foreign =
            ["agents", "agents.a.b", "agents.a.b.other", "agents.a%.b.work", "agents.a%F.b.work", "x.a.b.work"];
        for subject in foreign.into_iter().chain(["agents.a.%FF.work", "agentsx.a.b.work", "agents.a.b.work.more", ""])
        {
            assert_eq!(subjects.parse(subject), None, "{subject}");
        }
    }
}
