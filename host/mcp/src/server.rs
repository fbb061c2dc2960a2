//! One configured server across its connections: connects when the server is needed, disconnects when nobody uses it,
//! and backs off after failures.

use crate::catalogue::Listing;
use crate::child::ProcessGroups;
use crate::configuration::{KeepConnected, ServerConfig};
use crate::connection::{Connection, Unresponsive};
use crate::error::McpError;
use crate::result::McpToolResult;
use agent_core::tool::ToolError;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use rmcp::model::JsonObject;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio_util::task::AbortOnDropHandle;

/// Wait after the first failure. It doubles with each further failure. If the failure itself took longer, that time is
/// the base instead.
const FIRST_BACKOFF: Duration = Duration::from_millis(500);
/// Maximum wait. The failure count of a server that ran at least this long is reset.
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// Maximum time that a caller waits for the next attempt. If the remaining wait is longer, the call fails at once.
const MAX_CALLER_WAIT: Duration = Duration::from_secs(1);

/// A configured server with its current connection.
pub(crate) struct Server {
    config: Arc<ServerConfig>,
    groups: ProcessGroups,
    state: Mutex<State>,
}

/// An attempt to connect that is running, has succeeded or has failed. All callers share it.
pub(crate) type ConnectionAttempt = Shared<BoxFuture<'static, Result<Arc<Connection>, FailedAttempt>>>;

/// A failed attempt to connect.
#[derive(Clone)]
pub(crate) struct FailedAttempt {
    error: McpError,
    at: Instant,
    took: Duration,
}

#[derive(Default)]
struct State {
    attempt: Option<(ConnectionAttempt, Instant)>,
    users: usize,
    failures: u32,
    not_before: Option<(Instant, String)>,
}

impl Server {
    /// Creates the server without starting it. Its processes are registered in `groups`.
    pub(crate) fn new(config: ServerConfig, groups: ProcessGroups) -> Self {
        Self { config: Arc::new(config), groups, state: Mutex::default() }
    }

    /// Registers a user of the server. Each call must be paired with one to [`Self::remove_user`].
    pub(crate) fn add_user(&self) {
        self.state().users += 1;
    }

    /// Returns the current tools, connecting first if necessary.
    pub(crate) async fn listing(&self) -> Result<Arc<Listing>, McpError> {
        self.connection().await?.listing(&self.config).await
    }

    /// Unregisters a user. If no user is left and the connection is not kept, returns the connection to close.
    pub(crate) fn remove_user(&self) -> Option<ConnectionAttempt> {
        let mut state = self.state();
        state.users = state.users.saturating_sub(1);
        let unneeded = state.users == 0 && self.config.keep == KeepConnected::Turn;
        if unneeded { state.take_connection(&self.config) } else { None }
    }

    /// Takes the connection away from all users, so that it can be closed.
    pub(crate) fn take_connection(&self) -> Option<ConnectionAttempt> {
        self.state().take_connection(&self.config)
    }

    /// Calls a tool, reconnecting first if the last connection was lost.
    pub(crate) async fn call(&self, tool: &str, arguments: JsonObject) -> Result<McpToolResult, ToolError> {
        let connection = self.connection().await.map_err(|error| {
            let retry_after = match &error {
                McpError::BackingOff { wait, .. } => u32::try_from(wait.as_millis()).ok(),
                _ => None,
            };
            ToolError::Unavailable { message: error.to_string(), retry_after }
        })?;
        let called = connection.call(&self.config, tool, arguments).await;
        if connection.unresponsive().is_some() {
            // The connection ends when no other call uses it any more.
            drop(self.state().take_if_failed(&self.config));
        }
        called
    }

    async fn connection(&self) -> Result<Arc<Connection>, McpError> {
        self.attempt()?.await.map_err(|failure| failure.error)
    }

