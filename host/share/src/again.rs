//! Asking again: after which answers, how often, how long later; and who is told of it.

use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Tries of one request.
const TRIES: u32 = 4;
const FIRST_WAIT: Duration = Duration::from_millis(300);
/// A server that wants more than this is not waited for: what it says is told.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

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
}

impl Repeat {
    /// Whether this status may be another one soon.
    pub(crate) fn after(self, status: StatusCode) -> bool {
        match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => true,
            StatusCode::INTERNAL_SERVER_ERROR | StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => {
                self == Repeat::Always
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

/// What the server wants to be waited for. A date is read by who has the same clock, so only seconds count; without them the
/// usual wait does.
pub(crate) fn asked_for(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// How an answer is told that is worth another try.
pub(crate) fn told(response: &Response) -> String {
    format!("it answers {}", response.status())
}
