//! A configured server. The host connects to the server when a user needs it, and disconnects when the server has no
//! users. After a failure, the host waits before it connects again.

use crate::catalogue::Listing;
use crate::child::ProcessGroups;
use crate::configuration::{KeepConnected, ServerConfig};
use crate::connection::{Connection, Unresponsive};
use crate::error::McpError;
use crate::result::McpToolResult;
use agent_core::plugin::TraceContext;
use agent_core::tool::ToolError;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use rmcp::model::JsonObject;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio_util::task::AbortOnDropHandle;

/// Minimum time to wait after the first failure. Each further consecutive failure doubles the wait. If the host needed
/// longer than this time to detect a failure, the wait after this failure is calculated from the longer time.
const FIRST_BACKOFF: Duration = Duration::from_millis(500);
/// Maximum time to wait after a failure. If a server ran for at least this time before it failed, its earlier failures
/// are no longer counted.
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// Maximum time that a caller waits for the next attempt to connect. If the host will not try again within
/// this time, the caller gets an error immediately.
const MAX_CALLER_WAIT: Duration = Duration::from_secs(1);

/// A configured server and its current connection, if there is one.
pub(crate) struct Server {
    config: Arc<ServerConfig>,
    groups: ProcessGroups,
    state: Mutex<State>,
}

/// An attempt to connect to a server. The attempt is still running, has succeeded, or has failed. All callers that need
/// the connection wait for the same attempt.
pub(crate) type ConnectionAttempt = Shared<BoxFuture<'static, Result<Arc<Connection>, FailedAttempt>>>;

/// A failed attempt to connect.
#[derive(Clone)]
pub(crate) struct FailedAttempt {
    error: McpError,
    /// Time at which the attempt failed.
    failed_at: Instant,
    /// Time from the start of the attempt to its failure.
    duration: Duration,
}

#[derive(Default)]
struct State {
    /// Current attempt to connect and the time at which this attempt started. `None` if the server is neither connected
    /// nor connecting.
    attempt: Option<(ConnectionAttempt, Instant)>,
    /// Number of users of the server. [`Server::add_user`] registers a user.
    users: usize,
    /// Number of consecutive failures.
    failures: u32,
    /// Earliest time of the next attempt to connect, and the reason for the last failure. `None` if the server has not
    /// failed yet.
    not_before: Option<(Instant, String)>,
}

impl Server {
    /// Creates the server without starting it. Processes that are started later are registered in `groups`.
    pub(crate) fn new(config: ServerConfig, groups: ProcessGroups) -> Self {
        Self { config: Arc::new(config), groups, state: Mutex::default() }
    }

    /// Registers a user of the server. The server stays connected as long as it has users, so each call to this method
    /// must be followed by a call to [`Self::remove_user`].
    pub(crate) fn add_user(&self) {
        self.state().users += 1;
    }

    /// Returns the current tools of the server. If there is no open connection, connects first.
    pub(crate) async fn listing(&self) -> Result<Arc<Listing>, McpError> {
        self.connection().await?.listing(&self.config).await
    }

    /// Removes a user that was registered with [`Self::add_user`]. If no user remains and the server is connected only
    /// during turns, returns the connection, which the caller must close.
    pub(crate) fn remove_user(&self) -> Option<ConnectionAttempt> {
        let mut state = self.state();
        state.users = state.users.saturating_sub(1);
        let is_unused = state.users == 0 && self.config.keep == KeepConnected::Turn;
        if is_unused { state.take_connection(&self.config) } else { None }
    }

    /// Removes and returns the connection so that the caller can close it. The connection is removed even if it still
    /// has users.
    pub(crate) fn take_connection(&self) -> Option<ConnectionAttempt> {
        self.state().take_connection(&self.config)
    }

    /// Calls a tool. If there is no connection to the server, or if the last connection was lost, connects first.
    pub(crate) async fn call(
        &self,
        tool: &str,
        arguments: JsonObject,
        trace: Option<&TraceContext>,
    ) -> Result<McpToolResult, ToolError> {
        let connection = self.connection().await.map_err(|error| {
            let retry_after = match &error {
                McpError::BackingOff { wait, .. } => u32::try_from(wait.as_millis()).ok(),
                _ => None,
            };
            ToolError::Unavailable { message: error.to_string(), retry_after }
        })?;
        let result = connection.call(&self.config, tool, (arguments, trace)).await;
        if connection.unresponsive().is_some() {
            // Drop only this reference to the connection. The connection closes when the last call that uses it drops
            // its reference.
            drop(self.state().take_if_failed(&self.config));
        }
        result
    }

    async fn connection(&self) -> Result<Arc<Connection>, McpError> {
        self.attempt()?.await.map_err(|failure| failure.error)
    }

