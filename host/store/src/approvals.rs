//! Lasting approvals (L17): a grant applies to every session of an agent until somebody revokes it.

use crate::StoreError;
use agent_core::approval::LastingGrant;
use agent_core::message::Digest;
use async_trait::async_trait;
use serde::Serialize;

/// Stores lasting approvals and the identities that approval rules are bound to.
#[async_trait]
pub trait Approvals: Send + Sync {
    /// Stores a grant. If an identical grant is already stored, nothing changes, and the time of the
    /// stored grant is kept.
    async fn allow(&self, grant: LastingGrant) -> Result<(), StoreError>;

    /// Returns up to [`crate::MAX_PAGE`] grants of the agent, newest first.
    async fn allowed(&self, agent: &str) -> Result<Vec<StoredGrant>, StoreError>;

    /// Returns the names of all agents that have a grant, in alphabetical order.
    async fn agents_with_grants(&self) -> Result<Vec<String>, StoreError>;

    /// Revokes the grant with this id and adds an entry to the audit log. Returns whether a grant with this id existed.
    async fn revoke(&self, id: &str) -> Result<bool, StoreError>;

    /// Binds a rule to the identity of the component that offers the rule's tool. If the rule is already bound, the
    /// existing binding is kept. Returns the identity to which the rule is bound (row 52).
    async fn bind_rule(&self, rule: NamedRule, identity: Digest) -> Result<Digest, StoreError>;
}

/// A configuration rule that allows a tool by its exact name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedRule {
    /// Name of the agent. If the agent has a configuration file, the name is followed by a space and the file's path.
    pub agent: String,
    /// Full name of the tool.
    pub tool: String,
}

/// A stored grant with its id and the time at which it was stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoredGrant {
    /// Id of the grant. If a revoked grant is stored again, it gets the id that it had before.
    pub id: String,
    /// The grant, as passed to [`Approvals::allow`]. The fields of the grant are serialised next to `id`.
    #[serde(flatten)]
    pub grant: LastingGrant,
    /// Time at which the grant was stored, as RFC 3339 in UTC.
    pub given: String,
}
