//! The reasons why a call can end without a result: for example a trap, a limit, a violation of the plugin
//! contract, a full queue, or a failure of the host. An error that the guest's function returns counts as a
//! result and not as a failure.

use super::admission::QueueFull;
use crate::contract::RejectedResult;
use crate::file_trees::TreeProblem;
use crate::identity::{Kind, PluginIdentity};
use crate::limits::{Limit, REASON_BYTES};
use crate::recording::CallRecord;
use crate::text::clean;
use agent_core::tool::ToolError;
use std::sync::Arc;
use wasmtime::Trap;
use wasmtime::component::ResourceTableError;

/// The reason why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum CallFailure {
    /// The guest trapped or exited.
    #[error("{plugin} crashed: {message}")]
    Trap {
        /// The plugin that was called.
        plugin: Arc<PluginIdentity>,
        /// Describes the trap or the exit code, and quotes the end of the guest's output on standard error.
        message: String,
    },
    /// A limit stopped the guest.
    #[error("{plugin} was stopped at its limit: {limit}")]
    Limit {
        /// The plugin that was called.
        plugin: Arc<PluginIdentity>,
        /// The limit that was reached, with its value.
        limit: Limit,
    },
    /// The guest's result violates the contract.
    #[error("{plugin} broke the contract: {reason}")]
    InvalidResult {
        /// The plugin that was called.
        plugin: Arc<PluginIdentity>,
        /// Explains how the result violates the contract.
        reason: String,
    },
    /// Too many calls are already waiting.
    #[error("{plugin} was not called: {full}; try again later")]
    Busy {
        /// The plugin that was called.
        plugin: Arc<PluginIdentity>,
        /// The limit that the queue has reached.
        full: QueueFull,
    },
    /// A granted directory cannot be opened.
    #[error("{plugin} was not called: {problem}; correct `{}` under [plugins.{}.grants], or create the directory",
        problem.line, plugin.name)]
    Grant {
        /// The plugin that was called.
        plugin: Arc<PluginIdentity>,
        /// The directory, and the reason why it cannot be opened.
        problem: TreeProblem,
    },
    /// The component does not export this plugin kind.
    #[error("{plugin} exports no {kind}")]
    NotExported {
        /// The plugin that was called.
        plugin: Arc<PluginIdentity>,
        /// The plugin kind that was called.
        kind: Kind,
    },
    /// The component has no tool with the name in the call.
    #[error("{plugin} has no tool {name:?}; it has {available}")]
    NoSuchTool {
        /// The plugin that was called.
        plugin: Arc<PluginIdentity>,
        /// The tool name in the call, which the component does not define.
        name: String,
        /// The names of the component's tools, which the message lists.
        available: String,
    },
    /// The call failed because of an error in the host, not in the plugin.
    #[error("{plugin} could not be called because of an error in the host: {reason}")]
    Host {
        /// The plugin that was called.
        plugin: Arc<PluginIdentity>,
        /// Describes what failed in the host.
        reason: String,
    },
}

impl CallFailure {
    /// Converts the failure to the error that the model receives as the result of its tool call.
    pub fn for_model(&self) -> ToolError {
        let message = self.to_string();
        match self {
            CallFailure::Busy { .. } => ToolError::Unavailable { message, retry_after: None },
            _ => ToolError::Failed { message },
        }
    }
}

/// The reason why a guest was stopped, or why its result was rejected.
#[derive(Debug)]
pub(crate) enum Stop {
    Guest(wasmtime::Error),
    Refused(RejectedResult),
}

impl From<wasmtime::Error> for Stop {
    fn from(error: wasmtime::Error) -> Self {
        Stop::Guest(error)
    }
}

impl From<RejectedResult> for Stop {
    fn from(refusal: RejectedResult) -> Self {
        Stop::Refused(refusal)
    }
}

impl From<Limit> for Stop {
    fn from(limit: Limit) -> Self {
        Stop::Refused(RejectedResult::Limit(limit))
    }
}

impl Stop {
    /// Converts the reason to a failure of the call. If a limit was reached before the guest trapped, the failure names
    /// the limit, because the limit explains the trap.
    pub(crate) fn into_failure(self, record: &CallRecord, (lifted, wasm_stack): (usize, usize)) -> CallFailure {
        let plugin = Arc::clone(&record.plugin);
        match self {
            Stop::Refused(RejectedResult::Invalid(reason)) => {
                CallFailure::InvalidResult { plugin, reason: clean(&reason, REASON_BYTES) }
            }
            Stop::Refused(RejectedResult::Limit(limit)) => CallFailure::Limit { plugin, limit },
            Stop::Refused(RejectedResult::Host(reason)) => CallFailure::Host { plugin, reason },
            Stop::Guest(error) => {
                let engine_limit = || limit_of(&error, record, (lifted, wasm_stack));
                match record.limit().or_else(engine_limit).or_else(|| record.reported_limit()) {
                    Some(limit) => CallFailure::Limit { plugin, limit },
                    None => CallFailure::Trap { plugin, message: trap_message(&error, record) },
                }
            }
        }
    }
}

/// Recognises the errors that wasmtime returns when a guest reaches a limit that wasmtime enforces itself. Some of
/// these errors have no public type, so they are recognised by their text.
fn limit_of(error: &wasmtime::Error, record: &CallRecord, (lifted, wasm_stack): (usize, usize)) -> Option<Limit> {
    let limits = &record.limits;
    if error.downcast_ref::<Trap>() == Some(&Trap::StackOverflow) {
        return Some(Limit::Stack(wasm_stack));
    }
    if error.downcast_ref::<Trap>() == Some(&Trap::OutOfFuel) {
        return limits.fuel.map(Limit::Fuel);
    }
    if matches!(error.downcast_ref::<ResourceTableError>(), Some(ResourceTableError::Full)) {
        return Some(Limit::Handles(limits.handles));
    }
    let text = error.root_cause().to_string();
    let known = [
        ("fuel allocated for hostcalls", Limit::LiftedBytes(lifted)),
        ("store handle limit exceeded", Limit::Handles(limits.handles)),
        ("resource table has no free keys", Limit::Handles(limits.handles)),
        ("total size of fields exceeds limit", Limit::Headers(limits.headers)),
        ("resource limit exceeded: instance", Limit::Instances(limits.core_instances)),
        ("resource limit exceeded: table", Limit::Tables(limits.tables)),
        ("resource limit exceeded: memory", Limit::Memories(limits.memories)),
    ];
    known.into_iter().find(|(fragment, _)| text.contains(fragment)).map(|(_, limit)| limit)
}

fn trap_message(error: &wasmtime::Error, record: &CallRecord) -> String {
    let cause = match error.downcast_ref::<wasmtime_wasi::I32Exit>() {
        Some(exit) => format!("it exited with code {}", exit.0),
        None => clean(&error.root_cause().to_string(), record.limits.error),
    };
    match record.last_stderr_lines() {
        output if output.is_empty() => cause,
        output => format!("{cause}; its last output on standard error: {output}"),
    }
}