    /// Returns the running or successful attempt, or starts a new one.
    fn attempt(&self) -> Result<ConnectionAttempt, McpError> {
        let mut state = self.state();
        // The rest of a lost connection ends in the background.
        drop(state.take_if_failed(&self.config));
        if let Some((attempt, _)) = &state.attempt {
            return Ok(attempt.clone());
        }
        let now = Instant::now();
        let wait = state.not_before.as_ref().map_or(Duration::ZERO, |(time, _)| time.saturating_duration_since(now));
        if let (Some((_, reason)), true) = (&state.not_before, wait > MAX_CALLER_WAIT) {
            // Rounded up to tenths of a second for the message.
            let wait = Duration::from_millis(u64::try_from(wait.as_millis().div_ceil(100) * 100).unwrap_or(u64::MAX));
            return Err(McpError::BackingOff { server: self.config.name.clone(), wait, reason: reason.clone() });
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
    /// Takes the attempt if it failed or its connection was lost, and records the failure.
    fn take_if_failed(&mut self, config: &ServerConfig) -> Option<ConnectionAttempt> {
        let (attempt, since) = self.attempt.as_ref()?;
        let (reason, base, (since, at)) = match attempt.peek()? {
            Ok(connection) if connection.is_open() => return None,
            Ok(lost) => match lost.unresponsive() {
                Some(Unresponsive { at, took }) => {
                    (lost.closing_reason(&config.limits), took.max(FIRST_BACKOFF), (*since, at))
                }
                None => (lost.closing_reason(&config.limits), FIRST_BACKOFF, (*since, *since)),
            },
            Err(FailedAttempt { error, at, took }) => (error.to_string(), (*took).max(FIRST_BACKOFF), (*at, *at)),
        };
        self.record_failure(reason, base, (since, at));
        self.attempt.take().map(|(attempt, _)| attempt)
    }

    /// Records a failure at `at` of a server that had been running since `since`.
    fn record_failure(&mut self, reason: String, base: Duration, (since, at): (Instant, Instant)) {
        self.failures = if since.elapsed() >= MAX_BACKOFF { 1 } else { self.failures.saturating_add(1) };
        let wait = base.saturating_mul(2_u32.saturating_pow(self.failures - 1)).min(MAX_BACKOFF);
        self.not_before = Some((at + wait, reason));
    }

    fn take_connection(&mut self, config: &ServerConfig) -> Option<ConnectionAttempt> {
        self.take_if_failed(config).or_else(|| self.attempt.take().map(|(attempt, _)| attempt))
    }
}

/// Connects in a separate task, so that a cancelled caller does not stop it for others. The task is aborted when no
/// caller is left.
fn attempt((config, groups): (Arc<ServerConfig>, ProcessGroups), wait: Duration) -> ConnectionAttempt {
    let ending = McpError::Connect { server: config.name.clone(), reason: "the host is shutting down".to_owned() };
    let connecting = tokio::spawn(async move {
        tokio::time::sleep(wait).await;
        let started = Instant::now();
        let connected = Connection::open(&config, &groups).await.map(Arc::new);
        connected.map_err(|error| FailedAttempt { error, at: Instant::now(), took: started.elapsed() })
    });
    let connecting = AbortOnDropHandle::new(connecting);
    let joined = async move {
        match connecting.await.map_err(tokio::task::JoinError::try_into_panic) {
            Ok(connected) => connected,
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            Err(Err(_)) => Err(FailedAttempt { error: ending, at: Instant::now(), took: Duration::ZERO }),
        }
    };
    joined.boxed().shared()
}

/// Closes a connection that is no longer needed. An attempt that is still running is aborted.
pub(crate) async fn close(attempt: ConnectionAttempt) {
    if let Some(Ok(connection)) = attempt.peek() {
        connection.close().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row 21: waits double up to the maximum, and a server that ran long enough starts again at the first wait.
    #[test]
    fn i5_backoff_doubles_up_to_a_minute() {
        let (mut state, now) = (State::default(), Instant::now());
        let mut waits = Vec::new();
        for _ in 0..9 {
            state.record_failure("it exited".to_owned(), FIRST_BACKOFF, (now, now));
            waits.push(state.not_before.as_ref().unwrap().0.duration_since(now).as_millis());
        }
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000]);
        let Some(long_ago) = now.checked_sub(MAX_BACKOFF) else { return };
        state.record_failure("it exited".to_owned(), FIRST_BACKOFF, (long_ago, now));
        assert_eq!(state.failures, 1);
    }
}
