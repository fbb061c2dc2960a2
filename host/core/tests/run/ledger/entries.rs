//! The records that the ledger keeps of stored messages and calls.

use agent_core::change::{Body, CallRecord};
use agent_core::message::{CallId, Digest, Role};
use agent_core::run::Disposition;

/// A stored message. The seen count is increased after each model call that sends the message.
pub(crate) struct Stored {
    pub(crate) turn: u32,
    pub(crate) role: Role,
    pub(crate) body: Body,
    pub(crate) seen: u32,
    pub(crate) hidden: bool,
}

/// A stored call, and what the ledger has observed of the call.
pub(crate) struct Call {
    pub(crate) record: CallRecord,
    pub(crate) disposition: Disposition,
    pub(crate) dispatches: u32,
    /// Whether the call has run and its service request waits for approval.
    pub(crate) awaits_request_approval: bool,
    /// Whether a user has approved the call.
    pub(crate) granted: bool,
    /// Identity of the tool for which approval is requested now.
    pub(super) approval_identity: Option<Digest>,
    /// Whether a user has decided that the call may run again.
    pub(super) retry: bool,
    /// Number of results that the call has received.
    pub(super) results: u32,
}

impl Call {
    pub(super) fn is_sequential(&self) -> bool {
        matches!(self.disposition, Disposition::Ready { sequential: true, .. })
    }

    /// Counts a dispatch of the call, and checks that the call may be dispatched now (D3).
    pub(super) fn dispatched(&mut self, id: &CallId) {
        self.dispatches += 1;
        let allowed = self.dispatches == 1 || self.is_repeatable() || std::mem::take(&mut self.retry);
        assert!(allowed, "{id} was dispatched again without asking the user (D3)");
    }

    pub(super) fn is_repeatable(&self) -> bool {
        matches!(self.disposition, Disposition::Ready { repeatable: true, .. })
    }
}
