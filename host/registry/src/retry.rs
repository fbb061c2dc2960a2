//! Retries of requests. This module decides after which responses a request is retried, how often and after which
//! delays, and notifies a listener of each retry.

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Maximum number of attempts for one request.
const MAX_ATTEMPTS: u32 = 4;
/// Delay before the second attempt. Each further delay is [`DELAY_FACTOR`] times as long as the previous one.
const FIRST_DELAY: Duration = Duration::from_millis(300);
const DELAY_FACTOR: f32 = 3.0;
/// Maximum delay before a retry. If the server requests a longer delay, the request is not retried, and the error
/// message contains the requested delay.
const MAX_DELAY: Duration = Duration::from_secs(30);
/// If a server requests a longer delay than this number of seconds, messages show this number instead of the
/// requested delay.
const MAX_SHOWN_SECONDS: u64 = 1_000_000_000;

/// Informs a listener that a request will be retried after a delay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryNotice {
    /// The requested reference or address.
    pub place: String,
    /// Reason why the previous attempt failed.
    pub reason: String,
    /// Delay before the next attempt.
    pub wait: Duration,
    /// Number of the next attempt, counted from 1, and the maximum number of attempts.
    pub next: (u32, u32),
}

/// A callback that is called before the delay of each retry. The callback should return quickly.
pub type RetryListener = dyn Fn(&RetryNotice) + Send + Sync;

/// The listener that is called before each retry, or `None` if there is no listener.
#[derive(Clone, Default)]
pub(crate) struct Listener(pub(crate) Option<Arc<RetryListener>>);

impl fmt::Debug for Listener {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Listener")
    }
}

/// The failures after which a request may be sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RetryPolicy {
    /// The request may be sent again after any failure, because sending it twice has the same effect as sending it
    /// once.
    #[default]
    Always,
    /// The request may be sent again only if the server reports that it did not process the request.
    IfNotProcessed,
    /// The request may be sent again only if it is unknown whether the server processed it. Callers that retry a whole
    /// operation, such as an upload, use this policy, because each request of the operation is already retried if the
    /// server did not process the request.
    IfUnknown,
}

impl RetryPolicy {
    /// Returns whether a request that failed with this status may be sent again.
    pub(crate) fn allows(self, status: StatusCode) -> bool {
        match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => self != RetryPolicy::IfUnknown,
            StatusCode::INTERNAL_SERVER_ERROR | StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => {
                self != RetryPolicy::IfNotProcessed
            }
            _ => false,
        }
    }
}

/// Counts the attempts of one request and waits between them.
pub(crate) struct Attempts<'t> {
    listener: &'t Listener,
    place: &'t str,
    attempt: u32,
    delays: ExponentialBackoff,
}

impl<'t> Attempts<'t> {
    pub(crate) fn new(listener: &'t Listener, place: &'t str) -> Self {
        Self { listener, place, attempt: 1, delays: delays(FIRST_DELAY, DELAY_FACTOR, MAX_ATTEMPTS) }
    }

    /// Waits before the next attempt. If the server requested a delay, the wait is at least as long as this delay.
    /// Returns `false` without waiting if there is no attempt left or the delay would be longer than [`MAX_DELAY`].
    pub(crate) async fn wait(&mut self, reason: String, retry_after: Option<Duration>) -> bool {
        let Some(delay) = self.delays.next() else { return false };
        let wait = round_to_milliseconds(delay).max(retry_after.unwrap_or_default());
        if wait > MAX_DELAY {
            return false;
        }
        self.attempt += 1;
        let notice = RetryNotice { place: self.place.to_owned(), reason, wait, next: (self.attempt, MAX_ATTEMPTS) };
        tracing::info!(place = %notice.place, reason = %notice.reason, ?wait, "a request will be retried");
        if let Some(listener) = &self.listener.0 {
            listener(&notice);
        }
        tokio::time::sleep(wait).await;
        true
    }
}

/// Returns the delays between the given number of attempts. Each delay is `factor` times as long as the previous one,
/// without an upper limit.
pub(crate) fn delays(first: Duration, factor: f32, attempts: u32) -> ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(first)
        .with_factor(factor)
        .without_max_delay()
        .with_max_times(attempts.saturating_sub(1) as usize)
        .build()
}

/// Rounds a delay to milliseconds, because the multiplication with the factor is not exact.
fn round_to_milliseconds(delay: Duration) -> Duration {
    Duration::from_millis((delay.as_secs_f64() * 1000.0).round() as u64)
}

/// Returns the delay that the server requests with `Retry-After` (RFC 9110, 10.2.3). A date is compared with the
/// server's own `Date` header, so that the clocks do not have to agree. If the response has no `Date` header, the date
/// is compared with the current time.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    retry_after_at(headers, SystemTime::now())
}

fn retry_after_at(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let date = |text| httpdate::parse_http_date(text).ok();
    let later = text(RETRY_AFTER)?;
    if !later.is_empty() && later.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Duration::from_secs(later.parse().unwrap_or(u64::MAX).min(MAX_SHOWN_SECONDS)));
    }
    let answered = text(DATE).and_then(date).unwrap_or(now);
    Some(date(later)?.duration_since(answered).unwrap_or_default())
}

/// Describes the response that is the reason for a retry.
pub(crate) fn status_reason(response: &Response) -> String {
    format!("the server answered {}", response.status())
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::{HeaderName, HeaderValue};

    /// P11: both forms of `Retry-After` are parsed, and a date is compared with the server's `Date` header.
    #[test]
    fn retry_after_is_read_in_both_forms() {
        let now = httpdate::parse_http_date("Fri, 20 Nov 2026 12:00:00 GMT").expect("the date is valid");
        let later = "Fri, 20 Nov 2026 12:00:09 GMT";
        let cases = [
            (vec![(RETRY_AFTER, "7")], Some(7)),
            (vec![(RETRY_AFTER, " 0 ")], Some(0)),
            (vec![(RETRY_AFTER, "99999999999999999999999999")], Some(MAX_SHOWN_SECONDS)),
            (vec![(RETRY_AFTER, later)], Some(9)),
            (vec![(RETRY_AFTER, "Fri, 20 Nov 2026 11:00:00 GMT")], Some(0)),
            (vec![(RETRY_AFTER, "Friday, 20-Nov-26 12:00:09 GMT")], Some(9)),
            (vec![(RETRY_AFTER, later), (DATE, "Fri, 20 Nov 2026 12:00:05 GMT")], Some(4)),
            (vec![(RETRY_AFTER, later), (DATE, "Fri, 20 Nov 2026 13:00:00 GMT")], Some(0)),
            (vec![(RETRY_AFTER, later), (DATE, "today")], Some(9)),
            (vec![(RETRY_AFTER, "")], None),
            (vec![(RETRY_AFTER, "-1")], None),
            (vec![(RETRY_AFTER, "+1")], None),
            (vec![(RETRY_AFTER, "soon")], None),
            (vec![(DATE, later)], None),
        ];
        for (headers, seconds) in cases {
            let pairs =
                headers.iter().map(|(name, text): &(HeaderName, _)| (name.clone(), HeaderValue::from_static(text)));
            assert_eq!(retry_after_at(&pairs.collect(), now), seconds.map(Duration::from_secs), "{headers:?}");
        }
    }
}
