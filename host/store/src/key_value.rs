//! Key-value storage for plugins: each value is identified by agent, plugin, bucket and key (P5, `wasi:keyvalue`).

use crate::StoreError;
use async_trait::async_trait;

/// Maximum size of a value, in bytes.
pub const MAX_VALUE_BYTES: usize = 1 << 20;

/// Maximum size of a key, and of each name in a [`Bucket`], in bytes.
pub const MAX_KEY_BYTES: usize = 1024;

/// Number of bytes that each entry adds to a plugin's usage, in addition to the sizes of the key and the value.
pub const ENTRY_BYTES: u64 = 256;

/// Maximum number of entries of one plugin, regardless of its quota.
pub const MAX_ENTRIES: u64 = 100_000;

/// Stores a value for each key. Each method call is atomic. A key must not be empty.
#[async_trait]
pub trait KeyValue: Send + Sync {
    /// Returns the value of the key, or `None` if the key has no value.
    async fn get(&self, bucket: &Bucket, key: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// Stores a value of at most [`MAX_VALUE_BYTES`] bytes. If the key already has a value, the new value replaces the
    /// old value.
    async fn set(&self, bucket: &Bucket, key: &str, value: Vec<u8>) -> Result<(), StoreError>;

    /// Removes the key and its value. Does nothing if the key has no value.
    async fn delete_key(&self, bucket: &Bucket, key: &str) -> Result<(), StoreError>;

    /// Returns whether the key has a value.
    async fn exists(&self, bucket: &Bucket, key: &str) -> Result<bool, StoreError>;

    /// Returns up to `limit` keys in byte order, starting with the first key after `after`. If `after` is empty, the
    /// list starts with the first key of the bucket.
    async fn keys(&self, bucket: &Bucket, after: &str, limit: usize) -> Result<Vec<String>, StoreError>;

    /// Adds `delta` to a number that is stored as decimal digits, and returns the sum. A missing value counts as 0.
    /// Fails with [`StoreError::Invalid`] if the value is not a number or if the sum overflows.
    async fn increment(&self, bucket: &Bucket, key: &str, delta: i64) -> Result<i64, StoreError>;

    /// Stores `value` if the current value equals `expected`. If `expected` is `None`, stores `value` only if the key
    /// has no value.
    async fn compare_and_swap(
        &self,
        bucket: &Bucket,
        key: &str,
        expected: Option<Vec<u8>>,
        value: Vec<u8>,
    ) -> Result<Swap, StoreError>;
}

/// A named group of keys, which belongs to one plugin of one agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bucket {
    /// Configured name of the agent.
    pub agent: String,
    /// Name of the plugin.
    pub plugin: String,
    /// Name that the plugin chose for the bucket.
    pub name: String,
    /// Maximum number of bytes that the plugin may store in all of its buckets together: keys, values, and
    /// [`ENTRY_BYTES`] per entry. A write that would exceed this quota fails with [`StoreError::TooLarge`]. A write
    /// that would exceed [`MAX_ENTRIES`] fails with [`StoreError::Invalid`].
    pub quota: u64,
}

/// Outcome of a compare-and-swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swap {
    /// The current value was equal to the expected value, and the new value is stored.
    Done,
    /// The current value differs from the expected value and was left unchanged. This variant contains the current
    /// value, or `None` if the key has no value.
    Other(Option<Vec<u8>>),
}
