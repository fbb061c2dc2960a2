//! How a call ends that brought no answer: a trap, a limit, a broken contract, a full queue, or the host's own failure.
//! A guest's typed error is none of these: it is an answer.

use crate::admission::QueueFull;
use crate::identity::{Kind, PluginIdentity};
use crate::limits::{Limit, REASON_BYTES};
use crate::record::CallRecord;
use crate::state::TreeProblem;
use crate::text::clean;
use agent_core::tool::ToolError;
use std::sync::Arc;
use wasmtime::Trap;
use wasmtime::component::ResourceTableError;

/// A call without an answer.
#[derive(Debug, thiserror::Error)]
pub enum CallFailure {
    /// The guest trapped or left.
    #[error("{plugin} crashed: {message}")]
    Trap {
        /// Who.
        plugin: Arc<PluginIdentity>,
        /// The trap, and the guest's last words on standard error.
        message: String,
    },
    /// A limit stopped the guest.
    #[error("{plugin} was stopped at its limit: {limit}")]
    Limit {
        /// Who.
        plugin: Arc<PluginIdentity>,
        /// Which limit, with its value.
        limit: Limit,
    },
    /// The guest answered in a way that the contract does not allow.
    #[error("{plugin} broke the contract: {reason}")]
    InvalidResult {
        /// Who.
        plugin: Arc<PluginIdentity>,
        /// What is wrong.
        reason: String,
    },
    /// Too many calls are waiting already.
    #[error("{plugin} was not called, at the limit of {full}; try again later")]
    Busy {
        /// Who.
        plugin: Arc<PluginIdentity>,
        /// Which queue, with its bound.
        full: QueueFull,
    },
    /// A granted directory is not there.
    #[error("{plugin} was not called: {problem}; correct `{}` under [plugins.{}.grants], or make the directory",
        problem.line, plugin.name)]
    Grant {
        /// Who.
        plugin: Arc<PluginIdentity>,
        /// Which directory.
        problem: TreeProblem,
    },
    /// The component does not export this kind.
    #[error("{plugin} exports no {kind}")]
    NotExported {
        /// Who.
        plugin: Arc<PluginIdentity>,
        /// What was called.
        kind: Kind,
    },
    /// The component has no such tool.
    #[error("{plugin} has no tool {name:?}; it has {available}")]
    NoSuchTool {
        /// Who.
        plugin: Arc<PluginIdentity>,
        /// What was called.
        name: String,
        /// Its tools.
        available: String,
    },
    /// The host's own part failed.
    #[error("{plugin} was let down by the host: {reason}")]
    Host {
        /// Who.
        plugin: Arc<PluginIdentity>,
        /// What failed.
        reason: String,
    },
}

impl CallFailure {
    /// As the model gets it for the result of a tool call.
    pub fn for_model(&self) -> ToolError {
        let message = self.to_string();
        match self {
            CallFailure::Busy { .. } => ToolError::Unavailable { message, retry_after: None },
            _ => ToolError::Failed { message },
        }
    }
}

/// Why a guest's answer is not passed on.
#[derive(Debug)]
pub(crate) enum Refusal {
    Invalid(String),
    Limit(Limit),
    Host(String),
}

/// Why a guest's run ended early.
#[derive(Debug)]
pub(crate) enum Stop {
    Guest(wasmtime::Error),
    Refused(Refusal),
}

impl From<wasmtime::Error> for Stop {
    fn from(error: wasmtime::Error) -> Self {
        Stop::Guest(error)
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Stop::Refused(refusal)
    }
}

impl Stop {
    /// The failure that is reported. A limit that was hit explains the trap that followed.
    pub(crate) fn into_failure(self, record: &CallRecord, (lifted, wasm_stack): (usize, usize)) -> CallFailure {
        let plugin = Arc::clone(&record.plugin);
        match self {
            Stop::Refused(Refusal::Invalid(reason)) => {
                CallFailure::InvalidResult { plugin, reason: clean(&reason, REASON_BYTES) }
            }
            Stop::Refused(Refusal::Limit(limit)) => CallFailure::Limit { plugin, limit },
            Stop::Refused(Refusal::Host(reason)) => CallFailure::Host { plugin, reason },
            Stop::Guest(error) => {
                let own = || limit_of(&error, record, (lifted, wasm_stack));
                match record.limit().or_else(own).or_else(|| record.met()) {
                    Some(limit) => CallFailure::Limit { plugin, limit },
                    None => CallFailure::Trap { plugin, message: trap_message(&error, record) },
                }
            }
        }
    }
}

/// Limits that wasmtime keeps itself. Some of its errors have no public type, so their text decides.
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
    known.into_iter().find(|(words, _)| text.contains(words)).map(|(_, limit)| limit)
}

fn trap_message(error: &wasmtime::Error, record: &CallRecord) -> String {
    let cause = match error.downcast_ref::<wasmtime_wasi::I32Exit>() {
        Some(exit) => format!("it left with exit code {}", exit.0),
        None => clean(&error.root_cause().to_string(), record.limits.error),
    };
    match record.last_words() {
        words if words.is_empty() => cause,
        words => format!("{cause}; its last words: {words}"),
    }
}
