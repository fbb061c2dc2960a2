//! Names of sessions that are created once for something outside. The kind in a name says who waits for the first turn.

use agent_store::digest_of;
use std::fmt;

/// Whether a person who may answer questions of the host waits for the first turn of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attendance {
    /// A person has begun the session with a program, and waits.
    Attended,
    /// Another system has begun the session, and nobody waits.
    Unattended,
}

/// Defines the kinds of session names, so that no kind is without a statement about who waits.
macro_rules! session_kinds {
    ($($(#[$doc:meta])* $kind:ident = ($name:literal, $attendance:ident),)*) => {
        /// The kind of thing outside for which a session is created once. The kind is a part of the session's name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum SessionKind {
            $($(#[$doc])* $kind,)*
        }

        impl SessionKind {
            /// All kinds.
            const ALL: &[Self] = &[$(Self::$kind),*];

            const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }

            const fn attendance(self) -> Attendance {
                match self {
                    $(Self::$kind => Attendance::$attendance,)*
                }
            }
        }
    };
}

session_kinds! {
    /// A time of a schedule (I9).
    Schedule = ("schedule", Unattended),
    /// A delivery to a webhook (I9).
    Webhook = ("webhook", Unattended),
    /// An event that came over NATS (I6).
    Event = ("event", Unattended),
    /// A thread of a front end that uses AG-UI (I3).
    AgUi = ("ag-ui", Attended),
    /// A session of an editor that uses ACP (I4).
    Acp = ("acp", Attended),
}

/// The part of a session's subject after the agent's name, for a session that is created once for something outside, such
/// as a webhook's delivery or a time of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionName(String);

impl SessionName {
    /// Creates a name from the kind of the thing outside and an id of any form, of which the name contains a digest. Different ids
    /// give different names.
    ///
    /// ```
    /// use agent_runtime::{SessionKind, SessionName};
    ///
    /// let name = SessionName::new(SessionKind::Webhook, "delivery 17/β").to_string();
    /// assert!(name.starts_with("webhook-") && name.len() == "webhook-".len() + 40);
    /// assert_ne!(name, SessionName::new(SessionKind::Webhook, "delivery 18/β").to_string());
    /// ```
    pub fn new(kind: SessionKind, id: &str) -> Self {
        let kind = kind.name();
        let digest = digest_of(format!("{kind}\0{id}").as_bytes()).to_string();
        let digest = digest.rsplit(':').next().unwrap_or_default();
        Self(format!("{kind}-{}", digest.get(..40).unwrap_or(digest)))
    }
}

impl fmt::Display for SessionName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Returns whether a session with this id (subject) was begun by a schedule, a webhook or an event, so that nobody waits for the
/// end of its first turn.
///
/// ```
/// use agent_runtime::{SessionKind, SessionName, begins_unattended};
///
/// assert!(begins_unattended(&format!("clerk/{}", SessionName::new(SessionKind::Schedule, "report 7"))));
/// assert!(begins_unattended(&format!("clerk/{}", SessionName::new(SessionKind::Event, "order 7"))));
/// assert!(!begins_unattended(&format!("clerk/{}", SessionName::new(SessionKind::AgUi, "thread 7"))));
/// assert!(!begins_unattended("clerk/0198c2f0-schedule-1"));
/// ```
pub fn begins_unattended(subject: &str) -> bool {
    let name = subject.rsplit('/').next().unwrap_or_default();
    let kind =
        SessionKind::ALL.iter().find(|kind| name.strip_prefix(kind.name()).is_some_and(|rest| rest.starts_with('-')));
    kind.is_some_and(|kind| kind.attendance() == Attendance::Unattended)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I9, I6: sessions that other systems have begun are unattended, and those of people are not.
    #[test]
    fn i9_sessions_of_other_systems_are_unattended() {
        let unattended = |kind| begins_unattended(&format!("clerk/{}", SessionName::new(kind, "1")));
        let found: Vec<_> = SessionKind::ALL.iter().copied().filter(|kind| unattended(*kind)).collect();
        assert_eq!(found, [SessionKind::Schedule, SessionKind::Webhook, SessionKind::Event]);
    }
}
