//! Retries of requests: after which answers, how often and how much later, and who is notified.

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Maximum number of attempts of one request.
const MAX_ATTEMPTS: u32 = 4;
/// Delay before the second attempt; each further delay is [`DELAY_FACTOR`] times as long.
const FIRST_DELAY: Duration = Duration::from_millis(300);
const DELAY_FACTOR: f32 = 3.0;
/// If the server asks for a longer delay than this, there is no retry and the error says so.
const MAX_DELAY: Duration = Duration::from_secs(30);
/// Longest delay in seconds that is shown; longer ones are shown as this.
const MAX_SHOWN_SECONDS: u64 = 1_000_000_000;

/// Tells a listener that a request will be retried after a delay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryNotice {
    /// The requested reference or address.
    pub place: String,
    /// Why the previous attempt failed.
    pub reason: String,
    /// Delay before the next attempt.
    pub wait: Duration,
    /// Number of the next attempt, and the maximum number of attempts.
    pub next: (u32, u32),
}

/// Is called before each delay. It should return quickly.
pub type RetryListener = dyn Fn(&RetryNotice) + Send + Sync;

/// The listener, if there is one.
#[derive(Clone, Default)]
pub(crate) struct Listener(pub(crate) Option<Arc<RetryListener>>);

impl fmt::Debug for Listener {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Listener")
    }
}

/// After which failures a request may be sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RetryPolicy {
    /// After any failure, because sending the request twice has the same effect as sending it once.
    #[default]
    Always,
    /// Only if the server says that it did not process the request.
    IfNotProcessed,
    /// Only if it is unknown whether the server processed the request. For callers that can start the whole operation again.
    IfUnknown,
}

impl RetryPolicy {
    /// Whether a request with this status may succeed on a later attempt.
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

/// The attempts of one request.
pub(crate) struct Attempts<'t> {
    listener: &'t Listener,
    place: &'t str,
    made: u32,
    delays: ExponentialBackoff,
}

impl<'t> Attempts<'t> {
    pub(crate) fn new(listener: &'t Listener, place: &'t str) -> Self {
        Self { listener, place, made: 1, delays: delays(FIRST_DELAY, DELAY_FACTOR, MAX_ATTEMPTS) }
    }

    /// Waits before the next attempt, at least as long as the server asked for. Returns `false` at once if there is no further
    /// attempt.
    pub(crate) async fn wait(&mut self, reason: String, retry_after: Option<Duration>) -> bool {
        let Some(delay) = self.delays.next() else { return false };
        let wait = rounded(delay).max(retry_after.unwrap_or_default());
        if wait > MAX_DELAY {
            return false;
        }
        self.made += 1;
        let notice = RetryNotice { place: self.place.to_owned(), reason, wait, next: (self.made, MAX_ATTEMPTS) };
        tracing::info!(place = %notice.place, reason = %notice.reason, ?wait, "a request will be retried");
        if let Some(listener) = &self.listener.0 {
            listener(&notice);
        }
        tokio::time::sleep(wait).await;
        true
    }
}

/// The delays between a number of attempts. They grow by a factor and have no upper limit.
pub(crate) fn delays(first: Duration, factor: f32, attempts: u32) -> ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(first)
        .with_factor(factor)
        .without_max_delay()
        .with_max_times(attempts.saturating_sub(1) as usize)
        .build()
}

/// Rounds to milliseconds, because the factor is a number of limited precision.
fn rounded(delay: Duration) -> Duration {
    Duration::from_millis((delay.as_secs_f64() * 1000.0).round() as u64)
}

/// The delay that the server asks for (RFC 9110, 10.2.3). A date is compared with the server's own `Date` header, so that the clocks
/// need not agree; without that header, it is compared with the current time.
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

/// Describes an answer after which the request is retried.
pub(crate) fn status_reason(response: &Response) -> String {
    format!("the server answered {}", response.status())
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::{HeaderName, HeaderValue};

    /// P11: both forms of `Retry-After` are read, and a date is compared with the server's `Date`.
    #[test]
    fn retry_after_is_read_in_both_forms() {
        let now = httpdate::parse_http_date("Fri, 20 Nov 2026 12:00:00 GMT").expect("a date");
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
