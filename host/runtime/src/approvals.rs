//! Approvals (L17): decides which tool calls need an approval, and whether an approval is still valid when the approved
//! call runs. The decisions of users are received in the module `waiting`.

mod announcements;
mod context;
mod details;
mod dispatch_check;
mod scope;
mod service_requests;

pub use crate::requests::{ApprovalDecision, Verdict};
pub use announcements::{APPROVAL_REQUESTED, APPROVAL_RESOLVED};
pub(crate) use announcements::{announce_approvals, approval_request_number};
pub(crate) use context::{ApprovalContext, HeldRequests};
pub(crate) use details::{add_edit_note, add_event_details, add_item_details, without_edit_note};
pub(crate) use dispatch_check::BlockedDispatch;
pub(crate) use service_requests::{JudgedRequest, unreadable_request};

use crate::agent::OutboxConfig;
use crate::outbox::{self, OutboxError, Receivers};
use agent_core::approval::canonical_json;
use agent_core::message::{CallId, Digest};
use agent_core::tool::Violation;
use agent_store::{Store, StoreError, digest_of};
use serde_json::Value;

/// Maximum number of characters of the reason for a denial. A longer reason is truncated before it is shown
/// to the model.
pub(crate) const REASON_CHARACTERS: usize = 2_000;

/// The reason why a decision was rejected. If a user sends several decisions together and one of them is rejected, none
/// of these decisions is stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApprovalError {
    /// The changed arguments violate the tool's schema (L8).
    #[error("the changed arguments of {call} do not satisfy the schema of `{tool}`: {}", list_violations(violations))]
    Arguments {
        /// Id of the call that waits for the decision.
        call: CallId,
        /// Name of the tool that the call would run.
        tool: String,
        /// All violations of the tool's schema by the changed arguments.
        violations: Vec<Violation>,
    },
    /// A rule in the agent's configuration denies the tool.
    #[error("{call} cannot be allowed: `{because}` denies `{tool}`; deny the call, or change the configuration")]
    Forbidden {
        /// Id of the call that waits for the decision.
        call: CallId,
        /// Name of the tool that the call would run.
        tool: String,
        /// Configuration key of the rule that denies the tool.
        because: String,
    },
    /// The decision changes the data of a plugin's service request. Users can allow or deny a plugin's service request,
    /// but cannot change its data.
    #[error(
        "the request of {call} to the service `{tool}` can be allowed or denied, but not changed: the plugin that made \
         the request has already run"
    )]
    RequestEdited {
        /// Id of the call that waits for the decision.
        call: CallId,
        /// Name of the service's tool.
        tool: String,
    },
    /// The agent no longer has the tool that the call would run.
    #[error(
        "{call} cannot be allowed: the agent no longer has the tool `{tool}`; deny the call, or add the tool again"
    )]
    Gone {
        /// Id of the call that waits for the decision.
        call: CallId,
        /// Name of the tool that the call would run.
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

/// Returns the digest of a call's arguments. Arguments whose JSON objects differ only in the order of their keys have
/// the same digest.
pub fn digest_of_arguments(arguments: &Value) -> Digest {
    digest_of(canonical_json(arguments).as_bytes())
}

/// Stores the permanent approvals that earlier commits put in the outbox. Some of these approvals may have been put in
/// the outbox by a process that crashed before it could store them.
pub async fn remember_grants(store: &dyn Store, session: Option<&str>) -> Result<(), StoreError> {
    // The default outbox configuration has no receiver of events, so the delivery can fail only in the store.
    match outbox::deliver(store, (&OutboxConfig::default(), Receivers::Folder), session, &|_| {}).await {
        Ok(())
        | Err(OutboxError::File { .. } | OutboxError::Server(_) | OutboxError::Nats(_) | OutboxError::NoNats(_)) => {
            Ok(())
        }
        Err(OutboxError::Store(error)) => Err(error),
    }
}

/// Revokes a permanent approval and returns whether the approval existed. Approvals that still wait in the outbox are
/// stored before the revocation, so that none of them can restore the approval afterwards.
pub async fn revoke(store: &dyn Store, id: &str) -> Result<bool, StoreError> {
    remember_grants(store, None).await?;
    store.revoke(id).await
}
