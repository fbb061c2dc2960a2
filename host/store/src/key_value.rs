//! Key-value storage for plugins: values by agent, plugin, bucket and key (P5, `wasi:keyvalue`).

use crate::StoreError;
use async_trait::async_trait;

/// Maximum size of a value, in bytes.
pub const MAX_VALUE_BYTES: usize = 1 << 20;

/// Maximum size of a key, and of each name in a [`Bucket`], in bytes.
pub const MAX_KEY_BYTES: usize = 1024;

/// Bytes that each entry adds to a plugin's usage, in addition to its key and value.
pub const ENTRY_BYTES: u64 = 256;

/// Maximum number of entries of one plugin, whatever its quota.
pub const MAX_ENTRIES: u64 = 100_000;

/// Stores values by key. Each call is atomic. A key must not be empty.
#[async_trait]
pub trait KeyValue: Send + Sync {
    /// Returns the value, or `None` if there is none.
    async fn get(&self, bucket: &Bucket, key: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// Stores a value of at most [`MAX_VALUE_BYTES`], replacing an existing one.
    async fn set(&self, bucket: &Bucket, key: &str, value: Vec<u8>) -> Result<(), StoreError>;

    /// Removes the value, if there is one.
    async fn delete_key(&self, bucket: &Bucket, key: &str) -> Result<(), StoreError>;

    /// Returns whether there is a value.
    async fn exists(&self, bucket: &Bucket, key: &str) -> Result<bool, StoreError>;

    /// Returns the keys after `after` (empty: from the first key) in byte order, at most `limit`.
    async fn keys(&self, bucket: &Bucket, after: &str, limit: usize) -> Result<Vec<String>, StoreError>;

    /// Adds `delta` to a number that is stored as decimal digits, and returns the sum. A missing value counts as 0. A value
    /// that is not a number, or an overflow, gives [`StoreError::Invalid`].
    async fn increment(&self, bucket: &Bucket, key: &str, delta: i64) -> Result<i64, StoreError>;

    /// Stores the value if the current one equals `expected` (`None`: if there is no value).
    async fn compare_and_swap(
        &self,
        bucket: &Bucket,
        key: &str,
        expected: Option<Vec<u8>>,
        value: Vec<u8>,
    ) -> Result<Swap, StoreError>;
}

/// A group of keys of one plugin of one agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bucket {
    /// Configured name of the agent.
    pub agent: String,
    /// Name of the plugin.
    pub plugin: String,
    /// Name that the plugin chose for the bucket.
    pub name: String,
    /// Bytes that the plugin may store in all of its buckets together: keys, values, and [`ENTRY_BYTES`] per entry. A write
    /// that would exceed the quota gives [`StoreError::TooLarge`]; one that would exceed [`MAX_ENTRIES`] gives
    /// [`StoreError::Invalid`].
    pub quota: u64,
}

/// Outcome of a compare-and-swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swap {
    /// The current value matched, and the new value is stored.
    Done,
    /// The current value is this one. It did not match and was left unchanged.
    Other(Option<Vec<u8>>),
}
