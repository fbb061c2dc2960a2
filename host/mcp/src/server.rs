//! One server over its connections: opened when it is needed, closed when nobody needs it, left alone for a while after
//! it has failed.

use crate::catalogue::Listing;
use crate::child::Groups;
use crate::configuration::{Keep, ServerConfig};
use crate::connection::{Connection, Hung};
use crate::error::McpError;
use crate::result::McpDone;
use agent_core::tool::ToolError;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use rmcp::model::JsonObject;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio_util::task::AbortOnDropHandle;

/// Wait after the first failure; doubled after each further one. After a slow failure, as long as that took.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// Longest wait. A server that has run for as long is as good as a new one.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// A wait that is sat out; longer ones are an error.
const PATIENCE: Duration = Duration::from_secs(1);

/// A configured server.
pub(crate) struct Server {
    config: Arc<ServerConfig>,
    groups: Groups,
    state: Mutex<State>,
}

/// A connection that is being made, has been made, or could not be made; whoever wants one waits for the same.
pub(crate) type Attempt = Shared<BoxFuture<'static, Result<Arc<Connection>, Failure>>>;

/// An attempt that failed.
#[derive(Clone)]
pub(crate) struct Failure {
    error: McpError,
    at: Instant,
    took: Duration,
}

#[derive(Default)]
struct State {
    attempt: Option<(Attempt, Instant)>,
    holders: usize,
    failures: u32,
    not_before: Option<(Instant, String)>,
}

impl Server {
    /// Its processes are among those groups.
    pub(crate) fn new(config: ServerConfig, groups: Groups) -> Self {
        Self { config: Arc::new(config), groups, state: Mutex::default() }
    }

    /// Needs the server from now on, until as many have let go.
    pub(crate) fn take_hold(&self) {
        self.state().holders += 1;
    }

    /// Its tools as they are now, over a new connection where there is none.
    pub(crate) async fn listing(&self) -> Result<Arc<Listing>, McpError> {
        self.connection().await?.listing(&self.config).await
    }

    /// Needs it no more. Where nobody does, this is the connection that is to be closed.
    pub(crate) fn let_go(&self) -> Option<Attempt> {
        let mut state = self.state();
        state.holders = state.holders.saturating_sub(1);
        let unneeded = state.holders == 0 && self.config.keep == Keep::Turn;
        if unneeded { state.part(&self.config) } else { None }
    }

    /// Gives up the connection, whoever needs it.
    pub(crate) fn part(&self) -> Option<Attempt> {
        self.state().part(&self.config)
    }

    /// Calls a tool, over a new connection where the last one was lost.
    pub(crate) async fn call(&self, tool: &str, arguments: JsonObject) -> Result<McpDone, ToolError> {
        let connection = self.connection().await.map_err(|error| {
            let retry_after = match &error {
                McpError::Waiting { wait, .. } => u32::try_from(wait.as_millis()).ok(),
                _ => None,
            };
            ToolError::Unavailable { message: error.to_string(), retry_after }
        })?;
        let called = connection.call(&self.config, tool, arguments).await;
        if connection.hung().is_some() {
            // It is ended once nobody else waits for an answer of it.
            drop(self.state().lost(&self.config));
        }
        called
    }

    async fn connection(&self) -> Result<Arc<Connection>, McpError> {
        self.attempt()?.await.map_err(|failure| failure.error)
    }

