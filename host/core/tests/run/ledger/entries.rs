//! What the ledger holds.

use agent_core::change::{Body, CallRecord};
use agent_core::message::{CallId, Digest, Role};
use agent_core::run::Disposition;

/// A stored message with the seen count that was counted call by call.
pub(crate) struct Stored {
    pub(crate) turn: u32,
    pub(crate) role: Role,
    pub(crate) body: Body,
    pub(crate) seen: u32,
    pub(crate) hidden: bool,
}

/// A stored call with what its disposition said.
pub(crate) struct Call {
    pub(crate) record: CallRecord,
    pub(crate) disposition: Disposition,
    pub(crate) dispatches: u32,
    /// It has run, and what it asks for was held until somebody allowed it.
    pub(crate) held: bool,
    /// Somebody has allowed it.
    pub(crate) granted: bool,
    /// Digest of the tool that somebody is asked about.
    pub(super) asked_about: Option<Digest>,
    /// Somebody has decided that it may run once more.
    pub(super) retry: bool,
    pub(super) results: u32,
}

impl Call {
    pub(super) fn is_sequential(&self) -> bool {
        matches!(self.disposition, Disposition::Ready { sequential: true, .. })
    }

    /// One more dispatch, which must be allowed (D3).
    pub(super) fn dispatched(&mut self, id: &CallId) {
        self.dispatches += 1;
        let allowed = self.dispatches == 1 || self.is_repeatable() || std::mem::take(&mut self.retry);
        assert!(allowed, "{id} was dispatched again unasked (D3)");
    }

    pub(super) fn is_repeatable(&self) -> bool {
        matches!(self.disposition, Disposition::Ready { repeatable: true, .. })
    }
}
