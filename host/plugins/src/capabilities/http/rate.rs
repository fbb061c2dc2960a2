//! Limits the number of HTTP requests per minute for each plugin of each agent.

use crate::sync::lock;
use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

/// For each plugin of each agent, the times at which the plugin sent requests in the last minute. The map contains only
/// plugins that sent requests in this minute.
#[derive(Default)]
pub(crate) struct Rates(Mutex<HashMap<(String, String), VecDeque<Instant>>>);

/// The error for a request if the plugin has sent too many requests in the last minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RateExceeded {
    /// Time until the next request is allowed.
    pub(crate) retry_after: Duration,
}

impl Rates {
    /// Counts a request that this plugin sends for this agent. Fails if the plugin has already sent `limit` requests in
    /// the last minute.
    pub(crate) fn take(&self, (agent, plugin): (&str, &str), limit: usize, now: Instant) -> Result<(), RateExceeded> {
        let mut rates = lock(&self.0);
        rates.retain(|_, times| {
            while times.front().is_some_and(|time| now.saturating_duration_since(*time) >= MINUTE) {
                times.pop_front();
            }
            !times.is_empty()
        });
        let times = rates.entry((agent.to_owned(), plugin.to_owned())).or_default();
        match times.front() {
            Some(first) if times.len() >= limit => {
                Err(RateExceeded { retry_after: MINUTE.saturating_sub(now.saturating_duration_since(*first)) })
            }
            _ => {
                times.push_back(now);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests are counted for each agent and plugin separately, and each request is counted for one minute.
    #[test]
    fn requests_are_limited_by_agent_and_plugin() {
        let (rates, start) = (Rates::default(), Instant::now());
        for second in 0..60 {
            assert_eq!(rates.take(("a", "web"), 60, start + Duration::from_millis(second * 100)), Ok(()));
        }
        let at = start + Duration::from_secs(10);
        assert_eq!(rates.take(("a", "web"), 60, at), Err(RateExceeded { retry_after: Duration::from_secs(50) }));
        assert_eq!(rates.take(("b", "web"), 60, at), Ok(()));
        assert_eq!(rates.take(("a", "other"), 60, at), Ok(()));
        assert_eq!(rates.take(("a", "web"), 60, start + MINUTE), Ok(()), "the first request is a minute old");
        assert!(rates.take(("a", "web"), 60, start + MINUTE).is_err(), "the second request is less than a minute old");
        assert_eq!(rates.take(("a", "web"), 60, start + 4 * MINUTE), Ok(()));
        assert_eq!(lock(&rates.0).len(), 1, "a plugin without requests in the last minute has no entry");
    }
}
