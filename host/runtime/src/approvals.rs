//! Approvals (L17): decides which calls need one, and whether an approval is still valid when a call runs. People's
//! answers arrive through the module `waiting`.

mod announcements;
mod context;
mod details;
mod dispatch_check;
mod scope;
mod service_requests;

pub use announcements::{APPROVAL_REQUESTED, APPROVAL_RESOLVED};
pub(crate) use announcements::{announce_approvals, approval_request_number};
pub(crate) use context::{ApprovalContext, HeldRequests};
pub(crate) use details::{add_edit_note, add_event_details, add_item_details, without_edit_note};
pub(crate) use dispatch_check::BlockedDispatch;
pub(crate) use service_requests::{JudgedRequest, unreadable_request};

use crate::agent::OutboxConfig;
use crate::outbox::{self, OutboxError};
use agent_core::approval::{GrantScope, canonical_json};
use agent_core::message::{CallId, Digest};
use agent_core::tool::Violation;
use agent_store::{Store, StoreError, digest_of};
use serde_json::Value;

/// Maximum number of characters of a reason that are passed to the model.
pub(crate) const REASON_CHARACTERS: usize = 2_000;

/// A person's decision about one call that waits for an approval.
#[derive(Clone, Debug, PartialEq)]
pub struct ApprovalDecision {
    /// The call that waits.
    pub call: CallId,
    /// Whether the call may run.
    pub verdict: Verdict,
}

/// Whether a call may run.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The call runs.
    Allow {
        /// How long the approval is remembered for similar calls.
        scope: GrantScope,
        /// Arguments to use instead of the model's. A remembered approval is then valid only for these arguments.
        edited: Option<Value>,
    },
    /// The call does not run.
    Deny {
        /// Reason that the model is told.
        reason: Option<String>,
    },
}

/// The reason why a decision was rejected. None of the decisions that were made together with it has been stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApprovalError {
    /// The changed arguments violate the tool's schema (L8).
    #[error("the changed arguments of {call} do not satisfy the schema of `{tool}`: {}", list_violations(violations))]
    Arguments {
        /// The call that waits.
        call: CallId,
        /// Name of the call's tool.
        tool: String,
        /// All violations of the schema.
        violations: Vec<Violation>,
    },
    /// The configuration forbids the tool.
    #[error("{call} cannot be allowed: `{because}` denies `{tool}`; deny the call, or change the configuration")]
    Forbidden {
        /// The call that waits.
        call: CallId,
        /// Name of the call's tool.
        tool: String,
        /// Configuration key of the rule that denies the tool.
        because: String,
    },
    /// The data of a plugin's service request cannot be changed.
    #[error(
        "the request of {call} to the service `{tool}` can be allowed or denied, but not changed: the plugin that made \
         it has already run"
    )]
    RequestEdited {
        /// The call that waits.
        call: CallId,
        /// Name of the service's tool.
        tool: String,
    },
    /// The tool no longer exists.
    #[error(
        "{call} cannot be allowed: the agent no longer has the tool `{tool}`; deny the call, or add the tool again"
    )]
    Gone {
        /// The call that waits.
        call: CallId,
        /// Name of the call's tool.
        tool: String,
    },
}

fn list_violations(violations: &[Violation]) -> String {
    let lines = violations.iter().map(|violation| match violation.pointer.as_str() {
        "" => violation.message.clone(),
        pointer => format!("{pointer}: {}", violation.message),
    });
    lines.collect::<Vec<_>>().join("; ")
}

/// Digest of arguments. It does not depend on the order of their keys.
pub fn digest_of_arguments(arguments: &Value) -> Digest {
    digest_of(canonical_json(arguments).as_bytes())
}

/// Stores the permanent approvals that commits have put in the outbox, including those of a process that crashed before
/// it could.
pub async fn remember_grants(store: &dyn Store, session: Option<&str>) -> Result<(), StoreError> {
    // Without a folder no event is written, so only the store can fail.
    match outbox::deliver(store, &OutboxConfig::default(), session, &|_| {}).await {
        Ok(()) | Err(OutboxError::File { .. }) => Ok(()),
        Err(OutboxError::Store(error)) => Err(error),
    }
}

/// Revokes a permanent approval and returns whether it existed. Pending outbox items are delivered first, so that they
/// cannot restore it later.
pub async fn revoke(store: &dyn Store, id: &str) -> Result<bool, StoreError> {
    remember_grants(store, None).await?;
    store.revoke(id).await
}
