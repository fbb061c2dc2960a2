//! The port for values that plugins store between calls.

use super::PortError;

/// Stores the values of plugins, each under a key. Each operation is one atomic transaction, even if several processes
/// share the store.
#[async_trait::async_trait]
pub trait KeyValuePort: Send + Sync {
    /// Returns the value of a key, or None if the key has no value.
    async fn get(&self, space: &KeyValueBucket, key: &str) -> Result<Option<Vec<u8>>, PortError>;

    /// Sets the value of a key, whether or not the key already has a value.
    async fn set(&self, space: &KeyValueBucket, key: &str, value: Vec<u8>) -> Result<(), PortError>;

    /// Removes the value of a key, if the key has one.
    async fn delete(&self, space: &KeyValueBucket, key: &str) -> Result<(), PortError>;

    /// Whether the key has a value.
    async fn exists(&self, space: &KeyValueBucket, key: &str) -> Result<bool, PortError>;

    /// Returns at most `limit` keys that follow the key `after`, ordered by their bytes. If `after` is empty, starts at
    /// the first key.
    async fn keys(&self, space: &KeyValueBucket, after: &str, limit: usize) -> Result<Vec<String>, PortError>;

    /// Adds `delta` to the number that is stored as decimal digits under a key, and returns the sum. If the key has no
    /// value, the number counts as 0.
    async fn increment(&self, space: &KeyValueBucket, key: &str, delta: i64) -> Result<i64, PortError>;

    /// Sets the value of a key if the stored value equals `expected`. If `expected` is None, sets the value only if the
    /// key has no value.
    async fn swap(
        &self,
        space: &KeyValueBucket,
        key: &str,
        expected: Option<Vec<u8>>,
        value: Vec<u8>,
    ) -> Result<SwapOutcome, PortError>;
}

/// Identifies one bucket, which belongs to one plugin of one agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValueBucket {
    /// Configured name of the agent.
    pub agent: String,
    /// Name of the plugin that uses the bucket.
    pub plugin: String,
    /// Name of the bucket, chosen by the plugin.
    pub bucket: String,
    /// Maximum total size of the keys and values in all buckets of the plugin, in bytes.
    pub quota: u64,
}

/// The outcome of a compare-and-swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwapOutcome {
    /// The stored value was equal to the expected value, and the new value was stored.
    Done,
    /// The stored value differs from the expected value and was not changed. The field is the stored value.
    Other(Option<Vec<u8>>),
}
