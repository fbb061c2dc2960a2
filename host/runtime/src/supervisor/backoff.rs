//! Delays between attempts to continue a session that could not continue.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Delay after the first failure. Each further failure doubles the delay.
pub(super) const FIRST_DELAY: Duration = Duration::from_secs(1);
/// Maximum delay between two attempts.
pub(super) const MAX_DELAY: Duration = Duration::from_secs(300);

/// The sessions that could not continue, with the time of the next attempt.
#[derive(Default)]
pub(super) struct Backoff(Mutex<HashMap<String, Delay>>);

struct Delay {
    until: Instant,
    next: Duration,
}

impl Backoff {
    /// Returns whether an attempt to continue the session may be made at the time `now`.
    pub(super) fn is_over(&self, session: &str, now: Instant) -> bool {
        let delays = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        delays.get(session).is_none_or(|delay| delay.until <= now)
    }

    /// Delays the next attempt after a failure at the time `now`. Returns the delay.
    pub(super) fn failed(&self, session: &str, now: Instant) -> Duration {
        let mut delays = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let delay = delays.get(session).map_or(FIRST_DELAY, |delay| delay.next);
        let next = Delay { until: now + delay, next: (delay * 2).min(MAX_DELAY) };
        delays.insert(session.to_owned(), next);
        delay
    }

    /// Ends the delay of a session that has continued.
    pub(super) fn succeeded(&self, session: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i9_attempts_become_rarer_until_one_succeeds() {
        let (backoff, now) = (Backoff::default(), Instant::now());
        assert!(backoff.is_over("a", now));
        let delays: Vec<_> = (0..10).map(|_| backoff.failed("a", now).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
        assert!(!backoff.is_over("a", now + Duration::from_secs(299)) && backoff.is_over("b", now));
        assert!(backoff.is_over("a", now + MAX_DELAY));
        backoff.succeeded("a");
        assert_eq!(backoff.failed("a", now), FIRST_DELAY);
    }
}
