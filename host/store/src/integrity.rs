//! Checks of the stored bytes themselves.

use crate::StoreError;
use async_trait::async_trait;

/// Checks whether the storage is damaged, for example by a faulty disk.
#[async_trait]
pub trait Integrity: Send + Sync {
    /// Reads all of the storage and compares it with its own checks. Returns [`StoreError::Damaged`] with what was
    /// found. This takes time linear in the size of the storage.
    async fn integrity_check(&self) -> Result<(), StoreError>;
}
