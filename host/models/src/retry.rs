//! When a model that did not answer is asked again (M3).

use crate::error::ModelError;
use backon::{BackoffBuilder, ExponentialBuilder};
use std::time::Duration;

/// How often and for how long one model is asked again. Waits double from the first to the longest, each with jitter; a
/// provider's own `Retry-After` goes before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Tries of one model call, the first included. Default 4; 1 means never again.
    pub attempts: u32,
    /// Before the second try. Default 500 ms.
    pub first_wait: Duration,
    /// Longest single wait, and the longest that a provider may ask for. Default 30 s.
    pub longest_wait: Duration,
    /// All tries and waits of one model call together. Default 2 min.
    pub total: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 4,
            first_wait: Duration::from_millis(500),
            longest_wait: Duration::from_secs(30),
            total: Duration::from_secs(120),
        }
    }
}

impl RetryPolicy {
    /// What to wait before the next try; none where there is to be none. `attempt` is the one that failed, from 1, and
    /// `spent` the time since the first began.
    pub fn wait(&self, attempt: u32, spent: Duration, error: &ModelError) -> Option<Duration> {
        if attempt >= self.attempts || !error.retryable() {
            return None;
        }
        let wait = match error.retry_after() {
            Some(asked) if asked > self.longest_wait => return None,
            Some(asked) => asked,
            None => self.backoff(attempt),
        };
        (spent.saturating_add(wait) < self.total).then_some(wait)
    }

    fn backoff(&self, attempt: u32) -> Duration {
        let builder = ExponentialBuilder::default()
            .with_min_delay(self.first_wait)
            .with_max_delay(self.longest_wait)
            .with_max_times(self.attempts as usize)
            .with_jitter();
        // The jitter adds up to one more wait; the longest is the longest.
        let wait = builder.build().nth(attempt.saturating_sub(1) as usize).unwrap_or(self.longest_wait);
        wait.min(self.longest_wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Endpoint, Refusal, Said};

    fn refused(status: u16, retry_after: Option<Duration>) -> ModelError {
        let refusal = Refusal::new(Endpoint::local("openai/gpt"), Said::Status(status), None, "no".to_owned());
        ModelError::Refused(Box::new(Refusal { retry_after, ..refusal }))
    }

    /// M3
    #[test]
    fn waits_double_and_end() {
        let policy = RetryPolicy { attempts: 12, total: Duration::from_secs(1000), ..RetryPolicy::default() };
        for attempt in 1..12 {
            let wait = policy.wait(attempt, Duration::ZERO, &refused(503, None)).expect("again");
            let least = (policy.first_wait * 2_u32.pow(attempt - 1)).min(policy.longest_wait);
            assert!(wait >= least && wait <= policy.longest_wait, "attempt {attempt}: {wait:?}");
        }
        assert_eq!(policy.wait(12, Duration::ZERO, &refused(503, None)), None);
    }

    /// M3: `Retry-After` is honoured, and bounded.
    #[test]
    fn a_provider_may_say_how_long() {
        let policy = RetryPolicy::default();
        let asked = |seconds| policy.wait(1, Duration::ZERO, &refused(429, Some(Duration::from_secs(seconds))));
        assert_eq!(asked(0), Some(Duration::ZERO));
        assert_eq!(asked(7), Some(Duration::from_secs(7)));
        assert_eq!(asked(31), None);
    }

    /// M3: bounded in time, and only for what may be better later.
    #[test]
    fn some_failures_are_final() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.wait(1, Duration::from_secs(120), &refused(503, None)), None);
        assert_eq!(policy.wait(1, Duration::ZERO, &refused(401, None)), None);
        assert!(policy.wait(1, Duration::ZERO, &refused(408, None)).is_some());
    }
}
