//! Delays between attempts to continue a session that could not continue.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Delay after the first failure. Each further failure doubles the delay.
pub(super) const FIRST_DELAY: Duration = Duration::from_secs(1);
/// Maximum delay between two attempts.
pub(super) const MAX_DELAY: Duration = Duration::from_secs(300);

/// Number of sessions above which those whose delay is over are forgotten.
const REMEMBERED: usize = 10_000;

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
        remember(&mut delays, session, Delay { until: now + delay, next: (delay * 2).min(MAX_DELAY) });
        delay
    }

    /// Delays the next attempt, because another process has the session open at the time `now`. This is not a failure, so the
    /// delay does not grow: the other process may stop at any time.
    pub(super) fn taken(&self, session: &str, now: Instant) {
        let mut delays = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = delays.get(session).map_or(FIRST_DELAY, |delay| delay.next);
        remember(&mut delays, session, Delay { until: now + FIRST_DELAY, next });
    }

    /// Ends the delay of a session that has continued.
    pub(super) fn succeeded(&self, session: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(session);
    }
}

fn remember(delays: &mut HashMap<String, Delay>, session: &str, delay: Delay) {
    if delays.len() >= REMEMBERED {
        let now = Instant::now();
        delays.retain(|_, delay| delay.until > now);
    }
    delays.insert(session.to_owned(), delay);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F1: a session that other processes take again and again is tried soon after they have stopped.
    #[test]
    fn f1_sessions_of_other_processes_are_tried_again_after_a_second() {
        let (backoff, now) = (Backoff::default(), Instant::now());
        for _ in 0..10 {
            backoff.taken("a", now);
        }
        assert!(!backoff.is_over("a", now) && backoff.is_over("a", now + FIRST_DELAY));
        assert_eq!(backoff.failed("a", now), FIRST_DELAY, "the delay after a failure has not grown");
    }

    #[test]
    fn sessions_whose_delay_is_over_are_forgotten() {
        let (backoff, past) = (Backoff::default(), Instant::now() - MAX_DELAY);
        for number in 0..REMEMBERED + 5 {
            backoff.failed(&number.to_string(), past);
        }
        assert!(backoff.0.lock().expect("no panic").len() <= 10);
    }

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
