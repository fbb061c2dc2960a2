//! Decides when a failed model call is retried (M3).

use crate::error::ModelError;
use backon::{BackoffBuilder, ExponentialBuilder};
use std::time::Duration;

/// Limits on the retries of one model call. The wait before the second attempt is `initial_wait`. The wait doubles with
/// each further attempt, and a random amount (jitter) is added to it, but it never exceeds `max_wait`. If the provider
/// sends a `Retry-After` header, the wait is the time in this header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Maximum number of attempts including the first one. The default is 4. The value 1 disables retries.
    pub attempts: u32,
    /// Time to wait before the second attempt. The default is 500 ms.
    pub initial_wait: Duration,
    /// Maximum time to wait before an attempt. If a provider asks for a longer wait, the call is not retried. The
    /// default is 30 s.
    pub max_wait: Duration,
    /// Maximum time from the start of the first attempt of a call to the start of its last attempt. The default is
    /// 2 min.
    pub total: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 4,
            initial_wait: Duration::from_millis(500),
            max_wait: Duration::from_secs(30),
            total: Duration::from_secs(120),
        }
    }
}

impl RetryPolicy {
    /// Returns the wait before the next attempt, or `None` if the call must not be retried.
    ///
    /// `attempt` is the number of the failed attempt, starting at 1, and `spent` is the time since the first attempt
    /// began.
    pub fn wait(&self, attempt: u32, spent: Duration, error: &ModelError) -> Option<Duration> {
        if attempt >= self.attempts || !error.retryable() {
            return None;
        }
        let wait = match error.retry_after() {
            Some(requested) if requested > self.max_wait => return None,
            Some(requested) => requested,
            None => self.backoff(attempt),
        };
        (spent.saturating_add(wait) < self.total).then_some(wait)
    }

    fn backoff(&self, attempt: u32) -> Duration {
        let builder = ExponentialBuilder::default()
            .with_min_delay(self.initial_wait)
            .with_max_delay(self.max_wait)
            .with_max_times(self.attempts as usize)
            .with_jitter();
        // Jitter can double the wait, so the maximum must be applied again.
        let wait = builder.build().nth(attempt.saturating_sub(1) as usize).unwrap_or(self.max_wait);
        wait.min(self.max_wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Endpoint, ErrorOrigin, ProviderError};

    fn provider_error(status: u16, retry_after: Option<Duration>) -> ModelError {
        let error =
            ProviderError::new(Endpoint::local("openai/gpt"), ErrorOrigin::Status(status), None, "no".to_owned());
        ModelError::Provider(Box::new(ProviderError { retry_after, ..error }))
    }

    #[test]
    fn m3_the_wait_doubles_with_each_attempt() {
        let policy = RetryPolicy { attempts: 12, total: Duration::from_secs(1000), ..RetryPolicy::default() };
        for attempt in 1..12 {
            let wait = policy.wait(attempt, Duration::ZERO, &provider_error(503, None)).expect("a retry");
            let minimum = (policy.initial_wait * 2_u32.pow(attempt - 1)).min(policy.max_wait);
            assert!(wait >= minimum && wait <= policy.max_wait, "attempt {attempt}: {wait:?}");
        }
        assert_eq!(policy.wait(12, Duration::ZERO, &provider_error(503, None)), None);
    }

    /// M3: a `Retry-After` header is respected if it does not exceed the maximum wait.
    #[test]
    fn m3_retry_after_takes_precedence() {
        let policy = RetryPolicy::default();
        let requested =
            |seconds| policy.wait(1, Duration::ZERO, &provider_error(429, Some(Duration::from_secs(seconds))));
        assert_eq!(requested(0), Some(Duration::ZERO));
        assert_eq!(requested(7), Some(Duration::from_secs(7)));
        assert_eq!(requested(31), None);
    }

    /// M3: retries are limited in time and apply only to temporary errors.
    #[test]
    fn m3_late_and_permanent_errors_are_not_retried() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.wait(1, Duration::from_secs(120), &provider_error(503, None)), None);
        assert_eq!(policy.wait(1, Duration::ZERO, &provider_error(401, None)), None);
        assert!(policy.wait(1, Duration::ZERO, &provider_error(408, None)).is_some());
    }
}
