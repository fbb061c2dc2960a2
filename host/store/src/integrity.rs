//! Checks whether the stored bytes are intact.

use crate::StoreError;
use async_trait::async_trait;

/// Checks whether the storage is damaged, for example by a faulty disk.
#[async_trait]
pub trait Integrity: Send + Sync {
    /// Reads the whole storage and checks its integrity. If the storage is damaged, returns [`StoreError::Damaged`]
    /// with a description of the damage. The duration of the check grows with the size of the storage.
    async fn integrity_check(&self) -> Result<(), StoreError>;
}
