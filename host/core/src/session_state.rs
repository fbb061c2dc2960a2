//! The state of a session that is shown in lists of sessions.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The state of a session, as it is shown in lists of sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// The session exists, but nothing has been stored in it yet.
    #[default]
    New,
    /// No turn is open. Either the last turn ended with an output, or no turn has begun yet.
    Idle,
    /// A turn is open and can continue.
    Running,
    /// A turn is open and waits for an external event, such as an approval or a service's response.
    Suspended,
    /// The last turn ended with an error.
    Failed,
    /// The last turn was cancelled.
    Cancelled,
    /// An import or a fork has not written the whole session, because the import or fork is still running or was
    /// interrupted. An incomplete session can only be listed and deleted.
    Incomplete,
    /// A turn was running when the process that ran the turn ended. This state is never stored. Lists show this state
    /// for each session whose stored state is [`SessionState::Running`] although no running process holds the session.
    Interrupted,
    /// Like [`SessionState::Interrupted`], but the answer for which the turn waited has arrived. This state is
    /// never stored.
    Ready,
}

impl SessionState {
    const ALL: [Self; 9] = [
        Self::New,
        Self::Idle,
        Self::Running,
        Self::Suspended,
        Self::Failed,
        Self::Cancelled,
        Self::Incomplete,
        Self::Interrupted,
        Self::Ready,
    ];

    /// Returns the name of the state in the database and in output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Idle => "idle",
            Self::Running => "running",
            Self::Suspended => "suspended",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Incomplete => "incomplete",
            Self::Interrupted => "interrupted",
            Self::Ready => "ready",
        }
    }

    /// Returns the state for which [`SessionState::as_str`] returns this text. `None` means that there is no
    /// such state.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// Whether a turn of the session is open.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Running | Self::Suspended | Self::Interrupted | Self::Ready)
    }
}

impl fmt::Display for SessionState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_same_in_json_and_in_the_database() {
        for state in SessionState::ALL {
            assert_eq!(serde_json::to_value(state).expect("JSON"), state.as_str());
            assert_eq!(SessionState::parse(state.as_str()), Some(state));
        }
        assert_eq!(SessionState::parse("asleep"), None);
    }
}
