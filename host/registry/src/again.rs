//! Asking again: after which answers, how often, how long later; and who is told of it.

use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Tries of one request.
const TRIES: u32 = 4;
const FIRST_WAIT: Duration = Duration::from_millis(300);
/// A server that wants more than this is not waited for: what it says is told.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Seconds that are told; numbers beyond it, and beyond all that can be counted, mean the same.
const LONGEST_ASKED: u64 = 1_000_000_000;

/// A request is sent again after a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Again {
    /// What was asked for.
    pub place: String,
    /// Why it failed.
    pub reason: String,
    /// How long is waited.
    pub wait: Duration,
    /// Which try comes next, and of how many.
    pub next: (u32, u32),
}

/// Is told before each wait. Should return soon.
pub type AskedAgain = dyn Fn(&Again) + Send + Sync;

/// Who is told.
#[derive(Clone, Default)]
pub(crate) struct Listener(pub(crate) Option<Arc<AskedAgain>>);

impl fmt::Debug for Listener {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Listener")
    }
}

/// How often a request may be sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Whatever became of it: twice is as good as once.
    #[default]
    Always,
    /// Where the server says that it has done nothing.
    IfRefused,
    /// Where nobody knows whether it has: for who can begin the whole anew.
    IfUnknown,
}

impl Repeat {
    /// Whether this status may be another one soon.
    pub(crate) fn after(self, status: StatusCode) -> bool {
        match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => self != Repeat::IfUnknown,
            StatusCode::INTERNAL_SERVER_ERROR | StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => {
                self != Repeat::IfRefused
            }
            _ => false,
        }
    }
}

/// The tries of one request.
pub(crate) struct Tries<'t> {
    listener: &'t Listener,
    place: &'t str,
    done: u32,
}

impl<'t> Tries<'t> {
    pub(crate) fn new(listener: &'t Listener, place: &'t str) -> Self {
        Self { listener, place, done: 1 }
    }

    /// Waits until the next try; not, and says so, where there is none.
    pub(crate) async fn wait(&mut self, reason: String, asked: Option<Duration>) -> bool {
        let wait = (FIRST_WAIT * 3_u32.pow(self.done - 1)).max(asked.unwrap_or_default());
        if self.done >= TRIES || wait > LONGEST_WAIT {
            return false;
        }
        self.done += 1;
        let again = Again { place: self.place.to_owned(), reason, wait, next: (self.done, TRIES) };
        tracing::info!(place = %again.place, reason = %again.reason, ?wait, "a request is sent again");
        if let Some(told) = &self.listener.0 {
            told(&again);
        }
        tokio::time::sleep(wait).await;
        true
    }
}

/// What the server wants to be waited for, in seconds or until a date (RFC 9110, 10.2.3). A date is the server's, and is counted from
/// when it answered by its own clock (`Date`), so that nobody's clocks have to agree; where it does not say that, from now.
pub(crate) fn asked_for(headers: &HeaderMap) -> Option<Duration> {
    asked_at(headers, SystemTime::now())
}

fn asked_at(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let date = |text| httpdate::parse_http_date(text).ok();
    let later = text(RETRY_AFTER)?;
    if !later.is_empty() && later.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Duration::from_secs(later.parse().unwrap_or(u64::MAX).min(LONGEST_ASKED)));
    }
    let answered = text(DATE).and_then(date).unwrap_or(now);
    Some(date(later)?.duration_since(answered).unwrap_or_default())
}

/// How an answer is told that is worth another try.
pub(crate) fn told(response: &Response) -> String {
    format!("it answers {}", response.status())
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::{HeaderName, HeaderValue};

    /// P11: both forms of Retry-After; a date counts from the server's own.
    #[test]
    fn waits_that_servers_ask_for() {
        let now = httpdate::parse_http_date("Fri, 20 Nov 2026 12:00:00 GMT").expect("a date");
        let later = "Fri, 20 Nov 2026 12:00:09 GMT";
        let cases = [
            (vec![(RETRY_AFTER, "7")], Some(7)),
            (vec![(RETRY_AFTER, " 0 ")], Some(0)),
            (vec![(RETRY_AFTER, "99999999999999999999999999")], Some(LONGEST_ASKED)),
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
            assert_eq!(asked_at(&pairs.collect(), now), seconds.map(Duration::from_secs), "{headers:?}");
        }
    }
}
