//! What plugins keep between calls: values by agent, plugin, bucket and key (P5, `wasi:keyvalue`).

use crate::StoreError;
use async_trait::async_trait;

/// Most bytes of one value.
pub const MAX_VALUE_BYTES: usize = 1 << 20;

/// Most bytes of one key, and of each name in a bucket.
pub const MAX_KEY_BYTES: usize = 1024;

/// What each entry counts beside its key and its value.
pub const ENTRY_BYTES: u64 = 256;

/// Most entries of one plugin, whatever its quota.
pub const MAX_ENTRIES: u64 = 100_000;

/// Values by key. Each call is atomic; keys are not empty.
#[async_trait]
pub trait KeyValue: Send + Sync {
    /// The value.
    async fn get(&self, bucket: &Bucket, key: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// Makes or replaces the value, of at most [`MAX_VALUE_BYTES`].
    async fn set(&self, bucket: &Bucket, key: &str, value: Vec<u8>) -> Result<(), StoreError>;

    /// Removes the value where it is there.
    async fn delete_key(&self, bucket: &Bucket, key: &str) -> Result<(), StoreError>;

    /// Whether there is a value.
    async fn exists(&self, bucket: &Bucket, key: &str) -> Result<bool, StoreError>;

    /// Keys behind `after` (empty: from the first), in the order of their bytes, at most `limit`.
    async fn keys(&self, bucket: &Bucket, after: &str, limit: usize) -> Result<Vec<String>, StoreError>;

    /// Adds to a number, stored as decimal digits; a missing one is 0. Returns the sum. Another value or an overflow is
    /// [`StoreError::Invalid`].
    async fn increment(&self, bucket: &Bucket, key: &str, delta: i64) -> Result<i64, StoreError>;

    /// Sets the value where the stored one is `expected` (none: where there is none).
    async fn compare_and_swap(
        &self,
        bucket: &Bucket,
        key: &str,
        expected: Option<Vec<u8>>,
        value: Vec<u8>,
    ) -> Result<Swap, StoreError>;
}

/// A name space of one plugin of one agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bucket {
    /// The agent's configured name.
    pub agent: String,
    /// The plugin's name.
    pub plugin: String,
    /// The plugin's own name for it.
    pub name: String,
    /// Bytes that the plugin may keep in all its buckets together: keys, values, and [`ENTRY_BYTES`] for each entry. A
    /// write that would pass them is [`StoreError::TooLarge`]; one that would pass [`MAX_ENTRIES`] is [`StoreError::Invalid`].
    pub quota: u64,
}

/// How a compare-and-swap came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swap {
    /// The value is set.
    Done,
    /// Another stands there, and stays.
    Other(Option<Vec<u8>>),
}