    /// The attempt that is going on or has succeeded, or a new one.
    fn attempt(&self) -> Result<Attempt, McpError> {
        let mut state = self.state();
        // What is left of a lost connection ends in the background.
        drop(state.lost(&self.config));
        if let Some((attempt, _)) = &state.attempt {
            return Ok(attempt.clone());
        }
        let now = Instant::now();
        let wait = state.not_before.as_ref().map_or(Duration::ZERO, |(time, _)| time.saturating_duration_since(now));
        if let (Some((_, reason)), true) = (&state.not_before, wait > PATIENCE) {
            // In tenths, for people.
            let wait = Duration::from_millis(u64::try_from(wait.as_millis().div_ceil(100) * 100).unwrap_or(u64::MAX));
            return Err(McpError::Waiting { server: self.config.name.clone(), wait, reason: reason.clone() });
        }
        let attempt = attempt((self.config.clone(), self.groups.clone()), wait);
        state.attempt = Some((attempt.clone(), now));
        Ok(attempt)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The attempt that failed, or whose connection was lost: it counts now, and is no more.
    fn lost(&mut self, config: &ServerConfig) -> Option<Attempt> {
        let (attempt, since) = self.attempt.as_ref()?;
        let (reason, base, (since, at)) = match attempt.peek()? {
            Ok(connection) if connection.is_open() => return None,
            Ok(lost) => match lost.hung() {
                Some(Hung { at, took }) => (lost.obituary(&config.limits), took.max(FIRST_WAIT), (*since, at)),
                None => (lost.obituary(&config.limits), FIRST_WAIT, (*since, *since)),
            },
            Err(Failure { error, at, took }) => (error.to_string(), (*took).max(FIRST_WAIT), (*at, *at)),
        };
        self.failed(reason, base, (since, at));
        self.attempt.take().map(|(attempt, _)| attempt)
    }

    /// The server, which was good `since` then, was lost or could not be reached `at` another time.
    fn failed(&mut self, reason: String, base: Duration, (since, at): (Instant, Instant)) {
        self.failures = if since.elapsed() >= LONGEST_WAIT { 1 } else { self.failures.saturating_add(1) };
        let wait = base.saturating_mul(2_u32.saturating_pow(self.failures - 1)).min(LONGEST_WAIT);
        self.not_before = Some((at + wait, reason));
    }

    fn part(&mut self, config: &ServerConfig) -> Option<Attempt> {
        self.lost(config).or_else(|| self.attempt.take().map(|(attempt, _)| attempt))
    }
}

/// Connects in a task of its own: who stops waiting does not stop it for the others. Nobody waiting any more stops it.
fn attempt((config, groups): (Arc<ServerConfig>, Groups), wait: Duration) -> Attempt {
    let ending = McpError::Connect { server: config.name.clone(), reason: "the host is ending".to_owned() };
    let connecting = tokio::spawn(async move {
        tokio::time::sleep(wait).await;
        let begun = Instant::now();
        let connected = Connection::open(&config, &groups).await.map(Arc::new);
        connected.map_err(|error| Failure { error, at: Instant::now(), took: begun.elapsed() })
    });
    let connecting = AbortOnDropHandle::new(connecting);
    let joined = async move {
        match connecting.await.map_err(tokio::task::JoinError::try_into_panic) {
            Ok(connected) => connected,
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            Err(Err(_)) => Err(Failure { error: ending, at: Instant::now(), took: Duration::ZERO }),
        }
    };
    joined.boxed().shared()
}

/// Closes a connection that nobody needs; one that is still being made is given up.
pub(crate) async fn close(attempt: Attempt) {
    if let Some(Ok(connection)) = attempt.peek() {
        connection.close().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row 21: the waits double up to the longest, and a server that ran for long begins anew.
    #[test]
    fn i5_waits_double_up_to_a_minute() {
        let (mut state, now) = (State::default(), Instant::now());
        let mut waits = Vec::new();
        for _ in 0..9 {
            state.failed("it ended".to_owned(), FIRST_WAIT, (now, now));
            waits.push(state.not_before.as_ref().unwrap().0.duration_since(now).as_millis());
        }
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000]);
        let Some(long_ago) = now.checked_sub(LONGEST_WAIT) else { return };
        state.failed("it ended".to_owned(), FIRST_WAIT, (long_ago, now));
        assert_eq!(state.failures, 1);
    }
}
