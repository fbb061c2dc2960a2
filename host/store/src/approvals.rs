//! What somebody has allowed for good (L17): beyond the session in which they were asked, until it is revoked.

use crate::StoreError;
use agent_core::approval::LastingGrant;
use agent_core::message::Digest;
use async_trait::async_trait;
use serde::Serialize;

/// Lasting approvals.
#[async_trait]
pub trait Approvals: Send + Sync {
    /// Remembers a grant. The same grant again changes nothing, its time included.
    async fn allow(&self, grant: LastingGrant) -> Result<(), StoreError>;

    /// The agent's grants, the latest first. There are as many as people have given, at most [`crate::MAX_PAGE`].
    async fn allowed(&self, agent: &str) -> Result<Vec<StoredGrant>, StoreError>;

    /// Takes a grant back, which is an entry of the audit log; says whether it was there.
    async fn revoke(&self, id: &str) -> Result<bool, StoreError>;

    /// Binds a rule that names a tool to the identity of who offers it, and returns the identity that the rule is bound
    /// to: the first one stays (row 52).
    async fn bind_rule(&self, rule: NamedRule, identity: Digest) -> Result<Digest, StoreError>;
}

/// A rule of a configuration that allows a tool by its exact name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedRule {
    /// The agent, with the place of its file.
    pub agent: String,
    /// The tool's name.
    pub tool: String,
}

/// A grant with its name and time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoredGrant {
    /// Identifies it: the same grant has the same id, also after it was revoked and given again.
    pub id: String,
    /// Itself.
    #[serde(flatten)]
    pub grant: LastingGrant,
    /// When it was given; RFC 3339 in UTC.
    pub given: String,
}
