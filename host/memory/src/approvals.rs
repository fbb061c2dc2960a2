//! What somebody has allowed for good (L17): beyond the session in which they were asked, until it is revoked.

use crate::StoreError;
use agent_core::approval::LastingGrant;
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