    /// Returns the current attempt to connect if it is still running or if its connection is still open. Otherwise
    /// starts a new attempt.
    fn attempt(&self) -> Result<ConnectionAttempt, McpError> {
        let mut state = self.state();
        // If the last connection was lost, drop it, so that it is closed in the background.
        drop(state.take_if_failed(&self.config));
        if let Some((attempt, _)) = &state.attempt {
            return Ok(attempt.clone());
        }
        let now = Instant::now();
        let wait = state.not_before.as_ref().map_or(Duration::ZERO, |(time, _)| time.saturating_duration_since(now));
        if let (Some((_, reason)), true) = (&state.not_before, wait > MAX_CALLER_WAIT) {
            // Round the wait up to tenths of a second, because the message shows it to users.
            let wait = Duration::from_millis(u64::try_from(wait.as_millis().div_ceil(100) * 100).unwrap_or(u64::MAX));
            return Err(McpError::BackingOff { server: self.config.name.clone(), wait, reason: reason.clone() });
        }
        let attempt = start_attempt((self.config.clone(), self.groups.clone()), wait);
        state.attempt = Some((attempt.clone(), now));
        Ok(attempt)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// If the current attempt failed, or if the connection that it made was lost, records the failure, removes the
    /// attempt and returns it.
    fn take_if_failed(&mut self, config: &ServerConfig) -> Option<ConnectionAttempt> {
        let (attempt, since) = self.attempt.as_ref()?;
        let (reason, base, (since, at)) = match attempt.peek()? {
            Ok(connection) if connection.is_open() => return None,
            Ok(lost) => match lost.unresponsive() {
                Some(Unresponsive { found_at, call_time }) => {
                    (lost.closing_reason(&config.limits), call_time.max(FIRST_BACKOFF), (*since, found_at))
                }
                None => (lost.closing_reason(&config.limits), FIRST_BACKOFF, (*since, *since)),
            },
            Err(FailedAttempt { error, failed_at, duration }) => {
                (error.to_string(), (*duration).max(FIRST_BACKOFF), (*failed_at, *failed_at))
            }
        };
        self.record_failure(reason, base, (since, at));
        self.attempt.take().map(|(attempt, _)| attempt)
    }

    /// Records that the server failed at the time `at`, after it had been running since the time `since`. `base` is the
    /// time to wait if this is the first failure.
    fn record_failure(&mut self, reason: String, base: Duration, (since, at): (Instant, Instant)) {
        self.failures = if since.elapsed() >= MAX_BACKOFF { 1 } else { self.failures.saturating_add(1) };
        let wait = base.saturating_mul(2_u32.saturating_pow(self.failures - 1)).min(MAX_BACKOFF);
        self.not_before = Some((at + wait, reason));
    }

    fn take_connection(&mut self, config: &ServerConfig) -> Option<ConnectionAttempt> {
        self.take_if_failed(config).or_else(|| self.attempt.take().map(|(attempt, _)| attempt))
    }
}

/// Starts a separate task that first waits for the duration `wait` and then connects. Because no caller owns the task,
/// the attempt continues for the other callers if one caller is cancelled. The task is aborted when all callers have
/// dropped the attempt.
fn start_attempt((config, groups): (Arc<ServerConfig>, ProcessGroups), wait: Duration) -> ConnectionAttempt {
    let shutdown_error =
        McpError::Connect { server: config.name.clone(), reason: "the host is shutting down".to_owned() };
    let connecting = tokio::spawn(async move {
        tokio::time::sleep(wait).await;
        let started = Instant::now();
        let connected = Connection::open(&config, &groups).await.map(Arc::new);
        connected.map_err(|error| FailedAttempt { error, failed_at: Instant::now(), duration: started.elapsed() })
    });
    let connecting = AbortOnDropHandle::new(connecting);
    let joined = async move {
        match connecting.await.map_err(tokio::task::JoinError::try_into_panic) {
            Ok(connected) => connected,
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            Err(Err(_)) => {
                Err(FailedAttempt { error: shutdown_error, failed_at: Instant::now(), duration: Duration::ZERO })
            }
        }
    };
    joined.boxed().shared()
}

/// Closes the connection of an attempt that is no longer needed. An attempt that is still running has no connection
/// yet: dropping it aborts the attempt, unless other callers wait for the same attempt.
pub(crate) async fn close(attempt: ConnectionAttempt) {
    if let Some(Ok(connection)) = attempt.peek() {
        connection.close().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row 21: after each consecutive failure, the wait doubles until it reaches the maximum. After a server has run
    /// long enough, the wait before the next attempt to connect is the shortest wait again.
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
