//! Lasting approvals (L17): a grant applies to every session of an agent until somebody revokes it.

use crate::StoreError;
use agent_core::approval::LastingGrant;
use agent_core::message::Digest;
use async_trait::async_trait;
use serde::Serialize;

/// Stores lasting approvals and the identities that approval rules are bound to.
#[async_trait]
pub trait Approvals: Send + Sync {
    /// Stores a grant. Storing the same grant again changes nothing, not even its time.
    async fn allow(&self, grant: LastingGrant) -> Result<(), StoreError>;

    /// Returns the agent's grants, newest first, at most [`crate::MAX_PAGE`].
    async fn allowed(&self, agent: &str) -> Result<Vec<StoredGrant>, StoreError>;

    /// Revokes a grant and writes an audit entry. Returns whether the grant existed.
    async fn revoke(&self, id: &str) -> Result<bool, StoreError>;

    /// Binds a rule that allows a tool by name to the identity of the component that offers the tool. Returns the identity that
    /// the rule is bound to: the first identity that was bound stays (row 52).
    async fn bind_rule(&self, rule: NamedRule, identity: Digest) -> Result<Digest, StoreError>;
}

/// A configuration rule that allows a tool by its exact name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedRule {
    /// Name of the agent and path of its file.
    pub agent: String,
    /// Full name of the tool.
    pub tool: String,
}

/// A stored grant with its id and the time it was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoredGrant {
    /// Id of the grant. Granting the same thing again after a revocation gives the same id.
    pub id: String,
    /// The grant itself; its fields are serialised next to `id`.
    #[serde(flatten)]
    pub grant: LastingGrant,
    /// Time at which the grant was given, as RFC 3339 in UTC.
    pub given: String,
}
