//! Tells the embedder about each call that has ended, for example to count calls (O2).

use super::failure::CallFailure;
use crate::identity::{Kind, PluginIdentity};
use crate::limits::Limit;
use agent_core::tool::CallCost;
use std::fmt;
use std::sync::Arc;

/// A call that has ended.
#[derive(Clone, Copy, Debug)]
pub struct CallObservation<'a> {
    /// The plugin that was called.
    pub plugin: &'a PluginIdentity,
    /// Name of the agent. It is empty if the host called the plugin to read its definitions.
    pub agent: &'a str,
    /// The kind of the call.
    pub kind: Kind,
    /// How the call ended.
    pub ending: CallEnding,
    /// What the call used.
    pub cost: CallCost,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEnding {
    /// The guest returned a result or an error.
    Returned,
    /// The guest trapped or exited.
    Trapped,
    /// A limit stopped the guest.
    Stopped(Limit),
    /// The guest's result violates the contract.
    InvalidResult,
    /// The call did not begin, because too many calls were waiting.
    Busy,
    /// The call did not begin or end because of the host or its configuration.
    Failed,
}

impl CallEnding {
    pub(crate) fn of<T>(result: &Result<T, CallFailure>) -> Self {
        match result {
            Ok(_) => Self::Returned,
            Err(CallFailure::Trap { .. }) => Self::Trapped,
            Err(CallFailure::Limit { limit, .. }) => Self::Stopped(*limit),
            Err(CallFailure::InvalidResult { .. }) => Self::InvalidResult,
            Err(CallFailure::Busy { .. }) => Self::Busy,
            Err(
                CallFailure::Grant { .. }
                | CallFailure::NotExported { .. }
                | CallFailure::NoSuchTool { .. }
                | CallFailure::Host { .. },
            ) => Self::Failed,
        }
    }

    /// Returns the name of the ending in metrics: `returned`, `trap`, `limit`, `invalid_result`, `busy` or `failed`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Returned => "returned",
            Self::Trapped => "trap",
            Self::Stopped(_) => "limit",
            Self::InvalidResult => "invalid_result",
            Self::Busy => "busy",
            Self::Failed => "failed",
        }
    }
}

/// A function that is called after each call. It must return immediately, because the call waits for it.
#[derive(Clone)]
pub struct CallObserver(Arc<dyn Fn(&CallObservation<'_>) + Send + Sync>);

impl CallObserver {
    /// Creates an observer that calls this function.
    pub fn new(observe: impl Fn(&CallObservation<'_>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(observe))
    }

    pub(crate) fn observe(&self, observation: &CallObservation<'_>) {
        (self.0)(observation);
    }
}

impl fmt::Debug for CallObserver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("CallObserver")
    }
}

/// The calls of a sandbox that run or wait at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SandboxLoad {
    /// Number of running calls.
    pub running: usize,
    /// Number of calls that wait in the queue.
    pub waiting: usize,
    /// Guest memory that is reserved for the running calls, in bytes.
    pub memory: usize,
}
