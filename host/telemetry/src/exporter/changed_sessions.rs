//! The sessions that have changed since they were last exported.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Maximum number of sessions that are kept. If more sessions change, the store is searched for them.
const MAX_SESSIONS: usize = 10_000;

/// A bounded set of sessions. Adding a session never waits.
#[derive(Default)]
pub(super) struct ChangedSessions {
    state: Mutex<State>,
    added: Notify,
}

#[derive(Default)]
struct State {
    sessions: BTreeSet<String>,
    is_full: bool,
}

/// The sessions that were taken from the set.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TakenSessions {
    pub(super) sessions: BTreeSet<String>,
    /// Whether further sessions have changed that did not fit into the set.
    pub(super) are_more: bool,
}

impl ChangedSessions {
    pub(super) fn add(&self, session: &str) {
        let mut state = self.lock();
        if state.sessions.contains(session) {
            return;
        }
        match state.sessions.len() < MAX_SESSIONS {
            true => drop(state.sessions.insert(session.to_owned())),
            false => state.is_full = true,
        }
        drop(state);
        self.added.notify_one();
    }

    /// Adds sessions again that could not be exported.
    pub(super) fn put_back(&self, sessions: BTreeSet<String>) {
        let mut state = self.lock();
        state.is_full |= state.sessions.len() + sessions.len() > MAX_SESSIONS;
        let room = MAX_SESSIONS.saturating_sub(state.sessions.len());
        state.sessions.extend(sessions.into_iter().take(room));
    }

    pub(super) fn take(&self) -> TakenSessions {
        let State { sessions, is_full: are_more } = std::mem::take(&mut *self.lock());
        TakenSessions { sessions, are_more }
    }

    /// Waits until a session is added.
    pub(super) async fn added(&self) {
        self.added.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant 9: the set is bounded, and a full set is not silent.
    #[test]
    fn o1_the_set_of_changed_sessions_is_bounded() {
        let changed = ChangedSessions::default();
        for number in 0..MAX_SESSIONS + 5 {
            changed.add(&format!("s/{}", number % (MAX_SESSIONS + 1)));
        }
        let taken = changed.take();
        assert_eq!((taken.sessions.len(), taken.are_more), (MAX_SESSIONS, true));
        assert_eq!(changed.take(), TakenSessions::default());
        changed.add("a/1");
        changed.put_back(taken.sessions);
        let taken = changed.take();
        assert_eq!((taken.sessions.len(), taken.are_more), (MAX_SESSIONS, true));
    }
}
