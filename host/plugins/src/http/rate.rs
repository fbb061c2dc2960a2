//! How often each plugin of each agent may ask the outside world.

use crate::record::lock;
use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

/// When the latest requests of each agent and plugin were. Those of the last minute are kept, and nothing of whom has none.
#[derive(Default)]
pub(crate) struct Rates(Mutex<HashMap<(String, String), VecDeque<Instant>>>);

/// Too many requests in the last minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooMany {
    pub(crate) again_in: Duration,
}

impl Rates {
    /// Counts a request of this agent's plugin, which may make so many in a minute.
    pub(crate) fn take(&self, (agent, plugin): (&str, &str), most: usize, now: Instant) -> Result<(), TooMany> {
        let mut rates = lock(&self.0);
        rates.retain(|_, times| {
            while times.front().is_some_and(|time| now.saturating_duration_since(*time) >= MINUTE) {
                times.pop_front();
            }
            !times.is_empty()
        });
        let times = rates.entry((agent.to_owned(), plugin.to_owned())).or_default();
        match times.front() {
            Some(first) if times.len() >= most => {
                Err(TooMany { again_in: MINUTE.saturating_sub(now.saturating_duration_since(*first)) })
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

    /// Limits: 60 requests per minute, for each agent and plugin by itself; a minute later there is room again.
    #[test]
    fn requests_are_counted_by_agent_and_plugin() {
        let (rates, start) = (Rates::default(), Instant::now());
        for second in 0..60 {
            assert_eq!(rates.take(("a", "web"), 60, start + Duration::from_millis(second * 100)), Ok(()));
        }
        let at = start + Duration::from_secs(10);
        assert_eq!(rates.take(("a", "web"), 60, at), Err(TooMany { again_in: Duration::from_secs(50) }));
        assert_eq!(rates.take(("b", "web"), 60, at), Ok(()));
        assert_eq!(rates.take(("a", "other"), 60, at), Ok(()));
        assert_eq!(rates.take(("a", "web"), 60, start + MINUTE), Ok(()), "the first one is a minute old");
        assert!(rates.take(("a", "web"), 60, start + MINUTE).is_err(), "the second one is not");
        assert_eq!(rates.take(("a", "web"), 60, start + 4 * MINUTE), Ok(()));
        assert_eq!(lock(&rates.0).len(), 1, "who was silent for a minute is forgotten");
    }
}
